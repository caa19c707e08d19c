"""What four drones find in whole flights over plants of real crops: `python -m tests.bench.bench_flight --crops FILE`.

Each flight is over a farm of 960 modules, each of them a crop of the validation split; the four drones fly their lanes,
and what counts is what the swarm has in the end: a fault is found when a track ends up on its module, a module or a
piece of ground without a fault that has a track is one false object, however many drones and looks say so. The eye's
thresholds come from the bundle's curve; a frame is looked at once, and each operating point tracks what it would let
through. The second stage has all the time that it wants. With `--keep FOLDER` what was seen is kept, so that other
thresholds are judged in seconds.
"""

import argparse
import json
import math
import pickle
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np

from swarmd_models.bundle import DEFAULT_MODEL, Bundle, load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.evaluate import lenient, score_crops
from swarmd_models.eye import Eye, EyeOptions
from swarmd_models.geo.geolocate import Intrinsics
from swarmd_models.geo.sightings import SightingFilter
from swarmd_models.operating_point import alike_milli
from swarmd_models.synthetic.thermal import Crops
from swarmd_models.types import Detection, Frame, Pose, TrackEvent
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.dedup.config import DedupConfig
from swarmd_protocols.state.dedup.tiers import SURE_MILLI, Witness, certainty_milli, is_confirmed
from swarmd_protocols.state.observations import LocalDetection
from swarmd_sim.world.address import FarmUrl
from swarmd_sim.world.crop_farm import plant
from swarmd_sim.world.farm import Farm
from swarmd_sim.world.source import FarmSource

DRONES = 4
VALIDATION = 1
"""The split of the crops that nothing was set on."""
_NEAR_M = 0.15
"""Metres beside a module's rectangle at which a place is still on it: the error of a track's place."""
Accept: TypeAlias = Callable[[Detection], bool]
Look: TypeAlias = tuple[int, int, Pose | None, list[Detection]]
"""A frame's index, its time, the pose, and all that the model says of it."""


@dataclass(frozen=True, slots=True)
class Flight:
    """One flight as it was seen."""

    farm: Farm
    crops: dict[str, int]
    """By asset: which crop the module is."""
    looks: list[list[Look]]
    """By drone."""
    intrinsics: Intrinsics | None
    size: tuple[int, int]
    """Rows and columns of a frame."""


def fly(
    detector: Detector, crops: Crops, split: int, prevalence: float, seed: int, tables: int = 24, modules: int = 40
) -> Flight:
    """Four drones over one plant; `detector` says all it thinks (`evaluate.lenient`)."""
    looks: list[list[Look]] = []
    width, height = detector.bundle.input.width, detector.bundle.input.height
    for drone in range(1, DRONES + 1):
        address = FarmUrl(
            drone=drone, of=DRONES, seed=seed, faults=prevalence, tables=tables, modules=modules, fly="lanes",
            pace="max", noise=0.5, size=f"{width}x{height}",
        )  # fmt: skip
        farm, scenery = planted = plant(address.farm(), crops, split)
        source = FarmSource(address, planted)
        seen: list[Look] = []
        while (frame := source.read()) is not None:
            seen.append((frame.index, frame.captured_ns, frame.pose, detector.detect(frame.image)))
        looks.append(seen)
    return Flight(farm, scenery.crops, looks, source.intrinsics, (height, width))


def objects(flight: Flight, eye_of: Callable[[], Eye], accept: Accept) -> set[str]:
    """What the swarm has found in the end: assets, and pieces of ground where there is none.

    Args:
        flight: As it was seen.
        eye_of: Makes an eye whose tracker has seen nothing.
        accept: Whether a detection counts.
    """
    blank = np.zeros(flight.size, np.uint8)
    found = set[str]()
    for looks in flight.looks:
        eye = eye_of()
        places: dict[int, tuple[float, float]] = {}
        for index, captured_ns, pose, detections in looks:
            said = [one for one in detections if accept(one)]
            for event in eye.follow(Frame(index, captured_ns, blank, pose), said).events:
                if event.position is not None:
                    places[event.track_id] = (event.position.latitude_deg, event.position.longitude_deg)
        for latitude, longitude in places.values():
            east, north = flight.farm.to_plane(latitude, longitude)
            found.add(flight.farm.asset_at(east, north, max_m=_NEAR_M) or f"ground {east:.0f} {north:.0f}")
    return found


def tiers_of(
    flight: Flight,
    eye_of: Callable[[], Eye],
    sure: dict[str, float],
    wide: dict[str, float],
    alike: tuple[int, int] = (0, 0),
    verdicts: Mapping[int, int] | None = None,
) -> tuple[set[str], set[str], set[str]]:
    """What somebody is sure of; with it what drones are sure of together; with it what is a candidate.

    Args:
        flight: As it was seen.
        eye_of: Makes an eye whose tracker has seen nothing.
        sure: Thresholds by label from which the eye is sure.
        wide: Those from which it tells a candidate.
        alike: How alike looks are (`operating_point.alike_milli`); (0, 0): the setting.
        verdicts: Certainty of another judge by crop, 0 to 1000: one more witness of each candidate.
    """
    blank = np.zeros(flight.size, np.uint8)
    config, words = DedupConfig(confirm_observers=1), dict[str, list[Witness]]()
    for drone, looks in enumerate(flight.looks):
        eye = eye_of()
        tracks: dict[int, TrackEvent] = {}
        for index, captured_ns, pose, detections in looks:
            said = [
                replace(one, need=sure[one.label] if one.score < sure[one.label] - 1e-6 else 0.0)
                for one in detections
                if one.score >= min(wide[one.label], sure[one.label]) - 1e-6
            ]
            for event in eye.follow(Frame(index, captured_ns, blank, pose), said).events:
                if event.position is not None:
                    tracks[event.track_id] = event
        place = SightingFilter(LocalDetection, None, None, 0.95).place
        for event in tracks.values():
            assert event.position is not None
            east, north = flight.farm.to_plane(event.position.latitude_deg, event.position.longitude_deg)
            name = flight.farm.asset_at(east, north, max_m=_NEAR_M) or f"ground {east:.0f} {north:.0f}"
            shared = place(event, "", False)
            worth = certainty_milli(shared.score_milli, shared.need_milli, config.prior_milli)
            words.setdefault(name, []).append(Witness(NodeId(bytes([drone]) * 16), worth, b"", 0, 0, alike))
    alone = {name for name, said in words.items() if any(one.certainty_milli == SURE_MILLI for one in said)}
    for name, said in words.items():
        worth = 0 if verdicts is None else verdicts.get(flight.crops.get(name, -1), 0)
        said.append(Witness(NodeId(bytes(16)), min(worth, SURE_MILLI - 1), b"judge"))
    return alone, {name for name, said in words.items() if is_confirmed(said, config, 1)}, set(words)


@dataclass(frozen=True, slots=True)
class Figures:
    """Of some flights at one operating point."""

    recall: float
    """Of distinct faults."""
    false_per_1000: float
    """Healthy modules and pieces of ground with an object, over healthy modules."""
    false_crops: int
    """Distinct crops behind the false objects: few crops show one in a thousand only roughly."""
    recall_by_class: dict[str, float]


def judge(flights: Sequence[Flight], found: Sequence[set[str]]) -> Figures:
    """Hold what was found against the truth."""
    wanted, hit, false_crops = Counter[str](), Counter[str](), set[object]()
    healthy = false = 0
    for flight, objects_found in zip(flights, found, strict=True):
        truth = {module.asset: module.label for module in flight.farm.modules}
        wanted.update(label for label in truth.values() if label)
        healthy += sum(not label for label in truth.values())
        for asset in objects_found:
            if truth.get(asset):
                hit[truth[asset]] += 1
            else:
                false += 1
                false_crops.add(flight.crops.get(asset, asset))
    return Figures(
        sum(hit.values()) / max(sum(wanted.values()), 1),
        1000.0 * false / max(healthy, 1),
        len(false_crops),
        {label: round(hit[label] / count, 3) for label, count in sorted(wanted.items())},
    )


def at_thresholds(thresholds: dict[str, float]) -> Accept:
    """Lets through what reaches its label's threshold."""
    return lambda one: one.score >= thresholds[one.label] - 1e-6


def agreement(flights: Sequence[Flight], eye_of: Callable[[], Eye]) -> float:
    """How alike looks at one module are: the share of the logits' variance that lies between modules, 0 to 1.

    Over tracks of everything that the model says at all. At 1 a second look tells nothing that the first has not.

    Source:
        Intraclass correlation of a one-way random effects model, ICC(1) (Shrout and Fleiss, 1979).
    """
    groups: list[list[float]] = []
    for flight in flights:
        blank = np.zeros(flight.size, np.uint8)
        for looks in flight.looks:
            eye = eye_of()
            tracks: dict[int, list[float]] = {}
            for index, captured_ns, pose, detections in looks:
                scores = {one.box: one.score for one in detections}
                for event in eye.follow(Frame(index, captured_ns, blank, pose), detections).events:
                    if event.kind != "end" and event.box in scores:
                        score = min(max(scores[event.box], 1e-6), 1.0 - 1e-6)
                        tracks.setdefault(event.track_id, []).append(math.log(score / (1.0 - score)))
            groups += [said for said in tracks.values() if len(said) > 1]
    count = sum(map(len, groups))
    mean = sum(map(sum, groups)) / count
    between = sum(len(one) * (np.mean(one) - mean) ** 2 for one in groups) / (len(groups) - 1)
    within = sum(float(np.var(one)) * len(one) for one in groups) / (count - len(groups))
    size = (count - sum(len(one) ** 2 for one in groups) / count) / (len(groups) - 1)
    return float((between - within) / (between + (size - 1) * within))


def verdicts_of(bundle: Bundle, crops: Crops) -> dict[int, int]:
    """What another model says of each crop of the validation split, on a picture of its own: certainty, 0 to 1000."""
    assert bundle.curve is not None
    need = round(1000 * max(bundle.curve.at(1.0).values()))
    judged = np.flatnonzero(crops.split == VALIDATION)
    scores = score_crops(bundle, crops, judged).max(axis=1)
    prior = DedupConfig().prior_milli
    return {
        int(crop): certainty_milli(round(1000 * float(score)), need, prior)
        for crop, score in zip(judged, scores, strict=True)
    }


def points_of(bundle: Bundle) -> dict[str, dict[str, float]]:
    """Thresholds by label at the bundle's own operating point and along its curve."""
    points = {"own": {label: bundle.threshold_of(label) for label in bundle.labels}}
    for rate in bundle.curve.rates if bundle.curve is not None else ():
        assert bundle.curve is not None
        points[f"{rate:g}"] = bundle.curve.at(rate)
    return points


def kept(path: Path, make: Callable[[], Flight]) -> Flight:
    """A flight that was kept, or a new one that is kept now."""
    if path.exists():
        return Flight(*pickle.loads(path.read_bytes()))
    flight = make()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps((flight.farm, flight.crops, flight.looks, flight.intrinsics, flight.size)))
    return flight


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--crops", required=True, type=Path, metavar="FILE.npz")
    parser.add_argument("--prevalence", type=float, default=0.02)
    parser.add_argument("--flights", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1, help="of the first flight")
    parser.add_argument("--candidates", type=float, metavar="R", help="tell candidates at this rate beside each point")
    parser.add_argument("--judge", metavar="MODEL", help="another judge of the candidates, sure at 1 in 1,000")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="flights that lie there are not flown again")
    options = parser.parse_args(arguments)
    bundle, crops = load_bundle(options.model), Crops.load(options.crops)
    detector = Detector.open(lenient(bundle), DetectorOptions())
    flights = []
    for seed in range(options.seed, options.seed + options.flights):
        take_off = partial(fly, detector, crops, VALIDATION, options.prevalence, seed)
        path = (options.keep or Path()) / f"{bundle.name}-{options.prevalence:g}-{seed}.pickle"
        flights.append(kept(path, take_off) if options.keep else take_off())
        print(f"flight {seed}", file=sys.stderr, flush=True)

    def eye() -> Eye:
        return Eye(detector, EyeOptions(), flights[0].intrinsics)

    points = {}
    for name, thresholds in points_of(bundle).items():
        accept = at_thresholds(thresholds)
        points[name] = asdict(judge(flights, [objects(flight, eye, accept) for flight in flights]))
    tiers = {}
    verdicts = None if options.judge is None else verdicts_of(load_bundle(options.judge), crops)
    if options.candidates:
        assert bundle.curve is not None
        wide = bundle.curve.at(options.candidates)
        for name, thresholds in points_of(bundle).items():
            found = [tiers_of(flight, eye, thresholds, wide, alike_milli(bundle.curve), verdicts) for flight in flights]
            tiers[name] = {
                tier: asdict(judge(flights, [one[at] for one in found])) | {"recall_by_class": None}
                for at, tier in enumerate(("sure", "sure_together", "with_candidates"))
            }
    modules = [module for flight in flights for module in flight.farm.modules]
    figures = {
        "model": bundle.name,
        "flights": len(flights),
        "modules": len(modules),
        "faults": sum(bool(module.label) for module in modules),
        "looks_alike": round(agreement(flights, eye), 3),
        "points": points,
        "tiers": tiers,
    }
    print(json.dumps(figures))
    detector.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
