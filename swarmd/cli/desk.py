"""What the verbs of a fleet's desk share: keys and passphrases, which swarm is meant, and how members are told."""

import argparse
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from swarmd.api.remote import Remote
    from swarmd.identity.fleet import Fleet, Statement
    from swarmd.identity.officers import Passphrases


# --- keys -----------------------------------------------------------------------------------------------------------


def add_passphrase(parser: argparse._ActionsContainer) -> None:
    """Add `--passphrase-fd` and `--passphrase-credential`."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--passphrase-fd", type=int, metavar="N", help="read passphrases from this descriptor, one a line"
    )
    group.add_argument("--passphrase-credential", default="", metavar="NAME", help="read it from systemd's credential")


def passphrases(args: argparse.Namespace) -> "Passphrases":
    """Where the passphrases of this command come from."""
    from swarmd.identity.officers import Passphrases

    return Passphrases(args.passphrase_fd, args.passphrase_credential)


def open_fleet(args: argparse.Namespace) -> "Fleet":
    """The fleet, with the keys that were given; loud about a development fleet."""
    from swarmd.identity.files import dev_fleet_warning
    from swarmd.identity.fleet import Fleet
    from swarmd.identity.role_keys import RoleKey
    from swarmd.identity.signers import read_seed

    given = getattr(args, "key", ())
    source = passphrases(args) if given else None
    fleet = Fleet(args.fleet, [RoleKey("", read_seed(str(path), source)) for path in given] if source else ())
    if fleet.is_dev:
        import sys

        print(f"swarmd keys: {dev_fleet_warning(args.fleet)}", file=sys.stderr)
    return fleet


# --- which swarm ----------------------------------------------------------------------------------------------------


def chosen_swarm(fleet: "Fleet", swarm: str | None) -> str:
    """The swarm that is meant: the fleet's only one where none is named.

    Raises:
        FleetError: The fleet has none, or several.
        NameRefused: Nothing was ever signed for it; a development fleet knows every name.
    """
    from swarmd.identity.files import DEV_SWARM
    from swarmd.identity.names import check_name
    from swarmd.identity.role_keys import FleetError

    if swarm is not None:
        return check_name(swarm, "a swarm") if fleet.is_dev else known_swarm(fleet, swarm)
    known = fleet.swarms() or ([DEV_SWARM] if fleet.is_dev else [])
    if len(known) == 1:
        return known[0]
    if not known:
        raise FleetError(
            f"the fleet in {fleet.folder} has no swarm yet; name it: "
            "`swarmd keys prepare group-key FLEET --swarm NAME --first`, or `swarmd keys enrol FLEET NODE --swarm NAME`"
        )
    raise FleetError(f"the fleet has {len(known)} swarms; say which: --swarm {' | '.join(known[:16])}")


def swarm_to_join(fleet: "Fleet", swarm: str | None, *, new: bool) -> str:
    """The swarm that a node is to join; one that is not there yet only where somebody says that it is new.

    Raises:
        FleetError: It is said to be new and is there already.
        NameRefused: Nothing was ever signed for it.
    """
    from swarmd.identity.names import check_name
    from swarmd.identity.role_keys import FleetError

    if new:
        if swarm is None or swarm in fleet.swarms():
            raise FleetError("--new-swarm takes a --swarm that the fleet does not have yet")
        return check_name(swarm, "a swarm")
    if swarm is not None and not fleet.swarms():
        return check_name(swarm, "a swarm")  # The fleet's first.
    return chosen_swarm(fleet, swarm)


def check_free(fleet: "Fleet", swarm: str, name: str, *, replace: bool) -> None:
    """Refuse to enrol a name twice where nobody says that the old key is to be void.

    Raises:
        FleetError: A node of this name is in force.
    """
    from swarmd.identity.role_keys import FleetError
    from swarmd_protocols.ids import NodeId

    trust = fleet.trust_of(swarm)
    held = [one.node for one in fleet.nodes(swarm) if one.name == name and trust.certified(NodeId(one.node))]
    if not held or fleet.is_dev:
        return
    if not replace:
        raise FleetError(
            f"{name!r} is node {held[0].hex()} of swarm {swarm} already; choose another name, or give --replace, and "
            "that key is void wherever the new certificate is heard"
        )
    print(f"{name} was node {held[0].hex()}: that key is void once the new certificate is heard; push it:")
    print(f"  swarmd keys push {fleet.folder} --swarm {swarm} --control SOCKET")


def known_swarm(fleet: "Fleet", swarm: str) -> str:
    """The swarm's name where anything was signed for it; refuses others with the nearest."""
    from swarmd.identity.names import check_known, check_name

    return check_known(check_name(swarm, "a swarm"), fleet.swarms(), "swarm of this fleet")


# --- telling members ------------------------------------------------------------------------------------------------


def reach(control: "Path | Remote") -> None:
    """Find the daemon that is to be told, before anything is signed or written."""
    from swarmd.api.control import ControlClient

    with ControlClient(control) as client:
        client.call("status")


def send(control: "Path | Remote | None", kind: str, data: bytes) -> None:
    """Hand one signed statement to a running daemon and say what it made of it."""
    from swarmd.api.control import ControlClient

    with ControlClient(control) as client:
        if kind not in ("root", "node", "group", "revoke"):
            client.call("model_publish", envelopes=[data.hex()])
            print(f"{kind}: published")
            return
        answer = client.call("trust", kind=kind, statement=data.hex())
        print(f"{kind}: {'taken' if answer.get('new') else 'known already'}")


def everything(fleet: "Fleet", swarm: str) -> "list[Statement]":
    """All statements that a member may lack, in an order in which they can be taken."""
    from swarmd.identity.fleet import Statement

    return [Statement(kind, data, fleet.folder) for kind, data in fleet.statements(swarm)]


def tell_swarm(args: argparse.Namespace, signed: "Iterable[Statement]") -> int:
    """Hand statements to the daemon that `--control` names; without it, say how."""
    if args.control is not None:
        return send_all(args, signed)
    swarm = args.swarm or "SWARM"
    print(f"tell a running member: swarmd keys push {args.fleet} --swarm {swarm} --control SOCKET")
    return 0


def send_all(args: argparse.Namespace, signed: "Iterable[Statement]") -> int:
    """Hand statements to a running daemon, which passes them on."""
    signed = list(signed)
    for statement in signed:
        send(args.control, statement.kind, statement.data)
    if not signed:
        print("there is nothing that a member could lack")
    return 0


def check_names(name: str, *swarms: str) -> None:
    """Whether what is signed may be called so, and swarms are.

    Args:
        name: Of a fact or a neighbour.
        swarms: Own names of swarms.

    Raises:
        DaemonError: One is no name.
    """
    from swarmd.errors import DaemonError
    from swarmd_protocols.federation.facts import NAME_MAX, NAME_PATTERN
    from swarmd_protocols.trust import payloads

    if not re.fullmatch(NAME_PATTERN, name):
        raise DaemonError(
            f"{name!r} is no name; write 1 to {NAME_MAX} of a-z, digits, dots, dashes, underlines, the first a letter "
            "or a digit"
        )
    for swarm in swarms:
        if not re.fullmatch(payloads.NAME_PATTERN, swarm) or len(swarm) > payloads.NAME_MAX_CHARS:
            raise DaemonError(f"{swarm!r} is no swarm's name; write it as `swarmd status` of a member does")
