"""The swarm as ordinary ROS 2 topics on this robot, own data and peers' alike.

DDS stays on the robot (loopback by default): peers' data arrives through the swarm and is published again here, so
that no discovery storm ever crosses the radio. Each topic has a rate limit.
"""

import asyncio
import math
import time
from collections import Counter
from typing import Any

from swarmd.bridges.base import BusEvent, DaemonView, DetectionSeen, PoseSeen
from swarmd.bridges.config import DdsConfig
from swarmd.bridges.ros2 import messages as m
from swarmd.bridges.ros2.mapping import CELL_STATES, DIAGNOSTIC_LEVELS, FRAME, covariance36
from swarmd.bridges.ros2.names import dds_topic, ros_type, token
from swarmd.bridges.ros2.participant import Ros2Participant, write
from swarmd.errors import DaemonError
from swarmd_protocols.effects import MemberChanged, StateChanged
from swarmd_protocols.observations import CellChanged, CellView, ObjectChanged, ObjectView

DETECTIONS_IN_MAX = 200
"""Detections of one incoming message that are taken; more is a fault or an attack."""
UNKNOWN_VARIANCE_M2 = 2.25
"""Of an incoming position without covariance, square metres: a plain GNSS receiver."""
UNKNOWN_VARIANCE = 1e6
"""ROS's usual way to say that a component means nothing."""
_COLOURS = ((0.9, 0.1, 0.1), (0.95, 0.6, 0.1), (0.2, 0.5, 0.95), (0.6, 0.2, 0.8), (0.1, 0.7, 0.4))


def stamp(unix_ns: int) -> m.Time:
    """UNIX nanoseconds as a ROS 2 time."""
    return m.Time(unix_ns // 1_000_000_000, unix_ns % 1_000_000_000)


def _detection(
    label: str,
    score_milli: int,
    place: tuple[int, int],
    covariance_cm2: tuple[int, int, int] | None,
    name: str,
    header: m.Header,
) -> m.Detection3D:
    pose = m.Pose(m.Point(place[0] / 100, place[1] / 100, 0.0), m.Quaternion())
    hypothesis = m.ObjectHypothesisWithPose(
        m.ObjectHypothesis(label, score_milli / 1000), m.PoseWithCovariance(pose, covariance36(covariance_cm2))
    )
    return m.Detection3D(header, [hypothesis], m.BoundingBox3D(pose, m.Vector3(0.0, 0.0, 0.0)), name)


def detection_of(seen: DetectionSeen, header: m.Header) -> m.Detection3D | None:
    """One detection as vision_msgs/Detection3D; None where it has no position, since ROS cannot say "unknown place"."""
    one = seen.detection
    if one.east_cm is None or one.north_cm is None:
        return None
    name = f"{seen.origin_name}/{one.track_id}"
    return _detection(one.label, one.score_milli, (one.east_cm, one.north_cm), one.covariance_cm2, name, header)


def object_of(view: ObjectView, header: m.Header) -> m.Detection3D | None:
    """One object as vision_msgs/Detection3D; None where it has no position."""
    if view.east_cm is None or view.north_cm is None:
        return None
    place = (view.east_cm, view.north_cm)
    return _detection(view.label, view.score_milli, place, view.covariance_cm2, view.object_id, header)


def marker_of(view: ObjectView, number: int, header: m.Header) -> m.Marker | None:
    """One object as an RViz sphere with the colour of its class; None where it has no position."""
    if view.east_cm is None or view.north_cm is None:
        return None
    red, green, blue = _COLOURS[sum(view.label.encode()) % len(_COLOURS)]
    return m.Marker(
        header=header,
        ns="objects",
        id=number,
        type=2,
        pose=m.Pose(m.Point(view.east_cm / 100, view.north_cm / 100, 0.0), m.Quaternion()),
        scale=m.Vector3(0.6, 0.6, 0.6),
        color=m.ColorRGBA(red, green, blue, 1.0 if view.confirmed else 0.5),
        text=view.label,
    )


def cell_of(view: CellView, names: dict[bytes, str]) -> m.Cell:
    """One cell as our own message."""
    return m.Cell(
        view.cell_id,
        CELL_STATES.get(view.state, 0),
        m.Point(view.centre_east_cm / 100, view.centre_north_cm / 100, 0.0),
        "" if view.holder is None else names.get(view.holder, view.holder.hex()[:8]),
        [names.get(node, node.hex()[:8]) for node in view.done_by],
    )


def odometry_of(place: m.Pose, variance_m2: float, header: m.Header) -> m.Odometry:
    """A pose as odometry: consumers weigh by covariance, so what is not known (height, attitude, speed) gets 1e6."""
    known = [0.0] * 36
    known[0] = known[7] = variance_m2
    unknown = [0.0] * 36
    for index in range(0, 36, 7):
        unknown[index] = UNKNOWN_VARIANCE
        known[index] = known[index] or UNKNOWN_VARIANCE
    return m.Odometry(
        header, "base_link", m.PoseWithCovariance(place, known), m.TwistWithCovariance(m.Twist(), unknown)
    )


_STREAM, _EVENTS, _LATCHED, _SENSOR = (True, False, 100), (True, False, 10), (True, True, 1), (False, False, 5)
"""Reliable, transient local, depth."""


def _outlets(node: str) -> list[tuple[str, str, type[Any], tuple[bool, bool, int], str]]:
    """Every topic that is written: key, ROS 2 name, message, QoS, what is on it."""
    return [
        ("detections", "/swarm/detections", m.Detection3DArray, _STREAM, "own and peers' detections"),
        ("objects", "/swarm/objects", m.Detection3DArray, _LATCHED, "the deduplicated picture"),
        ("markers", "/swarm/objects/markers", m.MarkerArray, _LATCHED, "the picture for RViz"),
        ("peers", "/swarm/peers", m.DiagnosticArray, _LATCHED, "the members"),
        ("diagnostics", "/diagnostics", m.DiagnosticArray, _EVENTS, "the members, for diagnostic tools"),
        ("cells", "/swarm/cells", m.CellArray, _LATCHED, "the survey area"),
        ("fix", f"/{node}/fix", m.NavSatFix, _SENSOR, "position of this device"),
        ("pose", f"/{node}/pose", m.PoseStamped, _SENSOR, "pose of this device"),
        ("odom", f"/{node}/odom", m.Odometry, _SENSOR, "the pose with its covariance"),
        ("battery", f"/{node}/battery", m.BatteryState, _SENSOR, "battery of this device"),
    ]


class Ros2Bridge:
    """One DDS participant beside the daemon."""

    name = "dds"

    def __init__(self, config: DdsConfig) -> None:
        """Prepare; DDS is opened in `run`."""
        self._config = config
        self._counts: Counter[str] = Counter()
        self._pending: list[DetectionSeen] = []
        self._pending_due = asyncio.Event()
        self._picture_due = asyncio.Event()
        self._daemon: DaemonView | None = None
        self._writers: dict[str, Any] = {}
        self._last_pose_s = 0.0

    def counters(self) -> dict[str, int]:
        """Monotonic counts: published samples by topic, received, dropped by reason."""
        return dict(self._counts)

    async def run(self, daemon: DaemonView) -> None:
        """Serve until cancelled."""
        self._daemon = daemon
        info = daemon.info()
        node = token(info.name)
        participant = Ros2Participant(self._config.domain, f"swarmd_{node}", self._config.interface)
        try:
            self._open_writers(participant, node)
            if self._config.detections_in:
                topic = dds_topic(f"/{node}/detections_in")
                participant.reader(topic, m.Detection3DArray, self._on_detections_in, depth=5)
            participant.announce()
            participant.start(asyncio.get_running_loop(), self._on_bad_sample)
            unsubscribe = daemon.subscribe(self._on_event)
            self._picture_due.set()
            try:
                await asyncio.gather(self._send_detections(), self._send_picture())
            finally:
                unsubscribe()
        finally:
            self._writers.clear()
            participant.close()

    def topics(self) -> list[tuple[str, str]]:
        """What `swarmd topics` shows: ROS 2 names; empty before `run`."""
        if self._daemon is None:
            return []
        node = token(self._daemon.info().name)
        rows = [(name, f"{ros_type(message.__idl_typename__)}: {what}") for _, name, message, _, what in _outlets(node)]
        if self._config.detections_in:
            rows.append(
                (f"/{node}/detections_in", "vision_msgs/msg/Detection3DArray (read): any detector feeds us here")
            )
        return rows

    def _open_writers(self, participant: Ros2Participant, node: str) -> None:
        for key, topic, message, (reliable, latched, depth), _ in _outlets(node):
            self._writers[key] = participant.writer(
                dds_topic(topic), message, reliable=reliable, transient_local=latched, depth=depth
            )

    def _write(self, key: str, sample: Any) -> None:
        try:
            write(self._writers[key], sample)
            self._counts[f"published_{key}"] += 1
        except Exception:  # a full history of a stuck reader, or a DDS timeout: counted, never fatal
            self._counts[f"dropped_{key}"] += 1

    # --- out --------------------------------------------------------------------------------------------------------

    async def _send_detections(self) -> None:
        """Detections within a few milliseconds go out as one array: one serialisation for all of them."""
        while True:
            await self._pending_due.wait()
            await asyncio.sleep(self._config.batch_ms / 1000)
            self._pending_due.clear()
            batch, self._pending = self._pending, []
            header = m.Header(stamp(time.time_ns()), FRAME)
            found = [one for seen in batch if (one := detection_of(seen, header)) is not None]
            self._counts["dropped_no_position"] += len(batch) - len(found)
            if found:
                self._write("detections", m.Detection3DArray(header, found))

    async def _send_picture(self) -> None:
        """Objects, markers, peers and cells: on change, at most `objects_max_hz`, at least every ten seconds."""
        pause_s = 1 / max(0.1, self._config.objects_max_hz)
        while True:
            try:
                await asyncio.wait_for(self._picture_due.wait(), timeout=10)
            except TimeoutError:
                self._counts["refreshes"] += 1
            self._picture_due.clear()
            await self._publish_picture()
            await asyncio.sleep(pause_s)

    async def _publish_picture(self) -> None:
        """Topic by topic, with a turn for others in between: a detection must not wait for the whole picture."""
        daemon = self._daemon
        assert daemon is not None
        header = m.Header(stamp(time.time_ns()), FRAME)
        views = daemon.objects()
        await asyncio.sleep(0)
        self._write(
            "objects", m.Detection3DArray(header, [o for v in views if (o := object_of(v, header)) is not None])
        )
        await asyncio.sleep(0)
        wipe = m.Marker(header=header, ns="objects", action=3)
        markers = [k for i, v in enumerate(views) if (k := marker_of(v, i + 1, header)) is not None]
        self._write("markers", m.MarkerArray([wipe, *markers]))
        await asyncio.sleep(0)
        peers = self._peers(header)
        self._write("peers", peers)
        self._write("diagnostics", peers)
        cells = daemon.cells()
        if cells:
            names = {bytes(member.node): member.name for member in daemon.members()}
            self._write("cells", m.CellArray(header, [cell_of(view, names) for view in cells]))

    def _peers(self, header: m.Header) -> m.DiagnosticArray:
        assert self._daemon is not None
        return m.DiagnosticArray(
            header,
            [
                m.DiagnosticStatus(
                    DIAGNOSTIC_LEVELS[member.state],
                    f"swarm/{member.name}",
                    member.state.value,
                    member.node.hex()[:16],
                    [
                        m.KeyValue("rtt_ms", "" if member.rtt_ns is None else f"{member.rtt_ns / 1e6:.3f}"),
                        m.KeyValue("loss", f"{member.loss:.3f}"),
                        m.KeyValue("incarnation", str(member.incarnation)),
                        m.KeyValue("version", member.version),
                    ],
                )
                for member in self._daemon.members()
            ],
        )

    # --- in ---------------------------------------------------------------------------------------------------------

    def _on_event(self, event: BusEvent) -> None:
        match event:
            case DetectionSeen():
                if len(self._pending) >= 1000:
                    self._counts["dropped_backlog"] += 1
                    return
                self._pending.append(event)
                self._pending_due.set()
            case StateChanged(detail=ObjectChanged() | CellChanged()) | MemberChanged():
                self._picture_due.set()
            case PoseSeen():
                self._on_pose(event)
            case _:
                pass

    def _on_pose(self, pose: PoseSeen) -> None:
        now_s = time.monotonic()
        if now_s - self._last_pose_s < 1 / max(0.1, self._config.peers_max_hz):
            return
        self._last_pose_s = now_s
        assert self._daemon is not None
        header = m.Header(stamp(time.time_ns()), FRAME)
        variance = pose.position_sigma_m**2
        self._write(
            "fix",
            m.NavSatFix(
                header,
                m.NavSatStatus(0 if pose.has_fix else -1, 1),
                pose.latitude_deg if pose.has_fix else math.nan,
                pose.longitude_deg if pose.has_fix else math.nan,
                math.nan,
                [variance, 0.0, 0.0, 0.0, variance, 0.0, 0.0, 0.0, 1e6],
                2 if pose.has_fix else 0,
            ),
        )
        if pose.has_fix:
            place = self._pose(pose)
            self._write("pose", m.PoseStamped(header, place))
            self._write("odom", odometry_of(place, variance, header))
        if pose.battery_milli is not None:
            self._write("battery", m.BatteryState(header=header, percentage=pose.battery_milli / 1000))

    def _pose(self, pose: PoseSeen) -> m.Pose:
        from swarmd.positions import wgs84_to_enu_cm

        assert self._daemon is not None
        info = self._daemon.info()
        east_cm, north_cm = wgs84_to_enu_cm(
            pose.latitude_deg, pose.longitude_deg, info.origin_latitude_deg, info.origin_longitude_deg
        )
        # REP 103: yaw counter-clockwise from east; ours is clockwise from north.
        half = (math.pi / 2 - pose.yaw_rad) / 2
        return m.Pose(
            m.Point(east_cm / 100, north_cm / 100, pose.height_agl_m),
            m.Quaternion(0.0, 0.0, math.sin(half), math.cos(half)),
        )

    def _on_detections_in(self, message: m.Detection3DArray) -> None:
        """Feed the detections of a ROS 2 detector to the swarm, as `observe` control requests."""
        assert self._daemon is not None
        self._counts["received"] += 1
        if len(message.detections) > DETECTIONS_IN_MAX:
            self._counts["dropped_oversized"] += 1
            return
        found = [entry for one in message.detections if (entry := _observation(one)) is not None]
        self._counts["dropped_malformed"] += len(message.detections) - len(found)
        try:
            self._daemon.command("observe", {"detections": found})
        except DaemonError:
            self._counts["dropped_refused"] += 1

    def _on_bad_sample(self, text: str) -> None:
        self._counts["dropped_undecodable"] += 1


def _observation(one: m.Detection3D) -> dict[str, object] | None:
    """One incoming detection as the control verb `observe` takes it; None when it makes no sense."""
    if not one.results:
        return None
    best = max(one.results, key=lambda result: result.hypothesis.score)
    place = one.bbox.center.position
    numbers = (place.x, place.y, best.hypothesis.score)
    if not all(math.isfinite(number) for number in numbers) or not 0 <= best.hypothesis.score <= 1:
        return None
    if max(abs(place.x), abs(place.y)) > 1e5 or not 0 < len(best.hypothesis.class_id) <= 64:
        return None
    covariance = [best.pose.covariance[0], best.pose.covariance[1], best.pose.covariance[7]]
    if not any(covariance):
        # All zero is how ROS says "unknown": take the error of a plain GNSS receiver.
        covariance = [UNKNOWN_VARIANCE_M2, 0.0, UNKNOWN_VARIANCE_M2]
    return {
        "label": best.hypothesis.class_id,
        "score": best.hypothesis.score,
        "east_m": place.x,
        "north_m": place.y,
        "covariance_m2": covariance,
        "track": one.id[:64],
    }
