"""`swarmd forget NAME`: take a failed member off the lists of the whole swarm, until it returns."""

import argparse

from swarmd.cli.common import add_read_flags, ask, print_json


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser(
        "forget",
        help="dismiss a failed member until it returns",
        description="Every node takes the failed member off its lists. Its facts stay, and it is listed again as soon "
        "as it returns; to shut a member out for good, revoke it (`swarmd keys revoke`).",
    )
    parser.add_argument("name", help="the member's name or id")
    add_read_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Ask and say what was done."""
    answer = ask(args, "forget", name=args.name)
    if args.json:
        print_json(answer)
    else:
        print(f"{answer['name']} is off the lists of the swarm until it returns")
    return 0
