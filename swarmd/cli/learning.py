"""`swarmd learning status|export`: what members' labels have taught, and the candidate for a release that it makes."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from swarmd.cli.common import add_read_flags, ask, plain, print_json
from swarmd.errors import LearnerError


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser(
        "learning",
        help="what members' labels have taught the head of the model; its candidate for a release",
        description="Shows where learning in the swarm stands, or writes what came out as a bundle. The bundle is used "
        "by nobody before officers have signed it as a release and its canaries have run (swarmd model build, sign, "
        "publish). See docs/protocols/learning.md.",
        allow_abbrev=False,
    )
    parser.add_argument("what", nargs="?", choices=("status", "export"), default="status")
    parser.add_argument("--out", type=Path, help="export: a new folder for the bundle")
    parser.add_argument("--version", help="export: what the new bundle calls itself")
    parser.add_argument("--model", help="export: the bundle that was learned from, where the daemon's is not at hand")
    parser.add_argument(
        "--set", type=Path, action="append", default=[], metavar="SET", dest="sets",
        help="export: a training set whose held-back pictures judge it; several may be given",
    )  # fmt: skip
    parser.add_argument("--unfinished", action="store_true", help="export: also before the last round is merged")
    add_read_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Ask and print, or export.

    Raises:
        DaemonError: Learning is off, or nothing is merged yet.
        ModelError: The bundle cannot be made, or is no better; nothing is left behind.
    """
    if args.what == "export":
        return _export(args)
    answer = ask(args, "learning")
    if args.json:
        print_json(answer)
    elif not answer["enabled"]:
        print("learning is off (learning.enabled)")
    else:
        for name, text in _rows(answer):
            print(f"{name:12}{plain(text)}")
    return 0


def _rows(said: Mapping[str, Any]) -> list[tuple[str, str]]:
    counts = said["counts"]
    rows = [
        ("model", f"{said['model']} {said['model_digest'][:16]}"),
        ("round", f"{said['round']} of {said['rounds']} merged{', over' if said['is_over'] else ''}"),
        ("authors", f"{len(said['authors'])}: {', '.join(said['authors'])}" if said["authors"] else "none yet"),
        ("rows", f"{said['rows']} of all; {said['own_rows']} here, and {said['held_rows']} held back"),
    ]
    if not said["is_over"] and len(said["authors"]) < said["authors_min"]:
        text = f"nothing is merged before {said['authors_min']} members have taught: two cannot outvote one"
        rows.append(("waits", text))
    if said["liars"]:
        rows.append(("liars", f"{', '.join(said['liars'])}: said two things; nothing of them counts"))
    if said["accuracy"] is not None:
        rows.append(("held back", f"{said['start_accuracy']:.3f} right at the start, {said['accuracy']:.3f} now"))
    if said["epsilon"] is not None:
        rows.append(("noise", f"epsilon {said['epsilon']:.2f} for the session (delta 1e-5)"))
    rows.append(("trainings", f"{counts['trained']} done, {counts['failed']} failed, {counts['rested']} put off"))
    rows += [(name, said[name]) for name in ("resting", "problem") if said[name]]
    return rows + [("labels", text) for text in said["set_problems"]]


def _export(args: argparse.Namespace) -> int:
    from swarmd_models.labelling.training_set import load_set
    from swarmd_models.learned_head import Lineage, make_candidate

    if args.out is None or not args.version:
        raise LearnerError("export to where, as which version? give --out FOLDER --version VERSION")
    said = ask(args, "learning_head")
    if not (said["is_over"] or args.unfinished):
        raise LearnerError(f"round {said['round']} of {said['rounds']}: wait for the last, or give --unfinished")
    lineage = Lineage(
        said["model_digest"], said["session"], said["round"], said["rounds"], tuple(said["authors"]),
        tuple(said["liars"]), said["rows"], said["epsilon"],
    )  # fmt: skip
    sets = [load_set(folder) for folder in args.sets]
    made = make_candidate(args.model or said["model"], said["moved"], args.out, args.version, lineage, sets)
    if args.json:
        print_json(made.row())
        return 0
    print(f"{made.path}: {made.changed} weights changed")
    if made.held:
        print(f"right of {made.held} held back: {made.before.right:.3f} before, {made.after.right:.3f} now")
    else:
        print("not judged by labels: give --set SET with pictures held back")
    print(f"next: swarmd model build {made.path} -o FOLDER …, then sign and publish (docs/releases.md)")
    return 0
