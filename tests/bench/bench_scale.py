"""What a device pays as its swarm grows: `solar-farm-20` with N drones, bytes and packets a node by kind, CPU.

Prints one JSON object; with `--out` it writes that as `scale.json` and a plot as `scale.svg` there. `make bench-scale`.
With `--before` an earlier `scale.json` stands beside it. `make bench-sim-compiled` makes a copy with which the large
sizes take half the time: PYTHONPATH=out/compiled python -m tests.bench.bench_scale --here 500 > 500.json, then
`--taken 500.json`.
Bytes, packets and what was found depend on the seed alone; CPU seconds depend on the machine.
"""

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

SIZES = (20, 50, 100)
"""What a quarter of an hour allows; 200 and 500 are asked for by hand."""
BYTES_S, PACKETS_S, TOLERANCE = 2_500, 20, 1.2
"""The bar for each node, at every size alike."""
KEPT = (
    "nodes",
    "seed",
    "bytes_per_node_s",
    "packets_per_node_s",
    "events",
    "cpu_s",
    "distinct_lost",
    "false",
    "recall",
)
"""What is kept of an earlier version's rows."""


GROUPS = {
    "probes": ("Ping", "Ack", "PingReq", "Indirect"),
    "members": ("Record", "Alive", "Hello"),
    "verdicts": ("Accusation", "Links"),
    "events": ("SignedEvent", "CertifiedEvent"),
    "comparisons": ("Sections", "Fingerprints", "Want", "Buckets", "EventVector"),
}
"""What membership says, by what it is for; all else of it is `rest`."""


PAIR_HEAD_BYTES, GROUP_HEAD_BYTES = 9, 29
"""Before what is sealed: kind, tag and counter of a pair's frame; kind, counter and nonce of one for all."""
PAIR_NONCE = bytes(19)
"""What the nonces of pairs' frames begin with; those of frames for all are hashes."""


def count_messages(bytes_by: Counter[str], messages_by: Counter[str]) -> None:
    """From now on book what each frame holds: messages by group, what wraps payloads (`heads`) and the seal."""
    from swarmd_protocols.crypto import ModelCrypto
    from swarmd_protocols.swim import messages as wire
    from swarmd_sim.run import node_factory

    tags = {
        kind.__struct_config__.tag: kind.__name__
        for kind in vars(wire).values()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__struct_config__.tag is not None
    }
    group_of = {name: group for group, names in GROUPS.items() for name in names}

    def book(body: bytes, around_bytes: int) -> None:
        bytes_by["seals"] += around_bytes
        messages_by["seals"] += 1
        for message in msgspec.msgpack.decode(body):
            size, name = len(msgspec.msgpack.encode(message)), tags[message[0]]
            group = group_of.get(name, "rest")
            if name == "Sub":
                # Payloads of the state are booked by the state itself.
                bytes_by["heads"] += size - len(message[2])
                group, size = ("state" if message[1] == "state" else "rest"), len(message[2])
            bytes_by[group] += size
            messages_by[group] += 1

    class Counted:
        """The simulation's arithmetic, with what it seals booked: also where the rest is compiled, and bound early."""

        def __init__(self) -> None:
            self._crypto = ModelCrypto()
            for name in ("sign", "verify", "open", "share", "public_key", "shared_key"):
                setattr(self, name, getattr(self._crypto, name))

        def __getattr__(self, name: str) -> Any:
            return getattr(self._crypto, name)

        def seal(self, key: bytes, nonce: bytes, body: bytes) -> bytes:
            sealed = self._crypto.seal(key, nonce, body)
            head_bytes = PAIR_HEAD_BYTES if nonce.startswith(PAIR_NONCE) else GROUP_HEAD_BYTES
            book(body, head_bytes + len(sealed) - len(body))
            return sealed

    node_factory.ModelCrypto = Counted  # type: ignore[misc, assignment]


def run_size(nodes: int, seed: int) -> dict[str, Any]:
    """One size, in this process."""
    from swarmd_sim.run import engine
    from swarmd_sim.run.scenario import load_scenario
    from swarmd_sim.run.simulation import Simulation

    bytes_by: Counter[str] = Counter()
    messages_by: Counter[str] = Counter()
    count_messages(bytes_by, messages_by)
    figures: dict[str, Any] = Simulation(load_scenario("solar-farm-20", {"swarm.nodes": nodes}), seed).run().figures
    truth, claims = figures["truth"], figures["claims"]
    return {
        "nodes": nodes,
        "seed": seed,
        "bytes_per_node_s": figures["bytes_per_node_s"],
        "packets_per_node_s": figures["packets_per_node_s"],
        "by_kind": figures["by_kind"],
        "by_message": {
            group: {
                "bytes": round(size / figures["virtual_s"] / nodes, 1),
                "messages": round(messages_by[group] / figures["virtual_s"] / nodes, 2),
            }
            for group, size in sorted(bytes_by.items())
        },
        "events": figures["events"],
        "cpu_s": figures["cpu_s"],
        "us_per_event": round(figures["cpu_s"] / figures["events"] * 1e6, 1),
        "virtual_by_cpu": round(figures["virtual_s"] / figures["cpu_s"], 2),
        "detection_s": figures["detection_s"],
        "recall": truth["recall"],
        "distinct_lost": truth["distinct_lost"],
        "false": truth["false"],
        "false_alarms": truth["false_alarms"],
        "cells_done": f"{claims['done']} of {claims['cells']}",
        "makespan_s": claims["makespan_s"],
        "violations": figures["violations"],
        "compiled": str(engine.__file__).endswith(".so"),
        "load": round(os.getloadavg()[0], 1),
        "trace_digest": figures["trace_digest"],
    }


def plot(rows: list[dict[str, Any]], before: list[dict[str, Any]]) -> str:
    """Bytes a node and second over the number of nodes: all of it, what it was, and by group."""
    from swarmd_sim.report.svg import line_chart

    groups = sorted(rows[0]["by_message"], key=lambda group: -rows[-1]["by_message"][group]["bytes"])[:5]
    series = {"all": [(row["nodes"], row["bytes_per_node_s"]) for row in rows]}
    if before:
        series["all, before"] = [(row["nodes"], row["bytes_per_node_s"]) for row in before]
    series |= {
        group: [(row["nodes"], row["by_message"].get(group, {"bytes": 0})["bytes"]) for row in rows] for group in groups
    }
    return line_chart("What a device pays as its swarm grows", "nodes", "B/s a node", series)


def run_apart(nodes: int, seed: int) -> dict[str, Any]:
    """One size, in a process of its own."""
    command = [sys.executable, "-m", "tests.bench.bench_scale", "--here", str(nodes), "--seed", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    row: dict[str, Any] = json.loads(done.stdout)
    return row


def main() -> int:
    """Run the sizes, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="*", default=list(SIZES))
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--out", type=Path, help="folder for scale.json and scale.svg")
    parser.add_argument("--before", type=Path, help="scale.json of an earlier version, to stand beside this one")
    parser.add_argument("--taken", type=Path, nargs="*", default=[], help="rows that --here has printed elsewhere")
    parser.add_argument("--here", type=int, help="one size, in this process: how a compiled copy takes the large ones")
    args = parser.parse_args()
    if args.here:
        print(json.dumps(run_size(args.here, args.seed)))
        return 0
    document: dict[str, Any] = {
        "scenario": "solar-farm-20",
        "bars": {"bytes_per_node_s": BYTES_S, "packets_per_node_s": PACKETS_S, "tolerance": TOLERANCE},
        "rows": [],
    }
    if args.before:
        earlier = json.loads(args.before.read_text(encoding="utf-8"))["rows"]
        document["before"] = [{key: row[key] for key in KEPT} for row in earlier]
    taken = [json.loads(path.read_text(encoding="utf-8")) for path in args.taken]
    for nodes in sorted({*args.nodes, *(row["nodes"] for row in taken)}):
        rows = [row for row in taken if row["nodes"] == nodes]
        document["rows"] += rows or [run_apart(nodes, args.seed)]
        if args.out:
            # After each size: the large ones take long, and a run that is stopped has shown the others.
            args.out.mkdir(parents=True, exist_ok=True)
            (args.out / "scale.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
            (args.out / "scale.svg").write_text(plot(document["rows"], document.get("before", [])), encoding="utf-8")
    print(json.dumps(document))
    return 0


if __name__ == "__main__":
    sys.exit(main())
