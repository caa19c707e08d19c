"""The ground view under load: 200 drones that say ten times a second where they are, 5,000 objects, 10,000 assets.

    python -m tests.bench.bench_ui [--seconds 20] [--ticks 6000] [--recording FILE.mcap] [--only PART …]

Prints one JSON object. Parts: `page` (the made-up flight), `observer` (what a real daemon spends while `swarmd ground`
is a member beside it), `recording` (a file of `swarmd sim run --record`: any moment of it on the page). CPU is the
process time of the page's renderer (from /proc), divided by the frames that the map drew: it says what a frame costs
however busy the machine is. Chromium runs without a GPU.
"""

import argparse
import asyncio
import contextlib
import gzip
import json
import math
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from swarmd.ground.past import Past
from tests.integration.test_ground_swarm import ORIGIN, GroundProcess
from tests.support.browser import chromium, has, heap_bytes, opened, renderer_cpu_s, seconds_of, until
from tests.support.daemons import Daemon, wait_for
from tests.support.exclusive import own_port
from tests.support.ground import Served, position, serving, site
from tests.support.paths import ROOT

DRONES, OBJECTS, ASSETS, HZ = 200, 5_000, 10_000, 10
SPEED_M_S = 8.0
SEEKS = 40
TICKS_A_BREATH = 20
"""Ticks between two waits for the page, so that it keeps up with whatever speed the server has here."""
OBSERVED = 20
"""Objects that each of the two daemons sees again every second while its cost is measured."""
PARTS = ("page", "observer", "recording")
ROUNDS = 3
"""Measurements of one daemon, of which the median counts."""
DRAWINGS = 200
"""Of one measurement: the kernel counts CPU in hundredths of a second."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


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

    def rush(self, ticks: int, page: Any) -> None:
        """As many moves as fast as the page takes them."""
        for number in range(ticks):
            self._served.do(self._move)
            if number % TICKS_A_BREATH == TICKS_A_BREATH - 1:
                newest = self._served.ground.picture.seq
                until(page, f"ground.seq() >= {newest}", "the page to keep up")

    def _move(self, ground: Any) -> None:
        now_s = time.time()
        for number, place in enumerate(self._places):
            east_m, north_m, way = place
            place[0], place[1] = east_m + SPEED_M_S / HZ * math.cos(way), north_m + SPEED_M_S / HZ * math.sin(way)
            place[2] = way + 0.01
            ground.picture.put("position", position(number, round(east_m, 2), round(north_m, 2), now_s), now_s)
        self.changes += DRONES


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


def page_seeks(page: Any, from_s: float, to_s: float) -> dict[str, float]:
    """From the wish to the picture on the page: wall time, and CPU of the renderer."""
    rng, times = random.Random(5), []
    cpu_s = renderer_cpu_s()
    for _ in range(SEEKS):
        at_s = rng.uniform(from_s, to_s)
        times.append(
            page.evaluate(
                f"(async () => {{ const began = performance.now(); await ground.seek({at_s}); ground.paint();"
                " return performance.now() - began; })()"
            )
        )
        page.wait_for_timeout(100)
    return {
        "wall_median_ms": round(statistics.median(times), 1),
        "wall_p95_ms": round(statistics.quantiles(times, n=20)[-1], 1),
        "renderer_cpu_ms": round(1000 * (renderer_cpu_s() - cpu_s) / SEEKS, 1),
    }


def silence(folder: Path, browser: Any) -> dict[str, float]:
    """How long it takes until a server that ends is said, and one that is back."""
    folder.mkdir()
    port = own_port()
    served = Served(folder, port=port)
    with opened(browser, served.url) as (page, _):
        has(page, "receiving")
        said_s = seconds_of(lambda: (served.close(), has(page, "server does not answer")))
        served = Served(folder, port=port)
        back_s = seconds_of(lambda: has(page, "receiving"))
    served.close()
    return {"said_s": round(said_s, 2), "back_s": round(back_s, 2)}


def recording(path: Path) -> dict[str, Any]:
    """A recording on the page: any moment of it."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as ends:
        command = [sys.executable, "-m", "swarmd", "ground", str(path), "--page", "127.0.0.1:0"]
        process = ends.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder))
        ends.callback(process.terminate)
        assert process.stdout is not None
        url = re.search(r"http://\S+", process.stdout.readline())
        assert url is not None, f"{path} cannot be shown"
        with chromium() as browser, opened(browser, url[0]) as (page, _):
            until(page, "document.querySelector('[aria-posinset]')", "the first rows", 60)
            line = page.evaluate("fetch('/api/v1/timeline').then(answer => answer.json())")
            found: dict[str, Any] = {"members": page.evaluate("ground.world().member.size")}
            found["seek"] = page_seeks(page, line["from_s"], line["to_s"])
            found["drawing_while_panning_cpu_ms"] = drawing_cost(page, pan=True)
            found["heap_mb"] = round(heap_bytes(page) / 1e6, 2)
            return found


def observer(seconds: float) -> dict[str, Any]:
    """What a daemon spends beside another one, and what more while an observer is a third member."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as ends:
        folder, origin = Path(name), ("--no-eye", "--set", ORIGIN)
        first = Daemon(folder, "drone-1", *origin).up()
        ends.callback(first.close)
        second = Daemon(folder, "drone-2", *origin, join=first.status()["address"]).up()
        ends.callback(second.close)
        wait_for(lambda: first.members().get("drone-2") == "alive", "the second")
        _sight(first, second, 10)
        before = [_spent(first, second, seconds) for _ in range(ROUNDS)]
        ground = GroundProcess(folder, first.status()["address"]).begin()
        ends.callback(ground.close)
        wait_for(lambda: len(ground.rows("object")) >= OBSERVED, "the objects at the observer")
        _sight(first, second, 10)
        after = [_spent(first, second, seconds) for _ in range(ROUNDS)]
    alone, watched = (tuple(statistics.median(one) for one in zip(*rounds, strict=True)) for rounds in (before, after))
    return {
        "cpu_percent_alone": round(alone[0], 2),
        "cpu_percent_observed": round(watched[0], 2),
        "rss_mib_alone": round(alone[1], 2),
        "rss_mib_observed": round(watched[1], 2),
    }


def _spent(first: Daemon, second: Daemon, seconds: float) -> tuple[float, float]:
    """CPU of the first in per cent of a core, and its memory, while both see things."""
    assert first.process is not None
    stat = Path(f"/proc/{first.process.pid}/stat")

    def cpu_s() -> float:
        fields = stat.read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S

    spent_s, began_s = cpu_s(), time.monotonic()
    _sight(first, second, seconds)
    percent = 100 * (cpu_s() - spent_s) / (time.monotonic() - began_s)
    return percent, int(stat.with_name("statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def _sight(first: Daemon, second: Daemon, seconds: float) -> None:
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        for daemon in (first, second):
            seen = [
                {"label": "hot-spot", "score": 0.9, "track": f"t{number}", "event": "update", "north_m": 4.0,
                 "east_m": 5.0 * number, "covariance_m2": [0.01, 0.0, 0.01]}
                for number in range(OBSERVED)
            ]  # fmt: skip
            daemon.ask("observe", detections=seen)
        time.sleep(1)


def measure(seconds: float, ticks: int) -> dict[str, Any]:
    """The made-up flight."""
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
                before = heap_bytes(page)
                flight.rush(ticks, page)
                found["heap_mb"] = round(heap_bytes(page) / 1e6, 2)
                found["heap_growth_mb"] = round((heap_bytes(page) - before) / 1e6, 2)
                found["heap_growth_over_ticks"] = ticks
                line = page.evaluate("fetch('/api/v1/timeline').then(answer => answer.json())")
                found["seek_on_the_page"] = page_seeks(page, line["from_s"], line["to_s"])
                page.evaluate("document.dispatchEvent(new KeyboardEvent('keydown', { key: 'l' }))")
                found["drawing_long_trails_cpu_ms"] = drawing_cost(page, pan=True)
            found["silence"] = silence(Path(folder) / "silence", browser)
        found["seek"] = asyncio.run(seeks(Path(folder)))
    static = ROOT / "swarmd" / "ground" / "static"
    found["page_gz_bytes"] = sum(len(gzip.compress(one.read_bytes())) for one in static.iterdir())
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
        "cpu_p95_ms": round(1000 * statistics.quantiles(cpu, n=20)[-1], 1),
        "history_mb_per_hour": round(size / 1e6 * 3600 / seconds, 1),
        "seconds": round(seconds, 1),
    }


def _nothing() -> dict[str, dict[str, bytes]]:
    return {}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement (%(default)s)")
    parser.add_argument("--ticks", type=int, default=6_000, help="over which the page's heap is watched (%(default)s)")
    parser.add_argument("--recording", type=Path, help="of `swarmd sim run --record`")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    wish = parser.parse_args()
    found: dict[str, Any] = {}
    if "page" in wish.only:
        found["page"] = measure(wish.seconds, wish.ticks)
    if "observer" in wish.only:
        found["observer"] = observer(wish.seconds)
    if "recording" in wish.only and wish.recording is not None:
        found["recording"] = recording(wish.recording)
    found["load_average"] = os.getloadavg()[0]
    json.dump(found, sys.stdout, indent=2)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
