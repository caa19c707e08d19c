"""Measures how alike looks at one module are, and writes it into a bundle's `[curve.alike]`.

`python -m swarmd_recipes.alike --model BUNDLE.toml --crops modules_ir_visible.npz [--detections D.geojson --objects
O.geojson]`
`python -m swarmd_recipes.alike --model BUNDLE.toml --crops modules_ir_visible.npz --runtimes litert onnx openvino`

Of a module that is healthy, each look gives a logit; what two looks have in common beyond that they are of healthy
modules is what must not be counted twice. Crops held back are drawn as two drones see them on four days, twice each:
moments apart (`drone`), by another camera from elsewhere (`drones`), in other light (`day`). A day is drawn, not
photographed: the crops show each module once.

Two runtimes of one bundle are no two witnesses: what they say of one look is more alike than two looks of one drone
moments apart. `--runtimes` measures it and writes nothing: the evidence knows a bundle's digest and no runtime.

A fleet that has flown for days knows better: `swarmd detections --geojson` and `swarmd objects --geojson` of those
days give the looks at what operators have rejected. Only what was told is in them, which makes looks seem less alike
than they are, so they raise what was drawn and never lower it.
"""

import argparse
import hashlib
import json
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from swarmd_models.bundle import Bundle, load_bundle, resolve
from swarmd_models.errors import ArtefactError, ModelError
from swarmd_models.evaluate import ModuleScorer, nominal_pixel_m
from swarmd_models.operating_point import Alike
from swarmd_models.synthetic.compose import Sensor
from swarmd_models.synthetic.scenes import SceneOptions
from swarmd_models.synthetic.staging import Staging, stage_crops
from swarmd_models.synthetic.thermal import HELD_BACK, NORMAL_LABEL, Crops

SEED = 18
"""Of what is drawn."""
_DRAWS = 400
"""Times that modules are drawn anew for the interval."""
_UPPER = 97.5
"""Per cent of those that the figure which is kept is not below."""
_PAIRS_MIN = 30
"""Fewer pairs say nothing: looks are then taken for as alike as those of the kind before."""
_LOGIT_MAX = 13.8
"""Of a score of a millionth."""
_DAY_S = 86_400.0
"""Seconds; looks on both sides of a midnight are no more alike for it, which raises the figure."""
_DAYS = 4
"""That are drawn."""
_SESSION_MIN = 10
"""Looks of one drone on one day from which their mean and spread are their own."""
_FRAME_M = 1.2
"""Metres from one frame to the next: 12 m/s, 10 a second."""
_DAY_CONTRAST = 0.25
"""Standard deviation of the logarithm of a day's contrast: from 600 to 1,000 W/m2 it changes by 0.5."""


@dataclass(frozen=True, slots=True)
class Look:
    """One look at one healthy thing."""

    thing: str
    drone: str
    day: str
    logit: float


def estimate(looks: Iterable[Look], seed: int = SEED, data: str = "") -> Alike:
    """Correlations of looks, the upper ends of their intervals of 95 %.

    Args:
        looks: At things that are all healthy.
        seed: Of the drawing that gives the intervals.
        data: Names what was looked at.

    Raises:
        ArtefactError: There are not enough pairs of looks by two drones on a day.

    Source:
        Intraclass correlation over pairs (Fisher, 1925, section 38); things are drawn with replacement (Efron, 1979).
    """
    things: dict[str, list[Look]] = {}
    for look in _levelled(list(looks)):
        things.setdefault(look.thing, []).append(look)
    rng = np.random.default_rng(seed)
    upper = {}
    counts = {}
    for kind in ("drone", "drones", "day"):
        pairs = [_pairs(said, kind) for _, said in sorted(things.items())]
        filled = [one for one in pairs if len(one)]
        counts[kind] = sum(map(len, filled))
        upper[kind] = _upper(filled, rng) if counts[kind] >= _PAIRS_MIN else math.nan
    if math.isnan(upper["drones"]):
        raise ArtefactError(f"{counts['drones']} pairs of looks by two drones on a day; {_PAIRS_MIN} are needed")
    drones = upper["drones"]
    drone = drones if math.isnan(upper["drone"]) else max(drones, upper["drone"])
    day = drones if math.isnan(upper["day"]) else min(drones, upper["day"])
    return Alike(drone, drones, day, sum(counts.values()), seed, data)


def _levelled(looks: list[Look]) -> list[Look]:
    """Without what a drone's day does to all things alike: poorer light is no disagreement about one of them."""
    sessions: dict[tuple[str, str], list[float]] = {}
    for look in looks:
        sessions.setdefault((look.drone, look.day), []).append(look.logit)
    every = [look.logit for look in looks] or [0.0]
    own = {key: said if len(said) >= _SESSION_MIN else every for key, said in sessions.items()}
    levels = {key: (float(np.mean(said)), max(float(np.std(said)), 1e-9)) for key, said in own.items()}
    found = []
    for look in looks:
        mean, spread = levels[look.drone, look.day]
        found.append(replace(look, logit=(look.logit - mean) / spread))
    return found


def _pairs(said: Sequence[Look], kind: str) -> npt.NDArray[np.float64]:
    """Pairs of logits of one thing, shape (pairs, 2)."""
    found = []
    for a, b in combinations(said, 2):
        is_day, is_drone = a.day == b.day, a.drone == b.drone
        if kind == ("day" if not is_day else "drone" if is_drone else "drones"):
            found.append((a.logit, b.logit))
    return np.array(found, np.float64).reshape(-1, 2)


def _upper(things: Sequence[npt.NDArray[np.float64]], rng: np.random.Generator) -> float:
    # Sums of each thing, so that a drawing of things is a sum of rows: pairs, sum, sum of squares, sum of products.
    rows = np.array([(len(p), p.sum() / 2, (p**2).sum() / 2, (p[:, 0] * p[:, 1]).sum()) for p in things])
    drawn = rng.multinomial(len(rows), np.full(len(rows), 1 / len(rows)), size=_DRAWS) @ rows
    count, total, squares, products = drawn.T
    mean = total / count
    spread = squares / count - mean**2
    with np.errstate(divide="ignore", invalid="ignore"):
        alike = np.where(spread > 1e-12, (products / count - mean**2) / spread, 1.0)
    return round(float(np.clip(np.percentile(alike, _UPPER), 0.0, 1.0)), 4)


def stagings(seed: int) -> Iterator[tuple[str, str, Staging]]:
    """(drone, day, how it looks): two drones on `_DAYS` days, two looks each."""
    rng = np.random.default_rng([seed, 1])
    for day in range(_DAYS):
        contrast = float(np.exp(rng.normal(0, _DAY_CONTRAST)))
        for drone in range(2):
            yaw, height = float(rng.normal(0, 0.03)), float(np.exp(rng.normal(0, 0.04)))
            ahead = float(rng.uniform(-1.2, -0.4))
            sensor = Sensor(
                blur_px=float(rng.uniform(0.3, 0.7)),
                noise_levels=float(rng.uniform(0.5, 1.2)),
                gain=float(np.exp(rng.normal(0, 0.04))),
                offset_levels=float(rng.normal(0, 4.0)),
                vignette_levels=float(rng.uniform(1.0, 3.0)),
            )
            for look in range(2):
                staging = Staging(sensor, (day, drone, look), ahead + look * _FRAME_M, yaw, height, contrast)
                yield f"drone {drone}", f"day {day}", staging


def looks_at(bundle: Bundle, crops: Crops, judged: npt.NDArray[np.int64], seed: int = SEED) -> list[Look]:
    """Looks at crops that are healthy, as drones see them.

    Args:
        bundle: Of the judge.
        crops: With their healthy neighbours.
        judged: Which of them.
        seed: Of neighbours, noise, drones and days.
    """
    scorer = ModuleScorer(bundle)
    options = SceneOptions(width=bundle.input.width, height=bundle.input.height, pixel_m=nominal_pixel_m(bundle))
    found = []
    for drone, day, staging in stagings(seed):
        for frame in stage_crops(crops, judged, options, seed, staging):
            scores = scorer.scores(frame.image, frame.boxes).max(axis=1)
            found += [Look(str(crop), drone, day, _logit(s)) for crop, s in zip(frame.crops, scores, strict=True)]
    scorer.close()
    return found


def of_runtimes(
    bundle: Bundle, crops: Crops, judged: npt.NDArray[np.int64], runtimes: Sequence[str], seed: int = SEED
) -> dict[tuple[str, str], float]:
    """How alike what two runtimes say of one look is: the same pixels, moments and drone.

    Args:
        bundle: Of the judge.
        crops: With their healthy neighbours.
        judged: Which of them.
        runtimes: At least two, as `eye.backends` names them; the bundle has a file for each.
        seed: Of what is drawn.

    Returns:
        Of each pair, the correlation of the logits, the upper end of its interval of 95 %.
    """
    options = SceneOptions(width=bundle.input.width, height=bundle.input.height, pixel_m=nominal_pixel_m(bundle))
    scorers = {kind: ModuleScorer(bundle, (kind,)) for kind in runtimes}
    said: dict[str, list[Look]] = {kind: [] for kind in runtimes}
    for drone, day, staging in (each for at, each in enumerate(stagings(seed)) if at % 2 == 0 and at < 4):
        for frame in stage_crops(crops, judged, options, seed, staging):
            for kind, scorer in scorers.items():
                scores = scorer.scores(frame.image, frame.boxes).max(axis=1)
                for crop, score in zip(frame.crops, scores, strict=True):
                    said[kind].append(Look(f"{crop} {drone}", kind, day, _logit(score)))
    for scorer in scorers.values():
        scorer.close()
    pairs = combinations(runtimes, 2)
    return {(one, other): estimate([*said[one], *said[other]], seed).drones for one, other in pairs}


def looks_of_reviews(detections: Sequence[Mapping[str, Any]], objects: Sequence[Mapping[str, Any]]) -> list[Look]:
    """Looks at what operators have rejected.

    Args:
        detections: Features of `swarmd detections --geojson`, of any number of days.
        objects: Features of `swarmd objects --geojson`.

    Raises:
        ArtefactError: They are not what those commands print.
    """
    try:
        rejected = {str(one["id"]) for one in objects if one["properties"]["review"] == "rejected"}
        return [
            Look(
                str(said["object"]), str(said["node"]), str(math.floor(float(said["last_seen_s"]) / _DAY_S)),
                _logit(float(said["score"])),
            )
            for said in (one["properties"] for one in detections)
            if str(said["object"]) in rejected
        ]  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        raise ArtefactError(f"no features of `swarmd detections --geojson` and `objects`: {error!r}") from error


def higher(drawn: Alike, told: Alike) -> Alike:
    """What was drawn, raised by what a fleet was told."""
    drones = max(drawn.drones, told.drones)
    day = min(drones, max(drawn.day, told.day))
    data = hashlib.sha256(f"{drawn.data} {told.data}".encode()).hexdigest()
    return Alike(max(drawn.drone, told.drone, drones), drones, day, drawn.pairs + told.pairs, drawn.seed, data)


def write(path: Path, alike: Alike) -> None:
    """Put `[curve.alike]` behind a bundle's curve; raises `ArtefactError`."""
    table = (
        f"[curve.alike]\ndrone = {alike.drone}\ndrones = {alike.drones}\nday = {alike.day}\n"
        f'pairs = {alike.pairs}\nseed = {alike.seed}\ndata = "{alike.data}"\n'
    )
    try:
        text = path.read_text(encoding="utf-8")
        text = re.sub(r"^\[curve\.alike\]\n(?:(?!\[).*\n)*", "", text, flags=re.MULTILINE)
        found = re.search(r"^\[curve\.thresholds\]\n(?:(?!\[).+\n)*", text, flags=re.MULTILINE)
        if found is None:
            raise ArtefactError(f"{path} has no [curve.thresholds]; python -m swarmd_recipes.curve measures them")
        rest = text[found.end() :].lstrip("\n")
        path.write_text(f"{text[: found.end()]}{table}\n{rest}", encoding="utf-8")
    except OSError as error:
        raise ArtefactError(f"{path} cannot be written: {error.strerror}") from error


def _logit(score: float) -> float:
    score = min(max(float(score), 1e-9), 1.0 - 1e-9)
    return min(max(math.log(score / (1.0 - score)), -_LOGIT_MAX), _LOGIT_MAX)


def _features(path: Path) -> tuple[list[Mapping[str, Any]], str]:
    try:
        data = path.read_bytes()
        return list(json.loads(data)["features"]), hashlib.sha256(data).hexdigest()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtefactError(f"{path} is no GeoJSON FeatureCollection: {error}") from error


def main(arguments: list[str] | None = None) -> int:
    """The command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="swarmd_recipes.alike", description="Writes a bundle's [curve.alike].")
    parser.add_argument("--model", required=True, help="the bundle's .toml, or zoo:NAME; it is changed")
    parser.add_argument("--crops", required=True, type=Path, metavar="FILE.npz", help="real module crops")
    parser.add_argument("--seed", type=int, default=SEED, help="of what is drawn")
    parser.add_argument("--detections", type=Path, metavar="FILE.geojson", help="of a fleet; with --objects")
    parser.add_argument("--objects", type=Path, metavar="FILE.geojson", help="of the same days, with their reviews")
    parser.add_argument("--runtimes", nargs="+", metavar="KIND", help="only say how alike these runtimes' answers are")
    options = parser.parse_args(arguments)
    if (options.detections is None) != (options.objects is None):
        parser.error("--detections and --objects belong together")
    try:
        path = resolve(options.model)
        bundle, crops = load_bundle(path), Crops.load(options.crops).with_part_held_back()
        healthy = np.intersect1d(crops.where(NORMAL_LABEL), np.flatnonzero(crops.split == HELD_BACK))
        if options.runtimes:
            for pair, one in of_runtimes(bundle, crops, healthy, options.runtimes, options.seed).items():
                sys.stdout.write(f"{bundle.name}: {' and '.join(pair)}: {one}\n")
            return 0
        data = hashlib.sha256(options.crops.read_bytes()).hexdigest()
        found = estimate(looks_at(bundle, crops, healthy, options.seed), options.seed, data)
        if options.detections is not None:
            (detections, first), (objects, second) = _features(options.detections), _features(options.objects)
            told = estimate(looks_of_reviews(detections, objects), options.seed)
            found = higher(found, replace(told, data=f"{first} {second}"))
        write(path, found)
        load_bundle(path)
    except ModelError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write(f"{path}: drone {found.drone}, drones {found.drones}, day {found.day} ({found.pairs} pairs)\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
