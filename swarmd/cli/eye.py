"""`swarmd eye start|stop`: this node's eye."""

import argparse

from swarmd.cli.common import add_read_flags, ask, print_json


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser("eye", help="start or stop this node's eye")
    parser.add_argument("what", choices=("start", "stop"))
    add_read_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Ask and print."""
    answer = ask(args, f"eye_{args.what}")
    print_json(answer) if args.json else print(f"the eye is told to {args.what}; it was {answer['eye']}")
    return 0
