"""What a process takes, read from the kernel, and how it grows: slopes with their errors, and the bars of a soak."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MEMORY_MB_H = 0.1
"""Megabytes an hour that a brain may grow by after the warm-up."""
JUDGED_S = 1_800.0
"""Seconds after the warm-up from which on a slope says something: below, one page of 4 kB more is already a tenth of
the bar."""
JOURNAL_GROWTH, JOURNAL_SLACK_BYTES = 1.25, 1 << 20
"""How much larger than after the warm-up the files of a node may be: SQLite's log of writes comes and goes by 1 MB or
so."""
CURVE_S = 300.0
"""Seconds between two rows of a report that say what each file and the memory came to."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at one brain.

    Attributes:
        at_s: Seconds since the soak began.
        pid: Its process; another one is another life.
        memory_mb: Anonymous resident memory, megabytes: what a leak would fill.
        descriptors: Open ones.
        threads: Threads.
        disk_bytes: All files of its state.
        files: Bytes of each of them, by name below the state's folder.
    """

    at_s: float
    pid: int
    memory_mb: float
    descriptors: int
    threads: int
    disk_bytes: int
    files: Mapping[str, int] = field(default_factory=dict)


def look_at(pid: int, state: Path, at_s: float) -> Sample | None:
    """Read one process; None when it is gone."""
    try:
        status = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
        )
        descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        memory_mb = int(status["RssAnon"].split()[0]) * 1024 / 1e6
        files = _files_in(state)
        return Sample(at_s, pid, memory_mb, descriptors, int(status["Threads"]), sum(files.values()), files)
    except (OSError, KeyError, ValueError):
        return None


def _files_in(folder: Path) -> dict[str, int]:
    found = {}
    for path in sorted(folder.rglob("*")):
        try:
            if path.is_file():
                found[str(path.relative_to(folder))] = path.stat().st_size
        except OSError:
            continue
    return found


def grown_files(rows: Sequence[Sample]) -> dict[str, tuple[int, int, int]]:
    """Of each file what it was at first, at most and at last, bytes; those that grew by the most come first.

    >>> a, b = (Sample(at, 7, 30.0, 40, 6, 9, {"log": 4, "file": 5 + at}) for at in (0, 3))
    >>> grown_files([a, b])
    {'file': (5, 8, 8), 'log': (4, 4, 4)}
    """
    names = sorted({name for one in rows for name in one.files})
    sizes = {name: [one.files.get(name, 0) for one in rows] for name in names}
    found = {name: (row[0], max(row), row[-1]) for name, row in sizes.items()}
    return dict(sorted(found.items(), key=lambda one: one[1][0] - one[1][1]))


def curve(samples: Sequence[Sample]) -> list[dict[str, Any]]:
    """Memory and files over the whole time, a row every `CURVE_S`."""
    found: list[dict[str, Any]] = []
    for one in samples:
        if not found or one.at_s >= found[-1]["at_s"] + CURVE_S:
            found.append({"at_s": round(one.at_s), "memory_mb": round(one.memory_mb, 2), "files": dict(one.files)})
    return found


def slope_h(points: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    """Growth an hour of a value over seconds, by least squares, and its standard error.

    None below three points or without a span of time.

    >>> slope_h([(0, 10.0), (1800, 10.5), (3600, 11.0)])
    (1.0, 0.0)
    """
    if len(points) < 3 or points[0][0] == points[-1][0]:
        return None
    times, values = [at / 3_600 for at, _ in points], [value for _, value in points]
    middle, mean = statistics.fmean(times), statistics.fmean(values)
    spread = sum((at - middle) ** 2 for at in times)
    slope = sum((at - middle) * (value - mean) for at, value in zip(times, values, strict=True)) / spread
    rest = sum((value - mean - slope * (at - middle)) ** 2 for at, value in zip(times, values, strict=True))
    return round(slope, 6), round(math.sqrt(rest / (len(points) - 2) / spread), 6)


def growth(witnesses: dict[str, list[Sample]], warm_s: float, nodes: int) -> dict[str, Any]:
    """Figures and bars of brains that lived through the whole soak.

    Args:
        witnesses: Their samples, in order.
        warm_s: Seconds of the warm-up, which does not count.
        nodes: Daemons of the soak: each may hold a few descriptors for each other.
    """
    after = {name: [one for one in samples if one.at_s >= warm_s] for name, samples in witnesses.items()}
    after = {name: samples for name, samples in after.items() if len(samples) >= 3}
    if not after:
        return {"brains": 0, "bars": {}}
    slopes = {
        name: found for name, rows in after.items() if (found := slope_h([(one.at_s, one.memory_mb) for one in rows]))
    }
    median_mb_h = statistics.median(slope for slope, _ in slopes.values())
    seconds = max(rows[-1].at_s - rows[0].at_s for rows in after.values())
    descriptors = max(one.descriptors for rows in after.values() for one in rows)
    disk = {name: (rows[0].disk_bytes, max(one.disk_bytes for one in rows)) for name, rows in after.items()}
    return {
        "brains": len(after),
        "seconds": round(seconds),
        "memory_mb": {
            name: [round(rows[0].memory_mb, 2), round(rows[-1].memory_mb, 2)] for name, rows in after.items()
        },
        "memory_mb_h": {name: {"slope": slope, "error": error} for name, (slope, error) in slopes.items()},
        "memory_mb_h_median": median_mb_h,
        "descriptors_max": descriptors,
        "descriptors_h": {
            name: slope_h([(one.at_s, one.descriptors) for one in rows])[0]  # type: ignore[index]
            for name, rows in after.items()
        },
        "threads_max": max(one.threads for rows in after.values() for one in rows),
        "disk_bytes": disk,
        "files": {name: grown_files(rows) for name, rows in after.items()},
        "bars": {
            # Less than half an hour cannot tell a leak from a page: it is not judged, and says so.
            f"memory grows by <= {MEMORY_MB_H} MB/h": median_mb_h <= MEMORY_MB_H if seconds >= JUDGED_S else None,
            "descriptors <= 64 + 4 a member": descriptors <= 64 + 4 * nodes,
            f"files <= {JOURNAL_GROWTH} x those after the warm-up + 1 MiB": all(
                most <= JOURNAL_GROWTH * first + JOURNAL_SLACK_BYTES for first, most in disk.values()
            ),
        },
    }
