"""Mutants of frames that are fitted ahead: each gives a frame another one's answer, and a test finds it."""

from collections.abc import Callable

import numpy as np
import pytest

from swarmd_models import detector as detectors
from swarmd_models.backends.base import Array
from swarmd_models.detector import Detector
from swarmd_models.fitted_ahead import FittedAhead
from swarmd_models.preprocess import Preprocessor
from swarmd_models.types import Image
from tests.unit import test_fitted_ahead as laws


def whatever_was_fitted_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    take = FittedAhead.take

    def mutated(ahead: FittedAhead, image: Image, own: Preprocessor, view: Array) -> Preprocessor | None:
        fitted = ahead._fitted
        return take(ahead, image if fitted is None else fitted, own, view)

    monkeypatch.setattr(FittedAhead, "take", mutated)


def both_share_a_canvas(monkeypatch: pytest.MonkeyPatch) -> None:
    take = FittedAhead.take

    def mutated(ahead: FittedAhead, image: Image, own: Preprocessor, view: Array) -> Preprocessor | None:
        fitted = take(ahead, image, own, view)
        if fitted is not None:
            ahead._preprocessor = fitted
        return fitted

    monkeypatch.setattr(FittedAhead, "take", mutated)


def what_the_net_saw_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    take = FittedAhead.take

    def mutated(ahead: FittedAhead, image: Image, own: Preprocessor, view: Array) -> Preprocessor | None:
        fitted = take(ahead, image, own, view)
        if fitted is not None:
            fitted.canvas[:] = np.uint8(128)
        return fitted

    monkeypatch.setattr(FittedAhead, "take", mutated)


@pytest.mark.parametrize(
    ("law", "mutant"),
    [
        (laws.test_a_frame_is_taken_once_and_only_as_the_object_that_was_fitted, whatever_was_fitted_is_taken),
        (laws.test_what_the_net_saw_stays_while_the_next_frame_is_fitted, both_share_a_canvas),
        (
            laws.test_whatever_was_fitted_ahead_every_frame_has_the_answer_that_it_has_alone,
            what_the_net_saw_is_forgotten,
        ),
    ],
)
def test_a_mutant_is_found(
    law: Callable[[Detector], None], mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detectors, "CORES", 2)
    monkeypatch.setattr(detectors, "AHEAD_FROM_NS", 0)
    mutant(monkeypatch)
    detector = laws.opened()
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        law(detector)
    detector.close()
