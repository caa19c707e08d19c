"""Models that end in the TFLite_Detection_PostProcess op: boxes, classes, scores and a count, NMS already done."""

from collections.abc import Sequence

import numpy as np

from swarmd_models.backends.base import Array, TensorSpec
from swarmd_models.bundle import NEVER, Bundle
from swarmd_models.decoders.base import Candidates, check_finite, find_output
from swarmd_models.errors import ArtefactError

_ROLES = ("boxes", "classes", "scores", "count")


class SsdDecoder:
    """Decodes the four outputs of the op."""

    def __init__(self, bundle: Bundle, outputs: Sequence[TensorSpec], width: int, height: int) -> None:
        """Find the four outputs; raises `ArtefactError` when they are not there."""
        self._order = find_postprocess(outputs, bundle.decode.outputs)
        self._size = np.asarray([width, height, width, height], np.float32)
        rule = bundle.decode
        unlabelled = NEVER if rule.classes else rule.score_threshold
        self._thresholds = np.asarray([*(rule.threshold_of(label) for label in bundle.labels), unlabelled], np.float32)

    def decode(self, views: Sequence[Array]) -> Candidates:
        """The detections that reach the threshold; boxes outside of the frame or turned inside out are dropped."""
        boxes, classes, scores, count = (views[index] for index in self._order)
        for role, view in zip(_ROLES, (boxes, classes, scores, count), strict=True):
            check_finite(view, role)
        number = min(max(int(count.ravel()[0]), 0), scores.size)
        chosen = np.clip(classes.ravel()[:number], 0, 1 << 20).astype(np.intp)
        limits = self._thresholds[np.minimum(chosen, self._thresholds.size - 1)]
        corners = np.clip(boxes.reshape(-1, 4)[:number], 0.0, 1.0)[:, [1, 0, 3, 2]] * self._size
        keep = (scores.ravel()[:number] >= limits) & (corners[:, 2] > corners[:, 0]) & (corners[:, 3] > corners[:, 1])
        corners = corners[keep].astype(np.float32)
        corners[:, 2:] -= corners[:, :2]
        found = np.clip(scores.ravel()[:number][keep], 0.0, 1.0).astype(np.float32)
        return Candidates(corners, found, chosen[keep], is_final=True)


def find_postprocess(outputs: Sequence[TensorSpec], names: dict[str, str]) -> tuple[int, ...]:
    """Indices of boxes, classes, scores and count: by the bundle's names, or by shape and the op's own order."""
    if names:
        return tuple(find_output(outputs, names.get(role, role), role) for role in _ROLES)
    if len(outputs) != 4:
        raise ArtefactError(f"an SSD with postprocess has four outputs; this model has {len(outputs)}")
    order = sorted(range(4), key=lambda index: outputs[index].name)
    boxes = [i for i in order if len(outputs[i].shape) == 3 and outputs[i].shape[-1] == 4]
    lists = [i for i in order if len(outputs[i].shape) == 2]
    counts = [i for i in order if outputs[i].shape == (1,)]
    if (len(boxes), len(lists), len(counts)) != (1, 2, 1):
        shapes = ", ".join(str(spec.shape) for spec in outputs)
        raise ArtefactError(f"outputs of the shapes {shapes} are no boxes, classes, scores and count")
    return boxes[0], lists[0], lists[1], counts[0]
