"""Logistic regression by Newton's method."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
_STEPS, _LOGIT_MOST = 60, 60.0


def regression(
    x: Floats, wanted: npt.NDArray[np.bool_], like: Floats | None = None, pull: float = 1e-3, stride: float = np.inf
) -> Floats:
    """Weights of the columns.

    Args:
        x: Shape (rows, columns); a column of ones for an offset.
        wanted: Shape (rows,).
        like: Weights where few rows say otherwise; None: zeros.
        pull: How strongly they are kept to those; rows count 1 at most.
        stride: What a step changes of a weight at most: a whole one leaps away where nearly all are sure.
    """
    like = np.zeros(x.shape[1]) if like is None else like
    found = like.copy()
    for _ in range(_STEPS):
        p = 1.0 / (1.0 + np.exp(-np.clip(x @ found, -_LOGIT_MOST, _LOGIT_MOST)))
        bend = (x * (p * (1.0 - p))[:, None]).T @ x + pull * np.eye(x.shape[1])
        step = np.linalg.solve(bend, x.T @ (wanted - p) - pull * (found - like))
        found = found + np.clip(step, -stride, stride)
    return np.asarray(found)
