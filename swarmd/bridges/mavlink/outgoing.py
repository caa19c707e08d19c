"""What swarmd says on MAVLink: counts as named values, and what it sees as the status of a tracking camera.

All of it is off unless configured. A ground station sets the pace as it would with any camera: SET_MESSAGE_INTERVAL,
GET_MESSAGE_INTERVAL and REQUEST_MESSAGE for the messages below are obeyed and acknowledged, whatever else is asked of
this component is answered with "unsupported". A ground station that hears the heartbeat of a camera asks for its
CAMERA_INFORMATION first, and shows the tracked box of one whose flags say that it tracks.

Source: MAVLink common message set and camera protocol (mavlink.io): CAMERA_TRACKING_IMAGE_STATUS (275),
CAMERA_TRACKING_GEO_STATUS (276), CAMERA_INFORMATION (259), MAV_CMD_REQUEST_CAMERA_INFORMATION (521), NAMED_VALUE_INT
(252), MAV_CMD_SET_MESSAGE_INTERVAL (511; -1 off, 0 default). What a ground station asks: QGroundControl,
`src/Camera/QGCCameraManager.cc`, `_handleHeartbeat` and `_requestCameraInfo`.
"""

import math
import time
from collections import Counter
from typing import Any

from pymavlink.dialects.v20 import common as mavlink

from swarmd.api.daemon import DaemonView, Look
from swarmd.config.bridges import MavlinkConfig
from swarmd_models.geo.positions import enu_cm_to_wgs84
from swarmd_protocols.effects import MemberState
from swarmd_protocols.state.observations import DetectionLearned, DetectionView

COMPONENT = mavlink.MAV_COMP_ID_ONBOARD_COMPUTER
DEFAULT_S = 1.0
"""Seconds between two of each message until somebody asks for another pace."""
FASTEST_S = 0.05
"""Seconds between two of a message, at least: 20 a second is what a telemetry radio still carries."""
SLOWEST_S = 3600.0
"""Seconds between two of a message, at most; a longer interval is denied."""
HELD_S = 1.0
"""A detection counts as tracked for so long after it was last seen."""
_IMAGE = mavlink.MAVLINK_MSG_ID_CAMERA_TRACKING_IMAGE_STATUS
_GEO = mavlink.MAVLINK_MSG_ID_CAMERA_TRACKING_GEO_STATUS
_INFORMATION = mavlink.MAVLINK_MSG_ID_CAMERA_INFORMATION
_NAMED = mavlink.MAVLINK_MSG_ID_NAMED_VALUE_INT
_COMMANDS = {
    mavlink.MAV_CMD_SET_MESSAGE_INTERVAL,
    mavlink.MAV_CMD_GET_MESSAGE_INTERVAL,
    mavlink.MAV_CMD_REQUEST_MESSAGE,
}


class Outgoing:
    """Decides what goes out when; writes to a connection that is handed in."""

    def __init__(self, config: MavlinkConfig) -> None:
        """Everything that is configured starts at once a second."""
        self._default_s: dict[int, float] = {}
        if config.named_values:
            self._default_s[_NAMED] = DEFAULT_S
        if config.camera_tracking:
            self._default_s |= {_IMAGE: DEFAULT_S, _GEO: DEFAULT_S}
        self._interval_s = dict(self._default_s)
        self._due_s = dict.fromkeys(self._default_s, 0.0)
        self._is_camera = config.camera_tracking
        self._target: tuple[float, DetectionLearned, Look | None] | None = None
        self.counts: Counter[str] = Counter()

    def pause_s(self, most_s: float) -> float:
        """How long the caller may sleep before the next message is due."""
        if not self._interval_s:
            return most_s
        return max(0.01, min(most_s, min(self._due_s[one] for one in self._interval_s) - time.monotonic()))

    def on_detection(self, learned: DetectionLearned, look: Look | None) -> None:
        """An own detection: the surest of the last second is what the camera tracks.

        Args:
            learned: The sighting.
            look: How the eye saw it; None for an outside detector.
        """
        now_s = time.monotonic()
        held = self._target
        is_same = held is not None and held[1].track_id == learned.track_id
        if learned.kind == "end":
            if is_same:
                self._target = None
            return
        is_better = (
            held is None or is_same or now_s - held[0] > HELD_S or learned.view.score_milli > held[1].view.score_milli
        )
        if is_better:
            self._target = (now_s, learned, look)

    def on_command(self, message: Any, connection: Any, daemon: DaemonView) -> None:
        """A COMMAND_LONG to this component: obey what concerns our messages, and answer.

        Args:
            message: As pymavlink parsed it, from anybody on the link.
            connection: Where the answer goes.
            daemon: For a message that is asked for now.
        """
        if message.target_component != COMPONENT:
            return
        result = mavlink.MAV_RESULT_UNSUPPORTED
        if self._is_camera and _asks_for_information(message):
            result = mavlink.MAV_RESULT_ACCEPTED
            _send_information(connection, daemon)
            self.counts["sent"] += 1
        elif message.command in _COMMANDS and self._default_s:
            wanted = message.param1
            number = int(wanted) if math.isfinite(wanted) and 0 <= wanted < 1 << 24 else -1
            if number in self._default_s:
                result = self._obey(message, number, connection, daemon)
        connection.mav.command_ack_send(
            message.command, result, 0, 0, message.get_srcSystem(), message.get_srcComponent()
        )
        self.counts["commands"] += 1

    def send_due(self, connection: Any, daemon: DaemonView) -> None:
        """Send what is due."""
        now_s = time.monotonic()
        for number, interval_s in self._interval_s.items():
            if now_s >= self._due_s[number]:
                # In step while it keeps up; after a pause no burst makes up for what was missed.
                self._due_s[number] = max(self._due_s[number] + interval_s, now_s + interval_s / 2)
                self._send(number, connection, daemon)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _obey(self, message: Any, number: int, connection: Any, daemon: DaemonView) -> int:
        if message.command == mavlink.MAV_CMD_REQUEST_MESSAGE:
            self._send(number, connection, daemon)
        elif message.command == mavlink.MAV_CMD_GET_MESSAGE_INTERVAL:
            interval_s = self._interval_s.get(number)
            connection.mav.message_interval_send(number, -1 if interval_s is None else round(interval_s * 1e6))
        else:
            interval_us = message.param2
            if not math.isfinite(interval_us) or interval_us > SLOWEST_S * 1e6:
                return int(mavlink.MAV_RESULT_DENIED)
            if interval_us < 0:
                self._interval_s.pop(number, None)
            else:
                wanted_s = interval_us / 1e6 if interval_us else self._default_s[number]
                self._interval_s[number] = max(FASTEST_S, wanted_s)
                self._due_s[number] = time.monotonic()
        return int(mavlink.MAV_RESULT_ACCEPTED)

    def _send(self, number: int, connection: Any, daemon: DaemonView) -> None:
        if number == _NAMED:
            self._send_counts(connection, daemon)
        elif number == _IMAGE:
            self._send_image_status(connection)
        else:
            self._send_geo_status(connection, daemon)
        self.counts["sent"] += 1

    def _send_counts(self, connection: Any, daemon: DaemonView) -> None:
        boot_ms = time.monotonic_ns() // 1_000_000 % 2**32
        objects, members = daemon.objects(), daemon.members()
        for name, value in (
            (b"sw_objects", len(objects)),
            (b"sw_confirm", sum(view.confirmed for view in objects)),
            (b"sw_members", len(members)),
            (b"sw_alive", sum(member.state is MemberState.ALIVE for member in members)),
        ):
            connection.mav.named_value_int_send(boot_ms, name, value)

    def _tracked(self) -> tuple[DetectionView, Look | None] | None:
        held = self._target
        return (held[1].view, held[2]) if held is not None and time.monotonic() - held[0] <= HELD_S else None

    def _send_image_status(self, connection: Any) -> None:
        """Where in the picture it is, 0 to 1 from the upper left; NaN where nobody knows."""
        seen = self._tracked()
        box = (math.nan,) * 4
        if seen is None:
            state, mode, data = mavlink.CAMERA_TRACKING_STATUS_FLAGS_IDLE, mavlink.CAMERA_TRACKING_MODE_NONE, 0
        else:
            state, mode = mavlink.CAMERA_TRACKING_STATUS_FLAGS_ACTIVE, mavlink.CAMERA_TRACKING_MODE_NONE
            data = mavlink.CAMERA_TRACKING_TARGET_DATA_IN_STATUS
            if seen[1] is not None and seen[1].box is not None:
                box, mode = seen[1].box, mavlink.CAMERA_TRACKING_MODE_RECTANGLE
        x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
        connection.mav.camera_tracking_image_status_send(state, mode, data, x, y, math.nan, *box)

    def _send_geo_status(self, connection: Any, daemon: DaemonView) -> None:
        """Where on Earth it is; idle while what is tracked has no place."""
        seen, info = self._tracked(), daemon.info()
        unknown = math.nan
        one = None if seen is None else seen[0]
        if one is None or one.east_cm is None or one.north_cm is None or not info.has_origin:
            idle = mavlink.CAMERA_TRACKING_STATUS_FLAGS_IDLE
            connection.mav.camera_tracking_geo_status_send(idle, 0, 0, *([unknown] * 10))
            return
        latitude, longitude = enu_cm_to_wgs84(
            one.east_cm, one.north_cm, info.origin_latitude_deg, info.origin_longitude_deg
        )
        ee, _, nn = one.covariance_cm2 or (0, 0, 0)
        accuracy_m = math.sqrt(max(ee, nn)) / 100 if one.covariance_cm2 else unknown
        connection.mav.camera_tracking_geo_status_send(
            mavlink.CAMERA_TRACKING_STATUS_FLAGS_ACTIVE,
            round(latitude * 1e7),
            round(longitude * 1e7),
            unknown,
            accuracy_m,
            *([unknown] * 8),
        )


def _asks_for_information(message: Any) -> bool:
    """Whether a command asks for CAMERA_INFORMATION, by the old command or by the general one."""
    if message.command == mavlink.MAV_CMD_REQUEST_CAMERA_INFORMATION:
        return bool(message.param1 == 1)
    return bool(message.command == mavlink.MAV_CMD_REQUEST_MESSAGE and message.param1 == _INFORMATION)


def _send_information(connection: Any, daemon: DaemonView) -> None:
    """What this camera is: it tracks, and neither takes pictures nor streams."""
    info = daemon.info()
    numbers = [int(part) if part.isdigit() else 0 for part in (*info.version.split("."), "0", "0")[:3]]
    unknown = math.nan
    connection.mav.camera_information_send(
        time.monotonic_ns() // 1_000_000 % 2**32,
        b"swarmd".ljust(32, b"\0"),
        (info.model or "eye").encode()[:32].ljust(32, b"\0"),
        sum(number << 8 * place for place, number in enumerate(numbers)),
        unknown,
        unknown,
        unknown,
        0,
        0,
        0,
        mavlink.CAMERA_CAP_FLAGS_HAS_TRACKING_RECTANGLE | mavlink.CAMERA_CAP_FLAGS_HAS_TRACKING_GEO_STATUS,
        0,
        b"",
    )
