"""`swarmd model`: build, sign, check and publish releases; see who runs what; take releases back.

`build`, `delta`, `sign`, `verify` and the statements work on files and need no daemon and no network, so they run on
the machine where the keys lie. `publish` and `status` talk to a daemon.
"""

import argparse
import base64
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swarmd.cli.common import add_control, add_json, add_read_flags, ask, print_json, print_table
from swarmd.cli.desk import add_passphrase
from swarmd.errors import DaemonError
from swarmd_protocols.errors import ProtocolError

if TYPE_CHECKING:
    from swarmd_protocols.trust.envelopes import Envelope

PIECE_BYTES = 32_768


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser("model", help="releases: build, delta, sign, verify, publish, status, take back")
    verbs = parser.add_subparsers(dest="model_verb", required=True, metavar="VERB")
    _add_build(verbs)
    delta = verbs.add_parser("delta", help="make the smallest delta between two model files")
    delta.add_argument("old", type=Path)
    delta.add_argument("new", type=Path)
    delta.add_argument("-o", "--out", type=Path, help="write the delta here")
    add_json(delta)
    sign = verbs.add_parser("sign", help="add signatures to a statement (offline)")
    sign.add_argument("statement", type=Path, help="release.swm, a publication folder, or another statement file")
    _add_keys(sign, required=True)
    sign.add_argument("-o", "--out", type=Path, help="write here instead of in place")
    verify = verbs.add_parser("verify", help="check a statement as a node would")
    verify.add_argument("statement", type=Path)
    verify.add_argument("--fleet", type=Path, required=True, metavar="FLEET", help="the fleet's folder, for its roots")
    show = verbs.add_parser("show", help="say in words what a statement or publication does, and who has signed it")
    show.add_argument("statement", type=Path, help="release.swm, a publication folder, or another statement file")
    show.add_argument("--fleet", type=Path, metavar="FLEET", help="the fleet's folder, for names and its roots")
    add_json(show)
    publish = verbs.add_parser("publish", help="give a publication or statements to a running daemon")
    publish.add_argument("what", type=Path, nargs="+", help="publication folder, statement file, or a root (.root)")
    publish.add_argument("--rollout", metavar="5,25,100", help="refuse unless these are the signed stages")
    add_control(publish)
    status = verbs.add_parser("status", help="who runs which version, how far releases have come, drift")
    add_read_flags(status)
    key = verbs.add_parser(
        "key", help="seal the key for encrypted models as a systemd credential (TPM where there is one)"
    )
    key.add_argument("--with", dest="with_key", choices=("auto", "host", "tpm2", "host+tpm2"), default="auto")
    key.add_argument("--from", dest="source", type=Path, metavar="FILE", help="seal this key (STATE/releases/node.key)")
    key.add_argument("--tpm2-device", default="", metavar="PATH", help="the TPM (default: the system's)")
    key.add_argument("-o", "--out", type=Path, help="the credential (default: where systemd looks for it)")
    _add_statements(verbs)


def _add_build(verbs: Any) -> None:
    build = verbs.add_parser("build", help="make a publication of a bundle, unsigned")
    build.add_argument("bundle", type=Path, help="bundle (.toml), .tflite or .onnx")
    build.add_argument("-o", "--out", type=Path, required=True, help="a new folder")
    build.add_argument("--model", required=True, help="model id, as nodes configure it (models.model)")
    build.add_argument("--version", type=int, required=True)
    build.add_argument("--epoch", type=int, help="the root's epoch")
    build.add_argument("--fleet", type=Path, metavar="FLEET", help="the fleet's folder, whose root says the epoch")
    build.add_argument("--after", type=Path, metavar="PUBLICATION", help="the release before this one")
    build.add_argument("--base", type=Path, action="append", default=[], help="make a delta from this file or bundle")
    build.add_argument("--rollout", default="5,25,100", metavar="5,25,100", help="stages, per cent")
    build.add_argument("--reports", type=int, default=2, help="passes that a stage needs at least (default 2)")
    build.add_argument("--max-fails", type=int, default=0, help="failed nodes that do not halt it (default 0)")
    build.add_argument("--soak", type=int, default=600, metavar="S", help="seconds under the gates (default 600)")
    build.add_argument("--samples", type=int, default=100, help="frames under the gates (default 100)")
    build.add_argument("--latency-ms", type=float, default=0, help="p95 of inference, 0: no gate")
    build.add_argument("--memory-mib", type=int, default=0, help="resident memory of the eye, 0: no gate")
    build.add_argument("--shadow", type=int, default=0, help="outputs may move by so many thousandths, 0: no gate")
    build.add_argument("--swap-when", choices=("any", "idle", "disarmed"), default="idle")
    build.add_argument("--arch", action="append", default=[], help="only for this architecture")
    build.add_argument("--untried", action="store_true", help="do not run the model here first")
    build.add_argument("--encrypt", action="store_true", help="nodes keep it encrypted")
    add_json(build)


def _add_keys(parser: argparse.ArgumentParser, required: bool = False) -> None:
    keys = parser.add_argument_group("keys")
    keys.add_argument("--key", type=Path, action="append", default=[], help="an officer's key; may be repeated")
    add_passphrase(keys)
    keys.add_argument(
        "--fleet", type=Path, metavar="FLEET", help="the fleet's folder: its root, and keys where no --key is given"
    )
    parser.set_defaults(keys_required=required)


def _add_statements(verbs: Any) -> None:
    for name, text in (
        ("revoke", "never this release again; nodes that run it go back"),
        ("halt", "stop the rollout of a release; nodes that run it go back"),
        ("force", "open a stage of a release whatever the canaries say"),
    ):
        parser = verbs.add_parser(name, help=text)
        parser.add_argument("release", help="publication folder, or the release's digest in hex")
        parser.add_argument("--model", default="", help="model id; needed with a digest")
        parser.add_argument("--reason", default="", help="what people will read")
        parser.add_argument("--stage", type=int, default=8, help="force: the stage to open, from 0 (default: all)")
        _finish_statement(parser)
    floor = verbs.add_parser("floor", help="nothing below this version, ever again (after it has proven itself)")
    floor.add_argument("version", type=int)
    floor.add_argument("--model", required=True)
    _finish_statement(floor)
    heartbeat = verbs.add_parser("heartbeat", help="say that the publisher is alive")
    heartbeat.add_argument("sequence", type=int, help="higher than the last")
    heartbeat.add_argument(
        "--newest", action="append", default=[], type=Path, metavar="FILE", help="release.swm of each model's newest"
    )
    _finish_statement(heartbeat)


def _finish_statement(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--epoch", type=int, help="the root's epoch (default: of --fleet, or of the daemon's root)")
    parser.add_argument("-o", "--out", type=Path, required=True, help="write the statement here")
    _add_keys(parser)
    parser.add_argument("--publish", action="store_true", help="give it to the daemon at once")
    add_control(parser)


def run(args: argparse.Namespace) -> int:
    """Carry out one of the verbs."""
    handlers: Mapping[str, Callable[[argparse.Namespace], int]] = {
        "build": _build,
        "delta": _delta,
        "sign": _sign,
        "verify": _verify,
        "show": _show,
        "publish": _publish,
        "status": _status,
        "key": _key,
    }
    return handlers.get(args.model_verb, _statement)(args)


def _key(args: argparse.Namespace) -> int:
    from swarmd.release.at_rest import CREDENTIAL
    from swarmd.release.errors import ReleaseError
    from swarmd.release.sealing import STORE, seal_key

    out = args.out or STORE / CREDENTIAL
    try:
        key = args.source.read_bytes() if args.source else None
        kind = seal_key(out, key, args.with_key, args.tpm2_device)
    except OSError as error:
        raise DaemonError(f"{args.source}: {error.strerror}") from error
    except ReleaseError as error:
        raise DaemonError(str(error)) from error
    print(f"{out}: sealed with {kind}; the daemon takes it at its next start (LoadCredentialEncrypted={CREDENTIAL})")
    if args.source:
        print(f"once it runs with it, shred {args.source}: whoever holds that file opens the models")
    return 0


def _build(args: argparse.Namespace) -> int:
    from swarmd.release.author import BuildOptions, build, read_publication
    from swarmd_protocols.releases.statements import Gates, Targets

    options = BuildOptions(
        model=args.model,
        version=args.version,
        epoch=_epoch(args),
        previous=read_publication(args.after).digest if args.after else b"",
        bases=tuple(args.base),
        rollout=_rollout(args),
        gates=Gates(args.soak, args.samples, round(args.latency_ms * 1000), args.memory_mib << 10, args.shadow),
        targets=Targets(arch=tuple(sorted(args.arch))),
        swap_when=args.swap_when,
        encrypt=args.encrypt,
    )
    tried = "" if args.untried else _tried(args.bundle)
    made = build(args.bundle, options, args.out)
    summary = {
        "tried": tried,
        "digest": made.digest.hex(),
        "folder": str(made.folder),
        "deltas": [{"codec": one.codec, "bytes": one.blob.size, "of": one.out_bytes} for one in made.release.deltas],
    }
    if args.json:
        print_json(summary)
    else:
        print(f"tried with {tried}" if tried else "not tried: nobody knows whether it runs")
        print(f"release {made.digest.hex()} in {made.folder}; now: swarmd model sign {made.folder} --key …")
        for one in made.release.deltas:
            print(f"  delta {one.codec}: {one.blob.size} of {one.out_bytes} bytes")
    return 0


def _tried(bundle: Path) -> str:
    """The runtime that has run the model: what cannot be loaded, fed and decoded is not packed."""
    from swarmd_models.bundle import load_bundle
    from swarmd_models.errors import ModelError
    from swarmd_models.trial_run import try_model

    try:
        return try_model(load_bundle(bundle), lambda text: None).runtime
    except ModelError as error:
        raise DaemonError(f"{bundle} is not packed: {error}; --untried packs it all the same") from error


def _epoch(args: argparse.Namespace) -> int:
    """The epoch of the fleet's root: of a later one nobody takes a statement, one of an earlier one loses."""
    named: int | None = args.epoch
    if args.fleet:
        from swarmd.identity.fleet import Fleet

        epoch = Fleet(args.fleet).root().epoch
        if named not in (None, epoch):
            raise DaemonError(f"--epoch {named}, but the root of {args.fleet} is of epoch {epoch}; leave --epoch out")
        return epoch
    if named is None and getattr(args, "publish", False):
        named = int(ask(args, "model_status")["epoch"])
    if named is None:
        raise DaemonError("which epoch is the root's? give the fleet's folder with --fleet FLEET, or --epoch N")
    return named


def _rollout(args: argparse.Namespace) -> Any:
    from swarmd_protocols.releases.statements import Rollout

    return Rollout(_stages(args.rollout), args.reports, args.max_fails)


def _stages(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise DaemonError(f"--rollout {text!r} is no list of percentages such as 5,25,100") from None


def _delta(args: argparse.Namespace) -> int:
    from swarmd.identity.files import write_named_file
    from swarmd.release.delta.bounded import brotlied
    from swarmd.release.delta.codec import make_all

    old, new = _read(args.old), _read(args.new)
    made = make_all(old, new)
    codec = min(made, key=lambda name: (len(made[name]), name))
    full = len(brotlied(new))
    if args.out:
        write_named_file(args.out, made[codec])
    sizes = {name: len(delta) for name, delta in sorted(made.items())}
    if args.json:
        print_json({"codec": codec, "bytes": sizes[codec], "of": len(new), "full_brotli": full, "all": sizes})
        return 0
    print_table(("codec", "bytes", "% of file"), [(name, size, 100 * size / len(new)) for name, size in sizes.items()])
    print(f"smallest: {codec}, {sizes[codec]} bytes; the compressed file has {full}")
    return 0


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DaemonError(f"{path}: {error.strerror}") from error


def _seeds(args: argparse.Namespace, role: str) -> list[bytes]:
    from swarmd.identity.fleet import Fleet
    from swarmd.identity.officers import Passphrases
    from swarmd.identity.signers import read_seed

    source = Passphrases(args.passphrase_fd, args.passphrase_credential)
    if args.fleet and args.key:
        from swarmd.identity.desk import check_role
        from swarmd.identity.signers import open_signer

        for path in args.key:  # Before any passphrase is asked for.
            check_role(Fleet(args.fleet), role, open_signer(str(path), source).half)
    seeds = [read_seed(str(path), source, role) for path in args.key]
    if args.fleet and not args.key:
        seeds += Fleet(args.fleet).seeds(role)
    if args.keys_required and not seeds:
        raise DaemonError("give the officers' keys with --key FILE, or all of the role's with --fleet FLEET")
    return seeds


def _statement_path(path: Path) -> Path:
    from swarmd.release.author import STATEMENT

    return path / STATEMENT if path.is_dir() else path


def _sign(args: argparse.Namespace) -> int:
    from swarmd.release.author import read_statement, sign_file
    from swarmd_protocols.trust.envelopes import ROLE_OF

    path = _statement_path(args.statement)
    role = ROLE_OF[read_statement(path).kind]
    _say(read_statement(path))
    envelope = sign_file(path, _seeds(args, role), args.out)
    print(f"{envelope.kind} {envelope.digest.hex()} now carries {len(envelope.signatures)} signatures")
    return 0


def _say(envelope: "Envelope") -> None:
    """What a statement does, in words."""
    from swarmd.identity.words import Context, describe

    told = describe(envelope.kind, envelope.payload, Context())
    print(f"{told.title}; it")
    for line in (*told.effects, *(f"WARNING: {warning}" for warning in told.warnings)):
        print(f"  {line}")


def _show(args: argparse.Namespace) -> int:
    """What a statement says, and who has signed it; whether that is enough is said where a fleet is given."""
    from swarmd.identity.words import Context, describe
    from swarmd.release.author import check_file, read_statement

    path = _statement_path(args.statement)
    envelope = read_statement(path)
    names: dict[bytes, str] = {}
    problem = ""
    if args.fleet:
        from swarmd.identity.desk import officers
        from swarmd.identity.fleet import Fleet

        fleet = Fleet(args.fleet)
        names = officers(fleet)
        try:
            check_file(path, fleet.roots())
        except (DaemonError, ProtocolError) as error:
            problem = str(error)
    signed = [names.get(key, key.hex()[:8]) for key, _ in envelope.signatures]
    if args.json:
        told = describe(envelope.kind, envelope.payload, Context())
        said = {"kind": envelope.kind, "digest": envelope.digest.hex(), "does": list(told.effects)}
        holds = (not problem) if args.fleet else None
        print_json({**said, "warnings": list(told.warnings), "signatures": signed, "holds": holds, "problem": problem})
        return 0
    _say(envelope)
    print(f"{envelope.kind} {envelope.digest.hex()}")
    print(f"carries signatures of: {', '.join(signed) or 'nobody'}")
    if args.fleet:
        print(f"does not hold: {problem}" if problem else "holds")
    else:
        print("whether they are right and enough: --fleet FLEET")
    return 0


def _verify(args: argparse.Namespace) -> int:
    from swarmd.identity.fleet import Fleet
    from swarmd.release.author import check_file

    envelope = check_file(_statement_path(args.statement), Fleet(args.fleet).roots())
    _say(envelope)
    print(f"{envelope.kind} {envelope.digest.hex()} holds")
    return 0


def _publish(args: argparse.Namespace) -> int:
    from swarmd.api.control import ControlClient
    from swarmd.release.author import blob_digests, read_publication, read_statement

    with ControlClient(args.control) as client:
        for path in args.what:
            if path.suffix == ".root":
                client.call("model_publish", roots=[_read(path).hex()])
                print(f"published {path}")
                continue
            if not path.is_dir():
                client.call("model_publish", envelopes=[read_statement(path).encode().hex()])
                print(f"published {path}")
                continue
            publication = read_publication(path)
            signed = publication.release.rollout.stages_percent
            if args.rollout and _stages(args.rollout) != signed:
                stages = ",".join(map(str, signed))
                raise DaemonError(f"the signed stages are {stages}; build and sign again with --rollout {args.rollout}")
            for digest in blob_digests(publication.release):
                _put(client, (path / "blobs" / digest.hex()).read_bytes(), digest.hex())
            client.call("model_publish", envelopes=[publication.envelope.encode().hex()])
            print(f"published {publication.release.model} {publication.release.version} {publication.digest.hex()}")
    return 0


def _put(client: Any, data: bytes, name: str) -> None:
    for offset in range(0, len(data), PIECE_BYTES):
        piece = base64.b64encode(data[offset : offset + PIECE_BYTES]).decode()
        answer = client.call("model_put", name=name, offset=offset, size=len(data), data=piece)
    while not answer["done"]:
        time.sleep(0.02)
        answer = client.call("model_put", name=name, offset=len(data), size=len(data), data="")


def _statement(args: argparse.Namespace) -> int:
    """Write, and where keys are given sign and publish, one of the small statements."""
    from swarmd.release.author import write_signed
    from swarmd_protocols.trust.envelopes import ROLE_OF, Envelope

    kind, payload = _payload(args)
    seeds = _seeds(args, ROLE_OF[kind])  # A key of another role is refused before anything is written.
    envelope = write_signed(args.out, Envelope(kind, payload), seeds)
    print(f"{kind} {envelope.digest.hex()} in {args.out}, {len(envelope.signatures)} signatures")
    if args.publish:
        ask(args, "model_publish", envelopes=[envelope.encode().hex()])
        print("published")
    return 0


def _payload(args: argparse.Namespace) -> tuple[str, bytes]:
    import time

    from swarmd_protocols.releases.statements import Floor, Force, Halt, Heartbeat, Revoke
    from swarmd_protocols.trust.roots import mark

    now_s, epoch = int(time.time()), _epoch(args)
    if args.model_verb == "floor":
        return "floor", Floor(args.model, epoch, args.version, now_s).payload()
    if args.model_verb == "heartbeat":
        from swarmd.release.author import read_statement

        newest = tuple(sorted(mark(read_statement(path)) for path in args.newest))
        return "heartbeat", Heartbeat(epoch, args.sequence, now_s, newest).payload()
    model, digest = _named_release(args)
    if args.model_verb == "force":
        return "force", Force(model, epoch, digest, args.stage, now_s).payload()
    if args.model_verb == "halt":
        return "halt", Halt(model, epoch, digest, args.reason, now_s).payload()
    return "model-revoke", Revoke(model, epoch, digest, args.reason, now_s).payload()


def _named_release(args: argparse.Namespace) -> tuple[str, bytes]:
    from swarmd.release.author import read_publication

    if Path(args.release).is_dir():
        publication = read_publication(Path(args.release))
        return publication.release.model, publication.digest
    try:
        digest = bytes.fromhex(args.release)
    except ValueError:
        digest = b""
    if len(digest) != 32 or not args.model:
        raise DaemonError("name the release by its publication folder, or by --model and its digest of 64 hex digits")
    return args.model, digest


def _status(args: argparse.Namespace) -> int:
    status = ask(args, "model_status")
    if args.json:
        print_json(status)
        return 0
    if not status["models"]:
        print("no release is known here: every node runs the model that its configuration names")
    for model, about in status["models"].items():
        desired = about["desired"]["version"] if about["desired"] else "the built-in model"
        print(f"{model}: desired {desired}, floor {about['floor']}, drift {about['drift']}")
        rows = [
            (name, row["version"], row["phase"], row["verdict"], row["reason"]) for name, row in about["nodes"].items()
        ]
        print_table(("node", "version", "phase", "verdict", "reason"), rows)
        for one in about["releases"]:
            passed = f"{one['passes']} of {one['needed']} passes, {one['fails']} fails"
            print(f"  release {one['version']} {one['digest'][:16]}: {one['state']}, {passed}")
    if status["stale"]:
        print("STALE: no new heartbeat for long; releases may be withheld from this node", file=sys.stderr)
    return 0
