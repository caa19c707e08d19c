"""`swarmd keys officer|prepare|sign|inspect|submit`: keys on officers' own machines, statements that travel.

Only `prepare` and `submit` need the fleet's folder; `sign` and `inspect` need the file alone, and judge by a copy of
the folder where they are given one. Nothing needs a network.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swarmd.cli.common import add_control, add_json, print_json
from swarmd.cli.desk import add_passphrase, chosen_swarm, passphrases, reach, send
from swarmd.errors import DaemonError

if TYPE_CHECKING:
    from swarmd.identity.fleet import Fleet
    from swarmd.identity.officers import PublicHalf
    from swarmd.identity.prepared import Prepared
    from swarmd.identity.signers import Signer
    from swarmd_protocols.trust.roots import Root

Verbs = Any
"""What `add_subparsers` gives; its type is private to argparse."""


# --- arguments ------------------------------------------------------------------------------------------------------


def add_verbs(verbs: Verbs) -> None:
    """Add the verbs to those of `keys`."""
    _add_officer(verbs)
    prepare = verbs.add_parser("prepare", help="write a statement for officers to sign at their own desks")
    _add_kinds(prepare.add_subparsers(dest="kind", metavar="KIND", required=True))
    sign = verbs.add_parser("sign", help="say in words what a prepared statement does, and sign it")
    _add_files(sign)
    sign.add_argument("--key", action="append", required=True, metavar="KEY", help="a key file, or agent:NAME")
    sign.add_argument("--yes", action="store_true", help="do not ask (for scripts that have read it)")
    add_passphrase(sign)
    inspect = verbs.add_parser(
        "inspect", help="say in words what a prepared statement does, who signed, who is missing"
    )
    _add_files(inspect)
    add_json(inspect)
    submit = verbs.add_parser("submit", help="hand a signed statement to a fleet's folder, and to a running daemon")
    _add_files(submit)
    submit.add_argument(
        "--publication", type=Path, metavar="DIR", help="where a release's release.swm takes signatures"
    )
    add_control(submit)


def _add_officer(verbs: Verbs) -> None:
    officer = verbs.add_parser("officer", help="an officer's own key: make it, show its public half")
    inner = officer.add_subparsers(dest="officer_verb", metavar="VERB", required=True)
    new = inner.add_parser("new", help="make a key, sealed by a passphrase; hand over FILE.pub, never FILE")
    new.add_argument("file", type=Path, metavar="FILE", help="where the key is written, 0600; FILE.pub beside it")
    new.add_argument("--name", help="whose it is (default: the file's name without its ending)")
    add_passphrase(new)
    change = inner.add_parser("passphrase", help="seal a key by another passphrase")
    change.add_argument("file", type=Path, metavar="FILE", help="the key's file")
    add_passphrase(change)
    show = inner.add_parser("show", help="print the public half, to hand over")
    show.add_argument("key", metavar="KEY", help="a key file, a public half, or agent:NAME")


def _add_kinds(kinds: Verbs) -> None:
    root = _kind(kinds, "root", "give roles to other keys", swarm=False)
    add_holders(root)
    root.add_argument(
        "--keep", action="append", default=[], type=Path, metavar="FILE", help="a removal that stays right"
    )
    root.add_argument("--stolen", action="store_true", help="void what was signed, but for what FLEET holds and --keep")
    enrol = _kind(kinds, "enrol", "let a node in whose key was made on the device")
    enrol.add_argument("node", metavar="NODE", help="the node's name, unique in the swarm")
    enrol.add_argument(
        "--public", type=Path, metavar="PUB", help="the device's public half, or its request (default: its present key)"
    )
    enrol.add_argument("--node-role", action="append", default=[], help="what it may besides being a member")
    group = _kind(kinds, "group-key", "a new group key for a swarm; the file is secret")
    group.add_argument("--first", action="store_true", help="a new swarm begins with it")
    revoke = _kind(kinds, "revoke", "shut nodes out for good")
    revoke.add_argument("nodes", nargs="*", metavar="NODE", help="name, node id, or its first eight hex digits")
    revoke.add_argument("--again", action="store_true", help="those whom replaced keys have shut out")
    revoke.add_argument("--reason", required=True, help="what people will read")
    release = _kind(kinds, "release", "a publication that `swarmd model build` made", swarm=False)
    release.add_argument("publication", type=Path, metavar="PUBLICATION")
    floor = _kind(kinds, "floor", "no version of a model below this one, ever again", swarm=False)
    floor.add_argument("version", type=int, metavar="VERSION")
    floor.add_argument("--model", required=True)
    for name, text in (
        ("model-revoke", "never this release again; nodes that run it go back"),
        ("halt", "stop the rollout of a release; nodes that run it go back"),
        ("force", "open a stage of a release whatever the canaries say"),
    ):
        removal = _kind(kinds, name, text, swarm=False)
        removal.add_argument("release", metavar="RELEASE", help="publication folder, or the release's digest in hex")
        removal.add_argument("--model", default="", help="model id; needed with a digest")
        if name == "force":
            removal.add_argument("--stage", type=int, required=True, help="the stage to open, counted from 0")
        else:
            removal.add_argument("--reason", required=True, help="what people will read")
    heartbeat = _kind(kinds, "heartbeat", "say that the publisher is alive", swarm=False)
    heartbeat.add_argument("sequence", type=int, metavar="N", help="higher than the last")
    heartbeat.add_argument(
        "--newest", action="append", default=[], type=Path, metavar="FILE", help="release.swm of each model's newest"
    )


def _kind(kinds: Verbs, name: str, text: str, *, swarm: bool = True) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = kinds.add_parser(name, help=text, description=text)
    parser.add_argument("fleet", type=Path, metavar="FLEET", help="the fleet's folder")
    if swarm:
        parser.add_argument("--swarm", help="the swarm (default: the fleet's only one)")
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="FILE", help="a new file for officers to sign")
    return parser


def add_holders(parser: argparse.ArgumentParser) -> None:
    """Add `--root NEED PUB...` and `--role ROLE NEED PUB...`."""
    parser.add_argument(
        "--root", nargs="+", metavar=("NEED", "PUB"), help="signatures that the next root takes, and whose keys"
    )
    parser.add_argument(
        "--role", nargs="+", action="append", default=[], metavar=("ROLE NEED", "PUB"), help="the same for another role"
    )


def _add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="prepared files of one statement")
    parser.add_argument("--fleet", type=Path, metavar="FLEET", help="the fleet's folder or a copy, to judge by")


# --- verbs ----------------------------------------------------------------------------------------------------------


def run_officer(args: argparse.Namespace) -> int:
    """`keys officer new`, `passphrase` and `show`."""
    from swarmd.identity.officers import change_passphrase, complete_pair, new_key

    if args.officer_verb == "passphrase":
        half = change_passphrase(args.file, passphrases(args))
        print(f"{args.file}: {half.name}'s key has another passphrase; a copy elsewhere has the old one")
        return 0
    if args.officer_verb == "show":
        half = public_half(args.key)
        print(half.line)
        print(f"fingerprint {half.fingerprint}", file=sys.stderr)
        return 0
    name = args.name or args.file.stem
    from swarmd.identity.names import check_name

    check_name(name, "an officer (--name)")
    made = complete_pair(args.file, name)
    half = made or new_key(args.file, name, passphrases(args).get(f"the new key of {name}", twice=True))
    print(f"{args.file}: {name}'s key; it stays on this machine, and its passphrase in your head")
    print(f"{args.file}.pub: the public half; hand it over, and tell its fingerprint by another way:")
    print(f"  {half.fingerprint}")
    return 0


def run_prepare(args: argparse.Namespace) -> int:
    """`keys prepare KIND`."""
    from swarmd.identity.fleet import Fleet
    from swarmd.identity.prepared import write_new

    fleet = Fleet(args.fleet)
    if fleet.is_dev:
        raise DaemonError(
            f"{args.fleet} is a development fleet: its keys derive from one secret; no officer holds them"
        )
    prepared = _PREPARERS[args.kind](args, fleet)
    write_new(args.out, prepared)
    tell(prepared, None)
    print(f"{args.out}: hand it to them; each signs with: swarmd keys sign {args.out} --key KEY")
    return 0


def run_sign(args: argparse.Namespace) -> int:
    """`keys sign`."""
    from swarmd.identity.prepared import add_signature, check_signer, read, write_joined
    from swarmd.identity.signers import open_signer

    prepared = _read(args.files)
    root = _root(args, prepared)
    source = passphrases(args)
    signers: list[Signer] = [open_signer(reference, source) for reference in args.key]
    shown = _as_known_here(args, prepared)
    for signer in signers:
        check_signer(shown, signer, root)
    tell(shown, root)
    if root is None and prepared.root:
        print("names are those of the file itself; with --fleet FLEET they are those of your copy of the fleet")
    who = ", ".join(signer.half.name for signer in signers)
    if not args.yes and not _agrees(f"sign this as {who}? (yes/no) "):
        print("nothing was signed")
        return 1
    for signer in signers:
        prepared = add_signature(prepared, signer)
    write_joined(args.files[0], prepared)
    print(f"{args.files[0]}: signed by {who}")
    _tell_missing(read(args.files[0]), root)
    return 0


def run_inspect(args: argparse.Namespace) -> int:
    """`keys inspect`."""
    from swarmd.identity.prepared import missing, requirements, words

    prepared = _as_known_here(args, _read(args.files))
    root = _root(args, prepared)
    if not args.json:
        tell(prepared, root)
        return 0
    told = words(prepared)
    print_json(
        {
            "kind": prepared.kind,
            "does": list(told.effects),
            "warnings": list(told.warnings),
            "signed": sorted({key.hex() for one in requirements(prepared, root) for key in one.signed}),
            "missing": missing(prepared, root),
        }
    )
    return 0


def run_submit(args: argparse.Namespace) -> int:
    """`keys submit`."""
    from swarmd.identity.desk import submit
    from swarmd.identity.prepared import statement_of

    prepared = _read(args.files)
    if args.fleet is None and args.control is None and args.publication is None:
        raise DaemonError("say where to: --fleet FLEET, --control SOCKET, or both")
    data = statement_of(prepared)  # Before anything is written or sent.
    if args.publication is not None:
        check_publication(args.publication, prepared)
    if args.control is not None:
        reach(args.control)
    if args.fleet is not None:
        done = submit(args.fleet, prepared)
        data = done.statement
        print(f"{done.path}: {'written' if done.is_new else 'was there already'}")
        for note in done.notes:
            print(f"next: {note}")
    if args.publication is not None:
        _submit_release(args.publication, data)
    if args.control is not None:
        send(args.control, prepared.kind, data)
    elif args.fleet is not None and prepared.kind in ("root", "node", "group", "revoke"):
        print("no member knows it yet: submit it again with --control SOCKET, or `swarmd keys push`")
    return 0


def tell(prepared: "Prepared", root: "Root | None") -> None:
    """Say in words what a statement does, who has signed, and who is missing."""
    from swarmd.identity.prepared import words

    told = words(prepared)
    print(f"{told.title}; it")
    for line in told.effects:
        print(f"  {line}")
    for line in told.warnings:
        print(f"  WARNING: {line}")
    _tell_missing(prepared, root)


def holders(args: argparse.Namespace) -> dict[str, tuple[int, "list[PublicHalf]"]]:
    """Who is to hold which role, from `--root` and `--role`."""
    found: dict[str, tuple[int, list[PublicHalf]]] = {}
    given = [["root", *args.root]] if args.root else []
    for role, *rest in [*given, *args.role]:
        if len(rest) < 2 or not rest[0].isdigit():
            raise DaemonError(
                f"--role {' '.join([role, *rest])[:80]}: write it as ROLE NEED PUB PUB..., such as release 2 a.pub"
            )
        if role in found:
            raise DaemonError(f"the role {role} is given twice")
        found[role] = int(rest[0]), [public_half(one) for one in rest[1:]]
    return found


def public_half(reference: str) -> "PublicHalf":
    """The public half in a file, in a device's request, in a key's file, or of a key in the agent."""
    from swarmd.identity.node_requests import is_request, read_request
    from swarmd.identity.officers import Passphrases, read_public
    from swarmd.identity.signers import AGENT_PREFIX, open_signer

    if reference.startswith(AGENT_PREFIX):
        return open_signer(reference, Passphrases()).half
    return read_request(Path(reference)) if is_request(Path(reference)) else read_public(Path(reference))


def device_half(reference: str, name: str) -> "PublicHalf":
    """The public half of a device that is to be enrolled by a name; a request asks for one.

    Raises:
        DaemonError: The request asks for another name.
    """
    from swarmd.identity.node_requests import is_request

    half = public_half(reference)
    if is_request(Path(reference)) and half.name != name:
        raise DaemonError(
            f"{reference} asks to be {half.name}, not {name}; enrol it as that, or ask for another request"
        )
    return half


def _tell_missing(prepared: "Prepared", root: "Root | None") -> None:
    from swarmd.identity.prepared import context, missing, requirements

    known = context(prepared)
    signed = sorted({known.officer(key) for one in requirements(prepared, root) for key in one.signed})
    print(f"signed by: {', '.join(signed) or 'nobody yet'}")
    lacking = missing(prepared, root)
    for line in lacking:
        print(f"missing: {line}")
    if not lacking:
        print("enough have signed: swarmd keys submit FILE --fleet FLEET --control SOCKET")


def _read(files: Sequence[Path]) -> "Prepared":
    from swarmd.identity.prepared import merge, read

    first, *others = [read(path) for path in files]
    for other in others:
        first = merge(first, other)
    return first


def _root(args: argparse.Namespace, prepared: "Prepared") -> "Root | None":
    """The root to judge by where a fleet's folder is given; the file must have been prepared under it."""
    if args.fleet is None or not prepared.root:
        return None
    from swarmd.identity.fleet import Fleet
    from swarmd_protocols.trust.roots import root_digest

    fleet = Fleet(args.fleet)
    if root_digest(prepared.root) != root_digest(fleet.roots()[-1]):
        raise DaemonError(
            f"it was prepared under another root than the newest of {args.fleet} (root {fleet.root().version}); "
            "bring the folder up to date, or prepare it anew"
        )
    return fleet.root()


def _as_known_here(args: argparse.Namespace, prepared: "Prepared") -> "Prepared":
    """The statement with the names of the desk's own folder, where one is given."""
    if args.fleet is None or not (args.fleet / "officers").is_dir():
        return prepared
    from swarmd.identity.desk import known_halves
    from swarmd.identity.fleet import Fleet
    from swarmd.identity.prepared import with_officers

    return with_officers(prepared, known_halves(Fleet(args.fleet)))


def _agrees(question: str) -> bool:
    if not sys.stdin.isatty():
        raise DaemonError("nobody is here to say yes; read it, then give --yes")
    return input(question).strip() == "yes"


def check_publication(folder: Path, prepared: "Prepared") -> None:
    """Refuse a publication that is not the release which was signed."""
    from swarmd.release.author import STATEMENT, read_statement

    path = folder / STATEMENT
    if prepared.kind != "release" or read_statement(path).payload != prepared.payload:
        raise DaemonError(f"{path} is not the release that was signed")


def _submit_release(folder: Path, data: bytes) -> None:
    from swarmd.identity.files import write_public_file
    from swarmd.release.author import STATEMENT

    path = folder / STATEMENT
    write_public_file(path, data)
    print(f"{path}: signed; publish it with: swarmd model publish {folder}")


# --- what can be prepared -------------------------------------------------------------------------------------------


def _prepare_root(args: argparse.Namespace, fleet: "Fleet") -> "Prepared":
    from swarmd.identity.desk import prepare_root

    return prepare_root(fleet, holders(args), stolen=args.stolen, keep=args.keep)


def _prepare_enrol(args: argparse.Namespace, fleet: "Fleet") -> "Prepared":
    from swarmd.identity.desk import prepare_again, prepare_certificate
    from swarmd.identity.names import check_name

    check_name(args.node, "a node")
    swarm = chosen_swarm(fleet, args.swarm)
    if args.public is None:
        return prepare_again(fleet, swarm, args.node)
    return prepare_certificate(fleet, swarm, args.node, device_half(str(args.public), args.node).public, args.node_role)


def _prepare_group(args: argparse.Namespace, fleet: "Fleet") -> "Prepared":
    from swarmd.identity.desk import prepare_group_key

    if args.first and (args.swarm is None or args.swarm in fleet.swarms()):
        raise DaemonError(
            f"the swarm {args.swarm} is there already; without --first it gets its next group key"
            if args.swarm
            else "--first begins a new swarm; name it: --swarm NAME"
        )
    return prepare_group_key(fleet, args.swarm if args.first else chosen_swarm(fleet, args.swarm))


def _prepare_revoke(args: argparse.Namespace, fleet: "Fleet") -> "Prepared":
    from swarmd.identity.desk import formerly_revoked, prepare_revocation

    swarm = chosen_swarm(fleet, args.swarm)
    if bool(args.nodes) == args.again:
        raise DaemonError("name the nodes, or give --again for those whom replaced keys have shut out")
    nodes = (
        formerly_revoked(fleet, swarm)
        if args.again
        else [one for text in args.nodes for one in fleet.find_node(swarm, text)]
    )
    if not nodes:
        raise DaemonError(f"nobody of swarm {swarm} was shut out by keys that were replaced since")
    return prepare_revocation(fleet, swarm, nodes, args.reason)


def _prepare_model(args: argparse.Namespace, fleet: "Fleet") -> "Prepared":
    import time

    from swarmd.identity.desk import prepare_model_statement
    from swarmd.release.author import read_publication, read_statement
    from swarmd_protocols.releases.statements import Floor, Force, Halt, Heartbeat, Revoke
    from swarmd_protocols.trust.roots import mark

    epoch, now_s = fleet.root().epoch, int(time.time())
    match args.kind:
        case "release":
            payload = read_publication(args.publication).envelope.payload
        case "floor":
            payload = Floor(args.model, epoch, args.version, now_s).payload()
        case "heartbeat":
            newest = tuple(sorted(mark(read_statement(path)) for path in args.newest))
            payload = Heartbeat(epoch, args.sequence, now_s, newest).payload()
        case "force":
            payload = Force(*_named_release(args, epoch), args.stage, now_s).payload()
        case "halt":
            payload = Halt(*_named_release(args, epoch), args.reason, now_s).payload()
        case _:
            payload = Revoke(*_named_release(args, epoch), args.reason, now_s).payload()
    return prepare_model_statement(fleet, args.kind, payload)


def _named_release(args: argparse.Namespace, epoch: int) -> tuple[str, int, bytes]:
    from swarmd.release.author import read_publication

    if Path(args.release).is_dir():
        publication = read_publication(Path(args.release))
        return publication.release.model, epoch, publication.digest
    try:
        digest = bytes.fromhex(args.release)
    except ValueError:
        digest = b""
    if len(digest) != 32 or not args.model:
        raise DaemonError("name the release by its publication folder, or by --model and its digest of 64 hex digits")
    return args.model, epoch, digest


_MODEL_KINDS = ("release", "floor", "model-revoke", "halt", "force", "heartbeat")
_PREPARERS: dict[str, Callable[[argparse.Namespace, "Fleet"], "Prepared"]] = {
    "root": _prepare_root,
    "enrol": _prepare_enrol,
    "group-key": _prepare_group,
    "revoke": _prepare_revoke,
    **dict.fromkeys(_MODEL_KINDS, _prepare_model),
}
