"""What a rendered frame costs: CPU milliseconds of `sim://farm`, by frame size. Prints one JSON object.

CPU time (`process_time`), the first lap warms the cache of strips; medians, p99 and the share of the first sight.
"""

import argparse
import json
import statistics
import sys
import time

import cv2

from swarmd_sim.world.source import open_source


def measure(size: str, frames: int) -> dict[str, float]:
    """CPU milliseconds a frame over a fly-over of half a farm."""
    built = time.process_time()
    source = open_source(f"sim://farm?pace=max&tables=12&laps=0&frames={frames}&size={size}")
    opened_ms = (time.process_time() - built) * 1e3
    costs = []
    while True:
        began = time.process_time()
        frame = source.read()
        if frame is None:
            break
        costs.append((time.process_time() - began) * 1e3)
    costs.sort()
    return {
        "open_ms": round(opened_ms, 2),
        "mean_ms": round(statistics.fmean(costs), 3),
        "p50_ms": round(statistics.median(costs), 3),
        "p99_ms": round(costs[int(0.99 * len(costs))], 3),
        "max_ms": round(costs[-1], 3),
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--frames", type=int, default=600)
    options = parser.parse_args()
    cv2.setNumThreads(1)
    result = {size: measure(size, options.frames) for size in ("320x256", "640x512")}
    print(json.dumps({"frames": options.frames, "render": result}))
    return 0 if result["320x256"]["mean_ms"] <= 6.0 else 1


if __name__ == "__main__":
    sys.exit(main())
