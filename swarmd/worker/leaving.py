"""What may leave this device (`lending.leave`), whatever a program asks for.

| `lending.leave` | leaves |
|---|---|
| `never` | nothing: metadata are asked for, and inputs stay |
| `features` | what a part of a model has computed here (`Swarmd-Borrow: split`), no input |
| `crops` | that, and of a picture what lies in boxes that the own model has drawn; all else in it is one grey |
| `frames` | the request's input as the program sent it |
"""

import numpy as np

from swarmd.worker.oip import OipError
from swarmd_models.backends.base import Array

NEVER, FEATURES, CROPS, FRAMES = "never", "features", "crops", "frames"
LEVELS = (NEVER, FEATURES, CROPS, FRAMES)
"""Each allows what those before it do."""
_MARGIN = 0.25
"""Of a box's side, kept around it: a judge wants to see where a thing ends."""
_LEAST_PIXELS = 8
"""Kept around a box at least."""


def judge(what: str, allowed: str) -> None:
    """Whether something may leave; raises `OipError` (403)."""
    if LEVELS.index(what) > LEVELS.index(allowed):
        raise OipError(403, f"this request would let {what} leave; lending.leave = {allowed!r} does not")


def redacted(image: Array, boxes: Array) -> Array:
    """A picture in which all that lies in no box is the picture's median.

    Args:
        image: Shape (rows, columns, channels), uint8.
        boxes: Shape (n, 4): x1, y1, x2, y2, pixels.
    """
    found = np.empty_like(image)
    found[...] = np.median(image, axis=(0, 1)).astype(image.dtype)
    rows, columns = image.shape[:2]
    for x1, y1, x2, y2 in boxes.astype(np.float64):
        across, down = (max(_LEAST_PIXELS, _MARGIN * side) for side in (x2 - x1, y2 - y1))
        left, right = (int(np.clip(edge, 0, columns)) for edge in (np.floor(x1 - across), np.ceil(x2 + across)))
        top, bottom = (int(np.clip(edge, 0, rows)) for edge in (np.floor(y1 - down), np.ceil(y2 + down)))
        found[top:bottom, left:right] = image[top:bottom, left:right]
    return found
