"""What a running daemon costs and how fast it is: one JSON object, from real processes on loopback.

    python -m tests.bench.bench_daemon [--nodes 4] [--idle-s 30] [--detections 200]
    python -m tests.bench.bench_daemon --beside ../older       the same of another checkout at the same time, and ratios

CPU time is the scheduler's own account, in nanoseconds. The daemons run from bytecode, as an installed one does: a
checkout that compiles its modules at each start takes some 1 MB more.

- `help_cpu_ms`: CPU of `swarmd --help`, best of five.
- `idle`: brains without an eye, all members met, nothing happening: RSS and CPU of each (median and worst).
- `local_to_peer_ms`: a detection given to one daemon until its object is said by each other daemon; the event lines
carry the
  monotonic clock of this host. One detection at a time on an idle swarm.
- `capture_to_local_ms`, `infer_ms`, `brain_rss_mb`, `eye_rss_mb`, `seeing_cpu_percent`: one daemon with a rendered
farm at 10 frames a second.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from swarmd.api.histogram import Histogram
from tests.support.daemons import Daemon, alive_members, wait_for
from tests.support.paths import ROOT


def main() -> int:
    parser = argparse.ArgumentParser(description="bench of the daemon")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--idle-s", type=float, default=30.0)
    parser.add_argument("--detections", type=int, default=200)
    parser.add_argument("--json", action="store_true", help="accepted; the output is always JSON")
    parser.add_argument("--tree", type=Path, default=ROOT, help="checkout, with its .venv, whose daemons are measured")
    parser.add_argument("--beside", type=Path, help="another checkout, measured at the same time")
    options = parser.parse_args()
    if options.beside is not None:
        return beside(options)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["PYTHONPYCACHEPREFIX"] = cache
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        print(json.dumps(measure(options)))
    return 0


def beside(options: argparse.Namespace) -> int:
    """Measure both checkouts at the same time, so that they have the same share of the machine."""
    own = [sys.executable, "-m", "tests.bench.bench_daemon", "--nodes", str(options.nodes)]
    own += ["--idle-s", str(options.idle_s), "--detections", str(options.detections), "--tree"]
    trees = (ROOT, options.beside)
    runs = [subprocess.Popen([*own, str(tree)], stdout=subprocess.PIPE, cwd=ROOT) for tree in trees]
    ours, theirs = (json.loads(run.communicate()[0]) for run in runs)
    print(json.dumps({"this": ours, "beside": theirs, "ratios": dict(ratios(ours, theirs))}))
    return 0


def ratios(ours: dict[str, Any], theirs: dict[str, Any], path: str = "") -> Iterator[tuple[str, float]]:
    """Of every figure that both have, this one over the other."""
    for name, value in ours.items():
        other = theirs.get(name)
        if isinstance(value, dict) and isinstance(other, dict):
            yield from ratios(value, other, f"{path}{name}.")
        elif isinstance(value, float) and isinstance(other, float) and other:
            yield f"{path}{name}", round(value / other, 3)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Every figure of one checkout."""
    Measured.tree = options.tree.resolve()
    with tempfile.TemporaryDirectory() as folder:
        Measured(Path(folder), "warm", "--no-eye").up().close()  # Its bytecode is written.
    result: dict[str, Any] = {"bench": "daemon", "nodes": options.nodes, "help_cpu_ms": help_cpu_ms(Measured.tree)}
    with tempfile.TemporaryDirectory() as folder:
        result |= swarm(Path(folder), options)
    with tempfile.TemporaryDirectory() as folder:
        result |= seeing(Path(folder))
    result["bars"] = {
        "help_cpu_ms <= 150": result["help_cpu_ms"] <= 150,
        "idle brain rss <= 40 MB": result["idle"]["rss_mb"]["worst"] <= 40,
        "idle brain cpu <= 1.5 %": result["idle"]["cpu_percent"]["median"] <= 1.5,
        "local_to_peer p50 <= 5 ms": result["local_to_peer_ms"]["p50"] <= 5,
        "local_to_peer p99 <= 50 ms": result["local_to_peer_ms"]["p99"] <= 50,
        "seeing brain rss <= 40 MB": result["brain_rss_mb"] <= 40,
        "eye rss <= 110 MB": result["eye_rss_mb"] <= 110,
    }
    return result


class Measured(Daemon):
    """A daemon of the checkout that is measured."""

    tree: ClassVar[Path] = ROOT

    def start(self) -> None:
        self.spawn([python_of(self.tree), *self.command[1:]], directory=self.tree)


def python_of(tree: Path) -> str:
    """The interpreter that runs a checkout."""
    return sys.executable if tree == ROOT else str(tree / ".venv" / "bin" / "python")


def help_cpu_ms(tree: Path) -> float:
    costs = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([python_of(tree), "-m", "swarmd", "--help"], check=True, capture_output=True, cwd=tree)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        costs.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return round(min(costs) * 1000, 1)


def swarm(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    quiet = ("--no-eye", "--log-level", "warning")
    daemons: list[Daemon] = [Measured(folder, "n0", *quiet).up()]
    address = daemons[0].status()["address"]
    try:
        daemons += [Measured(folder, f"n{i}", *quiet, join=address) for i in range(1, options.nodes)]
        wait_for(lambda: all(alive_members(d) == options.nodes for d in daemons), "all members", 60)
        time.sleep(3)  # The joins' gossip ends.
        return {"idle": idle(daemons, options.idle_s), "local_to_peer_ms": local_to_peer(daemons, options.detections)}
    finally:
        for daemon in daemons:
            daemon.close()


def idle(daemons: list[Daemon], seconds: float) -> dict[str, Any]:
    pids = [daemon.process.pid for daemon in daemons if daemon.process is not None]
    before = [cpu_s(pid) for pid in pids]
    time.sleep(seconds)
    percent = [(cpu_s(pid) - old) / seconds * 100 for pid, old in zip(pids, before, strict=True)]
    return {"cpu_percent": spread(percent), "rss_mb": spread([rss_mb(pid) for pid in pids]), "seconds": seconds}


def local_to_peer(daemons: list[Daemon], count: int) -> dict[str, Any]:
    for number in range(count):
        row = {
            "label": "bench", "score": 0.9, "east_m": 20.0 * (number % 50), "north_m": 20.0 * (number // 50),
            "covariance_m2": [0.01, 0.0, 0.01], "track": f"t{number}", "event": "new",
        }  # fmt: skip
        daemons[number % len(daemons)].ask("observe", detections=[row])
        time.sleep(0.12)
    wait_for(lambda: all(d.status()["objects"] == count for d in daemons), "all objects everywhere", 30)
    first: dict[str, list[int]] = {}
    for daemon in daemons:
        for event in daemon.events():
            if event["event"] == "object" and event["kind"] == "new":
                first.setdefault(event["subject"], []).append(event["t_ns"])
    histogram = Histogram()
    for times in first.values():
        for later in sorted(times)[1:]:
            histogram.add(later - min(times))
    return {**histogram.summary_ms(), "max": round(histogram.max_ns / 1e6, 3), "samples": histogram.count}


def seeing(folder: Path) -> dict[str, Any]:
    source = "sim://farm?seed=7&fly=lanes&laps=0&fps=10"
    flags = ("--source", source, "--model", "zoo:small-320", "--set", "node.origin=-18.8856864,-70.1124341")
    daemon = Measured(folder, "seeing", *flags).up()
    try:
        wait_for(lambda: daemon.status()["eye"]["frames"] > 20, "frames", 60)
        assert daemon.process is not None
        eye = daemon.status()["eye"]["pid"]
        began, brain_cpu, eye_cpu = time.monotonic(), cpu_s(daemon.process.pid), cpu_s(eye)
        time.sleep(20)
        took = time.monotonic() - began
        stages = daemon.ask("latency")
        return {
            "seeing_cpu_percent": {
                "brain": round((cpu_s(daemon.process.pid) - brain_cpu) / took * 100, 2),
                "eye": round((cpu_s(eye) - eye_cpu) / took * 100, 2),
            },
            "brain_rss_mb": rss_mb(daemon.process.pid),
            "eye_rss_mb": rss_mb(eye),
            "fps": daemon.status()["fps"],
            **{
                f"{name}_ms": stage_ms(stages[name])
                for name in ("infer", "capture_to_local", "handle", "commit")
                if name in stages
            },
        }
    finally:
        daemon.close()


def stage_ms(one: dict[str, Any]) -> dict[str, Any]:
    histogram = Histogram()
    histogram.merge({int(index): count for index, count in one["buckets"].items()}, one["sum_ns"], one["max_ns"])
    return histogram.summary_ms()


def spread(values: list[float]) -> dict[str, float]:
    return {"median": round(statistics.median(values), 3), "worst": round(max(values), 3)}


def cpu_s(pid: int) -> float:
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def rss_mb(pid: int) -> float:
    return round(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize() / 1e6, 1)


if __name__ == "__main__":
    sys.exit(main())
