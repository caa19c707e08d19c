"""YOLO outputs in one tensor: v8 and 11 (4 + classes rows, no objectness) and v5 (5 + classes, objectness first).

Boxes are centre x, centre y, width, height, in input pixels or, as some exporters write, in fractions of the input.
"""

from collections.abc import Sequence

import numpy as np

from swarmd_models.backends.base import Array, TensorSpec
from swarmd_models.bundle import Bundle
from swarmd_models.decoders.base import (
    MAX_CANDIDATES,
    Candidates,
    at_least,
    best,
    check_finite,
    empty,
    raw_threshold,
    real,
)
from swarmd_models.errors import ArtefactError

_FRACTION_LIMIT = 2.0
"""Some centre of a pixel-unit head always lies further out than this; no fraction does."""


class YoloDecoder:
    """Decodes one YOLOv5, v8 or 11 tensor, whichever way its axes lie."""

    def __init__(self, bundle: Bundle, outputs: Sequence[TensorSpec], width: int, height: int) -> None:
        """Read the layout off the tensor's shape; raises `ArtefactError` when it fits neither."""
        if len(outputs) != 1:
            raise ArtefactError(f"a YOLO head has one output; this model has {len(outputs)}")
        self._spec = outputs[0]
        layout = yolo_layout(self._spec.shape, len(bundle.labels))
        if layout is None:
            raise ArtefactError(
                f"output {self._spec.shape} fits neither 4 (v8, 11) nor 5 (v5) numbers a box plus one for each of the "
                f"{len(bundle.labels)} labels; check the labels"
            )
        self._rows_are_boxes, self._has_objectness = layout
        self._size = np.asarray([width, height, width, height], np.float32)
        units = bundle.decode.box_units
        self._is_fraction: bool | None = None if units == "auto" else units == "fraction"
        default = bundle.decode.score_threshold
        self._thresholds = np.asarray(
            [bundle.decode.class_thresholds.get(name, default) for name in bundle.labels], np.float32
        )

    def decode(self, views: Sequence[Array]) -> Candidates:
        """Candidates of one frame, the best class of each box."""
        view = views[0]
        check_finite(view, "the output")
        rows = view if self._rows_are_boxes else view.T
        first = 5 if self._has_objectness else 4
        if self._is_fraction is None:
            centres = real(rows[:, :2], self._spec)
            self._is_fraction = bool(centres.size and centres.max() <= _FRACTION_LIMIT)
        cells = self._survivors(rows, first)
        if cells.size == 0:
            return empty()
        values = real(rows[cells], self._spec)
        per_class = values[:, first:] * (values[:, 4:5] if self._has_objectness else np.float32(1.0))
        classes = per_class.argmax(axis=1)
        scores = np.clip(per_class[np.arange(classes.size), classes], 0.0, 1.0)
        keep = scores >= self._thresholds[classes]
        values, classes, scores = values[keep], classes[keep], scores[keep]
        kept = best(scores, MAX_CANDIDATES)
        if kept is not None:
            values, classes, scores = values[kept], classes[kept], scores[kept]
        xywh = values[:, :4] * (self._size if self._is_fraction else np.float32(1.0))
        np.maximum(xywh[:, 2:], 0.0, out=xywh[:, 2:])
        xywh[:, :2] -= xywh[:, 2:] / 2
        return Candidates(xywh, scores, classes)

    def _survivors(self, rows: Array, first: int) -> np.typing.NDArray[np.intp]:
        limit = raw_threshold(float(self._thresholds.min()), self._spec)
        if self._has_objectness:
            return at_least(np.ascontiguousarray(rows[:, 4]), limit)
        hot = np.ascontiguousarray(rows[:, first:].max(axis=1))
        return at_least(hot, limit)


def yolo_layout(shape: tuple[int, ...], classes: int) -> tuple[bool, bool] | None:
    """(rows are boxes, has objectness), or None when the shape is no YOLO head for this many classes."""
    if len(shape) != 3 or shape[0] != 1 or classes < 1:
        return None
    for has_objectness, width in ((False, 4 + classes), (True, 5 + classes)):
        if shape[2] == width and shape[1] != width:
            return True, has_objectness
        if shape[1] == width and shape[2] != width:
            return False, has_objectness
    return None
