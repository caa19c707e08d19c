"""Our own messages: what `.msg` and `.idl` say is what is sent, and the type hash is that of the text."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from rosbags.typesys import Stores, get_types_from_idl, get_types_from_msg, get_typestore

from swarmd.bridges.ros2.mapping import CELL_STATES, EVENT_LEVELS
from swarmd.bridges.ros2.names import TYPE_HASHES

FOLDER = Path(__file__).parents[2] / "swarmd" / "bridges" / "ros2" / "msg"
NAMES = sorted(file.stem for file in FOLDER.glob("*.msg"))


def store(kind: str) -> Any:
    types = get_typestore(Stores.ROS2_JAZZY)
    extra: dict[str, Any] = {}
    for name in NAMES:
        text = (FOLDER / f"{name}.{kind}").read_text()
        if kind == "idl":
            # rosbags reads IDL after the preprocessor.
            extra |= get_types_from_idl("\n".join(line for line in text.splitlines() if not line.startswith("#")))
        else:
            extra |= get_types_from_msg(text, f"swarmd_msgs/msg/{name}")
    types.register({key: value for key, value in extra.items() if key.startswith("swarmd_msgs/")})
    return types


def test_every_message_has_both_files() -> None:
    assert NAMES == ["Cell", "CellArray", "Event"] == sorted(file.stem for file in FOLDER.glob("*.idl"))


@pytest.mark.parametrize("name", NAMES)
def test_msg_and_idl_say_the_same_and_have_the_hash_that_is_sent(name: str) -> None:
    full = f"swarmd_msgs/msg/{name}"
    by_msg, by_idl = store("msg"), store("idl")
    assert by_msg.fielddefs[full] == by_idl.fielddefs[full]
    assert by_msg.hash_rihs01(full) == by_idl.hash_rihs01(full)
    if full in TYPE_HASHES:
        assert by_msg.hash_rihs01(full) == TYPE_HASHES[full]


def test_the_array_is_what_is_sent_and_its_hash_is_told() -> None:
    assert "swarmd_msgs/msg/CellArray" in TYPE_HASHES


def test_the_constants_are_the_states() -> None:
    constants = {name.lower(): value for name, _, value in store("msg").fielddefs["swarmd_msgs/msg/Cell"][0]}
    assert constants == CELL_STATES


def test_the_constants_of_events_are_the_levels() -> None:
    constants = {name.lower(): value for name, _, value in store("msg").fielddefs["swarmd_msgs/msg/Event"][0]}
    assert constants == EVENT_LEVELS


def test_the_fields_are_those_of_the_class() -> None:
    pytest.importorskip("cyclonedds", reason="cyclonedds is not installed (extra dds)")
    from swarmd.bridges.ros2 import messages as m

    types = store("msg")
    for name, message in (("Cell", m.Cell), ("CellArray", m.CellArray), ("Event", m.Event)):
        ours = [field.name for field in dataclasses.fields(message)]
        assert ours == [field for field, _ in types.fielddefs[f"swarmd_msgs/msg/{name}"][1]]
