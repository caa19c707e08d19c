"""The inference API beside Triton, KServe's server, MLServer and Ray Serve, and a bare loop of the same runtime.

    python -m tests.bench.bench_servers [--seconds 4] [--rounds 2] [--clients 1 4 16] [--only ours kserve …]

The same graph (small-320, INT8, one thread), asked by NVIDIA's `tritonclient` from a process of its own, over HTTP and
gRPC. One server at a time; the bare loop runs before and after each measurement, and what is to be read is the ratio to
the mean of the two. CPU and memory are of the server's whole tree of processes.

Each server is installed into an environment of its own, `.venv-servers/NAME`, from `requirements/servers/NAME.lock`;
one that cannot be installed or does not start is a row with the reason. Makes 3 GB of environments.
"""

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from swarmd.worker import words
from swarmd_models.bundle import load_bundle
from tests.bench.bench_inference import MODEL, bare
from tests.support.inference_worker import working
from tests.support.paths import ROOT

HERE = Path(__file__).parent / "servers"
LOCKS = ROOT / "requirements" / "servers"
HOMES = ROOT / ".venv-servers"
SERVERS = {"pytriton": "Triton (pytriton)", "kserve": "KServe", "mlserver": "MLServer", "ray": "Ray Serve"}
WAYS = {"ray": ("http",)}
"""Where not both; see `servers/run_ray.py`."""
START_S = 300.0
INSTALL_S = 1800.0
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def pythons() -> list[str]:
    """Pythons to make an environment with; Triton's Python backend wants one that has its shared library."""
    system = shutil.which("python3.11", path="/usr/bin")
    return [one for one in (system, getattr(sys, "_base_executable", None) or sys.executable) if one]


def installed(name: str) -> tuple[Path, str]:
    """The Python of an environment that holds what a lock names, and why there is none."""
    lock, home = LOCKS / f"{name}.lock", HOMES / name
    mark = home / f".{hashlib.sha256(lock.read_bytes()).hexdigest()[:16]}"
    python = home / "bin" / "python"
    if mark.exists():
        return python, ""
    said = ""
    for base in pythons():
        shutil.rmtree(home, ignore_errors=True)
        made = subprocess.run([base, "-m", "venv", str(home)], capture_output=True, text=True, check=False)
        if made.returncode:
            said = last_line(made.stdout + made.stderr)
            continue
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
        try:
            done = subprocess.run(
                [*command, "-r", str(lock)], capture_output=True, text=True, check=False, timeout=INSTALL_S
            )
        except subprocess.TimeoutExpired:
            return python, f"not installed after {INSTALL_S:.0f} s"
        if not done.returncode:
            mark.touch()
            return python, ""
        said = last_line(done.stderr)
    return python, f"cannot be installed here: {said}"


def last_line(text: str) -> str:
    """What was said last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def free_ports(count: int) -> list[int]:
    """Ports that nobody has just now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def tree(pid: int) -> dict[int, str]:
    """A process and all below it, with the moments they began."""
    parents: dict[int, list[int]] = {}
    began: dict[int, str] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                parents.setdefault(int(fields[1]), []).append(int(folder.name))
                began[int(folder.name)] = fields[19]
    found, left = {}, [pid]
    while left:
        one = left.pop()
        if one in began:
            found[one] = began[one]
            left += parents.get(one, [])
    return found


def cpu_s(pids: dict[int, str]) -> float:
    """Processor time of them so far."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total * _TICK_S


def rss_mb(pids: dict[int, str]) -> float:
    """Memory of them, what they share counted once (PSS) where the kernel tells it."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1e3


def ask(protocol: str, port: int, model: str, clients: int, seconds: float) -> dict[str, Any]:
    """What so many clients got."""
    python, reason = installed("client")
    if reason:
        return {"reason": reason}
    command = [str(python), str(HERE / "ask.py"), protocol, f"127.0.0.1:{port}", model, str(clients), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds + 120)
    said = done.stdout.splitlines()[-1:]
    return json.loads(said[0]) if said and said[0].startswith("{") else {"reason": last_line(done.stderr)}


def is_ready(port: int) -> bool:
    """Whether a server tells of the model over HTTP."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/models/small-320", timeout=2) as answer:
            return bool(answer.status == 200)
    except (OSError, ValueError):
        return False


@contextlib.contextmanager
def serving(name: str, graph: Path) -> Iterator[tuple[int, int, int]]:
    """Its process and its two ports; ValueError says why there is none. All that it started is ended."""
    python, reason = installed(name)
    if reason:
        raise ValueError(reason)
    http, grpc = free_ports(2)
    with tempfile.TemporaryDirectory(prefix=f"bench-{name}-") as folder:
        log = Path(folder, "log")
        with log.open("w") as file:
            process = subprocess.Popen(
                [str(python), str(HERE / f"run_{name}.py"), str(graph), str(http), str(grpc)],
                stdout=file, stderr=subprocess.STDOUT, cwd=folder,
                env={
                    **os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "TMPDIR": folder,
                    "PYTRITON_NO_TELEMETRY": "1",
                    # On loopback, for this one bench: nobody is to be kept out, and no home of a user written to.
                    "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", "RAY_TMPDIR": folder,
                    # Its proxy is ended, else, where a busy machine starts it in more than five seconds.
                    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60", "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "60",
                },
            )  # fmt: skip
        try:
            until = time.monotonic() + START_S
            while not is_ready(http):
                if process.poll() is not None:
                    raise ValueError(f"does not start here: {complaint(log.read_text(errors='replace'))}")
                if time.monotonic() > until:
                    raise ValueError(f"not ready after {START_S:.0f} s: {last_line(log.read_text(errors='replace'))}")
                time.sleep(0.5)
            yield process.pid, http, grpc
        finally:
            below = tree(process.pid)
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            for pid, began in below.items():  # Whatever it has left, if it still is the same process.
                if tree(pid).get(pid) == began and pid != process.pid:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            process.kill()
            process.wait()


def complaint(text: str) -> str:
    """The last line that names an error, else the last one."""
    lines = [line for line in text.splitlines() if "error" in line.lower()]
    return last_line(lines[-1] if lines else text)


@contextlib.contextmanager
def ours(graph: Path) -> Iterator[tuple[int, int, int]]:
    """Our worker, and its ports."""
    with working(grpc="127.0.0.1:0") as worker:
        worker.load(MODEL)
        grpc = next(word.grpc for word in worker.said if isinstance(word, words.Serving) and word.grpc)
        yield worker.process.pid, int(worker.address.rpartition(":")[2]), int(grpc.rpartition(":")[2])


def measured(name: str, graph: Path, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A row for each way and number of clients."""
    title = SERVERS.get(name, "swarmd")
    try:
        with ours(graph) if name == "ours" else serving(name, graph) as (pid, http, grpc):
            for protocol in WAYS.get(name, ("http", "grpc")):
                port = http if protocol == "http" else grpc
                model = "solar-small-320" if name == "ours" else "small-320"
                for clients in args.clients:
                    yield row_of(title, protocol, clients, pid, port, model, args)
    except ValueError as error:
        yield {"server": title, "reason": str(error)}


def row_of(
    title: str, protocol: str, clients: int, pid: int, port: int, model: str, args: argparse.Namespace
) -> dict[str, Any]:
    """Some rounds, and their median."""
    rounds: list[dict[str, float]] = []
    for _ in range(args.rounds):
        first = bare(args.seconds / 2)
        pids = tree(pid)
        before = cpu_s(pids)
        found = ask(protocol, port, model, clients, args.seconds)
        if "reason" in found:
            return {"server": title, "protocol": protocol, "clients": clients, "reason": found["reason"]}
        spent_ms = (cpu_s(tree(pid)) - before) * 1e3 / found["answered"]
        second = bare(args.seconds / 2)
        bare_per_s, bare_ms = (first[0] + second[0]) / 2, (first[1] + second[1]) / 2
        rounds.append({
            "per_s": found["per_s"], "p50_ms": found["p50_ms"], "p99_ms": found["p99_ms"], "bare_per_s": bare_per_s,
            "of_bare": found["per_s"] / bare_per_s, "cpu_ms": spent_ms, "cpu_of_bare": spent_ms / bare_ms,
            "pss_mb": rss_mb(tree(pid)),
        })  # fmt: skip
    row = {key: round(statistics.median(one[key] for one in rounds), 2) for key in rounds[0]}
    return {"server": title, "protocol": protocol, "clients": clients, **row, "load": round(os.getloadavg()[0], 1)}


def rows(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Of each server that is wanted."""
    graph = load_bundle(MODEL).model_path
    for name in args.only:
        yield from measured(name, graph, args)


def options() -> argparse.ArgumentParser:
    """Of the command."""
    names = ("ours", *SERVERS)
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--only", nargs="+", choices=names, default=list(names))
    return parser


def main() -> int:
    """Print a row a case."""
    for row in rows(options().parse_args()):
        print(json.dumps(row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
