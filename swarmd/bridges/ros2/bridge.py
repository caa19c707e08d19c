"""The swarm as ordinary ROS 2 topics on this robot, own data and peers' alike.

DDS stays on the robot (loopback by default): peers' data arrives through the swarm and is published again here, so
that no discovery storm ever crosses the radio. Each topic has a rate limit.
"""

import asyncio
import time
from collections import Counter
from typing import Any

from swarmd.api.daemon import BusEvent, DaemonView, Look, NodePosition, PoseSeen, PositionSeen
from swarmd.bridges.ros2 import messages as m
from swarmd.bridges.ros2.convert import (
    cell_of,
    detection_of,
    event_of,
    fix_of,
    map_in_earth,
    marker_of,
    object_of,
    odometry_of,
    origin_of,
    pose_of,
    reviews_of,
    stamp,
    transform_of,
    unix_ns,
)
from swarmd.bridges.ros2.intake import Intake, Row
from swarmd.bridges.ros2.limits import TopicLimits
from swarmd.bridges.ros2.mapping import DIAGNOSTIC_LEVELS, FRAME
from swarmd.bridges.ros2.names import dds_topic, ros_type, token
from swarmd.bridges.ros2.network import hosts_of, is_outdated
from swarmd.bridges.ros2.participant import Ros2Participant, is_read, write
from swarmd.bridges.trace import trace_of_view
from swarmd.config.bridges import DdsConfig
from swarmd.errors import DaemonError, TransportError
from swarmd.events.record import Happened
from swarmd_protocols.effects import MemberChanged, StateChanged
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.observations import CellChanged, DetectionLearned, DetectionView, ObjectChanged
from swarmd_protocols.summary import MemberView

PEERS_MAX = 128
"""Peers whose positions are published again at once; the one that was silent for longest makes room."""
_NETWORK_LOOK_S = 5.0
"""Seconds between two looks at the addresses under the participant."""
_STREAM, _EVENTS, _LATCHED, _SENSOR = (True, False, 100), (True, False, 10), (True, True, 1), (False, False, 5)
"""Reliable, transient local, depth."""
_TF = (True, False, 100)
"""As tf2's own broadcaster; /tf_static is as `_LATCHED`."""
_HISTORY = (True, True, 100)
"""Who comes later still gets the last hundred."""


def _outlets(
    node: str, *, traced: bool = False, tf: bool = True
) -> list[tuple[str, str, type[Any], tuple[bool, bool, int], str]]:
    """Every topic that is written: key, ROS 2 name, message, QoS, what is on it."""
    return [
        ("detections", "/swarm/detections", m.Detection3DArray, _STREAM, "own and peers' detections"),
        *(
            [("traces", "/swarm/detections/traces", m.DiagnosticArray, _STREAM, "their trace context")]
            if traced
            else []
        ),
        ("objects", "/swarm/objects", m.Detection3DArray, _LATCHED, "the deduplicated picture"),
        ("markers", "/swarm/objects/markers", m.MarkerArray, _LATCHED, "the picture for RViz"),
        ("reviews", "/swarm/objects/reviews", m.DiagnosticArray, _LATCHED, "what operators say of objects"),
        ("peers", "/swarm/peers", m.DiagnosticArray, _LATCHED, "the members"),
        ("diagnostics", "/diagnostics", m.DiagnosticArray, _EVENTS, "the members, for diagnostic tools"),
        ("cells", "/swarm/cells", m.CellArray, _LATCHED, "the survey area"),
        ("origin", "/swarm/origin", m.GeoPoint, _LATCHED, "where (0, 0) of the frame `map` lies"),
        *(
            [
                ("tf", "/tf", m.TFMessage, _TF, "where each member is: map -> swarm/{name}"),
                ("tf_static", "/tf_static", m.TFMessage, _LATCHED, "earth -> map"),
            ]
            if tf
            else []
        ),
        ("events", "/swarm/events", m.Event, _HISTORY, "what happened"),
        ("fix", f"/{node}/fix", m.NavSatFix, _SENSOR, "position of this device"),
        ("pose", f"/{node}/pose", m.PoseStamped, _SENSOR, "pose of this device"),
        ("odom", f"/{node}/odom", m.Odometry, _SENSOR, "the pose with its covariance"),
        ("battery", f"/{node}/battery", m.BatteryState, _SENSOR, "battery of this device"),
    ]


_PEER_OUTLETS: dict[str, tuple[type[Any], str]] = {
    "fix": (m.NavSatFix, "position of a peer"),
    "pose": (m.PoseStamped, "pose of a peer"),
    "battery": (m.BatteryState, "battery of a peer"),
}


class Ros2Bridge:
    """One DDS participant beside the daemon."""

    name = "dds"

    def __init__(self, config: DdsConfig, traced_ratio: float = 0.0) -> None:
        """Prepare; DDS is opened in `run`.

        Args:
            config: The `[dds]` section.
            traced_ratio: Part of the sightings that `[otel]` exports; 0: none, and no topic for their context.

        Raises:
            TransportError: `topic_max_hz` cannot be read.
        """
        self._config = config
        self._traced_ratio = traced_ratio
        self._limits = TopicLimits(config.topic_max_hz)
        self._intake = Intake(config.box_ground)
        self._participant: Ros2Participant | None = None
        self._counts: Counter[str] = Counter()
        self._pending: list[tuple[DetectionView, Look | None]] = []
        self._pending_due = asyncio.Event()
        self._picture_due = asyncio.Event()
        self._daemon: DaemonView | None = None
        self._writers: dict[str, Any] = {}
        self._names: dict[str, str] = {}
        """Key of an own writer to its ROS 2 topic."""
        self._peers: dict[NodeId, dict[str, Any]] = {}
        """Peer to its writers by the last part of the topic; who spoke last is last."""
        self._tokens: dict[str, NodeId] = {}
        self._has_made = False
        """Whether this word of a peer has cost a writer already."""

    def counters(self) -> dict[str, int]:
        """Monotonic counts: published samples by topic, received, placed, dropped by reason."""
        return dict(self._counts + self._intake.counts)

    async def run(self, daemon: DaemonView) -> None:
        """Serve until cancelled."""
        self._daemon = daemon
        info = daemon.info()
        node = token(info.name)
        participant = Ros2Participant(self._config.domain, f"swarmd_{node}", self._config.interface)
        self._participant = participant
        self._tokens[node] = info.node
        try:
            self._open_writers(participant, node)
            if self._config.detections_in:
                self._open_readers(participant, node)
            participant.announce()
            participant.start(asyncio.get_running_loop(), self._on_bad_sample)
            unsubscribe = daemon.subscribe(self._on_event)
            self._picture_due.set()
            try:
                await asyncio.gather(self._send_detections(), self._send_picture(), self._watch_network())
            finally:
                unsubscribe()
        finally:
            self._writers.clear()
            self._peers.clear()
            self._tokens.clear()
            self._participant = None
            participant.close()

    async def _watch_network(self) -> None:
        """End, to be started anew, when the addresses under the participant change: it keeps those it began with."""
        begun = hosts_of(self._config.interface)
        while not is_outdated(begun, self._config.interface):
            await asyncio.sleep(_NETWORK_LOOK_S)
        raise TransportError("dds starts again: the addresses of this device changed")

    def topics(self) -> list[tuple[str, str]]:
        """What `swarmd topics` shows: ROS 2 names; empty before `run`."""
        if self._daemon is None:
            return []
        node = token(self._daemon.info().name)
        rows = [
            (name, f"{ros_type(message.__idl_typename__)}: {what}")
            for _, name, message, _, what in self._own_outlets(node)
        ]
        if self._config.detections_in:
            topic = f"/{node}/detections_in"
            rows.append((topic, "vision_msgs/msg/Detection3DArray (read): any detector feeds us here"))
            rows.append((topic, "vision_msgs/msg/Detection2DArray (read): boxes, placed by camera and pose"))
            rows.append((self._camera_topic(node), "sensor_msgs/msg/CameraInfo (read): the camera of those boxes"))
        for peer_token, peer in self._tokens.items():
            for key in self._peers.get(peer, ()):
                message, what = _PEER_OUTLETS[key]
                rows.append((f"/{peer_token}/{key}", f"{ros_type(message.__idl_typename__)}: {what}"))
        return rows

    def _own_outlets(self, node: str) -> list[tuple[str, str, type[Any], tuple[bool, bool, int], str]]:
        return _outlets(node, traced=self._traced_ratio > 0, tf=self._config.tf)

    def _camera_topic(self, node: str) -> str:
        return self._config.camera_info or f"/{node}/camera_info"

    def _open_writers(self, participant: Ros2Participant, node: str) -> None:
        for key, topic, message, (reliable, latched, depth), _ in self._own_outlets(node):
            self._writers[key] = participant.writer(
                dds_topic(topic), message, reliable=reliable, transient_local=latched, depth=depth
            )
            self._names[key] = topic

    def _open_readers(self, participant: Ros2Participant, node: str) -> None:
        topic = dds_topic(f"/{node}/detections_in")
        intake = self._intake
        participant.reader(topic, m.Detection3DArray, lambda got: self._observe(intake.rows3(got)), depth=5)
        participant.reader(topic, m.Detection2DArray, lambda got: self._observe(intake.rows2(got)), depth=5)
        participant.reader(dds_topic(self._camera_topic(node)), m.CameraInfo, intake.on_camera, depth=1)

    def _write(self, key: str, sample: Any) -> None:
        self._write_to(self._writers[key], key, sample)

    async def _write_long(self, key: str, sample: Any) -> None:
        """The same of any length: a thousand objects take tens of milliseconds, and DDS waits for who reads slowly."""
        try:
            await asyncio.to_thread(write, self._writers[key], sample)
            self._counts[f"published_{key}"] += 1
        except Exception:
            self._counts[f"dropped_{key}"] += 1

    def _write_to(self, writer: Any, key: str, sample: Any) -> None:
        try:
            write(writer, sample)
            self._counts[f"published_{key}"] += 1
        except Exception:  # a full history of a stuck reader, or a DDS timeout: counted, never fatal
            self._counts[f"dropped_{key}"] += 1

    def _is_due(self, key: str) -> bool:
        if not is_read(self._writers[key]):
            self._counts[f"unread_{key}"] += 1
            return False
        return self._limits.is_due(self._names[key], self._config.peers_max_hz)

    # --- out --------------------------------------------------------------------------------------------------------

    async def _send_detections(self) -> None:
        """The first after a pause at once, with all that its frame brought; then one array in `batch_ms`, of all."""
        # A slower rate gathers more into one array; nothing is left out.
        gap_s = 1 / self._limits.hz(self._names["detections"], 1000 / max(1, self._config.batch_ms))
        sent_s = -gap_s
        while True:
            await self._pending_due.wait()
            await asyncio.sleep(max(0.0, sent_s + gap_s - time.monotonic()))
            sent_s = time.monotonic()
            self._pending_due.clear()
            batch, self._pending = self._pending, []
            header = m.Header(stamp(time.time_ns()), FRAME)
            if self._traced_ratio and is_read(self._writers["traces"]):
                self._send_traces(header, [view for view, _ in batch])
            if not is_read(self._writers["detections"]):
                self._counts["unread_detections"] += len(batch)
                continue
            found = [one for view, look in batch if (one := detection_of(view, header, look)) is not None]
            self._counts["dropped_no_position"] += len(batch) - len(found)
            if found:
                self._write("detections", m.Detection3DArray(header, found))

    def _send_traces(self, header: m.Header, batch: list[DetectionView]) -> None:
        """Standard messages have no room for a context: it goes beside them, by the detection's id."""
        assert self._daemon is not None
        node = self._daemon.info().node
        traces = []
        for view in batch:
            if view.east_cm is None:
                continue
            context = m.KeyValue("traceparent", trace_of_view(view).traceparent(node, self._traced_ratio))
            traces.append(m.DiagnosticStatus(0, view.detection_id, "", view.origin.hex()[:16], [context]))
        if traces:
            self._write("traces", m.DiagnosticArray(header, traces))

    async def _send_picture(self) -> None:
        """Objects, markers, peers and cells: on change, at most `objects_max_hz`, at least every ten seconds."""
        pause_s = 1 / max(0.01, self._limits.hz(self._names["objects"], self._config.objects_max_hz))
        while True:
            try:
                async with asyncio.timeout(10):
                    await self._picture_due.wait()
            except TimeoutError:
                self._counts["refreshes"] += 1
            self._picture_due.clear()
            await self._publish_picture()
            await asyncio.sleep(pause_s)

    async def _publish_picture(self) -> None:
        """Topic by topic, made a few objects at a time and encoded and written aside: the loop turns meanwhile."""
        daemon = self._daemon
        assert daemon is not None
        header = m.Header(stamp(time.time_ns()), FRAME)
        found: list[m.Detection3D] = []
        markers = [m.Marker(header=header, ns="objects", action=3)]  # The first wipes what was there.
        said: list[m.DiagnosticStatus] = []
        number = 0
        for part in daemon.in_parts.objects():
            for view in part:
                number += 1
                one, marker = object_of(view, header), marker_of(view, number, header)
                found += [one] if one is not None else []
                markers += [marker] if marker is not None else []
                said += reviews_of(view)
            await asyncio.sleep(0)
        await self._write_long("objects", m.Detection3DArray(header, found))
        await self._write_long("markers", m.MarkerArray(markers))
        await self._write_long("reviews", m.DiagnosticArray(header, said))
        peers: list[m.DiagnosticStatus] = []
        for members in daemon.in_parts.members():
            peers += [_diagnosis(member) for member in members]
            await asyncio.sleep(0)
        for key in ("peers", "diagnostics"):
            await self._write_long(key, m.DiagnosticArray(header, peers))
        info = daemon.info()
        if info.has_origin:
            self._write("origin", origin_of(info))
            if self._config.tf:
                self._write("tf_static", m.TFMessage([map_in_earth(info, header)]))
        names = daemon.in_parts.names()
        cells: list[m.Cell] = []
        for survey in daemon.in_parts.cells():
            cells += [cell_of(view, names) for view in survey]
            await asyncio.sleep(0)
        if cells:
            await self._write_long("cells", m.CellArray(header, cells))

    # --- in ---------------------------------------------------------------------------------------------------------

    def _on_event(self, event: BusEvent) -> None:
        match event:
            case StateChanged(detail=DetectionLearned(view, track_id=track)) if not view.is_candidate:
                if len(self._pending) >= 1000:
                    self._counts["dropped_backlog"] += 1
                    return
                assert self._daemon is not None
                self._pending.append((view, None if track is None else self._daemon.look(track)))
                self._pending_due.set()
            case StateChanged(detail=ObjectChanged() | CellChanged()) | MemberChanged():
                self._picture_due.set()
            case PoseSeen():
                self._intake.on_pose(event)
                self._on_pose(event)
            case PositionSeen(node, name, position):
                self._on_peer(node, name, position)
            case Happened(record):
                self._write("events", event_of(record))
            case _:
                pass

    def _on_pose(self, pose: PoseSeen) -> None:
        assert self._daemon is not None
        header = m.Header(stamp(unix_ns(pose.captured_ns)), FRAME)
        if self._is_due("fix"):
            self._write("fix", fix_of(pose if pose.has_fix else None, header))
        info = self._daemon.info()
        if pose.has_fix and info.has_origin:
            place = pose_of(pose, info)
            if self._is_due("pose"):
                self._write("pose", m.PoseStamped(header, place))
            self._place(token(info.name), place, header)
            if self._is_due("odom"):
                self._write("odom", odometry_of(place, pose.position_sigma_m**2, header))
        if pose.battery_milli is not None and self._is_due("battery"):
            self._write("battery", m.BatteryState(header=header, percentage=pose.battery_milli / 1000))

    def _place(self, name: str, place: m.Pose, header: m.Header) -> None:
        """A member's frame on /tf, each at its own rate."""
        if not self._config.tf:
            return
        if not is_read(self._writers["tf"]):
            self._counts["unread_tf"] += 1
        elif self._limits.is_due(f"/tf/{name}", self._config.peers_max_hz):
            self._write("tf", m.TFMessage([transform_of(place, name, header)]))

    # --- peers ------------------------------------------------------------------------------------------------------

    def _on_peer(self, node: NodeId, name: str, position: NodePosition | None) -> None:
        """A peer's position, again on its own topics, each at its own rate."""
        assert self._daemon is not None
        info = self._daemon.info()
        if not self._config.peers or node == info.node:
            return
        peer = token(name)
        if self._tokens.setdefault(peer, node) != node:
            # Two names that differ only in what ROS 2 cannot write would share a topic.
            self._counts["dropped_peer_name"] += 1
            return
        self._has_made = False
        header = m.Header(stamp(unix_ns(time.monotonic_ns() if position is None else position.captured_ns)), FRAME)
        if self._peer_speaks(node, peer, "fix", is_urgent=position is None):
            self._write_peer(node, "fix", fix_of(position, header))
        if position is None:
            return
        if info.has_origin:
            place = pose_of(position, info)
            self._place(peer, place, header)
            if self._peer_speaks(node, peer, "pose"):
                self._write_peer(node, "pose", m.PoseStamped(header, place))
        if position.battery_milli is not None and self._peer_speaks(node, peer, "battery"):
            self._write_peer(node, "battery", m.BatteryState(header=header, percentage=position.battery_milli / 1000))

    def _peer_speaks(self, node: NodeId, peer: str, key: str, *, is_urgent: bool = False) -> bool:
        """Whether a peer's topic has a reader and its turn (an urgent word always has); makes its writer at first.

        Making one takes milliseconds: a peer gets one topic with each word that is heard of it.
        """
        assert self._participant is not None
        writers = self._peers.pop(node, None)
        if writers is None:
            writers = {}
            if len(self._peers) >= PEERS_MAX:
                self._forget_peer(next(iter(self._peers)))
        self._peers[node] = writers
        if key not in writers:
            if self._has_made:
                return False
            self._has_made = True
            reliable, latched, depth = _SENSOR
            message, _ = _PEER_OUTLETS[key]
            try:
                writers[key] = self._participant.writer(
                    dds_topic(f"/{peer}/{key}"), message, reliable=reliable, transient_local=latched, depth=depth
                )
            except TransportError:
                self._counts["dropped_peer_topic"] += 1
                return False
            self._participant.announce()
        if not is_read(writers[key]):
            self._counts[f"unread_peer_{key}"] += 1
            return False
        return is_urgent or self._limits.is_due(f"/{peer}/{key}", self._config.peers_max_hz)

    def _write_peer(self, node: NodeId, key: str, sample: Any) -> None:
        self._write_to(self._peers[node][key], f"peer_{key}", sample)

    def _forget_peer(self, node: NodeId) -> None:
        assert self._participant is not None
        for writer in self._peers.pop(node, {}).values():
            self._participant.drop_writer(writer)
        for peer in [peer for peer, held in self._tokens.items() if held == node]:
            del self._tokens[peer]
            for key in _PEER_OUTLETS:
                self._limits.forget(f"/{peer}/{key}")
            self._limits.forget(f"/tf/{peer}")
        self._counts["peers_forgotten"] += 1

    # --- in from ROS 2 ----------------------------------------------------------------------------------------------

    def _observe(self, rows: list[Row]) -> None:
        """Feed the detections of a ROS 2 detector to the swarm, as `observe` control requests."""
        assert self._daemon is not None
        if not rows:
            return
        try:
            self._daemon.command("observe", {"detections": rows})
        except DaemonError:
            self._counts["dropped_refused"] += len(rows)

    def _on_bad_sample(self, why: str) -> None:
        self._counts[f"dropped_{why}"] += 1


def _diagnosis(member: MemberView) -> m.DiagnosticStatus:
    values = [
        m.KeyValue("rtt_ms", "" if member.rtt_ns is None else f"{member.rtt_ns / 1e6:.3f}"),
        m.KeyValue("loss", f"{member.loss:.3f}"),
        m.KeyValue("incarnation", str(member.incarnation)),
        m.KeyValue("version", member.version),
    ]
    level, name = DIAGNOSTIC_LEVELS[member.state], f"swarm/{member.name}"
    return m.DiagnosticStatus(level, name, member.state.value, member.node.hex()[:16], values)
