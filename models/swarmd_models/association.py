"""Which box belongs to which: overlap, distance in boxes, a common shift, and a one-to-one match. Pure functions."""

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

Box: TypeAlias = tuple[float, float, float, float]
"""(x1, y1, x2, y2)."""

SAME = 0.35
"""Boxes: closer than this to where it must be, a thing is taken to be there."""
MAX_SHIFT_BOXES = 2.5
"""Boxes that a thing may move between two frames: a whole scene shifts farther only when the camera was thrown."""
_MAX_TRIALS = 48
"""Shifts tried, the shortest first: each costs one pass over all pairs."""


def iou(a: Box, b: Box) -> float:
    """Overlap of two boxes, 0 to 1.

    >>> iou((0, 0, 2, 2), (1, 0, 3, 2))
    0.3333333333333333
    """
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    shared = width * height
    whole = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared
    return shared / whole if whole > 0 else 0.0


def centre_distance(a: Box, b: Box) -> float:
    """Distance of the centres along the worse axis, in mean box sizes; 1.0 means neighbours that touch.

    >>> centre_distance((0, 0, 10, 20), (10, 0, 20, 20))
    1.0
    """
    width = max((a[2] - a[0] + b[2] - b[0]) / 2, 1.0)
    height = max((a[3] - a[1] + b[3] - b[1]) / 2, 1.0)
    dx = abs(a[0] + a[2] - b[0] - b[2]) / 2
    dy = abs(a[1] + a[3] - b[1] - b[3]) / 2
    return max(dx / width, dy / height)


def match(costs: list[tuple[float, int, int]]) -> list[tuple[int, int]]:
    """One-to-one pairs, the cheapest first; ties go by index, so equal input gives equal output.

    >>> match([(0.2, 0, 0), (0.1, 1, 0), (0.3, 0, 1)])
    [(0, 1), (1, 0)]
    """
    rows: set[int] = set()
    columns: set[int] = set()
    pairs = []
    for _, row, column in sorted(costs):
        if row not in rows and column not in columns:
            rows.add(row)
            columns.add(column)
            pairs.append((row, column))
    return sorted(pairs)


def common_shift(predicted: Sequence[Box], seen: Sequence[Box], max_shift: float) -> tuple[float, float]:
    """The shift (pixels) that an attitude error gave to the whole picture, or (0, 0) when the boxes do not prove one.

    Every pair of a predicted and a seen box suggests a shift; the one under which most predictions find a box wins. A
    shift other than none needs three witnesses and two more than standing still has.

    Args:
        predicted: Where things must be.
        seen: Where things are.
        max_shift: Longest shift that can be explained, pixels.
    """
    p = np.asarray(predicted, np.float64)
    s = np.asarray(seen, np.float64)
    p_mid, s_mid = (p[:, :2] + p[:, 2:]) / 2, (s[:, :2] + s[:, 2:]) / 2
    size = np.maximum((p[:, None, 2:] - p[:, None, :2] + s[None, :, 2:] - s[None, :, :2]) / 2, 1.0)
    residual = s_mid[None] - p_mid[:, None]
    distance = np.abs(residual / size).max(axis=2)
    standing = int((distance < SAME).any(axis=1).sum())
    if standing == min(len(predicted), len(seen)):
        return 0.0, 0.0
    length = np.hypot(residual[..., 0], residual[..., 1])
    near = (distance < MAX_SHIFT_BOXES) & (length <= max_shift)
    trials = residual[near][np.argsort(length[near], kind="stable")[:_MAX_TRIALS]]
    most, found = max(standing + 1, 2), (0.0, 0.0)
    for dx, dy in trials:
        agreeing = np.abs((residual - (dx, dy)) / size).max(axis=2) < SAME
        witnesses = int(agreeing.any(axis=1).sum())
        if witnesses > most:
            most = witnesses
            mean = residual[agreeing].mean(axis=0)
            found = (float(mean[0]), float(mean[1]))
    return found if math.hypot(*found) <= max_shift else (0.0, 0.0)
