"""Which model the eye runs, and what it does with less when power, heat or load ask for it.

`zoo:auto` (or `auto:FOLDER`) stands on a ladder of the whole zoo. Any other model has a ladder of its own: with and
without its second stage. A model that the brain orders ends the choosing among the zoo: orders are not overruled.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path

from swarmd.eye.ipc import Configure, SwapDone
from swarmd.eye.swap import Swapper
from swarmd_models.choose import Conditions, Ladder, Rung, climb, fits_frames, measure_zoo, rungs_of, zoo_of
from swarmd_models.detector import DetectorOptions
from swarmd_models.device import Device
from swarmd_models.errors import ArtefactError
from swarmd_models.eye import Eye


class ModelChoice:
    """The ladder of one eye, and the swaps that follow from it."""

    def __init__(
        self, config: Configure, device: Device, announce: Callable[[str], None], warn: Callable[[str], None]
    ) -> None:
        """Choose nothing yet.

        Args:
            config: Of the eye.
            device: What it has.
            announce: Told of every choice, with its reason.
            warn: Told of models that cannot be taken.
        """
        self._config = config
        self._device = device
        self._announce = announce
        self._warn = warn
        self._lock = threading.Lock()
        self._rungs: list[Rung] = []
        self._ladder: Ladder | None = None
        self._running = Path()
        self._eye: Eye | None = None
        self._swapper: Swapper | None = None

    def at_start(self, frame_width: int) -> str:
        """The model to begin with; raises `ArtefactError` when the zoo has none for this device.

        Args:
            frame_width: Of the source's frames; 0: not known yet.
        """
        config = self._config
        zoo = zoo_of(config.model)
        if zoo is None:
            return config.model
        options = DetectorOptions(
            config.backends, config.threads, 0.0, config.point.false_per_1000, config.point.candidates_per_1000
        )
        rungs, problems = measure_zoo(options, zoo, self._device)
        for problem in problems:
            self._warn(problem)
        if not rungs:
            raise ArtefactError("the zoo has no model that this device can run")
        self._rungs = rungs
        self._climb(frame_width)
        assert self._ladder is not None
        costs = ", ".join(f"{_named(rung)} {rung.latency_ms:.1f} ms" for rung in rungs)
        chosen = f"model {_named(self._ladder.rung)} chosen for {config.frame_interval_ms:g} ms a frame"
        self._announce(f"{chosen} on {self._device} ({costs})")
        self._running = self._ladder.rung.path
        return str(self._running)

    def started(self, eye: Eye, swapper: Swapper, model: str) -> None:
        """The eye runs `model` now; its swapper does what is chosen from here on."""
        self._eye, self._swapper = eye, swapper
        if self._ladder is None:
            self._stand_on(model)
        else:
            eye.detector.looks_twice = self._ladder.rung.second

    def see_width(self, frame_width: int) -> None:
        """The first frame shows how wide the source's are: a model of the zoo that would enlarge them is left."""
        with self._lock:
            ladder = self._ladder
            if ladder is None or not self._rungs or fits_frames(ladder.rung, frame_width):
                return
            self._climb(frame_width)
            assert self._ladder is not None
            self._announce(f"model {_named(self._ladder.rung)} is taken now: frames are {frame_width} pixels wide")
            self._apply()

    def reconsider(self, conditions: Conditions) -> None:
        """Another rung, when conditions ask for it."""
        with self._lock:
            if self._ladder is None or self._swapper is None or self._swapper.is_busy:
                return
            if self._ladder.step(conditions, time.monotonic_ns()):
                self._announce(f"model {_named(self._ladder.rung)} is taken now: {conditions}")
            self._apply()

    def swapped(self, done: SwapDone) -> None:
        """How a swap went."""
        with self._lock:
            if done.ok:
                self._running = Path(done.path)
                if not done.chosen:
                    self._rungs = []
                    self._stand_on(done.path)
            elif done.chosen and self._ladder is not None and self._ladder.refuse(Path(done.path)):
                self._warn(f"model {done.path} could not be taken and is left out: {done.text}")

    def _climb(self, frame_width: int) -> None:
        start = climb(self._rungs, self._config.frame_interval_ms, frame_width)
        self._ladder = self._ladder_of(self._rungs, start)

    def _stand_on(self, model: str) -> None:
        """A ladder of one model, on its highest rung."""
        assert self._eye is not None
        rungs = rungs_of(Path(model), self._eye.bundle, 0.0)
        self._running = Path(model)
        self._ladder = self._ladder_of(rungs, len(rungs) - 1)

    def _ladder_of(self, rungs: list[Rung], start: int) -> Ladder:
        config = self._config
        calm_ns, dwell_ns = round(config.calm_s * 1e9), round(config.dwell_s * 1e9)
        return Ladder(rungs, start, config.frame_interval_ms, calm_ns, dwell_ns)

    def _apply(self) -> None:
        """Make the eye run the rung that the ladder stands on."""
        assert self._ladder is not None
        rung = self._ladder.rung
        if self._eye is None or self._swapper is None:
            return
        if rung.path == self._running:
            self._eye.detector.looks_twice = rung.second
        elif not self._swapper.is_busy:
            self._swapper.begin(str(rung.path), self._config.labels, chosen=True, looks_twice=rung.second)


def _named(rung: Rung) -> str:
    return f"{rung.name} with its second stage" if rung.second else rung.name
