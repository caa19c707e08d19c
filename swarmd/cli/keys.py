"""`swarmd keys`: the fleet's root and roles, and who is in: enrol, rotate, revoke. Works on files, needs no daemon.

What is signed here reaches a running swarm through any one member (`--control`, or `swarmd keys push`); members pass it
on to each other, also to those that come back later.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from swarmd.cli import admit, key_status, node_keys, officers
from swarmd.cli.common import add_control, add_json, print_json, print_table
from swarmd.cli.desk import (
    add_passphrase,
    check_free,
    chosen_swarm,
    everything,
    open_fleet,
    reach,
    send_all,
    swarm_to_join,
    tell_swarm,
)
from swarmd.errors import DaemonError

if TYPE_CHECKING:
    from swarmd.identity.fleet import Fleet


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb with its own verbs."""
    parser = subparsers.add_parser("keys", help="the fleet's root and roles; enrol, rotate, revoke")
    verbs = parser.add_subparsers(dest="keys_verb", metavar="VERB", required=True)
    officers.add_verbs(verbs)
    node_keys.add_verbs(verbs)
    key_status.add_status(verbs)
    admit.add_verbs(verbs)
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
    role.add_argument("role", help="root, enrol, revoke, release, floor, heartbeat or operator")
    role.add_argument("--need", type=int, required=True, metavar="K", help="signatures the role needs")
    role.add_argument("--keys", type=int, required=True, metavar="N", help="keys to make")
    role.add_argument(
        "--keep", action="append", default=[], type=Path, metavar="FILE", help="a removal that stays right"
    )
    role.add_argument("--stolen", action="store_true", help="void what was signed, but for what FLEET holds and --keep")
    role.add_argument("--yes", action="store_true", help="members whose certificates FLEET lacks may fall")
    _add_swarm_push(role)
    enrol = _verb(verbs, "enrol", "make a node's identity")
    enrol.add_argument("node", help="the node's name, unique in the swarm")
    enrol.add_argument("--swarm", help="the swarm it joins (default: the fleet's only one)")
    enrol.add_argument("--new-swarm", action="store_true", help="--swarm begins with this node")
    enrol.add_argument("--replace", action="store_true", help="the name is enrolled: its old key is to be void")
    enrol.add_argument("--out", required=True, type=Path, metavar="DIR", help="where node.identity is written, 0600")
    enrol.add_argument(
        "--public", type=Path, metavar="PUB", help="the key was made on the device: write NODE.enrolment for it instead"
    )
    enrol.add_argument("--role", action="append", default=[], help="what the certificate allows besides membership")
    renew = _verb(verbs, "renew", "sign certificates anew with the enrol keys in force; nobody visits the nodes")
    renew.add_argument("nodes", nargs="*", metavar="NODE", help="names (default: all that need it)")
    _add_swarm_push(renew)
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
        "renew": key_status.run_renew,
        "status": key_status.run_status,
        "token": admit.run_token,
        "tokens": admit.run_tokens,
        "admit": admit.run_admit,
        "sign-request": admit.run_sign_request,
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
        add_passphrase(parser)
    return parser


def _add_swarm_push(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--swarm", help="the swarm (default: the fleet's only one)")
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

    fleet = open_fleet(args)
    role = check_known(args.role, ROLE_NAMES, "role")
    args.swarm = chosen_swarm(fleet, args.swarm) if args.swarm or args.control else None
    before = next((entry for entry in fleet.root().roles if entry.name == role), None)
    _reach(args)
    if role == "enrol" or args.stolen:
        _say_who_falls(args, fleet)
    signed = fleet.change_role(role, args.need, args.keys, stolen=args.stolen, keep=args.keep)
    print(f"root {fleet.root().version} written to {signed.path}; new keys lie in {args.fleet / 'keys'}")
    if before is not None and args.need < before.threshold:
        print(f"WARNING: role {role} takes {args.need} signatures instead of {before.threshold}")
    return tell_swarm(args, [signed])


def _say_who_falls(args: argparse.Namespace, fleet: "Fleet") -> None:
    """Before enrol keys go: which certificates the root keeps by name, and which members would fall.

    Raises:
        FleetError: Members would fall whose certificates this folder lacks, and nobody said --yes.
    """
    from swarmd.api.control import ControlClient
    from swarmd.identity.duties import listed, recorded
    from swarmd.identity.role_keys import FleetError

    for swarm in fleet.swarms():
        trust = fleet.trust_of(swarm)
        names = [one.name for one in fleet.nodes(swarm) if one.node not in trust.revoked]
        print(f"swarm {swarm}: the new root keeps {len(names)} certificates by name: {listed(names) or 'none'}")
    if args.control is None:
        print("certificates that are not in this folder fall, and their nodes are alone; with --control SOCKET a")
        print("running member is asked first who that would be")
        return
    with ControlClient(args.control) as client:
        told = client.call("trust_status")
    known = recorded(fleet, told["swarm"])
    falling = [row["name"] for row in told["members"] if row["certificate"] and row["certificate"] not in known]
    if falling and not args.yes:
        raise FleetError(
            f"these members would fall, since this folder lacks their certificates: {listed(falling)}; bring them from "
            "the desk where they were enrolled, or give --yes and enrol them again; nothing was changed"
        )
    print("no member falls" if not falling else f"WARNING: these members fall: {listed(falling)}")


def _enrol(args: argparse.Namespace) -> int:
    from swarmd.identity.files import IDENTITY_FILE, load_identity, write_secret_file
    from swarmd.identity.names import check_name
    from swarmd.identity.role_keys import FleetError, certifying, make_folder

    check_name(args.node, "a node")
    path = args.out / IDENTITY_FILE
    fleet = open_fleet(args)
    args.swarm = swarm_to_join(fleet, args.swarm, new=args.new_swarm)
    if args.public is not None:
        return node_keys.enrol_public(args)
    if path.exists():
        identity = load_identity(args.out)
        if (identity.name, identity.swarm) != (args.node, args.swarm) or not fleet.record(identity):
            raise FleetError(f"{path} exists already; remove it if the node is to get a new key")
    else:
        with certifying(args.fleet):
            check_free(fleet, args.swarm, args.node, replace=args.replace)
            make_folder(args.out)
            # The key first, then the record of it: whoever is stopped between the two is done with the next run.
            identity = fleet.make_identity(args.node, args.swarm, args.role)
            write_secret_file(path, identity.to_bytes())
            fleet.record(identity)
    print(f"{args.node} is node {identity.node.hex()} of swarm {args.swarm}; its identity lies in {path}")
    verb = "gateway" if "gateway" in args.role else "run"
    print(f"copy it to the node over a trusted channel, then start it with `swarmd {verb} --identity DIR`")
    return 0


def _rotate(args: argparse.Namespace) -> int:
    fleet = open_fleet(args)
    args.swarm = chosen_swarm(fleet, args.swarm)
    _reach(args)
    signed = fleet.rotate(args.swarm)
    print(f"new group key of swarm {args.swarm} written to {signed.path}")
    if args.control is None:
        return tell_swarm(args, [signed])
    # It names the newest revocations: whoever lacks one takes no such key.
    return tell_swarm(args, [one for one in everything(fleet, args.swarm) if one.kind != "node"])


def _revoke(args: argparse.Namespace) -> int:
    from swarmd.identity.duties import holders, rotation_due

    fleet = open_fleet(args)
    args.swarm = swarm = chosen_swarm(fleet, args.swarm)
    nodes = [node for text in args.nodes for node in fleet.find_node(swarm, text)]
    fresh = [node for node in nodes if node not in fleet.trust_of(swarm).revoked]
    if fresh:
        fleet.seeds("revoke")  # Whoever lacks them is told before anything changes.
    _reach(args)
    if fresh:
        written = fleet.revoke(swarm, fresh, args.reason).path
        for node in fresh:
            print(f"node {node.hex()} of swarm {swarm} is out: {written}")
    else:
        print(f"every one of these nodes of swarm {swarm} is out already")
    due = ""
    if not args.keep_group_key and rotation_due(fleet, swarm):
        try:
            print(f"new group key of swarm {swarm} written to {fleet.rotate(swarm).path}")
        except DaemonError as error:
            due = str(error)
    # All that says who is out, so that a second run sends what a first one could not.
    status = tell_swarm(args, [one for one in everything(fleet, swarm) if one.kind != "node"])
    if due:
        print(f"DUE: a new group key, since the revoked node knows the old one ({due})")
        print(f"  the role enrol makes it, {holders(fleet, 'enrol')}:")
        print(f"  swarmd keys rotate {args.fleet} --swarm {swarm} --key FILE --control SOCKET")
    return status


def _show(args: argparse.Namespace) -> int:
    from swarmd.identity.desk import node_rows
    from swarmd.identity.desk import officers as known_officers

    fleet = open_fleet(args)
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
    fleet = open_fleet(args)
    args.swarm = chosen_swarm(fleet, args.swarm)
    return send_all(args, everything(fleet, args.swarm))


def _reach(args: argparse.Namespace) -> None:
    if args.control is not None:
        reach(args.control)
