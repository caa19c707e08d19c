"""The gate against slow creeping: the eye's and a datagram's cost in this tree, beside an earlier revision's.

    python -m tests.bench.gate [--from v0.1.0] [--pairs 15]        `make bench-gate FROM=v0.1.0`

Both trees do the same batches of work in turn (A B, B A, A B, …), each in a process of its own that stays, so that
whatever else the machine does meets both alike. A pair gives a ratio of CPU time for a frame or a datagram; the median
of the pairs is judged, and so is whether a unit of work waits (a sleep or a lock costs no CPU, but it is counted by the
kernel as a wait). What is over its bar is measured once more, with twice the pairs, before it counts.

Without `--from` the earlier revision is what `make test-upgrade` takes: the newest tag before this revision that speaks
its wire, else the oldest revision with its golden vectors. Prints JSON. Ends with 1 where a bar is broken; with 0 and a
sentence where there is no history, or where the earlier revision cannot do the work that this one measures.
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support import older
from tests.support.paths import ROOT

KINDS = ("eye", "datagram")
RATIO_MAX = 1.25
"""CPU time of this tree over the earlier one's. Two equal trees differ by some 3 % in the median of 15 pairs on a busy
machine; a tenth more of everything is what a feature may cost."""
WAITS_MAX = 0.05
"""Waits for each unit of work that this tree may have more than the earlier one: neither has any where all is well."""
WORKER = "tests/bench/gate_worker.py"


class Incomparable(Exception):
    """The earlier revision cannot do what is measured."""


class Worker:
    """One tree's process."""

    def __init__(self, tree: Path) -> None:
        rooms = [str(tree), *(str(tree / room) for room in ("protocols", "models", "sim"))]
        # -P: the current folder is not imported from; the folders given come before any editable install.
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(rooms), "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(tree / WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            text=True,
        )

    def batch(self, kind: str) -> dict[str, Any]:
        """What a batch cost.

        Raises:
            Incomparable: The tree cannot do it.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        line = ""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(kind + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        if not line:
            raise Incomparable(self._process.stderr.read()[-2000:])
        told: dict[str, Any] = json.loads(line)
        return told

    def close(self) -> None:
        self._process.kill()
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate()


@dataclass(frozen=True)
class Verdict:
    """How one kind of work compares."""

    kind: str
    ratio: float
    waits: float
    cpu_us: tuple[float, float]
    """CPU microseconds of a unit: earlier, this."""

    @property
    def problems(self) -> list[str]:
        told = []
        if self.ratio > RATIO_MAX:
            told.append(f"{self.kind}: {self.ratio:.2f} times the CPU of the earlier revision (at most {RATIO_MAX})")
        if self.waits > WAITS_MAX:
            told.append(f"{self.kind}: waits {self.waits:.2f} times more for each (at most {WAITS_MAX})")
        return told


def compare(kind: str, earlier: Worker, this: Worker, pairs: int) -> Verdict:
    """Measure one kind of work in both trees, in turn."""
    ratios: list[float] = []
    costs: tuple[list[float], list[float]] = ([], [])
    waits = [0.0, 0.0]
    for pair in range(pairs):
        order = (0, 1) if pair % 2 == 0 else (1, 0)
        cost = [0.0, 0.0]
        for side in order:
            told = (earlier, this)[side].batch(kind)
            cost[side] = told["cpu_ns"] / told["units"]
            waits[side] += told["waits"] / told["units"] / pairs
        ratios.append(cost[1] / cost[0])
        costs[0].append(cost[0])
        costs[1].append(cost[1])
    median = [round(statistics.median(side) / 1000, 2) for side in costs]
    return Verdict(kind, statistics.median(ratios), waits[1] - waits[0], (median[0], median[1]))


def judge(earlier_tree: Path, this_tree: Path, pairs: int) -> list[Verdict]:
    """All kinds of work; what breaks a bar has been measured twice."""
    found = []
    for kind in KINDS:
        earlier, this = Worker(earlier_tree), Worker(this_tree)
        try:
            verdict = compare(kind, earlier, this, pairs)
            if verdict.problems:
                verdict = compare(kind, earlier, this, 2 * pairs)
            found.append(verdict)
        finally:
            earlier.close()
            this.close()
    return found


def earlier_tree(revision: str, folder: Path) -> Path:
    """An earlier revision, laid out to be measured; one that does not know this measure gets this tree's."""
    tree = older.lay_out(revision, folder, "tests/support", "pyproject.toml")
    (tree / "tests/bench").mkdir(parents=True)
    shutil.copy(ROOT / WORKER, tree / WORKER)
    return tree


def main() -> int:
    """Measure and say; 1 where a bar is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="revision", default="")
    parser.add_argument("--pairs", type=int, default=15)
    arguments = parser.parse_args()
    if arguments.revision:
        os.environ["SWARMD_UPGRADE_FROM"] = arguments.revision
    with tempfile.TemporaryDirectory() as folder:
        try:
            revision = older.to_roll_from()
            verdicts = judge(earlier_tree(revision, Path(folder) / "earlier"), ROOT, arguments.pairs)
        except older.NoSuchRevision as problem:
            parser.error(str(problem))
        except pytest.skip.Exception as skipped:
            print(f"bench-gate: nothing compared: {skipped}", file=sys.stderr)
            return 0
        except Incomparable as cause:
            print(f"bench-gate: nothing compared: {revision[:12]} cannot do this work:\n{cause}", file=sys.stderr)
            return 0
    problems = [text for verdict in verdicts for text in verdict.problems]
    rows = {
        verdict.kind: {"cpu_us": verdict.cpu_us, "ratio": round(verdict.ratio, 3), "waits": round(verdict.waits, 3)}
        for verdict in verdicts
    }
    print(json.dumps({"from": revision[:12], "ratio_max": RATIO_MAX, "work": rows, "problems": problems}, indent=1))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
