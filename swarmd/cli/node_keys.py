"""`swarmd keys node|enrolment`, and `keys enrol --public`: nodes whose key is made on the device."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swarmd.identity.fleet import Fleet


def add_verbs(verbs: Any) -> None:
    """Add the verbs to those of `keys`."""
    node = verbs.add_parser("node", help="on the device: make its key, install its enrolment")
    inner = node.add_subparsers(dest="node_verb", metavar="VERB", required=True)
    new = inner.add_parser("new", help="make this device's key; hand over NAME.pub")
    new.add_argument("folder", type=Path, metavar="DIR", help="where the identity will lie")
    new.add_argument("--name", required=True, help="the node's name, unique in the swarm")
    install = inner.add_parser("install", help="make node.identity of this device's key and an enrolment")
    install.add_argument("folder", type=Path, metavar="DIR", help="where `node new` left the key")
    install.add_argument("enrolment", type=Path, metavar="FILE", help="what the officer gave back")
    enrolment = verbs.add_parser(
        "enrolment", help="write what a device needs whose certificate is in the fleet's folder"
    )
    enrolment.add_argument("fleet", type=Path, metavar="FLEET", help="the fleet's folder")
    enrolment.add_argument("node", metavar="NODE", help="the node's name")
    enrolment.add_argument("--swarm", help="the swarm (default: the fleet's only one)")
    enrolment.add_argument("-o", "--out", type=Path, required=True, metavar="FILE", help="a new file, secret")
    enrolment.set_defaults(control=None)


def run_node(args: argparse.Namespace) -> int:
    """`keys node new` and `keys node install`."""
    from swarmd.identity.enrolment import install, new_node_key
    from swarmd.identity.files import IDENTITY_FILE, read_secret_file

    if args.node_verb == "new":
        half = new_node_key(args.folder, args.name)
        print(f"{args.folder / 'node.seed'}: the key of {args.name}; it stays on this device")
        print(f"{args.folder / (args.name + '.pub')}: hand it over, and tell its fingerprint by another way:")
        print(f"  {half.fingerprint}")
        return 0
    identity = install(args.folder, read_secret_file(args.enrolment, "give the file that the officer gave back"))
    print(f"{args.folder / IDENTITY_FILE}: {identity.name} is node {identity.node.hex()} of swarm {identity.swarm}")
    print(f"start it with: swarmd run --identity {args.folder}")
    return 0


def run_enrolment(args: argparse.Namespace) -> int:
    """`keys enrolment`."""
    from swarmd.cli.desk import chosen_swarm
    from swarmd.identity.fleet import Fleet

    fleet = Fleet(args.fleet)
    write_enrolment(fleet, chosen_swarm(fleet, args.swarm), args.node, args.out)
    return 0


def enrol_public(args: argparse.Namespace) -> int:
    """`keys enrol --public`: certify a key that was made on the device, where enough enrol keys are at this desk."""
    from swarmd.cli.desk import check_free, passphrases
    from swarmd.cli.officers import device_half
    from swarmd.identity.desk import prepare_certificate, submit
    from swarmd.identity.enrolment import EnrolmentError
    from swarmd.identity.fleet import Fleet
    from swarmd.identity.prepared import add_signature, check_signer, missing, requirements
    from swarmd.identity.role_keys import certifying
    from swarmd.identity.signers import open_signer
    from swarmd_protocols.ids import node_id_of

    out = args.out / f"{args.node}.enrolment"
    if out.exists():
        raise EnrolmentError(f"{out} exists already; nothing was written")
    fleet = Fleet(args.fleet)
    half = device_half(str(args.public), args.node)
    if any((one.name, one.node) == (args.node, node_id_of(half.public)) for one in fleet.nodes(args.swarm)):
        write_enrolment(fleet, args.swarm, args.node, out)  # Certified by a run that was stopped before this.
        return 0
    check_free(fleet, args.swarm, args.node, replace=args.replace)
    source = passphrases(args)
    signers = [open_signer(str(path), source) for path in args.key]
    in_folder = [open_signer(str(path), source) for path in sorted((args.fleet / "keys").glob("enrol-*.key"))]
    with certifying(args.fleet):  # Nobody types meanwhile.
        check_free(fleet, args.swarm, args.node, replace=args.replace)
        prepared = prepare_certificate(fleet, args.swarm, args.node, half.public, args.role)
        for signer in signers:
            check_signer(prepared, signer)
        known = {key for one in requirements(prepared) for key in one.keys}
        for signer in [*signers, *(one for one in in_folder if one.half.key_id in known)]:
            if missing(prepared):
                prepared = add_signature(prepared, signer)
        print(f"{args.node} with the key {half.fingerprint}: compare it with what the device says")
        print(f"{submit(args.fleet, prepared).path}: written")
    write_enrolment(fleet, args.swarm, args.node, out)
    return 0


def write_enrolment(fleet: "Fleet", swarm: str, name: str, path: Path) -> None:
    """Write an enrolment, 0600; a file that is there is kept."""
    from swarmd.identity.enrolment import EnrolmentError, make_enrolment
    from swarmd.identity.files import write_secret_file

    if path.exists():
        raise EnrolmentError(f"{path} exists already; nothing was written")
    data = make_enrolment(fleet, swarm, name)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_secret_file(path, data)
    print(f"{path}: secret (it holds the group key); bring it to the device, and there:")
    print(f"  swarmd enrol --identity DIR --install {path.name}")
