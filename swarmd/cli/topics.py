"""`swarmd topics`: what the daemon publishes and serves, and where."""

import argparse

from swarmd.cli.common import add_read_flags, ask, print_json, print_table


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    add_read_flags(subparsers.add_parser("topics", help="what the daemon publishes and serves, and where"))


def run(args: argparse.Namespace) -> int:
    """Ask and print."""
    answer = ask(args, "topics")
    if args.json:
        print_json(answer)
    else:
        print_table(("kind", "topic", "what"), ([row["kind"], row["topic"], row["what"]] for row in answer["topics"]))
    return 0
