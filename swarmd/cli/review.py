"""`swarmd review`: confirm, reject or relabel an object, or note something about it, signed with an operator's key."""

import argparse
import sys
import time

from swarmd.cli.common import add_read_flags, ask, plain, print_json
from swarmd.cli.desk import add_passphrase, passphrases

_VERDICTS = {
    "confirm": "it is what it is shown as",
    "reject": "it is nothing of the kind",
    "relabel": "it is something else",
    "withdraw": "take back what this key has said of it",
    "note": "words beside the verdict; none take the note away",
}


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser(
        "review",
        help="confirm, reject or relabel an object, or note something about it",
        description="Say of an object what you know of it, signed with your key, which needs the role operator.",
        epilog="".join(f"{word}: {text}. " for word, text in _VERDICTS.items()),
    )
    parser.add_argument(
        "object", metavar="OBJECT", help="its id, as `swarmd objects` shows it, or an unambiguous start"
    )
    parser.add_argument("verdict", choices=list(_VERDICTS), metavar="VERDICT", help=", ".join(_VERDICTS))
    parser.add_argument("text", nargs="?", default="", metavar="TEXT", help="the right label, or the words of a note")
    parser.add_argument("--key", required=True, metavar="KEY", help="the operator's key file, or agent:NAME")
    add_passphrase(parser)
    add_read_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Ask what the object is, sign, hand over."""
    from swarmd.api.reviewing import draft, read_subject
    from swarmd.errors import DaemonError
    from swarmd.identity.signers import open_signer
    from swarmd_protocols.state.crdt.reviews import BY_MAX_CHARS

    if args.verdict == "relabel" and not args.text:
        raise DaemonError("relabel needs the right label: swarmd review OBJECT relabel LABEL --key KEY")
    signer = open_signer(args.key, passphrases(args))
    if signer.role not in ("", "operator"):
        raise DaemonError(f"{args.key} is a key of the role {signer.role}; this takes one of the role operator")
    # An object's id is found by its start, so that nobody has to type sixteen digits; two that begin so are an error.
    found = [row for row in ask(args, "objects")["objects"] if row["id"].startswith(args.object)] if args.object else []
    if len(found) > 1 and all(row["id"] != args.object for row in found):
        raise DaemonError(f"{len(found)} objects begin with {args.object!r}; give more digits")
    name = args.object if len(found) != 1 else found[0]["id"]
    subject = read_subject(ask(args, "review_subject", object=name))
    made = draft(subject, args.verdict, args.text, time.time_ns() // 1_000_000, signer.half.name[:BY_MAX_CHARS])
    statement = made.sign(signer.half.public, signer.sign)
    answer = ask(args, "review", statement=statement.hex())
    if args.json:
        print_json({"object": name, "verdict": args.verdict, "text": args.text, **answer})
    else:
        print(f"{signer.half.name} says: {plain(made.words())}")
        if subject.revision > 1:
            print("others have said something of it too: swarmd objects", file=sys.stderr)
    return 0
