"""Figures of merit, in numpy: area under ROC, average precision, F1, calibration error."""

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.floating]


def auroc(score: npt.NDArray[np.floating], positive: npt.NDArray[np.bool_]) -> float:
    """Area under the ROC curve; ties count half.

    Args:
        score: Shape (n,); higher means more likely positive.
        positive: Shape (n,).

    Returns:
        0 to 1; NaN when only one kind is there.

    >>> auroc(np.array([0.1, 0.4, 0.35, 0.8]), np.array([False, False, True, True]))
    0.75
    """
    _, inverse, counts = np.unique(score, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2.0)[inverse]
    positives = int(positive.sum())
    negatives = len(score) - positives
    if not positives or not negatives:
        return float("nan")
    return float((ranks[positive].sum() - positives * (positives + 1) / 2.0) / (positives * negatives))


def macro_f1(truth: npt.NDArray[np.int64], said: npt.NDArray[np.int64], classes: int) -> float:
    """Mean of the classes' F1; a class that is neither there nor said is left out.

    >>> macro_f1(np.array([0, 0, 1]), np.array([0, 1, 1]), 2)
    0.6666666666666666
    """
    scores = []
    for index in range(classes):
        hit = int(((truth == index) & (said == index)).sum())
        total = int((truth == index).sum() + (said == index).sum())
        if total:
            scores.append(2.0 * hit / total)
    return float(np.mean(scores)) if scores else float("nan")


def average_precision(score: npt.NDArray[np.floating], positive: npt.NDArray[np.bool_], count: int) -> float:
    """Area under the precision-recall curve, with precision made non-increasing from the right.

    Args:
        score: Shape (n,): of all detections.
        positive: Shape (n,): which of them found a fault that none before had found.
        count: How many faults there were.

    Returns:
        0 to 1; NaN when there was no fault.
    """
    if not count:
        return float("nan")
    order = np.argsort(-score, kind="stable")
    hits = np.cumsum(positive[order])
    precision = hits / np.arange(1, len(order) + 1)
    precision = np.maximum.accumulate(precision[::-1])[::-1]
    recall = np.concatenate([[0.0], hits / count])
    return float(np.sum(np.diff(recall) * precision)) if len(order) else 0.0


def calibration_error(score: npt.NDArray[np.floating], positive: npt.NDArray[np.bool_], bins: int = 10) -> float:
    """Expected calibration error: mean distance between score and share of positives, over equal bins of score."""
    if not len(score):
        return float("nan")
    which = np.minimum((score * bins).astype(int), bins - 1)
    error = 0.0
    for index in range(bins):
        inside = which == index
        if inside.any():
            error += float(inside.mean()) * abs(float(score[inside].mean()) - float(positive[inside].mean()))
    return error
