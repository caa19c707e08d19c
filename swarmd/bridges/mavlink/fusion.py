"""MAVLink messages to one vehicle state; no I/O, so that a log and a live link go through the same code.

The rule above all: a position that is stale, has no fix or contradicts itself places nothing.

Source: MAVLink common message set (mavlink.io): GLOBAL_POSITION_INT, GPS_RAW_INT, ATTITUDE, ATTITUDE_QUATERNION,
GIMBAL_DEVICE_ATTITUDE_STATUS, BATTERY_STATUS, SYS_STATUS, DISTANCE_SENSOR, SYSTEM_TIME, HEARTBEAT.
"""

import math
from dataclasses import dataclass
from typing import Any

from swarmd_models.geo.geolocate import Quaternion, multiply, quaternion_from_euler

MIN_FIX_TYPE = 3
"""GPS_FIX_TYPE_3D_FIX: below it the height means nothing. Source: MAVLink common.xml."""
GIMBAL_YAW_LOCK = 16
"""GIMBAL_DEVICE_FLAGS_YAW_LOCK. Source: MAVLink common.xml."""
GIMBAL_YAW_IN_VEHICLE_FRAME = 32
"""GIMBAL_DEVICE_FLAGS_YAW_IN_VEHICLE_FRAME. Source: MAVLink common.xml."""
GIMBAL_YAW_IN_EARTH_FRAME = 64
"""GIMBAL_DEVICE_FLAGS_YAW_IN_EARTH_FRAME. Source: MAVLink common.xml."""
_ARMED = 128
"""MAV_MODE_FLAG_SAFETY_ARMED. Source: MAVLink common.xml."""
_DOWNWARD = 25
"""MAV_SENSOR_ROTATION_PITCH_270: a range finder that looks down."""
_ARMED_MAX_AGE_NS = 5_000_000_000
"""Nanoseconds; after five heartbeats that did not come nobody knows whether the vehicle is armed."""
_CAMERA_MAX_AGE_NS = 1_000_000_000
"""Nanoseconds; a gimbal that has said nothing for a second may look anywhere."""


@dataclass(frozen=True, slots=True)
class VehicleState:
    """What the autopilot said last, in SI units."""

    captured_ns: int
    """This device's monotonic clock when the position arrived."""
    latitude_deg: float
    longitude_deg: float
    height_agl_m: float
    camera_to_ned: Quaternion
    yaw_rad: float
    position_sigma_m: float
    has_fix: bool
    armed: bool | None
    battery_milli: int | None
    altitude_m: float | None = None
    """Above the WGS 84 ellipsoid, by the receiver's word; None where it does not say."""


def yaw_of(q: Quaternion) -> float:
    """Yaw of a body-to-NED rotation, radians clockwise from north."""
    w, x, y, z = q
    return math.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))


class VehicleFusion:
    """Feed it messages, ask it for the state."""

    def __init__(self, stale_ns: int, min_satellites: int, mount: Quaternion) -> None:
        """Start knowing nothing.

        Args:
            stale_ns: A position older than this has no fix.
            min_satellites: With fewer there is no fix.
            mount: Camera-to-body rotation used while no gimbal reports.
        """
        self._stale_ns = stale_ns
        self._min_satellites = min_satellites
        self._mount = mount
        self._position: tuple[int, float, float, float] | None = None
        self._fix_ok: bool | None = None
        self._fix_ns = 0
        self._sigma_m = 1.5
        self._body: tuple[int, Quaternion] | None = None
        self._gimbal: tuple[int, Quaternion, bool] | None = None
        self._range: tuple[int, float] | None = None
        self._battery_milli: int | None = None
        self._altitude_m: float | None = None
        self._armed: tuple[int, bool] | None = None
        self._boot_ms = 0
        self.restarts = 0

    def feed(self, message: Any, now_ns: int) -> bool:
        """Take one parsed message.

        Args:
            message: A pymavlink message object of the vehicle.
            now_ns: This device's monotonic clock.

        Returns:
            True when a new position came with it.
        """
        match message.get_type():
            case "GLOBAL_POSITION_INT":
                return self._on_position(message, now_ns)
            case "GPS_RAW_INT":
                self._on_gps(message, now_ns)
            case "ATTITUDE":
                if all(map(math.isfinite, (message.yaw, message.pitch, message.roll))):
                    self._set_body(quaternion_from_euler(message.yaw, message.pitch, message.roll), now_ns)
            case "ATTITUDE_QUATERNION":
                self._set_body((message.q1, message.q2, message.q3, message.q4), now_ns)
            case "GIMBAL_DEVICE_ATTITUDE_STATUS":
                self._on_gimbal(message, now_ns)
            case "DISTANCE_SENSOR":
                if (
                    message.orientation == _DOWNWARD
                    and message.min_distance < message.current_distance < message.max_distance
                ):
                    self._range = (now_ns, message.current_distance / 100)
            case "BATTERY_STATUS":
                if 0 <= message.battery_remaining <= 100:
                    self._battery_milli = message.battery_remaining * 10
            case "SYS_STATUS":
                if self._battery_milli is None and 0 <= message.battery_remaining <= 100:
                    self._battery_milli = message.battery_remaining * 10
            case "HEARTBEAT":
                self._armed = (now_ns, bool(message.base_mode & _ARMED))
            case _:
                pass
        return False

    def state(self, now_ns: int) -> VehicleState | None:
        """The vehicle now; None before the first position and attitude.

        Args:
            now_ns: This device's monotonic clock.
        """
        if self._position is None or self._body is None:
            return None
        captured_ns, latitude, longitude, height = self._position
        fresh = now_ns - captured_ns <= self._stale_ns and now_ns - self._body[0] <= self._stale_ns
        if self._range is not None and now_ns - self._range[0] <= self._stale_ns:
            height = self._range[1]
        camera = self._camera(now_ns)
        sane = abs(latitude) <= 90 and abs(longitude) <= 180 and (latitude, longitude) != (0.0, 0.0) and height > 0
        armed = self._armed if self._armed is not None and now_ns - self._armed[0] <= _ARMED_MAX_AGE_NS else None
        return VehicleState(
            captured_ns,
            latitude,
            longitude,
            height,
            camera,
            yaw_of(self._body[1]),
            self._sigma_m,
            fresh and sane and self._fix_ok is True and now_ns - self._fix_ns <= 4 * self._stale_ns + 10**9,
            None if armed is None else armed[1],
            self._battery_milli,
            self._altitude_m,
        )

    def _on_position(self, message: Any, now_ns: int) -> bool:
        if message.time_boot_ms + 5000 < self._boot_ms:
            # The autopilot restarted: nothing it said before holds, and the rates must be asked for again.
            self.restarts += 1
            self._fix_ok = None
            self._gimbal = None
        self._boot_ms = message.time_boot_ms
        self._position = (now_ns, message.lat / 1e7, message.lon / 1e7, message.relative_alt / 1000)
        return True

    def _on_gps(self, message: Any, now_ns: int) -> None:
        satellites = message.satellites_visible
        ellipsoid_mm = getattr(message, "alt_ellipsoid", 0)  # An extension; 0 where the autopilot does not fill it in.
        self._altitude_m = ellipsoid_mm / 1000 if ellipsoid_mm and message.fix_type >= MIN_FIX_TYPE else None
        enough = satellites == 255 or satellites >= self._min_satellites
        self._fix_ok = message.fix_type >= MIN_FIX_TYPE and enough
        self._fix_ns = now_ns
        accuracy_mm = getattr(message, "h_acc", 0)
        if accuracy_mm:
            self._sigma_m = max(0.02, accuracy_mm / 1000)
        elif message.eph not in (0, 65535):
            # Without an accuracy only the dilution is known: times a usual 1.5 m range error.
            self._sigma_m = max(0.5, message.eph / 100 * 1.5)

    def _set_body(self, q: Quaternion, now_ns: int) -> None:
        norm = math.sqrt(sum(value * value for value in q))
        if math.isfinite(norm) and 0.9 < norm < 1.1:
            self._body = (now_ns, q)

    def _on_gimbal(self, message: Any, now_ns: int) -> None:
        q = (float(message.q[0]), float(message.q[1]), float(message.q[2]), float(message.q[3]))
        norm = math.sqrt(sum(value * value for value in q))
        if not math.isfinite(norm) or not 0.9 < norm < 1.1:
            return
        if message.flags & GIMBAL_YAW_IN_EARTH_FRAME:
            in_earth_frame = True
        elif message.flags & GIMBAL_YAW_IN_VEHICLE_FRAME:
            in_earth_frame = False
        else:  # An old device says neither; its yaw lock decides.
            in_earth_frame = bool(message.flags & GIMBAL_YAW_LOCK)
        self._gimbal = (now_ns, q, in_earth_frame)

    def _camera(self, now_ns: int) -> Quaternion:
        assert self._body is not None
        if self._gimbal is None or now_ns - self._gimbal[0] > _CAMERA_MAX_AGE_NS:
            return multiply(self._body[1], self._mount)
        _, q, in_earth_frame = self._gimbal
        if in_earth_frame:
            return q
        # Roll and pitch of a gimbal are against the horizon also in the vehicle frame: only yaw turns with the vehicle.
        return multiply(quaternion_from_euler(yaw_of(self._body[1]), 0.0, 0.0), q)
