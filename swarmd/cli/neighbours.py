"""`swarmd neighbours [list|agree]`: swarms of other owners in one place with this one, and agreements with them."""

import argparse
import time
from pathlib import Path
from typing import Any

from swarmd.cli.common import add_read_flags, ask, print_json, print_table

_COLUMNS = ("name", "swarm", "state", "heard", "positions", "claims", "until")


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser(
        "neighbours",
        help="swarms of other owners beside this one",
        description="Lists what neighbouring swarms share, or hands over an agreement that an operator has signed "
        "(swarmd fleet neighbour). See docs/federation.md.",
        allow_abbrev=False,
    )
    parser.add_argument("what", nargs="?", choices=("list", "agree"), default="list")
    parser.add_argument("file", nargs="?", type=Path, help="the signed agreement, for `agree`")
    parser.add_argument("--geojson", action="store_true", help="members and claims as a GeoJSON FeatureCollection")
    add_read_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Ask and print."""
    if args.what == "agree":
        return _agree(args)
    answer = ask(args, "neighbours", form="geojson" if args.geojson else "rows")
    if args.json or args.geojson:
        print_json(answer)
    else:
        print_table(_COLUMNS, [_row(one, time.time() * 1000) for one in answer["neighbours"]])
    return 0


def _row(one: dict[str, Any], now_ms: float) -> tuple[object, ...]:
    heard = "never" if one["heard_ms"] is None else f"{max(0.0, now_ms - one['heard_ms']) / 1000:.0f} s ago"
    left_h = (one["until_ms"] - now_ms) / 3_600_000
    until = f"{left_h:.0f} h" if left_h > 0 else "over"
    return (one["name"], one["swarm"], one["state"], heard, len(one["positions"]), len(one["claims"]), until)


def _agree(args: argparse.Namespace) -> int:
    from swarmd.errors import DaemonError

    if args.file is None:
        raise DaemonError("which agreement? swarmd neighbours agree FILE, out of swarmd fleet neighbour")
    try:
        statement = args.file.read_bytes()
    except OSError as error:
        raise DaemonError(f"{args.file}: {error.strerror}; sign one by swarmd fleet neighbour") from error
    answer = ask(args, "neighbour_agree", statement=statement.hex())
    if args.json:
        print_json(answer)
    else:
        print(f"{answer['name']}: revision {answer['revision']} is taken; `swarmd neighbours` shows what comes of it")
    return 0
