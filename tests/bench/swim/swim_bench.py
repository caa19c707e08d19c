#!/usr/bin/env python3
"""Membership beside serf: both on the same machine in the same hour, by turns, and the bars they are held to.

    make bench-swim ARGS="--n 32 --json"

Agents run on loopback addresses in a network namespace of their own. swarmd is encrypted and signed, serf is not. Other
load on the machine is measured and printed: a figure without it says little.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench.swim import swim_host
from tests.bench.swim.swim_agents import Kind, Serf, Swarm, Swarmd, find_serf
from tests.bench.swim.swim_bars import held_bars, print_table
from tests.bench.swim.swim_scenarios import SCENARIOS, Run

PROGRAM = Path(__file__).resolve().parents[3] / ".venv" / "bin" / "swarmd"


def main() -> int:
    """Run both, compare, print; 1 when a bar is not held."""
    args = _arguments()
    swim_host.enter_namespace()
    names = [name for name in args.scenarios.split(",") if name]
    unknown = [name for name in names if name not in SCENARIOS]
    if unknown:
        sys.exit(f"bench-swim: no scenario {', '.join(unknown)}; there are {', '.join(SCENARIOS)}")
    if "serf" in args.peers and not find_serf(_install_serf):
        sys.exit("bench-swim: serf is not installed; `apt-get install serf`, or leave it out with --peers swarmd")
    with contextlib.suppress(PermissionError):
        os.nice(-5)  # So that lines are read, and timed, also while agents keep the processors busy.
    results = {peer: _one(peer, names, args) for peer in args.peers.split(",")}
    bars = held_bars(args.n, results, args.profile)
    report = {"n": args.n, "profile": args.profile, "cores": os.cpu_count(), "peers": results, "bars": bars}
    if args.json:
        print(json.dumps(report))
    else:
        print_table(report)
    return int(not all(bar["held"] for bar in bars))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench-swim", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--n", type=int, default=32, help="agents (default 32)")
    parser.add_argument("--peers", default="serf,swarmd", help="which, in this order (default serf,swarmd)")
    parser.add_argument("--scenarios", default=",".join(SCENARIOS), help=f"some of {', '.join(SCENARIOS)}")
    parser.add_argument("--profile", choices=("lan", "lean"), default="lan", help="swarmd's gossip.profile")
    parser.add_argument("--transport", choices=("udp", "zmq", "dds"), default="udp", help="swarmd's transport.gossip")
    parser.add_argument("--kills", type=int, default=10, help="trials of kill (default 10; serf at most 5)")
    parser.add_argument("--blackouts", type=int, default=5, help="trials of blackout (default 5; serf at most 3)")
    parser.add_argument("--events", type=int, default=10, help="user events (default 10)")
    parser.add_argument("--freezes", type=int, default=4, help="cycles of freeze5; half of it for freeze16 (default 4)")
    parser.add_argument("--window", type=float, default=30, help="seconds of steady (default 30)")
    parser.add_argument("--loss-window", type=float, default=60, help="seconds of each loss scenario (default 60)")
    parser.add_argument("--partition", type=float, default=45, help="seconds of the cut (default 45)")
    parser.add_argument("--seed", type=int, default=1, help="chooses victims and origins (default 1)")
    parser.add_argument("--swarmd", default=str(PROGRAM), metavar="FILE", help="the daemon's program")
    parser.add_argument("--json", action="store_true", help="one JSON object at the end")
    return parser.parse_args()


def _one(peer: str, names: list[str], args: argparse.Namespace) -> dict[str, Any]:
    few = peer == "serf"  # It waits ten seconds where we wait one; its spread is known.
    trials = {
        "kill": min(args.kills, 5) if few else args.kills,
        "blackout": min(args.blackouts, 3) if few else args.blackouts,
        "event": args.events,
        "freeze": args.freezes,
    }
    seconds = {
        "form": 90.0,
        "settle": 5.0,
        "window": args.window,
        "loss": args.loss_window,
        "partition": args.partition,
    }
    folder = Path(tempfile.mkdtemp(prefix="swim-bench-"))
    kind: Kind = Serf(folder) if peer == "serf" else Swarmd(args.swarmd, args.profile, args.transport, folder)
    swarm = Swarm(kind)
    run = Run(swarm, args.n, random.Random(args.seed), trials, seconds)
    found: dict[str, Any] = {"version": kind.version(), "load_before": os.getloadavg()[0]}
    try:
        for name in ["form", *(other for other in names if other != "form")]:
            began, busy = time.monotonic(), swim_host.machine_busy_s()
            found[name] = SCENARIOS[name](run)
            took = time.monotonic() - began
            found[name]["took_s"] = round(took, 1)
            found[name]["machine_busy_cores"] = round((swim_host.machine_busy_s() - busy) / took, 2)
            print(f"{peer} n={args.n} {name}: {json.dumps(found[name])}", file=sys.stderr, flush=True)
            if name == "form" and found[name]["missing_pairs"]:
                print(f"{peer} did not form; its last words:\n{swarm.errors()}", file=sys.stderr)
                break
    finally:
        run.rules.set([])
        swarm.close()
        shutil.rmtree(folder, ignore_errors=True)
    return found


def _install_serf() -> None:
    print("bench-swim: installing Debian's serf", file=sys.stderr)
    # Outside: the bench's namespace reaches no mirror.
    outside = ["nsenter", "--net=/proc/1/ns/net", "--"] if os.geteuid() == 0 else []
    subprocess.run([*outside, "apt-get", "install", "-y", "-qq", "serf"], stdout=sys.stderr, check=False)


if __name__ == "__main__":
    sys.exit(main())
