"""One loaded model: a frame in, detections out. No memory from frame to frame; tracking is `eye.py`'s."""

import time
from dataclasses import dataclass, replace

import numpy as np

from swarmd_models.backends import Backend, open_backend
from swarmd_models.backends.base import Announce, Array
from swarmd_models.bundle import Bundle
from swarmd_models.decoders import Candidates, make_decoder
from swarmd_models.errors import ArtefactError
from swarmd_models.nms import suppress
from swarmd_models.preprocess import Mapping, Preprocessor
from swarmd_models.recognise import recognise
from swarmd_models.types import Detection, Image


def _say_nothing(text: str) -> None:
    """The default for callers who do not care."""


STAGES = ("preprocess", "infer", "decode", "nms")


@dataclass(frozen=True, slots=True)
class DetectorOptions:
    """How to run a model."""

    backends: tuple[str, ...] = ("litert",)
    """The preferred first."""
    threads: int = 1
    score_threshold: float = 0.0
    """Overrides the bundle's when greater than zero."""


class Detector:
    """A model in a runtime with its preprocessing and decoding."""

    def __init__(self, bundle: Bundle, backend: Backend, score_threshold: float = 0.0) -> None:
        """Put the parts together; raises `ArtefactError` when model and bundle disagree."""
        self.bundle = _with_threshold(recognise(bundle, backend.inputs, backend.outputs), score_threshold)
        self.backend = backend
        self._preprocessor = Preprocessor(self.bundle.input, backend.inputs[0])
        width, height = self._preprocessor.width, self._preprocessor.height
        self._decoder = make_decoder(self.bundle, backend.outputs, width, height)
        self.stage_ns: dict[str, int] = dict.fromkeys(STAGES, 0)
        """Nanoseconds of the last `detect`, by stage."""

    @classmethod
    def open(cls, bundle: Bundle, options: DetectorOptions, announce: Announce = _say_nothing) -> "Detector":
        """Load the bundle into the first of the backends that can run it.

        Args:
            bundle: From `load_bundle`.
            options: Backends, threads, threshold.
            announce: Told about runtimes that are passed over, and about long preparations.

        Raises:
            ArtefactError: The model is of no kind that the eye can use.
            BackendError: No runtime could load it.
        """
        backend = open_backend(bundle.artefact(), options.backends, options.threads, announce)
        try:
            return cls(bundle, backend, options.score_threshold)
        except ArtefactError:
            backend.close()
            raise

    def detect(self, image: Image) -> list[Detection]:
        """What the model sees in one frame, the best first.

        Raises:
            FrameError: The frame cannot be used; the next one may be.
            BackendError: The runtime failed.
        """
        clock = time.perf_counter_ns
        started = clock()
        mapping = self._preprocessor.fill(image, self.backend.input_view())
        filled = clock()
        self.backend.infer()
        inferred = clock()
        candidates = self._decoder.decode(self.backend.output_views())
        decoded = clock()
        rule = self.bundle.decode
        kept = suppress(candidates, rule.iou_threshold, rule.max_detections, rule.class_agnostic_nms)
        found = self._detections(candidates, kept, mapping)
        stages = self.stage_ns
        stages["preprocess"], stages["infer"] = filled - started, inferred - filled
        stages["decode"], stages["nms"] = decoded - inferred, clock() - decoded
        return found

    def pooled(self) -> Array:
        """Means of the newest frame's first output over places, real values: what the model made of the picture."""
        view, spec = self.backend.output_views()[0], self.backend.outputs[0]
        means = view.mean(axis=0) if view.ndim > 1 else view.astype(np.float64)
        if spec.is_quantised:
            means = (means - spec.zero_point) * spec.scale
        return np.asarray(np.atleast_1d(means), np.float64)

    def raw_outputs(self, image: Image) -> list[Array]:
        """Copies of the raw outputs for one frame, for golden vectors and conformance."""
        self._preprocessor.fill(image, self.backend.input_view())
        self.backend.infer()
        return [np.array(view) for view in self.backend.output_views()]

    def close(self) -> None:
        """Free the runtime."""
        self.backend.close()

    def _detections(self, candidates: Candidates, kept: list[int], mapping: Mapping) -> list[Detection]:
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
            score = float(candidates.scores[index])
            found.append(Detection(class_index, label, score, box, whole if whole != box else None))
        return found


def _clamp(value: float, limit: int) -> float:
    return min(max(value, 0.0), float(limit))


def _with_threshold(bundle: Bundle, score_threshold: float) -> Bundle:
    if score_threshold <= 0.0:
        return bundle
    return replace(bundle, decode=replace(bundle.decode, score_threshold=score_threshold, class_thresholds={}))
