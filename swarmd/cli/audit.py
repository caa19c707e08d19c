"""`swarmd audit verify`: check the hash chain of a node's audit log."""

import argparse
import sys
from pathlib import Path

from swarmd.cli.common import add_json, print_json


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser("audit", help="check a node's audit log of releases")
    verbs = parser.add_subparsers(dest="audit_verb", required=True, metavar="VERB")
    verify = verbs.add_parser("verify", help="walk the hash chain; exit 1 when it is broken")
    verify.add_argument("folder", type=Path, help="the daemon's state folder, or the folder of audit.jsonl")
    verify.add_argument(
        "--anchor", default="", help="the newest hash, as noted elsewhere: shows a tail that was cut off"
    )
    add_json(verify)


def run(args: argparse.Namespace) -> int:
    """Walk the chain."""
    from swarmd.errors import DaemonError
    from swarmd.release.audit import FILE_NAME, has_anchor, verify_folder
    from swarmd.release.refusals import FILE_NAME as REFUSED_NAME

    folder = args.folder / "releases" if (args.folder / "releases" / FILE_NAME).exists() else args.folder
    if not (folder / FILE_NAME).exists():
        raise DaemonError(
            f"no {FILE_NAME} in {args.folder}; give the daemon's state folder, such as swarmd-state/NAME (its log "
            "begins with the first release that the node accepts), or the folder operators in that of a `swarmd ground`"
        )
    lines, last, problem = verify_folder(folder)
    refused, _, refused_problem = verify_folder(folder, REFUSED_NAME)
    problem = problem or refused_problem
    if problem is None and args.anchor and not has_anchor(folder, args.anchor):
        problem = "the anchor is not in the log: its end was cut off"
    if args.json:
        print_json({"lines": lines, "refused_lines": refused, "last": last, "ok": problem is None, "problem": problem})
    elif problem is None:
        print(f"{lines} lines, unbroken; newest hash {last}; {refused} lines of what was refused, unbroken")
    else:
        print(f"swarmd audit: after {lines} sound lines: {problem}", file=sys.stderr)
    return 0 if problem is None else 1
