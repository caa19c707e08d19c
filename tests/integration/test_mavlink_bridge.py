"""The MAVLink bridge beside an autopilot that speaks real MAVLink over loopback UDP, and the fusion's rules."""

import asyncio
import math
import os
import socket
import threading
import time
import tty
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pymavlink", reason="pymavlink is not installed (extra mavlink)")

from pymavlink import mavutil
from pymavlink.dialects.v20 import common as mavlink

from swarmd.api.daemon import Look
from swarmd.bridges.mavlink.bridge import MavlinkBridge
from swarmd.bridges.mavlink.fusion import VehicleFusion, yaw_of
from swarmd.config.bridges import MavlinkConfig, eye_pose_for, mavlink_for
from swarmd_models.geo.geolocate import multiply, quaternion_from_euler
from tests.support.bridge_world import World, detection, own_detection
from tests.support.daemons import PATIENCE_S
from tests.support.exclusive import own_port

SECOND = 1_000_000_000


def quaternion_of(roll_rad: float, pitch_rad: float, yaw_rad: float) -> tuple[float, float, float, float]:
    return quaternion_from_euler(yaw_rad, pitch_rad, roll_rad)


NADIR = quaternion_of(0.0, -math.pi / 2, 0.0)


def vehicle_link(port: int) -> Any:
    """The vehicle's side, in the bridge's dialect: pymavlink keeps one for the whole process, whoever chose it last."""
    address = f"udpout:127.0.0.1:{port}"
    return mavutil.mavlink_connection(address, source_system=7, source_component=1, dialect="common")


class Autopilot:
    """Speaks the streams of an autopilot, at the rates it was asked for."""

    def __init__(self, port: int) -> None:
        self.fix_type = 3
        self.asked: dict[int, float] = {}
        self._stop = threading.Event()
        self._link = vehicle_link(port)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        send = self._link.mav
        began = time.monotonic()
        next_beat = 0.0
        while not self._stop.is_set():
            now = time.monotonic() - began
            boot_ms = int(now * 1000)
            if now >= next_beat:
                next_beat = now + 0.2
                send.heartbeat_send(mavlink.MAV_TYPE_QUADROTOR, mavlink.MAV_AUTOPILOT_PX4, 209, 0, 4)
            with suppress(OSError):
                heard = self._link.recv_match(blocking=False)
                if heard is not None and heard.get_type() == "COMMAND_LONG":
                    self.asked[int(heard.param1)] = float(heard.param2)
            send.gps_raw_int_send(boot_ms * 1000, self.fix_type, 0, 0, 0, 80, 65535, 0, 0, 12, 568_000)
            send.attitude_quaternion_send(boot_ms, *quaternion_of(0.0, 0.0, math.pi / 2), 0, 0, 0)
            send.battery_status_send(0, 1, 1, 2500, [3950] * 4 + [65535] * 6, 1450, 800, -1, 71, 900, 1)
            send.global_position_int_send(boot_ms, 473977420, 85455940, 520_000, 32_000, 150, -20, 5, 9000)
            self._stop.wait(0.05)

    def close(self) -> None:
        self._stop.set()
        self._thread.join(timeout=PATIENCE_S)
        self._link.close()


@pytest.fixture
def port() -> int:
    return own_port()


async def bound(port: int) -> None:
    """The bridge listens: what is sent from here on arrives."""
    row, deadline = f" 0100007F:{port:04X} ", time.monotonic() + PATIENCE_S
    while row not in Path("/proc/net/udp").read_text():
        assert time.monotonic() < deadline, "the bridge does not listen"
        await asyncio.sleep(0.01)


async def test_poses_reach_the_daemon_and_a_lost_fix_is_said(port: int) -> None:
    world = World()
    bridge = MavlinkBridge(MavlinkConfig(enabled=True, connection=f"udpin:127.0.0.1:{port}"))
    task = asyncio.create_task(bridge.run(world))
    await bound(port)
    autopilot = Autopilot(port)

    async def until(condition: Any) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, bridge.counters()
            await asyncio.sleep(0.02)

    def poses(has_fix: bool) -> list[Any]:
        return [a for verb, a in world.commands if verb == "pose" and a["has_fix"] is has_fix]

    try:
        await until(lambda: len(poses(True)) > 3)
        found = poses(True)[-1]
        assert (found["latitude_deg"], found["longitude_deg"]) == (47.397742, 8.545594)
        assert found["height_agl_m"] == 32.0
        assert found["yaw_rad"] == pytest.approx(math.pi / 2, abs=1e-3)
        assert (found["armed"], found["battery_milli"]) == (True, 710)
        assert found["position_sigma_m"] == pytest.approx(1.2)
        assert found["altitude_m"] == 568.0
        await until(lambda: mavlink.MAVLINK_MSG_ID_GLOBAL_POSITION_INT in autopilot.asked)
        assert autopilot.asked[mavlink.MAVLINK_MSG_ID_GLOBAL_POSITION_INT] == pytest.approx(1e5)
        autopilot.fix_type = 1
        without = len(poses(False))  # None, unless this process was stopped for longer than a fix is fresh.
        await until(lambda: len(poses(False)) >= without + 5)
        count, without = len(poses(True)), len(poses(False))
        await until(lambda: len(poses(False)) >= without + 5)
        assert len(poses(True)) == count
    finally:
        autopilot.close()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def ask(link: Any, command: int, number: float, interval_us: float = 0.0, component: int = 191) -> int:
    """A ground station's command to vehicle 7; the result of the answer, -1 where none comes."""
    link.mav.command_long_send(7, component, command, 0, number, interval_us, 0, 0, 0, 0, 0)
    deadline = time.monotonic() + (PATIENCE_S if component == 191 else 0.5)
    while time.monotonic() < deadline:
        message = link.recv_match(type="COMMAND_ACK", blocking=True, timeout=0.2)
        if message is not None and message.command == command:
            return int(message.result)
    return -1


def heard_while(link: Any, count: int, say: Callable[[], None] = lambda: None, kind: str = "HEARTBEAT") -> list[str]:
    """What else arrives until so many messages of a kind have: of the bridge's heartbeats, one comes a second."""
    deadline, kinds = time.monotonic() + PATIENCE_S, list[str]()
    while kinds.count(kind) < count:
        assert time.monotonic() < deadline, f"{kinds.count(kind)} {kind} of {count}"
        say()
        message = link.recv_match(blocking=True, timeout=0.2)
        if message is not None:
            kinds.append(message.get_type())
    return kinds


def first(link: Any, kind: str, right: Callable[[Any], bool], say: Callable[[], None]) -> Any:
    """The first message of a kind that is as it should be; `say` is repeated while it is waited for."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        say()
        message = link.recv_match(type=kind, blocking=True, timeout=0.2)
        if message is not None and right(message):
            return message
    raise AssertionError(f"no {kind} as it should be")


async def test_a_ground_station_sees_counts_and_what_the_camera_tracks(port: int) -> None:
    world = World()
    config = MavlinkConfig(enabled=True, connection=f"udpin:127.0.0.1:{port}", named_values=True, camera_tracking=True)
    bridge = MavlinkBridge(config)
    task = asyncio.create_task(bridge.run(world))
    await bound(port)
    link = vehicle_link(port)

    def station() -> None:
        def beat() -> None:
            link.mav.heartbeat_send(mavlink.MAV_TYPE_QUADROTOR, mavlink.MAV_AUTOPILOT_PX4, 81, 0, 4)

        beat()
        seen: dict[str, int] = {}

        def note(message: Any) -> bool:
            seen[message.name] = message.value
            return len(seen) == 4

        first(link, "NAMED_VALUE_INT", note, beat)
        assert seen == {"sw_objects": 1, "sw_confirm": 1, "sw_members": 2, "sw_alive": 1}
        idle = first(link, "CAMERA_TRACKING_GEO_STATUS", lambda _: True, beat)
        assert (idle.tracking_status, idle.lat) == (0, 0)
        assert (idle.get_srcSystem(), idle.get_srcComponent()) == (7, 191)

        def see() -> None:
            world.looks[9] = Look((0.2, 0.4, 0.4, 0.8))
            loop.call_soon_threadsafe(world.say, own_detection(9))
            loop.call_soon_threadsafe(world.say, detection(10))  # A peer's is not on this camera.

        geo = first(link, "CAMERA_TRACKING_GEO_STATUS", lambda one: one.tracking_status == 1, see)
        assert (geo.lat / 1e7, geo.lon / 1e7) == pytest.approx((-18.88 + 20 / 110_700, -70.11 + 10 / 105_400), abs=1e-6)
        assert geo.h_acc == pytest.approx(0.2)
        image = first(link, "CAMERA_TRACKING_IMAGE_STATUS", lambda one: one.tracking_status == 1, see)
        assert image.tracking_mode == mavlink.CAMERA_TRACKING_MODE_RECTANGLE
        assert (image.point_x, image.point_y) == pytest.approx((0.3, 0.6))
        assert (image.rec_top_x, image.rec_bottom_y) == pytest.approx((0.2, 0.8))

        accepted, unsupported, denied = 0, 3, 2
        interval, get = mavlink.MAV_CMD_SET_MESSAGE_INTERVAL, mavlink.MAV_CMD_GET_MESSAGE_INTERVAL
        assert ask(link, interval, 275, 100_000) == accepted
        heard = heard_while(link, 8, beat, kind="CAMERA_TRACKING_IMAGE_STATUS")
        assert heard.count("HEARTBEAT") < 5, "more often than once a second"
        assert ask(link, interval, 275, -1) == accepted
        heard_while(link, 1, beat)
        assert "CAMERA_TRACKING_IMAGE_STATUS" not in heard_while(link, 2, beat)
        link.mav.command_long_send(7, 191, get, 0, 275, 0, 0, 0, 0, 0, 0)
        assert first(link, "MESSAGE_INTERVAL", lambda one: one.message_id == 275, beat).interval_us == -1
        assert ask(link, mavlink.MAV_CMD_REQUEST_MESSAGE, 275) == accepted
        assert ask(link, interval, 275, math.nan) == denied
        # As QGroundControl does once it has heard the heartbeat of a camera.
        camera = first(link, "HEARTBEAT", lambda one: one.get_srcComponent() == 191, beat)
        assert (camera.type, camera.autopilot) == (mavlink.MAV_TYPE_CAMERA, mavlink.MAV_AUTOPILOT_INVALID)
        for command, number in (
            (mavlink.MAV_CMD_REQUEST_CAMERA_INFORMATION, 1),
            (mavlink.MAV_CMD_REQUEST_MESSAGE, 259),
        ):
            link.mav.command_long_send(7, 191, command, 0, number, 0, 0, 0, 0, 0, 0)
            about = first(link, "CAMERA_INFORMATION", lambda _: True, beat)
            assert about.flags & mavlink.CAMERA_CAP_FLAGS_HAS_TRACKING_RECTANGLE
            assert bytes(about.vendor_name).rstrip(b"\0") == b"swarmd"
            assert ask(link, command, number) == accepted
        assert bridge.status()["system_id"] == 7
        assert bridge.status()["mode"]
        assert ask(link, interval, 30, 100_000) == unsupported
        assert ask(link, interval, math.nan, 100_000) == unsupported
        assert ask(link, mavlink.MAV_CMD_DO_SET_MODE, 1) == unsupported
        assert ask(link, interval, 275, 0, component=1) == -1

    loop = asyncio.get_running_loop()
    try:
        await asyncio.to_thread(station)
    finally:
        link.close()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_nothing_but_heartbeats_and_requests_leaves_unasked(port: int) -> None:
    bridge = MavlinkBridge(MavlinkConfig(enabled=True, connection=f"udpin:127.0.0.1:{port}"))
    task = asyncio.create_task(bridge.run(World()))
    await bound(port)
    link = vehicle_link(port)

    def listen() -> set[str]:
        def beat() -> None:
            link.mav.heartbeat_send(mavlink.MAV_TYPE_QUADROTOR, mavlink.MAV_AUTOPILOT_PX4, 81, 0, 4)

        kinds = set(heard_while(link, 3, beat))
        assert ask(link, mavlink.MAV_CMD_SET_MESSAGE_INTERVAL, 275, 100_000) == 3
        return kinds

    try:
        kinds = await asyncio.to_thread(listen)
        assert kinds <= {"HEARTBEAT", "COMMAND_LONG", "REQUEST_DATA_STREAM"}
    finally:
        link.close()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_bytes_that_are_no_mavlink_do_no_harm(port: int) -> None:
    world = World()
    bridge = MavlinkBridge(MavlinkConfig(enabled=True, connection=f"udpin:127.0.0.1:{port}"))
    task = asyncio.create_task(bridge.run(world))
    try:
        await bound(port)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            for number in range(200):
                sock.sendto(bytes([0xFD, number % 256, *range(60)]), ("127.0.0.1", port))
            beat = mavlink.MAVLink(None, srcSystem=7, srcComponent=1)
            said = beat.heartbeat_encode(mavlink.MAV_TYPE_QUADROTOR, mavlink.MAV_AUTOPILOT_PX4, 81, 0, 4).pack(beat)
            deadline = time.monotonic() + PATIENCE_S
            while not bridge.counters().get("messages"):
                assert time.monotonic() < deadline, "a heartbeat is still heard"
                sock.sendto(said, ("127.0.0.1", port))
                await asyncio.sleep(0.02)
        assert not task.done()
        told = [command for command in world.commands if command[0] == "happened"]
        assert world.commands == told, "junk says nothing"
        assert {what["subject"] for _, what in told} <= {"link", "mode", "arming"}, "what the heartbeat says"
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def write_tlog(path: Path, rows: int, fix_type: Callable[[int], int]) -> None:
    """A ground station's log of a flight: 20 rows a second, each with the fix that `fix_type` gives."""
    encoder = mavlink.MAVLink(None, srcSystem=7, srcComponent=1)
    with path.open("wb") as file:
        for row in range(rows):
            boot_ms, at_us = row * 50, 1_700_000_000_000_000 + row * 50_000
            said = [
                encoder.heartbeat_encode(mavlink.MAV_TYPE_QUADROTOR, mavlink.MAV_AUTOPILOT_PX4, 209, 0, 4),
                encoder.gps_raw_int_encode(boot_ms * 1000, fix_type(row), 0, 0, 0, 80, 65535, 0, 0, 12),
                encoder.attitude_quaternion_encode(boot_ms, *quaternion_of(0.0, 0.0, 0.5), 0, 0, 0),
                encoder.global_position_int_encode(boot_ms, 473977420 + row, 85455940, 520_000, 32_000, 0, 0, 0, 0),
            ]
            for one in said:
                file.write(at_us.to_bytes(8, "big") + one.pack(encoder))


async def replayed(path: Path) -> tuple[World, MavlinkBridge]:
    world = World()
    bridge = MavlinkBridge(mavlink_for(f"tlog:{path}", MavlinkConfig()))
    task = asyncio.create_task(bridge.run(world))
    async with asyncio.timeout(60):
        while not bridge.counters().get("replays_ended"):
            await asyncio.sleep(0.01)
    assert not task.done()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return world, bridge


async def test_a_tlog_is_replayed_at_its_pace_and_rows_without_a_fix_place_nothing(tmp_path: Path) -> None:
    log = tmp_path / "flight.tlog"
    write_tlog(log, 30, lambda row: 3 if 10 <= row < 20 else 1)
    began = time.monotonic()
    world, bridge = await replayed(log)
    assert time.monotonic() - began > 1.4
    poses = [arguments for verb, arguments in world.commands if verb == "pose"]
    assert [one["has_fix"] for one in poses] == [10 <= row < 20 for row in range(30)]
    assert poses[10]["latitude_deg"] == pytest.approx(47.397743)
    assert bridge.counters()["positions_without_fix"] == 20


async def test_a_tlog_that_is_missing_torn_or_no_log_is_said(tmp_path: Path) -> None:
    world, _ = await replayed(tmp_path / "none.tlog")
    assert "cannot read the log" in str(world.commands[-1][1]["text"])
    whole, torn = tmp_path / "whole.tlog", tmp_path / "torn.tlog"
    write_tlog(whole, 4, lambda _: 3)
    torn.write_bytes(whole.read_bytes()[:-7])
    world, bridge = await replayed(torn)
    assert bridge.counters()["positions"] == 3
    torn.write_bytes(bytes(range(256)) * 20)
    world, bridge = await replayed(torn)
    assert "positions" not in bridge.counters()


def test_an_autopilot_gives_the_eye_its_poses_unless_told_otherwise() -> None:
    on = MavlinkConfig(enabled=True)
    assert eye_pose_for("", on) == eye_pose_for("tlog:x", MavlinkConfig()) == "live"
    assert eye_pose_for("", MavlinkConfig()) == ""
    assert eye_pose_for("fixed:1,2,3", on) == "fixed:1,2,3"


def message(kind: str, **fields: Any) -> Any:
    return SimpleNamespace(get_type=lambda: kind, **fields)


def flying(fusion: VehicleFusion, now_ns: int, *, lat: int = 473977420, boot_ms: int = 10_000) -> None:
    fusion.feed(message("GPS_RAW_INT", fix_type=3, satellites_visible=12, eph=80, h_acc=500), now_ns)
    fusion.feed(message("ATTITUDE", roll=0.0, pitch=0.0, yaw=1.0), now_ns)
    fusion.feed(
        message("GLOBAL_POSITION_INT", time_boot_ms=boot_ms, lat=lat, lon=85455940, relative_alt=30_000), now_ns
    )


def test_state_has_a_fix_only_while_everything_is_fresh() -> None:
    fusion = VehicleFusion(SECOND // 2, 6, NADIR)
    assert fusion.state(0) is None
    flying(fusion, SECOND)
    state = fusion.state(SECOND)
    assert state is not None
    assert state.has_fix
    assert state.position_sigma_m == 0.5
    stale = fusion.state(2 * SECOND)
    assert stale is not None
    assert not stale.has_fix


@pytest.mark.parametrize(
    "gps",
    [
        message("GPS_RAW_INT", fix_type=2, satellites_visible=12, eph=80),
        message("GPS_RAW_INT", fix_type=3, satellites_visible=4, eph=80),
    ],
)
def test_no_fix_or_few_satellites_place_nothing(gps: Any) -> None:
    fusion = VehicleFusion(SECOND, 6, NADIR)
    flying(fusion, SECOND)
    fusion.feed(gps, SECOND)
    state = fusion.state(SECOND)
    assert state is not None
    assert not state.has_fix


def test_a_restarted_autopilot_must_prove_its_fix_again() -> None:
    fusion = VehicleFusion(SECOND, 6, NADIR)
    flying(fusion, SECOND, boot_ms=60_000)
    fusion.feed(
        message("GLOBAL_POSITION_INT", time_boot_ms=100, lat=473977420, lon=85455940, relative_alt=30_000), SECOND
    )
    state = fusion.state(SECOND)
    assert fusion.restarts == 1
    assert state is not None
    assert not state.has_fix


@pytest.mark.parametrize(("flags", "expected_yaw"), [(64, 0.3), (32, 1.3), (16, 0.3), (0, 1.3)])
def test_gimbal_yaw_frames(flags: int, expected_yaw: float) -> None:
    fusion = VehicleFusion(SECOND, 6, NADIR)
    flying(fusion, SECOND)
    fusion.feed(message("GIMBAL_DEVICE_ATTITUDE_STATUS", flags=flags, q=quaternion_of(0.0, -0.5, 0.3)), SECOND)
    state = fusion.state(SECOND)
    assert state is not None
    assert yaw_of(state.camera_to_ned) == pytest.approx(expected_yaw, abs=1e-6)


def test_quaternions_compose_as_rotations() -> None:
    assert yaw_of(multiply(quaternion_of(0, 0, 0.4), quaternion_of(0, 0, 0.5))) == pytest.approx(0.9)


async def test_a_serial_autopilot_is_heard() -> None:
    """The extra brings what pymavlink needs for a serial port; a pseudo-terminal stands in for the cable."""
    pytest.importorskip("serial", reason="pyserial is not installed (extra mavlink)")
    world = World()
    far, near = os.openpty()
    tty.setraw(far)
    tty.setraw(near)
    bridge = MavlinkBridge(MavlinkConfig(enabled=True, connection=os.ttyname(near), baud=57600))
    task = asyncio.create_task(bridge.run(world))
    sender = mavlink.MAVLink(None, srcSystem=7, srcComponent=1)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while bridge.status()["system_id"] != 7:
            assert time.monotonic() < deadline, bridge.status()
            beat = mavlink.MAVLink_heartbeat_message(2, mavlink.MAV_AUTOPILOT_PX4, 81, 0, 4, 3)
            os.write(far, beat.pack(sender))
            await asyncio.sleep(0.05)
        assert bridge.counters()["messages"] > 0
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        os.close(far)
        os.close(near)


async def test_link_mode_fix_and_arming_are_written_down_when_they_change(port: int) -> None:
    world = World()
    bridge = MavlinkBridge(MavlinkConfig(enabled=True, connection=f"udpin:127.0.0.1:{port}"))
    task = asyncio.create_task(bridge.run(world))
    autopilot = Autopilot(port)

    def told() -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for verb, arguments in world.commands:
            if verb == "happened":
                assert arguments["kind"] == "autopilot"
                found.setdefault(str(arguments["subject"]), []).append(str(arguments["reason"]))
        return found

    async def until(condition: Any) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, told()
            await asyncio.sleep(0.02)

    try:
        await until(lambda: len(told()) == 4 and told()["fix"][-1].startswith("good enough"))
        assert told()["link"] == [f"system 7 speaks on udpin:127.0.0.1:{port}"]
        assert told()["arming"] == ["armed"]
        assert told()["mode"][0]
        autopilot.fix_type = 1
        await until(lambda: told()["fix"][-1] == "not good enough; it was good enough to place things")
        assert all(len(reasons) <= 3 for reasons in told().values())
    finally:
        autopilot.close()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
