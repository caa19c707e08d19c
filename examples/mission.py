"""A mission that reacts: the vehicle is sent above each new thing of one kind, wherever in the swarm it was seen.

    python examples/mission.py person 48.0,11.0 udpout:127.0.0.1:14550

The second argument is `node.origin` of the swarm, latitude and longitude; the third an autopilot by pymavlink's words:
one of its own links, beside the one that swarmd listens on. swarmd itself steers nothing; this program does, with
MAV_CMD_DO_REPOSITION, which PX4 and ArduPilot (in GUIDED) take. The pilot's own means end it at any time.
Needs `pip install 'swarmd[mavlink]'`.
"""

import contextlib
import math
import sys

from pymavlink.dialects.v20 import common as mavlink
from pymavlink.mavutil import mavlink_connection

import swarmd

EARTH_M = 6_378_137.0
"""Equatorial radius of WGS 84."""
HEIGHT_M = 20.0
"""Above home, metres."""


def main(label: str, origin: str, connection: str, control: str | None = None) -> None:
    latitude_deg, longitude_deg = map(float, origin.split(","))
    link = mavlink_connection(connection, source_system=255, source_component=190)
    node = swarmd.connect(control)
    with node.watch() as changes:
        print(f"waiting for {label}", flush=True)
        for change in changes:
            if change.event != "object" or change.details["kind"] != "new" or change.details["label"] != label:
                continue
            thing = next((one for one in node.objects() if one.id == change.subject), None)
            if thing is None or thing.east_m is None or thing.north_m is None:
                continue  # Gone again, or nobody knows where it is.
            north_deg = math.degrees(thing.north_m / EARTH_M)
            east_deg = math.degrees(thing.east_m / EARTH_M) / math.cos(math.radians(latitude_deg))
            lat, lon = round((latitude_deg + north_deg) * 1e7), round((longitude_deg + east_deg) * 1e7)
            link.mav.command_int_send(
                1, 1, mavlink.MAV_FRAME_GLOBAL_RELATIVE_ALT, mavlink.MAV_CMD_DO_REPOSITION, 0, 0,
                -1, mavlink.MAV_DO_REPOSITION_FLAGS_CHANGE_MODE, 0, math.nan, lat, lon, HEIGHT_M,
            )  # fmt: skip
            print(f"to {label} at {lat / 1e7:.7f}, {lon / 1e7:.7f}", flush=True)


if __name__ == "__main__":
    if not 4 <= len(sys.argv) <= 5:
        sys.exit("give a label, LATITUDE,LONGITUDE of node.origin, and the autopilot, such as udpout:127.0.0.1:14550")
    try:
        with contextlib.suppress(KeyboardInterrupt):
            main(*sys.argv[1:])
    except (swarmd.DaemonError, OSError) as error:
        sys.exit(str(error))
    except ValueError:
        sys.exit(f"{sys.argv[2]} is no LATITUDE,LONGITUDE in degrees, such as 48.0,11.0")
