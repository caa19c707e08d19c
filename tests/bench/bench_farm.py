"""What one drone finds of rendered farms: `python -m tests.bench.bench_farm --model zoo:small-320 --seeds 1-24 --json`.

Each farm is flown over once in lanes, alone, 10 frames a second at 12 m/s; a finding is a track with the bundle's
`min_hits`. It is of the fault within 1.2 m, or false. Farms are drawn by the code that drew a part of the training:
this measures the chain from frame to position, not the eyesight.
"""

import argparse
import json
import math
import sys
import time

from swarmd_models.bundle import DEFAULT_MODEL, load_bundle
from swarmd_models.eye import Eye
from swarmd_models.types import TrackEvent
from swarmd_sim.world.source import open_source

_NEAR_M = 1.2


def fly(model: str, seed: int) -> dict[str, int]:
    """Fly over one farm; how many faults it has, how many were found, and false findings at different places."""
    source = open_source(f"sim://farm?pace=max&fly=lanes&drone=1&of=1&seed={seed}")
    eye = Eye.open(load_bundle(model), intrinsics=source.intrinsics)
    newest: dict[int, TrackEvent] = {}
    frames = 0
    began = time.perf_counter()
    while (frame := source.read()) is not None:
        frames += 1
        for event in eye.see(frame).events:
            if event.position is not None:
                newest[event.track_id] = event
    for event in eye.finish():
        if event.position is not None:
            newest[event.track_id] = event
    wall_ms = 1e3 * (time.perf_counter() - began)
    eye.close()
    farm = source.farm
    faults = [module for module in farm.modules if module.label]
    found: set[str] = set()
    false: list[tuple[float, float]] = []
    for event in newest.values():
        assert event.position is not None
        east, north = farm.to_plane(event.position.latitude_deg, event.position.longitude_deg)
        near = min(faults, key=lambda f: math.dist((f.east_m, f.north_m), (east, north)))
        if math.dist((near.east_m, near.north_m), (east, north)) <= _NEAR_M:
            found.add(near.asset)
        elif all(math.dist(place, (east, north)) > _NEAR_M for place in false):
            false.append((east, north))
    return {"seed": seed, "faults": len(faults), "found": len(found), "false": len(false), "frames": frames,
            "ms_a_frame": round(wall_ms / frames)}  # fmt: skip


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--seeds", default="1-24", help="first-last")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    first, last = (int(part) for part in options.seeds.split("-"))
    farms = []
    for seed in range(first, last + 1):
        farms.append(fly(options.model, seed))
        if not options.json:
            print(farms[-1], flush=True)
    total = {key: sum(farm[key] for farm in farms) for key in ("faults", "found", "false")}
    total["worst_found"] = min(farm["found"] for farm in farms)
    print(json.dumps({"model": options.model, "farms": len(farms)} | total))
    return 0


if __name__ == "__main__":
    sys.exit(main())
