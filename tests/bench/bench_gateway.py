"""What a real gateway has more than a plain member, in a swarm of a hundred real daemons: memory, CPU, delay. JSON.

    python -m tests.bench.bench_gateway --nodes 100
    python -m tests.bench.bench_gateway --nodes 100 --pipe mqtt --every 0.5

One region and two routers (or brokers), processes as in the field. `swarmd gateway` and a plain `swarmd run` with the
same configuration are started alike, from their command lines, and read by turns of nothing: their CPU is the
scheduler's own account over the same seconds, their memory what each has for itself alone (`Private` of smaps_rollup)
and resident. The other members are daemons too, forked from one process that has loaded the program, so that a hundred
of them start on a small machine; they gossip over UDP on loopback. First nothing happens, then two of them see a new
thing every `--every` seconds. In the end every thing must be readable at the region; `delay_s` is from the second
sighting on. Other load makes caches colder and CPU figures larger: `load` says how much there was.
"""

import argparse
import contextlib
import ctypes
import gc
import json
import os
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from swarmd.api.control import ControlClient
from swarmd.errors import ControlError, DaemonError
from swarmd.federation.store import FILE_NAME
from tests.bench.bench_federation import Process, free_port, start_pipe

WAIT_S = 420.0
"""Seconds until a step must be over: a hundred daemons that start on two busy cores."""
APART_M = 40.0
_PR_SET_PDEATHSIG = 1
_WORDS = ("-m", "swarmd")


def cpu_s(pid: int) -> float:
    """CPU of all threads of a process, seconds, by the scheduler's nanoseconds."""
    return (
        sum(
            int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text().split()[0])
            for task in os.listdir(f"/proc/{pid}/task")
        )
        / 1e9
    )


def memory_mb(pid: int) -> dict[str, float]:
    """Resident memory, and what of it is the process's alone, MB."""
    sums = {"resident": 0, "private": 0}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name == "Rss":
            sums["resident"] += int(rest.split()[0])
        elif name.startswith("Private_"):
            sums["private"] += int(rest.split()[0])
    return {name: round(kib * 1024 / 1e6, 1) for name, kib in sums.items()}


def call(control: Path, verb: str, **arguments: object) -> Mapping[str, Any]:
    with ControlClient(control) as client:
        return client.call(verb, **arguments)


def until(ask: Callable[[], Any], what: str) -> Any:
    """Ask until the answer is true; returns it."""
    deadline = time.monotonic() + WAIT_S
    while True:
        with contextlib.suppress(ControlError, DaemonError, OSError, sqlite3.Error):
            if found := ask():
                return found
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {WAIT_S:.0f} s for {what}")
        time.sleep(0.5)


class Swarm:
    """The daemons of one swarm."""

    def __init__(self, folder: Path, profile: str) -> None:
        self.folder = folder
        self.children: list[int] = []
        self.file = folder / "swarm.toml"
        self.file.write_text(
            '[node]\norigin = [47.39, 8.54]\n[log]\nlevel = "error"\nformat = "text"\n[http]\nlisten = "off"\n'
            f'[gossip]\nprofile = "{profile}"\n'
        )

    def words(self, name: str, join: str) -> list[str]:
        words = ["-c", str(self.file), "--dev-fleet", str(self.folder / "fleet"), "--name", name]
        words += ["--listen", "127.0.0.1:0", "--state", str(self.folder / name), "--control", str(self.control(name))]
        return [*words, *(("--join", join) if join else ())]

    def control(self, name: str) -> Path:
        return self.folder / f"{name}.sock"

    def fork(self, name: str, join: str) -> None:
        """A member that shares the program's pages with this process."""
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.setsid()
                ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # Whatever becomes of the bench.
                null = os.open(os.devnull, os.O_RDWR)
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                for stream in (0, 1, 2):
                    os.dup2(null, stream)
                from swarmd.cli.main import main as swarmd

                status = swarmd(["run", *self.words(name, join)])
            finally:
                os._exit(status)
        self.children.append(pid)

    def end(self) -> None:
        for pid in self.children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _knows(control: Path, nodes: int) -> bool:
    return list(call(control, "status")["members"].values()).count("alive") >= nodes


def readable(region: Path) -> dict[int, int]:
    """Thing to when the region learnt of it, milliseconds since 1970."""
    with contextlib.closing(sqlite3.connect(f"file:{region / FILE_NAME}?mode=ro", uri=True)) as file:
        rows = file.execute("SELECT east_m, min(learned_ms) FROM objects WHERE tier != 'candidate' GROUP BY object")
        return {round(east_m / APART_M): learned_ms for east_m, learned_ms in rows if east_m is not None}


def see(swarm: Swarm, thing: int) -> float:
    """Two members see a new thing; returns when the second has."""
    row = {"label": "hot-spot", "score": 0.9, "east_m": thing * APART_M, "north_m": 5.0, "track": f"t{thing}"}
    for name in ("n0", "n1"):
        call(swarm.control(name), "observe", detections=[{**row, "covariance_m2": [0.04, 0, 0.04]}])
    return time.time()


def measure(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All of it; returns the figures."""
    region, swarm, others = folder / "region", Swarm(folder, args.profile), list[Process]()
    try:
        key = _run("region", "init", str(region))
        _run("region", "pin", str(region), "farm", "--dev-fleet", str(folder / "fleet"))
        ports = [free_port(), free_port()]
        paths = [f"{args.pipe}://127.0.0.1:{port}" for port in ports]
        others += [start_pipe(args.pipe, port, folder) for port in ports]
        named = [word for path in paths for word in ("--path", path)]
        others.append(Process(sys.executable, *_WORDS, "region", "run", str(region), *named))
        plain = Process(sys.executable, *_WORDS, "run", *swarm.words("plain", ""))
        others.append(plain)
        join = until(lambda: str(call(swarm.control("plain"), "status")["address"]), "the first member")
        gateway = Process(sys.executable, *_WORDS, "gateway", *swarm.words("gw", join), "--region-key", key, *named)
        others.append(gateway)
        began = time.monotonic()
        for number in range(args.nodes - 2):
            swarm.fork(f"n{number}", join)
            time.sleep(args.stagger)
        for name in ("plain", "gw"):
            until(partial(_knows, swarm.control(name), args.nodes), f"{name} to know {args.nodes} members")
        until(lambda: call(swarm.control("gw"), "status")["gateway"]["works"], "the gateway to be heard above")
        formed_s = time.monotonic() - began
        time.sleep(args.settle)
        pids = {"gateway": gateway.process.pid, "plain": plain.process.pid}
        figures: dict[str, Any] = {"formed_s": round(formed_s, 1)}

        def window(work: Callable[[], None]) -> dict[str, float]:
            before, at_s = {name: cpu_s(pid) for name, pid in pids.items()}, time.monotonic()
            work()
            took_s = time.monotonic() - at_s
            used = {name: 100 * (cpu_s(pid) - before[name]) / took_s for name, pid in pids.items()}
            return {**{name: round(one, 2) for name, one in used.items()},
                    "adds": round(used["gateway"] - used["plain"], 2)}  # fmt: skip

        figures["idle_percent"] = window(lambda: time.sleep(args.seconds))
        said: dict[int, float] = {}

        def work() -> None:
            for thing in range(int(args.seconds / args.every)):
                due_s = time.monotonic() + args.every
                said[thing] = see(swarm, thing)
                time.sleep(max(0.0, due_s - time.monotonic()))

        figures["working_percent"] = window(work)
        until(lambda: len(readable(region)) >= len(said), "everything to be readable above")
        held = {name: memory_mb(pid) for name, pid in pids.items()}
        delays = sorted(max(0.0, at_ms / 1000 - said[thing]) for thing, at_ms in readable(region).items())
        return {
            **figures,
            "memory_mb": held,
            "adds_mb": {kind: round(held["gateway"][kind] - held["plain"][kind], 1) for kind in held["plain"]},
            "said": len(said),
            "readable": len(delays),
            "delay_s": {name: round(delays[int(share * (len(delays) - 1))], 3)
                        for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))},
            "gateway": {name: call(swarm.control("gw"), "status")["gateway"][name] for name in ("frames", "bytes")},
        }  # fmt: skip
    finally:
        swarm.end()
        for one in others:
            one.end()


def _run(*words: str) -> str:
    """A short command of its own."""
    import subprocess

    return subprocess.run([sys.executable, *_WORDS, *words], check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--nodes", type=int, default=100, help="members, gateway and plain one among them")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each of the two windows")
    parser.add_argument("--every", type=float, default=1.0, metavar="S", help="a new thing every S seconds")
    parser.add_argument("--settle", type=float, default=20.0, metavar="S", help="after all have met")
    parser.add_argument("--stagger", type=float, default=0.2, metavar="S", help="between two starts")
    parser.add_argument("--profile", default="lan", help="gossip.profile of all, gateway and plain one alike")
    parser.add_argument("--pipe", choices=["mqtt", "zenoh"], default="zenoh")
    args = parser.parse_args()
    # Loaded once, before the forks: nothing here has threads or an event loop yet.
    import swarmd.brain.brain
    import swarmd.cli.main
    import swarmd.cli.run
    import swarmd.config.loading  # noqa: F401

    gc.collect()
    gc.freeze()
    folder = Path(tempfile.mkdtemp(prefix="swarmd-gw-"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        figures = {**vars(args), **measure(args, folder), "load": round(os.getloadavg()[0], 1)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
