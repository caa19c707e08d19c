"""The simulator's bars: speed at 500, 2,000 and 10,000 nodes, start-up, sweep speed-up; CPU time beside wall time.

    python tests/bench/bench_sim.py [--only NAME …] [--json]

Each bar runs in a process of its own with one thread, so that memory is its own. Bars whose nodes are idle but for
membership, replicated state and the codec show the engine's speed; `busy` adds detections, status and counters.
"""

import argparse
import gc
import json
import os
import subprocess
import sys
import time
from typing import Any

IDLE = {
    "site.kind": "none",
    "drones.work": "none",
    "workload.user_events_per_min": 0,
    "workload.notes_per_min": 0,
    "workload.status_s": 0,
    "workload.counters_s": 0,
    "checks.settle_s": 1.0,
    "checks.cells_done": False,
    "fault": [],
}
BUSY = {**IDLE, "workload.status_s": 10.0, "workload.counters_s": 10.0, "workload.detections_per_min": 60}
FULL = {**IDLE, "gossip.full_view_max": 10_000}
LEAN = {**IDLE, "gossip.profile": "lean", "gossip.full_view_max": 64, "swarm.start_within_s": 15.0, "swarm.seeds": 8}
SPREAD = {**IDLE, "swarm.start_within_s": 10.0, "swarm.seeds": 8}
BARS: dict[str, tuple[int, int, int, dict[str, Any], str]] = {
    # Name: nodes, virtual seconds, of these not counted as steady, overrides, the bar.
    "idle-500": (500, 50, 30, {**SPREAD, "swarm.start_within_s": 5.0}, ">= 10 x real time after formation"),
    "full-500": (500, 30, 10, FULL, "the same with full views: no bar of its own"),
    "busy-100": (100, 30, 5, BUSY, "no bar; the cost of replicated state at work"),
    "idle-2000": (2_000, 45, 35, SPREAD, ">= 1 x real time after formation"),
    "lean-500": (500, 60, 40, LEAN, "the same with the profile for large swarms"),
    "lean-2000": (2_000, 60, 40, LEAN, "the same with the profile for large swarms"),
    "lean-10000": (10_000, 60, 40, LEAN, "within 600 s and 8 GB"),
    "start-1000": (1_000, 0, 0, {**IDLE, "swarm.start_within_s": 0.0}, "set-up and all boots <= 2 s"),
    "form-1000": (1_000, 30, 20, LEAN, "no bar; a thousand nodes, lean, from nothing"),
}


def run_bar(name: str) -> dict[str, Any]:
    """One bar, in this process."""
    from swarmd_sim.run import engine
    from swarmd_sim.run.result import Times
    from swarmd_sim.run.scenario import NS_PER_S, load_scenario
    from swarmd_sim.run.simulation import Simulation

    nodes, seconds, forming_s, overrides, bar = BARS[name]
    chosen = {"swarm.seeds": 3, **overrides, "swarm.nodes": nodes, "swarm.seconds": max(2, seconds)}
    started = time.perf_counter()
    simulation = Simulation(load_scenario("partition-heal", chosen), 3)
    simulation.schedule()
    half = time.process_time()
    # As in a run: the collector would walk millions of small objects that are no garbage.
    gc.disable()
    simulation.engine.run_until(forming_s * NS_PER_S)
    formed, events = time.process_time(), simulation.engine.events
    simulation.engine.run_until(seconds * NS_PER_S)
    steady_s = time.process_time() - formed
    figures = simulation.result(
        Times(simulation.setup_s, time.perf_counter() - started, time.process_time() - half)
    ).figures
    steady_events = simulation.engine.events - events
    rss_mb = figures["rss_mb"]
    assert isinstance(rss_mb, int)
    return {
        "bar": name,
        "wanted": bar,
        "compiled": str(engine.__file__).endswith(".so"),
        "nodes": nodes,
        "virtual_s": seconds,
        "setup_s": round(simulation.setup_s, 2),
        "formation_cpu_s": round(formed - half, 2),
        "steady_speed": round((seconds - forming_s) / steady_s, 2) if seconds > forming_s else None,
        "us_per_event": round(steady_s / steady_events * 1e6, 1) if steady_events else None,
        "events_per_node_s": round(steady_events / nodes / max(1, seconds - forming_s), 1),
        "formed_at_s": figures["formation_s"],
        "bytes_per_node_s": figures["bytes_per_node_s"] if seconds else None,
        "wall_s": figures["wall_s"],
        "cpu_s": figures["cpu_s"],
        "rss_mb": rss_mb,
        "kb_per_node": round(rss_mb * 1_024 / nodes, 1),
        "bytes_per_member_record": round(rss_mb * 1_048_576 / nodes / nodes) if name == "full-500" else None,
        "trace_digest": figures["trace_digest"],
        "load": round(os.getloadavg()[0], 1),
    }


def run_sweep() -> dict[str, Any]:
    """The speed-up of a sweep on two processes."""
    from swarmd_sim.run.sweep import SweepPlan, sweep

    plan = SweepPlan("partition-heal", {}, {"radio.loss": (0.0, 0.1)}, tuple(range(1, 13)))
    one, two = sweep(plan, "local", 1), sweep(plan, "local", 2)
    speed_up = round(one.wall_s / two.wall_s, 2)
    return {"bar": "sweep", "wanted": ">= 1.8 x on 2 cores", "speed_up": speed_up, "cores": os.cpu_count()}


def main() -> int:
    """Run the chosen bars."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[*BARS, "sweep"], choices=[*BARS, "sweep"])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--here", help=argparse.SUPPRESS)
    parser.add_argument("--timeout-s", type=float, default=1_800.0)
    args = parser.parse_args()
    if args.here:
        print(json.dumps(run_sweep() if args.here == "sweep" else run_bar(args.here)))
        return 0
    rows = []
    for name in args.only:
        command = [sys.executable, __file__, "--here", name]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=args.timeout_s, check=True)
            rows.append(json.loads(done.stdout.splitlines()[-1]))
        except subprocess.TimeoutExpired:
            rows.append({"bar": name, "error": f"not done within {args.timeout_s:g} s"})
        except subprocess.CalledProcessError as error:
            rows.append({"bar": name, "error": error.stderr[-300:]})
        if not args.json:
            print(rows[-1], flush=True)
    if args.json:
        print(json.dumps({"load": os.getloadavg(), "rows": rows}))
    return 1 if any("error" in row for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
