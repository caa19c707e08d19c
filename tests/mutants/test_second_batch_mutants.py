"""Mutants of the second stage's shared runs: each lets a box have another answer than alone, and a test finds it."""

from collections.abc import Callable

import numpy as np
import pytest

from swarmd_models import second
from swarmd_models.second import SecondStage
from tests.unit import test_second_batch as laws


def a_batch_is_taken_on_trust(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SecondStage, "_is_same", lambda stage, batch, cuts: True)
    monkeypatch.setattr(SecondStage, "_pays", lambda stage, batch, cuts: True)


def a_slow_batch_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SecondStage, "_pays", lambda stage, batch, cuts: True)


def views_of_a_run_are_mixed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    run = SecondStage._run_together
    monkeypatch.setattr(SecondStage, "_run_together", lambda stage, batch, cuts: np.roll(run(stage, batch, cuts), 1, 0))


def a_shared_run_turns_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    run = SecondStage._run_together

    def mutated(stage: SecondStage, batch: second.LiteRtBatch, cuts: list[second.Image]) -> second.Floats:
        return run(stage, batch, [cuts[0]] * len(cuts))

    monkeypatch.setattr(SecondStage, "_run_together", mutated)


def untrusted() -> None:
    laws.test_a_batch_that_says_otherwise_takes_longer_or_fails_is_not_used(laws.Wrong)


def slow() -> None:
    laws.test_a_batch_that_says_otherwise_takes_longer_or_fails_is_not_used(laws.Slow)


def answers() -> None:
    laws.test_boxes_have_the_same_answers_however_many_share_a_run(2)


@pytest.mark.parametrize(
    ("law", "mutant"),
    [
        (untrusted, a_batch_is_taken_on_trust),
        (slow, a_slow_batch_is_taken),
        (answers, views_of_a_run_are_mixed_up),
        (answers, a_shared_run_turns_nothing),
    ],
)
def test_a_mutant_is_found(
    law: Callable[[], None], mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        law()
