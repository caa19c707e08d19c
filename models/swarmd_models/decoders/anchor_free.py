"""The project's own head: `cls` (cells x classes, logits) and `dist` (cells x 4: left, top, right, bottom in strides).

Cells come stride by stride, row by row. There is neither sigmoid nor exponential nor NMS in the graph; the sigmoid is
taken of the survivors only.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from swarmd_models.backends.base import Array, TensorSpec
from swarmd_models.bundle import Bundle
from swarmd_models.decoders.base import (
    MAX_CANDIDATES,
    Candidates,
    at_least,
    best,
    check_finite,
    empty,
    find_output,
    logit,
    raw_threshold,
    real,
)
from swarmd_models.errors import ArtefactError


class AnchorFreeDecoder:
    """Decodes one anchor-free head."""

    def __init__(self, bundle: Bundle, outputs: Sequence[TensorSpec], width: int, height: int) -> None:
        """Check the head against the bundle; raises `ArtefactError` when they disagree."""
        strides = bundle.decode.strides
        cells = sum(-(-width // s) * -(-height // s) for s in strides)
        self._cls, self._dist = find_head(outputs, bundle.decode.outputs)
        cls, dist = outputs[self._cls], outputs[self._dist]
        classes = len(bundle.labels)
        if cls.shape != (1, cells, classes) or dist.shape != (1, cells, 4):
            raise ArtefactError(
                f"the head is {cls.shape} and {dist.shape}; strides {list(strides)} at {width}x{height} and "
                f"{classes} labels need (1, {cells}, {classes}) and (1, {cells}, 4)"
            )
        self._cls_spec, self._dist_spec, self._classes = cls, dist, classes
        self._centres, self._strides = cell_grid(width, height, strides)
        scale = np.broadcast_to(np.asarray(bundle.calibration.scale, np.float32), classes)
        bias = np.broadcast_to(np.asarray(bundle.calibration.bias, np.float32), classes)
        self._scale, self._bias = scale, bias
        thresholds = [bundle.decode.threshold_of(name) for name in bundle.labels]
        self._thresholds = np.asarray(thresholds, np.float32)
        # The loosest class decides what leaves the raw domain; each class's own threshold follows on the scores.
        logits = [(logit(t) - b) / s for t, s, b in zip(thresholds, scale, bias, strict=True)]
        self._for_second_stage = bundle.second is not None
        self._raw_threshold = raw_threshold(float(min(logits)), cls)

    def decode(self, views: Sequence[Array]) -> Candidates:
        """Candidates of one frame."""
        cls, dist = views[self._cls], views[self._dist]
        check_finite(cls, "cls")
        flat = at_least(cls, self._raw_threshold)
        if flat.size == 0:
            return empty()
        logits = cls.ravel()[flat]
        kept = best(logits, MAX_CANDIDATES)
        if kept is not None:
            flat, logits = flat[kept], logits[kept]
        cells = flat // self._classes
        classes = flat - cells * self._classes
        calibrated = real(logits, self._cls_spec) * self._scale[classes] + self._bias[classes]
        scores = 1.0 / (1.0 + np.exp(-np.clip(calibrated, -80.0, 80.0)))
        keep = scores >= self._thresholds[classes] - 1e-6
        if not keep.all():
            cells, classes, scores = cells[keep], classes[keep], scores[keep]
        kinds = None
        if self._for_second_stage:
            # One candidate a cell, its likeliest class: the second stage names the class anew.
            order = np.argsort(-scores, kind="stable")
            order = order[np.unique(cells[order], return_index=True)[1]]
            cells, classes, scores = cells[order], classes[order], scores[order]
            kinds = real(cls[cells], self._cls_spec) * self._scale + self._bias
        reach = real(dist[cells], self._dist_spec)
        check_finite(reach, "dist")
        np.maximum(reach, 0.0, out=reach)
        reach *= self._strides[cells, None]
        xywh = np.empty_like(reach)
        np.subtract(self._centres[cells], reach[:, :2], out=xywh[:, :2])
        np.add(reach[:, :2], reach[:, 2:], out=xywh[:, 2:])
        return Candidates(xywh, scores, classes, kinds=kinds)


def find_head(outputs: Sequence[TensorSpec], names: dict[str, str]) -> tuple[int, int]:
    """Which outputs are `cls` and `dist`: by the bundle's names, by the last axis, or by the exporter's order."""
    if names:
        return tuple(find_output(outputs, names.get(r, r), r) for r in ("cls", "dist"))  # type: ignore[return-value]
    if len(outputs) != 2:
        raise ArtefactError(f"an anchor-free head has two outputs, cls and dist; this model has {len(outputs)}")
    fours = [spec.shape[-1:] == (4,) for spec in outputs]
    if sum(fours) == 1:
        dist = fours.index(True)
        return 1 - dist, dist
    by_name = sorted(range(2), key=lambda i: ("dist" in outputs[i].name, outputs[i].name))
    return by_name[0], by_name[1]


def cell_grid(
    width: int, height: int, strides: Sequence[int]
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Centres (N, 2) in input pixels and stride (N,) of every cell, in the head's order.

    >>> cell_grid(16, 8, (8,))[0].tolist()
    [[4.0, 4.0], [12.0, 4.0]]
    """
    centres, sizes = [], []
    for stride in strides:
        columns, rows = -(-width // stride), -(-height // stride)
        x, y = np.meshgrid(np.arange(columns), np.arange(rows))
        centres.append((np.stack([x, y], -1).reshape(-1, 2) + 0.5) * stride)
        sizes.append(np.full(columns * rows, stride))
    return np.concatenate(centres).astype(np.float32), np.concatenate(sizes).astype(np.float32)
