"""What a device pays as its swarm grows: `solar-farm-20` with N drones, bytes and packets a node by kind, CPU.

Prints one JSON object; with `--out` it writes that as `scale.json` and a plot as `scale.svg` there. `make bench-scale`.
Bytes, packets and what was found depend on the seed alone; CPU seconds depend on the machine.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

SIZES = (20, 50, 100)
"""What a quarter of an hour allows; 200 and 500 are asked for by hand."""
BYTES_S, PACKETS_S, TOLERANCE = 2_500, 20, 1.2
"""The bar for each node, at every size alike."""


def run_size(nodes: int, seed: int) -> dict[str, Any]:
    """One size, in this process."""
    from swarmd_sim.run.scenario import load_scenario
    from swarmd_sim.run.simulation import Simulation

    figures: dict[str, Any] = Simulation(load_scenario("solar-farm-20", {"swarm.nodes": nodes}), seed).run().figures
    truth, claims = figures["truth"], figures["claims"]
    return {
        "nodes": nodes,
        "seed": seed,
        "bytes_per_node_s": figures["bytes_per_node_s"],
        "packets_per_node_s": figures["packets_per_node_s"],
        "by_kind": figures["by_kind"],
        "events": figures["events"],
        "cpu_s": figures["cpu_s"],
        "us_per_event": round(figures["cpu_s"] / figures["events"] * 1e6, 1),
        "virtual_by_cpu": round(figures["virtual_s"] / figures["cpu_s"], 2),
        "detection_s": figures["detection_s"],
        "recall": truth["recall"],
        "distinct_lost": truth["distinct_lost"],
        "false": truth["false"],
        "cells_done": f"{claims['done']} of {claims['cells']}",
        "makespan_s": claims["makespan_s"],
        "violations": figures["violations"],
        "trace_digest": figures["trace_digest"],
    }


def plot(rows: list[dict[str, Any]]) -> str:
    """Bytes a node and second over the number of nodes: all of it, and by kind."""
    from swarmd_sim.report.svg import line_chart

    kinds = sorted(rows[0]["by_kind"], key=lambda kind: -rows[-1]["by_kind"][kind]["bytes"])[:6]
    series = {"all": [(row["nodes"], row["bytes_per_node_s"]) for row in rows]}
    series |= {kind: [(row["nodes"], row["by_kind"][kind]["bytes"]) for row in rows] for kind in kinds}
    return line_chart("What a device pays as its swarm grows", "nodes", "B/s a node", series)


def main() -> int:
    """Run the sizes, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="*", default=list(SIZES))
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--out", type=Path, help="folder for scale.json and scale.svg")
    parser.add_argument("--here", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.here:
        print(json.dumps(run_size(args.here, args.seed)))
        return 0
    document: dict[str, Any] = {
        "scenario": "solar-farm-20",
        "bars": {"bytes_per_node_s": BYTES_S, "packets_per_node_s": PACKETS_S, "tolerance": TOLERANCE},
        "rows": [],
    }
    for nodes in args.nodes:
        command = [sys.executable, "-m", "tests.bench.bench_scale", "--here", str(nodes), "--seed", str(args.seed)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        document["rows"].append({**json.loads(done.stdout), "load": round(os.getloadavg()[0], 1)})
        if args.out:
            # After each size: the large ones take long, and a run that is stopped has shown the others.
            args.out.mkdir(parents=True, exist_ok=True)
            (args.out / "scale.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
            (args.out / "scale.svg").write_text(plot(document["rows"]), encoding="utf-8")
    print(json.dumps(document))
    return 0


if __name__ == "__main__":
    sys.exit(main())
