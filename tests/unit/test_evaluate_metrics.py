"""Figures of merit against hand-made cases and slow definitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmd_models.metrics import auroc, average_precision, calibration_error, macro_f1


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=40))
def test_auroc_is_the_share_of_well_ordered_pairs(pairs: list[tuple[int, bool]]) -> None:
    score = np.array([s for s, _ in pairs], dtype=float)
    positive = np.array([p for _, p in pairs])
    wins = [(a > b) + 0.5 * (a == b) for a in score[positive] for b in score[~positive]]
    if wins:
        assert auroc(score, positive) == pytest.approx(np.mean(wins))
    else:
        assert np.isnan(auroc(score, positive))


def test_macro_f1_by_hand() -> None:
    truth, said = np.array([0, 0, 1, 1, 2]), np.array([0, 1, 1, 1, 0])
    assert macro_f1(truth, said, 4) == pytest.approx((0.5 + 0.8 + 0.0) / 3)


@pytest.mark.parametrize(
    ("hits", "count", "wanted"),
    [([1, 1], 2, 1.0), ([1, 0, 1], 2, (1 + 2 / 3) / 2), ([0, 1], 1, 0.5), ([0, 0], 1, 0.0), ([1], 2, 0.5)],
)
def test_average_precision_by_hand(hits: list[int], count: int, wanted: float) -> None:
    score = -np.arange(len(hits), dtype=float)
    assert average_precision(score, np.array(hits, dtype=bool), count) == pytest.approx(wanted)


def test_average_precision_of_nothing() -> None:
    assert average_precision(np.zeros(0), np.zeros(0, dtype=bool), 3) == 0.0
    assert np.isnan(average_precision(np.zeros(0), np.zeros(0, dtype=bool), 0))


def test_calibration_error_by_hand() -> None:
    score = np.array([0.95] * 10 + [0.05] * 10)
    good = np.array([True] * 9 + [False] + [False] * 10)
    assert calibration_error(score, good) == pytest.approx(0.05)
    assert calibration_error(score, ~good) > 0.8
