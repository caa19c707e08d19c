"""Append-only logs, `audit.jsonl` and `refused.jsonl`, each line of which carries the hash of the one before.

`audit.jsonl` says what was accepted and what this node did; who cannot sign cannot make it grow. What was refused is in
`refused.jsonl` (`refusals.py`), which others can fill and which therefore has shares.

A line is JSON: `n`, `t_s` (wall clock, informative), `what`, the fields of what happened, `prev` (hash of the line
before) and `hash` (BLAKE2b-256 over `prev` and the line without `hash`). Cutting lines out, changing or moving them
breaks the chain; cutting the end off shows when an anchor (the newest hash, in every status and health report) was
noted elsewhere. When the log is full it is continued in a new file whose first line names the last hash of the old
one.
"""

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO

import msgspec

from swarmd.release.errors import ReleaseError

FILE_NAME = "audit.jsonl"
MAX_BYTES = 8 << 20
"""Bytes of one file: some 20,000 lines, years of releases."""
KEPT_FILES = 8
"""Older files that stay beside the one that is written."""
MAX_FIELD = 300
"""Characters of one field: a reason in a sentence and a SHA-256 fit."""
_BLOCK_BYTES = 65_536
"""Read at once from the end of a log: some fifty reviews with their statements."""
_LOOKS_MAX = 8
"""Looks at the files of a log until two agree on their names: renaming them takes milliseconds, once in weeks."""
_START = "0" * 64


def _hash(previous: str, fields: Mapping[str, object]) -> str:
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return blake2b(f"{previous}\n{text}".encode(), digest_size=32, person=b"swarmd-audit").hexdigest()


class Finding(msgspec.Struct, frozen=True):
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
        max_bytes: A file larger than this is continued in a new one.
        name: File name; older files have a number after it.
        kept_files: How many older files stay.
        max_field: Characters of one field; what is longer is cut.
    """

    def __init__(
        self,
        folder: Path,
        max_bytes: int = MAX_BYTES,
        name: str = FILE_NAME,
        kept_files: int = KEPT_FILES,
        max_field: int = MAX_FIELD,
    ) -> None:
        self._max_field = max_field
        self._path = folder / name
        self._max_bytes = max_bytes
        self._kept_files = kept_files
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.last, self._number = self._resume()

    def _resume(self) -> tuple[str, int]:
        """Go on after the last sound line; a torn tail (power cut) is cut off, anything else is left for `verify`.

        Where a new file was begun and nothing came into it (power cut, full disk), that line is in the one before.
        """
        whole = b""
        for path in (self._path, self._path.with_suffix(".jsonl.1")):
            data = path.read_bytes() if not whole and path.exists() else b""
            whole = whole or data[: data.rfind(b"\n") + 1]
            if path == self._path and whole != data:
                os.truncate(path, len(whole))
        if not whole:
            return _START, 0
        try:
            fields = json.loads(whole[:-1].rpartition(b"\n")[2])
            return str(fields["hash"]), int(fields["n"])
        except (ValueError, KeyError, TypeError, RecursionError):
            return _START, 0

    @property
    def path(self) -> Path:
        """The file that is written."""
        return self._path

    def add(self, what: str, t_s: int, **fields: str | int | bool) -> None:
        """Append one line, durable when this returns.

        Raises:
            ReleaseError: The disk does not take it.
        """
        self.add_all([{"t_s": t_s, "what": what, **fields}])

    def add_all(self, entries: Sequence[Mapping[str, str | int | bool]]) -> bool:
        """Append lines with one sync, durable when this returns.

        Args:
            entries: `what`, `t_s` and the fields of each.

        Returns:
            Whether a new file was begun for them.

        Raises:
            ReleaseError: The disk does not take them; none counts as written.
        """
        last, number, text = self.last, self._number, ""
        for entry in entries:
            short = {key: value[: self._max_field] if isinstance(value, str) else value for key, value in entry.items()}
            number += 1
            line: dict[str, object] = {"n": number, **short, "prev": last}
            last = _hash(last, line)
            text += json.dumps({**line, "hash": last}, sort_keys=True, ensure_ascii=False) + "\n"
        data = text.encode()
        try:
            rolled = self._roll(len(data))
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                _append(descriptor, data)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise ReleaseError(f"the audit log {self._path} cannot be written: {error.strerror}") from error
        self.last, self._number = last, number
        return rolled

    def _roll(self, more: int) -> bool:
        if not self._path.exists() or self._path.stat().st_size + more <= self._max_bytes:
            return False
        for number in range(self._kept_files, 1, -1):
            older = self._path.with_suffix(f".jsonl.{number - 1}")
            if older.exists():
                older.replace(self._path.with_suffix(f".jsonl.{number}"))
        self._path.replace(self._path.with_suffix(".jsonl.1"))
        return True


def _append(descriptor: int, data: bytes) -> None:
    """All of it, durable, or nothing: a disk that fills takes a part, and a part of a line would break the chain."""
    before_bytes = os.fstat(descriptor).st_size
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, before_bytes)
        raise


def lines_of(path: Path) -> list[str]:
    """The lines of a file of a log, without their ends; see `_lines`."""
    return _lines(path.read_bytes())


def _lines(data: bytes) -> list[str]:
    """Texts may hold what Unicode ends lines with (U+0085, U+2028); here a line ends with a line feed alone."""
    return data.decode("utf-8", "replace").removesuffix("\n").split("\n")


@contextlib.contextmanager
def opened(folder: Path, name: str = FILE_NAME) -> Iterator[list[tuple[Path, BinaryIO]]]:
    """The files of a log as they stand at one moment, oldest first: its writer may give them other names meanwhile.

    Args:
        folder: Where they lie.
        name: Which log.
    """
    with contextlib.ExitStack() as stack:
        for _ in range(_LOOKS_MAX):
            stack.close()
            files: list[tuple[Path, BinaryIO]] = []
            for path in _files(folder, name):
                with contextlib.suppress(FileNotFoundError):
                    files.append((path, stack.enter_context(path.open("rb"))))
            if [(path, os.fstat(file.fileno()).st_ino) for path, file in files] == _inodes(folder, name):
                break
        yield files


def _inodes(folder: Path, name: str) -> list[tuple[Path, int]]:
    found = []
    for path in _files(folder, name):
        with contextlib.suppress(FileNotFoundError):
            found.append((path, path.stat().st_ino))
    return found


def verify_folder(folder: Path, name: str = FILE_NAME) -> tuple[int, str, str | None]:
    """Walk all files of a log, oldest first.

    Args:
        folder: Where they lie.
        name: Which log.

    Returns:
        Sound lines, the newest hash, and what is wrong, or None.
    """
    return FolderCheck(folder, name).verify()


class FolderCheck:
    """`verify_folder` again and again, for who is asked often: a file that is as it was is not read again.

    Args:
        folder: Where the files lie.
        name: Which log.
    """

    def __init__(self, folder: Path, name: str = FILE_NAME) -> None:
        self._folder, self._name = folder, name
        self._checked: dict[tuple[object, ...], tuple[int, str, Finding | None]] = {}
        """By what the file system says of a file, and the hash before it; its change time is nobody's to set."""

    def verify(self) -> tuple[int, str, str | None]:
        """See `verify_folder`."""
        before, self._checked = self._checked, {}
        with opened(self._folder, self._name) as files:
            # Whether lines are missing in front is known as long as no file had to go.
            has_gone = any(path.name == f"{self._name}.{KEPT_FILES}" for path, _ in files)
            total, last = 0, "" if has_gone or self._name != FILE_NAME else _START
            for path, file in files:
                is_now = os.fstat(file.fileno())
                key = (is_now.st_ino, is_now.st_size, is_now.st_mtime_ns, is_now.st_ctime_ns, last)
                found = self._checked[key] = before.get(key) or verify_lines(_lines(file.read(is_now.st_size)), last)
                count, last, finding = found
                total += count
                if finding is not None:
                    return total, last, f"{path.name}, line {finding.line}: {finding.reason}"
        return total, last, None


def newest_lines(file: BinaryIO, most: int) -> list[str]:
    """The last lines of a file of a log, the newest first, read from its end."""
    at, data = file.seek(0, os.SEEK_END), b""
    while at and data.count(b"\n") <= most:
        before, at = at, max(0, at - _BLOCK_BYTES)
        file.seek(at)
        data = file.read(before - at) + data
    return _lines(data)[: -most - 1 : -1]


def has_anchor(folder: Path, anchor: str, name: str = FILE_NAME) -> bool:
    """Whether a line of a log that verifies has this hash; a text in a line that says so counts for nothing."""
    with opened(folder, name) as files:
        return any(json.loads(line)["hash"] == anchor for _, file in files for line in _lines(file.read()))


def _files(folder: Path, name: str) -> list[Path]:
    """The files of a log that there are, oldest first."""
    files = [*(folder / f"{name}.{number}" for number in range(KEPT_FILES, 0, -1)), folder / name]
    return [path for path in files if path.exists()]
