"""Telemetry logs of ground stations: each MAVLink frame behind the UNIX time of its arrival, 8 bytes, microseconds.

Source: MAVLink developer guide, "Telemetry logs" as QGroundControl and MAVProxy write them.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pymavlink import mavutil

from swarmd.errors import TransportError

PREFIX = "tlog:"
GAP_MAX_S = 10.0
"""A longer pause in the log is replayed as this long."""


def read_tlog(path: Path) -> Iterator[tuple[float, Any]]:
    """The messages of a log, in order.

    Args:
        path: The `.tlog` file.

    Yields:
        Seconds since the message before (0 or more, at most `GAP_MAX_S`), and the message.

    Raises:
        TransportError: The file cannot be read.
    """
    try:
        log = mavutil.mavlogfile(str(path))
    except OSError as error:
        raise TransportError(f"cannot read the log {path}: {error.strerror or error}") from error
    try:
        before_s: float | None = None
        while (message := log.recv_msg()) is not None:
            at_s = float(message._timestamp)
            pause_s = 0.0 if before_s is None else min(max(0.0, at_s - before_s), GAP_MAX_S)
            before_s = at_s
            if message.get_type() != "BAD_DATA":
                yield pause_s, message
    finally:
        log.close()
