"""Real daemons in network namespaces, their brains and eyes killed at random (root needed; nothing outside is touched).

    make soak ARGS="--minutes 120"
    sudo .venv/bin/python -m tests.bench.soak [--nodes 20] [--minutes 120] [--seed 1] [--fps 1] [--out soak.json]

Each node is `swarmd run` in a namespace of its own, all on one bridge, with an eye that flies its lanes of a rendered
farm for ever. All the while

- spots are observed and cells done at random nodes (`ledger.py` keeps what was acknowledged), some of it by a brain
  that is killed in the same moment;
- brains get SIGKILL or SIGTERM and come back after 1 to 15 s, with the same files; eyes get SIGKILL and their brains
  must start them anew; links are cut for 5 to 20 s. The first `--witnesses` nodes keep their brain and their link
  (their eyes die as the others do): what grows, grows in them.

At the end the faults stop, all must agree, and every daemon must show all that was ever acknowledged. Prints one JSON
object; its `bars` are true, false, or null where the soak was too short to judge. Ends with 1 where one is false.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from swarmd.demo.netns import Loopback, Namespaces, unavailable
from swarmd.errors import DaemonError
from swarmd.identity.files import dev_fleet_secret
from swarmd_sim.world.address import parse_farm_url
from tests.bench.soak.figures import Sample, curve, growth, look_at
from tests.bench.soak.ledger import Ledger, cells_by, place_of
from tests.support.daemons import Running, wait_for
from tests.support.exclusive import own_port

SPOTS = 200
"""Things that are observed over and over: the picture is full after the warm-up, and what grows then is a leak."""
CELLS = 240
"""Cells of the survey, done one by one through the whole soak, most by brains that are about to be killed."""
EVENT_ROWS = 32
"""Events kept of each other node: the file of events is full after the warm-up too, at two a minute of each."""
SAVED_MAX = 3
"""Cells that may wait for a brain to be killed."""
SPEED_M_S = 3
"""Metres a second: a module stays in view for several frames at one frame a second."""
SAMPLE_S, FAULT_S, OBSERVE_S, SHOW_S, TELL_S = 15.0, 6.0, 2.0, 20.0, 300.0
"""Seconds between looks at processes, faults (on average), observations, pictures that are kept, words on how it goes.
"""
ORPHAN_S = 20.0
"""Seconds after which a dead brain's eye must be gone."""
BACK_S = 120.0
"""Seconds in which a brain that was killed must answer again, on a machine that other work shares; the report says how
long it took."""
SETTLE_S = 180.0
"""Seconds in which all must agree at the end."""
FAULTS = {"brain-kill": 35, "brain-term": 10, "eye-kill": 40, "cut": 15}
"""Faults by how often they come, percent."""
STATE_COUNTS = ("sightings", "batches_held", "bytes_held", "origins")
"""Of the state's figures those that say how much it holds."""
_LEVELS = (["WARNING"], ["ERROR"])
"""Second word of the lines of a log that are counted, by level and event."""


class Node(Running):
    """One daemon of the soak, with its own namespace."""

    def __init__(self, soak: "Soak", index: int) -> None:
        name = f"n{index}"
        folder = soak.folder / name
        folder.mkdir()
        super().__init__(name, folder / "control", folder / "out", folder / "log")
        self.index, self.state = index, folder / "state"
        place = soak.place
        port = 7946 if isinstance(place, Namespaces) else own_port()
        self.address = f"{place.address(index)}:{port}"
        self._command = place.command(
            index,
            [
                sys.executable, "-m", "swarmd", "run", "-c", str(soak.folder / "swarmd.toml"), "--name", name,
                "--dev-fleet", str(soak.folder / "fleet"), "--listen", self.address, "--state", str(self.state),
                "--control", str(self.control), "--model", "zoo:small-320",
                "--source", f"{soak.source}&drone={index + 1}",
            ],
        )  # fmt: skip
        self.samples: list[Sample] = []
        self.exits: list[int] = []

    def begin(self, join: str) -> None:
        """Start a life of it."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SWARMD_")}
        self.spawn([*self._command, "--join", join], environment)

    def try_ask(self, verb: str, **arguments: object) -> dict[str, Any]:
        """One answer; empty where none comes."""
        try:
            return self.ask(verb, **arguments)
        except (DaemonError, OSError):
            return {}

    def eye_pid(self) -> int | None:
        """The process of its eye, if it runs."""
        eye = self.status().get("eye")
        return None if eye is None else eye["pid"]


class Soak:
    """One soak, from start to report."""

    def __init__(self, options: argparse.Namespace, place: Namespaces | Loopback, folder: Path) -> None:
        self.options, self.place, self.folder = options, place, folder
        self.rng = random.Random(options.seed)
        self.ledger = Ledger()
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self.back_s: list[float] = []
        """Seconds from a killed brain's start until it answered."""
        self.rows: list[dict[str, int]] = []
        """Counts of the state of the first witness, at each length of the warm-up."""
        self._due: list[tuple[float, str, Node]] = []
        self._orphans: list[tuple[float, int]] = []
        self._cells_done = 0
        farm = f"sim://farm?of={options.nodes}&seed={options.seed}&fps={options.fps}"
        self.source = f"{farm}&fly=lanes&laps=0&speed={SPEED_M_S}"
        latitude_deg, longitude_deg = parse_farm_url(farm).farm().origin
        dev_fleet_secret(folder / "fleet")
        rows = [f"s{i:03},{-1_000 - 20 * (i % 20)},{20 * (i // 20)}" for i in range(CELLS)]
        (folder / "cells.csv").write_text("\n".join(["cell_id,east_m,north_m", *rows]) + "\n", encoding="utf-8")
        (folder / "swarmd.toml").write_text(
            f"[node]\norigin = [{latitude_deg!r}, {longitude_deg!r}]\n"
            f'[claims]\ncells = "{folder}/cells.csv"\nfly = false\n[log]\nlevel = "warning"\nformat = "text"\n'
            f'[http]\nlisten = "off"\n[events]\nauthor_rows = {EVENT_ROWS}\n',
            encoding="utf-8",
        )
        self.nodes = [Node(self, index) for index in range(options.nodes)]
        self.began_s = time.monotonic()

    @property
    def now_s(self) -> float:
        return time.monotonic() - self.began_s

    # --- the story ------------------------------------------------------------------------------------------------

    def run(self) -> dict[str, Any]:
        """Start, disturb, heal, judge."""
        try:
            for node in self.nodes:
                node.begin(self.nodes[0 if node.index else 1].address)
            wait_for(lambda: self._whole(), "one swarm of all daemons", 240, self._seen)
            print(f"{len(self.nodes)} daemons met after {self.now_s:.0f} s", file=sys.stderr, flush=True)
            self.began_s = time.monotonic()
            self._disturb(self.options.minutes * 60)
            self._heal()
            return self._judge()
        finally:
            for node in self.nodes:
                node.close()

    def _disturb(self, seconds: float) -> None:
        chores = {
            self._look: SAMPLE_S,
            # Every spot once within the warm-up: the picture is full then, and what grows on is a leak.
            self._observe: min(OBSERVE_S, 0.8 * self.options.warm * 60 / SPOTS),
            self._finish_cell: min(seconds, self.options.warm * 60) / CELLS,
            self._show: SHOW_S,
            self._tell: TELL_S,
            self._count_rows: max(SAMPLE_S, self.options.warm * 60),
            self._fault: FAULT_S,
        }
        next_s = dict.fromkeys(chores, 0.0)
        while self.now_s < seconds:
            for chore, gap_s in chores.items():
                if self.now_s >= next_s[chore]:
                    # Faults come at random, not in step with the rest.
                    next_s[chore] = self.now_s + (gap_s * self.rng.uniform(0.2, 1.8) if chore == self._fault else gap_s)
                    chore()
            self._undo(self.now_s)
            time.sleep(0.1)

    def _undo(self, now_s: float) -> None:
        """What is over: the dead come back, links are whole again."""
        for due in [due for due in self._due if due[0] <= now_s]:
            self._due.remove(due)
            _, kind, node = due
            if kind == "cut":
                self._link(node, "up")
            else:
                self._start(node)
        for at_s, pid in [orphan for orphan in self._orphans if orphan[0] <= now_s]:
            self._orphans.remove((at_s, pid))
            if _runs(pid):
                self.problems.append(f"the eye {pid} outlived its brain by {ORPHAN_S:.0f} s")

    # --- work -----------------------------------------------------------------------------------------------------

    def _any(self) -> Node:
        return self.rng.choice([node for node in self.nodes if node.alive])

    def _observe(self) -> None:
        # In turn, so that each is seen far more often than an object must be to be shown.
        spot = self.counts["asked"] % SPOTS
        self.counts["asked"] += 1
        # Always by the same node: each further observer would add a row, and the picture would never be full.
        node = self.nodes[spot % len(self.nodes)]
        if not node.alive:
            return
        east_m, north_m = place_of(spot)
        row = {
            "label": "soak", "score": 0.9, "east_m": east_m, "north_m": north_m,
            "covariance_m2": [0.04, 0.0, 0.04], "track": f"s{spot}", "event": "new",
        }  # fmt: skip
        if node.try_ask("observe", detections=[row]):
            self.counts["observed"] += 1

    def _finish_cell(self) -> None:
        if self._cells_due() > SAVED_MAX:
            self._finish_cell_at(self._any())

    def _cells_due(self) -> int:
        """Cells that may have been done by this time, and were not."""
        return cells_by(self.now_s, self.options.warm * 60, self.options.minutes * 60, CELLS) - self._cells_done

    def _finish_cell_at(self, node: Node) -> None:
        cell = f"s{self._cells_done:03}"
        self._cells_done += 1
        if node.try_ask("cell_done", cell=cell):
            self.ledger.cell_done(cell, node.name)

    def _show(self) -> None:
        if objects := self._any().try_ask("objects"):
            self.ledger.shown(objects["objects"])
            self.counts["pictures"] += 1

    def _look(self) -> None:
        for node in self.nodes:
            if node.process is not None and node.alive:
                sample = look_at(node.process.pid, node.state, self.now_s)
                if sample is not None:
                    node.samples.append(sample)

    def _count_rows(self) -> None:
        """What the first witness holds: rows that grow are work, and no leak."""
        state = self.nodes[0].status().get("state", {})
        self.rows.append({"at_s": round(self.now_s), **{name: state.get(name, 0) for name in STATE_COUNTS}})

    def _tell(self) -> None:
        witness = self.nodes[0].samples[-1]
        words = f"{self.now_s / 60:.0f} min: {dict(self.counts)}, {self.nodes[0].name} takes {witness.memory_mb:.2f} MB"
        print(words, *self.problems[-3:], sep="; ", file=sys.stderr, flush=True)

    # --- faults ---------------------------------------------------------------------------------------------------

    def _fault(self) -> None:
        kind = self.rng.choices(list(FAULTS), list(FAULTS.values()))[0]
        held = {node.index for _, _, node in self._due}
        first = 0 if kind == "eye-kill" else self.options.witnesses
        node = self.rng.choice(self.nodes[first:])
        if node.index in held or not node.alive or not node.status():
            return  # A process that does not answer yet has promised nothing, not even to end in order.
        if kind == "eye-kill":
            if pid := node.eye_pid():
                os.kill(pid, signal.SIGKILL)
                self.counts[kind] += 1
            return
        if kind == "cut":
            if isinstance(self.place, Loopback):
                return
            self._link(node, "down")
            self._due.append((self.now_s + self.rng.uniform(5, 20), kind, node))
        else:
            self._end(node, signal.SIGKILL if kind == "brain-kill" else signal.SIGTERM)
            self._due.append((self.now_s + self.rng.uniform(1, 15), kind, node))
        self.counts[kind] += 1

    def _end(self, node: Node, number: signal.Signals) -> None:
        eye = node.eye_pid()
        # What it has answered for is on its disk, though nobody else has heard of it yet.
        if self._cells_due() > 0:
            self._finish_cell_at(node)
        status = node.kill(number)
        if number == signal.SIGTERM and status != 0:
            self.problems.append(f"{node.name} ended with {status} on SIGTERM")
        if eye is not None:
            self._orphans.append((self.now_s + ORPHAN_S, eye))

    def _start(self, node: Node) -> None:
        began_s = self.now_s
        node.begin(self.rng.choice([other.address for other in self.nodes if other is not node]))
        try:
            wait_for(lambda: node.status() or not node.alive, f"{node.name} to come back", BACK_S, node.log)
            assert node.alive, node.log()
        except AssertionError as error:
            self.problems.append(f"{node.name} did not come back: {str(error)[-300:]}")
            return
        self.back_s.append(round(self.now_s - began_s, 2))

    def _link(self, node: Node, state: str) -> None:
        assert isinstance(self.place, Namespaces)
        switch = self.place.name(node.index).rpartition("-")[0] + "-sw"
        subprocess.run(["ip", "-n", switch, "link", "set", f"p{node.index}", state], check=True, timeout=60)

    # --- the end --------------------------------------------------------------------------------------------------

    def _whole(self) -> bool:
        """Whether everybody has met everybody."""
        dead = [node.name for node in self.nodes if not node.alive]
        assert not dead, f"{dead[0]} ended: {self.nodes[int(dead[0][1:])].log()[-2000:]}"
        return all(row["alive"] == len(self.nodes) for row in self._seen().values())

    def _seen(self) -> dict[str, dict[str, Any]]:
        found = {}
        for node in self.nodes:
            status = node.status()
            alive = sum(state == "alive" for state in status.get("members", {}).values())
            found[node.name] = {"alive": alive, "digest": status.get("digest", "")[:12]}
        return found

    def _heal(self) -> None:
        self._undo(float("inf"))
        # Eyes that go on seeing would move the picture while it is compared.
        for node in self.nodes:
            node.try_ask("eye_stop")
        began_s = self.now_s
        try:
            wait_for(
                lambda: self._whole() and len({row["digest"] for row in self._seen().values()}) == 1,
                "all daemons to agree",
                SETTLE_S,
                self._seen,
            )
        except AssertionError as error:
            self.problems.append(str(error)[:2_000])
        self.healed_s = round(self.now_s - began_s, 1)
        self._look()
        self._count_rows()

    def _judge(self) -> dict[str, Any]:
        lost = {}
        for node in self.nodes:
            cells, objects = node.try_ask("cells").get("cells", []), node.try_ask("objects").get("objects", [])
            missing = self.ledger.missing(cells, objects, time.time())
            if missing:
                lost[node.name] = missing[:10]
        lines = [line for node in self.nodes for line in node.log().splitlines()]
        logged = Counter(" ".join(parts[1::2]) for line in lines if (parts := line.split()[:4])[1:2] in _LEVELS)
        tracebacks = [line for line in lines if "Traceback" in line]
        for node in self.nodes:
            if node.alive and (status := node.kill(signal.SIGTERM)) != 0:
                self.problems.append(f"{node.name} ended with {status} on SIGTERM")
        witnesses = {node.name: node.samples for node in self.nodes[: self.options.witnesses]}
        grown = growth(witnesses, self.options.warm * 60, len(self.nodes))
        bars = {
            "nothing acknowledged is lost": not lost,
            "all agree, come back and end in order": not self.problems,
            "no traceback in any log": not tracebacks,
            **grown.pop("bars"),
        }
        return {
            "bench": "soak",
            "nodes": len(self.nodes),
            "minutes": self.options.minutes,
            "warm_minutes": self.options.warm,
            "seed": self.options.seed,
            "fps": self.options.fps,
            "namespaces": isinstance(self.place, Namespaces),
            "faults": {kind: self.counts[kind] for kind in FAULTS},
            "acknowledged": {"cells": len(self.ledger.cells), "spots": len(self.ledger.spots)},
            "observed": self.counts["observed"],
            "pictures": self.counts["pictures"],
            "back_s": {"median": sorted(self.back_s)[len(self.back_s) // 2], "worst": max(self.back_s)}
            if self.back_s
            else {},
            "healed_s": self.healed_s,
            "lost": lost,
            "problems": self.problems,
            "logged": dict(logged.most_common()),
            "tracebacks": [line[:500] for line in tracebacks[:5]],
            "state": self.rows,
            "growth": grown,
            "curves": {name: curve(samples) for name, samples in witnesses.items()},
            "bars": bars,
        }


def _runs(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _end_in_order(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def main(arguments: list[str] | None = None) -> int:
    """Run one soak and print its report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=120.0, help="how long they are disturbed")
    parser.add_argument("--warm", type=float, help="minutes that growth does not count; default: a quarter, at most 30")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fps", type=float, default=1.0, help="frames a second of each eye")
    parser.add_argument("--witnesses", type=int, default=4, help="nodes whose brain is never killed")
    parser.add_argument("--loopback", action="store_true", help="no namespaces, and no cut links")
    parser.add_argument("--keep", type=Path, help="a new folder for logs and journals, which stays")
    parser.add_argument("--out", type=Path, help="where the report is written, too")
    options = parser.parse_args(arguments)
    if options.warm is None:
        options.warm = min(30.0, options.minutes / 4)
    if not 2 <= options.witnesses + 1 <= options.nodes <= 250:
        parser.error("--nodes must be 2 to 250, and --witnesses at least 1 and fewer than those")
    missing = "" if options.loopback else unavailable()
    if missing:
        print(f"no soak: {missing}; --loopback runs without namespaces", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, _end_in_order)
    place = Loopback() if options.loopback else Namespaces(options.nodes)
    if options.keep is not None:
        options.keep.mkdir(parents=True)
    kept = tempfile.TemporaryDirectory(prefix="swarmd-soak-") if options.keep is None else nullcontext(options.keep)
    with kept as folder, place:
        report = Soak(options, place, Path(folder)).run()
    text = json.dumps(report, indent=1)
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n", encoding="utf-8")
    return 1 if False in report["bars"].values() else 0


if __name__ == "__main__":
    sys.exit(main())
