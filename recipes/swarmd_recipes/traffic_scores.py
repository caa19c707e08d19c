"""How good detectors of traffic are: what they say of frames, held against what was drawn.

A detection is right where its box overlaps one road user of its class by half or more, of those the one that it
overlaps most, and nothing surer has claimed that one before: PASCAL VOC's rule (Everingham et al., 2010).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from swarmd_models.association import Box, iou
from swarmd_models.detector import Detector
from swarmd_models.metrics import average_precision
from swarmd_models.synthetic.scenes import Scene
from swarmd_recipes.logistic import regression
from swarmd_recipes.traffic_scenes import CALIBRATION, LABELS, TrafficMaker

SAME_IOU = 0.5
"""From which a box is that of a road user."""
_STRIDE = 0.5
"""Of a calibration's fit: nearly all of a small net's scores are sure."""
SEED = 15
"""Of all frames that judge."""
CALIBRATING = tuple((CALIBRATION + number, index) for number in range(60) for index in range(20))
"""Crossing and frame: on these scores are calibrated."""
HELD_OUT = tuple((CALIBRATION + 500 + number, index) for number in range(40) for index in range(12))
"""On these recipes are scored; neither nets nor calibration, plans or scenarios see them."""


@dataclass(frozen=True, slots=True)
class Found:
    """One thing that somebody says is in a frame.

    Attributes:
        box: In pixels of the camera's frame.
        kind: Index into `LABELS`.
        score: 0 to 1.
    """

    box: Box
    kind: int
    score: float


def heard(detector: Detector, image: npt.NDArray[np.uint8], finer: float = 1.0) -> list[Found]:
    """What a detector says of a picture, the surest first.

    Args:
        detector: With thresholds as low as its caller wants to hear.
        image: Grey.
        finer: Pixels of the camera's frame that a pixel of the picture covers, along a side.
    """
    said = []
    for one in detector.detect(image):
        x1, y1, x2, y2 = (float(side) * finer for side in one.box)
        said.append(Found((x1, y1, x2, y2), one.class_index, one.score))
    return sorted(said, key=lambda one: -one.score)


def claims(scene: Scene, said: Sequence[Found]) -> list[int]:
    """Which of the scene's things each detection is right about, -1 for none; `said` is sorted, the surest first."""
    boxes = [tuple(box) for box in scene.boxes.tolist()]
    taken: set[int] = set()
    found = []
    for one in said:
        overlaps = [
            (iou(box, one.box), -at)
            for at, (box, label) in enumerate(zip(boxes, scene.label_index.tolist(), strict=True))
            if label == one.kind
        ]
        overlap, at = max(overlaps, default=(0.0, 1))
        is_right = overlap >= SAME_IOU and -at not in taken
        found.append(-at if is_right else -1)
        if is_right:
            taken.add(-at)
    return found


def mean_ap(scenes: Sequence[Scene], said: Sequence[Sequence[Found]]) -> tuple[float, dict[str, float]]:
    """Mean over the classes of the average precision at `SAME_IOU`, and that of each class that is there."""
    rows: list[tuple[int, float, bool]] = []
    for scene, told in zip(scenes, said, strict=True):
        ordered = sorted(told, key=lambda one: -one.score)
        rows += [(one.kind, one.score, at >= 0) for one, at in zip(ordered, claims(scene, ordered), strict=True)]
    kinds = np.array([row[0] for row in rows], np.int64)
    scores, hits = np.array([row[1] for row in rows]), np.array([row[2] for row in rows], bool)
    truth = np.concatenate([scene.label_index for scene in scenes]) if scenes else np.zeros(0, np.int64)
    by_class = {
        label: average_precision(scores[kinds == kind], hits[kinds == kind], int((truth == kind).sum()))
        for kind, label in enumerate(LABELS)
        if (truth == kind).any()
    }
    return float(np.mean(list(by_class.values()))) if by_class else float("nan"), by_class


def calibration_of(
    rows: Iterable[tuple[float, bool]], like: tuple[float, float] = (1.0, 0.0), pull: float = 1e-3
) -> tuple[float, float]:
    """Scale and bias of the logit, by logistic regression, from scores and who was right.

    Args:
        rows: Scores, 0 to 1, and whether each was right.
        like: Where few rows say otherwise.
        pull: How strongly it is kept to that; rows count 1 at most.
    """
    pairs = list(rows)
    score = np.clip(np.array([one for one, _ in pairs]), 1e-6, 1 - 1e-6)
    x = np.column_stack([np.log(score / (1 - score)), np.ones(len(score))])
    scale, bias = regression(x, np.array([right for _, right in pairs], bool), np.array(like), pull, _STRIDE)
    return float(scale), float(bias)


def scenes_of(frames: Iterable[tuple[int, int]], maker: TrafficMaker) -> list[Scene]:
    """The frames of these crossings and numbers."""
    return [maker.seen(number, index) for number, index in frames]
