"""What a brain keeps of peers that die and come back: one is watched while three others are killed again and again.

    python -m tests.bench.soak.restarts [--kills 120] [--eye 3] [--trace 0] [--small]

Loopback, two kills in three seconds; each life observes spots, and does a cell before it ends. With `--eye N` the
watched brain has an eye, which is killed at every Nth kill. Now and then, and once more 20 s after the last kill, a
row on standard output: memory, Python's blocks and the C library's, objects by type that are new since the row before,
files; with `--trace FRAMES` also the lines whose memory grew by the most. At the end, what lay dead in cycles. With
`--small` the tables of names and of sessions that are over are full at once, so that what grows on is something else.
"""

import argparse
import json
import os
import runpy
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from swarmd.errors import DaemonError
from swarmd.identity.files import dev_fleet_secret
from tests.bench.soak.figures import look_at
from tests.bench.soak.ledger import place_of
from tests.support.daemons import Running
from tests.support.exclusive import own_port

PEERS, SPOTS, CELLS, ROWS = 3, 60, 240, 8
SOURCE = "sim://farm?of=4&seed=3&fps=1&fly=lanes&laps=0&speed=3&drone=1"
OUT, TRACE, SMALL = "RESTARTS_OUT", "RESTARTS_TRACE", "RESTARTS_SMALL"


# --- in the watched brain -------------------------------------------------------------------------------------------


def watched() -> None:
    """`swarmd` in this process; SIGUSR1 has it append a row to the file that the environment names."""
    import gc
    import tracemalloc
    from collections import Counter

    if os.environ[SMALL]:
        from swarmd_protocols.channel import channel
        from swarmd_protocols.state import anti_entropy

        anti_entropy._KNOWN_MAX, channel.PAST_MAX = 64, 16
    if frames := int(os.environ[TRACE]):
        tracemalloc.start(frames)
    last: dict[str, Any] = {"types": Counter(), "snapshot": None}

    def tell(*_: object) -> None:
        types = Counter(type(one).__name__ for one in gc.get_objects())
        row = {
            "blocks": sys.getallocatedblocks(),
            "frozen": gc.get_freeze_count(),
            "grown": (types - last["types"]).most_common(8),
            "dead_in_cycles": None,
        }
        last["types"] = types
        if frames:
            snapshot = tracemalloc.take_snapshot()
            if last["snapshot"] is not None:
                row["lines"] = [str(one) for one in snapshot.compare_to(last["snapshot"], "lineno")[:20]]
            last["snapshot"] = snapshot
        if Path(os.environ[OUT] + ".end").exists():
            gc.unfreeze()
            row["dead_in_cycles"] = gc.collect()
            row["blocks_freed"] = row["blocks"] - sys.getallocatedblocks()
        with open(os.environ[OUT], "a", encoding="utf-8") as out:
            out.write(json.dumps(row) + "\n")

    signal.signal(signal.SIGUSR1, tell)
    sys.argv = ["swarmd", *sys.argv[2:]]
    runpy.run_module("swarmd", run_name="__main__", alter_sys=True)


# --- around it ------------------------------------------------------------------------------------------------------


class Node(Running):
    """One daemon; the first is watched."""

    def __init__(self, folder: Path, index: int, options: argparse.Namespace) -> None:
        place = folder / f"n{index}"
        place.mkdir()
        super().__init__(place.name, place / "control", place / "out", place / "log")
        self.state, self.rows = place / "state", place / "rows"
        self.address = f"127.0.0.1:{own_port()}"
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("SWARMD_")}
        self._environment |= {OUT: str(self.rows), TRACE: str(options.trace), SMALL: "yes" * options.small}
        module = ["tests.bench.soak.restarts", "watched"] if index == 0 else ["swarmd"]
        sees = ["--model", "zoo:small-320", "--source", SOURCE] if options.eye and index == 0 else ["--no-eye"]
        self._command = [
            sys.executable, "-m", *module, "run", *sees, "-c", str(folder / "swarmd.toml"), "--name", self.name,
            "--dev-fleet", str(folder / "fleet"), "--listen", self.address, "--state", str(self.state),
            "--control", str(self.control),
        ]  # fmt: skip

    def begin(self, join: str = "") -> None:
        """A life, until it answers."""
        self.spawn([*self._command, *(["--join", join] if join else [])], self._environment)
        self.wait_up()

    def try_ask(self, verb: str, **arguments: object) -> dict[str, Any]:
        """One answer; empty where none comes."""
        try:
            return self.ask(verb, **arguments)
        except (DaemonError, OSError):
            return {}


class Restarts:
    """The story."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options, self.began_s, self.seen, self.done = options, time.monotonic(), 0, 0
        dev_fleet_secret(folder / "fleet")
        cells = [f"s{i:03},{-1_000 - 20 * (i % 20)},{20 * (i // 20)}" for i in range(CELLS)]
        (folder / "cells.csv").write_text("\n".join(["cell_id,east_m,north_m", *cells]) + "\n", encoding="utf-8")
        (folder / "swarmd.toml").write_text(
            f'[node]\norigin = [47.39, 8.54]\n[claims]\ncells = "{folder}/cells.csv"\nfly = false\n'
            '[log]\nlevel = "warning"\nformat = "text"\n[http]\nlisten = "off"\n',
            encoding="utf-8",
        )
        self.nodes = [Node(folder, index, options) for index in range(PEERS + 1)]

    def run(self) -> None:
        """Kill, and tell."""
        watched = self.nodes[0]
        try:
            for node in self.nodes:
                node.begin("" if node is watched else watched.address)
            for kill in range(self.options.kills):
                if kill % max(1, self.options.kills // ROWS) == 0:
                    self._tell(kill)
                self._kill(self.nodes[1 + kill % PEERS], signal.SIGTERM if kill % 5 == 4 else signal.SIGKILL, kill)
                if self.options.eye and kill % self.options.eye == 0:
                    eye = watched.status().get("eye")
                    if eye and eye["pid"]:
                        os.kill(eye["pid"], signal.SIGKILL)
                    watched.try_ask("objects")
            self._tell(self.options.kills)
            time.sleep(20)
            watched.rows.with_name("rows.end").touch()
            self._tell(self.options.kills)
        finally:
            for node in self.nodes:
                node.close()

    def _kill(self, node: Node, number: signal.Signals, kill: int) -> None:
        for _ in range(3):
            spot, self.seen = self.seen % SPOTS, self.seen + 1
            east_m, north_m = place_of(spot)
            row = {"label": "soak", "score": 0.9, "east_m": east_m, "north_m": north_m,
                   "covariance_m2": [0.04, 0.0, 0.04], "track": f"s{spot}", "event": "new"}  # fmt: skip
            self.nodes[spot % len(self.nodes)].try_ask("observe", detections=[row])
        if kill % 2 == 0:
            node.try_ask("cell_done", cell=f"s{self.done % CELLS:03}")
            self.done += 1
        node.kill(number)
        time.sleep(0.2)
        node.begin(self.nodes[0].address)

    def _tell(self, kill: int) -> None:
        watched = self.nodes[0]
        assert watched.process is not None
        told = len(watched.rows.read_text(encoding="utf-8").splitlines()) if watched.rows.exists() else 0
        sample = look_at(watched.process.pid, watched.state, time.monotonic() - self.began_s)
        assert sample is not None
        os.kill(watched.process.pid, signal.SIGUSR1)
        while not watched.rows.exists() or len(lines := watched.rows.read_text("utf-8").splitlines()) <= told:
            time.sleep(0.2)
        state = watched.status().get("state", {})
        row = {
            "kills": kill,
            "at_s": round(sample.at_s),
            "memory_mb": round(sample.memory_mb, 2),
            "threads": sample.threads,
            "batches_held": state.get("batches_held"),
            "sightings": state.get("sightings"),
            **json.loads(lines[-1]),
            "files": dict(sample.files),
        }
        print(json.dumps(row), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=120)
    parser.add_argument("--eye", type=int, default=0, metavar="N", help="an eye, killed at every Nth kill; 0: none")
    parser.add_argument("--trace", type=int, default=0, metavar="FRAMES", help="frames that tracemalloc keeps")
    parser.add_argument("--small", action="store_true", help="tables of names and past sessions that are full at once")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="swarmd-restarts-") as folder:
        Restarts(options, Path(folder)).run()


if __name__ == "__main__":
    if sys.argv[1:2] == ["watched"]:
        watched()
    else:
        main()
