"""`swarmd objects`: the deduplicated picture of the swarm."""

import argparse

from swarmd.cli.common import add_read_flags, add_view_flags, print_view


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser("objects", help="the deduplicated picture of the swarm")
    add_read_flags(parser)
    add_view_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Ask and print."""
    return print_view(
        args,
        "objects",
        (
            "id",
            "label",
            "score",
            "east_m",
            "north_m",
            "asset",
            "observers",
            "confirmed",
            "review",
            "reports",
            "reviews",
        ),
    )
