"""A live MAVLink connection: asks for rates, feeds the fusion, hands poses to the daemon, sends counts back.

pymavlink blocks, so one thread reads; the state lives on the event loop. The thread reads no faster than the loop
takes, and no faster than `MESSAGES_PER_S`: whoever sends more fills the kernel's buffer and nothing else. When nothing
arrives the position goes stale by itself and nothing is placed; the connection is opened again with back-off.

What only the autopilot knows is taken from its own component alone: a gimbal or camera under the vehicle's system id
has heartbeats, an attitude and a battery of its own, and is never armed.
"""

import asyncio
import contextlib
import math
import os
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from swarmd.api.daemon import BusEvent, DaemonView
from swarmd.bridges.mavlink.fusion import VehicleFusion
from swarmd.bridges.mavlink.link_watch import Changes, LinkWatch
from swarmd.config.bridges import MavlinkConfig
from swarmd.errors import DaemonError, TransportError
from swarmd.rates import TokenBucket
from swarmd_models.geo.geolocate import quaternion_from_euler
from swarmd_protocols.effects import StateChanged
from swarmd_protocols.state.observations import DetectionLearned

os.environ.setdefault("MAVLINK20", "1")
try:
    from pymavlink import mavutil
    from pymavlink.dialects.v20 import common as mavlink

    from swarmd.bridges.mavlink.outgoing import Outgoing
    from swarmd.bridges.mavlink.tlog import PREFIX, read_tlog
except ImportError as problem:
    raise TransportError(
        f"mavlink.enabled is true, but pymavlink cannot be imported ({problem}); run: pip install 'swarmd[mavlink]'"
    ) from problem

HEARTBEAT_S = 1.0
"""Seconds between our heartbeats. Source: MAVLink, heartbeat protocol, 1 Hz."""
SILENT_S = 5.0
"""Without a heartbeat of the vehicle for this long the rates are asked for again."""
MESSAGES_PER_S, MESSAGES_BURST = 3_000, 300
"""Messages a second that are read, and at once: above what a serial line of 921,600 baud carries."""
HANDED_MAX = 16
"""Messages that wait for the loop: a turn of it has no more of them than some milliseconds."""
POSES_PER_ASKED = 4
"""Positions that are handed on for each that was asked for: an autopilot may send more for somebody else."""
_BESIDE_AUTOPILOT: dict[str, tuple[int, ...]] = {
    "ATTITUDE": (), "ATTITUDE_QUATERNION": (), "GLOBAL_POSITION_INT": (), "GPS_RAW_INT": (), "HEARTBEAT": (),
    "SYS_STATUS": (), "BATTERY_STATUS": (mavlink.MAV_COMP_ID_BATTERY, mavlink.MAV_COMP_ID_BATTERY2),
}  # fmt: skip
"""What is the vehicle's only where the autopilot says it, or one of these components: a smart battery is one."""
_NO_VEHICLES = (
    mavlink.MAV_TYPE_GCS, mavlink.MAV_TYPE_ONBOARD_CONTROLLER, mavlink.MAV_TYPE_GIMBAL, mavlink.MAV_TYPE_ADSB,
    mavlink.MAV_TYPE_CAMERA, mavlink.MAV_TYPE_CHARGING_STATION, mavlink.MAV_TYPE_FLARM, mavlink.MAV_TYPE_SERVO,
    mavlink.MAV_TYPE_ODID, mavlink.MAV_TYPE_BATTERY, mavlink.MAV_TYPE_LOG, mavlink.MAV_TYPE_OSD, mavlink.MAV_TYPE_IMU,
    mavlink.MAV_TYPE_GPS, mavlink.MAV_TYPE_WINCH,
)  # fmt: skip
"""Who has no autopilot, though some say that theirs is a generic one."""
_NADIR = quaternion_from_euler(0.0, -math.pi / 2, 0.0)
_REST_S = 0.01
"""Seconds that the thread rests when it has read its rate."""
_FIRST_PAUSE_S = 0.5
"""Seconds until the second attempt to open the connection; doubles."""
_MAX_PAUSE_S = 10.0
"""Seconds between two attempts, at most: a cable that is plugged in again works within this."""


class MavlinkBridge:
    """One autopilot."""

    name = "mavlink"

    def __init__(self, config: MavlinkConfig) -> None:
        """Prepare; the connection opens in `run`."""
        self._config = config
        self._counts: Counter[str] = Counter()
        self._daemon: DaemonView | None = None
        self._fusion = VehicleFusion(config.stale_ms * 1_000_000, config.min_satellites, _NADIR)
        self._target: tuple[int, int] | None = None
        self._heard_s = 0.0
        self._asked_s = 0.0
        self._outgoing = Outgoing(config)
        self._watch = LinkWatch(config.connection, config.system_id)
        self._changes = Changes()
        self._alerts: dict[str, str] = {}
        self._connection: Any = None
        self._mode = ""
        self._has_fix: bool | None = None
        self._is_armed: bool | None = None
        self._handed_ns = 0
        """When a position was handed on last."""

    def counters(self) -> dict[str, int]:
        """Monotonic counts: messages, positions, positions without a fix, connection losses."""
        return {**self._counts, **{f"out_{name}": count for name, count in self._outgoing.counts.items()}}

    def status(self) -> dict[str, object]:
        """The link as `swarmd status` shows it."""
        heard_s = time.monotonic() - self._heard_s
        return {
            "connection": self._config.connection,
            "system_id": None if self._target is None else self._target[0],
            "heard_s": round(heard_s, 1) if self._heard_s else None,
            "mode": self._mode,
            "fix": self._has_fix,
            "armed": self._is_armed,
        }

    async def run(self, daemon: DaemonView) -> None:
        """Serve until cancelled."""
        self._daemon = daemon
        if self._config.connection.startswith(PREFIX):
            await self._replay(Path(self._config.connection.removeprefix(PREFIX)))
            return
        unsubscribe = daemon.subscribe(self._on_event)
        try:
            await self._serve()
        finally:
            unsubscribe()

    async def _serve(self) -> None:
        """One connection after the other."""
        pause_s = _FIRST_PAUSE_S
        while True:
            began_s = time.monotonic()
            self._say_alerts(began_s)
            try:
                await self._serve_once()
            except (OSError, ValueError) as error:
                self._counts["connection_failed"] += 1
                self._report(f"mavlink {self._config.connection}: {error}")
            pause_s = _FIRST_PAUSE_S if time.monotonic() - began_s > _MAX_PAUSE_S else min(pause_s * 2, _MAX_PAUSE_S)
            await asyncio.sleep(pause_s)

    async def _replay(self, path: Path) -> None:
        """A flight again, at its own pace; afterwards the last position goes stale as it would in the air."""
        try:
            due_s = time.monotonic()
            for pause_s, message in read_tlog(path):
                due_s += pause_s
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))
                self._on_message(message, time.monotonic_ns())
            self._report(f"the log {path} has ended")
        except TransportError as error:
            self._report(str(error))
        self._counts["replays_ended"] += 1
        await asyncio.Event().wait()

    def topics(self) -> list[tuple[str, str]]:
        """What `swarmd topics` shows."""
        return [(self._config.connection, "position, attitude, gimbal, battery, armed state")]

    async def _serve_once(self) -> None:
        loop = asyncio.get_running_loop()
        connection = await loop.run_in_executor(None, self._open)
        stop, ended = threading.Event(), asyncio.Event()
        problems: list[Exception] = []

        room = threading.Semaphore(HANDED_MAX)
        rate = TokenBucket(MESSAGES_PER_S, MESSAGES_BURST)

        def take(message: Any, now_ns: int) -> None:
            try:
                self._on_message(message, now_ns)
            finally:
                room.release()

        def read() -> None:
            try:
                while not stop.is_set():
                    if not rate.take(time.monotonic_ns()):
                        stop.wait(_REST_S)
                        continue
                    message = connection.recv_match(blocking=True, timeout=0.2)
                    if message is None or message.get_type() == "BAD_DATA":
                        continue
                    while not room.acquire(timeout=0.2):
                        if stop.is_set():
                            return
                    loop.call_soon_threadsafe(take, message, time.monotonic_ns())
            except Exception as error:  # pymavlink raises what the port raises: serial, socket, struct
                problems.append(error)
            finally:
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(ended.set)

        thread = threading.Thread(target=read, name="mavlink", daemon=True)
        thread.start()
        self._connection = connection
        try:
            beat_s = 0.0
            while not ended.is_set():
                if self._target is not None:
                    # A companion speaks in the name of its vehicle.
                    connection.mav.srcSystem = self._target[0]
                if time.monotonic() >= beat_s:
                    beat_s = time.monotonic() + HEARTBEAT_S
                    self._beat(connection)
                if self._target is not None and self._daemon is not None:
                    self._outgoing.send_due(connection, self._daemon)
                pause_s = self._outgoing.pause_s(max(0.0, beat_s - time.monotonic()))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await ended.wait()
        finally:
            self._connection = None
            stop.set()
            await asyncio.shield(loop.run_in_executor(None, thread.join, 1.0))
            connection.close()
        if problems:
            raise OSError(str(problems[0]))

    def _open(self) -> Any:
        config = self._config
        return mavutil.mavlink_connection(
            config.connection,
            baud=config.baud,
            source_system=config.system_id or 1,
            source_component=mavlink.MAV_COMP_ID_ONBOARD_COMPUTER,
            dialect="common",
            autoreconnect=False,
        )

    def _beat(self, connection: Any) -> None:
        """Heartbeat (PX4 opens its onboard link on it); ask for rates when the vehicle is new or was silent."""
        # Ground stations look at cameras alone for something that is tracked.
        kind = mavlink.MAV_TYPE_CAMERA if self._config.camera_tracking else mavlink.MAV_TYPE_ONBOARD_CONTROLLER
        connection.mav.heartbeat_send(kind, mavlink.MAV_AUTOPILOT_INVALID, 0, 0, mavlink.MAV_STATE_ACTIVE)
        now_s = time.monotonic()
        self._say_alerts(now_s)
        if self._target is None:
            return
        if now_s - self._heard_s > SILENT_S:
            self._asked_s = 0.0
        elif not self._asked_s:
            self._ask(connection)
            self._asked_s = now_s

    def _say_alerts(self, now_s: float) -> None:
        """What has changed of what is wrong with the link."""
        for code, text in self._watch.alerts(now_s).items():
            if self._daemon is not None and bool(text) != bool(self._alerts.get(code)):
                self._alerts[code] = text
                with contextlib.suppress(DaemonError):
                    self._daemon.command("alert", {"code": code, "text": text})

    def _ask(self, connection: Any) -> None:
        assert self._target is not None
        config = self._config
        rates_hz = {
            mavlink.MAVLINK_MSG_ID_GLOBAL_POSITION_INT: config.pose_hz,
            mavlink.MAVLINK_MSG_ID_GPS_RAW_INT: 2.0,
            mavlink.MAVLINK_MSG_ID_ATTITUDE_QUATERNION: config.attitude_hz,
            mavlink.MAVLINK_MSG_ID_GIMBAL_DEVICE_ATTITUDE_STATUS: config.pose_hz,
            mavlink.MAVLINK_MSG_ID_DISTANCE_SENSOR: config.pose_hz,
            mavlink.MAVLINK_MSG_ID_BATTERY_STATUS: 1.0,
            mavlink.MAVLINK_MSG_ID_SYSTEM_TIME: 1.0,
        }
        for message_id, rate_hz in rates_hz.items():
            connection.mav.command_long_send(
                *self._target, mavlink.MAV_CMD_SET_MESSAGE_INTERVAL, 0, message_id, 1e6 / rate_hz, 0, 0, 0, 0, 0
            )
        # Old ArduPilot knows only the stream groups.
        connection.mav.request_data_stream_send(*self._target, mavlink.MAV_DATA_STREAM_ALL, int(config.pose_hz), 1)
        self._counts["rate_requests"] += 1

    def _on_event(self, event: BusEvent) -> None:
        match event:
            case StateChanged(detail=DetectionLearned(track_id=int() as track_id) as learned) if (
                self._daemon is not None
            ):
                self._outgoing.on_detection(learned, self._daemon.look(track_id))
            case _:
                pass  # What others see is not on this camera.

    def _on_message(self, message: Any, now_ns: int) -> None:
        source = (message.get_srcSystem(), message.get_srcComponent())
        if message.get_type() == "COMMAND_LONG":
            # From a ground station as well, through the autopilot.
            is_ours = self._target is not None and message.target_system == self._target[0]
            if is_ours and self._connection is not None and self._daemon is not None:
                self._outgoing.on_command(message, self._connection, self._daemon)
            return
        if _is_of_autopilot(message):
            wanted = self._config.system_id
            self._watch.heartbeat(source[0], time.monotonic())
            if self._target is None and wanted in (0, source[0]):
                self._target = source
            if self._target == source:
                self._heard_s = time.monotonic()
                self._mode = str(mavutil.mode_string_v10(message))[:32]
                is_armed = bool(message.base_mode & mavlink.MAV_MODE_FLAG_SAFETY_ARMED)
                self._say_change("link", f"system {source[0]} speaks on {self._config.connection}", now_ns)
                self._say_change("mode", self._mode, now_ns)
                self._say_change("arming", "armed" if is_armed else "disarmed", now_ns)
        if self._target is None or source[0] != self._target[0]:
            return
        beside = _BESIDE_AUTOPILOT.get(message.get_type())
        if source != self._target and beside is not None and source[1] not in beside:
            return
        self._counts["messages"] += 1
        restarts = self._fusion.restarts
        is_position = self._fusion.feed(message, now_ns)
        if self._fusion.restarts != restarts:
            self._asked_s = 0.0
            self._counts["autopilot_restarts"] += 1
        if is_position and now_ns - self._handed_ns >= 1e9 / (POSES_PER_ASKED * self._config.pose_hz):
            self._handed_ns = now_ns
            self._hand_over(now_ns)

    def _hand_over(self, now_ns: int) -> None:
        state = self._fusion.state(now_ns)
        if state is None or self._daemon is None:
            return
        self._has_fix, self._is_armed = state.has_fix, state.armed
        self._watch.pose(has_fix=state.has_fix, now_s=time.monotonic())
        self._say_change("fix", "good enough to place things" if state.has_fix else "not good enough", now_ns)
        self._counts["positions"] += 1
        self._counts["positions_without_fix"] += not state.has_fix
        try:
            self._daemon.command(
                "pose",
                {
                    "captured_ns": state.captured_ns,
                    "latitude_deg": state.latitude_deg,
                    "longitude_deg": state.longitude_deg,
                    "height_agl_m": state.height_agl_m,
                    "camera_to_ned": list(state.camera_to_ned),
                    "yaw_rad": state.yaw_rad,
                    "position_sigma_m": state.position_sigma_m,
                    "has_fix": state.has_fix,
                    "armed": state.armed,
                    "battery_milli": state.battery_milli,
                    "altitude_m": state.altitude_m,
                },
            )
        except DaemonError:
            self._counts["refused"] += 1

    def _say_change(self, subject: str, value: str, now_ns: int) -> None:
        reason = self._changes.seen(subject, value, now_ns)
        if reason and self._daemon is not None:
            with contextlib.suppress(DaemonError):
                self._daemon.command("happened", {"kind": "autopilot", "subject": subject, "reason": reason})

    def _report(self, text: str) -> None:
        if self._daemon is not None:
            with contextlib.suppress(DaemonError):
                self._daemon.command("note_problem", {"where": self.name, "text": text})


def _is_of_autopilot(message: Any) -> bool:
    """Whether it is a vehicle's heartbeat."""
    return (
        message.get_type() == "HEARTBEAT"
        and message.autopilot != mavlink.MAV_AUTOPILOT_INVALID
        and message.type not in _NO_VEHICLES
    )
