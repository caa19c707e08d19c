"""From output tensors to candidate boxes.

Thresholds are applied to raw values: an int8 logit is compared with an int8 number, and only what survives is turned
into a score. A decoder never keeps a view of the outputs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from swarmd_models.backends.base import Array, TensorSpec
from swarmd_models.errors import ArtefactError, OutputError

MAX_CANDIDATES = 1000
"""Before NMS, the best first: a model gone mad must not stop the eye."""
_FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class Candidates:
    """Boxes in input pixels with their scores; NMS follows unless `is_final`."""

    xywh: npt.NDArray[np.float32]
    """Shape (N, 4): left, top, width, height."""
    scores: npt.NDArray[np.float32]
    classes: npt.NDArray[np.intp]
    is_final: bool = False
    covers_frame: bool = False
    """The answer is about the whole frame (classifier); `xywh` is not used."""
    kinds: npt.NDArray[np.float32] | None = None
    """Shape (N, classes): calibrated logits of every class, for a second stage; None where the head has none."""


class Decoder(Protocol):
    """Knows one head's layout."""

    def decode(self, views: Sequence[Array]) -> Candidates:
        """Candidates out of the outputs, in the order of the backend's `outputs`; raises `BackendError` on NaN."""
        ...


def empty(is_final: bool = False) -> Candidates:
    """Nothing seen."""
    return Candidates(np.empty((0, 4), np.float32), np.empty(0, np.float32), np.empty(0, np.intp), is_final)


def real(raw: Array, spec: TensorSpec) -> npt.NDArray[np.float32]:
    """Real values of raw ones."""
    values = raw.astype(np.float32)
    if spec.is_quantised:
        values = (values - np.float32(spec.zero_point)) * np.float32(spec.scale)
    return values


def raw_threshold(value: float, spec: TensorSpec) -> int | float:
    """The smallest raw number that stands for at least `value`; may lie outside of the tensor's range.

    >>> raw_threshold(0.0, TensorSpec("x", (1,), np.dtype(np.int8), 0.1, -28))
    -28
    """
    if not spec.is_quantised:
        return value
    return math.ceil(value / spec.scale + spec.zero_point - 1e-6)


def at_least(raw: Array, threshold: int | float) -> npt.NDArray[np.intp]:
    """Flat indices of the elements that reach the threshold."""
    if raw.dtype.kind in "iu":
        info = np.iinfo(raw.dtype)
        if threshold > info.max:
            return np.empty(0, np.intp)
        threshold = max(int(threshold), info.min)
    return np.flatnonzero(raw.ravel() >= raw.dtype.type(threshold))


def best(scores: Array, limit: int) -> npt.NDArray[np.intp] | None:
    """Positions of the `limit` greatest; None when there are no more than that."""
    if scores.size <= limit:
        return None
    return np.argpartition(scores, scores.size - limit)[-limit:]


def logit(probability: float) -> float:
    """Inverse of the sigmoid, for probabilities in (0, 1]."""
    return math.log(probability / max(1.0 - probability, 1e-9))


def check_finite(view: Array, what: str) -> None:
    """Raise `OutputError` when a float output holds NaN or infinity: their sum shows it, in 32 bits or more."""
    wide = np.float32 if view.dtype.itemsize < _FLOAT_BYTES else None
    if view.dtype.kind == "f" and not np.isfinite(np.sum(view, dtype=wide)):
        raise OutputError(f"the model answers NaN or infinity in {what}; the runtime or the model is broken")


def find_output(specs: Sequence[TensorSpec], name: str, role: str) -> int:
    """Index of the output that a bundle names for a role."""
    for index, spec in enumerate(specs):
        if spec.name == name:
            return index
    raise ArtefactError(f"the model has no output {name!r} for {role}; it has {', '.join(s.name for s in specs)}")
