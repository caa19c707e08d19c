"""Who else speaks on the autopilot's link: other parts of the vehicle, and whoever can send to the port."""

import asyncio
import math
import socket
import time
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

pytest.importorskip("pymavlink", reason="pymavlink is not installed (extra mavlink)")

from pymavlink.dialects.v20 import common as mavlink

from swarmd.bridges.mavlink.bridge import (
    HANDED_MAX,
    MESSAGES_BURST,
    MESSAGES_PER_S,
    POSES_PER_ASKED,
    MavlinkBridge,
)
from swarmd.bridges.mavlink.fusion import VehicleFusion
from swarmd.config.bridges import MavlinkConfig
from tests.integration.test_mavlink_bridge import NADIR, SECOND, Autopilot, bound, flying, message, quaternion_of
from tests.support.bridge_world import World
from tests.support.daemons import PATIENCE_S
from tests.support.exclusive import own_port


@pytest.fixture
def port() -> int:
    return own_port()


async def test_a_gimbal_of_the_vehicle_is_no_autopilot(port: int) -> None:
    """It has its own heartbeat, never armed, and some send an attitude: a model would be swapped in the air for it."""
    world, autopilot = World(), Autopilot(port)
    bridge = MavlinkBridge(MavlinkConfig(enabled=True, connection=f"udpin:127.0.0.1:{port}"))
    task = asyncio.create_task(bridge.run(world))
    gimbal = mavlink.MAVLink(None, srcSystem=7, srcComponent=mavlink.MAV_COMP_ID_GIMBAL)
    beat = gimbal.heartbeat_encode(mavlink.MAV_TYPE_GIMBAL, mavlink.MAV_AUTOPILOT_INVALID, 0, 0, 4).pack(gimbal)
    turned = gimbal.attitude_quaternion_encode(1, *quaternion_of(0.0, 0.0, -2.0), 0, 0, 0).pack(gimbal)
    try:
        await bound(port)
        deadline = time.monotonic() + PATIENCE_S
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            while bridge.counters().get("positions", 0) < 20:
                assert time.monotonic() < deadline
                sock.sendto(beat, ("127.0.0.1", port))
                sock.sendto(turned, ("127.0.0.1", port))
                await asyncio.sleep(0.01)
        poses = [rest for verb, rest in world.commands if verb == "pose"]
        assert {pose["armed"] for pose in poses} == {True}
        assert all(pose["yaw_rad"] == pytest.approx(math.pi / 2, abs=1e-3) for pose in poses)
    finally:
        autopilot.close()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def _said(component: int, kind: int, autopilot: int, name: str, *values: Any) -> Any:
    """A message of a component of vehicle 7, as the bridge has it from the wire."""
    sender = mavlink.MAVLink(None, srcSystem=7, srcComponent=component)
    encode = getattr(sender, f"{name}_encode")
    data = encode(kind, autopilot, *values).pack(sender) if name == "heartbeat" else encode(*values).pack(sender)
    return mavlink.MAVLink(None).parse_buffer(bytearray(data))[0]


@pytest.mark.parametrize(
    ("component", "kind"),
    [
        (mavlink.MAV_COMP_ID_GIMBAL, mavlink.MAV_TYPE_GIMBAL),
        (mavlink.MAV_COMP_ID_CAMERA, mavlink.MAV_TYPE_CAMERA),
        (mavlink.MAV_COMP_ID_ONBOARD_COMPUTER, mavlink.MAV_TYPE_ONBOARD_CONTROLLER),
        (mavlink.MAV_COMP_ID_MISSIONPLANNER, mavlink.MAV_TYPE_GCS),
    ],
)
def test_a_part_that_calls_itself_generic_is_not_taken_for_the_autopilot(component: int, kind: int) -> None:
    """Whoever spoke first was followed; where that is a gimbal, nothing that the autopilot says of itself counts."""
    bridge = MavlinkBridge(MavlinkConfig(enabled=True))
    bridge._on_message(_said(component, kind, mavlink.MAV_AUTOPILOT_GENERIC, "heartbeat", 0, 0, 4), SECOND)
    bridge._on_message(_said(1, mavlink.MAV_TYPE_QUADROTOR, mavlink.MAV_AUTOPILOT_PX4, "heartbeat", 209, 0, 4), SECOND)
    assert bridge._target == (7, 1)


def test_the_battery_of_a_camera_is_not_the_vehicles() -> None:
    """A smart battery is a component of its own, and speaks for the vehicle; what a camera runs on does not."""
    bridge = MavlinkBridge(MavlinkConfig(enabled=True))
    bridge._on_message(_said(1, mavlink.MAV_TYPE_QUADROTOR, mavlink.MAV_AUTOPILOT_PX4, "heartbeat", 209, 0, 4), SECOND)
    for component, charge, milli in (
        (1, 71, 710), (mavlink.MAV_COMP_ID_CAMERA, 5, 710), (mavlink.MAV_COMP_ID_GIMBAL, 5, 710),
        (mavlink.MAV_COMP_ID_BATTERY, 70, 700), (mavlink.MAV_COMP_ID_BATTERY2, 69, 690),
    ):  # fmt: skip
        cells = [3950] * 4 + [65535] * 6
        bridge._on_message(
            _said(component, 0, 0, "battery_status", 0, 1, 1, 2500, cells, 1450, 800, -1, charge, 900, 1), SECOND
        )
        assert bridge._fusion._battery_milli == milli


async def test_law_a_flood_waits_where_it_costs_nobody_anything(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever can send to the port sends all it can, in datagrams full of positions; the loop has some of it a turn."""
    world, turn, taken = World(), 0, Counter[int]()
    bridge = MavlinkBridge(MavlinkConfig(enabled=True, connection=f"udpin:127.0.0.1:{port}"))
    real = bridge._on_message

    def take(message: Any, now_ns: int) -> None:
        taken[turn] += 1
        time.sleep(0.0002)  # More than it takes to parse one.
        real(message, now_ns)

    monkeypatch.setattr(bridge, "_on_message", take)
    task = asyncio.create_task(bridge.run(world))
    sender = mavlink.MAVLink(None, srcSystem=7, srcComponent=1)
    beat = sender.heartbeat_encode(mavlink.MAV_TYPE_QUADROTOR, mavlink.MAV_AUTOPILOT_PX4, 81, 0, 4).pack(sender)
    level = sender.attitude_quaternion_encode(1, 1, 0, 0, 0, 0, 0, 0).pack(sender)
    place = sender.global_position_int_encode(1_000, 473977420, 85455940, 520_000, 32_000, 0, 0, 0, 0).pack(sender)
    try:
        await bound(port)
        began = time.monotonic()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            while (took_s := time.monotonic() - began) < 1.5:
                for datagram in (beat + level, place * 1_000):
                    sock.sendto(datagram, ("127.0.0.1", port))
                turn += 1
                await asyncio.sleep(0)
        assert max(taken.values()) <= HANDED_MAX
        assert sum(taken.values()) <= MESSAGES_BURST + MESSAGES_PER_S * took_s
        poses = sum(verb == "pose" for verb, _ in world.commands)
        assert 0 < poses <= 1 + POSES_PER_ASKED * 10.0 * took_s
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.mark.parametrize(("lon", "has_fix"), [(85455940, True), (1_800_000_001, False), (-2_147_483_648, False)])
def test_a_longitude_that_is_none_places_nothing(lon: int, has_fix: bool) -> None:
    fusion = VehicleFusion(SECOND, 6, NADIR)
    flying(fusion, SECOND)
    fusion.feed(
        message("GLOBAL_POSITION_INT", time_boot_ms=10_001, lat=473977420, lon=lon, relative_alt=30_000), SECOND
    )
    state = fusion.state(SECOND)
    assert state is not None
    assert state.has_fix is has_fix


def test_an_attitude_that_is_none_is_not_taken() -> None:
    fusion = VehicleFusion(SECOND, 6, NADIR)
    flying(fusion, SECOND)
    for odd in (math.inf, -math.inf, math.nan):
        fusion.feed(message("ATTITUDE", roll=0.0, pitch=odd, yaw=1.0), SECOND)
        fusion.feed(message("ATTITUDE", roll=odd, pitch=0.0, yaw=odd), SECOND)
    state = fusion.state(SECOND)
    assert state is not None
    assert state.yaw_rad == pytest.approx(1.0)


def test_what_a_silent_autopilot_said_of_its_arms_is_not_known() -> None:
    fusion = VehicleFusion(SECOND, 6, NADIR)
    flying(fusion, SECOND)
    fusion.feed(message("HEARTBEAT", base_mode=81), SECOND)
    assert [state.armed for at_s in (1, 6, 7) if (state := fusion.state(at_s * SECOND))] == [False, False, None]
