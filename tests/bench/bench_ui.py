"""The ground view under load: 200 drones that say ten times a second where they are, 5,000 objects, 10,000 assets.

    python -m tests.bench.bench_ui [--seconds 20]

Prints one JSON object. CPU is the process time of the page's renderer (from /proc), divided by the frames that the map
drew: it says what a frame costs however busy the machine is. Chromium runs without a GPU.
"""

import argparse
import asyncio
import gzip
import json
import math
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from swarmd.ground.past import Past
from tests.support.browser import chromium, has, opened, until
from tests.support.ground import Served, position, serving, site
from tests.support.paths import ROOT

DRONES, OBJECTS, ASSETS, HZ = 200, 5_000, 10_000, 10
SPEED_M_S = 8.0
SEEKS = 40
DRAWINGS = 200
"""Of one measurement: the kernel counts CPU in hundredths of a second."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def renderer_cpu_s() -> float:
    """CPU of all renderers of browsers that this process started."""
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
            if b"--type=renderer" in command and _is_ours(int(folder.name)):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                total += int(fields[11]) + int(fields[12])
        except (OSError, ValueError):
            continue
    return total / _TICKS_PER_S


def _is_ours(pid: int) -> bool:
    while pid > 1:
        if pid == os.getpid():
            return True
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return False


class Flight:
    """Drones that move while they are looked at."""

    def __init__(self, served: Served) -> None:
        self._served = served
        rng = random.Random(11)
        self._places = [[rng.uniform(0, 1_500), rng.uniform(0, 80), rng.uniform(0, math.tau)] for _ in range(DRONES)]
        self.changes = 0

    def fly(self, seconds: float, page: Any) -> None:
        """Move all of them ten times a second, and let the page live."""
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            began_s = time.monotonic()
            self._served.do(self._move)
            page.wait_for_timeout(max(1.0, 1000 / HZ - (time.monotonic() - began_s) * 1000))

    def _move(self, ground: Any) -> None:
        now_s = time.time()
        for number, place in enumerate(self._places):
            east_m, north_m, way = place
            place[0], place[1] = east_m + SPEED_M_S / HZ * math.cos(way), north_m + SPEED_M_S / HZ * math.sin(way)
            place[2] = way + 0.01
            ground.picture.put("position", position(number, round(east_m, 2), round(north_m, 2), now_s), now_s)
        self.changes += DRONES


def heap_bytes(page: Any) -> int:
    """Of the page's script, after a collection."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    used = int(session.send("Runtime.getHeapUsage")["usedSize"])
    session.detach()
    return used


def frames_cost(page: Any, flight: Flight, seconds: float, pan: bool) -> dict[str, float]:
    """CPU and rate of frames."""
    if pan:
        page.evaluate("""
            window.panning = true;
            let way = 0;
            const step = () => {
                if (!window.panning) return;
                way += 0.02;
                ground.pan(9 * Math.cos(way), 5 * Math.sin(way * 1.7));
                requestAnimationFrame(step);
            };
            requestAnimationFrame(step);
        """)
    before, cpu_s, began_s = page.evaluate("ground.spent().frames"), renderer_cpu_s(), time.monotonic()
    flight.fly(seconds, page)
    frames = page.evaluate("ground.spent().frames") - before
    cpu_s, wall_s = renderer_cpu_s() - cpu_s, time.monotonic() - began_s
    page.evaluate("window.panning = false")
    return {
        "cpu_ms_per_frame": round(1000 * cpu_s / max(1, frames), 2),
        "frames_per_s": round(frames / wall_s, 1),
        "cores": round(cpu_s / wall_s, 3),
    }


def drawing_cost(page: Any, pan: bool) -> float:
    """CPU milliseconds of one drawing of the map, pixels included, without what the browser does around it."""
    page.evaluate("ground.fit(); ground.paint()")
    cpu_s = renderer_cpu_s()
    page.evaluate(f"""
        for (let i = 0; i < {DRAWINGS}; i++) {{
            {"ground.pan(9 * Math.cos(i / 20), 5 * Math.sin(i / 12));" if pan else ""}
            ground.paint();
        }}
    """)
    return round(1000 * (renderer_cpu_s() - cpu_s) / DRAWINGS, 2)


def longest_piece_ms(served: Served) -> float:
    """CPU of the longest step of a snapshot: how long the loop is held at most."""
    longest = 0.0
    pieces = served.ground.picture.snapshot(time.time())
    while True:
        began_s = time.thread_time()
        piece = next(pieces, None)
        longest = max(longest, time.thread_time() - began_s)
        if piece is None:
            return round(1000 * longest, 3)


def measure(seconds: float) -> dict[str, Any]:
    """All of it."""
    found: dict[str, Any] = {"drones": DRONES, "objects": OBJECTS, "assets": ASSETS, "hz": HZ}
    with tempfile.TemporaryDirectory() as folder:
        with serving(Path(folder), DRONES, OBJECTS, site=site(ASSETS)) as served, chromium() as browser:
            found["snapshot_longest_piece_ms"] = longest_piece_ms(served)
            found["snapshot_bytes"] = sum(map(len, served.ground.picture.snapshot(time.time())))
            with opened(browser, served.url) as (page, _):
                has(page, f"{OBJECTS} objects", 60)
                paints = (
                    "performance.getEntriesByType('paint').find(p => p.name === 'first-contentful-paint').startTime"
                )
                found["first_paint_ms"] = round(until(page, paints, "the first paint"))
                flight = Flight(served)
                flight.fly(2, page)
                found["drawing_cpu_ms"] = drawing_cost(page, pan=False)
                found["drawing_while_panning_cpu_ms"] = drawing_cost(page, pan=True)
                found["watching"] = frames_cost(page, flight, seconds, pan=False)
                found["panning"] = frames_cost(page, flight, seconds, pan=True)
                before, changes = heap_bytes(page), flight.changes
                flight.fly(seconds, page)
                found["heap_mb"] = round(heap_bytes(page) / 1e6, 2)
                found["heap_growth_mb"] = round((heap_bytes(page) - before) / 1e6, 2)
                found["heap_growth_over_changes"] = flight.changes - changes
                found["drawing_long_trails_cpu_ms"] = drawing_cost(page, pan=True)
        found["seek"] = asyncio.run(seeks(Path(folder)))
    static = ROOT / "swarmd" / "ground" / "static"
    found["page_gz_bytes"] = sum(len(gzip.compress(one.read_bytes())) for one in static.iterdir())
    found["load_average"] = os.getloadavg()[0]
    return found


async def seeks(folder: Path) -> dict[str, float]:
    """Any moment of what the flight left, out of the file, in this process."""
    past = Past(folder / "history.sqlite", _nothing)
    try:
        line = await past.timeline(0.0, time.time())
        rng, times, cpu = random.Random(3), [], []
        for _ in range(SEEKS):
            began_s, cpu_s = time.monotonic(), time.process_time()
            await past.at(rng.uniform(line.from_s, line.to_s))
            times.append(time.monotonic() - began_s)
            cpu.append(time.process_time() - cpu_s)
    finally:
        past.close()
    seconds = line.to_s - line.from_s
    size = (folder / "history.sqlite").stat().st_size
    return {
        "wall_p95_ms": round(1000 * statistics.quantiles(times, n=20)[-1], 1),
        "cpu_median_ms": round(1000 * statistics.median(cpu), 1),
        "history_mb_per_hour": round(size / 1e6 * 3600 / seconds, 1),
        "seconds": round(seconds, 1),
    }


def _nothing() -> dict[str, dict[str, bytes]]:
    return {}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement (%(default)s)")
    json.dump(measure(parser.parse_args().seconds), sys.stdout, indent=2)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
