"""Reads position and attitude from an ArduPilot DataFlash log (`.bin`).

The format describes itself: every message starts with A3 95 and a type, and FMT messages (type 128) give each type's
length, field codes and names. Rows without a 3D fix become poses without a fix; they carry false numbers.

Source:
    ArduPilot, libraries/AP_Logger/LogStructure.h (field codes; FMT is 89 bytes long).
"""

import math
import struct
from dataclasses import dataclass
from pathlib import Path

from swarmd_models.errors import SourceError
from swarmd_models.geo.geolocate import multiply, quaternion_from_euler
from swarmd_models.types import Pose

MAX_LOG_BYTES = 512 << 20
_MARK = b"\xa3\x95"
_FMT_TYPE, _FMT_BYTES = 128, 89
_CODES = {
    "b": "b", "B": "B", "h": "h", "H": "H", "i": "i", "I": "I", "f": "f", "d": "d", "n": "4s", "N": "16s", "Z": "64s",
    "c": "h", "C": "H", "e": "i", "E": "I", "L": "i", "M": "B", "q": "q", "Q": "Q", "a": "64s",
}  # fmt: skip
_FACTORS = {"c": 0.01, "C": 0.01, "e": 0.01, "E": 0.01, "L": 1e-7}
_NADIR = quaternion_from_euler(0.0, -math.pi / 2, 0.0)
_FIX_3D = 3


@dataclass(frozen=True, slots=True)
class _Format:
    name: str
    layout: struct.Struct
    codes: str
    columns: tuple[str, ...]


def read_dataflash(path: Path) -> list[Pose]:
    """The poses of a log, one a GPS row, with the attitude of that moment; the camera looks along the body's down axis.

    Raises:
        SourceError: The file cannot be read, is no such log, or has no GPS rows.
    """
    try:
        if path.stat().st_size > MAX_LOG_BYTES:
            raise SourceError(f"log {path} is larger than {MAX_LOG_BYTES >> 20} MiB")
        data = path.read_bytes()
    except OSError as error:
        raise SourceError(f"cannot read log {path}: {error.strerror}") from error
    poses = _poses(data)
    if not poses:
        raise SourceError(f"log {path} is no ArduPilot DataFlash log with GPS rows")
    return poses


def _poses(data: bytes) -> list[Pose]:
    poses: list[Pose] = []
    attitude = (0.0, 0.0, 0.0)
    home_m: float | None = None
    for name, row in _messages(data):
        if name == "ATT":
            attitude = (row.get("Roll", 0.0), row.get("Pitch", 0.0), row.get("Yaw", 0.0))
        elif name == "GPS" and "Lat" in row and "Lng" in row:
            has_fix = row.get("Status", 0.0) >= _FIX_3D
            altitude = row.get("Alt", 0.0)
            if home_m is None and has_fix:
                home_m = altitude  # Height above ground is taken above the place where the fix came.
            height = row.get("RAlt", row.get("RelAlt", altitude - (home_m if home_m is not None else altitude)))
            roll, pitch, yaw = (math.radians(angle) for angle in attitude)
            camera = multiply(quaternion_from_euler(yaw, pitch, roll), _NADIR)
            t_ns = _time_ns(row)
            poses.append(Pose(t_ns, row["Lat"], row["Lng"], height, camera, has_fix=has_fix and height > 0.5))
    return poses


def _time_ns(row: dict[str, float]) -> int:
    if "TimeUS" in row:
        return round(row["TimeUS"] * 1e3)
    return round(row.get("T", row.get("TimeMS", 0.0)) * 1e6)


def _messages(data: bytes) -> "list[tuple[str, dict[str, float]]]":
    formats: dict[int, _Format] = {}
    found: list[tuple[str, dict[str, float]]] = []
    at, end = 0, len(data)
    while 0 <= at <= end - 3:
        if data[at : at + 2] != _MARK:
            at = data.find(_MARK, at + 1)  # A torn message: go on at the next mark.
            continue
        kind = data[at + 2]
        if kind == _FMT_TYPE:
            if at + _FMT_BYTES > end:
                break
            _learn(data[at + 3 : at + _FMT_BYTES], formats)
            at += _FMT_BYTES
        elif (known := formats.get(kind)) is not None and at + 3 + known.layout.size <= end:
            if known.name in ("GPS", "ATT"):
                found.append((known.name, _row(known, data, at + 3)))
            at += 3 + known.layout.size
        else:
            at = data.find(_MARK, at + 1)
    return found


def _learn(body: bytes, formats: dict[int, _Format]) -> None:
    kind, length = body[0], body[1]
    text = [part.split(b"\x00")[0].decode("ascii", "replace") for part in (body[2:6], body[6:22], body[22:86])]
    name, codes, columns = text
    if not all(code in _CODES for code in codes):
        return
    layout = struct.Struct("<" + "".join(_CODES[code] for code in codes))
    if layout.size == length - 3:
        formats[kind] = _Format(name, layout, codes, tuple(columns.split(",")))


def _row(known: _Format, data: bytes, at: int) -> dict[str, float]:
    values = known.layout.unpack_from(data, at)
    return {
        column: float(value) * _FACTORS.get(code, 1.0)
        for column, code, value in zip(known.columns, known.codes, values, strict=False)
        if not isinstance(value, bytes)
    }
