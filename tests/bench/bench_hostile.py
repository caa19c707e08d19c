"""Each bound of laws 4, 6 and 7 beside what was measured: what one member, one accuser, one stranger can cost others.

    python -m tests.bench.bench_hostile [--only state swim …]        one JSON object; exit 1 when a bound does not hold

Runs the benches of the rooms (`hostile_*.py`, each prints one JSON object) in processes of their own, one after the
other, and picks from each the figures that a law bounds. A bench that is missing or fails is a row that does not hold.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
ROOMS = ("state", "garbage", "releases", "frames", "swim", "daemon")
TIMEOUT_S = 1_800


@dataclass(frozen=True)
class Bound:
    """One row.

    Attributes:
        law: Of docs/security.md.
        text: What is bounded.
        room: Whose bench measures it.
        pick: The figure out of what the bench printed.
        limit: What it may be.
        unit: Of both.
        least: The limit is the least that must be, not the most that may.
    """

    law: int
    text: str
    room: str
    pick: Callable[[Any], float]
    limit: float
    unit: str = ""
    least: bool = False

    def holds(self, value: float) -> bool:
        """Whether the figure is within its limit."""
        return value >= self.limit if self.least else value <= self.limit


def _worst(key: str) -> Callable[[Any], float]:
    return lambda found: max(float(row[key]) for row in found["attacks"])


def _least(key: str) -> Callable[[Any], float]:
    return lambda found: min(float(row[key]) for row in found["attacks"])


def _dearest(figure: str) -> Callable[[Any], float]:
    """The worst of a figure over all floods of one frame."""
    return lambda found: max(one[figure] for one in found["floods"].values())


def _longest_frame(found: Any) -> float:
    """The worst over all kinds of frames."""
    return max(one["longest_ms"] for one in found["frames"].values())


def _chatter(found: Any) -> float:
    """The worst over all kinds of words."""
    return max(rate for by_audience in found["chatterers_bytes_s"].values() for rate in by_audience.values())


BOUNDS: Sequence[Bound] = (
    Bound(4, "memory that one author makes a member spend", "state", _worst("memory_mb"), 32, "MB"),
    Bound(4, "share of a core that one author takes", "state", _worst("cpu_share"), 0.05),
    Bound(4, "longest event of a member under it", "state", _worst("longest_ms"), 20, "ms"),
    Bound(4, "what stays in a member's journal", "state", _worst("journal_bytes"), 4_194_304, "B"),
    Bound(4, "until a member works as usual after it", "state", _worst("recovery_s"), 10, "s"),
    Bound(4, "until a member works as usual after a restart", "state", _worst("restart_s"), 10, "s"),
    Bound(
        4,
        "longest garbage collection of a member that holds 48,000 sightings, under one author's attacks",
        "garbage",
        lambda found: found["slices"]["longest_ms"],
        20,
        "ms",
    ),
    Bound(
        4,
        "longest turn of its collector while a swarm sees 32,000 things more",
        "garbage",
        lambda found: found["swarm"]["longest_ms"],
        20,
        "ms",
    ),
    Bound(
        4,
        "objects that one author adds, of which 100,000 more make a member look at all it holds",
        "garbage",
        lambda found: found["slices"]["author_objects"],
        100_000,
    ),
    Bound(4, "memory that one peer makes a member spend on models", "releases", _worst("memory_mb"), 32, "MB"),
    Bound(4, "share of a core that one peer takes with models", "releases", _worst("cpu_share"), 0.05),
    Bound(4, "longest event of a member about models", "releases", _worst("longest_ms"), 20, "ms"),
    Bound(4, "longest event of a member under words of one", "swim", _dearest("longest_ms"), 20, "ms"),
    Bound(4, "longest event of a member under a frame of any kind", "frames", _longest_frame, 20, "ms"),
    Bound(4, "signatures checked in that event", "swim", _dearest("checks"), 150),
    Bound(4, "bytes a member sends beside the usual for an author", "swim", _chatter, 2_000, "B/s"),
    Bound(4, "bytes held of one author's events", "swim", lambda d: d["event_bytes"], 2 << 20, "B"),
    Bound(4, "lines of refusals that a flood writes", "daemon", lambda d: d["audit"]["lines_per_s"], 1, "/s"),
    Bound(4, "refusals that wait to be written", "daemon", lambda d: d["audit"]["queue_longest"], 1_024),
    Bound(4, "history that a flood leaves standing", "daemon", lambda d: d["audit"]["history_kept"], 1, "", True),
    Bound(4, "alarms that name the flooder", "daemon", lambda d: d["audit"]["alarms_naming_the_flooder"], 1, "", True),
    Bound(
        4,
        "journal file beside its bound",
        "daemon",
        lambda d: d["journal"]["file_bytes"] / d["journal"]["bound_bytes"],
        1,
    ),
    Bound(9, "replies of an MQTT client's verbs elsewhere", "daemon", lambda d: d["commands"]["replies_elsewhere"], 0),
    Bound(6, "pairs in doubt with one mad accuser", "swim", lambda d: d["accuser"]["pairs_in_doubt"], 0.01),
    Bound(6, "a real blackout known, beside the usual", "swim", lambda d: d["accuser"]["blackout_ratio"], 1.2, "x"),
    Bound(4, "bytes that a member sends meanwhile", "swim", lambda d: d["accuser"]["bytes_per_node_s"], 2_000, "B/s"),
    Bound(
        7,
        "a newcomer joins under 10,000 junk datagrams a second",
        "swim",
        lambda d: max(float(value) for value in d["strangers"]["join_s"].values()),
        5,
        "s",
    ),
    Bound(
        7,
        "bytes answered for a byte of a stranger",
        "swim",
        lambda d: max(float(row["bytes_out_per_byte_in"]) for row in d["strangers"]["cost"].values()),
        1,
    ),
)


def measure(room: str) -> tuple[Any, str]:
    """What a room's bench printed, or why there is nothing."""
    if not (FOLDER / f"hostile_{room}.py").is_file():
        return None, "there is no bench"
    try:
        done = subprocess.run(
            [sys.executable, "-m", f"tests.bench.hostile_{room}"],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            cwd=FOLDER.parents[1],
        )
        return (json.loads(done.stdout), "") if not done.returncode else (None, done.stderr[-200:])
    except (subprocess.TimeoutExpired, ValueError) as error:
        return None, str(error)


def rows_of(found: dict[str, Any], problems: dict[str, str]) -> list[dict[str, Any]]:
    """One row for each bound of the rooms that were asked.

    Args:
        found: What the benches printed, by room.
        problems: Why a room has nothing.
    """
    rows: list[dict[str, Any]] = []
    for bound in BOUNDS:
        if bound.room not in found and bound.room not in problems:
            continue
        row: dict[str, Any] = {"law": bound.law, "bound": bound.text, "room": bound.room, "unit": bound.unit}
        row |= {"limit": bound.limit, "is": "least" if bound.least else "most"}
        try:
            value = bound.pick(found[bound.room])
            rows.append({**row, "measured": value, "holds": bound.holds(value)})
        except (KeyError, TypeError, ValueError) as error:
            why = problems.get(bound.room) or f"{type(error).__name__}: {error}"
            rows.append({**row, "measured": None, "holds": False, "why": why})
    return rows


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", choices=ROOMS, default=ROOMS)
    found: dict[str, Any] = {}
    problems: dict[str, str] = {}
    for room in parser.parse_args().only:
        print(f"hostile_{room} …", file=sys.stderr)
        result, why = measure(room)
        if result is None:
            problems[room] = why
        else:
            found[room] = result
        for row in rows_of({room: result} if room in found else {}, {} if room in found else {room: why}):
            # Rooms take minutes each: who ends the run early has seen those that were over.
            figure = f"{row['measured']} {row['unit']} (limit {row['limit']})" if row["measured"] is not None else why
            print(f"  {'holds' if row['holds'] else 'MISSED'}: {row['bound']}: {figure}", file=sys.stderr)
    rows = rows_of(found, problems)
    missed = [row["bound"] for row in rows if not row["holds"]]
    print(json.dumps({"bounds": len(rows), "missed": missed, "rows": rows, "found": found}, indent=1))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
