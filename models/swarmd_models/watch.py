"""Watches a model at work: has what it sees drifted away from what it was made for?

Each against the bundle's reference or, when it has none, against the first frames of this flight:

- PSI and KS of the detections' scores (a model that grows unsure, or too sure);
- PSI and KS of the embedding: brightness, contrast and the model's pooled answer, each feature by itself;
- per frame, how far the embedding lies from the reference: the root mean square of its z-scores, 1 for a frame like
  those of the reference, 3 and more for one from another world.

Frames of one flight are alike, those of a reference are not: the embedding's PSI over a single field is well above the
usual limits without any fault of the model. It tells change, not failure; the counters say how much of the flight.

Source:
    Population stability index: 0.1 is a shift worth a look, 0.25 a large one (usual credit-scoring practice).
"""

from collections import Counter, deque
from collections.abc import Sequence

import numpy as np

from swarmd_models.backends.base import Array
from swarmd_models.bundle_rules import Reference
from swarmd_models.types import Detection, Image

BINS = 10
"""Of each histogram."""
WINDOW = 1000
"""Newest detections that the histogram is made of."""
OWN_REFERENCE_SCORES = 200
"""First scores that stand in for a reference where the bundle has none."""
OWN_REFERENCE_FRAMES = 100
"""First measured frames that stand in for it."""
FEATURE_WINDOW = 250
"""Newest measured frames that the embedding's histograms are made of."""
MIN_WINDOW = 100
"""Of fewer frames even an unchanged world has a PSI of 0.2: nine over their number."""
LARGE_PSI = 0.25
"""Population stability index from which on a change counts as large (the usual reading in credit scoring)."""
JUDGED_EVERY = 50
"""New scores, or new measured frames, after which drift is judged and counted again."""
OOD_LIMIT = 3.0
"""Standard deviations from the reference, on average over the features, above which a frame is unlike it."""
EVERY = 4
"""One frame in so many is measured: drift is slow."""
_STEP = 16
"""Pixels between two samples of a frame."""
_FLOOR = 1e-4
"""Least share of a bin, so that an empty one has a logarithm."""
_MIN_STD = 1e-3
"""Least standard deviation of a feature, so that a constant one can be divided by."""
MAX_FEATURES = 66
"""Of a frame: mean, spread and 64 of the pooled picture."""


class ModelWatch:
    """Drift and out-of-distribution counters of one model."""

    def __init__(self, reference: Reference, counters: Counter[str] | None = None) -> None:
        """Compare with a bundle's reference, which may be empty.

        Args:
            reference: The bundle's.
            counters: Counted on, such as those of the model before; by default new ones.
        """
        self._scores: deque[float] = deque(maxlen=WINDOW)
        self._histogram = _normalised(reference.score_histogram)
        self._mean = np.asarray(reference.feature_mean, np.float64)
        self._std = np.asarray(reference.feature_std, np.float64)
        self._deciles = np.asarray(reference.feature_deciles, np.float64).reshape(-1, BINS - 1)
        self._bins: deque[Array] = deque(maxlen=FEATURE_WINDOW)
        self._gathered: list[Array] = []
        self._frames = 0
        self._measured = 0
        self._detections = 0
        self._ood_frames = 0
        self._unjudged_scores = 0
        self._unjudged_frames = 0
        self.ood = 0.0
        """Of the newest frame that was measured; 0.0 while there is no reference."""
        self.counters: Counter[str] = Counter() if counters is None else counters
        """frames_measured, frames_ood; how often scores and embedding were judged, and how often they had drifted."""

    @property
    def is_due(self) -> bool:
        """Whether the next frame is to be measured."""
        return self._frames % EVERY == 0

    def note(self, detections: Sequence[Detection], features: Array | None) -> None:
        """Take in one frame.

        Args:
            detections: What the model saw.
            features: From `features_of` when the frame was measured, else None.
        """
        self._frames += 1
        self._detections += len(detections)
        self._unjudged_scores += len(detections)
        self._scores.extend(detection.score for detection in detections)
        if self._histogram is None and len(self._scores) >= OWN_REFERENCE_SCORES:
            self._histogram = _histogram(self._scores)
            self._scores.clear()
        if features is not None:
            self._measure(features)
        self._judge()

    def gauges(self) -> dict[str, float]:
        """The numbers of now."""
        numbers = {
            "ood": self.ood,
            "ood_share": self._ood_frames / self._measured if self._measured else 0.0,
            "detections_per_frame": self._detections / self._frames if self._frames else 0.0,
        }
        if self._histogram is not None and len(self._scores) >= OWN_REFERENCE_SCORES // 4:
            now = _histogram(self._scores)
            numbers["drift_psi"] = psi(self._histogram, now)
            numbers["drift_ks"] = ks(self._histogram, now)
        if len(self._bins) >= MIN_WINDOW:
            psis, largest_ks = self._feature_drift()
            numbers["drift_feature_psi"], numbers["drift_feature_ks"] = float(psis.mean()), largest_ks
        return numbers

    def _judge(self) -> None:
        """Count, every so often, whether there is drift now."""
        if self._unjudged_scores >= JUDGED_EVERY and len(self._scores) >= OWN_REFERENCE_SCORES // 4:
            self._unjudged_scores = 0
            if self._histogram is not None:
                self.counters["drift_judged"] += 1
                self.counters["drift_found"] += psi(self._histogram, _histogram(self._scores)) >= LARGE_PSI
        if self._unjudged_frames >= JUDGED_EVERY and len(self._bins) >= MIN_WINDOW:
            self._unjudged_frames = 0
            self.counters["feature_drift_judged"] += 1
            self.counters["feature_drift_found"] += bool(self._feature_drift()[0].mean() >= LARGE_PSI)

    def _feature_drift(self) -> tuple[Array, float]:
        """(PSI of every feature, the largest KS of any) over the newest measured frames."""
        stack = np.stack(self._bins)
        flat = np.full(BINS, 1.0 / BINS)
        shares = [np.bincount(column, minlength=BINS) / len(stack) for column in stack.T]
        return np.array([psi(flat, now) for now in shares]), max(ks(flat, now) for now in shares)

    def _measure(self, features: Array) -> None:
        if self._mean.size != features.size:
            self._gathered.append(features)
            if len(self._gathered) >= OWN_REFERENCE_FRAMES:
                stack = np.stack([g for g in self._gathered if g.size == features.size])
                self._mean, self._std, self._deciles = stack.mean(axis=0), stack.std(axis=0), _deciles(stack)
                self._gathered.clear()
            return
        self.ood = ood_of(features, self._mean, self._std)
        self._measured += 1
        self._ood_frames += self.ood > OOD_LIMIT
        self.counters["frames_measured"] += 1
        self.counters["frames_ood"] += self.ood > OOD_LIMIT
        if len(self._deciles) == features.size:
            self._bins.append((self._deciles < features[:, None]).sum(axis=1))
            self._unjudged_frames += 1


def ood_of(features: Array, mean: Array, std: Array) -> float:
    """How far a frame lies from a reference: the root mean square of its features' z-scores, 1 for one of its own."""
    z = (features - mean) / np.maximum(std, _MIN_STD)
    return float(np.sqrt(np.square(np.clip(z, -1e3, 1e3)).mean()))


def features_of(image: Image, pooled: Array) -> Array:
    """What a frame is like: brightness, contrast and the model's pooled answer.

    Args:
        image: The frame.
        pooled: Means of the model's first output over places, real values; at most 64 are used.
    """
    sample = image[::_STEP, ::_STEP].astype(np.float32)
    return np.concatenate([[sample.mean() / 255.0, sample.std() / 255.0], pooled.ravel()[: MAX_FEATURES - 2]])


def measure_reference(
    frames: Sequence[tuple[Sequence[Detection], Array]], details: Sequence[tuple[float, Sequence[float]]] = ()
) -> Reference:
    """The reference of a model from frames like those it was made for.

    Args:
        frames: (detections, features) of each.
        details: Fine detail of each and of its detections' boxes (`strange.py`); none, and detail is not judged.
    """
    of_frames, of_boxes = [one for one, _ in details], [one for _, boxes in details for one in boxes]
    scores = [detection.score for detections, _ in frames for detection in detections]
    stack = np.stack([features for _, features in frames])
    return Reference(
        tuple(float(share) for share in _histogram(scores)),
        len(scores) / max(len(frames), 1),
        tuple(float(value) for value in stack.mean(axis=0)),
        tuple(float(value) for value in stack.std(axis=0)),
        tuple(float(value) for value in _deciles(stack).ravel()),
        (min(of_frames), max(of_frames), max(of_boxes)) if of_frames and of_boxes else (),
    )


def psi(reference: Array, now: Array) -> float:
    """Population stability index of two histograms of shares.

    >>> round(psi(np.array([0.5, 0.5]), np.array([0.5, 0.5])), 3)
    0.0
    """
    a, b = np.maximum(reference, _FLOOR), np.maximum(now, _FLOOR)
    return float(((b - a) * np.log(b / a)).sum())


def ks(reference: Array, now: Array) -> float:
    """Kolmogorov-Smirnov statistic of two histograms of shares: the greatest distance of their sums.

    >>> ks(np.array([1.0, 0.0]), np.array([0.0, 1.0]))
    1.0
    """
    return float(np.abs(np.cumsum(reference) - np.cumsum(now)).max())


def _deciles(stack: Array) -> Array:
    """Shape (features, 9): what parts the rows of (frames, features) into tenths."""
    edges: Array = np.quantile(stack, np.arange(1, BINS) / BINS, axis=0).T
    return edges


def _histogram(scores: Sequence[float] | deque[float]) -> Array:
    counts, _ = np.histogram(np.asarray(scores, np.float64), bins=BINS, range=(0.0, 1.0))
    return counts / max(len(scores), 1)


def _normalised(histogram: Sequence[float]) -> Array | None:
    total = sum(histogram)
    if len(histogram) != BINS or total <= 0:
        return None
    return np.asarray(histogram, np.float64) / total
