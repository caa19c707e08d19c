"""`import swarmd`: what the daemon answers becomes records, and what a program says becomes what the daemon takes."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import swarmd
from swarmd.api import views
from tests.support.bridge_world import ALICE, BOB, World, object_view, pose, sighting
from tests.support.control_socket import AnsweringSocket

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[AnsweringSocket]:
    made = AnsweringSocket(tmp_path)
    yield made
    made.close()


def test_what_a_daemon_s_own_rows_say_is_read_as_it_stands(daemon: AnsweringSocket) -> None:
    """The rows are made by the daemon's functions: a field that is renamed there fails here."""
    world, names = World(), {ALICE: "alice", BOB: "bob"}
    place = views.position_row(pose(), 10**10)
    daemon.answers |= {
        "members": {
            "members": [
                {**views.member_row(one), "unheard_s": views.unheard_s(one, 10**10), "position": place}
                for one in world.members()
            ]
        },
        "objects": {"objects": [views.object_row(one, names) for one in world.objects()]},
        "detections": {"detections": [views.detection_row(sighting(), names)]},
        "cells": {"cells": [views.cell_row(one, names) for one in world.cells()]},
    }
    node = swarmd.connect(daemon.path)
    rows = (node.members(), node.objects(), node.detections(), node.cells())
    for verb, found in zip(("members", "objects", "detections", "cells"), rows, strict=True):
        told = daemon.answers[verb][verb]
        assert len(found) == len(told) > 0
        for record, row in zip(found, told, strict=True):
            said = json.loads(msgspec.json.encode(record))
            assert said == {name: row[name] for name in said}


def test_every_field_of_an_object_is_the_row_s() -> None:
    row = views.object_row(object_view(), {})
    assert set(swarmd.Object.__struct_fields__) == set(row)
    thing = msgspec.convert(row, swarmd.Object)
    assert (thing.label, thing.east_m, list(thing.observers)) == (row["label"], row["east_m"], row["observers"])


def test_keys_of_a_newer_daemon_are_passed_over_and_missing_ones_are_told(daemon: AnsweringSocket) -> None:
    row = views.object_row(object_view(), {})
    node = swarmd.connect(daemon.path)
    daemon.answers["objects"] = {"objects": [{**row, "colour": "red"}]}
    assert [thing.label for thing in node.objects()] == [row["label"]]
    del row["label"]
    daemon.answers["objects"] = {"objects": [row]}
    with pytest.raises(swarmd.ControlError, match="label"):
        node.objects()


def test_a_refusal_is_the_daemon_s_own_sentence(daemon: AnsweringSocket) -> None:
    node = swarmd.connect(daemon.path)
    daemon.answers["note"] = "argument 'key' is too long"
    with pytest.raises(swarmd.DaemonError, match="argument 'key' is too long"):
        node.note("k" * 200, "v")


def test_what_is_not_said_is_not_sent(daemon: AnsweringSocket) -> None:
    node = swarmd.connect(daemon.path)
    daemon.answers["observe"] = {"taken": 2}
    assert node.observe([swarmd.Sighting(label="dog"), swarmd.Sighting(label="car", east_m=1.0, north_m=2.0)]) == 2
    rows = daemon.asked[-1][1]["detections"]
    assert rows == [{"label": "dog"}, {"label": "car", "east_m": 1.0, "north_m": 2.0}]


def test_changes_come_in_their_order_and_end_with_the_daemon(daemon: AnsweringSocket) -> None:
    daemon.notices = [
        {"event": "join", "subject": "drone-2", "node": "ab", "reason": ""},
        {"event": "object", "subject": "o1", "kind": "new", "label": "dog", "asset": ""},
    ]
    with swarmd.connect(daemon.path).watch() as changes:
        found = list(changes)
    assert [(change.event, change.subject) for change in found] == [("join", "drone-2"), ("object", "o1")]
    assert found[1].details == {"kind": "new", "label": "dog", "asset": ""}


def test_nobody_there_is_told_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(swarmd.ControlError, match="start one with `swarmd run`"):
        swarmd.connect(tmp_path / "none.sock")


def test_a_scenario_that_is_none_is_told() -> None:
    with pytest.raises(swarmd.DaemonError, match="nowhere"):
        swarmd.simulate("nowhere")
    with pytest.raises(swarmd.DaemonError, match=r"radio\.colour"):
        swarmd.simulate("partition-heal", settings={"radio.colour": 1})


def test_a_seed_that_is_none_is_told_before_anything_runs() -> None:
    with pytest.raises(swarmd.DaemonError, match="seed is 'x'; it must be a whole number"):
        swarmd.simulate("no-such-scenario", seed="x")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (("own_detector.py",), "give a CSV file"),
        (("own_detector.py", "no-such.csv", "no-such.sock"), "no daemon answers on no-such.sock"),
        (("sweep.py", "many"), "give a number of seeds"),
    ],
)
def test_an_example_says_what_it_lacks_in_a_sentence(command: tuple[str, ...], sentence: str) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / command[0], *command[1:]], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr.startswith(sentence)) == (1, True), done.stderr


def test_equal_seeds_give_equal_runs() -> None:
    runs = [swarmd.simulate("fuzz", seed=3).figures["trace_digest"] for _ in range(2)]
    assert runs[0] == runs[1]


def test_every_name_is_there_and_the_package_itself_loads_none_of_it() -> None:
    assert {name for name in swarmd.__all__ if getattr(swarmd, name, None) is None} == set()
    assert set(swarmd.__all__) <= set(dir(swarmd))
    with pytest.raises(AttributeError, match="no attribute 'conect'"):
        swarmd.conect  # type: ignore[attr-defined]  # noqa: B018
    code = "import sys, swarmd; sys.exit(any(name.startswith('swarmd.') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
