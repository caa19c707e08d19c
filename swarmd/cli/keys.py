"""`swarmd keys`: the fleet's root and roles, and who is in: enrol, rotate, revoke. Works on files, needs no daemon.

What is signed here reaches a running swarm through any one member (`--control`, or `swarmd keys push`); members pass it
on to each other, also to those that come back later.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from swarmd.cli import node_keys, officers
from swarmd.cli.common import add_control, add_json, print_json, print_table
from swarmd.errors import DaemonError

if TYPE_CHECKING:
    from swarmd.identity.fleet import Fleet, Statement


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb with its own verbs."""
    parser = subparsers.add_parser("keys", help="the fleet's root and roles; enrol, rotate, revoke")
    verbs = parser.add_subparsers(dest="keys_verb", metavar="VERB", required=True)
    officers.add_verbs(verbs)
    node_keys.add_verbs(verbs)
    root = _verb(verbs, "root", "begin a fleet, of officers' public halves or with all keys in one folder")
    root.add_argument("--name", required=True, help="the fleet's name")
    root.add_argument("--root", nargs="+", metavar=("NEED", "PUB"), help="signatures that a root takes, and whose keys")
    root.add_argument(
        "--role",
        nargs="+",
        action="append",
        default=[],
        metavar=("ROLE", "NEED PUB"),
        help="who holds a role: ROLE NEED PUB PUB... Without --root all keys are made here, and ROLE=NEED/KEYS changes "
        "their number (default root=2/3 enrol=1/1 revoke=1/2 release=2/3 floor=2/3 heartbeat=1/1)",
    )
    root.add_argument("-o", "--out", type=Path, metavar="FILE", help="for officers to sign (FLEET/root-1.prepared)")
    role = _verb(verbs, "role", "new keys in the folder for a role, and a root that names them instead of the old ones")
    role.add_argument("role", help="root, enrol, revoke, release, floor or heartbeat")
    role.add_argument("--need", type=int, required=True, metavar="K", help="signatures the role needs")
    role.add_argument("--keys", type=int, required=True, metavar="N", help="keys to make")
    role.add_argument(
        "--keep", action="append", default=[], type=Path, metavar="FILE", help="a removal that stays right"
    )
    role.add_argument("--stolen", action="store_true", help="void what was signed, but for what FLEET holds and --keep")
    _add_swarm_push(role, is_required=False)
    enrol = _verb(verbs, "enrol", "make a node's identity")
    enrol.add_argument("node", help="the node's name, unique in the swarm")
    enrol.add_argument("--swarm", required=True, help="the swarm it joins")
    enrol.add_argument("--out", required=True, type=Path, metavar="DIR", help="where node.identity is written, 0600")
    enrol.add_argument(
        "--public", type=Path, metavar="PUB", help="the key was made on the device: write NODE.enrolment for it instead"
    )
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
        "officer": officers.run_officer,
        "prepare": officers.run_prepare,
        "sign": officers.run_sign,
        "inspect": officers.run_inspect,
        "submit": officers.run_submit,
        "node": node_keys.run_node,
        "enrolment": node_keys.run_enrolment,
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
            "--key",
            action="append",
            default=[],
            type=Path,
            metavar="FILE",
            help="an officer's key, a role key",
        )
        officers.add_passphrase(parser)
    return parser


def _add_swarm_push(parser: argparse.ArgumentParser, *, is_required: bool = True) -> None:
    parser.add_argument("--swarm", required=is_required, help="the swarm")
    add_control(parser)


def _root(args: argparse.Namespace) -> int:
    from swarmd.identity.fleet import DEFAULT_ROLES, create_fleet
    from swarmd.identity.role_keys import FleetError

    if args.root is not None:
        return _compose(args)
    if any(len(words) > 1 for words in args.role):
        raise FleetError("say who holds the role root as well: --root NEED PUB PUB...")
    fleet = create_fleet(args.fleet, args.name, {**DEFAULT_ROLES, **dict(_parse_role(text) for (text,) in args.role)})
    for entry in fleet.root().roles:
        print(f"{entry.name}: {entry.threshold} of {len(entry.key_ids)} keys must sign")
    keys = args.fleet / "keys"
    print(f"ALL KEYS LIE IN ONE FOLDER, unsealed: whoever reads {keys} owns the fleet. Good for a first try.")
    print("for a fleet that flies each officer makes an own key: swarmd keys officer new FILE (docs/keys.md)")
    return 0


def _compose(args: argparse.Namespace) -> int:
    from swarmd.identity.desk import prepare_first_root
    from swarmd.identity.prepared import write_new
    from swarmd.identity.role_keys import FleetError

    if any((args.fleet / "roots").glob("*.root")):
        raise FleetError(f"{args.fleet} holds a fleet already; `swarmd keys prepare root` changes who holds its roles")
    prepared = prepare_first_root(args.name, officers.holders(args))
    path = args.out or args.fleet / "root-1.prepared"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_new(path, prepared)
    officers.tell(prepared, None)
    print(f"each signs with: swarmd keys sign {path} --key KEY; then: swarmd keys submit {path} --fleet {args.fleet}")
    return 0


def _parse_role(text: str) -> tuple[str, tuple[int, int]]:
    from swarmd.identity.desk import ROLE_NAMES
    from swarmd.identity.names import check_known
    from swarmd.identity.role_keys import FleetError

    name, _, numbers = text.partition("=")
    need, _, count = numbers.partition("/")
    if not (need.isdigit() and count.isdigit()):
        raise FleetError(f"--role {text!r}; write it as ROLE=NEED/KEYS, such as release=2/3")
    return check_known(name, ROLE_NAMES, "role"), (int(need), int(count))


def _role(args: argparse.Namespace) -> int:
    from swarmd.identity.desk import ROLE_NAMES
    from swarmd.identity.names import check_known

    fleet = _open(args)
    role = check_known(args.role, ROLE_NAMES, "role")
    before = next((entry for entry in fleet.root().roles if entry.name == role), None)
    _reach(args)
    signed = fleet.change_role(role, args.need, args.keys, stolen=args.stolen, keep=args.keep)
    print(f"root {fleet.root().version} written to {signed.path}; new keys lie in {args.fleet / 'keys'}")
    if before is not None and args.need < before.threshold:
        print(f"WARNING: role {role} takes {args.need} signatures instead of {before.threshold}")
    if role == "enrol":
        print("certificates and group keys of this folder stay right by name; others of the old keys are void")
    return _tell(args, [signed])


def _enrol(args: argparse.Namespace) -> int:
    from swarmd.identity.files import IDENTITY_FILE, write_secret_file
    from swarmd.identity.names import check_name
    from swarmd.identity.role_keys import FleetError

    check_name(args.node, "a node")
    check_name(args.swarm, "a swarm")
    if args.public is not None:
        return node_keys.enrol_public(args)
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
    fleet = _open(args)
    _check_swarm(fleet, args.swarm)
    _reach(args)
    signed = fleet.rotate(args.swarm)
    print(f"new group key of swarm {args.swarm} written to {signed.path}")
    return _tell(args, [signed])


def _revoke(args: argparse.Namespace) -> int:
    fleet = _open(args)
    _check_swarm(fleet, args.swarm)
    nodes = [node for text in args.nodes for node in fleet.find_node(args.swarm, text)]
    out_already = fleet.trust_of(args.swarm).revoked
    fresh = [node for node in nodes if node not in out_already]
    if fresh:
        fleet.seeds("revoke")  # Whoever lacks them is told before anything changes.
    _reach(args)
    if not fresh:
        print(f"every one of these nodes of swarm {args.swarm} is out already")
        return _push(args) if args.control is not None else 0
    signed = [fleet.revoke(args.swarm, fresh, args.reason)]
    for node in fresh:
        print(f"node {node.hex()} of swarm {args.swarm} is out: {signed[0].path}")
    due = ""
    if not args.keep_group_key:
        try:
            signed.append(fleet.rotate(args.swarm))
            print(f"new group key of swarm {args.swarm} written to {signed[1].path}")
        except DaemonError as error:
            due = str(error)
    status = _tell(args, signed)
    if due:
        print(
            f"DUE: a new group key, since the revoked node knows the old one; who holds the role enrol does it ({due})"
        )
        print(f"  swarmd keys rotate {args.fleet} --swarm {args.swarm} --key FILE --control SOCKET")
    return status


def _show(args: argparse.Namespace) -> int:
    from swarmd.identity.desk import node_rows
    from swarmd.identity.desk import officers as known_officers

    fleet = _open(args)
    root = fleet.root()
    swarms = [args.swarm] if args.swarm else fleet.swarms()
    names = known_officers(fleet)
    nodes = [row for swarm in swarms for row in node_rows(fleet, swarm)]
    roles = [
        {
            "role": entry.name,
            "need": entry.threshold,
            "keys": len(entry.key_ids),
            "officers": sorted(names.get(key, key.hex()[:8]) for key in entry.key_ids),
        }
        for entry in root.roles
    ]
    if args.json:
        print_json({"fleet": root.fleet, "root": root.version, "epoch": root.epoch, "roles": roles, "nodes": nodes})
        return 0
    print(f"fleet {root.fleet}, root {root.version}, epoch {root.epoch}")
    columns: Sequence[str] = ("role", "need", "keys", "officers")
    print_table(columns, [[_plain(role[column]) for column in columns] for role in roles])
    if nodes:
        print()
        columns = ("swarm", "name", "node", "roles", "state", "reason")
        print_table(columns, [[_plain(row[column]) for column in columns] for row in nodes])
    return 0


def _plain(value: object) -> object:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " ".join(map(str, value)) if isinstance(value, list) else value


def _push(args: argparse.Namespace) -> int:
    from swarmd.identity.fleet import Statement

    fleet = _open(args)
    _check_swarm(fleet, args.swarm)
    return _send(args, [Statement(kind, data, args.fleet) for kind, data in fleet.statements(args.swarm)])


def _check_swarm(fleet: "Fleet", swarm: str) -> None:
    """Refuse a swarm that nothing was ever signed for; a development fleet knows every name."""
    if not fleet.is_dev:
        officers.known_swarm(fleet, swarm)


def _reach(args: argparse.Namespace) -> None:
    if args.control is not None:
        officers.reach(args.control)


def _open(args: argparse.Namespace) -> "Fleet":
    from swarmd.identity.files import dev_fleet_warning
    from swarmd.identity.fleet import Fleet
    from swarmd.identity.role_keys import RoleKey
    from swarmd.identity.signers import read_seed

    given = getattr(args, "key", ())
    source = officers.passphrases(args) if given else None
    fleet = Fleet(args.fleet, [RoleKey("", read_seed(str(path), source)) for path in given] if source else ())
    if fleet.is_dev:
        import sys

        print(f"swarmd keys: {dev_fleet_warning(args.fleet)}", file=sys.stderr)
    return fleet


def _tell(args: argparse.Namespace, signed: "list[Statement]") -> int:
    """Hand statements to the daemon that `--control` names; without it, say how."""
    if args.control is not None:
        return _send(args, signed)
    swarm = args.swarm or "SWARM"
    print(f"tell a running member: swarmd keys push {args.fleet} --swarm {swarm} --control SOCKET")
    return 0


def _send(args: argparse.Namespace, signed: "list[Statement]") -> int:
    for statement in signed:
        officers.send(args.control, statement.kind, statement.data)
    if not signed:
        print("there is nothing that a member could lack")
    return 0
