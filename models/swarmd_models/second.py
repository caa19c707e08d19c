"""The second stage: a small net that looks again at what the first stage only suspects.

The first stage says where something may be; the second sees that one module, cut out of the picture that the first
stage saw, and says whether it is faulty and how. Both opinions are joined (`fuse`). The first stage's word stands alone
for what it is sure of, for what comes after the frame's time is used up, and for everything while the device is
throttled.
"""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from swarmd_models.backends import Backend, in_order, open_backend, split_device
from swarmd_models.backends.base import Announce, Array
from swarmd_models.backends.litert import LiteRtBackend
from swarmd_models.backends.litert_batch import LiteRtBatch
from swarmd_models.bundle import Bundle, InputRule, SecondRule
from swarmd_models.decoders.base import check_finite, real
from swarmd_models.errors import ArtefactError, BackendError, ModelError
from swarmd_models.opencv import cv2
from swarmd_models.preprocess import Preprocessor
from swarmd_models.types import Image

Floats = npt.NDArray[np.float32]
_LIMIT = 80.0
"""Logit beyond which the exponential would overflow single precision."""
_INSTEAD = {"openvino": "litert"}
"""Runtimes that a second stage is not run on, and the one that takes their place: OpenVINO 2026.4 computes so small an
INT8 net to 15 dB of the training machine's answer, where ONNX Runtime, with the same file, has 33."""
BATCH = 4
"""Views in one run, where that pays: two boxes of the zoo's two views. What a run costs beside its views is then a
quarter; eight gain 2 % more and would wait for boxes that few frames have (docs/performance/eye.md)."""
_TRIALS, _TRIAL_NS = 8, 50_000_000
"""Runs of each way when they are compared at the start, and nanoseconds after which no further one begins: the least
of eight is hardly a neighbour's, and a net of the zoo's size needs 10 ms for all."""
_MIN_SIDE = 1.0
"""Pixels of a box's side at least: a degenerate box is cut out as one pixel."""
_MAX_SIDE = 8192.0
"""Pixels of a box's side at most, so that a wild box costs no memory."""


def cut_out(
    canvas: Image, boxes: npt.NDArray[np.floating], margin: float, level: str, width: int, height: int
) -> Image:
    """Cut boxes out of a picture, each resampled to one size. Training and flight both call this.

    A box that stands (taller than wide) is turned over its diagonal for an input that lies, and the other way round.
    Beyond the picture's border its edge pixels go on.

    Args:
        canvas: Shape (H, W) grey or (H, W, 3), uint8: what the first stage saw.
        boxes: Shape (n, 4): x1, y1, x2, y2 in pixels of `canvas`, edges at whole numbers; may reach beyond it.
        margin: Added on every side, as a share of the box's own side.
        level: "median" moves the median of each cut to 128, "none" leaves it.
        width: Of a cut.
        height: Of a cut.

    Returns:
        Shape (n, height, width) or (n, height, width, 3), uint8.
    """
    out = np.empty((len(boxes), height, width, *canvas.shape[2:]), np.uint8)
    for index, box in enumerate(np.asarray(boxes, np.float64).tolist()):
        _cut(canvas, box, margin, out[index])
        if level == "median":
            _centre(out[index])
    return out


def _cut(canvas: Image, box: list[float], margin: float, out: Image) -> None:
    height, width = out.shape[:2]
    x1, y1, x2, y2 = box
    box_width = min(max(x2 - x1, _MIN_SIDE), _MAX_SIDE)
    box_height = min(max(y2 - y1, _MIN_SIDE), _MAX_SIDE)
    grown_width, grown_height = box_width * (1 + 2 * margin), box_height * (1 + 2 * margin)
    left, top = (x1 + x2 - grown_width) / 2, (y1 + y2 - grown_height) / 2
    # Pixel centres lie at half numbers in boxes and at whole ones in OpenCV.
    if (box_height > box_width) == (height > width):
        a, b = grown_width / width, grown_height / height
        matrix = np.array([[a, 0.0, left + a / 2 - 0.5], [0.0, b, top + b / 2 - 0.5]])
    else:
        a, b = grown_width / height, grown_height / width
        matrix = np.array([[0.0, a, left + a / 2 - 0.5], [b, 0.0, top + b / 2 - 0.5]])
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    cv2.warpAffine(canvas, matrix, (width, height), dst=out, flags=flags, borderMode=cv2.BORDER_REPLICATE)


def _centre(cut: Image) -> None:
    shifted = cut.astype(np.int16) + (128 - round(float(np.median(cut))))
    np.clip(shifted, 0, 255, out=shifted)
    cut[...] = shifted


@dataclass(slots=True)
class SecondCounts:
    """What became of candidates, since the start."""

    examined: int = 0
    sure: int = 0
    """Left to the first stage, which was sure."""
    late: int = 0
    """Left to the first stage because the frame's time, or its number of candidates, was used up."""


class SecondStage:
    """The second net in a runtime."""

    def __init__(self, rule: SecondRule, bundle: Bundle, backend: Backend) -> None:
        """Put the parts together; raises `ArtefactError` when model and bundle disagree."""
        if len(backend.inputs) != 1 or len(backend.outputs) != 1:
            raise ArtefactError(
                f"second stage of {bundle.name} has {len(backend.inputs)} inputs and {len(backend.outputs)} outputs; "
                "one picture in and one row of logits out are needed"
            )
        classes = len(bundle.labels)
        self._width_out = int(np.prod(backend.outputs[0].shape))
        if self._width_out not in (1, classes + 1):
            raise ArtefactError(
                f"second stage of {bundle.name} answers {backend.outputs[0].shape}; {classes} labels need "
                f"{classes + 1} logits (the healthy class last), or one of a fault"
            )
        first = bundle.input
        own = InputRule(channels=first.channels, resize="none", mean=first.mean, std=first.std)
        self._preprocessor = Preprocessor(own, backend.inputs[0])
        self.rule = rule
        self.backend = backend
        self.counts = SecondCounts()
        self.infer_ns = 0
        """Of the last `judge`, in the runtime alone."""
        self.batch: LiteRtBatch | None = None
        """The same net for several views in one run; None where there is no such thing, or it does not pay."""

    @classmethod
    def open(cls, bundle: Bundle, order: tuple[str, ...], threads: int, announce: Announce) -> "SecondStage":
        """Load the second model of a bundle into the first runtime of `order` that can, or its stand-in.

        Raises:
            ArtefactError: The model is of no kind that can be a second stage.
            BackendError: No runtime could load it.
        """
        assert bundle.second is not None
        artefact = bundle.second_artefact()
        assert artefact is not None
        kinds = tuple(dict.fromkeys(_INSTEAD.get(kind, kind) for kind, _ in map(split_device, in_order(order))))
        backend = open_backend(artefact, kinds, threads, announce)
        try:
            stage = cls(bundle.second, bundle, backend)
            if backend.kind == LiteRtBackend.kind:
                stage.adopt(LiteRtBatch.load(artefact, threads, BATCH))
        except ModelError:
            backend.close()
            raise
        return stage

    def adopt(self, batch: LiteRtBatch | None) -> None:
        """Look at several views in one run, if that says the same to the last bit and takes less time here.

        Args:
            batch: Of this stage's net; closed where it is not taken.
        """
        if batch is None:
            return
        rng = np.random.default_rng(BATCH)
        cuts = [rng.integers(0, 256, self._preprocessor.canvas.shape, np.uint8) for _ in range(batch.size)]
        is_taken = False
        with contextlib.suppress(BackendError):  # What cannot run now stands in nobody's way.
            is_taken = self._is_same(batch, cuts) and self._pays(batch, cuts)
        if is_taken:
            self.batch = batch
        else:
            batch.close()

    @property
    def size(self) -> tuple[int, int]:
        """(width, height) of a cut."""
        return self._preprocessor.width, self._preprocessor.height

    def judge(self, canvas: Image, boxes: npt.NDArray[np.floating], deadline_ns: int = 0) -> Floats:
        """Logits of boxes, in order, as many as there is time for.

        Args:
            canvas: What the first stage saw, shape (H, W) or (H, W, 3).
            boxes: Shape (n, 4): x1, y1, x2, y2 in pixels of `canvas`.
            deadline_ns: Of `time.perf_counter_ns`; boxes after it are left out. 0: none.

        Returns:
            Shape (m, logits), m <= n: the mean over the rule's views.

        Raises:
            BackendError: The runtime failed, or answered with NaN.
        """
        rule, (width, height) = self.rule, self.size
        rows: list[Floats] = []
        self.infer_ns = 0
        together = 1 if self.batch is None else self.batch.size // rule.flips
        while len(rows) < len(boxes):
            if deadline_ns and time.perf_counter_ns() >= deadline_ns:
                break
            # What does not fill a run goes one view at a time: an empty place costs as much as a full one.
            count = together if len(boxes) - len(rows) >= together else 1
            group = boxes[len(rows) : len(rows) + count]
            cuts = cut_out(canvas, group, rule.margin, rule.level, width, height)
            views = [view for cut in cuts for view in _turned(cut, rule.flips)]
            if self.batch is not None and len(views) == self.batch.size:
                answers = self._run_together(self.batch, views)
            else:
                answers = np.stack([self._run(view) for view in views])
            rows.extend(answers.reshape(count, rule.flips, -1).mean(axis=1, dtype=np.float32))
        return np.stack(rows) if rows else np.empty((0, self._width_out), np.float32)

    def raw_output(self, cut: Image) -> Array:
        """A copy of the raw output for one cut, for golden vectors."""
        self._infer(cut)
        return np.array(self.backend.output_views()[0])

    def raw_batch(self, cut: Image) -> list[Array]:
        """The same by the net for several views, from each of its places; nothing where it is not used."""
        if self.batch is None:
            return []
        self._infer_together(self.batch, [cut] * self.batch.size)
        return list(np.array(self.batch.output_view()))

    def close(self) -> None:
        """Free the runtime."""
        self.backend.close()
        if self.batch is not None:
            self.batch.close()

    def _is_same(self, batch: LiteRtBatch, cuts: Sequence[Image]) -> bool:
        """Whether every place of a batch gets the answer that it gets alone, among pictures that differ."""
        alone = [self.raw_output(cut) for cut in cuts]
        self._infer_together(batch, cuts)
        return all(map(np.array_equal, alone, np.array(batch.output_view())))

    def _pays(self, batch: LiteRtBatch, cuts: Sequence[Image]) -> bool:
        """Whether a batch takes less of the processors' time than its views one by one, the least of some runs each."""
        clock = time.process_time_ns  # Not the neighbours' time: a run that loses its core tells nothing.
        began, least = clock(), [1 << 62, 1 << 62]
        for _ in range(_TRIALS):
            if clock() - began > _TRIAL_NS:
                break
            started = clock()
            for cut in cuts:
                self._run(cut)
            between = clock()
            self._run_together(batch, cuts)
            least = [min(least[0], between - started), min(least[1], clock() - between)]
        return least[1] < least[0]

    def _infer_together(self, batch: LiteRtBatch, cuts: Sequence[Image]) -> None:
        for place, cut in zip(batch.input_view(), cuts, strict=True):
            self._preprocessor.fill(cut, place)
        del place  # LiteRT does not run while anybody holds a tensor of it.
        started = time.perf_counter_ns()
        batch.infer()
        self.infer_ns += time.perf_counter_ns() - started

    def _run_together(self, batch: LiteRtBatch, cuts: Sequence[Image]) -> Floats:
        """Logits of each view, shape (views, logits)."""
        self._infer_together(batch, cuts)
        view = batch.output_view()
        check_finite(view, "the second stage")
        return real(view, self.backend.outputs[0]).reshape(len(view), -1)

    def _infer(self, cut: Image) -> None:
        self._preprocessor.fill(cut, self.backend.input_view())
        started = time.perf_counter_ns()
        self.backend.infer()
        self.infer_ns += time.perf_counter_ns() - started

    def _run(self, cut: Image) -> Floats:
        self._infer(cut)
        view = self.backend.output_views()[0]
        check_finite(view, "the second stage")
        return real(view, self.backend.outputs[0]).ravel()


def _turned(cut: Image, flips: int) -> list[Image]:
    """The first so many of: a cut as it is, from left to right, upside down, and both."""
    return [np.ascontiguousarray(view) for view in (cut, cut[:, ::-1], cut[::-1], cut[::-1, ::-1])[:flips]]


def fuse(rule: SecondRule, first_logits: Floats, first_kinds: Floats | None, answers: Floats) -> tuple[Floats, Floats]:
    """Join both stages' opinions of the same boxes.

    Args:
        rule: The bundle's weights.
        first_logits: Shape (n,): calibrated logit of the first stage, the best class.
        first_kinds: Shape (n, classes): the first stage's logit of every class; None where it has none.
        answers: Shape (n, classes + 1) with the healthy class last, or (n, 1): logit of a fault.

    Returns:
        (logits (n,) that there is a fault, kinds (n, classes): log-likelihood of each class, the best is 0). Kinds are
        all zero where neither stage tells them.
    """
    if answers.shape[1] == 1:
        second = answers[:, 0]
        kinds = np.zeros((len(answers), 0), np.float32) if first_kinds is None else first_kinds
    else:
        faults = answers[:, :-1]
        top = faults.max(axis=1)
        second = top + np.log(np.exp(faults - top[:, None]).sum(axis=1)) - answers[:, -1]
        kinds = faults if first_kinds is None else faults + rule.kind_weight * first_kinds
    logits = rule.first_weight * first_logits + rule.second_weight * second + rule.bias
    if kinds.shape[1]:
        kinds = kinds - kinds.max(axis=1, keepdims=True)
    return logits.astype(np.float32), kinds.astype(np.float32)


def sigmoid(logits: Floats) -> Floats:
    """Scores of logits."""
    return (1.0 / (1.0 + np.exp(-np.clip(logits, -_LIMIT, _LIMIT)))).astype(np.float32)
