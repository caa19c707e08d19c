"""YOLO outputs in one tensor: v5 to 11, YOLOX, oriented boxes, poses (boxes only), and heads with NMS inside.

Boxes are centre x, centre y, width, height, in input pixels or, as some exporters write, in fractions of the input;
after a model's own NMS they are corners. `yolo_heads.py` says which head it is.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from swarmd_models.backends.base import Array, TensorSpec
from swarmd_models.bundle import NEVER, Bundle
from swarmd_models.decoders.anchor_free import cell_grid
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
from swarmd_models.decoders.yolo_heads import read_head
from swarmd_models.errors import OutputError
from swarmd_models.opencv import cv2

_FRACTION_LIMIT = 2.0
"""Some centre of a pixel-unit head always lies further out than this; no fraction does."""
_SCORE_SLACK = 1e-3
"""Above 1: what half precision and quantising add to a score."""
_MAX_GROWTH = 10.0
"""Exponent of a side in strides: e^10 strides are wider than any picture."""

Floats = npt.NDArray[np.float32]


class YoloDecoder:
    """Decodes one YOLO tensor, whichever way its axes lie."""

    def __init__(self, bundle: Bundle, outputs: Sequence[TensorSpec], width: int, height: int) -> None:
        """Read the head off the tensor's shape; raises `ArtefactError` when none or several fit."""
        rule = bundle.decode
        kinds = () if rule.head == "auto" else (rule.head,)
        self._head = read_head(outputs, len(bundle.labels), (width, height), kinds, rule.strides)
        self._spec = outputs[self._head.output]
        self._size = np.asarray([width, height, width, height], np.float32)
        self._is_fraction: bool | None = None if rule.box_units == "auto" else rule.box_units == "fraction"
        self._thresholds = np.asarray([rule.threshold_of(name) for name in bundle.labels], np.float32)
        self._unlabelled = NEVER if rule.classes else rule.score_threshold
        self._iou_threshold, self._is_agnostic = rule.iou_threshold, rule.class_agnostic_nms
        self._grid = cell_grid(width, height, self._head.strides) if self._head.kind == "yolox" else None

    def decode(self, views: Sequence[Array]) -> Candidates:
        """Candidates of one frame, the best class of each box."""
        view = views[self._head.output]
        check_finite(view, "the output")
        rows = view if self._head.rows_are_boxes else view.T
        if self._head.kind == "end2end":
            return self._final(real(rows, self._spec))
        first, classes_end = self._head.first_class, self._head.first_class + self._head.classes
        if self._is_fraction is None and self._grid is None:
            centres = real(rows[:, :2], self._spec)
            self._is_fraction = bool(centres.size and centres.max() <= _FRACTION_LIMIT)
        cells = self._survivors(rows, first, classes_end)
        if cells.size == 0:
            return empty()
        values = real(rows[cells], self._spec)
        per_class = values[:, first:classes_end] * (values[:, 4:5] if first == 5 else np.float32(1.0))
        classes = per_class.argmax(axis=1)
        scores = np.clip(per_class[np.arange(classes.size), classes], 0.0, 1.0)
        keep = scores >= self._thresholds[classes]
        cells, values, classes, scores = cells[keep], values[keep], classes[keep], scores[keep]
        kept = best(scores, MAX_CANDIDATES)
        if kept is not None:
            cells, values, classes, scores = cells[kept], values[kept], classes[kept], scores[kept]
        xywh = self._boxes(cells, values)
        np.maximum(xywh[:, 2:], 0.0, out=xywh[:, 2:])
        if self._head.kind == "obb":
            return self._enclosing(xywh, values[:, -1], scores, classes)
        xywh[:, :2] -= xywh[:, 2:] / 2
        return Candidates(xywh, scores, classes)

    def _boxes(self, cells: npt.NDArray[np.intp], values: Floats) -> Floats:
        """Centres and sides in input pixels."""
        if self._grid is None:
            return values[:, :4] * (self._size if self._is_fraction else np.float32(1.0))
        centres, strides = self._grid
        stride = strides[cells, None]
        # YOLOX counts from a cell's corner, `cell_grid` from its middle.
        middle = centres[cells] - stride / 2 + values[:, :2] * stride
        sides: Floats = np.exp(np.minimum(values[:, 2:4], np.float32(_MAX_GROWTH))) * stride
        return np.concatenate([middle, sides], axis=1)

    def _survivors(self, rows: Array, first: int, end: int) -> npt.NDArray[np.intp]:
        limit = raw_threshold(float(self._thresholds.min()), self._spec)
        if first == 5:
            return at_least(np.ascontiguousarray(rows[:, 4]), limit)
        hot = np.ascontiguousarray(rows[:, first:end].max(axis=1))
        return at_least(hot, limit)

    def _final(self, rows: Floats) -> Candidates:
        """Rows of a head with NMS inside: left, top, right, bottom, score, class; what is empty has the score 0."""
        scores, classes = rows[:, 4], np.rint(rows[:, 5])
        if scores.size and (scores.max() > 1.0 + _SCORE_SLACK or scores.min() < -_SCORE_SLACK):
            raise OutputError(
                f"the fifth number of a row is {float(scores.max()):.3g} and no score from 0 to 1; the rows of this "
                "head are not left, top, right, bottom, score, class"
            )
        chosen = np.clip(classes, 0, 1 << 20).astype(np.intp)
        keep = (scores >= self._limits(chosen)) & (rows[:, 2] > rows[:, 0]) & (rows[:, 3] > rows[:, 1])
        corners = rows[keep, :4].copy()
        if self._is_fraction or (self._is_fraction is None and corners.size and corners.max() <= _FRACTION_LIMIT):
            corners *= self._size
        corners[:, 2:] -= corners[:, :2]
        return Candidates(corners, np.clip(scores[keep], 0.0, 1.0), chosen[keep], is_final=True)

    def _limits(self, classes: npt.NDArray[np.intp]) -> Floats:
        """Each row's threshold; a class without a label has the bundle's."""
        limits = np.append(self._thresholds, np.float32(self._unlabelled))
        found: Floats = limits[np.minimum(classes, self._thresholds.size)].astype(np.float32)
        return found

    def _enclosing(self, xywh: Floats, angles: Floats, scores: Floats, classes: npt.NDArray[np.intp]) -> Candidates:
        """Oriented boxes after NMS among them, each as the upright box around it."""
        # Boxes of different classes do not suppress each other: each class is moved to a place of its own.
        apart = 0.0 if self._is_agnostic else 4.0 * float(self._size.max())
        turned = [
            ((x + apart * kind, y), (w, h), math.degrees(angle))
            for (x, y, w, h), angle, kind in zip(xywh.tolist(), angles.tolist(), classes.tolist(), strict=True)
        ]
        kept = np.asarray(cv2.dnn.NMSBoxesRotated(turned, scores.tolist(), 0.0, self._iou_threshold), np.intp).ravel()
        kept = kept[np.argsort(-scores[kept], kind="stable")]
        cos, sin = np.abs(np.cos(angles[kept, None])), np.abs(np.sin(angles[kept, None]))
        boxes = xywh[kept]
        sides = boxes[:, 2:] * cos + boxes[:, 3:1:-1] * sin
        return Candidates(
            np.concatenate([boxes[:, :2] - sides / 2, sides], axis=1), scores[kept], classes[kept], is_final=True
        )
