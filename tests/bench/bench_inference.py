"""The inference API beside the bare runtime: requests a second, CPU and memory.

    python -m tests.bench.bench_inference [--seconds 3] [--clients 1 4 16]

Shared machines make wall times noisy: a bare loop runs before and after each measurement, in the same seconds, and the
ratios to their mean are what is to be read. CPU is the worker's own, from /proc.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from swarmd_models.bundle import load_bundle
from swarmd_models.detector import Detector, DetectorOptions
from tests.support.inference_worker import Client, Worker, working

NAME = "solar-small-320"
MODEL = "zoo:small-320"
TENSOR = np.random.default_rng(5).integers(-128, 128, (1, 256, 320, 1), np.int8)
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def rss_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1e3


def bare(seconds: float) -> tuple[float, float]:
    """(inferences a second, CPU ms of one) of the runtime in a loop."""
    detector = Detector.open(load_bundle(MODEL), DetectorOptions())
    count, began_s, began = 0, time.process_time(), time.perf_counter()
    while time.perf_counter() - began < seconds:
        np.copyto(detector.backend.input_view(), TENSOR[0])
        detector.backend.infer()
        count += 1
    took = time.perf_counter() - began
    spent_ms = (time.process_time() - began_s) * 1e3
    detector.close()
    return count / took, spent_ms / count


def clients_ask(worker: Worker, clients: int, seconds: float) -> dict[str, Any]:
    """So many clients, each with one request in flight, from a process of their own."""
    before = cpu_s(worker.process.pid)
    command = [sys.executable, "-m", "tests.bench.bench_inference", "--ask", worker.address, str(clients), str(seconds)]
    done = subprocess.run(command, capture_output=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    found["cpu_ms"] = (cpu_s(worker.process.pid) - before) * 1e3 / found["answered"]
    return found


def ask(address: str, clients: int, seconds: float) -> dict[str, float]:
    """The clients' side."""
    times: list[float] = []
    stop = time.perf_counter() + seconds

    def one() -> None:
        client = Client(address)
        while (began := time.perf_counter()) < stop:
            assert client.infer(NAME, TENSOR)[0] == 200
            times.append((time.perf_counter() - began) * 1e3)
        client.close()

    threads = [threading.Thread(target=one) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ordered = sorted(times)
    return {
        "answered": len(ordered),
        "per_s": len(ordered) / seconds,
        "p50_ms": statistics.median(ordered),
        "p99_ms": ordered[int(len(ordered) * 0.99)],
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--ask", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.ask:
        print(json.dumps(ask(args.ask[0], int(args.ask[1]), float(args.ask[2]))))
        return
    rows = []
    with working() as worker:
        worker.load(MODEL)
        for clients in args.clients:
            first = bare(args.seconds)
            row = clients_ask(worker, clients, args.seconds)
            second = bare(args.seconds)
            bare_per_s, bare_cpu_ms = (first[0] + second[0]) / 2, (first[1] + second[1]) / 2
            row |= {
                "clients": clients,
                "bare_per_s": bare_per_s,
                "of_bare": row["per_s"] / bare_per_s,
                "cpu_of_bare": row["cpu_ms"] / bare_cpu_ms,
                "rss_mb": rss_mb(worker.process.pid),
            }
            rows.append({key: round(value, 2) for key, value in row.items()})
            print(json.dumps(rows[-1]))


if __name__ == "__main__":
    main()
