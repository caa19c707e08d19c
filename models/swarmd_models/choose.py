"""Which model of a zoo this device can fly: the largest that keeps up, and a smaller one while power or heat is short.

Rungs are models ordered by cost, the dearest last. `climb` picks the rung at the start from measured latency; `Ladder`
moves between rungs at work, down at once and up again only after a minute of calm, so that it does not swing.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from swarmd_models.bundle import ZOO, Bundle, load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.errors import ModelError

AUTO = "zoo:auto"
RUNS = 15
WARM_UP_RUNS = 3
BUDGET_SHARE = 0.6
"""Of the frame interval: the rest is for capture, tracking and the brain."""
HOT_C = 80.0
COOL_C = 70.0
LOW_BATTERY_MILLI = 200
CALM_NS = 60_000_000_000
MAX_MODELS = 32


@dataclass(frozen=True, slots=True)
class Rung:
    """One model with what it costs here."""

    path: Path
    name: str
    latency_ms: float


@dataclass(frozen=True, slots=True)
class Conditions:
    """What decides at work; None where it is not known."""

    temperature_c: float | None = None
    battery_milli: int | None = None
    latency_ms: float | None = None
    """Typical time from frame to detections lately."""


def measure_zoo(options: DetectorOptions, folder: Path = ZOO) -> tuple[list[Rung], list[str]]:
    """Load and time every bundle of a folder.

    Returns:
        Rungs, the cheapest first, and a sentence for each bundle that cannot be used here.
    """
    rungs, problems = [], []
    for path in sorted(folder.glob("*.toml"))[:MAX_MODELS]:
        try:
            bundle = load_bundle(path)
            rungs.append(Rung(path, bundle.name, latency_ms(bundle, options)))
        except ModelError as error:
            problems.append(f"{path.name} cannot be used here: {error}")
    return sorted(rungs, key=lambda rung: rung.latency_ms), problems


def latency_ms(bundle: Bundle, options: DetectorOptions) -> float:
    """Median time of a model on this device; raises `ModelError`."""
    detector = Detector.open(bundle, options)
    try:
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


def climb(rungs: Sequence[Rung], frame_interval_ms: float) -> int:
    """Index of the dearest rung that fits into its share of the frame interval; the cheapest when none does.

    >>> climb([Rung(Path("a"), "a", 5.0), Rung(Path("b"), "b", 80.0)], 100.0)
    0
    """
    fitting = [index for index, rung in enumerate(rungs) if rung.latency_ms <= BUDGET_SHARE * frame_interval_ms]
    return max(fitting, default=0)


class Ladder:
    """Moves between rungs as conditions change."""

    def __init__(self, rungs: Sequence[Rung], start: int, frame_interval_ms: float) -> None:
        """Stand on rung `start`, which is also the highest that is ever taken."""
        self._rungs = list(rungs)
        self._top = start
        self._interval_ms = frame_interval_ms
        self._calm_since_ns: int | None = None
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
            if self.index == 0:
                return False
            self.index -= 1
            # The lower rung gets its minute too before it is judged calm.
            self._calm_since_ns = now_ns
            return True
        if not self._is_calm(conditions):
            self._calm_since_ns = None
            return False
        if self._calm_since_ns is None:
            self._calm_since_ns = now_ns
        if self.index < self._top and now_ns - self._calm_since_ns >= CALM_NS:
            self.index += 1
            self._calm_since_ns = now_ns
            return True
        return False

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


def temperature_c(folder: Path = Path("/sys/class/thermal")) -> float | None:
    """The hottest thermal zone of this device; None where there is none to read."""
    found = []
    for zone in sorted(folder.glob("thermal_zone*/temp"))[:64]:
        try:
            found.append(int(zone.read_text()) / 1000.0)
        except (OSError, ValueError):
            continue
    return max((t for t in found if -40.0 < t < 150.0), default=None)
