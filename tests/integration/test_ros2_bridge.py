"""The ROS 2 bridge: what it writes is decoded by rosbags (not our code), what it reads may come from anybody."""

import asyncio
import dataclasses
import math
import os
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from swarmd.api.daemon import Look, NodePosition, PositionSeen
from swarmd.bridges.ros2.names import TYPE_HASHES, ros_type, token
from swarmd.config.bridges import DdsConfig
from swarmd.errors import TransportError
from swarmd_models.geo.geolocate import rotate
from swarmd_models.geo.positions import ecef_m
from swarmd_protocols.ids import NodeId
from tests.support import fastdds, ros2_store
from tests.support.bridge_world import BOB, World, detection, happened, object_view, own_detection, pose
from tests.support.daemons import PATIENCE_S
from tests.support.transport_endpoints import until_sent

pytest.importorskip("cyclonedds", reason="cyclonedds is not installed (extra dds)")

from cyclonedds.core import InstanceState, SampleState, ViewState
from cyclonedds.domain import DomainParticipant
from cyclonedds.pub import DataWriter
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic

from swarmd.bridges.ros2 import messages as m
from swarmd.bridges.ros2.bridge import Ros2Bridge
from swarmd.bridges.ros2.network import loopback_xml
from swarmd.bridges.ros2.participant import SAMPLE_MAX_BYTES, Ros2Participant, qos

_ANY = SampleState.Any | ViewState.Any | InstanceState.Any


@pytest.fixture(autouse=True, scope="module")
def loopback() -> Any:
    """Everything on loopback, and the same for the test's own participant."""
    before = os.environ.get("CYCLONEDDS_URI")
    os.environ["CYCLONEDDS_URI"] = loopback_xml("lo")
    yield
    if before is None:
        del os.environ["CYCLONEDDS_URI"]
    else:
        os.environ["CYCLONEDDS_URI"] = before


@asynccontextmanager
async def running(domain: int, world: World, **changes: Any) -> AsyncIterator[Ros2Bridge]:
    bridge = Ros2Bridge(DdsConfig(enabled=True, domain=domain, objects_max_hz=50, **changes))
    task = asyncio.create_task(bridge.run(world))
    await until(lambda: bool(world.callbacks) or task.done())
    if task.done():
        task.result()
    try:
        yield bridge
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(condition: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        await asyncio.sleep(0.01)


async def matched(entity: Any) -> None:
    """Wait until the reader or writer has met its other half, and the other half it."""
    status = getattr(entity, "get_publication_matched_status", getattr(entity, "get_subscription_matched_status", None))
    if status is not None:
        await until(lambda: status().current_count > 0)
    # cyclonedds 0.10.5 cannot say.
    await asyncio.sleep(0.5 if status is not None else 2.0)


class RawReader:
    """A reader that keeps the CDR bytes as they came off the wire."""

    def __init__(
        self, participant: DomainParticipant, topic: str, message: type[Any], *, latched: bool, reliable: bool = True
    ) -> None:
        self._qos = qos(reliable=reliable, transient_local=latched, depth=100)
        self.reader = DataReader(participant, Topic(participant, topic, message, qos=self._qos), qos=self._qos)
        self.name = ros_type(message.__idl_typename__)

    async def take(self) -> bytes:
        from cyclonedds._clayer import ddspy_take

        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            try:
                samples = ddspy_take(self.reader._ref, _ANY, 1)
            except TypeError:  # cyclonedds 0.10.5 takes no mask
                samples = ddspy_take(self.reader._ref, 1)
            if isinstance(samples, list) and samples and samples[0][0]:
                return bytes(samples[0][0])
            await asyncio.sleep(0.01)
        raise AssertionError("no sample")


TYPES = [
    m.String,
    m.Detection3DArray,
    m.Detection2DArray,
    m.CameraInfo,
    m.MarkerArray,
    m.DiagnosticArray,
    m.NavSatFix,
    m.BatteryState,
    m.PoseStamped,
    m.Odometry,
    m.CompressedImage,
    m.CellArray,
    m.GeoPoint,
    m.TFMessage,
    m.Event,
    m.ParticipantEntitiesInfo,
]


@pytest.mark.parametrize("message", TYPES, ids=lambda one: str(one.__name__))
def test_type_hash_and_fields_are_those_of_ros(message: type[Any]) -> None:
    types = ros2_store.store()
    name = ros_type(message.__idl_typename__)
    assert types.hash_rihs01(name) == TYPE_HASHES[name]
    ours = [field.name for field in dataclasses.fields(message)]
    assert ours == [field for field, _ in types.fielddefs[name][1]]


async def test_detections_objects_and_late_joiners(dds_domain: int) -> None:
    world = World("drone-7")
    types = ros2_store.store()
    async with running(dds_domain, world):
        participant = DomainParticipant(dds_domain)
        # A late joiner gets the picture, although nothing changes any more.
        late = RawReader(participant, "rt/swarm/objects", m.Detection3DArray, latched=True)
        decoded = types.deserialize_cdr(await late.take(), late.name)
        assert decoded.header.frame_id == "map"
        one = decoded.detections[0]
        assert (one.id, one.results[0].hypothesis.class_id) == ("o1", "hot-spot")
        assert (one.bbox.center.position.x, one.bbox.center.position.y) == (10.0, 20.0)
        assert one.results[0].pose.covariance[0] == pytest.approx(0.04)
        markers = RawReader(participant, "rt/swarm/objects/markers", m.MarkerArray, latched=True)
        assert [k.action for k in types.deserialize_cdr(await markers.take(), markers.name).markers] == [3, 0]
        peers = RawReader(participant, "rt/swarm/peers", m.DiagnosticArray, latched=True)
        found = types.deserialize_cdr(await peers.take(), peers.name)
        assert {status.name: status.message for status in found.status} == {
            "swarm/alice": "alive",
            "swarm/bob": "failed",
        }
        cells = RawReader(participant, "rt/swarm/cells", m.CellArray, latched=True)
        assert types.deserialize_cdr(await cells.take(), cells.name).cells[0].done_by == ["bob"]
        graph = RawReader(participant, "ros_discovery_info", m.ParticipantEntitiesInfo, latched=True)
        info = types.deserialize_cdr(await graph.take(), graph.name)
        assert info.node_entities_info_seq[0].node_name == "swarmd_drone_7"
        assert len(info.node_entities_info_seq[0].writer_gid_seq) == 15

        live = RawReader(participant, "rt/swarm/detections", m.Detection3DArray, latched=False)
        await matched(live.reader)
        told = [detection(5), detection(6), detection(7, east_cm=None)]
        for one in told:
            world.say(one)
        array = types.deserialize_cdr(await live.take(), live.name)
        assert [one.id for one in array.detections] == [one.detail.view.detection_id for one in told[:2]]


async def test_what_happened_is_read_by_a_late_joiner_in_order(dds_domain: int) -> None:
    world, types = World("drone-7"), ros2_store.store()
    async with running(dds_domain, world):
        told = [happened(1), happened(2, "release-halted"), happened(3, "joined", BOB)]
        for one in told:
            world.say(one)
        reader = RawReader(DomainParticipant(dds_domain), "rt/swarm/events", m.Event, latched=True)
        got = [types.deserialize_cdr(await reader.take(), reader.name) for _ in told]
    assert [one.id for one in got] == [one.record.event_id for one in told]
    assert [(one.kind, one.level, one.origin) for one in got] == [
        ("failed", 1, "alice"),
        ("release-halted", 2, "alice"),
        ("joined", 0, "bob"),
    ]
    assert (got[0].subject, got[0].reason, got[0].evidence) == ("drone-3", "no answer", "alive to failed")
    assert (got[0].header.stamp.sec, got[0].header.stamp.nanosec) == (1_790_000_000, 123_000_000)


async def test_no_fix_is_said_and_places_nothing(dds_domain: int) -> None:
    world = World()
    types = ros2_store.store()
    async with running(dds_domain, world, peers_max_hz=1000):
        participant = DomainParticipant(dds_domain)
        sensor = qos(reliable=False, transient_local=False, depth=5)
        reader = DataReader(participant, Topic(participant, "rt/alice/fix", m.NavSatFix, qos=sensor), qos=sensor)
        await matched(reader)
        world.say(pose(has_fix=False))
        await until(lambda: bool(reader.read(1)))
        sample = reader.take(1)[0]
        assert sample.status.status == -1
        assert sample.latitude != sample.latitude
        assert types.hash_rihs01("sensor_msgs/msg/NavSatFix") == TYPE_HASHES["sensor_msgs/msg/NavSatFix"]


async def test_a_late_joiner_learns_where_the_map_lies(dds_domain: int) -> None:
    world, types = World(), ros2_store.store()
    async with running(dds_domain, world):
        participant = DomainParticipant(dds_domain)
        late = RawReader(participant, "rt/swarm/origin", m.GeoPoint, latched=True)
        decoded = types.deserialize_cdr(await late.take(), late.name)
        assert (decoded.latitude, decoded.longitude) == (-18.88, -70.11)
        assert decoded.altitude != decoded.altitude


@pytest.mark.parametrize("altitude_m", [None, 561.25])
async def test_the_altitude_is_said_where_it_is_known(dds_domain: int, altitude_m: float | None) -> None:
    world, types = World(), ros2_store.store()
    async with running(dds_domain, world, peers_max_hz=1000):
        participant = DomainParticipant(dds_domain)
        reader = RawReader(participant, "rt/alice/fix", m.NavSatFix, latched=False, reliable=False)
        await matched(reader.reader)
        world.say(structs.replace(pose(), altitude_m=altitude_m))
        decoded = types.deserialize_cdr(await reader.take(), reader.name)
        assert decoded.altitude == altitude_m if altitude_m is not None else decoded.altitude != decoded.altitude


async def test_frames_lie_where_the_members_are(dds_domain: int) -> None:
    """earth -> map -> swarm/NAME: the two together give back the place on Earth that a member told."""
    world, types = World("drone-7"), ros2_store.store()
    where = NodePosition(BOB, -18.8799, -70.1099, 25.0, math.radians(90), 0.5, 800, time.monotonic_ns())
    async with running(dds_domain, world, peers_max_hz=1000) as bridge:
        participant = DomainParticipant(dds_domain)
        late = RawReader(participant, "rt/tf_static", m.TFMessage, latched=True)
        moving = RawReader(participant, "rt/tf", m.TFMessage, latched=False)
        (fixed,) = types.deserialize_cdr(await late.take(), late.name).transforms
        assert (fixed.header.frame_id, fixed.child_frame_id) == ("earth", "map")
        await matched(moving.reader)
        world.say(PositionSeen(BOB, "bob-1", where))
        (bob,) = types.deserialize_cdr(await moving.take(), moving.name).transforms
        assert (bob.header.frame_id, bob.child_frame_id) == ("map", "swarm/bob_1")
        world.say(pose())
        (own,) = types.deserialize_cdr(await moving.take(), moving.name).transforms
        assert own.child_frame_id == "swarm/drone_7"
        at, turn = bob.transform.translation, fixed.transform.rotation
        east_north_up = rotate((turn.w, turn.x, turn.y, turn.z), (at.x, at.y, at.z))
        base = fixed.transform.translation
        found = [base.x + east_north_up[0], base.y + east_north_up[1], base.z + east_north_up[2]]
        above = [one * (1 + 25.0 / 6_378_137) for one in ecef_m(where.latitude_deg, where.longitude_deg)]
        assert math.dist(found, above) < 0.1, "within the half centimetre that places are rounded to, and the ellipsoid"
        # REP 103: heading east is a yaw of 0.
        assert (bob.transform.rotation.z, bob.transform.rotation.w) == pytest.approx((0.0, 1.0))
        assert ("/tf_static", "tf2_msgs/msg/TFMessage: earth -> map") in bridge.topics()
    async with running(dds_domain, world, tf=False) as bridge:
        assert not [topic for topic, _ in bridge.topics() if topic.startswith("/tf")]


async def test_an_own_detection_has_the_size_of_its_box(dds_domain: int) -> None:
    world, types = World(), ros2_store.store()
    world.looks[1] = Look((0.1, 0.2, 0.3, 0.4), extent_m=(1.5, 0.75))
    async with running(dds_domain, world):
        participant = DomainParticipant(dds_domain)
        reader = RawReader(participant, "rt/swarm/detections", m.Detection3DArray, latched=False)
        await matched(reader.reader)
        for said, size in ((own_detection(), (1.5, 0.75, 0.0)), (detection(2), (0.0, 0.0, 0.0))):
            world.say(said)
            (found,) = types.deserialize_cdr(await reader.take(), reader.name).detections
            assert (found.bbox.size.x, found.bbox.size.y, found.bbox.size.z) == size


async def test_odometry_says_what_it_does_not_know(dds_domain: int) -> None:
    world, types = World(), ros2_store.store()
    async with running(dds_domain, world, peers_max_hz=1000) as bridge:
        participant = DomainParticipant(dds_domain)
        reader = RawReader(participant, "rt/alice/odom", m.Odometry, latched=False, reliable=False)
        await matched(reader.reader)
        world.say(pose())
        decoded = types.deserialize_cdr(await reader.take(), reader.name)
        assert (decoded.header.frame_id, decoded.child_frame_id) == ("map", "base_link")
        assert decoded.pose.pose.position.z == 25.0
        assert [decoded.pose.covariance[index] for index in (0, 7, 14)] == pytest.approx([0.01, 0.01, 1e6])
        assert decoded.twist.covariance[0] == 1e6
        assert ("/alice/odom", "nav_msgs/msg/Odometry: the pose with its covariance") in bridge.topics()


async def test_a_ros_detector_feeds_us_and_a_hostile_writer_does_not(dds_domain: int) -> None:
    world = World()
    async with running(dds_domain, world) as bridge:
        participant = DomainParticipant(dds_domain)
        sensor = qos(reliable=False, transient_local=False, depth=100)
        topic = Topic(participant, "rt/alice/detections_in", m.Detection3DArray, qos=sensor)
        writer = DataWriter(participant, topic, qos=sensor)
        await matched(writer)

        def one(label: str, score: float, x: float) -> m.Detection3D:
            centre = m.Pose(m.Point(x, 2.0, 0.0))
            result = m.ObjectHypothesisWithPose(m.ObjectHypothesis(label, score), m.PoseWithCovariance(centre))
            return m.Detection3D(m.Header(), [result], m.BoundingBox3D(centre), "track-1")

        first = m.Detection3DArray(m.Header(), [one("car", 0.5, 1.0)])
        # The writer knows the reader before the reader knows the writer, and what is sent between is lost.
        await until_sent(lambda: writer.write(first), lambda: world.commands)
        verb, arguments = world.commands[0]
        assert verb == "observe"
        assert arguments["detections"] == [
            {
                "label": "car",
                "score": 0.5,
                "east_m": 1.0,
                "north_m": 2.0,
                "covariance_m2": [2.25, 0.0, 2.25],
                "track": "track-1",
            }
        ]
        bad = [one("car", float("nan"), 1.0), one("car", 2.0, 1.0), one("", 0.5, 1.0), one("car", 0.5, float("inf"))]
        writer.write(m.Detection3DArray(m.Header(), [*bad, one("car", 0.5, 1e9), m.Detection3D()]))
        await until(lambda: bridge.counters().get("dropped_malformed", 0) == 6)
        writer.write(m.Detection3DArray(m.Header(), [one("car", 0.5, 1.0)] * 201))
        await until(lambda: bridge.counters().get("dropped_oversized", 0) == 1)
        writer.write(m.Detection3DArray(m.Header(), [one("cat", 0.5, 1.0)]))
        await until(lambda: any("cat" in str(arguments) for _, arguments in world.commands))


async def test_boxes_of_a_ros_detector_reach_the_swarm_with_their_place(dds_domain: int) -> None:
    world = World()
    world.name = "alice"
    async with running(dds_domain, world) as bridge:
        participant = DomainParticipant(dds_domain)
        sensor = qos(reliable=False, transient_local=False, depth=100)

        def writer_of(name: str, message: type[Any]) -> Any:
            return DataWriter(participant, Topic(participant, name, message, qos=sensor), qos=sensor)

        boxes = writer_of("rt/alice/detections_in", m.Detection2DArray)
        cameras = writer_of("rt/alice/camera_info", m.CameraInfo)
        await matched(boxes)
        await matched(cameras)
        result = m.ObjectHypothesisWithPose(m.ObjectHypothesis("car", 0.5))
        box = m.Detection2D(m.Header(), [result], m.BoundingBox2D(m.Pose2D(m.Point2D(320.0, 240.0)), 10.0, 10.0), "7")
        boxes.write(m.Detection2DArray(m.Header(), [box]))
        await until(lambda: len(world.commands) == 1)
        assert world.commands[0][1]["detections"] == [{"label": "car", "score": 0.5, "track": "7"}]
        k = [500.0, 0.0, 320.0, 0.0, 500.0, 240.0, 0.0, 0.0, 1.0]
        cameras.write(m.CameraInfo(m.Header(frame_id="cam"), 480, 640, "plumb_bob", [0.0] * 5, k))
        await until(lambda: bridge.counters().get("cameras") == 1)
        world.say(structs.replace(pose(), camera_to_ned=(2**-0.5, 0.0, -(2**-0.5), 0.0)))
        boxes.write(m.Detection2DArray(m.Header(), [box]))
        await until(lambda: len(world.commands) == 2)
        rows: Any = world.commands[1][1]["detections"]
        assert (rows[0]["latitude_deg"], rows[0]["longitude_deg"]) == pytest.approx((-18.88, -70.11))
        assert bridge.counters()["placed"] == 1


async def test_garbage_giants_and_floods_of_a_hostile_writer_cost_little(dds_domain: int) -> None:
    from cyclonedds._clayer import ddspy_write

    world = World()
    async with running(dds_domain, world) as bridge:
        participant = DomainParticipant(dds_domain)
        usual = qos(reliable=True, transient_local=False, depth=1000)
        topic = Topic(participant, "rt/alice/detections_in", m.Detection3DArray, qos=usual)
        writer = DataWriter(participant, topic, qos=usual)
        await matched(writer)
        result = m.ObjectHypothesisWithPose(m.ObjectHypothesis("cat", 0.5))
        giant = m.Detection3DArray(m.Header(frame_id="x" * SAMPLE_MAX_BYTES), [])
        writer.write(giant)
        await until(lambda: bridge.counters().get("dropped_oversized", 0) == 1)
        good = m.Detection3DArray(m.Header(), [m.Detection3D(results=[result], id="1")]).serialize()
        for cut in range(4, len(good), 40):
            ddspy_write(writer._ref, good[:cut].ljust((cut + 3) & ~3, b"\0"))
            ddspy_write(writer._ref, good[:cut].ljust(len(good), b"\xff"))
        heavy = m.Detection3DArray(m.Header(frame_id="y" * (SAMPLE_MAX_BYTES // 2)), [])
        await until(lambda: bool(writer.write(heavy)) or bridge.counters().get("dropped_over_rate", 0) > 0)
        # The bucket fills again, and who behaves is heard.
        await until(lambda: bool(writer.write(m.Detection3DArray.deserialize(good))) or "cat" in str(world.commands))
        assert bridge.counters()["dropped_oversized"] == 1


async def test_a_peers_position_is_published_again_and_its_lost_fix_too(dds_domain: int) -> None:
    world, types = World("drone-7"), ros2_store.store()
    where = NodePosition(BOB, -18.8799, -70.1099, 25.0, 0.0, 0.5, 800, time.monotonic_ns() - 2 * 10**9)
    async with running(dds_domain, world, peers_max_hz=1000, topic_max_hz=("/*/pose=0.01",)) as bridge:
        for _ in range(3):  # One topic is made with each word.
            world.say(PositionSeen(BOB, "bob-1", where))
        participant = DomainParticipant(dds_domain)
        fixes, poses = (
            RawReader(participant, f"rt/bob_1/{key}", message, latched=False, reliable=False)
            for key, message in (("fix", m.NavSatFix), ("pose", m.PoseStamped))
        )
        await matched(fixes.reader)
        await matched(poses.reader)
        world.say(PositionSeen(BOB, "bob-1", where))
        fix = types.deserialize_cdr(await fixes.take(), fixes.name)
        assert (fix.latitude, fix.longitude, fix.status.status) == (-18.8799, -70.1099, 0)
        assert 1.9 < time.time() - fix.header.stamp.sec - fix.header.stamp.nanosec / 1e9 < 60
        assert fix.position_covariance[0] == pytest.approx(0.25)
        assert fix.altitude != fix.altitude, "nobody told how high its ground lies"
        world.say(PositionSeen(BOB, "bob-1", structs.replace(where, altitude_m=456.5)))
        assert types.deserialize_cdr(await fixes.take(), fixes.name).altitude == 456.5
        world.say(PositionSeen(BOB, "bob-1", None))
        lost = types.deserialize_cdr(await fixes.take(), fixes.name)
        assert lost.status.status == -1
        assert lost.latitude != lost.latitude
        # One pose in a hundred seconds is the limit that was set for it; before anybody read none was made.
        assert bridge.counters()["published_peer_pose"] == 1
        assert ("/bob_1/fix", "sensor_msgs/msg/NavSatFix: position of a peer") in bridge.topics()
        # Another node whose name ROS 2 writes the same way, and this node's own name, are kept out.
        world.say(PositionSeen(NodeId(b"c" * 16), "bob.1", where))
        world.say(PositionSeen(NodeId(b"d" * 16), "drone_7", where))
        assert bridge.counters()["dropped_peer_name"] == 2


async def test_more_peers_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch, dds_domain: int) -> None:
    monkeypatch.setattr("swarmd.bridges.ros2.bridge.PEERS_MAX", 2)
    world = World()
    async with running(dds_domain, world) as bridge:
        for letter in b"bcde":
            node = NodeId(bytes([letter]) * 16)
            world.say(PositionSeen(node, f"p{letter}", NodePosition(node, 1.0, 2.0, 3.0, None, 1.0, None, 0)))
        assert bridge.counters()["peers_forgotten"] == 2
        assert len([name for name, _ in bridge.topics() if name.endswith("/fix")]) == 3


@pytest.mark.parametrize("domain", ["233", "-1", "seven", "1.5"])
def test_a_wrong_domain_is_said(domain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROS_DOMAIN_ID", domain)
    with pytest.raises(TransportError, match=r"ROS_DOMAIN_ID is .* 0 to 232"):
        Ros2Participant(-1, "swarmd_x", "lo")


def test_an_interface_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CYCLONEDDS_URI", raising=False)
    with pytest.raises(TransportError, match=r"domain 99 on interface 'nosuch0'.*CYCLONEDDS_URI"):
        Ros2Participant(99, "swarmd_x", "nosuch0")


@pytest.mark.parametrize("entry", ["fix=1", "/a/fix", "/a/fix=0", "/a/fix=2000", "/a/fix=x", "/a b=1"])
def test_a_rate_that_cannot_be_read_is_said(entry: str) -> None:
    with pytest.raises(TransportError, match=r"TOPIC=HZ.*/\*/fix=1"):
        Ros2Bridge(DdsConfig(topic_max_hz=(entry,)))


async def test_fast_dds_reads_the_picture(tmp_path: Path, dds_domain: int) -> None:
    """The vendor behind ROS 2's default middleware receives what we write, and rosbags decodes it."""
    if not hasattr(DataWriter, "get_publication_matched_status"):
        pytest.skip("CycloneDDS 0.10 here, which on loopback alone does not see Fast DDS (docs/operations.md)")
    program, environment = await asyncio.to_thread(fastdds.build, tmp_path)
    async with running(dds_domain, World()):
        name = m.Detection3DArray.__idl_typename__
        arguments = [program, str(dds_domain), "rt/swarm/objects", name, "1"]
        env = {**os.environ, **environment}
        done = await asyncio.to_thread(subprocess.run, arguments, env=env, capture_output=True, text=True, timeout=120)
    assert done.stdout, done.stderr
    types = ros2_store.store()
    decoded = types.deserialize_cdr(bytes.fromhex(done.stdout.split()[0]), "vision_msgs/msg/Detection3DArray")
    assert decoded.detections[0].results[0].hypothesis.class_id == "hot-spot"


def test_names_become_ros_tokens() -> None:
    assert token("drone-7/ä") == "drone_7__"
    assert object_view().object_id
