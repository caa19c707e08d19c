"""Mutants of who is asked for chunks after a bad one: each breaks one rule, and its law finds it."""

from collections.abc import Callable

import pytest

from swarmd_protocols.ids import NodeId
from swarmd_protocols.releases.bans import Bans
from swarmd_protocols.releases.chunksets import Counts
from tests.property import test_ban_laws as laws
from tests.support.mutants import Mutant, assert_found, each_law, each_mutant


def nothing_before_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bans, "is_due", lambda self, node, now_ns: False)


def one_chunk_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bans, "gave", lambda self, node, now_ns: None)


def each_pause_is_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def add(self: Bans, node: NodeId, now_ns: int) -> None:
        self._by_node[node] = now_ns + self._ban_ns, now_ns + self._retry_ns, self._retry_ns

    monkeypatch.setattr(Bans, "add", add)


def all_it_shows_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counts, "under", lambda self, count: (1 << laws.CHUNKS) - 1)


def only_holder() -> None:
    laws.check_only_holder(2, 0)


def liar() -> None:
    laws.check_liar(laws.ALL, 0)


def others() -> None:
    laws.check_others(1, 0)


PAIRS: list[tuple[Callable[[], None], Mutant]] = [
    (only_holder, nothing_before_the_time_is_over),
    (only_holder, one_chunk_a_pause),
    (liar, each_pause_is_the_first),
    (others, all_it_shows_is_asked),
]


@each_law(PAIRS)
def test_the_unbroken_code_holds(law: Callable[[], None]) -> None:
    law()


@each_mutant(PAIRS)
def test_the_law_finds_the_mutant(law: Callable[[], None], mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
