"""The journal: key-value records in SQLite (WAL), each batch durable before it returns.

One `commit` is one transaction: the driver gathers the `Persist` effects of one `handle` call and commits them before
it performs any of its sends.

How durable (https://sqlite.org/pragma.html#pragma_synchronous): in WAL mode `NORMAL` survives every crash of the
process, SIGKILL included, because the pages are in the kernel before `commit` returns; a power cut may lose the last
transactions, though never the order or the integrity. `FULL` adds an fsync to each commit: 1 to 100 ms on a memory
card, on the event loop. So facts use NORMAL, and records of identity and incarnation, which keep a node from
contradicting what it signed in an earlier life, use FULL: they are few. `state.durability = "power"` uses FULL for
all.

Faults: a journal that cannot be read is moved aside, never deleted; what could be read of it is kept. When the disk is
full or fails, records stay in memory (an alarm says so) and are written as soon as it takes them again.

Bounds: the file stops at `FILE_BYTES`, whoever wants more, and an alarm names whose records are the most; what waits in
memory stops at `PENDING_BYTES`, where the oldest facts go first and records of identity never. The protocols keep each
author within a share far below that: these bounds are for what they do not foresee.
"""

import contextlib
import os
import sqlite3
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from swarmd.errors import JournalError
from swarmd.sqlite_files import is_the_disk, move_aside, open_sound

FILE_NAME = "journal.sqlite"
FILE_BYTES = 256 << 20
"""Bytes of the file: 64 authors with all of their 4 MiB share; a small card holds it."""
PENDING_BYTES = 8 << 20
"""Bytes of keys and values that wait in memory: minutes of a busy swarm's facts while a disk is full."""
RETRY_NS = 2_000_000_000
"""Nanoseconds between two attempts on a disk that fails: each one may block the loop for as long as the disk does."""
_PAGE_BYTES = 4096
"""SQLite's own default; the bound of the file is counted in pages."""
_RESERVE_PAGES = 256
"""Pages above the bound, 1 MiB, that only records of identity may take: no flood of facts may cost a node its own."""
_AUTHOR_KEY_BYTES = 24
"""Leading bytes of a key that say whose record it is: a name of 8 and a node id of 16."""
_SCHEMA = "CREATE TABLE IF NOT EXISTS records (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"

Record = tuple[bytes, bytes | None]


class Journal:
    """One open journal; the only writer, which a lock on its directory ensures."""

    def __init__(
        self,
        directory: Path,
        durability: str = "process",
        synced_prefixes: Sequence[bytes] = (),
        file_bytes: int = FILE_BYTES,
    ) -> None:
        """Open or create it; recovers by itself from a torn or corrupt file.

        Args:
            directory: Created when missing, mode 0700.
            durability: "process" or "power".
            synced_prefixes: Keys that begin so are always synced to the disk.
            file_bytes: Where the file stops to grow.

        Raises:
            JournalError: The directory cannot be used, or another daemon uses it.
        """
        self.directory = directory
        self._path = directory / FILE_NAME
        self._wal = f"{self._path}-wal"
        self._full = durability == "power"
        self._synced_prefixes = tuple(synced_prefixes)
        self._file_pages = max(16, file_bytes // _PAGE_BYTES)
        self._pending: dict[bytes, bytes | None] = {}
        self._pending_bytes = 0
        self._retry_at_ns = 0
        self._database: sqlite3.Connection | None = None
        self.alarms: list[tuple[str, str]] = []
        """(code, text) since the last `take_alarms`."""
        self.commits = 0
        self.failures = 0
        self.dropped = 0
        """Facts that had to go because neither disk nor memory had room."""
        self.recovered_from: Path | None = None
        """Where an unreadable journal was moved to, in this life."""
        self._lock = _lock_directory(directory)
        self.records = self._open()
        """What an earlier life left, by key; the caller may drop it once the node is built."""

    @property
    def degraded(self) -> bool:
        """True while records wait in memory for a disk that takes them."""
        return bool(self._pending) or self._database is None

    @property
    def folder(self) -> Path:
        """Where it lies; this daemon's alone."""
        return self._path.parent

    def commit(self, records: Sequence[Record], now_ns: int | None = None) -> None:
        """Write a batch in one transaction; never raises: a failing disk degrades to memory.

        Args:
            records: (key, value), None deletes; in order.
            now_ns: Monotonic clock, for the pause between retries.
        """
        if not records:
            return
        now = time.monotonic_ns() if now_ns is None else now_ns
        if self._pending or self._database is None:
            self._wait(records)
            if now >= self._retry_at_ns or any(self._is_identity(key) for key, _ in records):
                self.retry(now)
            return
        try:
            self._write(records)
        except sqlite3.Error as error:
            self._wait(records)
            self._failed(error, now)

    def retry(self, now_ns: int) -> None:
        """Try to write what waits in memory; called by `commit` and by the daemon's slow timer."""
        if not self._pending and self._database is not None:
            return
        try:
            if self._database is None:
                self._database = self._connected()
            # What goes makes room for what comes; each key waits once, so the order between keys means nothing.
            urgent = [(key, value) for key, value in self._pending.items() if value is None or self._is_identity(key)]
            if urgent:
                self._write(urgent)
                self._settle(urgent)
            self._write(list(self._pending.items()))
        except (sqlite3.Error, OSError) as error:
            self._failed(error, now_ns)
            return
        self._settle(list(self._pending.items()))
        missing = (
            f"{self.dropped} facts are missing, the swarm gives them back" if self.dropped else "nothing is missing"
        )
        self._alarm("journal_recovered", f"{self._path}: the disk takes records again; {missing}")

    def checkpoint(self) -> None:
        """Fold the write-ahead log into the file; syncs, so call it from a thread. Uses a connection of its own."""
        with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(self._path, timeout=0.1)) as other:
            other.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def wal_bytes(self) -> int:
        """Size of the write-ahead log."""
        try:
            return os.stat(self._wal).st_size
        except OSError:
            return 0

    def take_alarms(self) -> list[tuple[str, str]]:
        """What a person should know since the last call."""
        taken, self.alarms = self.alarms, []
        return taken

    def close(self) -> None:
        """Write what waits, close, release the directory; may be called twice."""
        if self._pending:
            self.retry(time.monotonic_ns())
        if self._database is not None:
            with contextlib.suppress(sqlite3.Error):
                self._database.close()
            self._database = None
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # --- inside ---------------------------------------------------------------------------------------------------

    def _write(self, records: Sequence[Record]) -> None:
        assert self._database is not None
        identity = any(self._is_identity(key) for key, _ in records)
        synced = self._full or identity
        cursor = self._database.cursor()
        if synced:
            cursor.execute("PRAGMA synchronous=FULL")
        if identity:
            cursor.execute(f"PRAGMA max_page_count={self._file_pages + _RESERVE_PAGES}")
        try:
            cursor.execute("BEGIN IMMEDIATE")
            for key, value in records:
                if value is None:
                    cursor.execute("DELETE FROM records WHERE key=?", (key,))
                else:
                    cursor.execute("INSERT OR REPLACE INTO records VALUES (?, ?)", (key, value))
            cursor.execute("COMMIT")
            self.commits += 1
        except sqlite3.Error:
            with contextlib.suppress(sqlite3.Error):
                cursor.execute("ROLLBACK")
            raise
        finally:
            if synced:
                with contextlib.suppress(sqlite3.Error):
                    cursor.execute("PRAGMA synchronous=NORMAL")
            if identity:
                with contextlib.suppress(sqlite3.Error):
                    cursor.execute(f"PRAGMA max_page_count={self._file_pages}")

    def _is_identity(self, key: bytes) -> bool:
        return key.startswith(self._synced_prefixes)

    def _wait(self, records: Sequence[Record]) -> None:
        """Keep records in memory, the newest of each key, within `PENDING_BYTES`."""
        for key, value in records:
            self._settle([(key, self._pending.get(key))] if key in self._pending else ())
            self._pending[key] = value
            self._pending_bytes += len(key) + len(value or b"")
        if self._pending_bytes <= PENDING_BYTES:
            return
        for key, value in list(self._pending.items()):
            # A deletion frees room, and who loses its own incarnation contradicts itself.
            if value is not None and not self._is_identity(key):
                self._settle([(key, value)])
                self.dropped += 1
                if self._pending_bytes <= PENDING_BYTES:
                    return

    def _settle(self, records: Sequence[Record]) -> None:
        """These wait no longer."""
        for key, value in records:
            del self._pending[key]
            self._pending_bytes -= len(key) + len(value or b"")

    def _heaviest(self) -> str:
        """Whose records are the most, in words; "" where nobody can say."""
        try:
            assert self._database is not None
            row = self._database.execute(
                "SELECT substr(key, 1, ?) AS author, sum(length(key) + length(value)) AS bytes FROM records "
                "GROUP BY author ORDER BY bytes DESC LIMIT 1",
                (_AUTHOR_KEY_BYTES,),
            ).fetchone()
        except (sqlite3.Error, AssertionError):
            return ""
        if row is None:
            return ""
        author, size = bytes(row[0]), int(row[1])
        name = author[8:].hex() if len(author) == _AUTHOR_KEY_BYTES else ascii(author)[2:-1]
        return f"most of it, {size >> 10} KiB, is of {name}; "

    def _failed(self, error: Exception, now_ns: int) -> None:
        self.failures += 1
        self._retry_at_ns = now_ns + RETRY_NS
        if not any(code in ("journal_failing", "journal_full") for code, _ in self.alarms):
            waits = f"{len(self._pending)} records wait in memory and are lost if the daemon dies before"
            if self._is_at_its_bound(error):
                self._alarm(
                    "journal_full",
                    f"{self._path}: it has reached its bound of {self._file_pages * _PAGE_BYTES >> 20} MiB; "
                    f"{self._heaviest()}{waits} there is room: revoke a node that floods",
                )
            else:
                self._alarm("journal_failing", f"{self._path}: {error}; {waits} the disk takes them: free some space")

    def _is_at_its_bound(self, error: Exception) -> bool:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_FULL or self._database is None:
            return False
        with contextlib.suppress(sqlite3.Error):
            return int(self._database.execute("PRAGMA page_count").fetchone()[0]) >= self._file_pages * 0.9
        return False

    def _connected(self) -> sqlite3.Connection:
        database = _connect(self._path)
        database.execute(f"PRAGMA max_page_count={self._file_pages}")
        return database

    def _alarm(self, code: str, text: str) -> None:
        self.alarms.append((code, text))

    def _open(self) -> dict[bytes, bytes]:
        try:
            self._database = self._connected()
            return dict(_read_all(self._database))
        except sqlite3.DatabaseError as error:
            if is_the_disk(error):
                self._database = None
                self._failed(error, time.monotonic_ns())
                return _salvage(self._path)
            return self._start_afresh(error)

    def _start_afresh(self, cause: Exception) -> dict[bytes, bytes]:
        if self._database is not None:
            self._database.close()
            self._database = None
        kept = _salvage(self._path)
        aside = move_aside(self._path, cause)
        self.recovered_from = aside
        self._alarm(
            "journal_corrupt",
            f"{self._path}: {cause}; moved to {aside}, {len(kept)} records could be read and are kept, "
            "the swarm gives back the rest",
        )
        try:
            self._database = self._connected()
            self._write(list(kept.items()))
        except sqlite3.Error as error:
            self._wait(list(kept.items()))
            self._failed(error, time.monotonic_ns())
        return kept


def _lock_directory(directory: Path) -> int:
    import fcntl

    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise JournalError(
            f"{directory}: cannot be used for the journal: {error.strerror}; choose another --state"
        ) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise JournalError(f"{directory}: another daemon uses this directory; give each its own --state") from None
    return handle


def _connect(path: Path) -> sqlite3.Connection:
    # Without a checkpoint of its own, whose sync would stall the event loop; `checkpoint` does it. The log begins anew
    # after it: one that kept its size would look full, and be folded in and synced every second ever after.
    return open_sound(path, ("synchronous=NORMAL", "wal_autocheckpoint=0", "journal_size_limit=0"), _SCHEMA)


def _read_all(database: sqlite3.Connection) -> list[tuple[bytes, bytes]]:
    rows = database.execute("SELECT key, value FROM records").fetchall()
    if not all(type(key) is bytes and type(value) is bytes for key, value in rows):
        raise sqlite3.DatabaseError("a record is no bytes")
    return rows


def _salvage(path: Path) -> dict[bytes, bytes]:
    """Whatever rows can still be read, from the front and, past the damage, from the back."""
    kept: dict[bytes, bytes] = {}
    for order in ("ASC", "DESC"):
        try:
            with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=1.0)) as database:
                for key, value in database.execute(f"SELECT key, value FROM records ORDER BY key {order}"):
                    if type(key) is bytes and type(value) is bytes:  # A damaged head makes a number of it.
                        kept[key] = value
        except (sqlite3.Error, TypeError, ValueError):
            continue
    return kept


def summary(journal: Journal) -> Mapping[str, object]:
    """What `status` says about the journal."""
    return {
        "degraded": journal.degraded,
        "commits": journal.commits,
        "failures": journal.failures,
        "dropped": journal.dropped,
        "moved_aside": str(journal.recovered_from) if journal.recovered_from is not None else "",
    }
