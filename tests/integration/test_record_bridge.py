"""Recordings, read back by rosbags and by mcap, which are not ours; a disk without room; a file that is in the way."""

import asyncio
import json
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("mcap_ros2", reason="mcap is not installed (extra record)")

from mcap.reader import make_reader
from mcap_ros2.decoder import DecoderFactory

from swarmd.bridges.config import RecordConfig
from swarmd.bridges.record.bridge import RecordBridge
from swarmd.bridges.record.recorder import Recorder
from swarmd.errors import StoreError
from swarmd_protocols.effects import MemberChanged, MemberState
from tests import ros2_store
from tests.bridge_world import BOB, World, detection, pose


async def record(path: Path, profile: str) -> World:
    world = World()
    bridge = RecordBridge(RecordConfig(enabled=True, profile=profile, min_free_mib=1), path)
    task = asyncio.create_task(bridge.run(world))
    while not world.callbacks:
        await asyncio.sleep(0.01)
    for number in range(3):
        world.say(detection(track_id=number))
    world.say(pose(has_fix=True))
    world.say(pose(has_fix=False))
    world.say(MemberChanged(BOB, "bob", MemberState.ALIVE, MemberState.FAILED, "silent"))
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return world


async def test_ros2_profile_is_read_by_mcap_and_by_rosbags(tmp_path: Path) -> None:
    path = tmp_path / "run.mcap"
    await record(path, "ros2")
    with path.open("rb") as file:
        reader = make_reader(file, decoder_factories=[DecoderFactory()])
        assert reader.get_header().profile == "ros2"
        found = [(channel.topic, message) for _, channel, _, message in reader.iter_decoded_messages()]
    tracks = [one.detections[0].id for topic, one in found if topic == "/swarm/detections"]
    assert tracks == ["bob/0", "bob/1", "bob/2"]
    fixes = [one.status.status for topic, one in found if topic == "/alice/fix"]
    assert fixes == [0, -1]
    types = ros2_store.store()
    from rosbags.highlevel import AnyReader

    with AnyReader([path], default_typestore=types) as bag:
        topics = {connection.topic: connection for connection in bag.connections}
        assert {"/swarm/detections", "/swarm/objects", "/swarm/peers", "/swarm/cells", "/alice/fix"} == set(topics)
        connection, _, raw = next(bag.messages(connections=[topics["/swarm/objects"]]))
        decoded = bag.deserialize(raw, connection.msgtype)
        assert decoded.detections[0].bbox.center.position.x == 10.0
        assert decoded.detections[0].results[0].pose.covariance[0] == pytest.approx(0.04)


async def test_foxglove_profile(tmp_path: Path) -> None:
    path = tmp_path / "run.mcap"
    await record(path, "foxglove")
    with path.open("rb") as file:
        reader = make_reader(file)
        found = [(schema.name, json.loads(message.data)) for schema, _, message in reader.iter_messages() if schema]
    assert [name for name, _ in found].count("foxglove.LocationFix") == 1
    collection = json.loads(next(body for name, body in found if name == "foxglove.GeoJSON")["geojson"])
    assert collection["type"] == "FeatureCollection"


def test_a_file_in_the_way_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "run.mcap"
    path.write_bytes(b"precious")
    with pytest.raises(StoreError, match=r"run\.mcap.*another file"):
        Recorder(path, "ros2", {}, 1 << 20, 0)
    assert path.read_bytes() == b"precious"


def test_a_full_disk_ends_the_recording_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "run.mcap"
    recorder = Recorder(path, "ros2", {}, 1 << 30, 1 << 60)
    recorder.write("/log", "std_msgs/msg/String", {"data": "x"}, 1)
    assert "min_free_mib" in recorder.problem
    recorder.write("/log", "std_msgs/msg/String", {"data": "y"}, 2)
    assert recorder.counts["dropped_full"] == 1
    with path.open("rb") as file:
        assert make_reader(file).get_summary() is not None


def test_the_size_limit_ends_the_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swarmd.bridges.record.recorder.FREE_CHECK_S", 0)
    recorder = Recorder(tmp_path / "run.mcap", "ros2", {}, 1 << 20, 0)
    recorder._max_bytes = 600_000
    import random

    rng = random.Random(7)
    for number in range(2000):
        text = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=2000))
        recorder.write("/log", "std_msgs/msg/String", {"data": text}, number)
    assert "max_mib" in recorder.problem
    assert (tmp_path / "run.mcap").stat().st_size < 1_600_000


def test_definitions_have_the_hashes_of_ros() -> None:
    from rosbags.typesys import Stores, get_types_from_msg, get_typestore

    from swarmd.bridges.ros2.names import TYPE_HASHES

    folder = Path(__file__).parents[2] / "swarmd" / "bridges" / "record" / "msgdef"
    checked = 0
    for file in sorted(folder.glob("*.txt")):
        name = file.stem.replace(".", "/msg/")
        types = get_typestore(Stores.EMPTY)
        types.register(get_types_from_msg(file.read_text(), name))
        assert types.hash_rihs01(name) == TYPE_HASHES[name], name
        checked += 1
    assert checked == 8
