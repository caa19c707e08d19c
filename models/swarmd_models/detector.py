"""One loaded model: a frame in, detections out. No memory from frame to frame; tracking is `eye.py`'s."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from swarmd_models.backends import Backend, open_backend
from swarmd_models.backends.base import Announce, Array
from swarmd_models.bundle import BLIND, Bundle, at_rate
from swarmd_models.decoders import Candidates, make_decoder
from swarmd_models.decoders.base import MAX_CANDIDATES, check_finite, logit
from swarmd_models.errors import ArtefactError, ModelError
from swarmd_models.fitted_ahead import FittedAhead
from swarmd_models.golden import check_golden
from swarmd_models.nms import suppress
from swarmd_models.preprocess import Mapping, Preprocessor
from swarmd_models.recognise import recognise
from swarmd_models.second import SecondStage, fuse, sigmoid
from swarmd_models.types import Detection, Image

Box: TypeAlias = tuple[float, float, float, float]


def _say_nothing(text: str) -> None:
    """The default for callers who do not care."""


STAGES = ("preprocess", "infer", "decode", "nms")
SECOND = "second"
AHEAD_FROM_NS = 100_000
"""Nanoseconds of preprocessing from which a frame is fitted ahead: handing it over costs some hundredth of a
millisecond and the interpreter's lock (docs/performance/eye.md)."""
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
"""That this process may use."""
_BLIND = {"text": "a language model", "series": "a model of series", "ensemble": "several models in one"}
"""What a bundle is that no eye can use, by `BLIND`."""
"""The stage that only bundles with a second net have."""


@dataclass(frozen=True, slots=True)
class DetectorOptions:
    """How to run a model."""

    backends: tuple[str, ...] = ("litert",)
    """The preferred first: kinds, "kind@device" or "kind@auto"."""
    threads: int = 1
    score_threshold: float = 0.0
    """Overrides the bundle's when greater than zero."""
    false_per_1000: float = 0.0
    """False alarms in 1,000 healthy things that the thresholds may let through; 0: the bundle's own thresholds."""
    candidates_per_1000: float = 0.0
    """The same for candidates, which are found beside what is sure and say what they need; 0: none."""


class Detector:
    """A model in a runtime with its preprocessing and decoding."""

    def __init__(
        self, bundle: Bundle, backend: Backend, score_threshold: float = 0.0, second: SecondStage | None = None
    ) -> None:
        """Put the parts together; raises `ArtefactError` when model and bundle disagree."""
        self.bundle = _with_threshold(recognise(bundle, backend.inputs, backend.outputs), score_threshold)
        self.backend = backend
        self._preprocessor = Preprocessor(self.bundle.input, backend.inputs[0])
        width, height = self._preprocessor.width, self._preprocessor.height
        self._decoder = make_decoder(replace(self.bundle, second=None), backend.outputs, width, height)
        self.second = second
        """The second stage, in its runtime; None where the bundle has none."""
        self._sure: Bundle | None = None
        """The bundle with the thresholds from which the model is sure, where candidates are found too."""
        self._renamed = _renamed_indices(self.bundle)
        self._candidates = self._decoder
        if second is not None:
            wide = replace(self.bundle.decode, score_threshold=second.rule.candidate_threshold, class_thresholds={})
            self._candidates = make_decoder(replace(self.bundle, decode=wide), backend.outputs, width, height)
        self.looks_twice = second is not None
        """Whether the second stage is asked; set to False to spare its time, and the first stage decides alone."""
        self.stage_ns: dict[str, int] = dict.fromkeys((*STAGES, SECOND) if second else STAGES, 0)
        """Nanoseconds of the last `detect`, by stage."""
        self.ahead: FittedAhead | None = None
        """Room for the next frame; None until one was fitted ahead."""
        self._fill_ns = 0
        """Of the processor's time, for the newest frame."""

    @classmethod
    def open(cls, bundle: Bundle, options: DetectorOptions, announce: Announce = _say_nothing) -> "Detector":
        """Load the bundle into the first of the backends that can run it.

        Args:
            bundle: From `load_bundle`.
            options: Backends, threads, threshold.
            announce: Told about runtimes that are passed over, and about long preparations.

        Raises:
            ArtefactError: The model is of no kind that the eye can use, or its curve says nothing of the wanted rate.
            BackendError: No runtime could load it.
        """
        if bundle.decoder in BLIND:
            raise ArtefactError(f"{bundle.name} is {_BLIND[bundle.decoder]}; an eye wants one that sees")
        if options.false_per_1000 > 0.0:
            bundle = at_rate(bundle, options.false_per_1000)
        sure = bundle if options.candidates_per_1000 > 0.0 else None
        if options.candidates_per_1000 > 0.0:
            bundle = _with_candidates(bundle, options.candidates_per_1000)

        def judge(backend: Backend) -> str:
            """A device that was chosen must answer as the training machine did; where that is not known, it is said."""
            if bundle.golden is None:
                announce(f"{backend.runtime}: model {bundle.name} has no golden vector that would judge this device")
                return ""
            return check_golden(cls(bundle, backend))

        backend = open_backend(bundle.artefact(), options.backends, options.threads, announce, judge)
        second: SecondStage | None = None
        try:
            if bundle.second is not None:
                second = SecondStage.open(bundle, options.backends, options.threads, announce)
            detector = cls(bundle, backend, options.score_threshold, second)
            detector._sure = sure
            if detector.bundle.reading:
                announce(f"model {bundle.name} has no bundle; read as {detector.bundle.reading}")
            return detector
        except ModelError:
            if second is not None:
                second.close()
            backend.close()
            raise

    def detect(self, image: Image) -> list[Detection]:
        """What the model sees in one frame, the best first.

        Raises:
            FrameError: The frame cannot be used; the next one may be.
            BackendError: The runtime failed.
        """
        return self._detect(image, None)

    def fit_ahead(self, image: Image) -> None:
        """Preprocess the next frame while this one is inferred, where that pays; for the thread that captures.

        It pays where preprocessing takes `AHEAD_FROM_NS` and a second core can do it; else nothing is done.
        """
        if self._fill_ns >= AHEAD_FROM_NS and CORES > 1:
            if self.ahead is None:
                self.ahead = FittedAhead(self.bundle.input, self.backend.inputs[0])
            self._fill_ns = self.ahead.fit(image)

    def fitted(self, image: Image) -> Array:
        """A copy of the net's input for one frame, without the batch axis; raises `FrameError`."""
        self._preprocessor.fill(image, self.backend.input_view())
        return np.array(self.backend.input_view())

    def read(self, image: Image, outputs: Sequence[Array]) -> list[Detection]:
        """What the model sees in one frame, by outputs of its net that were computed elsewhere.

        Args:
            image: The frame.
            outputs: Of the net for `fitted(image)`, as `backend.outputs` says, without the batch axis.

        Raises:
            FrameError: The frame cannot be used.
            BackendError: The outputs are none (NaN), or the second stage's runtime failed.
        """
        return self._detect(image, list(outputs))

    def _detect(self, image: Image, outputs: list[Array] | None) -> list[Detection]:
        clock = time.perf_counter_ns
        started = clock()
        mapping = self._fill(image)
        filled = clock()
        if outputs is None:
            self.backend.infer()
        inferred = clock()
        second = self.second if self.looks_twice else None
        asked: list[int] | None = [] if self.second is not None else None
        decoder = self._decoder if second is None else self._candidates
        candidates = decoder.decode(self.backend.output_views() if outputs is None else outputs)
        check_finite(candidates.xywh, "the boxes")  # Numbers that are finite may still make a box that is none.
        if self._renamed is not None and second is None:
            candidates = replace(candidates, classes=self._rename(candidates.classes))
        decoded = clock()
        rule = self.bundle.decode
        limit = rule.max_detections if second is None else MAX_CANDIDATES
        kept = suppress(candidates, rule.iou_threshold, limit, rule.class_agnostic_nms)
        suppressed = clock()
        if second is not None:
            candidates, kept, asked = self._look_again(second, candidates, kept)
        found = self._detections(candidates, kept, mapping, kept if asked is None else asked)
        stages = self.stage_ns
        stages["preprocess"], stages["infer"] = filled - started, inferred - filled
        stages["decode"], stages["nms"] = decoded - inferred, suppressed - decoded
        if self.second is not None:
            stages[SECOND] = clock() - suppressed
        return found

    def _fill(self, image: Image) -> Mapping:
        """The frame into the input: as it was fitted ahead, or now."""
        view = self.backend.input_view()
        fitted = None if self.ahead is None else self.ahead.take(image, self._preprocessor, view)
        if fitted is not None:
            self._preprocessor = fitted
            assert fitted.mapping is not None
            return fitted.mapping
        started = time.thread_time_ns()
        mapping = self._preprocessor.fill(image, view)
        self._fill_ns = time.thread_time_ns() - started
        return mapping

    def pooled(self) -> Array:
        """Means of the newest frame's first output over places, real values: what the model made of the picture."""
        view, spec = self.backend.output_views()[0], self.backend.outputs[0]
        means = view.mean(axis=0) if view.ndim > 1 else view.astype(np.float64)
        if spec.is_quantised:
            means = (means - spec.zero_point) * spec.scale
        return np.asarray(np.atleast_1d(means), np.float64)

    def seen(self) -> tuple[Image, Callable[[Box], Box]]:
        """The newest frame as the net saw it (written anew by the next), and frame pixels to pixels of that."""
        mapping = self._preprocessor.mapping
        assert mapping is not None

        def to_canvas(box: Box) -> Box:
            (x1, y1, x2, y2), (sx, sy) = box, (mapping.scale_x, mapping.scale_y)
            return x1 * sx + mapping.pad_x, y1 * sy + mapping.pad_y, x2 * sx + mapping.pad_x, y2 * sy + mapping.pad_y

        return self._preprocessor.canvas, to_canvas

    def raw_outputs(self, image: Image) -> list[Array]:
        """Copies of the raw outputs for one frame, for golden vectors and conformance."""
        self._preprocessor.fill(image, self.backend.input_view())
        self.backend.infer()
        return [np.array(view) for view in self.backend.output_views()]

    def close(self) -> None:
        """Free the runtime."""
        self.backend.close()
        if self.second is not None:
            self.second.close()

    def sure_from(self, label: str) -> float:
        """The score from which the model is sure of a label; below it a detection is a candidate, or none."""
        return (self._sure or self.bundle).threshold_of(label)

    def _need(self, label: str, score: float, is_judged: bool) -> float:
        """What a detection would need; 0 where it is sure, or where the first stage's own thresholds judge it."""
        need = self.sure_from(label) if is_judged and self._sure is not None else 0.0
        return 0.0 if score >= need - 1e-6 else need

    def _look_again(
        self, second: SecondStage, seen: Candidates, kept: list[int]
    ) -> tuple[Candidates, list[int], list[int]]:
        """Candidates with the scores and classes of both stages; those that count, the best first; those looked at.

        What is not looked at again (sure, too many, out of time) counts by the first stage's own thresholds.
        """
        rule = self.bundle.second
        assert rule is not None
        deadline_ns = time.perf_counter_ns() + round(rule.budget_ms * 1e6) if rule.budget_ms else 0
        scores, classes = seen.scores.astype(np.float32), seen.classes.copy()
        doubtful = [index for index in kept if rule.sure_above >= 1.0 or scores[index] < rule.sure_above]
        asked = doubtful[: rule.max_candidates]
        x, y, w, h = seen.xywh[asked].T
        answers = second.judge(self._preprocessor.canvas, np.stack([x, y, x + w, y + h], axis=1), deadline_ns)
        asked = asked[: len(answers)]
        second.counts.examined += len(asked)
        second.counts.sure += len(kept) - len(doubtful)
        second.counts.late += len(doubtful) - len(asked)
        own = self.bundle.decode
        wanted = {index: own.threshold_of(self.bundle.label_of(int(classes[index]))) for index in kept}
        if asked:
            first_logits = np.array([logit(float(scores[index])) for index in asked], np.float32)
            joined, kinds = fuse(rule, first_logits, None if seen.kinds is None else seen.kinds[asked], answers)
            scores[asked] = sigmoid(joined)
            if kinds.shape[1]:
                classes[asked] = kinds.argmax(axis=1)
            wanted |= {index: self.bundle.threshold_of(self.bundle.label_of(int(classes[index]))) for index in asked}
        counted = sorted((i for i in kept if scores[i] >= wanted[i] - 1e-6), key=lambda i: -scores[i])
        if self._renamed is not None:
            classes = self._rename(classes)
        both = Candidates(seen.xywh, scores, classes, seen.is_final, seen.covers_frame)
        return both, counted[: self.bundle.decode.max_detections], asked

    def _rename(self, classes: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """Classes after the bundle's `rename`; an index beyond the labels stays."""
        assert self._renamed is not None
        known = classes < self._renamed.size
        return np.where(known, self._renamed[np.where(known, classes, 0)], classes)

    def _detections(
        self, candidates: Candidates, kept: list[int], mapping: Mapping, judged: list[int]
    ) -> list[Detection]:
        width, height = mapping.frame_width, mapping.frame_height
        found = []
        for index in kept:
            x, y, w, h = candidates.xywh[index].tolist()
            whole = (
                (x - mapping.pad_x) / mapping.scale_x,
                (y - mapping.pad_y) / mapping.scale_y,
                (x + w - mapping.pad_x) / mapping.scale_x,
                (y + h - mapping.pad_y) / mapping.scale_y,
            )
            if candidates.covers_frame:
                whole = (0.0, 0.0, float(width), float(height))
            box = (_clamp(whole[0], width), _clamp(whole[1], height), _clamp(whole[2], width), _clamp(whole[3], height))
            if box[2] <= box[0] or box[3] <= box[1]:
                continue  # It lies wholly in the letterbox's border.
            class_index = int(candidates.classes[index])
            label = self.bundle.label_of(class_index)
            label = self.bundle.decode.rename.get(label, label)
            score = float(candidates.scores[index])
            need = self._need(label, score, index in judged)
            found.append(Detection(class_index, label, score, box, whole if whole != box else None, need))
        return found


def _with_candidates(bundle: Bundle, rate: float) -> Bundle:
    """The bundle with thresholds so low that candidates show; none is above its own. Raises `ArtefactError`."""
    low = at_rate(bundle, rate)
    chosen = {label: min(low.threshold_of(label), bundle.threshold_of(label)) for label in bundle.labels}
    if bundle.second is None:
        return replace(bundle, decode=replace(bundle.decode, class_thresholds=chosen))
    return replace(bundle, second=replace(bundle.second, class_thresholds=chosen))


def _renamed_indices(bundle: Bundle) -> npt.NDArray[np.intp] | None:
    """Class index to the index that stands for all classes of the same reported label; None where none is renamed."""
    rename = bundle.decode.rename
    if not rename:
        return None
    first: dict[str, int] = {}
    reported = [rename.get(label, label) for label in bundle.labels]
    # The class that has the label itself stands for those that are renamed to it.
    for index, label in enumerate(bundle.labels):
        if label == reported[index]:
            first.setdefault(label, index)
    for index, label in enumerate(reported):
        first.setdefault(label, index)
    return np.asarray([first[label] for label in reported], np.intp)


def _clamp(value: float, limit: int) -> float:
    return min(max(value, 0.0), float(limit))


def _with_threshold(bundle: Bundle, score_threshold: float) -> Bundle:
    if score_threshold <= 0.0:
        return bundle
    decode = replace(bundle.decode, score_threshold=score_threshold, class_thresholds={})
    if bundle.second is None:
        return replace(bundle, decode=decode)
    second = replace(bundle.second, score_threshold=score_threshold, class_thresholds={})
    return replace(bundle, decode=decode, second=second)
