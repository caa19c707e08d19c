"""`swarmd keys status|renew`: who holds which certificate and group key, what is due, and certificates signed anew."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swarmd.cli.common import add_control, add_json, print_json, print_table
from swarmd.cli.desk import chosen_swarm, everything, open_fleet, reach, tell_swarm
from swarmd.errors import DaemonError

if TYPE_CHECKING:
    from swarmd.identity.duties import Duty
    from swarmd.identity.fleet import Fleet


def add_status(verbs: Any) -> None:
    """Add `keys status`."""
    text = "who holds which root, certificate and group key, from what members tell, and what is due"
    status = verbs.add_parser("status", help=text, description=text)
    status.add_argument("fleet", type=Path, nargs="?", metavar="FLEET", help="the fleet's folder, to compare with")
    status.add_argument("--swarm", help="the swarm (default: the fleet's only one)")
    status.add_argument("--offline", action="store_true", help="ask no daemon")
    add_control(status)
    add_json(status)


def run_status(args: argparse.Namespace) -> int:
    """`keys status`."""
    from swarmd.identity.duties import duties, duties_of_members
    from swarmd.identity.fleet import Fleet

    told = None if args.offline else _told(args)
    fleet = Fleet(args.fleet) if args.fleet is not None else None
    found: list[Duty] = []
    if fleet is not None:
        swarm = chosen_swarm(fleet, args.swarm or (told["swarm"] if told else None))
        if told is not None and told["swarm"] != swarm:
            raise DaemonError(f"the daemon is a member of swarm {told['swarm']}, not of {swarm}; give --swarm")
        found = duties(fleet, swarm) + (duties_of_members(fleet, swarm, told) if told else [])
    elif told is None:
        raise DaemonError("name the fleet's folder, or the --control socket of a running member, or both")
    if args.json:
        rows = [{"what": one.what, "remedy": one.remedy} for one in found]
        print_json({**(told or {}), "due": rows})
        return 0
    _print(fleet, told, found)
    return 0


def _told(args: argparse.Namespace) -> dict[str, Any] | None:
    """What the daemon tells; None where none is named, none runs here, and the folder alone can be looked at."""
    from swarmd.api.control import ControlClient
    from swarmd.errors import ControlError

    try:
        with ControlClient(args.control) as client:
            return client.call("trust_status")
    except ControlError:
        if args.control is not None or args.fleet is None:
            raise
        return None


def _print(fleet: "Fleet | None", told: dict[str, Any] | None, found: "list[Duty]") -> None:
    if told is not None:
        print(f"swarm {told['swarm']} as {told['node']} hears it: root {told['root']}, epoch {told['epoch']}")
        if told["why_out"]:
            print(f"  {told['node']} is out: {told['why_out']}")
        if told["forked"]:
            print("  ALARM: the root role signed two different roots; the chain stands still before them")
        columns = ("name", "node", "state", "root", "certificate", "group_key")
        rows = [[row[column] for column in columns] for row in told["members"]]
        print_table(("name", "node", "state", "root", "certificate", "group key"), rows)
        if told["partial"]:
            print("neighbours only (partial view); ask other members for theirs")
        for row in told["revoked"]:
            print(f"out: node {row['node']}: {row['reason'] or 'no reason given'}")
    else:
        print("no daemon was asked; with --control SOCKET this shows what the members hold")
    for duty in found:
        print(f"DUE: {duty.what}")
        print(f"  {duty.remedy}")
    if fleet is not None and not found:
        print("nothing is due")


def run_renew(args: argparse.Namespace) -> int:
    """`keys renew`."""
    from swarmd.identity import renewal

    fleet = open_fleet(args)
    args.swarm = chosen_swarm(fleet, args.swarm)
    due = renewal.due(fleet, args.swarm)
    names = args.nodes or due
    if args.control is not None:
        reach(args.control)
    if not names:
        print(f"every certificate of swarm {args.swarm} is signed by enrol keys in force")
    signed = []
    for statement in renewal.renew(fleet, args.swarm, names):
        signed.append(statement)
        print(f"renewed: {statement.path}")
    if args.control is None:
        return tell_swarm(args, signed)
    # What an earlier run signed and did not send goes out as well.
    return tell_swarm(args, [one for one in everything(fleet, args.swarm) if one.kind in ("root", "node")])
