"""What lending costs the lender's own eye: python -m tests.bench.lending_eye [--rounds 6] [--seconds 15]

A device of one core (the first of this machine's) flies a farm at 10 frames a second and lends small-320; borrowers on
another core ask it for more than it can do, in every second window. One JSON row: how long the eye worked on a frame,
all its stages together, in windows without and with borrowed work. On a machine that does other work judge the ratio.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from swarmd_models.bundle import load_bundle
from tests.support.bundles import unhurried
from tests.support.daemons import PlainDaemon, wait_for
from tests.support.paths import ROOT

FARM = "sim://farm?fly=lanes&laps=0&fps=10&of=1"
CLIENTS = 8
SETTLE_S = 2.0
"""Of each window that is left out."""


def at(rows: list[float], share: float) -> float:
    """A quantile."""
    rows = sorted(rows)
    return round(rows[min(len(rows) - 1, int(share * len(rows)))], 2)


def measure(folder: Path, rounds: int, seconds: float) -> dict[str, Any]:
    """One row."""
    model = unhurried(folder / "model")
    digest = load_bundle(model).digest
    times = folder / "frames"

    def device(name: str, core: int, lending: str, models: str) -> PlainDaemon:
        config = folder / f"{name}.toml"
        config.write_text(f"[inference]\nmodels = {models}\n[lending]\n{lending}\n")
        flags = [
            "--dev-fleet",
            str(folder / "fleet"),
            "--name",
            name,
            "--listen",
            "127.0.0.1:0",
            "--inference",
            "127.0.0.1:0",
            "--config",
            str(config),
        ]
        return PlainDaemon(name, folder / name, flags, ["taskset", "-c", str(core)])

    lender = device("lender", 0, "lend = true", json.dumps([model]))
    borrower = device("borrower", 1, "borrow = true", "[]")
    command = lender._command
    command.remove("--no-eye")
    at_swarmd = command.index("swarmd")
    command[at_swarmd : at_swarmd + 1] = ["tests.support.timed_eye_daemon", str(times)]
    command += ["--source", FARM, "--model", "zoo:small-320"]
    client: subprocess.Popen[bytes] | None = None
    windows: dict[bool, list[tuple[int, int]]] = {False: [], True: []}
    try:
        lender.start()
        borrower.start([lender.address])
        wait_for(lambda: digest in ((borrower.status().get("lending") or {}).get("lenders") or {}).get("lender", []),
                 "the offer", 120, borrower.log)  # fmt: skip
        wait_for(lambda: (borrower.status()["inference"] or {}).get("address"), "a worker", 120, borrower.log)
        wait_for(lambda: times.read_text().count("\n") > 20, "frames", 120, lender.log)
        asked = (borrower.status()["inference"]["address"], "solar-small-320", digest, "1000000", str(CLIENTS), "20000")
        before = lender.status()["lending"]["counts"].get("lent_answered", 0)
        for number in range(2 * rounds):
            is_lending = number % 2 == 1
            if is_lending:
                client = subprocess.Popen(
                    ["taskset", "-c", "1", sys.executable, "-m", "tests.support.offload_client", *asked, "yes"],
                    stdout=subprocess.DEVNULL, cwd=ROOT,
                )  # fmt: skip
            began_ns = time.monotonic_ns()
            time.sleep(seconds)
            windows[is_lending].append((began_ns + round(SETTLE_S * 1e9), time.monotonic_ns()))
            if client is not None:
                client.kill()
                client.wait()
                client = None
        lent = lender.status()["lending"]["counts"].get("lent_answered", 0) - before
    finally:
        if client is not None:
            client.kill()
            client.wait()
        borrower.stop()
        lender.stop()
    frames = [json.loads(line) for line in times.read_text().splitlines()]
    found: dict[str, Any] = {"rounds": rounds, "lent": lent, "lent_a_second": round(lent / (rounds * seconds), 1)}
    took = {
        is_lending: [
            row["took_ns"] / 1e6 for row in frames if any(a <= row["at_ns"] <= b for a, b in windows[is_lending])
        ]
        for is_lending in windows
    }
    for is_lending, name in ((False, "alone"), (True, "lending")):
        rows = took[is_lending]
        found[name] = {"frames": len(rows), "p50_ms": at(rows, 0.5), "p99_ms": at(rows, 0.99)}
    for share in (0.5, 0.9, 0.99):
        found[f"p{share * 100:g}_ratio"] = round(at(took[True], share) / at(took[False], share), 3)
    return found


def main() -> int:
    """Print the row."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=15.0)
    options = parser.parse_args()
    if len(os.sched_getaffinity(0)) < 2:
        print("two cores are needed: one for the lender, one for who borrows", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="swarmd-bench-") as folder:
        print(json.dumps(measure(Path(folder), options.rounds, options.seconds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
