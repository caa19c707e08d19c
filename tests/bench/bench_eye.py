"""Figures of the eye against its bars, and of each runtime. Prints one JSON object; exit status 1 when a bar is missed.

`runtimes`: for each that is installed load, first inference, the raw invoke's and the whole frame's p50 and p99, signal
to noise against the training machine's answer and against the float model, and raw invoke / whole frame; for the
others why not. The ratio is of times in the same frames, both nets together. Bars are LiteRT's, the default's.

`python -m tests.bench.bench_eye [--seconds 5] [--swaps 1000]`. One thread. Ratios are taken within one run, and CPU
time rather than wall time where another process may have taken the core.
"""

import argparse
import asyncio
import json
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from swarmd.eye.ipc import Configure, FrameDone, FromEye, Stats, SwapDone, SwapModel
from swarmd.eye.supervisor import EyeSupervisor
from swarmd_models.backends import BACKENDS
from swarmd_models.bench_infer import measure_all

FARM = "sim://farm?drone=1&of=1&seed=7&faults=0.05&fly=lanes"
ZOO = "zoo:small-320"
SWAP_FPS = 20
MIN_SHARE = 0.80
MAX_OTHER_MS = 0.8
MAX_RSS_MB = 110.0


async def _eye_at_work(seconds: float) -> dict[str, Any]:
    """Memory and times of a real eye process over the simulated farm."""
    said: list[FromEye] = []
    supervisor = EyeSupervisor(Configure(FARM, "zoo:small-320"), said.append)
    task = asyncio.create_task(supervisor.run())
    while not any(isinstance(message, FrameDone) for message in said):
        await asyncio.sleep(0.05)
        if task.done():
            task.result()
    await asyncio.sleep(seconds)
    rss_mb = _rss_mb(supervisor.pid)
    supervisor.stop()
    await task
    frames = [message for message in said if isinstance(message, FrameDone) and message.frame_index >= 0][5:]
    delays = sorted((message.sent_ns - message.captured_ns) / 1e6 for message in frames)
    totals = [sum(message.stage_ns.values()) / 1e6 for message in frames]
    shares = [message.stage_ns["infer"] / sum(message.stage_ns.values()) for message in frames]
    return {
        "frames": len(frames),
        "rss_mb": round(rss_mb, 1),
        "capture_to_sent_ms": {
            "p50": round(statistics.median(delays), 3),
            "p99": round(delays[-len(delays) // 100], 3),
        },
        "frame_to_events_ms_p50": round(statistics.median(totals), 3),
        "infer_share_p50": round(statistics.median(shares), 4),
    }


async def _swaps(count: int, seconds: float) -> dict[str, Any]:
    """Frames lost while a real eye changes its model `count` times, beside those it loses in quiet on this machine."""
    said: list[FromEye] = []
    supervisor = EyeSupervisor(Configure(FARM + f"&laps=0&fps={SWAP_FPS}", ZOO, stats_interval_s=0.1), said.append)
    task = asyncio.create_task(supervisor.run())
    while not any(isinstance(message, FrameDone) for message in said):
        await asyncio.sleep(0.05)
    await asyncio.sleep(1.0)
    quiet_from = _dropped(said)
    await asyncio.sleep(seconds)
    quiet = _dropped(said) - quiet_from
    before, started, first = _dropped(said), time.monotonic(), len(said)
    for number in range(1, count + 1):
        supervisor.send(SwapModel(ZOO))
        while sum(isinstance(message, SwapDone) for message in said[first:]) < number:
            await asyncio.sleep(0.002)
            if task.done():
                task.result()
    took_s = time.monotonic() - started
    await asyncio.sleep(0.3)
    lost = _dropped(said) - before
    answers = [message for message in said if isinstance(message, SwapDone)]
    rss_mb = _rss_mb(supervisor.pid)
    supervisor.stop()
    await task
    return {
        "swaps": count,
        "refused": sum(not answer.ok for answer in answers),
        "seconds": round(took_s, 1),
        "fps": SWAP_FPS,
        "frames_lost": lost,
        "frames_lost_in_quiet_per_second": round(quiet / seconds, 3),
        "frames_lost_above_quiet": round(lost - quiet / seconds * took_s, 1),
        "eye_deaths": supervisor.restarts,
        "rss_mb": round(rss_mb, 1),
    }


def _of_runtime(found: dict[str, Any]) -> dict[str, Any]:
    if "error" in found:
        return {"error": found["error"]}
    raw, frame = found["raw_invoke_ms"], found["stages_ms"]["total"]
    return {
        "runtime": found["runtime"],
        "load_ms": found["load_ms"],
        "first_infer_ms": found["first_infer_ms"],
        "invoke_ms": {key: raw["first"][key] for key in ("p50", "p99")},
        "second_invoke_ms": {key: raw["second"][key] for key in ("p50", "p99")} if "second" in raw else None,
        "frame_ms": {key: frame[key] for key in ("p50", "p99")},
        "sqnr_db": found["sqnr_db"],
        "golden": found["golden"],
        "raw_invoke_of_frame": found["infer_share"],
    }


def _dropped(said: list[FromEye]) -> int:
    for message in reversed(said):
        if isinstance(message, Stats):
            return message.counters["frames_dropped_newer"]
    return 0


def _rss_mb(pid: int | None) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def main() -> int:
    """Measure and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--model", default=ZOO)
    parser.add_argument("--swaps", type=int, default=0, help="only change the model so often, and count lost frames")
    parser.add_argument("--backend", default=",".join(BACKENDS), help="the first is held to the bars")
    args = parser.parse_args()
    if args.swaps:
        swaps = asyncio.run(_swaps(args.swaps, max(args.seconds, 10.0)))
        print(json.dumps(swaps, indent=1))
        return 0 if not swaps["refused"] and swaps["frames_lost_above_quiet"] <= 1 else 1
    of_all = measure_all(args.model, "", args.backend.split(","), 1, args.seconds)
    figures = of_all[0]
    if "error" in figures:
        print(json.dumps(figures))
        return 1
    work = asyncio.run(_eye_at_work(args.seconds))
    bars = {
        "infer_share": [figures["infer_share"], ">=", MIN_SHARE],
        "all_but_infer_cpu_ms_from_1080p": [figures["from_1080p"]["all_but_infer_cpu_ms"]["p50"], "<=", MAX_OTHER_MS],
        "eye_rss_mb": [work["rss_mb"], "<=", MAX_RSS_MB],
    }
    verdicts = {name: got >= bar if sign == ">=" else got <= bar for name, (got, sign, bar) in bars.items()}
    answer = {
        "machine": platform.platform(),
        "bars": bars,
        "met": verdicts,
        "runtimes": {str(found["backend"]): _of_runtime(found) for found in of_all},
        "model": figures,
        "eye": work,
    }
    print(json.dumps(answer, indent=1))
    return 0 if all(verdicts.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
