"""From the daemon's view to ROS 2 messages; pure functions."""

import math
import time
from collections.abc import Mapping

from swarmd.api.daemon import Look, NodeInfo, NodePosition, PoseSeen
from swarmd.bridges.ros2 import messages as m
from swarmd.bridges.ros2.mapping import CELL_STATES, EARTH, EVENT_LEVELS, FRAME, covariance36, review_statuses
from swarmd.events.record import EventRecord
from swarmd_models.geo.geolocate import multiply
from swarmd_models.geo.positions import ecef_m, wgs84_to_enu_cm
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.observations import CellView, DetectionView, ObjectView

UNKNOWN_VARIANCE = 1e6
"""ROS's usual way to say that a component means nothing."""
AGE_MAX_NS = 60_000_000_000
"""Nanoseconds; a moment farther back than a minute is another clock's, and now is said."""
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
    extent_m: tuple[float, float] = (0.0, 0.0),
) -> m.Detection3D:
    pose = m.Pose(m.Point(place[0] / 100, place[1] / 100, 0.0), m.Quaternion())
    hypothesis = m.ObjectHypothesisWithPose(
        m.ObjectHypothesis(label, score_milli / 1000), m.PoseWithCovariance(pose, covariance36(covariance_cm2))
    )
    return m.Detection3D(header, [hypothesis], m.BoundingBox3D(pose, m.Vector3(*extent_m, 0.0)), name)


def detection_of(view: DetectionView, header: m.Header, look: Look | None = None) -> m.Detection3D | None:
    """A sighting as vision_msgs/Detection3D; None where it has no position, since ROS cannot say "unknown place".

    Args:
        view: The sighting.
        header: Time and frame.
        look: How the own eye saw it; None for others' sightings, whose boxes nobody tells: their size is zero.
    """
    if view.east_cm is None or view.north_cm is None:
        return None
    place = (view.east_cm, view.north_cm)
    extent_m = (0.0, 0.0) if look is None or look.extent_m is None else look.extent_m
    return _detection(view.label, view.score_milli, place, view.covariance_cm2, view.detection_id, header, extent_m)


def object_of(view: ObjectView, header: m.Header) -> m.Detection3D | None:
    """One object as vision_msgs/Detection3D; None where it has no position."""
    if view.east_cm is None or view.north_cm is None:
        return None
    place = (view.east_cm, view.north_cm)
    return _detection(view.label, view.score_milli, place, view.covariance_cm2, view.object_id, header)


def reviews_of(view: ObjectView) -> list[m.DiagnosticStatus]:
    """What operators say of an object, one status each: level 1 where they disagree."""
    return [
        m.DiagnosticStatus(level, name, message, key, [m.KeyValue(field, value) for field, value in values])
        for level, name, message, key, values in review_statuses(view)
    ]


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
        text=view.label if not view.review else f"{view.label} ({view.review})",
    )


def cell_of(view: CellView, names: Mapping[NodeId, str]) -> m.Cell:
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


def unix_ns(captured_ns: int) -> int:
    """UNIX time of a moment of the monotonic clock; now where that moment makes no sense."""
    age_ns = time.monotonic_ns() - captured_ns
    return time.time_ns() - (age_ns if 0 <= age_ns <= AGE_MAX_NS else 0)


def fix_of(position: NodePosition | PoseSeen | None, header: m.Header) -> m.NavSatFix:
    """A position as sensor_msgs/NavSatFix; None: status -1 and NaN.

    The height above the ellipsoid is what this node's receiver says, or what follows from a peer's height above ground
    and how high it says that its ground lies; NaN where neither is known.
    """
    if position is None:
        unknown = [0.0] * 9
        return m.NavSatFix(header, m.NavSatStatus(-1, 1), math.nan, math.nan, math.nan, unknown, 0)
    variance = position.position_sigma_m**2
    covariance = [variance, 0.0, 0.0, 0.0, variance, 0.0, 0.0, 0.0, UNKNOWN_VARIANCE]
    status = m.NavSatStatus(0, 1)
    altitude = math.nan if position.altitude_m is None else position.altitude_m
    return m.NavSatFix(header, status, position.latitude_deg, position.longitude_deg, altitude, covariance, 2)


def origin_of(info: NodeInfo) -> m.GeoPoint:
    """Where (0, 0) of the frame `map` lies; its height above the ellipsoid is not known."""
    return m.GeoPoint(info.origin_latitude_deg, info.origin_longitude_deg, math.nan)


def pose_of(position: NodePosition | PoseSeen, info: NodeInfo) -> m.Pose:
    """A position as a pose in `map`: metres east, north and above ground; no rotation where the heading is unknown."""
    east_cm, north_cm = wgs84_to_enu_cm(
        position.latitude_deg, position.longitude_deg, info.origin_latitude_deg, info.origin_longitude_deg
    )
    point = m.Point(east_cm / 100, north_cm / 100, position.height_agl_m)
    if position.yaw_rad is None:
        return m.Pose(point, m.Quaternion())
    # REP 103: yaw counter-clockwise from east; ours is clockwise from north.
    half = (math.pi / 2 - position.yaw_rad) / 2
    return m.Pose(point, m.Quaternion(0.0, 0.0, math.sin(half), math.cos(half)))


def frame_of(name: str) -> str:
    """The frame that sits in a member: no robot's own tree has one of that name."""
    return f"swarm/{name}"


def transform_of(place: m.Pose, name: str, header: m.Header) -> m.TransformStamped:
    """Where a member's frame lies in `map`."""
    where = m.Vector3(place.position.x, place.position.y, place.position.z)
    return m.TransformStamped(header, frame_of(name), m.Transform(where, place.orientation))


def map_in_earth(info: NodeInfo, header: m.Header) -> m.TransformStamped:
    """Where `map` lies in `earth`, by which robots whose maps differ find each other; its height is the ellipsoid's.

    Source:
        REP 105, "earth": ECEF. East, north and up there are what a turn by longitude + 90° about z and then one by
        90° - latitude about x make of x, y and z.
    """
    latitude, longitude = info.origin_latitude_deg, info.origin_longitude_deg
    turn, tilt = math.radians(longitude + 90) / 2, math.radians(90 - latitude) / 2
    w, x, y, z = multiply((math.cos(turn), 0.0, 0.0, math.sin(turn)), (math.cos(tilt), math.sin(tilt), 0.0, 0.0))
    header = m.Header(header.stamp, EARTH)
    return m.TransformStamped(
        header, FRAME, m.Transform(m.Vector3(*ecef_m(latitude, longitude)), m.Quaternion(x, y, z, w))
    )


def event_of(record: EventRecord) -> m.Event:
    """What happened, stamped with when."""
    return m.Event(
        m.Header(stamp(record.at_ms * 1_000_000), ""),
        record.event_id,
        record.origin,
        record.kind,
        EVENT_LEVELS[record.level],
        record.subject,
        record.reason,
        record.evidence,
    )
