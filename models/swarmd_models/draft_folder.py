"""A folder that appears whole and durable, or not at all.

It is filled beside its place under a name of its own, and renamed:

    .swarmd-draft-0123456789abcdef         what is being written
    .swarmd-draft-0123456789abcdef.lock    held (flock) as long as its writer lives

The rules: the lock is there before its draft and goes after it, so that a draft whose lock nobody holds is a dead
writer's, and the next start removes it. What nobody can lock, or another user's, is left alone. Files are durable
before their folder, all of it before the rename, and the new name before the block ends.
"""

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

_LOCK = re.compile(r"\.swarmd-draft-[0-9a-f]{16}\.lock")
_TRIES = 8
"""Claims of a draft, each of which a sweep may take away in the instant between a lock's making and its holding."""


def sweep_drafts(folder: Path) -> None:
    """Remove the drafts of writers that were killed; those of living ones stay.

    Args:
        folder: Where drafts lie; nothing happens where it is none, or cannot be read.
    """
    with contextlib.suppress(OSError):
        for lock in sorted(path for path in folder.iterdir() if _LOCK.fullmatch(path.name)):
            with contextlib.suppress(OSError):
                _sweep(lock)


@contextlib.contextmanager
def drafted(out: Path) -> Iterator[Path]:
    """Fill a new folder (mode 0700), which takes its name when the block ends; after an error nothing is left of it.

    Args:
        out: The new folder; what is missing above it is made.

    Yields:
        Where to write what will be in it.

    Raises:
        OSError: It cannot be written or made durable, or something stands there by now. Where only its new name could
            not be made durable, it stands, whole.
    """
    missing = [folder for folder in (out.parent, *out.parent.parents) if not folder.exists()]
    out.parent.mkdir(parents=True, exist_ok=True)
    lock, held = _claim(out.parent)
    draft = lock.with_suffix("")
    try:
        draft.mkdir(mode=0o700)
        yield draft
        _sync_tree(draft)
        draft.rename(out)
        for folder in (out.parent, *(made.parent for made in missing)):
            _sync(folder)
    finally:
        with contextlib.suppress(OSError):
            _remove(lock)
        os.close(held)


def _claim(folder: Path) -> tuple[Path, int]:
    """A new lock, and the descriptor that holds it."""
    for _ in range(_TRIES):
        lock = folder / f".swarmd-draft-{secrets.token_hex(8)}.lock"
        held = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            if _is_locked(lock, held):
                return lock, held
        except BaseException:
            os.close(held)
            lock.unlink(missing_ok=True)
            raise
        os.close(held)  # Another's start took it for a dead one's, and removes it.
    raise BlockingIOError(f"each draft in {folder} was swept before it was held")


def _sweep(lock: Path) -> None:
    held = os.open(lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        status = os.fstat(held)
        is_mine = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
        if is_mine and _is_locked(lock, held):
            _remove(lock)
    finally:
        os.close(held)


def _is_locked(lock: Path, held: int) -> bool:
    """Whether this process holds the lock now, and the file still has its name: one that a sweep removed locks nothing.

    Raises:
        OSError: The file system knows no locks.
    """
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(held), os.lstat(lock))
    except (BlockingIOError, FileNotFoundError):
        return False


def _remove(lock: Path) -> None:
    """Remove a draft, then its lock, which stays for the next start where something of the draft does."""
    draft = lock.with_suffix("")
    shutil.rmtree(draft, ignore_errors=True)
    if not os.path.lexists(draft):
        lock.unlink(missing_ok=True)


def _sync_tree(folder: Path) -> None:
    for at, _, names in os.walk(folder, topdown=False, onerror=_raise):
        for name in names:
            _sync(Path(at, name))
        _sync(Path(at))


def _raise(error: OSError) -> None:
    raise error


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
