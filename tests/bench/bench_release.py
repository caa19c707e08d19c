"""`make bench-release`: every bar of the releases with the figure of this run beside it.

Deltas on a pair of `.tflite` files (`--pairs DIR` for really trained ones, made by `release_pairs.py`; else the zoo's
model and a fine-tune-like copy), swarm speed in simulation, and with `--netns` (root) through real daemons.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def delta_rows(pairs: Path | None) -> list[dict]:
    from swarmd.release.bench import measure
    from tests.support.deltas import ZOO, head_only, tuned

    if pairs is None:
        old = ZOO.read_bytes()
        files = {"gentle": (old, tuned(old, 0.03)), "head": (old, tuned(old, 0.05, only=head_only))}
    else:
        base = (pairs / "base.tflite").read_bytes()
        files = {name: (base, (pairs / f"{name}.tflite").read_bytes()) for name in ("gentle", "head")}
    rows = []
    for name, (old, new) in files.items():
        found = measure(old, new)
        best = found["coders"][found["best_ours"]]
        ceiling = 0.30 if name == "gentle" else 0.03
        rows += [
            row(f"{name}: share of the file", best["ratio"], ceiling, found["best_ours"]),
            row(f"{name}: over the adaptive floor", found["over_floor"], 0.02),
            row(f"{name}: against the best generic tool", found["ratio_to_generic"], 0.4, found["best_generic"]),
            row(f"{name}: decode CPU s", best["decode_s"], 0.2),
            row(f"{name}: decode MB", decode_mb(found), 16),
        ]
    return rows


def decode_mb(found: dict) -> float | None:
    """The most that any codec takes, whichever is the smallest today."""
    sizes = [size for size in found["decode_memory_bytes"].values() if size is not None]
    return round(max(sizes) / 1e6, 1) if sizes else None


def air_rows() -> list[dict]:
    """One file to eight nodes on one simulated radio channel: bytes on the air over the file, cast and unicast."""
    import random

    from tests.support.release_air import AirWorld

    data, rows = random.Random(1).randbytes(1 << 20), []
    for loss in (0, 5, 10):
        found = {}
        for cast in (True, False):
            world = AirWorld(9, cast=cast, loss_ppm=loss * 10_000)
            seconds = world.spread(data)
            found[cast] = (world.cast_bytes + world.unicast_bytes) / len(data)
            note = f"{seconds:.1f} s, {world.radio.airtime_ns / 1e9:.1f} s of air"
            what = f"shared channel, 8 nodes, {loss} % loss, {'cast' if cast else 'unicast'}: bytes over the file"
            rows.append(row(what, round(found[cast], 2), 3.0 if cast else 9.5, note))
    return rows


def swarm_rows(large: bool) -> list[dict]:
    from tests.support.release_swarm import SwarmWorld

    sizes = [(20, 64, 8, range(5), 1.15), (20, 160, 8, range(3), 1.10)]
    sizes += [(200, 64, 16, range(1, 6), 1.20), (1_000, 64, 16, range(1, 2), 1.30)] if large else []
    rows = []
    for nodes, chunks, degree, seeds, bar in sizes:
        last = statistics.median(SwarmWorld(nodes, chunks, degree, seed).run().last for seed in seeds)
        rows.append(row(f"simulation, {nodes} nodes, {chunks} chunks: last over the floor", round(last, 3), bar))
    return rows


def netns_rows() -> list[dict]:
    rows = []
    for loss, bar, runs in ((0, 1.30, 5), (5, 1.5, 1), (10, 1.8, 1)):
        command = [sys.executable, str(ROOT / "tests/bench/release_netns.py"), "--loss", str(loss), "--runs", str(runs)]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
        found = [json.loads(line) for line in lines]
        last = statistics.median(one["last"] or 99 for one in found)
        rows.append(
            row(f"8 daemons at 8 Mbit/s, {loss} % loss: last over the floor", last, bar, f"load {found[0]['load']}")
        )
        rows.append(row(f"  seeder, {loss} % loss: times the file", max(one["seeder"] for one in found), 1.15))
        rows.append(row("  duplicates", max(one["duplicates"] for one in found), 0.02))
        rows.append(row("  false suspicions", sum(one["suspicions"] for one in found), 0))
    return rows


def row(what: str, value: float | None, bar: float, note: str = "") -> dict:
    return {"what": what, "value": value, "bar": bar, "met": value is not None and value <= bar, "note": note}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=Path)
    parser.add_argument("--large", action="store_true", help="200 and 1,000 nodes too (minutes)")
    parser.add_argument("--netns", action="store_true", help="real daemons in namespaces (root, a minute or two)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = delta_rows(options.pairs) + swarm_rows(options.large) + air_rows()
    rows += netns_rows() if options.netns else []
    if options.json:
        print(json.dumps(rows))
    else:
        for one in rows:
            mark = "ok  " if one["met"] else "OVER"
            print(f"{mark}  {one['what']:60} {one['value']!s:>8}  bar {one['bar']:<5} {one['note']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
