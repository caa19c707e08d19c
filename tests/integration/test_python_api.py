"""`import swarmd` and the examples, against two real daemons."""

import doctest
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import swarmd
from tests.support.daemons import Daemon, wait_for
from tests.support.paths import ROOT

ORIGIN = ("--set", "node.origin=48.0,11.0")
EXAMPLES = ROOT / "examples"


@pytest.fixture
def drones(tmp_path: Path) -> Iterator[list[Daemon]]:
    cells = tmp_path / "cells.csv"
    cells.write_text("cell_id,east_m,north_m\nc1,1,2\nc2,11,2\n")
    flags = ("--no-eye", *ORIGIN, "--set", f"claims.cells={cells}")
    first = Daemon(tmp_path, "drone-1", *flags).up()
    second = Daemon(tmp_path, "drone-2", *flags, join=first.status()["address"]).up()
    wait_for(lambda: first.members().get("drone-2") == "alive" == second.members().get("drone-1"), "each other")
    yield [first, second]
    for one in (first, second):
        one.close()


def test_what_one_says_the_other_reads(drones: list[Daemon]) -> None:
    one, two = (swarmd.connect(drone.control) for drone in drones)
    assert one.status().node == "drone-1"
    assert {member.name: member.state for member in one.members()} == {"drone-1": "alive", "drone-2": "alive"}
    with two.watch() as changes:
        assert one.observe([swarmd.Sighting(label="hot-spot", score=0.9, east_m=3.0, north_m=4.0, track="a")]) == 1
        one.say("landed", "at the gate")
        heard: dict[str, swarmd.Change] = {}
        for change in changes:
            heard[change.event] = change
            if {"object", "user"} <= heard.keys():
                break
    assert heard["object"].details["label"] == "hot-spot"
    assert (heard["user"].subject, heard["user"].details["payload"]) == ("landed", "at the gate")
    (thing,) = two.objects()
    assert thing.id == heard["object"].subject
    assert (thing.observers, thing.east_m, thing.north_m) == (("drone-1",), 3.0, 4.0)
    assert [seen.node for seen in two.detections()] == ["drone-1"]
    assert wait_for(lambda: one.status().digest == two.status().digest, "equal digests")
    assert "joined" in {event.kind for event in two.events()} | {event.kind for event in one.events()}

    # Work is divided, and what is done is known to both.
    one.ask_for_cell(east_m=0.0, north_m=0.0)
    mine = wait_for(lambda: [cell for cell in one.cells() if cell.holder == "drone-1"], "a cell")[0]
    one.finish_cell(mine.id)
    wait_for(lambda: {cell.id: cell.state for cell in two.cells()}[mine.id] == "done", "the cell to be done")

    # A daemon that comes back is asked through the same object.
    drones[0].kill()
    with pytest.raises(swarmd.ControlError, match="no daemon answers"):
        one.objects()
    drones[0].start()
    drones[0].up()
    assert wait_for(one.objects, "what it knew before it was killed")[0].id == thing.id


def test_changes_end_with_the_daemon(drones: list[Daemon]) -> None:
    changes = swarmd.connect(drones[0].control).watch()
    drones[0].kill()
    assert all(change.event for change in changes)
    with pytest.raises(StopIteration):
        next(changes)


@pytest.mark.parametrize(
    ("sightings", "sentence"),
    [
        ([swarmd.Sighting(label="dog"), swarmd.Sighting(label="dog", score=2)], r"detections\[1\]: score lies between"),
        ([swarmd.Sighting(label="")], r"detections\[0\]: argument 'label' is empty"),
        ([swarmd.Sighting(label="dog", track=f"{number:0>64}") for number in range(9_000)], "at most 65536 bytes"),
    ],
)
def test_what_no_sighting_is_is_named(drones: list[Daemon], sightings: list[swarmd.Sighting], sentence: str) -> None:
    with pytest.raises(swarmd.DaemonError, match=sentence):
        swarmd.connect(drones[0].control).observe(sightings)


def test_the_examples_do_what_they_say(drones: list[Daemon], tmp_path: Path) -> None:
    (tmp_path / "seen.csv").write_text("hot-spot,0.9,3.0,4.0\ndog,0.8,20,1\n")
    watcher = subprocess.Popen(
        [sys.executable, EXAMPLES / "react.py", drones[1].control], stdout=subprocess.PIPE, text=True
    )
    try:
        assert watcher.stdout is not None
        assert watcher.stdout.readline() == "0 things are known\n"
        command = [sys.executable, EXAMPLES / "own_detector.py", tmp_path / "seen.csv", drones[0].control]
        told = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert (told.returncode, told.stdout.splitlines()[0]) == (0, "2 told to dev"), told.stderr
        told_of: set[str] = set()
        while len(told_of) < 2:
            line = watcher.stdout.readline()
            assert line, "it has ended"
            told_of |= {line.rpartition(" (")[0]} if line.startswith("go and look: ") else set()
        assert told_of == {"go and look: dog", "go and look: hot-spot"}
        swarmd.connect(drones[0].control).say("enough")
        assert watcher.wait(60) == 0
    finally:
        watcher.kill()
        watcher.communicate()


@pytest.mark.slow
def test_the_sweep_prints_a_line_a_run() -> None:
    command = [sys.executable, EXAMPLES / "sweep.py", "1", "0.1"]
    lines = subprocess.run(command, capture_output=True, text=True, timeout=280, check=True).stdout.splitlines()
    assert lines[0] == "loss,seed,bytes_per_node_s,false_positives,convergence_s,broken_rules"
    loss, seed, bytes_s, false_positives, _, broken = lines[1].split(",")
    assert (loss, seed, false_positives, broken) == ("0.1", "1", "0", "0")
    assert float(bytes_s) > 0


def test_an_example_without_a_daemon_says_what_to_do(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "react.py", tmp_path / "none.sock"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "start one with `swarmd run`" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    """A daemon that `swarmd.connect()` finds by itself, as on a device."""
    daemon = Daemon(tmp_path, "drone-1", "--no-eye", *ORIGIN).up()
    node = swarmd.connect(daemon.control)
    monkeypatch.setattr(swarmd, "connect", lambda: node, raising=False)
    yield daemon
    daemon.close()


def wrong_examples() -> list[str]:
    from swarmd import client

    told: list[str] = []
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    for test in doctest.DocTestFinder().find(client):
        runner.run(test, out=told.append)
    assert runner.tries >= 10
    return told


def test_the_examples_of_the_reference_do_what_they_say(here: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    assert wrong_examples() == []
    text = swarmd.Node.__doc__ or ""
    assert "east_m=3.0" in text
    # What is known already is no change, and would be waited for: the second time the thing lies elsewhere.
    text = text.replace("east_m=3.0", "east_m=300.0").replace("[('drone-1', 'alive')]", "[('drone-1', 'dead')]")
    monkeypatch.setattr(swarmd.Node, "__doc__", text)
    assert "[('drone-1', 'dead')]" in "".join(wrong_examples()), "a wrong one is found"


def test_the_blocks_of_the_page_run(here: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    """The first two of `docs/python.md`; `test_python_inference.py` has what the third asks."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/python.md").read_text(), re.DOTALL)
    assert len(blocks) == 3
    read, listen, see = (compile(block, "docs/python.md", "exec") for block in blocks)
    names: dict[str, object] = {}
    exec(read, names)
    assert "drone-1 alive" in capsys.readouterr().out
    node = names["node"]
    assert isinstance(node, swarmd.Node)
    listener = threading.Thread(target=exec, args=(listen, names))
    listener.start()
    try:
        # Who listens is known to nobody; what is said again and again is heard once it does.
        printed, number = "", 0
        while not printed:
            number += 1
            node.observe([swarmd.Sighting(label="dog", east_m=40.0 * number, north_m=4.0, track=str(number))])
            listener.join(0.2)
            assert listener.is_alive()
            assert number < 500
            printed += capsys.readouterr().out
    finally:
        here.kill()  # Changes end with the daemon.
        listener.join(60)
    assert not listener.is_alive()
    assert {name for name in see.co_names if name in ("detect", "infer")} == {"detect", "infer"}
