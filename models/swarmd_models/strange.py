"""A judge that can reject: frames, and things in them, of a world that the model was not made for.

A model answers whatever it is shown. What it says of a covered lens, of another sensor or of a printed pattern is no
finding, and this judge keeps it from becoming one. It looks at what the net saw (the canvas) and at the model's pooled
answer, against the bundle's `[reference]`; without one only a covered lens is known.

- `covered`: next to no contrast.
- `strange`: the embedding lies further from the reference than any of its frames did (`watch.py` has the measure).
- `detail`: less fine detail than any reference frame (out of focus, fogged), or more (noise that gain made large).
- `patch`, of one detection: more fine detail within its box than any detection of the reference had. Patterns that are
  made to fool a net are full of it, faults of modules are not. One who draws a smooth pattern draws a fault.

It cannot tell a picture that looks like the reference and is not: a palette turned round, say. What it costs is counted
in frames rejected that were as they should be (`python -m tests.bench.bench_strange`, docs/performance/eye.md).
"""

from collections import Counter
from collections.abc import Sequence

import cv2
import numpy as np

from swarmd_models.backends.base import Array
from swarmd_models.bundle_rules import Reference
from swarmd_models.detector import Detector
from swarmd_models.types import Detection, Image
from swarmd_models.watch import features_of, ood_of

COVERED_STD = 3.0
"""Grey levels: least standard deviation of a frame. Sensors' own noise is 1 to 2; the flattest of 330 frames of plants
had 4.8."""
STRANGE = 4.0
"""Standard deviations of the reference, on average over the features: the strangest of those frames had 3.75."""
DETAIL_MARGIN = 1.5
"""By which detail may pass what the reference's frames had, either way."""
REASONS = ("covered", "strange", "detail", "patch")

_Box = tuple[float, float, float, float]


class StrangeJudge:
    """Rejects frames and detections of one model."""

    def __init__(self, reference: Reference, counts: Counter[str] | None = None) -> None:
        """Judge against a bundle's reference, which may be empty; `counts` are counted on, such as a model's before."""
        self._mean = np.asarray(reference.feature_mean, np.float64)
        self._std = np.asarray(reference.feature_std, np.float64)
        self._detail = reference.detail
        self.counts: Counter[str] = Counter() if counts is None else counts
        """Rejected since the start, by reason: frames, and of `patch` detections."""

    def judge(self, image: Image, detector: Detector, found: Sequence[Detection]) -> tuple[list[Detection], str]:
        """What is left of a frame's detections.

        Args:
            image: The frame.
            detector: It saw this frame last.
            found: What it says.

        Returns:
            (detections that count, why the whole frame does not: one of `REASONS`, or "").
        """
        canvas, to_canvas = detector.seen()
        detail = detail_of(canvas)
        reason = self._of_frame(image, detector, canvas, float(detail.mean()))
        if reason:
            self.counts[reason] += 1
            return [], reason
        if len(self._detail) != 3:
            return list(found), ""
        limit = self._detail[2] * DETAIL_MARGIN
        kept = [one for one in found if box_detail(detail, to_canvas(one.box)) <= limit]
        self.counts["patch"] += len(found) - len(kept)
        return kept, ""

    def _of_frame(self, image: Image, detector: Detector, canvas: Image, detail: float) -> str:
        if float(canvas.std()) < COVERED_STD:
            return "covered"
        features = features_of(image, detector.pooled())
        if features.size == self._mean.size and ood_of(features, self._mean, self._std) > STRANGE:
            return "strange"
        if len(self._detail) == 3:
            low, high = self._detail[0] / DETAIL_MARGIN, self._detail[1] * DETAIL_MARGIN
            if not low <= detail <= high:
                return "detail"
        return ""


def detail_of(canvas: Image) -> Array:
    """Fine detail by pixel: the absolute Laplacian in grey levels, shape (H, W)."""
    grey = canvas if canvas.ndim == 2 else np.asarray(cv2.cvtColor(canvas, cv2.COLOR_BGR2GRAY), np.uint8)
    return np.abs(cv2.Laplacian(grey, cv2.CV_16S))


def box_detail(detail: Array, box: _Box) -> float:
    """Mean detail within a box of canvas pixels; 0.0 where none of it is inside."""
    x1, y1 = (max(round(side), 0) for side in box[:2])
    part = detail[y1 : max(round(box[3]), y1 + 1), x1 : max(round(box[2]), x1 + 1)]
    return float(part.mean()) if part.size else 0.0
