"""`swarmd keys`: the fleet's root and roles, and who is in: enrol, rotate, revoke. Works on files, needs no daemon.

What is signed here reaches a running swarm through any one member (`--control`, or `swarmd keys push`); members pass it
on to each other, also to those that come back later.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from swarmd.cli.common import add_control, add_json, print_json, print_table

if TYPE_CHECKING:
    from swarmd.identity.fleet import Fleet, Statement


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb with its own verbs."""
    parser = subparsers.add_parser("keys", help="the fleet's root and roles; enrol, rotate, revoke")
    verbs = parser.add_subparsers(dest="keys_verb", metavar="VERB", required=True)
    root = _verb(verbs, "root", "make a fleet: all role keys and the first root")
    root.add_argument("--name", required=True, help="the fleet's name")
    root.add_argument(
        "--role",
        action="append",
        default=[],
        metavar="ROLE=NEED/KEYS",
        help="signatures a role needs, and keys to make (default root=2/3 enrol=1/1 revoke=1/2 release=2/3 floor=2/3 "
        "heartbeat=1/1)",
    )
    role = _verb(verbs, "role", "new keys for a role, and a new root that names them instead of the old ones")
    role.add_argument("role", help="root, enrol, revoke, release, floor or heartbeat")
    role.add_argument("--need", type=int, default=1, metavar="K", help="signatures the role needs (default 1)")
    role.add_argument("--keys", type=int, default=1, metavar="N", help="keys to make (default 1)")
    role.add_argument("--stolen", action="store_true", help="void what the old release and floor keys have signed")
    _add_swarm_push(role, swarm_help="swarm of the member that is told (default: dev)")
    enrol = _verb(verbs, "enrol", "make a node's identity")
    enrol.add_argument("node", help="the node's name, unique in the swarm")
    enrol.add_argument("--swarm", required=True, help="the swarm it joins")
    enrol.add_argument("--out", required=True, type=Path, metavar="DIR", help="where node.identity is written, 0600")
    enrol.add_argument("--role", action="append", default=[], help="what the certificate allows besides membership")
    rotate = _verb(verbs, "rotate", "a new group key for a swarm")
    _add_swarm_push(rotate)
    revoke = _verb(verbs, "revoke", "shut nodes out for good, and change the group key that they know")
    revoke.add_argument("nodes", nargs="+", metavar="NODE", help="name, node id, or its first eight hex digits")
    revoke.add_argument("--reason", required=True, help="what people will read")
    revoke.add_argument("--keep-group-key", action="store_true", help="change no group key")
    _add_swarm_push(revoke)
    show = _verb(verbs, "show", "roles, swarms, nodes, revocations")
    show.add_argument("--swarm", help="only this one")
    add_json(show)
    push = _verb(verbs, "push", "hand everything that was signed to a running member")
    _add_swarm_push(push)


def run(args: argparse.Namespace) -> int:
    """Run one verb of `keys`."""
    verbs: dict[str, Callable[[argparse.Namespace], int]] = {
        "root": _root,
        "role": _role,
        "enrol": _enrol,
        "rotate": _rotate,
        "revoke": _revoke,
        "show": _show,
        "push": _push,
    }
    return verbs[args.keys_verb](args)


def _verb(
    verbs: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, text: str
) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=text, description=text)
    parser.add_argument("fleet", type=Path, metavar="FLEET", help="the fleet's folder")
    if name not in ("root", "show", "push"):
        parser.add_argument(
            "--key", action="append", default=[], type=Path, metavar="FILE", help="a role key that lies elsewhere"
        )
    return parser


def _add_swarm_push(parser: argparse.ArgumentParser, swarm_help: str = "the swarm") -> None:
    parser.add_argument("--swarm", default="dev", help=swarm_help)
    add_control(parser)


def _root(args: argparse.Namespace) -> int:
    from swarmd.identity.fleet import DEFAULT_ROLES, create_fleet

    fleet = create_fleet(args.fleet, args.name, {**DEFAULT_ROLES, **dict(map(_parse_role, args.role))})
    for entry in fleet.root().roles:
        print(f"{entry.name}: {entry.threshold} of {len(entry.key_ids)} keys must sign")
    print(f"keys lie in {args.fleet / 'keys'}: move each to its keeper, and give it back with --key when it is needed")
    return 0


def _parse_role(text: str) -> tuple[str, tuple[int, int]]:
    from swarmd.identity.fleet import FleetError

    name, _, numbers = text.partition("=")
    need, _, count = numbers.partition("/")
    if not (need.isdigit() and count.isdigit()):
        raise FleetError(f"--role {text!r}; write it as ROLE=NEED/KEYS, such as release=2/3")
    return name, (int(need), int(count))


def _role(args: argparse.Namespace) -> int:
    fleet = _open(args)
    signed = fleet.change_role(args.role, args.need, args.keys, stolen=args.stolen)
    print(f"root {fleet.root().version} written to {signed.path}; new keys lie in {args.fleet / 'keys'}")
    if args.role == "enrol":
        print("every certificate of the old enrol keys is void with this root: enrol each node again, then push")
    return _tell(args, [signed])


def _enrol(args: argparse.Namespace) -> int:
    from swarmd.identity.files import IDENTITY_FILE, write_secret_file
    from swarmd.identity.fleet import FleetError

    path = args.out / IDENTITY_FILE
    if path.exists():
        raise FleetError(f"{path} exists already; remove it if the node is to get a new key")
    args.out.mkdir(mode=0o700, parents=True, exist_ok=True)
    identity = _open(args).enrol(args.node, args.swarm, args.role)
    write_secret_file(path, identity.to_bytes())
    print(f"{args.node} is node {identity.node.hex()} of swarm {args.swarm}; its identity lies in {path}")
    print("copy it to the node over a trusted channel, then start it with `swarmd run --identity DIR`")
    return 0


def _rotate(args: argparse.Namespace) -> int:
    signed = _open(args).rotate(args.swarm)
    print(f"new group key of swarm {args.swarm} written to {signed.path}")
    return _tell(args, [signed])


def _revoke(args: argparse.Namespace) -> int:
    fleet = _open(args)
    nodes = [node for text in args.nodes for node in fleet.find_node(args.swarm, text)]
    signed = [fleet.revoke(args.swarm, nodes, args.reason)]
    for node in nodes:
        print(f"node {node.hex()} of swarm {args.swarm} is out: {signed[0].path}")
    if not args.keep_group_key:
        signed.append(fleet.rotate(args.swarm))
        print(f"new group key of swarm {args.swarm} written to {signed[1].path}")
    return _tell(args, signed)


def _show(args: argparse.Namespace) -> int:
    fleet = _open(args)
    root = fleet.root()
    swarms = [args.swarm] if args.swarm else fleet.swarms()
    nodes = [
        {
            "swarm": swarm,
            "name": certificate.name,
            "node": certificate.node.hex(),
            "roles": list(certificate.roles),
            "revoked": certificate.node in fleet.trust_of(swarm).revoked,
        }
        for swarm in swarms
        for certificate in fleet.nodes(swarm)
    ]
    roles = [{"role": entry.name, "need": entry.threshold, "keys": len(entry.key_ids)} for entry in root.roles]
    if args.json:
        print_json(
            {"fleet": root.swarm_fleet, "root": root.version, "epoch": root.epoch, "roles": roles, "nodes": nodes}
        )
        return 0
    print(f"fleet {root.swarm_fleet}, root {root.version}, epoch {root.epoch}")
    print_table(("role", "need", "keys"), [(role["role"], role["need"], role["keys"]) for role in roles])
    if nodes:
        print()
        columns = ("swarm", "name", "node", "roles", "revoked")
        print_table(columns, [[_plain(row[column]) for column in columns] for row in nodes])
    return 0


def _plain(value: object) -> object:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " ".join(map(str, value)) if isinstance(value, list) else value


def _push(args: argparse.Namespace) -> int:
    from swarmd.identity.fleet import Statement

    fleet = _open(args)
    found = [Statement(kind, data, args.fleet) for kind, data in fleet.statements(args.swarm)]
    return _send(args, found)


def _open(args: argparse.Namespace) -> "Fleet":
    from swarmd.identity.files import dev_fleet_warning
    from swarmd.identity.fleet import Fleet

    fleet = Fleet(args.fleet, getattr(args, "key", ()))
    if fleet.is_dev:
        import sys

        print(f"swarmd keys: {dev_fleet_warning(args.fleet)}", file=sys.stderr)
    return fleet


def _tell(args: argparse.Namespace, signed: "list[Statement]") -> int:
    """Hand statements to the daemon that `--control` names; without it, say how."""
    if args.control is not None:
        return _send(args, signed)
    print(f"tell a running member: swarmd keys push {args.fleet} --swarm {args.swarm} --control SOCKET")
    return 0


def _send(args: argparse.Namespace, signed: "list[Statement]") -> int:
    from swarmd.api.control import ControlClient

    with ControlClient(args.control) as client:
        for statement in signed:
            answer = client.call("trust", kind=statement.kind, statement=statement.data.hex())
            print(f"{statement.kind}: {'taken' if answer.get('new') else 'known already'}")
    return 0
