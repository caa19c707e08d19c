"""`swarmd events`: what happened yesterday, at this node and, as far as others told, everywhere."""

import argparse
import json
import re
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from swarmd.cli.common import add_read_flags, plain, print_json, print_table
from swarmd.errors import DaemonError
from swarmd.events.kinds import KINDS
from swarmd.events.store import FILE_NAME, FOUND_MAX, Query, read_file

DEFAULT_SINCE = "1d"
_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_COLUMNS = ("time", "origin", "level", "kind", "subject", "reason", "evidence")


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser(
        "events",
        help="what happened: joins, failures, halts, alerts, commands",
        epilog=f"A time is an age (90s, 15m, 12h, 2d) or ISO 8601 (2026-05-01T06:00, UTC). Kinds: {', '.join(KINDS)}.",
    )
    parser.add_argument("--since", metavar="TIME", default=DEFAULT_SINCE, help="from then on (default: the last day)")
    parser.add_argument("--until", metavar="TIME", default="", help="up to then")
    parser.add_argument("--kind", action="append", default=[], metavar="KIND", help="only this kind; may be repeated")
    parser.add_argument("--origin", default="", metavar="NODE", help="only what this node said: its name or id")
    parser.add_argument("--limit", type=int, default=1_000, metavar="N", help="the newest N at most")
    parser.add_argument(
        "--file",
        type=Path,
        metavar="FILE",
        help=f"read this {FILE_NAME} of a node's state folder, where no daemon runs",
    )
    parser.add_argument("-f", "--follow", action="store_true", help="go on and print what happens")
    add_read_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Ask, print, and follow when asked to."""
    now_ms = time.time_ns() // 1_000_000
    if not 0 < args.limit <= FOUND_MAX:
        raise DaemonError(f"--limit lies between 1 and {FOUND_MAX}")
    query = Query(
        since_ms=moment_ms(args.since, now_ms),
        until_ms=moment_ms(args.until, now_ms) if args.until else 10**15,
        kinds=tuple(args.kind),
        origin=args.origin,
        limit=args.limit,
    )
    return _ask(args, query) if args.file is None else _read(args, query)


def _read(args: argparse.Namespace, query: Query) -> int:
    import sqlite3

    if args.follow:
        raise DaemonError("a file is read once; --follow asks a running daemon")
    try:
        rows = [record.row() for record in read_file(args.file, query)]
    except sqlite3.Error as error:
        raise DaemonError(f"{args.file}: {error}; name the file {FILE_NAME} in a node's state folder") from error
    _print(args, rows)
    return 0


def _print(args: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    if not args.json:
        print_table(_COLUMNS, [[row[column] for column in _COLUMNS] for row in rows])
    elif args.follow:
        for row in rows:
            print(json.dumps(row), flush=True)
    else:
        print_json({"events": rows})


def _ask(args: argparse.Namespace, query: Query) -> int:
    from swarmd.api.control import ControlClient

    wanted = {"since_ms": query.since_ms, "until_ms": query.until_ms, "kinds": list(query.kinds)}
    with ControlClient(args.control) as client, ControlClient(args.control) as follower:
        # Who follows listens before it asks, so that nothing falls between the two.
        news = follower.watch("follow_events") if args.follow else iter(())
        rows = client.call("events", **wanted, origin=query.origin, limit=query.limit)["events"]
        _print(args, rows)
        if args.follow:
            _follow(args, news, {row["id"] for row in rows})
    return 0


def _follow(args: argparse.Namespace, news: Iterable[dict[str, Any]], shown: set[str]) -> None:
    for row in news:
        is_wanted = (not args.kind or row["kind"] in args.kind) and (
            not args.origin or args.origin == row["origin"] or row["origin_id"].startswith(args.origin)
        )
        if is_wanted and row["id"] not in shown:
            line = json.dumps(row) if args.json else "  ".join(plain(row[column]) for column in _COLUMNS).rstrip()
            print(line, flush=True)


def moment_ms(text: str, now_ms: int) -> int:
    """A moment that a person wrote, UTC in milliseconds since 1970.

    Args:
        text: An age such as `15m`, or ISO 8601; without a zone it is UTC.
        now_ms: The present.

    Raises:
        DaemonError: It is neither.

    >>> moment_ms("2m", 200_000)
    80000
    >>> moment_ms("1970-01-01T00:01Z", 0)
    60000
    """
    age = re.fullmatch(r"(\d{1,9})([smhdw])", text.strip())
    if age is not None:
        return max(0, now_ms - int(age[1]) * _UNITS_MS[age[2]])
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise DaemonError(f"{text!r} is no time: write an age (15m, 12h, 2d) or ISO 8601 (2026-05-01T06:00)") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
