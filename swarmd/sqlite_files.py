"""What every SQLite file of the daemon needs when it is damaged, of a later version, or its disk fails.

`PRAGMA user_version` is the number of a file's schema; 0 is 1, of before files had one. It rises with what an older
version would misread. What is only added, as a table, an index or a column with a default, leaves it, so that one
version back works on the same file.
"""

import contextlib
import errno
import os
import sqlite3
import stat
import time
from collections.abc import Sequence
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
CACHE_KIB = 64
"""Pages of a file that SQLite keeps, in KiB, and so what each open file adds to the memory as it grows: what is read is
read once, at the start."""
LOG_PAGES = 64
"""Pages of 4 KiB in a file's log of writes from which on it is folded into the file, by whoever writes. SQLite's own
1,000 are 4 MB beside each file, ever after."""
LOG_KEPT_BYTES = 512 << 10
"""What stays of a log that a large transaction made larger. Below that it keeps its size and is written over: a file
that grows makes each sync dearer."""


SCHEMA_VERSION = 1
"""Of all files, as long as none has needed another."""


class LaterFileError(sqlite3.DatabaseError):
    """A later version of swarmd wrote this file; it is as it was."""


def check_version(database: sqlite3.Connection) -> int:
    """The number of a file's schema, where this version can read it.

    Raises:
        LaterFileError: It cannot.
        sqlite3.Error: The file cannot be read, or is damaged.
    """
    version = int(database.execute("PRAGMA user_version").fetchone()[0])
    if not 0 <= version <= SCHEMA_VERSION:
        raise LaterFileError(
            f"a later version of swarmd wrote it (schema {version}, and this one knows {SCHEMA_VERSION}): run that "
            "version, or put back the copy from before it"
        )
    return version or 1


def open_sound(path: Path, settings: Sequence[str], schema: str, look: str = "quick_check") -> sqlite3.Connection:
    """Open a file that only its owner reads, in WAL mode with a small cache and log, and look whether it is sound.

    Args:
        path: Which.
        settings: More pragmas, such as "synchronous=FULL".
        schema: What is made where it is missing.
        look: "quick_check", or "integrity_check", which compares each index with its table and takes longer.

    Raises:
        LaterFileError: A later version wrote it; nothing in it has changed.
        sqlite3.Error: It cannot be opened, or is damaged.
    """
    try:
        _make_private(path)
    except OSError as error:
        refused = sqlite3.OperationalError(error.strerror)
        refused.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
        raise refused from error
    database = sqlite3.connect(path, isolation_level=None, timeout=1.0)
    try:
        check_version(database)
        bounds = (f"cache_size=-{CACHE_KIB}", f"wal_autocheckpoint={LOG_PAGES}", f"journal_size_limit={LOG_KEPT_BYTES}")
        for setting in ("journal_mode=WAL", *bounds, *settings):
            database.execute(f"PRAGMA {setting}")
        begin = "BEGIN"
        if database.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
            begin = f"BEGIN IMMEDIATE; PRAGMA user_version={SCHEMA_VERSION}"
        # Whole or not at all: tables without their number would be taken for those of schema 1.
        database.executescript(f"{begin}; {schema}; COMMIT")
        verdict = database.execute(f"PRAGMA {look}(1)").fetchone()[0]
        if verdict != "ok":
            raise sqlite3.DatabaseError(str(verdict))
    except BaseException:
        database.close()
        raise
    return database


def _make_private(path: Path) -> None:
    """Make a file where there is none, and let its owner alone read it.

    By descriptors: whose folder it is may put a link to another's file in its place at any moment, and for root that
    would change any file. One that is there is held without being opened (O_PATH): closing it else would let go of the
    locks that this process has on it.

    Raises:
        OSError: The system refuses, or root would follow a link of another account's.
    """
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        return
    held = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(held)
        if stat.S_ISLNK(status.st_mode):
            if os.geteuid() == 0 and status.st_uid != 0:
                raise PermissionError(errno.EPERM, "it is a link of another account, which root does not follow")
            _make_private(path.resolve())
        elif stat.S_ISREG(status.st_mode) and stat.S_IMODE(status.st_mode) != 0o600:
            os.chmod(f"/proc/self/fd/{held}", 0o600)
    finally:
        os.close(held)


def is_the_disk(error: Exception) -> bool:
    """Whether the disk, not the file's content, is at fault: such an error may pass, and the file must stay."""
    return isinstance(error, OSError) or getattr(error, "sqlite_errorcode", 0) & 0xFF in _DISK_CODES


def in_words(path: Path, error: Exception) -> str:
    """What a file's failure is, for people, and what to do about it."""
    if is_the_disk(error):
        return f"{path} cannot be used now: {error}; look at its disk, its rights, and who else writes it"
    if isinstance(error, LaterFileError):
        return f"{path} stays as it is: {error}"
    return f"{path} is damaged, or of another version: {error}; put it back from a copy, or move it away"


def move_aside(path: Path, cause: Exception) -> Path:
    """Give a file that is damaged, or of a later version, a name of its own beside it, with its log.

    Args:
        path: Which.
        cause: What was found; tells the two apart in the name.

    Returns:
        That name.
    """
    word = "later" if isinstance(cause, LaterFileError) else "corrupt"
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    number = 0
    while True:
        aside = path.with_name(f"{path.name}.{word}-{stamp}-{number}")
        if not aside.exists():
            break
        number += 1
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.replace(path.with_name(path.name + suffix), aside.with_name(aside.name + suffix))
    return aside


def is_of_the_row(error: Exception) -> bool:
    """Whether what is to be written is at fault, not the file: then others' rows can be."""
    if isinstance(error, sqlite3.Error):
        return isinstance(error, (sqlite3.IntegrityError, sqlite3.DataError))
    return not isinstance(error, OSError)
