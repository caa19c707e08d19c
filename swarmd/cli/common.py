"""What the read verbs share: the control socket, JSON, tables."""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from swarmd.api.remote import Remote


def add_read_flags(parser: argparse.ArgumentParser) -> None:
    """Add `--control` and `--json`."""
    add_control(parser)
    add_json(parser)


def add_control(parser: argparse.ArgumentParser) -> None:
    """Add `--control SOCKET`."""
    parser.add_argument(
        "--control",
        type=_place,
        metavar="SOCKET",
        help="the daemon's socket or its node's name, or tls://HOST[:PORT] (default: the only one running here)",
    )


def _place(text: str) -> "Path | Remote":
    from swarmd.api.remote import place
    from swarmd.errors import ControlError

    try:
        return place(text)
    except ControlError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def ask(args: argparse.Namespace, verb: str, **arguments: object) -> dict[str, Any]:
    """Ask the daemon that `args.control` names."""
    from swarmd.api.control import ControlClient

    with ControlClient(args.control) as client:
        return client.call(verb, **arguments)


def print_json(value: object) -> None:
    """One JSON document in one line."""
    sys.stdout.write(json.dumps(value, separators=(",", ":")) + "\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns as wide as their widest cell."""
    cells = [list(columns), *([plain(value) for value in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    for row in cells:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def plain(value: object) -> str:
    """A value as one cell of text."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
    # Names come from other nodes: nothing of them may steer a terminal.
    return "".join(c if c.isprintable() else "?" for c in str(value))


def add_view_flags(parser: argparse.ArgumentParser) -> None:
    """Add `--geojson`, `--csv` and `-w`."""
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--geojson", action="store_true", help="a GeoJSON FeatureCollection, as QGIS opens it")
    form.add_argument("--csv", action="store_true", help="comma-separated values with a header")
    parser.add_argument("-w", "--watch", action="store_true", help="print again whenever an object changes")


def print_view(args: argparse.Namespace, verb: str, columns: Sequence[str]) -> int:
    """Print a view once, or again whenever it changes (at most once a second)."""
    _print_view_once(args, verb, columns)
    if not args.watch:
        return 0
    import time

    from swarmd.api.control import ControlClient

    with ControlClient(args.control) as client:
        last = time.monotonic()
        for notice in client.watch():
            if notice["event"] == "object" and time.monotonic() - last >= 1.0:
                last = time.monotonic()
                print(flush=True)
                _print_view_once(args, verb, columns)
                sys.stdout.flush()
    return 0


def _print_view_once(args: argparse.Namespace, verb: str, columns: Sequence[str]) -> None:
    answer = ask(args, verb, form="geojson" if args.geojson else "rows")
    if args.json or args.geojson:
        print_json(answer)
    elif args.csv:
        from swarmd.api.views import csv_text

        sys.stdout.write(csv_text(answer[verb]))
    else:
        print_table(columns, ([_joined(row[column]) for column in columns] for row in answer[verb]))


def _joined(value: object) -> object:
    from swarmd.api.views import review_words

    if not isinstance(value, list):
        return value
    return (
        " ".join(map(str, value))
        if not any(isinstance(one, dict) for one in value)
        else "; ".join(map(review_words, value))
    )
