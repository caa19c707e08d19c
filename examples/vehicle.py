"""A vehicle that speaks MAVLink and flies in a circle, for a companion computer without an autopilot beside it.

python examples/vehicle.py                              # to 127.0.0.1:14540, where swarmd listens by default
python examples/vehicle.py udpout:127.0.0.1:14541 48.1 11.5

It says heartbeats, GPS_RAW_INT, GLOBAL_POSITION_INT and ATTITUDE as PX4 does, thirty metres above the ground, until
Ctrl-C. Needs `pip install 'swarmd[mavlink]'`.
"""

import contextlib
import math
import sys
import time

from pymavlink.dialects.v20 import common as mavlink
from pymavlink.mavutil import mavlink_connection

RADIUS_M, HEIGHT_M, SPEED_M_S = 20.0, 30.0, 5.0
RATE_HZ = 20
EARTH_M = 6_378_137.0
"""Equatorial radius of WGS 84."""


def main(connection: str = "udpout:127.0.0.1:14540", latitude: str = "-18.88569", longitude: str = "-70.11243") -> None:
    """Fly around a place until somebody ends it."""
    vehicle = mavlink_connection(connection, source_system=1, source_component=1)
    say, began = vehicle.mav, time.monotonic()
    for tick in range(sys.maxsize):
        now_s = time.monotonic() - began
        around = now_s * SPEED_M_S / RADIUS_M
        north_m, east_m = RADIUS_M * math.cos(around), RADIUS_M * math.sin(around)
        lat = round((float(latitude) + math.degrees(north_m / EARTH_M)) * 1e7)
        lon = round((float(longitude) + math.degrees(east_m / EARTH_M) / math.cos(math.radians(float(latitude)))) * 1e7)
        course = (around + math.pi / 2) % (2 * math.pi)
        if tick % RATE_HZ == 0:
            say.heartbeat_send(mavlink.MAV_TYPE_QUADROTOR, mavlink.MAV_AUTOPILOT_PX4, 128, 0, mavlink.MAV_STATE_ACTIVE)
            say.gps_raw_int_send(
                round(now_s * 1e6), 3, lat, lon, round(HEIGHT_M * 1e3), 80, 120, round(SPEED_M_S * 100),
                round(math.degrees(course) * 100), 12,
            )  # fmt: skip
        if tick % 2 == 0:
            say.global_position_int_send(
                round(now_s * 1e3), lat, lon, round(HEIGHT_M * 1e3), round(HEIGHT_M * 1e3),
                round(-SPEED_M_S * math.sin(around) * 100), round(SPEED_M_S * math.cos(around) * 100), 0,
                round(math.degrees(course) * 100),
            )  # fmt: skip
        yaw = math.remainder(course, 2 * math.pi)
        say.attitude_send(round(now_s * 1e3), 0.0, 0.0, yaw, 0.0, 0.0, SPEED_M_S / RADIUS_M)
        time.sleep(1 / RATE_HZ)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
