"""Which model of a zoo this device can fly: the largest that keeps up, and a smaller one while power or heat is short.

A rung is a model, with or without its second stage, ordered by cost, the dearest last. `climb` picks the rung at the
start from what the device is and from measured latency; `Ladder` moves between rungs at work: down at once, further
down only after a while (a step takes time to cool anything), up again only after a minute of calm, so that it does not
swing.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from swarmd_models.bundle import BLIND, ZOO, Bundle, load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.device import Device
from swarmd_models.errors import ModelError

AUTO = "zoo:auto"
AUTO_FOLDER = "auto:"
"""Before the folder of a zoo of one's own."""
RUNS = 15
"""Timed inferences of a candidate, of which the median counts."""
WARM_UP_RUNS = 3
"""Inferences that are not timed."""
BUDGET_SHARE = 0.6
"""Of the frame interval: the rest is for capture, tracking and the brain."""
HOT_C = 80.0
"""Degrees Celsius from which on a smaller model is taken: boards throttle from 80 to 85."""
COOL_C = 70.0
"""Degrees Celsius from which down a larger one may come back; ten below, so that it does not swing."""
LOW_BATTERY_MILLI = 200
"""Thousandths of charge below which a smaller model is taken."""
CALM_NS = 60_000_000_000
"""Nanoseconds without heat, load or an empty battery before a larger model is tried: a minute."""
DWELL_NS = 5_000_000_000
"""Between two steps down."""
MAX_MODELS = 32
"""Bundles of a folder that are considered; each is loaded once."""
MEMORY_SHARE = 0.25
"""Of the memory that is free at the start: what a model may need."""
ALONE_AUROC = 0.9
"""Of a first stage on module crops: one below it is no rung without its second stage. Those of tiny-224 and larger have
0.94 to 0.96, nano-160's has 0.81: what saves power by it is hardly an answer (docs/performance/models.md)."""
_ENLARGED = 1.1
"""A model whose input is wider than this many frames would see an enlarged picture, not more of the world."""


@dataclass(frozen=True, slots=True)
class Rung:
    """One model with what it costs here."""

    path: Path
    name: str
    latency_ms: float
    """Of one frame; with a second stage, when that uses up its time."""
    width: int = 0
    """Of the input; 0: takes any."""
    second: bool = False
    """Whether its second stage is asked."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What decides at work; None where it is not known."""

    temperature_c: float | None = None
    battery_milli: int | None = None
    latency_ms: float | None = None
    """Typical time from frame to detections lately."""

    def __str__(self) -> str:
        """For people."""
        said = []
        if self.temperature_c is not None:
            said.append(f"{self.temperature_c:.0f} °C")
        if self.battery_milli is not None and self.battery_milli >= 0:
            said.append(f"battery {self.battery_milli / 10:.0f} %")
        if self.latency_ms is not None:
            said.append(f"{self.latency_ms:.1f} ms a frame")
        return ", ".join(said) or "nothing known"


def zoo_of(model: str) -> Path | None:
    """The folder of bundles that a model's name asks to choose from; None where it names one model.

    >>> zoo_of("auto:/opt/zoo")
    PosixPath('/opt/zoo')
    """
    if model.startswith(AUTO_FOLDER):
        return Path(model[len(AUTO_FOLDER) :])
    return ZOO if model == AUTO else None


def measure_zoo(
    options: DetectorOptions, folder: Path = ZOO, device: Device | None = None
) -> tuple[list[Rung], list[str]]:
    """Load and time every bundle of a folder.

    Args:
        options: Backends and threads to time with.
        folder: Of bundles.
        device: What it has; models that need more of its memory than their share are passed over.

    Returns:
        Rungs, the cheapest first, and a sentence for each bundle that cannot be used here.
    """
    rungs: list[Rung] = []
    problems = []
    for path in sorted(folder.glob("*.toml"))[:MAX_MODELS]:
        try:
            bundle = load_bundle(path)
            if bundle.decoder in BLIND:
                continue  # It sees nothing.
            if "narrow" in bundle.provenance:
                continue  # Made to run in parts; as a whole it is what it was made of, and slower.
            if "early_exit" in bundle.provenance:
                continue  # Its twin, whose second stage may be given up, is there.
            needs_mb = memory_mb(bundle)
            if device is not None and 0 < device.free_memory_mb * MEMORY_SHARE < needs_mb:
                problems.append(
                    f"{path.name} cannot be used here: it needs about {needs_mb:.0f} MB, and "
                    f"{device.free_memory_mb} MB are free"
                )
                continue
            rungs += rungs_of(path, bundle, latency_ms(bundle, options))
        except ModelError as error:
            problems.append(f"{path.name} cannot be used here: {error}")
    return sorted(rungs, key=lambda rung: rung.latency_ms), problems


def rungs_of(path: Path, bundle: Bundle, latency_ms: float) -> list[Rung]:
    """The model alone, unless it tells too little so, and, where it has one, with its second stage."""
    width = bundle.input.width
    joined = bundle.provenance.get("joined")
    first = joined.get("auroc_first") if isinstance(joined, dict) else None
    is_weak = bundle.second is not None and isinstance(first, int | float) and first < ALONE_AUROC
    rungs = [] if is_weak else [Rung(path, bundle.name, latency_ms, width)]
    if bundle.second is not None:
        rungs.append(Rung(path, bundle.name, latency_ms + bundle.second.budget_ms, width, second=True))
    return rungs


def memory_mb(bundle: Bundle) -> float:
    """About what a model takes in memory: its file twice, and a few hundred bytes a pixel for what lies between."""
    pixels = max(bundle.input.width * bundle.input.height, 1)
    return (2 * bundle.model_path.stat().st_size + 200 * pixels) / 1e6


def latency_ms(bundle: Bundle, options: DetectorOptions) -> float:
    """Median time of a model on this device, without its second stage; raises `ModelError`."""
    detector = Detector.open(bundle, options)
    try:
        detector.looks_twice = False
        rule = detector.bundle.input
        image = np.full((rule.height, rule.width, 3), 90, np.uint8)
        times = []
        for _ in range(RUNS):
            started = time.perf_counter()
            detector.detect(image)
            times.append((time.perf_counter() - started) * 1e3)
    finally:
        detector.close()
    kept = sorted(times[WARM_UP_RUNS:])
    return kept[len(kept) // 2]


def climb(rungs: Sequence[Rung], frame_interval_ms: float, frame_width: int = 0) -> int:
    """Index of the dearest rung that fits into its share of the frame interval; the cheapest when none does.

    Args:
        rungs: The cheapest first; at least one.
        frame_interval_ms: Between two frames.
        frame_width: Of the source; models that would enlarge its frames are passed over. 0: not known.

    >>> climb([Rung(Path("a"), "a", 5.0), Rung(Path("b"), "b", 80.0)], 100.0)
    0
    >>> climb([Rung(Path("a"), "a", 5.0, 320), Rung(Path("b"), "b", 20.0, 640)], 100.0, frame_width=320)
    0
    """
    fitting = [
        index
        for index, rung in enumerate(rungs)
        if rung.latency_ms <= BUDGET_SHARE * frame_interval_ms and fits_frames(rung, frame_width)
    ]
    return max(fitting, default=0)


def fits_frames(rung: Rung, frame_width: int) -> bool:
    """Whether a source's frames need not be enlarged for a model."""
    return not frame_width or rung.width <= frame_width * _ENLARGED


class Ladder:
    """Moves between rungs as conditions change."""

    def __init__(
        self,
        rungs: Sequence[Rung],
        start: int,
        frame_interval_ms: float,
        calm_ns: int = CALM_NS,
        dwell_ns: int = DWELL_NS,
    ) -> None:
        """Stand on rung `start`, which is also the highest that is ever taken."""
        self._calm_ns, self._dwell_ns = calm_ns, dwell_ns
        self._rungs = list(rungs)
        self._top = start
        self._interval_ms = frame_interval_ms
        self._calm_since_ns: int | None = None
        self._stepped_down_ns: int | None = None
        self.index = start
        """The rung to stand on."""

    @property
    def rung(self) -> Rung:
        """The model to run."""
        return self._rungs[self.index]

    def step(self, conditions: Conditions, now_ns: int) -> bool:
        """Take in the conditions of now; True when the rung has changed.

        Args:
            conditions: What is known.
            now_ns: Monotonic clock.
        """
        if self._is_strained(conditions):
            self._calm_since_ns = None
            since = self._stepped_down_ns
            if self.index == 0 or (since is not None and now_ns - since < self._dwell_ns):
                return False
            self.index -= 1
            # The lower rung gets its minute too before it is judged calm.
            self._calm_since_ns = self._stepped_down_ns = now_ns
            return True
        if not self._is_calm(conditions):
            self._calm_since_ns = None
            return False
        if self._calm_since_ns is None:
            self._calm_since_ns = now_ns
        if self.index < self._top and now_ns - self._calm_since_ns >= self._calm_ns:
            self.index += 1
            self._calm_since_ns = now_ns
            return True
        return False

    def refuse(self, path: Path) -> bool:
        """A model could not be taken: its rungs go for good, and the nearest cheaper one is stood on.

        Returns:
            False when none would be left, and nothing was done.
        """
        kept = [rung for rung in self._rungs if rung.path != path]
        if not kept:
            return False
        self.index = max(sum(rung.path != path for rung in self._rungs[: self.index + 1]) - 1, 0)
        self._top = max(sum(rung.path != path for rung in self._rungs[: self._top + 1]) - 1, 0)
        self._rungs = kept
        return True

    def _is_strained(self, c: Conditions) -> bool:
        is_hot = c.temperature_c is not None and c.temperature_c >= HOT_C
        is_low = c.battery_milli is not None and 0 <= c.battery_milli < LOW_BATTERY_MILLI
        is_late = c.latency_ms is not None and c.latency_ms > self._interval_ms
        return is_hot or is_late or (is_low and self.index > 0)

    def _is_calm(self, c: Conditions) -> bool:
        """Whether the next rung up would do: cool, charged, and its latency fits."""
        if self.index >= self._top:
            return True
        is_cool = c.temperature_c is None or c.temperature_c <= COOL_C
        is_charged = c.battery_milli is None or not 0 <= c.battery_milli < LOW_BATTERY_MILLI
        fits = self._rungs[self.index + 1].latency_ms <= BUDGET_SHARE * self._interval_ms
        return is_cool and is_charged and fits
