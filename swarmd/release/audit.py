"""An append-only log of what was accepted, refused and swapped; each line carries the hash of the one before.

A line is JSON: `n`, `t_s` (wall clock, informative), `what`, the fields of what happened, `prev` (hash of the line
before) and `hash` (BLAKE2b-256 over `prev` and the line without `hash`). Cutting lines out, changing or moving them
breaks the chain; cutting the end off shows when an anchor (the newest hash, in every status and health report) was
noted elsewhere. When the log is full it is continued in a new file whose first line names the last hash of the old
one.
"""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from swarmd.release.errors import ReleaseError

FILE_NAME = "audit.jsonl"
MAX_BYTES = 8 << 20
MAX_FIELD = 300
_START = "0" * 64


def _hash(previous: str, fields: Mapping[str, object]) -> str:
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return blake2b(f"{previous}\n{text}".encode(), digest_size=32, person=b"swarmd-audit").hexdigest()


@dataclass(frozen=True, slots=True)
class Finding:
    """Where a log stops to be sound."""

    line: int
    reason: str


def verify_lines(lines: Iterable[str], previous: str = "") -> tuple[int, str, Finding | None]:
    """Walk a log.

    Args:
        lines: Of one file.
        previous: The hash that the first line must name; "" to take what it says.

    Returns:
        How many lines are sound, the hash of the last of them, and what is wrong after it, if anything.
    """
    count, last = 0, previous
    for number, line in enumerate(lines, 1):
        try:
            fields = json.loads(line)
            claimed, before = fields.pop("hash"), fields["prev"]
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
            return count, last, Finding(number, "is no audit line (torn or edited)")
        if (last or number > 1) and before != last:
            return count, last, Finding(number, "does not follow the line before it (lines are missing or moved)")
        if claimed != _hash(before, fields):
            return count, last, Finding(number, "was changed after it was written")
        count, last = count + 1, claimed
    return count, last, None


class AuditLog:
    """The daemon's end of the log; one writer.

    Args:
        folder: Where it lies.
        max_bytes: A file larger than this is continued in a new one; the last eight are kept.
    """

    def __init__(self, folder: Path, max_bytes: int = MAX_BYTES) -> None:
        self._path = folder / FILE_NAME
        self._max_bytes = max_bytes
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.last, self._number = self._resume()

    def _resume(self) -> tuple[str, int]:
        """Go on after the last sound line; a torn tail (power cut) is cut off, anything else is left for `verify`."""
        if not self._path.exists():
            return _START, 0
        lines = self._path.read_text("utf-8", "replace").splitlines(keepends=True)
        if lines and not lines[-1].endswith("\n"):
            with open(self._path, "r+b") as file:
                file.truncate(len("".join(lines[:-1]).encode()))
            lines = lines[:-1]
        if not lines:
            return _START, 0
        try:
            fields = json.loads(lines[-1])
            return str(fields["hash"]), int(fields["n"])
        except (ValueError, KeyError, TypeError):
            return _START, 0

    def add(self, what: str, t_s: int, **fields: str | int | bool) -> None:
        """Append one line, durable when this returns.

        Raises:
            ReleaseError: The disk does not take it.
        """
        short = {key: value[:MAX_FIELD] if isinstance(value, str) else value for key, value in fields.items()}
        line: dict[str, object] = {"n": self._number + 1, "t_s": t_s, "what": what, **short, "prev": self.last}
        digest = _hash(self.last, line)
        text = json.dumps({**line, "hash": digest}, sort_keys=True, ensure_ascii=False) + "\n"
        try:
            self._roll(len(text))
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, text.encode())
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise ReleaseError(f"the audit log {self._path} cannot be written: {error.strerror}") from error
        self.last, self._number = digest, self._number + 1

    def _roll(self, more: int) -> None:
        if not self._path.exists() or self._path.stat().st_size + more <= self._max_bytes:
            return
        for number in range(8, 1, -1):
            older = self._path.with_suffix(f".jsonl.{number - 1}")
            if older.exists():
                older.replace(self._path.with_suffix(f".jsonl.{number}"))
        self._path.replace(self._path.with_suffix(".jsonl.1"))


def verify_folder(folder: Path) -> tuple[int, str, str | None]:
    """Walk all files of a log, oldest first.

    Returns:
        Sound lines, the newest hash, and what is wrong, or None.
    """
    files = [folder / f"{FILE_NAME}.{number}" for number in range(8, 0, -1)] + [folder / FILE_NAME]
    total, last = 0, ""
    for path in files:
        if not path.exists():
            continue
        count, last, finding = verify_lines(path.read_text("utf-8", "replace").splitlines(), last)
        total += count
        if finding is not None:
            return total, last, f"{path.name}, line {finding.line}: {finding.reason}"
    return total, last, None
