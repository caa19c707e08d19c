"""Training a head on rows of many devices: in one place, and as the average that an observer takes."""

from collections.abc import Callable, Sequence

import numpy as np

from swarmd_models.head_rows import F64, REPLAY, Rows, gradient, one_hot

_CENTRAL_STEPS, _CENTRAL_RATE = 400, 0.02
"""Of Adam, where all rows are in one place."""


def central(head: F64, rows: Rows, replay: Rows) -> F64:
    """The head that all rows in one place make: Adam on the same loss."""
    new, first, second = head.copy(), np.zeros_like(head), np.zeros_like(head)
    wanted, known = one_hot(rows.labels, len(head)), one_hot(replay.labels, len(head))
    for step in range(1, _CENTRAL_STEPS + 1):
        back = (1 - REPLAY) * gradient(new, rows, wanted) + REPLAY * gradient(new, replay, known)
        first = 0.9 * first + 0.1 * back
        second = 0.999 * second + 0.001 * back**2
        new = new - _CENTRAL_RATE * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
    return new


def federated(head: F64, changes: Sequence[Callable[[F64], F64]], rows: Sequence[int], rounds: int) -> F64:
    """Federated average through an observer: each round the mean of all changes, by rows.

    Args:
        head: To begin with.
        changes: Of each member: what it says from a head on.
        rows: That it says to have.
        rounds: How many.

    Source:
        McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data (2017).
    """
    new = head.copy()
    for _ in range(rounds):
        said = [change(new) for change in changes]
        new = new + sum(count * one for count, one in zip(rows, said, strict=True)) / sum(rows)
    return new
