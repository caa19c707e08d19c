"""Two hundred cameras for a day of virtual time: does anything that a node keeps grow without end?

    make soak-day                                             # about three CPU hours, half with a compiled copy; 1.6 GB
    python -m tests.bench.bench_day [--nodes 200] [--hours 24] [--seed 7] [--out day.json]

Runs the scenario `cameras-day`. After each virtual hour one row goes to standard error: what the hour cost in events,
CPU and bytes a node, what the witnesses hold (the first four nodes, which faults spare: every object that can be
reached from their protocols, in bytes), their rows, batches and journals, what the first of them has lost of the last
hour, and the memory of the process. The report on standard output is JSON: the rows, the broken rules, and the bars.
Ends with 1 where a bar is missed. A compiled copy of the simulator (`make bench-sim-compiled`) takes half the time:
PYTHONPATH=out/compiled python -m tests.bench.bench_day.
"""

import argparse
import gc
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from swarmd_sim.checkers.state import StateChecker
from swarmd_sim.faults.faults import Fault
from swarmd_sim.run import engine
from swarmd_sim.run.host import Host
from swarmd_sim.run.scenario import NS_PER_S, Scenario, load_scenario
from swarmd_sim.run.simulation import Options, Simulation
from tests.support.held import held

WARM_HOURS = 6
"""What was seen is shown for an hour, and who sees 0.9 things an hour writes its log anew with every fifth."""
SPREAD = 1.10
"""What a witness may hold in any later hour, of what it held in the fullest of the two after the warm-up."""
WITNESSES = 4
SETTLED_NS = 120 * NS_PER_S
"""What was seen so long ago stands behind an object everywhere, but for those whom a fault keeps from it."""


def faults(scenario: Scenario, seed: int) -> list[Fault]:
    """What the seed draws, without the witnesses: what they hold is all that they were told since they began."""
    drawn = Simulation(scenario, seed, Options()).script
    spared = [replace(fault, nodes=tuple(node for node in fault.nodes if node >= WITNESSES)) for fault in drawn]
    return [fault for fault in spared if fault.nodes]


def holds(simulation: Simulation, host: Host) -> dict[str, int]:
    """What one node keeps: bytes of all its objects, of its rows' batches, and on its disk."""
    health = simulation.maker.replicas[host.index].views.health()
    on_disk = sum(len(key) + len(value) for key, value in host.disk.records().items())
    return {
        # What the simulator's nodes share of what they have read, all lives of all of them, is on no device.
        "bytes": held(host.node, without=(host.node._core.crypto,))[1],
        "batches": health["batches_held"],
        "sightings": health["sightings"],
        "disk_bytes": on_disk,
    }


def lost(simulation: Simulation) -> int:
    """Tracks of the last hour for which the first witness shows nothing."""
    checker = next(one for one in simulation.checkers if isinstance(one, StateChecker))
    return len(checker.lost_tracks(simulation.hosts[0], SETTLED_NS)[0])


def measure(nodes: int, hours: int, seed: int, tell: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """The run.

    Args:
        nodes: How many cameras.
        hours: Virtual hours.
        seed: Decides everything but the time it takes.
        tell: Given each hour's row.

    Returns:
        The report.
    """
    rows: list[dict[str, Any]] = []
    before = {"events": 0, "cpu_s": time.process_time(), "sent": 0}

    def look(simulation: Simulation) -> Callable[[int], None]:
        def each_second(now_ns: int) -> None:
            if now_ns % (3_600 * NS_PER_S):
                return
            # The run keeps the collector off; a day of cycles is more than memory holds.
            gc.collect()
            events, cpu_s = simulation.engine.events, time.process_time()
            sent = sum(simulation.network.sent_bytes)
            row = {
                "hour": now_ns // (3_600 * NS_PER_S),
                "events": events - before["events"],
                "cpu_s": round(cpu_s - before["cpu_s"], 1),
                "bytes_per_node_s": round((sent - before["sent"]) / nodes / 3_600, 1),
                "detections": len(simulation.ledger.detections),
                "lost": lost(simulation),
                "violations": len(simulation.watch.violations),
                "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1_024,
                "load": round(os.getloadavg()[0], 1),
                "witnesses": {host.name: holds(simulation, host) for host in simulation.hosts[:WITNESSES]},
            }
            before.update(events=events, cpu_s=cpu_s, sent=sent)
            rows.append(row)
            tell(row)

        return each_second

    scenario = load_scenario("cameras-day", {"swarm.nodes": nodes, "swarm.seconds": hours * 3_600})
    result = Simulation(scenario, seed, Options(look=look, script=faults(scenario, seed))).run()
    figures = result.figures
    return {
        "nodes": nodes,
        "hours": hours,
        "seed": seed,
        "compiled": str(engine.__file__).endswith(".so"),
        "rows": rows,
        "faults": len(result.script),
        **{key: figures[key] for key in ("cpu_s", "events", "bytes_per_node_s", "packets_per_node_s", "restarts")},
        **{
            key: figures[key]
            for key in ("false_positives", "convergence_s", "detections", "violations", "trace_digest")
        },
        "bars": bars(rows, len(result.violations)),
    }


def bars(rows: list[dict[str, Any]], violations: int) -> dict[str, bool | None]:
    """What must hold; None where the run was too short to say.

    Args:
        rows: One for each hour.
        violations: Broken rules.

    Returns:
        By name.
    """
    found: dict[str, bool | None] = {
        "no rule broken": not violations,
        "nothing lost": not any(row["lost"] for row in rows),
    }
    for what in ("bytes", "batches", "disk_bytes"):
        by_hour = [{name: one[what] for name, one in row["witnesses"].items()} for row in rows]
        full, later = by_hour[WARM_HOURS : WARM_HOURS + 2], by_hour[WARM_HOURS + 2 :]
        found[f"{what} flat"] = (
            all(one[name] <= SPREAD * max(two[name] for two in full) for one in later for name in one)
            if later
            else None
        )
    return found


def main() -> int:
    """Run, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", type=Path, help="where the report is written too")
    args = parser.parse_args()
    report = measure(args.nodes, args.hours, args.seed, lambda row: print(json.dumps(row), file=sys.stderr, flush=True))
    text = json.dumps(report, indent=1)
    if args.out is not None:
        args.out.write_text(text + "\n", "utf-8")
    print(text)
    return int(False in report["bars"].values())


if __name__ == "__main__":
    sys.exit(main())
