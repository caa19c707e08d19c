"""This node's position to the swarm, and the members' positions to bridges and tables.

Poses come ten or twenty times a second; the swarm is told at most once in `pose.share_s`, and at once when the fix
comes or goes. Degrees become integers here, and again degrees for those who read.
"""

import math

from swarmd.api.daemon import NodePosition, PoseSeen
from swarmd_protocols.state.positions import Located, Place, SayPlace

SIGMA_MAX_CM = 65_535
"""Centimetres; the largest uncertainty that the wire's two bytes hold, 655 m: more is no position."""


class Throttle:
    """Which poses of this node are worth telling."""

    def __init__(self, share_s: float) -> None:
        """Tell at most once in `share_s`; 0 tells nothing."""
        self._share_ns = round(share_s * 1e9)
        self._last: SayPlace | None = None

    def take(self, pose: PoseSeen) -> SayPlace | None:
        """The request for the sub-protocol `where`; None when it is too soon, or never wanted."""
        if not self._share_ns:
            return None
        request = SayPlace(place_of(pose), pose.captured_ns)
        last = self._last
        is_turn = last is not None and (last.place is None) != (request.place is None)
        if last is not None and not is_turn and pose.captured_ns - last.captured_ns < self._share_ns // 2:
            return None
        self._last = request
        return request


def place_of(pose: PoseSeen) -> Place | None:
    """A pose as it travels; None without a fix, or when it makes no sense."""
    numbers = (pose.latitude_deg, pose.longitude_deg, pose.height_agl_m, pose.yaw_rad, pose.position_sigma_m)
    if not pose.has_fix or not all(math.isfinite(number) for number in numbers):
        return None
    if abs(pose.latitude_deg) > 90 or abs(pose.longitude_deg) > 180 or abs(pose.height_agl_m) > 1e5:
        return None
    return Place(
        latitude_e7=round(pose.latitude_deg * 1e7),
        longitude_e7=round(pose.longitude_deg * 1e7),
        height_agl_cm=round(pose.height_agl_m * 100),
        yaw_cdeg=round(math.degrees(pose.yaw_rad) * 100) % 36_000,
        sigma_cm=max(0, min(SIGMA_MAX_CM, round(pose.position_sigma_m * 100))),
        battery_milli=None if pose.battery_milli is None else max(0, min(1000, pose.battery_milli)),
    )


def position_of(located: Located, ground_m: float | None = None) -> NodePosition:
    """A member's place in degrees and metres.

    Args:
        located: What it told.
        ground_m: How high its ground lies above the ellipsoid; None where it does not tell.
    """
    place = located.place
    height_m = place.height_agl_cm / 100
    return NodePosition(
        node=located.node,
        latitude_deg=place.latitude_e7 / 1e7,
        longitude_deg=place.longitude_e7 / 1e7,
        height_agl_m=height_m,
        yaw_rad=None if place.yaw_cdeg is None else math.radians(place.yaw_cdeg / 100),
        position_sigma_m=place.sigma_cm / 100,
        battery_milli=place.battery_milli,
        captured_ns=located.captured_ns,
        altitude_m=None if ground_m is None else ground_m + height_m,
    )
