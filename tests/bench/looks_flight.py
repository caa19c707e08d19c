"""What looks are worth to deduplication: four drones over plants of real crops, places as poor as asked, real eyes.

    python -m tests.bench.looks_flight --crops ../shared/data/modules_ir/modules_ir_visible.npz [--flights 3]

Each drone flies the whole plant, at a height and speed of its own, with an error of its own for the whole flight (that
is how GPS errs) and a sensor of its own; what the second sees is upside down. A frame goes through the whole eye; a
track's place, moved by the drone's error, and its look go through deduplication, with looks and without. `pairs` holds
looks at one fault by two drones against looks at faults within five metres of each other: the average precision of the
order by likeness.
"""

import argparse
import json
import math
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from swarmd_models.bundle import DEFAULT_MODEL, load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from swarmd_models.eye import Eye, EyeOptions
from swarmd_models.synthetic.thermal import Crops
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.dedup.config import DedupConfig
from swarmd_protocols.state.dedup.looks import likeness_milli
from swarmd_protocols.state.dedup.own import OwnSightings
from swarmd_protocols.state.dedup.view import DedupView
from swarmd_protocols.state.observations import LocalDetection
from swarmd_sim.world.address import FarmUrl
from swarmd_sim.world.crop_farm import plant
from swarmd_sim.world.source import FarmSource
from tests.bench.feature_sharing import average_precision

DRONES, VALIDATION = 3, 1
HEIGHTS_M, SPEEDS_M_S = (25.0, 23.5, 26.5), (12.0, 10.7, 11.3)
"""Of each drone, so that no two see a module from the same place."""
MODEL = b"model--1"
_NEAR_M = 0.15


def fly(detector: Detector, crops: Crops, seed: int, faults: float, tables: int, modules: int) -> list[list[Any]]:
    """By drone and frame: (time, events with the asset that each truly shows)."""
    flights = []
    for drone in range(1, DRONES + 1):
        address = FarmUrl(
            seed=seed, faults=faults, tables=tables, modules=modules, fly="lanes", pace="max", noise=0.5,
            height=HEIGHTS_M[drone - 1], speed=SPEEDS_M_S[drone - 1],
        )  # fmt: skip
        farm, _ = planted = plant(address.farm(), crops, VALIDATION)
        source = FarmSource(address, planted)
        eye = Eye(detector, EyeOptions(looks=True), source.intrinsics)
        label_of = {module.asset: module.label for module in farm.modules}
        rng, frames = np.random.default_rng([seed, drone]), []
        while (frame := source.read()) is not None:
            noisy = frame.image * rng.uniform(0.9, 1.1) + rng.normal(0, 4.0, frame.image.shape)
            image = np.clip(noisy, 0, 255).astype(np.uint8)
            events = eye.see(type(frame)(frame.index, frame.captured_ns, image, frame.pose)).events
            told = []
            for event in events:
                if event.position is None:
                    continue
                east, north = farm.to_plane(event.position.latitude_deg, event.position.longitude_deg)
                asset = farm.asset_at(east, north, max_m=_NEAR_M) or ""
                if label_of.get(asset):
                    told.append((event, east, north, asset))
            frames.append((frame.captured_ns, told))
        flights.append(frames)
    return flights


def turned(features: bytes, upside_down: bool) -> bytes:
    """What a look would be upside down: the odd numbers change their sign."""
    if not features or not upside_down:
        return features
    return features[:9] + bytes((256 - one) % 256 for one in features[9:])


def decide(flights: list[list[Any]], error_m: float, looks: bool, seed: int) -> dict[str, int]:
    """Objects, duplicates and lost faults."""
    config = DedupConfig()
    view, rng, truth, dot = DedupView(config), np.random.default_rng(seed), {}, 0
    for drone, frames in enumerate(flights):
        node = NodeId(bytes([drone + 1]) * 16)
        own = OwnSightings(node, config, view)
        bias = rng.normal(0, error_m, 2)
        square = round((error_m**2 + 0.1**2) * 10_000)
        for captured_ns, told in frames:
            seen = [
                LocalDetection(
                    "end" if event.kind == "end" else "update", event.track_id, "fault", round(event.score * 1000),
                    round((east + bias[0]) * 100), round((north + bias[1]) * 100), (square, 0, square), "", False,
                    captured_ns + drone * 3_600 * 10**9, MODEL, b"",
                    turned(event.features, drone % 2 == 1) if looks else b"",
                )
                for event, east, north, _ in told
            ]  # fmt: skip
            changed = own.observe(seen, 1, lambda ns: (ns // 1_000_000) << 16)
            for event, _, _, asset in told:
                key = own.key_of(event.track_id)
                if key is not None:
                    truth.setdefault((node, key), Counter())[asset] += 1
            rows, joins = own.to_say(changed, frozenset())
            for row in rows:
                dot += 1
                view.put(node, row, (1, dot))
            view.settle()
            for join in joins:
                key = next(key for key, register in own.registers.items() if register.joined is join)
                truth.setdefault((join.origin, join.key), Counter()).update(truth.get((node, key), Counter()))
    owners: Counter[str] = Counter()
    for leader in view.leaders():
        votes: Counter[str] = Counter()
        for member in leader.members or ():
            votes.update(truth.get((member.origin, member.row.key), Counter()))
        if votes:
            owners[votes.most_common(1)[0][0]] += 1
    faults = len({asset for frames in flights for _, told in frames for *_, asset in told})
    return {
        "faults": faults,
        "objects": len(view.leaders()),
        "duplicates": sum(count - 1 for count in owners.values()),
        "lost": faults - len(owners),
    }


def pairs(flights: list[list[Any]]) -> tuple[list[int], list[bool]]:
    """Likeness of the last looks of two drones at things within five metres, and whether they are of one thing."""
    last = []
    for drone, frames in enumerate(flights):
        seen: dict[str, tuple[bytes, float, float]] = {}
        for _, told in frames:
            for event, east, north, asset in told:
                if event.features:
                    seen[asset] = (turned(event.features, drone % 2 == 1), east, north)
        last.append(seen)
    alike, same = [], []
    for one in range(len(last)):
        for other in range(one):
            for asset, (a, east, north) in last[one].items():
                for twin, (b, x, y) in last[other].items():
                    found = likeness_milli(MODEL + a, MODEL + b)
                    if found is not None and math.hypot(x - east, y - north) <= 5.0:
                        alike.append(found)
                        same.append(asset == twin)
    return alike, same


def main() -> int:
    """Print a JSON row for the pairs and one for each error of places."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--crops", required=True, type=Path, metavar="FILE.npz")
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--flights", type=int, default=2)
    parser.add_argument("--faults", type=float, default=0.25)
    parser.add_argument("--tables", type=int, default=24)
    parser.add_argument("--modules", type=int, default=40)
    options = parser.parse_args()
    crops = Crops.load(options.crops)
    detector = Detector.open(load_bundle(options.model), DetectorOptions())
    flown = []
    for seed in range(1, options.flights + 1):
        flown.append(fly(detector, crops, seed, options.faults, options.tables, options.modules))
        print(f"flight {seed}", file=sys.stderr, flush=True)
    detector.close()
    alike, same = [], []
    for flights in flown:
        found = pairs(flights)
        alike += found[0]
        same += found[1]
    scores, is_same = np.array(alike, np.float64), np.array(same, np.float64)
    row = {"pairs": len(alike), "of_one": int(is_same.sum()), "ap": round(average_precision(scores, is_same), 4)}
    for name, part in (("one", scores[is_same > 0]), ("two", scores[is_same == 0])):
        if len(part):
            row[f"under_400_{name}"] = round(float((part < 400).mean()), 3)
    print(json.dumps(row))
    for error_m in (0.1, 0.3, 0.7, 1.5, 3.0):
        for looks in (False, True):
            total: Counter[str] = Counter()
            for seed, flights in enumerate(flown):
                total.update(decide(flights, error_m, looks, seed))
            print(json.dumps({"error_m": error_m, "looks": looks, **total}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
