"""Mutants of who is not heard: each breaks one rule, and its law finds it."""

from collections.abc import Callable

import pytest

from swarmd_protocols.swim.accusations import Accusations
from swarmd_protocols.swim.voice import Voice
from tests.property import test_unheard_laws as laws
from tests.support.mutants import Mutant, assert_found, each_law, each_mutant


def silence_is_always_the_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Voice, "is_the_links", lambda self, probe, loss: True)


def what_was_lost_before_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """One answer proves all questions that came to nothing before it."""
    monkeypatch.setattr(Voice, "is_the_links", lambda self, probe, loss: probe.unproven >= 0)


def silence_is_never_the_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Voice, "is_the_links", lambda self, probe, loss: False)


def a_verdict_stands_against_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Accusations, "give_way", lambda self, member: False)


def unheard() -> None:
    laws.check_unheard(8.0, 1)


def unheard_for_a_moment() -> None:
    laws.check_unheard(1.75, 4)


def deaf() -> None:
    laws.check_deaf({5, 6}, 1)


def deaf_and_failed_by_one() -> None:
    laws.check_deaf({0}, 629826)


PAIRS: list[tuple[Callable[[], None], Mutant]] = [
    (unheard, silence_is_always_the_links),
    (unheard_for_a_moment, what_was_lost_before_counts),
    (deaf, silence_is_never_the_links),
    (deaf_and_failed_by_one, a_verdict_stands_against_all),
]


@each_law(PAIRS)
def test_the_unbroken_code_holds(law: Callable[[], None]) -> None:
    law()


@each_mutant(PAIRS)
def test_the_law_finds_the_mutant(law: Callable[[], None], mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
