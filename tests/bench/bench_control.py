"""The control over many seeds: `python -m tests.bench.bench_control --crops FILE.npz [--seeds 40] [--models …]`.

Frames composed of healthy crops of the validation split alone, as `swarmd_models.evaluate --frames
'composed://?prevalence=0&seed=S&crops=FILE'` makes them: every detection that reaches the thresholds is false. One
seed has some 4,400 modules, so one false alarm more or less moves it by a quarter of the bar.

One JSON object: for each model and each operating point (`own`, and rates of the bundle's curve) the figure of every
seed and of all together, in 1,000 healthy modules, with two intervals of 95 %:

- `of_mean`: over seeds (Student). What other seeds would give with the same crops.
- `of_crops`: crops drawn anew with replacement, each with all its pictures (percentiles). What other crops of the same
  source would give; `by_crop` says how few are behind it.

Exit status 1 where the upper end of `of_mean` is above `--bar` at a bundle's own thresholds. It takes seven seconds of
one core a seed: `--kept FILE` keeps every seed, and a run that was stopped goes on.
"""

import argparse
import hashlib
import json
import math
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from swarmd_models.bundle import Bundle, at_rate, load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.evaluate import FrameSpec, frames_of, lenient, said_of

STUDENT_975 = {9: 2.262, 19: 2.093, 23: 2.069, 29: 2.045, 39: 2.023, 49: 2.010}
"""Quantile of Student's distribution by degrees of freedom; of the next fewer ones where one is not here: wider."""
DRAWS = 4_000
"""Times that crops are drawn anew; the ends move in the third digit."""


@dataclass(slots=True)
class Seed:
    """What one seed showed and what was said of it."""

    model: str
    """Digest of its name, bundle, thresholds and crops: what else a figure depends on."""
    seed: int
    frames: int
    modules: int = 0
    shown: Counter[int] = field(default_factory=Counter)
    """Pictures by crop."""
    false: dict[str, Counter[int]] = field(default_factory=dict)
    """False alarms by operating point and crop; -1: on no module."""

    @classmethod
    def read(cls, line: str) -> "Seed":
        """A line that `line` wrote."""
        row = json.loads(line)
        row["shown"] = Counter({int(crop): n for crop, n in row["shown"].items()})
        row["false"] = {point: Counter({int(crop): n for crop, n in by.items()}) for point, by in row["false"].items()}
        return cls(**row)

    def line(self) -> str:
        """What `read` reads."""
        return json.dumps({one.name: getattr(self, one.name) for one in fields(self)})

    def rate(self, point: str) -> float:
        """False alarms in 1,000 healthy modules."""
        return 1000.0 * self.false[point].total() / self.modules


def points_of(bundle: Bundle, rates: Sequence[float]) -> dict[str, list[float]]:
    """Thresholds by class of each operating point."""
    points = {"own": bundle} | {f"{rate:g}": at_rate(bundle, rate) for rate in rates}
    return {name: [one.threshold_of(label) for label in bundle.labels] for name, one in points.items()}


def run(bundle: Bundle, points: dict[str, list[float]], spec: FrameSpec, model: str) -> Seed:
    """Show one seed's frames."""
    detector = Detector.open(lenient(bundle), DetectorOptions())
    found = Seed(model, spec.seed, spec.frames, false={name: Counter() for name in points})
    for scene in frames_of(spec, bundle):
        found.modules += len(scene.boxes)
        found.shown.update(int(crop) for crop in scene.crop_index)
        for one in said_of(scene, detector.detect(scene.image)):
            for name, wanted in points.items():
                if one.counts and one.score >= wanted[one.class_index]:
                    found.false[name][int(scene.crop_index[one.module]) if one.module >= 0 else -1] += 1
    detector.close()
    return found


def interval_of_mean(values: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Of 95 %, for the mean of independent values."""
    freedom = max(one for one in STUDENT_975 if one <= len(values) - 1)
    half = STUDENT_975[freedom] * float(values.std(ddof=1)) / math.sqrt(len(values))
    return float(values.mean()) - half, float(values.mean()) + half


def interval_of_crops(false: Counter[int], shown: Counter[int]) -> tuple[float, float]:
    """Of 95 %: crops drawn anew, each with every picture of it and every false alarm on it."""
    crops = sorted(shown)
    pictures, alarms = (np.array([count[crop] for crop in crops], np.float64) for count in (shown, false))
    rng = np.random.default_rng(18)
    rates = []
    for _ in range(DRAWS):
        drawn = rng.integers(len(crops), size=len(crops))
        rates.append(1000.0 * (alarms[drawn].sum() + false[-1]) / pictures[drawn].sum())
    low, high = np.percentile(rates, [2.5, 97.5])
    return float(low), float(high)


def told(seeds: Sequence[Seed], point: str) -> dict[str, Any]:
    """The figures of one operating point."""
    values = np.array([one.rate(point) for one in seeds])
    false = sum((one.false[point] for one in seeds), Counter[int]())
    shown = sum((one.shown for one in seeds), Counter[int]())
    return {
        "mean": round(float(values.mean()), 3),
        "of_mean": [round(end, 3) for end in interval_of_mean(values)],
        "least": round(float(values.min()), 3),
        "worst": round(float(values.max()), 3),
        "of_crops": [round(end, 3) for end in interval_of_crops(false, shown)],
        "false": false.total(),
        "by_crop": dict(false.most_common()),
        "by_seed": [round(value, 3) for value in values],
    }


def read_kept(path: Path) -> dict[tuple[str, int, int], Seed]:
    """Seeds of runs that were stopped, by what they are of; the line at which one was stopped is ended and left out."""
    text = path.read_text()
    if text and not text.endswith("\n"):
        path.write_text(text[: text.rfind("\n") + 1])
        text = path.read_text()
    return {(one.model, one.seed, one.frames): one for one in map(Seed.read, text.splitlines())}


def main(arguments: list[str] | None = None) -> int:
    """Print the figures; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--crops", required=True, metavar="FILE.npz")
    parser.add_argument("--models", nargs="+", default=["zoo:small-320"])
    parser.add_argument("--seeds", type=int, default=40, help="how many, from 1 on; at least 10")
    parser.add_argument("--frames", type=int, default=200, help="of one seed")
    parser.add_argument("--rates", nargs="*", type=float, default=[0.3, 0.6, 1.0], help="points of the bundle's curve")
    parser.add_argument("--bar", type=float, default=1.0, help="false in 1,000 healthy modules")
    parser.add_argument("--kept", type=Path, help="a line for each seed; a run that was stopped goes on from it")
    options = parser.parse_args(arguments)
    if options.seeds < 10:
        parser.error("--seeds: at least 10, or the interval says nothing")
    kept = read_kept(options.kept) if options.kept and options.kept.exists() else {}
    crops = hashlib.sha256(Path(options.crops).read_bytes()).hexdigest()
    result: dict[str, Any] = {}
    is_missed = False
    for name in options.models:
        bundle = load_bundle(name)
        points = points_of(bundle, options.rates)
        of = hashlib.sha256(json.dumps([name, bundle.digest, points, crops]).encode()).hexdigest()
        seeds = []
        for seed in range(1, options.seeds + 1):
            found = kept.get((of, seed, options.frames))
            if found is None:
                found = run(bundle, points, FrameSpec(0.0, options.frames, seed, options.crops), of)
                if options.kept:
                    with options.kept.open("a") as file:
                        file.write(found.line() + "\n")
            seeds.append(found)
            sys.stderr.write(f"{name} seed {seed}: {found.rate('own'):.2f} of {found.modules}\n")
        modules = sum(one.modules for one in seeds)
        result[name] = {"modules": modules, **{point: told(seeds, point) for point in points}}
        is_missed |= result[name]["own"]["of_mean"][1] > options.bar
    sys.stdout.write(json.dumps(result, indent=1) + "\n")
    return int(is_missed)


if __name__ == "__main__":
    sys.exit(main())
