"""Files of an export, each of which is there whole or not at all, whenever the power goes.

Written under a name of its own beside (`NAME.new`), made durable, then renamed; folders that were made for it and its
own are made durable too. What a writer that was killed left is removed by the next one.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from swarmd.durable import sync_folder
from swarmd.errors import DaemonError

DRAFT = ".new"
"""What the name of a file ends with that is not whole yet."""


def write_whole(path: Path, data: bytes | memoryview) -> None:
    """Write a file with all folders above it.

    Raises:
        OSError: It cannot be written; what was there before still is.
    """
    _make_folder(path.parent)
    draft = path.with_name(path.name + DRAFT)
    try:
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


@contextlib.contextmanager
def alone_in(folder: Path, *patterns: str) -> Iterator[None]:
    """Be the only writer of a folder, and begin with removing what one that was killed left of a file.

    Args:
        folder: Made where it is missing.
        patterns: Which files below it the writer writes, as `Path.glob` takes them. Drafts of those go, and nothing
            else.

    Raises:
        DaemonError: Another one writes there, or the folder cannot be made.
    """
    try:
        _make_folder(folder)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise DaemonError(f"{folder} cannot be written: {error.strerror or error}") from error
    with locked(descriptor, folder, f"another export writes into {folder}; wait until it is done", DaemonError):
        try:
            for draft in [one for pattern in patterns for one in folder.glob(pattern + DRAFT)]:
                if draft.is_file():
                    draft.unlink(missing_ok=True)
        except OSError as error:
            raise DaemonError(f"a draft below {folder} cannot be removed: {error.strerror or error}") from error
        yield


@contextlib.contextmanager
def locked(descriptor: int, path: Path, busy: str, refusal: type[DaemonError]) -> Iterator[None]:
    """Hold the lock of an open file or folder, which ends with the process too, and close it.

    Args:
        descriptor: Of it.
        path: Its name, for people.
        busy: What is said where another process holds it.
        refusal: What is raised where it is not held.
    """
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise refusal(busy) from None
        except OSError as error:
            raise refusal(f"{path} cannot be locked: {error.strerror or error}") from error
        yield
    finally:
        os.close(descriptor)


def make_for_owner(path: Path) -> None:
    """Make a file that is missing for whom its folder belongs to: who sends or exports may be another than who runs.

    Raises:
        OSError: It cannot be made.
    """
    with contextlib.suppress(FileExistsError), path.open("xb") as file:
        os.fchmod(file.fileno(), 0o600)
        folder = path.parent.stat()
        with contextlib.suppress(OSError):
            # That very file: whose folder it is may put a link to another's in its place meanwhile.
            os.fchown(file.fileno(), folder.st_uid, folder.st_gid)


def _make_folder(folder: Path) -> None:
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for one in reversed(made):
        sync_folder(one.parent)
