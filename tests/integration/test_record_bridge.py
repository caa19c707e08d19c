"""Recordings, read back by rosbags and by mcap, which are not ours; a disk without room; a file that is in the way."""

import asyncio
import base64
import errno
import json
import random
import struct
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

pytest.importorskip("mcap_ros2", reason="mcap is not installed (extra record)")

import lz4.frame
import zstandard
from mcap.data_stream import RecordBuilder
from mcap.reader import make_reader
from mcap.writer import MCAP0_MAGIC, Writer
from mcap_ros2.decoder import DecoderFactory

from swarmd.api.daemon import NodePosition, PictureSeen, PositionSeen
from swarmd.bridges.record.bridge import RecordBridge
from swarmd.bridges.record.reading import RECORD_MAX_BYTES, Recording, recover
from swarmd.bridges.record.recorder import Recorder
from swarmd.config.bridges import RecordConfig
from swarmd.errors import DaemonError, RecordError
from swarmd_protocols.effects import MemberChanged, MemberState
from tests.support import ros2_store
from tests.support.bridge_world import BOB, World, detection, happened, pose

JPEG = b"\xff\xd8" + bytes(range(256)) * 40 + b"\xff\xd9"


async def record(path: Path, profile: str, images_hz: float = 0.0) -> World:
    world = World()
    bridge = RecordBridge(RecordConfig(enabled=True, profile=profile, min_free_mib=1, images_hz=images_hz), path)
    task = asyncio.create_task(bridge.run(world))
    while not world.callbacks:
        await asyncio.sleep(0.01)
    for number in range(3):
        world.say(detection(number))
    world.say(pose(has_fix=True))
    world.say(pose(has_fix=False))
    world.say(PositionSeen(BOB, "bob", NodePosition(BOB, -18.87, -70.11, 30.0, None, 1.0, None, 0)))
    world.say(PositionSeen(BOB, "bob", None))
    for watcher in world.watchers:
        watcher(PictureSeen(JPEG, 640, 480, time.monotonic_ns()))
    world.say(happened())
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
    assert {one.pose.position.z for topic, one in found if topic == "/alice/pose"} == {25.0}
    assert [one.status.status for topic, one in found if topic == "/bob/fix"] == [0, -1]
    tracks = [one.detections[0].id for topic, one in found if topic == "/swarm/detections"]
    assert tracks == [detection(number).detail.view.detection_id for number in range(3)]
    fixes = [one.status.status for topic, one in found if topic == "/alice/fix"]
    assert fixes == [0, -1]
    types = ros2_store.store()
    from rosbags.highlevel import AnyReader

    with AnyReader([path], default_typestore=types) as bag:
        topics = {connection.topic: connection for connection in bag.connections}
        assert set(topics) == {
            "/swarm/detections",
            "/swarm/objects",
            "/swarm/peers",
            "/swarm/cells",
            "/swarm/events",
            "/alice/fix",
            "/alice/pose",
            "/bob/fix",
            "/bob/pose",
        }
        connection, _, raw = next(bag.messages(connections=[topics["/swarm/objects"]]))
        decoded: Any = bag.deserialize(raw, connection.msgtype)
        assert decoded.detections[0].bbox.center.position.x == 10.0
        connection, _, raw = next(bag.messages(connections=[topics["/swarm/events"]]))
        event: Any = bag.deserialize(raw, connection.msgtype)
        assert (event.kind, event.level, event.subject, event.origin) == ("failed", 1, "drone-3", "alice")
        assert event.header.stamp.sec == 1_790_000_000
        assert decoded.detections[0].results[0].pose.covariance[0] == pytest.approx(0.04)


async def test_foxglove_profile(tmp_path: Path) -> None:
    path = tmp_path / "run.mcap"
    await record(path, "foxglove")
    with path.open("rb") as file:
        reader = make_reader(file)
        found = [(schema.name, json.loads(message.data)) for schema, _, message in reader.iter_messages() if schema]
    assert [name for name, _ in found].count("foxglove.LocationFix") == 2
    assert [name for name, _ in found].count("foxglove.CompressedImage") == 0
    (log,) = [body for name, body in found if name == "foxglove.Log"]
    assert (log["level"], log["name"], log["message"]) == (3, "alice", "failed drone-3 no answer alive to failed")
    collection = json.loads(next(body for name, body in found if name == "foxglove.GeoJSON")["geojson"])
    assert collection["type"] == "FeatureCollection"


async def test_pictures_are_recorded_only_when_they_are_asked_for(tmp_path: Path) -> None:
    world = await record(tmp_path / "none.mcap", "ros2")
    assert world.wishes == []
    for profile in ("ros2", "foxglove"):
        path = tmp_path / f"{profile}.mcap"
        world = await record(path, profile, images_hz=2.0)
        assert world.wishes == [(500, 640, 70)]
        assert world.watchers == []
        with path.open("rb") as file:
            rows = [(c.topic, s, m) for s, c, m in make_reader(file).iter_messages(topics=["/alice/image/compressed"])]
        assert len(rows) == 1
        schema = rows[0][1]
        assert schema is not None
        if profile == "foxglove":
            body = json.loads(rows[0][2].data)
            assert (schema.name, body["format"], base64.b64decode(body["data"])) == (
                "foxglove.CompressedImage",
                "jpeg",
                JPEG,
            )
    from rosbags.highlevel import AnyReader

    with AnyReader([tmp_path / "ros2.mcap"], default_typestore=ros2_store.store()) as bag:
        images = [c for c in bag.connections if c.topic == "/alice/image/compressed"]
        connection, _, raw = next(bag.messages(connections=images))
        decoded: Any = bag.deserialize(raw, connection.msgtype)
    assert (decoded.format, decoded.data.tobytes(), decoded.header.frame_id) == ("jpeg", JPEG, "alice_camera")


RECORDER = """
import os, random, resource, sys, time
from pathlib import Path
from swarmd.bridges.record import recorder
recorder.CHUNK_S = 0.05
path, limit = Path(sys.argv[1]), int(sys.argv[2])
one = recorder.Recorder(path, "ros2", {}, 1 << 30, 0)
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
rng = random.Random(7)
for number in range(100_000):
    one.write("/log", "std_msgs/msg/String", {"data": f"{number} " + rng.randbytes(500).hex()}, number + 1)
    if one.full:
        break
    if number % 50 == 0:
        print(number, flush=True)
        time.sleep(0.02)
one.close()
print("problem", one.problem, flush=True)
"""


def texts(path: Path) -> list[str]:
    decode = DecoderFactory()
    found = []
    for schema, channel, message in Recording(path).messages():
        decoder = decode.decoder_for(channel.message_encoding, schema)
        assert decoder is not None
        found.append(decoder(message.data).data)
    return found


def test_a_disk_that_is_really_full_ends_the_recording_and_what_was_written_is_read(tmp_path: Path) -> None:
    """The kernel refuses every byte beyond 300 kB, the index too: no exception, a sentence, whole messages."""
    path = tmp_path / "run.mcap"
    command = [sys.executable, "-c", RECORDER, str(path), "300000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "problem File too large" in done.stdout, done.stdout[-300:] + done.stderr
    assert path.stat().st_size <= 300_000
    found = texts(path)
    assert len(found) > 100
    assert [text.split()[0] for text in found] == [str(number) for number in range(len(found))]


def test_a_crash_in_the_middle_leaves_a_file_that_can_be_read_and_mended(tmp_path: Path) -> None:
    path = tmp_path / "run.mcap"
    child = subprocess.Popen([sys.executable, "-c", RECORDER, str(path), "0"], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    try:
        reached = 0
        while reached < 1000:
            reached = int(child.stdout.readline().split()[0])
    finally:
        child.kill()
        child.communicate(timeout=60)
    with path.open("ab") as file:
        file.write(b"\x06\xff\xff")  # Half a record.
    found = texts(path)
    assert len(found) >= 800
    mended = tmp_path / "mended.mcap"
    assert recover(path, mended) == len(found)
    from rosbags.highlevel import AnyReader

    with AnyReader([mended], default_typestore=ros2_store.store()) as bag:
        assert sum(1 for _ in bag.messages()) == len(found)
    with pytest.raises(DaemonError, match="another file"):
        recover(path, mended)


@pytest.mark.parametrize("data", [b"", b"no mcap", b"\x89MCAP0\r\n", b"\x89MCAP0\r\n\x01" + b"\xff" * 20])
def test_what_is_no_recording_is_said(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.mcap"
    path.write_bytes(data)
    with pytest.raises(DaemonError, match="no MCAP recording"):
        Recording(path)
    with pytest.raises(DaemonError, match="No such file"):
        Recording(tmp_path / "none.mcap")


async def test_every_damage_of_a_recording_is_survived(tmp_path: Path) -> None:
    whole = tmp_path / "run.mcap"
    await record(whole, "ros2", images_hz=1)
    data = whole.read_bytes()
    rng = random.Random(3)
    damaged = tmp_path / "damaged.mcap"
    refused = 0
    for _ in range(150):
        at = rng.randrange(len(data))
        change = bytearray(data[:at] if rng.random() < 0.3 else data)
        for _ in range(rng.randrange(1, 4)):
            if change:
                change[rng.randrange(len(change))] = rng.randrange(256)
        damaged.write_bytes(change)
        try:
            list(Recording(damaged).messages())
        except DaemonError:
            refused += 1
    assert 0 < refused < 150


@pytest.mark.parametrize("profile", ["ros2", "foxglove"])
async def test_a_complete_recording_is_not_torn_and_a_cut_one_is(tmp_path: Path, profile: str) -> None:
    path = tmp_path / "run.mcap"
    await record(path, profile)
    whole = Recording(path)
    found = list(whole.messages())
    assert found
    assert not whole.torn
    assert [row[2].log_time for row in found] == sorted(row[2].log_time for row in found)
    path.write_bytes(path.read_bytes()[:-40])
    cut = Recording(path)
    assert len(list(cut.messages())) == len(found)
    assert cut.torn


def test_a_file_in_the_way_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "run.mcap"
    path.write_bytes(b"precious")
    with pytest.raises(RecordError, match=r"run\.mcap.*another file"):
        Recorder(path, "ros2", {}, 1 << 20, 0)
    assert path.read_bytes() == b"precious"


def test_a_full_disk_ends_the_recording_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swarmd.bridges.record.recorder.FREE_CHECK_S", 0)
    path = tmp_path / "run.mcap"
    recorder = Recorder(path, "ros2", {}, 1 << 30, 0)
    recorder._min_free_bytes = 1 << 60
    recorder.write("/log", "std_msgs/msg/String", {"data": "x"}, 1)
    assert "min_free_mib" in recorder.problem
    recorder.write("/log", "std_msgs/msg/String", {"data": "y"}, 2)
    assert recorder.counts["dropped_full"] == 1
    with path.open("rb") as file:
        assert make_reader(file).get_summary() is not None


def test_on_a_full_disk_no_recording_is_begun(tmp_path: Path) -> None:
    """A daemon that starts again and again would leave a file each time."""
    with pytest.raises(RecordError, match="min_free_mib"):
        Recorder(tmp_path / "run.mcap", "ros2", {}, 1 << 30, 1 << 60)
    assert list(tmp_path.iterdir()) == []


async def test_a_recording_that_breaks_says_so_and_is_not_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`swarmd record` looks at the problem: it waited for hours beside a file that nothing was written to."""
    bridge, world = RecordBridge(RecordConfig(enabled=True, min_free_mib=1), tmp_path / "run.mcap"), World("alice")

    async def broken() -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(bridge, "_write_picture", broken)
    bridge.open(world)
    for _ in range(2):  # As the supervisor does it.
        with suppress(RuntimeError):
            await bridge.run(world)
    assert "new thread" in bridge.problem


def test_a_recovery_that_finds_the_disk_full_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torn, out = tmp_path / "torn.mcap", tmp_path / "whole.mcap"
    recorder = Recorder(torn, "ros2", {}, 1 << 30, 0)
    recorder.write("/log", "std_msgs/msg/String", {"data": "x"}, 1)
    recorder.close()
    with monkeypatch.context() as patched:

        def full(*_: object, **__: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        patched.setattr("swarmd.bridges.record.reading.Writer.add_message", full)
        with pytest.raises(DaemonError, match="No space left"):
            recover(torn, out)
    assert not out.exists()
    assert recover(torn, out) == 1


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
    assert checked == 9


def _bomb(path: Path, packing: str, *, is_indexed: bool) -> None:
    """A recording of one chunk that unpacks to more than it may."""
    data = _record(200, bytes(RECORD_MAX_BYTES + 1))
    packed = zstandard.compress(data, 1) if packing == "zstd" else lz4.frame.compress(data, store_size=False)
    head = struct.pack("<QQQI", 0, 1, 1000, 0) + _text(packing.encode()) + struct.pack("<Q", len(packed))
    whole = MCAP0_MAGIC + _record(1, _text(b"") * 2)
    at = len(whole)
    whole += _record(6, head + packed) + _record(15, bytes(4))
    index = struct.pack("<QQQQI", 0, 1, at, len(whole) - at, 0) + bytes(8) + _text(packing.encode()) + bytes(16)
    summary = _record(8, index) if is_indexed else b""
    whole += summary + _record(2, struct.pack("<QQI", len(whole) if is_indexed else 0, 0, 0)) + MCAP0_MAGIC
    path.write_bytes(whole)


def _record(kind: int, data: bytes) -> bytes:
    return bytes((kind,)) + struct.pack("<Q", len(data)) + data


def _text(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


@pytest.mark.parametrize("packing", ["zstd", "lz4"])
@pytest.mark.parametrize("is_indexed", [True, False])
def test_a_chunk_that_unpacks_to_too_much_is_not_unpacked(packing: str, is_indexed: bool, tmp_path: Path) -> None:
    path = tmp_path / "bomb.mcap"
    _bomb(path, packing, is_indexed=is_indexed)
    recording = Recording(path)
    with patch("swarmd.bridges.record.reading.breakup_chunk", side_effect=AssertionError):
        assert not list(recording.messages())
    assert recording.torn


def test_a_chunk_that_the_index_names_often_is_read_once(tmp_path: Path) -> None:
    path, out = tmp_path / "run.mcap", tmp_path / "often.mcap"
    with path.open("wb") as file:
        writer = Writer(file, chunk_size=64)
        writer.start()
        channel = writer.register_channel("a", "", writer.register_schema("a", "", b""))
        for number in (3, 1, 2, 0):
            writer.add_message(channel, number, bytes(100), number)
        writer.finish()
    data = path.read_bytes()
    with path.open("rb") as file:
        reader = make_reader(file)
        summary = reader.get_summary()
        wanted = [message.log_time for _, _, message in reader.iter_messages()]
    assert [message.log_time for _, _, message in Recording(path).messages()] == wanted == [0, 1, 2, 3]
    assert summary is not None
    one = RecordBuilder()
    summary.chunk_indexes[0].write(one)
    at = data.index(again := one.end())
    out.write_bytes(data[:at] + again * 1_000 + data[at:])
    recording = Recording(out)
    assert sum(1 for _ in recording.messages()) == 4
