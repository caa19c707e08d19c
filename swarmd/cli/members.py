"""`swarmd members [-w]`: who is in the swarm, as this node sees it."""

import argparse
import json
from collections.abc import Mapping
from typing import Any

from swarmd.cli.common import add_read_flags, ask, print_json, print_table


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser("members", help="who is in the swarm, as this node sees it")
    parser.add_argument("--geojson", action="store_true", help="where the members are, as a GeoJSON FeatureCollection")
    parser.add_argument("-w", "--watch", action="store_true", help="go on and print every change")
    add_read_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Ask and print, then follow the changes when asked to."""
    answer = ask(args, "members", form="geojson" if args.geojson else "rows")
    if args.json or args.geojson:
        print_json(answer)
    else:
        columns = ("name", "state", "address", "rtt ms", "loss", "quality", "inc", "version", "can")
        keys = ("name", "state", "address", "rtt_ms", "loss", "quality", "incarnation", "version", "capability")
        mesh = bool(answer.get("mesh"))
        rows = ({**member, "state": state_of(member), "quality": link_of(member, mesh)} for member in answer["members"])
        print_table(columns, ([row[key] for key in keys] for row in rows))
        if answer["partial"]:
            print(f"partial view: these are this node's neighbours; about {answer['estimated']} members in all")
        for one in answer["dismissed"]:
            print(f"failed and dismissed until it returns: {one['name']}, by {one['by']}")
        for link in sorted({link for member in answer["members"] for link in member["links"]}):
            print(f"broken: {link}")
    if args.watch:
        _follow(args)
    return 0


def state_of(member: Mapping[str, Any]) -> str:
    """A member's state, in a mesh with its age where nobody hears it.

    >>> state_of({"state": "unreachable", "unheard_s": 12.3}), state_of({"state": "alive", "unheard_s": None})
    ('unreachable, not heard since 12 s', 'alive')
    """
    unheard_s = member.get("unheard_s")
    return f"{member['state']}" + ("" if unheard_s is None else f", not heard since {unheard_s:.0f} s")


def link_of(member: Mapping[str, Any], mesh: bool) -> str:
    """How well a member is heard; in a mesh, of one that is reached through others only, that it is.

    >>> link_of({"state": "alive", "quality": "none"}, True), link_of({"state": "failed", "quality": "none"}, True)
    ('relayed', 'none')
    """
    is_relayed = mesh and member["state"] == "alive" and member["quality"] == "none"
    return "relayed" if is_relayed else f"{member['quality']}"


def _follow(args: argparse.Namespace) -> None:
    from swarmd.api.control import ControlClient

    with ControlClient(args.control) as client:
        for notice in client.watch():
            if notice["event"] in ("join", "suspect", "degraded", "failed", "leave", "away", "unreachable"):
                line = (
                    json.dumps(notice) if args.json else f"{notice['event']:9} {notice['subject']}  {notice['reason']}"
                )
                print(line, flush=True)
