"""`swarmd fleet neighbour`: an operator says yes to a swarm of another owner, or ends it."""

import argparse
import time
from pathlib import Path

from swarmd.cli.desk import check_names, passphrases

_DAYS_MAX = 36_500
"""A hundred years."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What it takes beside name, swarm, revision, key and file."""
    parser.description = (
        "Both swarms' operators sign one, each about the other; then their gateways share positions and claims of "
        "space, and nothing else. A revision with --end ends it from this side."
    )
    parser.add_argument("--root", type=Path, required=True, metavar="FILE", help="the other's roots/0001.root: the pin")
    parser.add_argument("--other", required=True, metavar="SWARM", help="the other swarm's own name")
    parser.add_argument("--days", type=float, default=30.0, metavar="N", help="it ends by itself then (%(default)s)")
    parser.add_argument("--end", action="store_true", help="it ends now")
    parser.add_argument("--claims", type=int, default=32, metavar="N", help="claims that count at once (%(default)s)")
    parser.add_argument(
        "--area-m2", type=int, default=100_000, metavar="M2", help="what they cover together at most (%(default)s)"
    )
    parser.add_argument(
        "--hold-s", type=int, default=900, metavar="S", help="how long one place may be kept (%(default)s)"
    )


def sign(args: argparse.Namespace) -> int:
    """Sign it; raises `DaemonError`."""
    from swarmd.errors import DaemonError
    from swarmd.identity.files import write_named_file
    from swarmd.identity.signers import open_signer
    from swarmd_protocols.crypto import NaClCrypto
    from swarmd_protocols.errors import ProtocolError
    from swarmd_protocols.neighbours.words import AGREEMENT, Agreement, encode_agreement, seal_agreement
    from swarmd_protocols.trust.envelopes import decode_envelope, signed_bytes
    from swarmd_protocols.trust.roots import RootChain

    check_names(args.name, args.swarm, args.other)
    try:
        envelope = decode_envelope(args.root.read_bytes())
        version = RootChain.trust(envelope.encode(), NaClCrypto()).current.version if envelope.kind == "root" else 0
    except (OSError, ProtocolError) as error:
        raise DaemonError(f"{args.root} is no root: {error}; give the other fleet's roots/0001.root") from error
    if envelope.kind != "root":
        raise DaemonError(f"{args.root} is a {envelope.kind} statement; give the other fleet's roots/0001.root")
    if version != 1:
        raise DaemonError(f"{args.root} is root {version} of its fleet; give the other fleet's roots/0001.root")
    signer = open_signer(args.key, passphrases(args))
    if signer.role not in ("", "operator"):
        raise DaemonError(f"{args.key} is a key of the role {signer.role}; this takes one of the role operator")
    now_ms = time.time_ns() // 1_000_000
    if not args.end and not 0 < args.days <= _DAYS_MAX:
        raise DaemonError(f"--days is {args.days:g}; write more than 0 and at most {_DAYS_MAX:,}, or --end")
    until_ms = 0 if args.end else now_ms + round(args.days * 86_400_000)
    said = Agreement(
        args.swarm, args.name, envelope.digest, args.other, args.revision, now_ms, until_ms, args.claims, args.area_m2,
        args.hold_s,
    )  # fmt: skip
    payload = encode_agreement(said)
    signature = signer.sign(signed_bytes(AGREEMENT, payload))
    write_named_file(args.out, seal_agreement(payload, signer.half.public, signature))
    what = "ends the agreement with" if args.end else "agrees with"
    print(f"{args.out}: {args.swarm} {what} {args.other} as {args.name}, revision {args.revision}")
    return 0
