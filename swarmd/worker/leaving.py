"""What may leave this device (`lending.leave`), whatever a program asks for.

| `lending.leave` | leaves |
|---|---|
| `never` | nothing: metadata are asked for, and inputs stay |
| `features` | what a part of a model has computed here (`Swarmd-Borrow: split`), no input |
| `crops` | that, and of a picture what lies in boxes that the own model has drawn; all else in it is one grey |
| `frames` | the request's input as the program sent it |
"""

from swarmd.worker.oip import OipError
from swarmd_models.backends.base import Array
from swarmd_models.redaction import only_findings

NEVER, FEATURES, CROPS, FRAMES = "never", "features", "crops", "frames"
LEVELS = (NEVER, FEATURES, CROPS, FRAMES)
"""Each allows what those before it do."""


def judge(what: str, allowed: str) -> None:
    """Whether something may leave; raises `OipError` (403)."""
    if LEVELS.index(what) > LEVELS.index(allowed):
        raise OipError(403, f"this request would let {what} leave; lending.leave = {allowed!r} does not")


def redacted(image: Array, boxes: Array) -> Array:
    """A picture in which all that lies in no box is the picture's median, as in what leaves the eye.

    Args:
        image: Shape (rows, columns, channels), uint8.
        boxes: Shape (n, 4): x1, y1, x2, y2, pixels.
    """
    return only_findings(image, [(float(x1), float(y1), float(x2), float(y2)) for x1, y1, x2, y2 in boxes])
