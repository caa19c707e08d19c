"""What every SQLite file of the daemon needs when it is damaged or its disk fails."""

import contextlib
import os
import sqlite3
import time
from pathlib import Path

_DISK_CODES = frozenset(
    {
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_NOMEM,
    }
)


def is_the_disk(error: sqlite3.Error) -> bool:
    """Whether the disk, not the file's content, is at fault: such an error may pass, and the file must stay."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DISK_CODES


def move_aside(path: Path) -> Path:
    """Give a damaged file, with its log, a name of its own beside it; returns that name."""
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    number = 0
    while True:
        aside = path.with_name(f"{path.name}.corrupt-{stamp}-{number}")
        if not aside.exists():
            break
        number += 1
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.replace(path.with_name(path.name + suffix), aside.with_name(aside.name + suffix))
    return aside
