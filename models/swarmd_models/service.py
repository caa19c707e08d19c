"""A loaded bundle that answers for others: raw tensors through its graph, a picture through all of it, or a text on.

*Lanes* of one bundle. `graph`: the tensors of the net as they are, an item (one entry of the batch axis) at a time,
since the zoo's graphs are fixed at a batch of one. `detect`: a picture in, detections out, with everything that the
bundle says about it: preprocessing, decoding, thresholds, the second stage. `text`, of a language model: tokens in,
those that follow out, one an inference (`texts.py`).

Not for two threads at once: a backend is used by one thread at a time.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import cv2
import numpy as np

from swarmd_models.backends import open_backend
from swarmd_models.backends.base import Array, Backend, TensorSpec
from swarmd_models.bundle import Bundle
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.errors import ArtefactError, FrameError
from swarmd_models.texts import STEPS_MAX, Going, TextNet

if TYPE_CHECKING:
    from swarmd_models.types import Detection

GRAPH, DETECT, TEXT = "graph", "detect", "text"
"""The lanes."""
MAX_SIDE = 8192
"""Pixels of a picture's longer side: twice a 4K frame's; OpenCV resizes nothing beyond 32,767."""
MIN_SIDE = 8
"""Pixels of its shorter side: less shows nothing to any model here."""

Tensors: TypeAlias = Mapping[str, Array]
"""Name to array, with the batch axis where the lane has one."""


@dataclass(frozen=True, slots=True)
class Port:
    """A tensor that a lane takes or gives."""

    name: str
    shape: tuple[int, ...]
    """-1: any size."""
    dtype: "np.dtype[np.generic]"
    """`object`: texts."""
    scale: float = 0.0
    """Real value = scale * (raw - zero_point); 0.0 where the tensor is not quantised."""
    zero_point: int = 0


_IMAGE = Port("image", (-1, -1, -1), np.dtype(np.uint8))
_SEEN = (
    Port("boxes", (-1, 4), np.dtype(np.float32)),
    Port("scores", (-1,), np.dtype(np.float32)),
    Port("classes", (-1,), np.dtype(np.int32)),
    Port("labels", (-1,), np.dtype(object)),
)
_GOING = (
    Port("tokens", (-1,), np.dtype(np.int32)),
    Port("steps", (1,), np.dtype(np.int32)),
    Port("seed", (1,), np.dtype(np.int64)),
    Port("temperature", (1,), np.dtype(np.float32)),
)
_GONE_ON = (Port("tokens", (-1,), np.dtype(np.int32)), Port("margins", (-1,), np.dtype(np.float32)))


class Service:
    """One bundle in one runtime."""

    def __init__(
        self, bundle: Bundle, backend: Backend, detector: Detector | None, text: TextNet | None = None
    ) -> None:
        """Put the parts together; use `open`."""
        self.bundle = bundle
        self.backend = backend
        self._detector = detector
        self.text = text
        """What makes texts; None: the bundle is no language model."""

    @classmethod
    def open(cls, bundle: Bundle, options: DetectorOptions, announce: Callable[[str], None]) -> "Service":
        """Load the bundle into the first of the runtimes that can run it.

        A bare model that no decoder here knows still serves its tensors.

        Raises:
            ArtefactError: The bundle contradicts its model.
            BackendError: No runtime could load it.
        """
        if bundle.decoder == TEXT:
            backend = open_backend(bundle.artefact(), options.backends, options.threads, announce)
            try:
                return cls(bundle, backend, None, TextNet(backend, bundle.labels, bundle.text))
            except ArtefactError:
                backend.close()
                raise
        try:
            detector = Detector.open(bundle, options, announce)
        except ArtefactError:
            if bundle.decoder:
                raise
            return cls(bundle, open_backend(bundle.artefact(), options.backends, options.threads, announce), None)
        return cls(detector.bundle, detector.backend, detector)

    @property
    def lanes(self) -> tuple[str, ...]:
        """What it serves."""
        if self.text is not None:
            return GRAPH, TEXT
        return (GRAPH,) if self._detector is None else (GRAPH, DETECT)

    def inputs(self, lane: str) -> tuple[Port, ...]:
        """What a lane takes."""
        if lane == TEXT:
            return _GOING
        return (_IMAGE,) if lane == DETECT else tuple(map(_port, self.backend.inputs[:1]))

    def outputs(self, lane: str) -> tuple[Port, ...]:
        """What a lane gives."""
        if lane == TEXT:
            return _GONE_ON
        return _SEEN if lane == DETECT else tuple(map(_port, self.backend.outputs))

    def steps(self, lane: str, inputs: Tensors) -> "Run":
        """Prepare a run; each step of it is one inference.

        Args:
            lane: One of `lanes`.
            inputs: Every tensor of `inputs(lane)`, of its type and a shape that fits; not kept after the run.
        """
        if lane == DETECT:
            return Run(1, lambda: self._look(inputs["image"]))
        if lane == TEXT:
            steps = int(inputs["steps"][0])
            return Run(min(max(steps, 1), STEPS_MAX), lambda: self._go_on(steps, inputs))
        (port,) = self.inputs(GRAPH)
        items = inputs[port.name]
        return Run(len(items), lambda: self._through(items))

    def fit(self, image: Array) -> "Run":
        """A picture as the net's input: one tensor with a batch axis of one. For a net that runs elsewhere."""
        return Run(1, lambda: self._fit(image))

    def read(self, image: Array, outputs: Tensors) -> "Run":
        """What the net's outputs for a picture show, as the lane `DETECT` gives it.

        Args:
            image: As `fit` took it.
            outputs: Of the net, by name, with a batch axis of one.
        """
        return Run(1, lambda: self._read(image, outputs))

    def close(self) -> None:
        """Free the runtime."""
        (self.backend if self._detector is None else self._detector).close()

    def _through(self, items: Array) -> Iterator[Tensors | None]:
        found: list[list[Array]] = []
        for item in items:
            np.copyto(self.backend.input_view(), item, casting="no")
            self.backend.infer()
            # No view may outlive this line: the next `infer` would be refused.
            found.append([np.array(view) for view in self.backend.output_views()])
            yield None
        yield {
            spec.name: np.stack([outputs[index] for outputs in found])
            for index, spec in enumerate(self.backend.outputs)
        }

    def _go_on(self, steps: int, inputs: Tensors) -> Iterator[Tensors | None]:
        assert self.text is not None
        going = Going(
            tuple(inputs["tokens"].tolist()), steps, int(inputs["seed"][0]), float(inputs["temperature"][0])
        )  # fmt: skip
        return self.text.run(going)

    def _look(self, image: Array) -> Iterator[Tensors | None]:
        assert self._detector is not None
        picture = _picture(image)
        with _judging():
            found = self._detector.detect(picture)
        yield None
        yield _as_tensors(found)

    def _fit(self, image: Array) -> Iterator[Tensors | None]:
        assert self._detector is not None
        picture = _picture(image)
        with _judging():
            fitted = self._detector.fitted(picture)
        yield None
        yield {self.backend.inputs[0].name: fitted[None]}

    def _read(self, image: Array, outputs: Tensors) -> Iterator[Tensors | None]:
        assert self._detector is not None
        picture = _picture(image)
        with _judging():
            found = self._detector.read(picture, [outputs[spec.name][0] for spec in self.backend.outputs])
        yield None
        yield _as_tensors(found)


class Run:
    """One request's work, a step at a time, so that who runs it may let others pass between two steps."""

    def __init__(self, units: int, begin: Callable[[], Iterator[Tensors | None]]) -> None:
        """Nothing runs before `step`."""
        self.units = units
        """Inferences that it takes."""
        self._begin = begin
        self._steps: Iterator[Tensors | None] | None = None

    def step(self) -> None:
        """One inference; raises `FrameError` or `BackendError`."""
        if self._steps is None:
            self._steps = self._begin()
        assert next(self._steps) is None

    def result(self) -> Tensors:
        """The outputs, after as many steps as `units`."""
        assert self._steps is not None
        found = next(self._steps)
        assert found is not None
        return found


def _picture(image: Array) -> Array:
    height, width, channels = image.shape
    if channels not in (1, 3) or not MIN_SIDE <= min(height, width) <= max(height, width) <= MAX_SIDE:
        raise FrameError(
            f"the picture is {height}x{width}x{channels}; rows and columns must be {MIN_SIDE} to {MAX_SIDE}, "
            "channels 1 (grey) or 3 (BGR)"
        )
    return image[..., 0] if channels == 1 else image


@contextlib.contextmanager
def _judging() -> Iterator[None]:
    try:
        yield
    except cv2.error as error:
        raise FrameError(f"OpenCV refuses the picture: {str(error)[:200]}") from error


def _port(spec: TensorSpec) -> Port:
    """A graph's tensor with a batch axis; one of a scalar or a single axis gets one."""
    shape = spec.shape[1:] if len(spec.shape) > 1 else spec.shape
    return Port(spec.name, (-1, *shape), spec.dtype, spec.scale if spec.is_quantised else 0.0, spec.zero_point)


def _as_tensors(found: "list[Detection]") -> Tensors:
    return {
        "boxes": np.array([one.box for one in found], np.float32).reshape(len(found), 4),
        "scores": np.array([one.score for one in found], np.float32),
        "classes": np.array([one.class_index for one in found], np.int32),
        "labels": np.array([one.label for one in found], object),
    }
