"""Where the camera was at a given time: standing still, replayed from a file, or told live by the autopilot.

A provider answers None rather than guess: outside of a log, across a hole in it, and where there was no fix.
"""

import bisect
import contextlib
import csv
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from swarmd_models.errors import SourceError
from swarmd_models.geo.geolocate import Quaternion, multiply, quaternion_from_euler
from swarmd_models.types import Pose

_FIX_3D = 3
"""GPS status from which a row's position is one (ArduPilot, AP_GPS::GPS_OK_FIX_3D)."""
_NADIR = quaternion_from_euler(0.0, -math.pi / 2, 0.0)
"""A camera that looks straight down, in the body's frame."""

MAX_LOG_BYTES = 512 << 20
"""Of a pose log, table or DataFlash: a day's flight at full rate."""
MAX_ROWS = 5_000_000
"""Poses of one log: six days at 10 Hz."""
MAX_GAP_NS = 1_000_000_000
"""Between two rows further apart than this, nothing is known."""
LIVE_ROWS = 256
"""Newest poses that the autopilot told: some five seconds at 50 Hz."""
_COLUMNS = ("t_s", "latitude_deg", "longitude_deg", "height_agl_m", "yaw_deg")
"""What a pose log must have; "pitch_deg" and "roll_deg" are those of a camera that looks straight down by default."""
_LOOKING_DOWN = (0.0, -90.0, 0.0)
"""Yaw, pitch and roll, degrees."""


class PoseProvider(Protocol):
    """Tells the pose at a time."""

    def at(self, captured_ns: int) -> Pose | None:
        """The pose at this time of the device's monotonic clock, or None."""
        ...


class FixedPose:
    """A camera on a mast."""

    def __init__(self, pose: Pose) -> None:
        """Always answer `pose`."""
        self._pose = pose

    def at(self, captured_ns: int) -> Pose | None:
        """The pose, with the time asked for."""
        return replace(self._pose, captured_ns=captured_ns)


class PoseTrack:
    """Poses in order of time with interpolation between neighbours; also takes new ones (`push`)."""

    def __init__(self, poses: Sequence[Pose] = (), keep: int = MAX_ROWS) -> None:
        """Start with `poses`, sorted by time; at most `keep` are kept, the newest."""
        self._poses = sorted(poses, key=lambda pose: pose.captured_ns)[-keep:]
        self._times = [pose.captured_ns for pose in self._poses]
        self._keep = keep

    def push(self, pose: Pose) -> None:
        """Add a newer pose; one that is older than the last starts the track anew (the log looped)."""
        if self._times and pose.captured_ns <= self._times[-1]:
            self._poses.clear()
            self._times.clear()
        self._poses.append(pose)
        self._times.append(pose.captured_ns)
        if len(self._poses) > 2 * self._keep:
            del self._poses[: -self._keep], self._times[: -self._keep]

    def at(self, captured_ns: int) -> Pose | None:
        """The pose between its two neighbours; up to 0.2 s past the last it is taken as it was."""
        index = bisect.bisect_right(self._times, captured_ns)
        if index == 0:
            return None
        before = self._poses[index - 1]
        if index == len(self._poses):
            is_fresh = captured_ns - before.captured_ns <= MAX_GAP_NS // 5
            return replace(before, captured_ns=captured_ns) if is_fresh else None
        after = self._poses[index]
        if after.captured_ns - before.captured_ns > MAX_GAP_NS:
            return None
        return _between(before, after, captured_ns)


class ReplayedPoses:
    """A log whose first row belongs to the first frame that asks."""

    def __init__(self, poses: Sequence[Pose]) -> None:
        """Replay `poses`; their times count from their first row."""
        self._track = PoseTrack(poses)
        self._log_start_ns = min(pose.captured_ns for pose in poses)
        self._start_ns: int | None = None

    def at(self, captured_ns: int) -> Pose | None:
        """The pose as far into the log as this frame is into the stream."""
        if self._start_ns is None:
            self._start_ns = captured_ns
        pose = self._track.at(captured_ns - self._start_ns + self._log_start_ns)
        return None if pose is None else replace(pose, captured_ns=captured_ns)


def open_poses(spec: str) -> PoseProvider | None:
    """A provider from its description.

    Args:
        spec: "" (none), "fixed:LAT,LON,AGL[,YAW[,PITCH[,ROLL]]]" (degrees, metres; by default it looks straight down
            and the picture's upper edge lies north), "csv:FILE" (columns t_s, latitude_deg, longitude_deg,
            height_agl_m, yaw_deg of the camera, and optionally pitch_deg, roll_deg, fix, position_sigma_m,
            height_sigma_m, attitude_sigma_deg), "dataflash:FILE" (ArduPilot log; camera fixed to the body, looking
            straight down) or "live" (told by the brain).

    Raises:
        SourceError: The description or the file cannot be used.
    """
    kind, _, rest = spec.partition(":")
    if not spec:
        return None
    if kind == "live":
        return PoseTrack(keep=LIVE_ROWS)
    if kind == "fixed":
        return FixedPose(_parse_fixed(rest))
    if kind == "csv":
        return ReplayedPoses(_read_csv(Path(rest)))
    if kind == "dataflash":
        return ReplayedPoses(read_dataflash(Path(rest)))
    raise SourceError(f"pose {spec!r} cannot be used; write fixed:LAT,LON,AGL, csv:FILE, dataflash:FILE or live")


def _parse_fixed(text: str) -> Pose:
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError as error:
        raise SourceError(f"pose fixed:{text} holds something that is no number") from error
    if not 3 <= len(numbers) <= 6 or not all(math.isfinite(n) for n in numbers):
        raise SourceError(f"pose fixed:{text} needs LAT,LON,AGL[,YAW[,PITCH[,ROLL]]], 3 to 6 finite numbers")
    yaw, pitch, roll = (*numbers[3:], *_LOOKING_DOWN[len(numbers) - 3 :])
    pose = make_pose(0, numbers[0], numbers[1], numbers[2], yaw, pitch, roll)
    problem = _problem(pose)
    if problem:
        raise SourceError(f"pose fixed:{text}: {problem}")
    return pose


def make_pose(
    captured_ns: int, latitude: float, longitude: float, agl: float, yaw: float, pitch: float, roll: float
) -> Pose:
    """A pose from degrees and metres; pitch -90 looks straight down."""
    attitude = quaternion_from_euler(math.radians(yaw), math.radians(pitch), math.radians(roll))
    return Pose(captured_ns, latitude, longitude, agl, attitude)


def _problem(pose: Pose) -> str:
    if not -90.0 <= pose.latitude_deg <= 90.0 or not -180.0 <= pose.longitude_deg <= 180.0:
        return "latitude must be within 90 degrees and longitude within 180"
    if not 0.0 < pose.height_agl_m < 10_000.0:
        return "the height above ground must lie between 0 and 10,000 m"
    return ""


def _read_csv(path: Path) -> list[Pose]:
    poses: list[Pose] = []
    try:
        if path.stat().st_size > MAX_LOG_BYTES:
            raise SourceError(f"pose log {path} is larger than {MAX_LOG_BYTES >> 20} MiB")
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            missing = [name for name in _COLUMNS if name not in (reader.fieldnames or ())]
            if missing:
                north = "; which way the camera looks is not guessed" if "yaw_deg" in missing else ""
                raise SourceError(f"pose log {path} lacks the columns {', '.join(missing)}{north}")
            for row in reader:
                poses.append(_row_to_pose(row, path, reader.line_num))
                if len(poses) > MAX_ROWS:
                    raise SourceError(f"pose log {path} has more than {MAX_ROWS} rows")
    except OSError as error:
        raise SourceError(f"cannot read pose log {path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise SourceError(f"pose log {path} is no CSV text: {error}") from error
    if not poses:
        raise SourceError(f"pose log {path} has no rows")
    return poses


def _row_to_pose(row: dict[str, str], path: Path, line: int) -> Pose:
    def number(name: str, default: float) -> float:
        text = row.get(name)
        value = float(text) if text else default
        if not math.isfinite(value):
            raise ValueError(f"{name} is {text or 'empty'}")
        return value

    try:
        t_ns = round(number("t_s", 0.0) * 1e9)
        pose = make_pose(
            t_ns,
            number("latitude_deg", 0.0),
            number("longitude_deg", 0.0),
            number("height_agl_m", 0.0),
            number("yaw_deg", math.nan),
            number("pitch_deg", -90.0),
            number("roll_deg", 0.0),
        )
        has_fix = number("fix", 1.0) >= 1.0 and not _problem(pose)
        return replace(
            pose,
            has_fix=has_fix,
            position_sigma_m=number("position_sigma_m", 1.5),
            height_sigma_m=number("height_sigma_m", 1.0),
            attitude_sigma_rad=math.radians(number("attitude_sigma_deg", 1.0)),
        )
    except (ValueError, OverflowError, TypeError) as error:
        raise SourceError(f"pose log {path}, line {line}: {error}") from error


def _between(a: Pose, b: Pose, captured_ns: int) -> Pose:
    share = (captured_ns - a.captured_ns) / (b.captured_ns - a.captured_ns)

    def mix(x: float, y: float) -> float:
        return x + (y - x) * share

    around = (b.longitude_deg - a.longitude_deg + 180.0) % 360.0 - 180.0
    return replace(
        a,
        captured_ns=captured_ns,
        latitude_deg=mix(a.latitude_deg, b.latitude_deg),
        longitude_deg=(a.longitude_deg + around * share + 180.0) % 360.0 - 180.0,
        height_agl_m=mix(a.height_agl_m, b.height_agl_m),
        camera_to_ned=_nlerp(a.camera_to_ned, b.camera_to_ned, share),
        position_sigma_m=max(a.position_sigma_m, b.position_sigma_m),
        height_sigma_m=max(a.height_sigma_m, b.height_sigma_m),
        attitude_sigma_rad=max(a.attitude_sigma_rad, b.attitude_sigma_rad),
        has_fix=a.has_fix and b.has_fix,
    )


def _nlerp(a: Quaternion, b: Quaternion, share: float) -> Quaternion:
    """Between two attitudes; the short way round, normalised (neighbours in a log are degrees apart)."""
    sign = -1.0 if sum(x * y for x, y in zip(a, b, strict=True)) < 0 else 1.0
    mixed = [x * (1 - share) + y * share * sign for x, y in zip(a, b, strict=True)]
    norm = math.sqrt(sum(x * x for x in mixed)) or 1.0
    w, x, y, z = (m / norm for m in mixed)
    return (w, x, y, z)


def read_dataflash(path: Path) -> list[Pose]:
    """The poses of an ArduPilot DataFlash log (`.bin`), one a GPS row, with the attitude of that moment.

    The camera looks along the body's down axis. Rows without a 3D fix carry false numbers and become poses without a
    fix. A height that the log does not give is taken above the place where the fix came.

    Raises:
        SourceError: The file cannot be read, is no such log, or has no GPS rows; or pymavlink is not installed.
    """
    try:
        if path.stat().st_size > MAX_LOG_BYTES:
            raise SourceError(f"log {path} is larger than {MAX_LOG_BYTES >> 20} MiB")
        path.open("rb").close()
    except OSError as error:
        raise SourceError(f"cannot read log {path}: {error.strerror}") from error
    poses: list[Pose] = []
    roll, pitch, yaw = 0.0, 0.0, 0.0
    home_m: float | None = None
    for row in _dataflash_rows(path):
        if row["mavpackettype"] == "ATT":
            roll, pitch, yaw = (math.radians(row.get(name, 0.0)) for name in ("Roll", "Pitch", "Yaw"))
        elif "Lat" in row and "Lng" in row:
            has_fix, altitude = row.get("Status", 0) >= _FIX_3D, row.get("Alt", 0.0)
            if home_m is None and has_fix:
                home_m = altitude
            height = row.get("RAlt", row.get("RelAlt", altitude - (home_m if home_m is not None else altitude)))
            camera = multiply(quaternion_from_euler(yaw, pitch, roll), _NADIR)
            t_ns = round(row["TimeUS"] * 1e3 if "TimeUS" in row else row.get("T", row.get("TimeMS", 0.0)) * 1e6)
            poses.append(Pose(t_ns, row["Lat"], row["Lng"], height, camera, has_fix=has_fix and height > 0.5))
    if not poses:
        raise SourceError(f"log {path} is no ArduPilot DataFlash log with GPS rows")
    return poses


def _dataflash_rows(path: Path) -> Iterator[dict[str, Any]]:
    try:
        from pymavlink import DFReader
    except ImportError as error:
        raise SourceError(f"reading log {path} needs pymavlink; install swarmd[mavlink]") from error
    log = DFReader.DFReader_binary.__new__(DFReader.DFReader_binary)  # Closed below also when it does not come to life.
    rows: list[dict[str, Any]] = []
    # It prints what it makes of a damaged log, and raises whatever it stumbles over.
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            log.__init__(str(path))
            while (message := log.recv_match(type=["GPS", "ATT"])) is not None:
                rows.append(message.to_dict())
        except Exception as error:
            raise SourceError(f"log {path} is no sound DataFlash log: {error}") from error
        finally:
            if hasattr(log, "filehandle"):
                log.filehandle.close()
    yield from rows
