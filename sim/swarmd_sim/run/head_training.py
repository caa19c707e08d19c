"""Training a linear head on rows: on a device, in one place, and as the average that an observer takes."""

from collections.abc import Callable, Sequence

import numpy as np

from swarmd_sim.world.learning_rows import F64, I64, Rows

REPLAY = 0.5
"""Weight of drawn modules of the cameras that the model was made for, so that what it knew stays known."""
STEPS = 10
"""Of gradient descent in a round, on a device."""
RATE = 0.4
_CENTRAL_STEPS, _CENTRAL_RATE = 400, 0.02
"""Of Adam, where all rows are in one place."""


def gradient(head: F64, rows: Rows, wanted: F64) -> F64:
    """Of the cross entropy.

    Args:
        head: Shape (classes, inputs + 1).
        rows: Features.
        wanted: Shape (rows, classes).
    """
    said = rows.features @ head.T
    said -= said.max(axis=1, keepdims=True)
    share = np.exp(said)
    share /= share.sum(axis=1, keepdims=True)
    found: F64 = (share - wanted).T @ rows.features / len(rows.labels)
    return found


def accuracy(head: F64, rows: Rows) -> float:
    """Share of rows whose class the head names."""
    return float(((rows.features @ head.T).argmax(axis=1) == rows.labels).mean())


def one_hot(labels: I64, classes: int) -> F64:
    """Shape (rows, classes)."""
    found: F64 = np.eye(classes)[labels]
    return found


def trained(head: F64, rows: Rows, wanted: F64, replay: Rows | None, steps: int = STEPS) -> F64:
    """The head after some steps on a device's rows and, where it is honest, what it draws itself."""
    new = head.copy()
    known = None if replay is None else one_hot(replay.labels, len(head))
    for _ in range(steps):
        back = gradient(new, rows, wanted)
        if replay is not None and known is not None:
            back = (1 - REPLAY) * back + REPLAY * gradient(new, replay, known)
        new -= RATE * back
    return new


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
