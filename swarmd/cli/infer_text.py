"""Texts of `swarmd infer --stream`: shown as they come."""

import argparse
import os
import secrets
import sys
from pathlib import Path
from typing import Any

from swarmd.cli.common import print_json
from swarmd.errors import WorkerError
from swarmd.worker.asking import Wish
from swarmd.worker.asking_text import stream

SESSION_S = 600
"""For how long a text may go on later."""
_SESSION_MAX_BYTES = 1 << 18


def run_text(address: str, model: str, wish: Wish, args: argparse.Namespace) -> int:
    """Show a text as it comes; with `--json` a row a piece.

    Raises:
        ControlError: No API is reachable.
        WorkerError: It refused, or a file cannot be used.
    """
    state = Path(args.session) if args.session else None
    session = _read(state) if state is not None and state.exists() else ""
    last: dict[str, Any] = {}
    for row in stream(
        address, model, _text(args), wish, max_tokens=args.max_tokens, temperature=args.temperature, seed=args.seed,
        session=session, session_ttl_s=SESSION_S if state is not None else 0,
    ):  # fmt: skip
        last = row
        kept = row["parameters"].pop("session", "")
        if state is not None and kept:
            _keep(state, kept)
        if args.json:
            print_json(row)
        else:
            # The words may be a lender's: nothing of them may steer a terminal.
            sys.stdout.write("".join(c if c.isprintable() or c in "\n\t" else "?" for c in row["text_output"]))
        sys.stdout.flush()
    told = last["parameters"]
    if not args.json:
        sys.stdout.write("\n")
    by = f", at the end by {told['lender']}" if "lender" in told else ""
    ended = "" if told["finish_reason"] == "stop" else "; it goes on: --max-tokens"
    print(f"{model} {last['model_version'][:16]}, {told['tokens']} tokens{by}{ended}", file=sys.stderr)
    return 0


def _text(args: argparse.Namespace) -> str:
    if bool(args.input) == bool(args.prompt):
        raise WorkerError("--stream takes either --prompt TEXT or --input FILE (- for standard input)")
    if args.prompt:
        return str(args.prompt)
    try:
        text = sys.stdin.read() if args.input == "-" else Path(args.input).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
        raise WorkerError(f"{args.input} cannot be read: {reason}") from error
    return text.rstrip("\n")


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > _SESSION_MAX_BYTES:
            raise WorkerError(f"{path} is no session: it has {path.stat().st_size} bytes")
        return path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise WorkerError(f"{path} is no session that can be read") from error


def _keep(path: Path, session: str) -> None:
    """Put a session in the place of the one before: who reads the file, or loses power, has one of the two whole."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(session + "\n")
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise WorkerError(f"{path} cannot be written: {error.strerror}") from error
