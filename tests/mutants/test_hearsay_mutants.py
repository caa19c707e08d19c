"""Mutants of doubts on others' word: each lets one stand for ever, or asks without end, and a law finds it."""

from collections.abc import Callable

import pytest

from swarmd_protocols.swim import accusations as accusations_module
from swarmd_protocols.swim.accusations import Accusations
from swarmd_protocols.swim.messages import LEVEL_SUSPECT, LEVEL_UNRESPONSIVE
from tests.property import test_hearsay_laws as laws
from tests.support.mutants import Mutant, assert_found


def nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Accusations, "_doubt_hearsay", lambda self, member: None)


def asks_have_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accusations_module.TokenBucket, "take", lambda *_: True)


def suspicions() -> None:
    laws.check_hearsay_ends(LEVEL_SUSPECT)


def stuck() -> None:
    laws.check_hearsay_ends(LEVEL_UNRESPONSIVE)


@pytest.mark.parametrize(
    ("mutant", "law"),
    [
        (nobody_asks, suspicions),
        (nobody_asks, stuck),
    ],
)
def test_the_law_finds_the_mutant(mutant: Mutant, law: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)


def test_the_law_finds_asks_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(asks_have_no_bound, lambda: laws.check_asks(monkeypatch), monkeypatch)
