"""`swarmd acknowledge CODE [SUBJECT]`: say that a person has seen an alert."""

import argparse

from swarmd.cli.common import add_read_flags, ask, print_json


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser(
        "acknowledge",
        help="say that a person has seen an alert",
        description="The alert stands all the same, and lists say who has seen it and when. The first word counts. "
        "When what it stands for is solved and comes back, nobody has seen it.",
    )
    parser.add_argument("code", help="the alert's code (`swarmd status` lists them)")
    parser.add_argument("subject", nargs="?", default="", help="what it is about, where there may be several of a code")
    parser.add_argument("--note", default="", metavar="TEXT", help="what is done about it")
    add_read_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Ask and say what was done."""
    answer = ask(args, "acknowledge", code=args.code, subject=args.subject, note=args.note)
    if args.json:
        print_json(answer)
    elif answer["was_acknowledged_by"]:
        print(f"{args.code} was acknowledged by {answer['was_acknowledged_by']}, which stays")
    else:
        print(f"{args.code} is acknowledged until what it stands for is solved")
    return 0
