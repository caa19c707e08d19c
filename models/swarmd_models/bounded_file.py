"""Files from outside: opened without waiting, and whole in memory where one is no larger than it may be."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from swarmd_models.errors import ModelError


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading; a pipe in its place, into which nobody may ever write, holds nobody.

    Raises:
        OSError: It cannot be opened, or is no regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return os.fdopen(descriptor, "rb")


def read_bounded(path: Path, most_bytes: int, what: str, error: type[ModelError], remedy: str = "") -> bytes:
    """Read a file whole; of one that is too large, or never ends, one byte more than may be is read.

    Args:
        path: Where it lies.
        most_bytes: What it may have; a whole number of KiB, from 1 MiB of MiB, for it is said so.
        what: What it is to whoever reads the message, such as "bundle".
        error: What to raise.
        remedy: What to do about one that is too large; "" where nothing can be.

    Raises:
        ModelError: `error`, where it cannot be read or is too large; the message names the file.
    """
    try:
        with path.open("rb") as file:
            data = file.read(most_bytes + 1)
    except OSError as reason:
        raise error(f"cannot read {what} {path}: {reason.strerror}") from reason
    if len(data) > most_bytes:
        size = f"{most_bytes >> 20} MiB" if most_bytes >= 1 << 20 else f"{most_bytes >> 10} KiB"
        raise error(f"{what} {path} is larger than {size}" + (f"; {remedy}" if remedy else ""))
    return data
