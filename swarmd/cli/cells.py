"""`swarmd cells [list|next|done]`: the survey area and this node's next work."""

import argparse
import sys
import time
from typing import Any

from swarmd.cli.common import add_read_flags, ask, print_json, print_table

COLUMNS = ("id", "state", "holder", "east_m", "north_m")


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser("cells", help="the survey area: list cells, ask for the next one")
    parser.add_argument("what", nargs="?", choices=("list", "next", "done"), default="list")
    parser.add_argument("cell", nargs="?", default="", help="the finished cell, for `done`")
    parser.add_argument("--east-m", type=float, default=0.0, help="where this node is, metres east of the origin")
    parser.add_argument("--north-m", type=float, default=0.0, help="metres north of the origin")
    parser.add_argument("--battery", type=float, default=1.0, help="0 to 1")
    parser.add_argument("--wait-s", type=float, default=5.0, help="how long `next` waits for a settled claim")
    add_read_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Ask and print; `next` exits 1 when no cell is settled in time."""
    if args.what == "done":
        answer = ask(args, "cell_done", cell=args.cell)
        print_json(answer) if args.json else print(f"{answer['cell']} is done")
        return 0
    answer = ask(args, "cells") if args.what == "list" else _next(args)
    if args.json:
        print_json(answer)
    else:
        print_table(COLUMNS, ([cell[column] for column in COLUMNS] for cell in answer["cells"]))
        if not answer["cells"]:
            print(_none(args), file=sys.stderr)
    return 0 if args.what == "list" or answer["cells"] else 1


def _none(args: argparse.Namespace) -> str:
    """Why there is nothing to show."""
    if args.what == "list" or not ask(args, "cells")["cells"]:
        return "no survey area is defined; set claims.cells, the same on every node"
    return f"no cell has become this node's within {args.wait_s:g} s; `swarmd cells` shows who has which"


def _next(args: argparse.Namespace) -> dict[str, Any]:
    deadline = time.monotonic() + args.wait_s
    while True:
        answer = ask(args, "cell_next", east_m=args.east_m, north_m=args.north_m, battery=args.battery)
        if answer["cells"] or time.monotonic() > deadline:
            return answer
        time.sleep(0.2)
