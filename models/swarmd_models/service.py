"""A loaded bundle that answers for others: raw tensors through its graph, a picture through all of it, or a text on.

*Lanes* of one bundle. `graph`: the tensors of the net as they are, an item (one entry of the batch axis) at a time,
since the zoo's graphs are fixed at a batch of one. `detect`: a picture in, detections out, with everything that the
bundle says about it: preprocessing, decoding, thresholds, the second stage. `text`, of a language model: tokens in,
those that follow out, one an inference (`texts.py`). `series`: samples in, a judgement a window out (`series.py`).

An ensemble has the lane of its experts alone: its router looks first, then the expert that it chooses; each answer says
which that was.

Not for two threads at once: a backend is used by one thread at a time.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from swarmd_models.backends import open_backend
from swarmd_models.backends.base import Array, Backend, TensorSpec
from swarmd_models.bundle import Bundle, unhurried
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.errors import ArtefactError, FrameError, ModelError
from swarmd_models.opencv import cv2, ready
from swarmd_models.series import SeriesNet
from swarmd_models.series_rule import CLASSIFY, SeriesRule
from swarmd_models.texts import STEPS_MAX, Going, TextNet

if TYPE_CHECKING:
    from swarmd_models.types import Detection

GRAPH, DETECT, TEXT, SERIES = "graph", "detect", "text", "series"
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
_ROUTED = Port("routed", (-1,), np.dtype(object))
"""Of an ensemble: the expert of each window, or of the picture."""


class Service:
    """One bundle in one runtime."""

    def __init__(
        self,
        bundle: Bundle,
        backend: Backend,
        detector: Detector | None,
        text: TextNet | None = None,
        series: SeriesNet | None = None,
        experts: "Sequence[Service]" = (),
    ) -> None:
        """Put the parts together; use `open`."""
        self.bundle = bundle
        self.backend = backend
        """Of an ensemble its router's."""
        self._detector = detector
        self.text = text
        """What makes texts; None: the bundle is no language model."""
        self._series = series
        self._taken = () if experts else tuple(map(_port, backend.inputs[:1]))
        self._given = () if experts else tuple(map(_port, backend.outputs))
        """Of the graph's lane."""
        self._experts = tuple(experts)
        """Of an ensemble, in the order of its description, and its router behind them."""

    @classmethod
    def open(cls, bundle: Bundle, options: DetectorOptions, announce: Callable[[str], None]) -> "Service":
        """Load the bundle into the first of the runtimes that can run it.

        A bare model that no decoder here knows still serves its tensors.

        Raises:
            ArtefactError: The bundle contradicts its model.
            BackendError: No runtime could load it.
        """
        if bundle.ensemble is not None:
            return cls._open_ensemble(bundle, options, announce)
        if bundle.decoder in (TEXT, SERIES):
            backend = open_backend(bundle.artefact(), options.backends, options.threads, announce)
            try:
                if bundle.decoder == SERIES:
                    return cls(bundle, backend, None, None, SeriesNet(backend, bundle.labels, bundle.series))
                return cls(bundle, backend, None, TextNet(backend, bundle.labels, bundle.text))
            except ArtefactError:
                backend.close()
                raise
        try:
            # A budget is of a frame in real time. A request has its own deadline, and the same picture the same answer:
            # a lender whose machine was busy would be found wrong by a spot check.
            detector = Detector.open(unhurried(bundle), options, announce)
        except ArtefactError:
            if bundle.decoder:
                raise
            return cls(bundle, open_backend(bundle.artefact(), options.backends, options.threads, announce), None)
        return cls(detector.bundle, detector.backend, detector)

    @classmethod
    def _open_ensemble(cls, bundle: Bundle, options: DetectorOptions, announce: Callable[[str], None]) -> "Service":
        assert bundle.ensemble is not None
        made: list[Service] = []
        try:
            for one in (*(expert.bundle for expert in bundle.ensemble.experts), bundle.ensemble.router):
                made.append(cls.open(one, options, announce))
                if bundle.ensemble.lane not in made[-1].lanes:
                    raise ArtefactError(f"{one.name} does not answer in lane {bundle.ensemble.lane}")
        except ModelError:
            for service in made:
                service.close()
            raise
        return cls(bundle, made[-1].backend, None, experts=made)

    @property
    def lanes(self) -> tuple[str, ...]:
        """What it serves."""
        if self.bundle.ensemble is not None:
            return (self.bundle.ensemble.lane,)
        if self.text is not None:
            return GRAPH, TEXT
        if self._series is not None:
            return GRAPH, SERIES
        return (GRAPH,) if self._detector is None else (GRAPH, DETECT)

    def inputs(self, lane: str) -> tuple[Port, ...]:
        """What a lane takes."""
        if lane == TEXT:
            return _GOING
        if lane == SERIES:
            return (Port("samples", (-1, self.series_rule.channels), np.dtype(np.float32)),)
        return (_IMAGE,) if lane == DETECT else self._taken

    def outputs(self, lane: str) -> tuple[Port, ...]:
        """What a lane gives."""
        if lane == TEXT:
            return _GONE_ON
        routed = (_ROUTED,) if self._experts else ()
        if lane == SERIES:
            return (*self._heard(), *routed)
        if routed:
            return (*_SEEN, *routed)
        return _SEEN if lane == DETECT else self._given

    def steps(self, lane: str, inputs: Tensors) -> "Run":
        """Prepare a run; each step of it is one inference.

        Args:
            lane: One of `lanes`.
            inputs: Every tensor of `inputs(lane)`, of its type and a shape that fits; not kept after the run.
        """
        if lane == DETECT:
            ready()  # Here, where nothing is measured: the first inference would count as a slow one.
        if self._experts:
            return Run(1, lambda: self._route(lane, inputs))
        if lane == SERIES:
            net = self._series
            assert net is not None
            return Run(1, lambda: net.run(inputs["samples"]))
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
        ready()
        return Run(1, lambda: self._fit(image))

    def read(self, image: Array, outputs: Tensors) -> "Run":
        """What the net's outputs for a picture show, as the lane `DETECT` gives it.

        Args:
            image: As `fit` took it.
            outputs: Of the net, by name, with a batch axis of one.
        """
        ready()
        return Run(1, lambda: self._read(image, outputs))

    @property
    def series_rule(self) -> SeriesRule:
        """How a series is judged; of an ensemble as all its experts do it."""
        ensemble = self.bundle.ensemble
        return (ensemble.experts[0].bundle if ensemble is not None else self.bundle).series

    def close(self) -> None:
        """Free the runtime."""
        for one in self._experts:
            one.close()
        if self._experts:
            return
        (self.backend if self._detector is None else self._detector).close()

    def _heard(self) -> tuple[Port, ...]:
        numbers, at_s = (-1, len(self.bundle.labels)), Port("at_s", (-1,), np.dtype(np.float32))
        if self.series_rule.task != CLASSIFY:
            return at_s, Port("values", numbers, np.dtype(np.float32))
        return at_s, Port("scores", numbers, np.dtype(np.float32)), Port("labels", (-1,), np.dtype(object))

    def _route(self, lane: str, inputs: Tensors) -> Iterator[Tensors | None]:
        """The router's look, then that of those whom it has chosen."""
        rule = self.bundle.ensemble
        assert rule is not None
        *experts, router = self._experts
        said = _whole(router.steps(lane, inputs))
        names = [one.bundle.name for one in experts]
        if lane == DETECT:
            best = int(said["scores"].argmax()) if len(said["scores"]) else -1
            label, score = ("", 0.0) if best < 0 else (str(said["labels"][best]), float(said["scores"][best]))
            place = rule.place_of(label, score)
            found = _whole(experts[place].steps(lane, inputs))
            yield None
            yield {**found, "routed": np.array([names[place]], object)}
            return
        tops = said["scores"].max(axis=1)
        chosen = [rule.place_of(str(a), float(b)) for a, b in zip(said["labels"], tops, strict=True)]
        samples, window, hop = inputs["samples"], self.series_rule.window, self.series_rule.hop
        rows = [
            _whole(experts[place].steps(lane, {"samples": samples[at * hop : at * hop + window]}))
            for at, place in enumerate(chosen)
        ]
        yield None
        found = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
        yield {**found, "at_s": said["at_s"], "routed": np.array([names[place] for place in chosen], object)}

    def _through(self, items: Array) -> Iterator[Tensors | None]:
        found: list[list[Array]] = []
        for item in items:
            np.copyto(self.backend.input_view(), item, casting="no")
            self.backend.infer()
            # No view may outlive this line: the next `infer` would be refused.
            found.append([np.array(view) for view in self.backend.output_views()])
            yield None
        yield {
            spec.name: found[0][index][None] if len(found) == 1 else np.stack([outputs[index] for outputs in found])
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


def _whole(run: Run) -> Tensors:
    """All of a run at once."""
    for _ in range(run.units):
        run.step()
    return run.result()


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
