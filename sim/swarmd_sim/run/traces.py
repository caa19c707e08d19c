"""Measured links and flight logs from files: checked row by row, refused when they have gaps."""

import csv
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

from swarmd_sim.errors import TraceError
from swarmd_sim.radio.radio import TracePoint
from swarmd_sim.run.choices import MILLION
from swarmd_sim.world.motion import LogPoint

_ROWS_MAX = 1_000_000
_FILE_MAX_BYTES = 256 * 1024 * 1024
GAP_MS = 60_000
"""A link or log that says nothing for longer than this has a gap."""
_LINK_COLUMNS = ("t_ms", "source", "destination", "loss", "rate_kbit_s", "delay_ms")
_LOG_COLUMNS = ("t_ms", "east_m", "north_m")


class MeasuredLinks:
    """Per-link loss, rate and delay over time; each value holds until the next one, and the trace repeats at its end.

    Args:
        links: (time ns, point) rows by (source, destination), each sorted by time and not empty.
    """

    def __init__(self, links: dict[tuple[int, int], list[tuple[int, TracePoint]]]) -> None:
        self._times = {link: [at for at, _point in rows] for link, rows in links.items()}
        self._points = {link: [point for _at, point in rows] for link, rows in links.items()}
        self._span_ns = 1 + max(rows[-1][0] for rows in links.values())

    def at(self, source: int, destination: int, now_ns: int) -> TracePoint | None:
        """What the trace says of this link now; None when it does not know the link."""
        times = self._times.get((source, destination))
        if times is None:
            return None
        index = bisect_right(times, now_ns % self._span_ns) - 1
        return self._points[(source, destination)][max(0, index)]


def read_link_trace(path: Path, nodes: int) -> MeasuredLinks:
    """Read measured links from a CSV with the columns t_ms, source, destination, loss, rate_kbit_s, delay_ms.

    Args:
        path: The file.
        nodes: Hosts of the run; source and destination are their numbers.

    Returns:
        The links.

    Raises:
        TraceError: The file is missing or damaged, or a link has a gap of more than a minute.
    """
    links: dict[tuple[int, int], list[tuple[int, TracePoint]]] = {}
    for line, row in _rows(path, _LINK_COLUMNS):
        at_ms, source, destination = (int(value) for value in row[:3])
        loss, rate, delay = row[3:]
        if not (0 <= source < nodes and 0 <= destination < nodes) or source == destination:
            raise TraceError(f"{path}:{line}: link {source} to {destination}; hosts are 0 to {nodes - 1}")
        if not (0 <= loss <= 1 and 0 < rate < 1e8 and 0 <= delay <= 60_000 and at_ms >= 0):
            raise TraceError(f"{path}:{line}: loss is 0 to 1, rate_kbit_s above 0, delay_ms 0 to 60000, t_ms from 0")
        rows = links.setdefault((source, destination), [])
        _check_time(path, line, rows[-1][0] if rows else None, at_ms, f"link {source} to {destination}")
        rows.append((at_ms * MILLION, TracePoint(round(loss * MILLION), round(rate * 1_000), round(delay * MILLION))))
    if not links:
        raise TraceError(f"{path} has no rows")
    return MeasuredLinks(links)


def read_flight_log(path: Path) -> list[LogPoint]:
    """Read where a drone flew: a CSV with t_ms, east_m, north_m, or an ArduPilot DataFlash `.bin`.

    Args:
        path: The file.

    Returns:
        At least two points by time.

    Raises:
        TraceError: The file is missing or damaged, has a gap, or `.bin` needs a library that is not installed.
    """
    if path.suffix.lower() == ".bin":
        return _read_dataflash(path)
    points: list[LogPoint] = []
    for line, row in _rows(path, _LOG_COLUMNS):
        at_ms = int(row[0])
        _check_time(path, line, points[-1].at_ns if points else None, at_ms, "the log")
        points.append(LogPoint(at_ms * MILLION, round(row[1] * 100), round(row[2] * 100)))
    if len(points) < 2:
        raise TraceError(f"{path} has {len(points)} points; a flight has at least two")
    return points


def _check_time(path: Path, line: int, before_ns: int | None, at_ms: int, what: str) -> None:
    if before_ns is None:
        return
    gap_ms = at_ms - before_ns // MILLION
    if gap_ms <= 0:
        raise TraceError(f"{path}:{line}: {what} goes back in time ({gap_ms} ms); sort the rows by t_ms")
    if gap_ms > GAP_MS:
        raise TraceError(
            f"{path}:{line}: {what} says nothing for {gap_ms / 1000:g} s; fill the gap or cut the trace there"
        )


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, list[float]]]:
    """Line number and the wanted columns as finite numbers, row by row."""
    try:
        if path.stat().st_size > _FILE_MAX_BYTES:
            raise TraceError(f"{path} is larger than {_FILE_MAX_BYTES >> 20} MiB; cut it")
        with path.open(newline="", encoding="utf-8", errors="replace") as file:
            reader = csv.DictReader(file)
            missing = [column for column in columns if column not in (reader.fieldnames or ())]
            if missing:
                raise TraceError(f"{path}: column {missing[0]} is missing; wanted are {', '.join(columns)}")
            for line, row in enumerate(reader, start=2):
                if line > _ROWS_MAX:
                    raise TraceError(f"{path} has more than {_ROWS_MAX} rows; cut it")
                yield line, [_number(path, line, column, row[column]) for column in columns]
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}") from error
    except csv.Error as error:
        raise TraceError(f"{path} is no CSV: {error}") from error


def _number(path: Path, line: int, column: str, text: str | None) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = float("nan")
    if not abs(value) < 1e15:
        raise TraceError(f"{path}:{line}: {column} is {text!r}; it must be a number")
    return value


def _read_dataflash(path: Path) -> list[LogPoint]:
    try:
        from pymavlink import DFReader
    except ImportError as error:
        raise TraceError(f"{path}: reading a .bin needs pymavlink; install swarmd[mavlink]") from error
    try:
        log = DFReader.DFReader_binary(str(path))
        fixes: list[tuple[str, int, float, float]] = []
        while len(fixes) < _ROWS_MAX and (message := log.recv_match(type=["POS", "GPS"])) is not None:
            if getattr(message, "Status", 3) >= 3 and abs(message.Lat) > 1e-6:
                fixes.append((message.get_type(), round(message._timestamp * 1000), message.Lat, message.Lng))
        log.close()
    except (OSError, ValueError, AttributeError, KeyError) as error:
        raise TraceError(f"{path} is no DataFlash log: {error}") from error
    kind = "POS" if any(fix[0] == "POS" for fix in fixes) else "GPS"
    return _plane([fix[1:] for fix in fixes if fix[0] == kind], path)


def _plane(fixes: list[tuple[int, float, float]], path: Path) -> list[LogPoint]:
    """Positions in a plane about the first fix; one centimetre is about 9e-8 degrees of latitude."""
    if len(fixes) < 2:
        raise TraceError(f"{path} has {len(fixes)} positions; a flight has at least two")
    first_ms, latitude, longitude = fixes[0]
    # The cosine as a short series of the latitude in radians, in plain arithmetic that every CPU does alike.
    radians2 = (latitude * 0.017453292519943295) ** 2
    cosine = 1 - radians2 / 2 + radians2**2 / 24 - radians2**3 / 720 + radians2**4 / 40_320
    points: list[LogPoint] = []
    for at_ms, lat, lon in fixes:
        at_ns = (at_ms - first_ms) * MILLION
        if not points or at_ns > points[-1].at_ns:
            east, north = (lon - longitude) * cosine * 11_131_949.08, (lat - latitude) * 11_131_949.08
            points.append(LogPoint(at_ns, round(east), round(north)))
    return points
