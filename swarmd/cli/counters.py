"""`swarmd counters`: counters summed over the swarm, and this daemon's own."""

import argparse

from swarmd.cli.common import add_read_flags, ask, print_json, print_table


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    add_read_flags(subparsers.add_parser("counters", help="counters summed over the swarm"))


def run(args: argparse.Namespace) -> int:
    """Ask and print."""
    answer = ask(args, "counters")
    if args.json:
        print_json(answer)
        return 0
    nodes = sorted({node for values in answer["by_node"].values() for node in values})
    rows = (
        [name, total, *(answer["by_node"][name].get(node, 0) for node in nodes)]
        for name, total in answer["sums"].items()
    )
    print_table(("counter", "swarm", *nodes), rows)
    print()
    print_table(("this daemon", "count"), sorted(answer["own"].items()))
    return 0
