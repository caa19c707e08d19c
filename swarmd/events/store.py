"""The file of events: SQLite (WAL), one thread that alone reads and writes it, bounds on everything.

- `put` returns at once; what was put together is one transaction, synced before it counts as written
  (`synchronous=FULL`), so a power cut takes at most what was put since the last sync began, or within `GATHER_S`.
- A full or failing disk: events wait in memory (`WAITING_MAX`, then the oldest go and are counted), are found by `find`
  all the same, and are written when the disk takes them. A damaged file is moved aside, never deleted; what can be
  read of it is kept.
- Bounds: each other node answers for at most `author_rows` rows, whoever wrote them down; the file for `max_bytes`,
  beyond which rows of whoever answers for the most go first; `max_age_ms`, except that the newest `KEPT_ROWS` stay
  whatever the clock says.
"""

import asyncio
import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from swarmd.events.record import EventRecord
from swarmd.sqlite_files import check_version, is_the_disk, move_aside, open_sound

FILE_NAME = "events.sqlite"
WAITING_MAX = 2_000
"""Events that wait for a disk, about 1 MB: more than a day's of a quiet swarm."""
KEPT_ROWS = 1_000
"""Newest rows that no age takes: a clock that is years off must not empty the file."""
FAIR_ROWS = 32
"""Rows that every node keeps while the file is too large, as long as another one has more."""
FOUND_MAX = 10_000
"""Rows of one answer, some 4 MB as JSON."""
RETRY_S = 5.0
"""Seconds between two attempts on a disk that fails."""
GATHER_S = 0.25
"""Seconds between two transactions: a lone event is written at once, and those of a swarm that forms share a sync."""
AGE_CHECK_S = 3600.0
"""Seconds between two looks for rows that are too old."""
ROW_BYTES = 1_024
"""Bytes of the file's bound that a row counts for: typical rows take a third of that, indices and half-empty pages
included, the longest no more."""
_CHUNK_ROWS = 64
"""Rows of one transaction, one sync each; the room that is kept free holds them."""
_PAGE_BYTES = 4096
_FULL_SHARE = 0.9
"""Of the file's bound, from which rows go; the rest is room for indices and the transaction under way."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS events (
    seq INTEGER PRIMARY KEY, origin TEXT NOT NULL, life INTEGER NOT NULL, number INTEGER NOT NULL,
    at_ms INTEGER NOT NULL, stored_ms INTEGER NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL, subject TEXT NOT NULL,
    reason TEXT NOT NULL, evidence TEXT NOT NULL, account TEXT NOT NULL,
    UNIQUE (origin, life, number));
CREATE INDEX IF NOT EXISTS by_time ON events (at_ms);
CREATE INDEX IF NOT EXISTS by_account ON events (account, seq);
"""
_COLUMNS = "at_ms, name, origin, life, number, kind, subject, reason, evidence"


class Bounds(msgspec.Struct, frozen=True):
    """How much is kept."""

    max_bytes: int = 16 << 20
    max_age_ms: int = 90 * 86_400_000
    author_rows: int = 256


class Query(msgspec.Struct, frozen=True):
    """Which events are asked for; the newest `limit` of those that match."""

    since_ms: int = 0
    until_ms: int = 1 << 62
    kinds: tuple[str, ...] = ()
    """Empty: all."""
    origin: str = ""
    """A node's name, or the first digits of its id; "": every node's."""
    limit: int = 1_000

    def matches(self, record: EventRecord) -> bool:
        """Whether this event is asked for."""
        return (
            self.since_ms <= record.at_ms <= self.until_ms
            and (not self.kinds or record.kind in self.kinds)
            and (not self.origin or self.origin == record.origin or record.origin_id.startswith(self.origin))
        )


class _Entry(msgspec.Struct, frozen=True):
    record: EventRecord
    account: str
    """Id of the node that answers for the row's cost; "" for this one."""


class EventStore:
    """Owner of one file of events."""

    def __init__(self, folder: Path, bounds: Bounds, on_problem: Callable[[str], None]) -> None:
        """Prepare; `open` does the rest.

        Args:
            folder: Where the file lies; exists.
            bounds: How much is kept.
            on_problem: Told on the loop that the disk fails (a sentence), or takes events again ("").
        """
        self._path = folder / FILE_NAME
        self._bounds = bounds
        self._on_problem = on_problem
        self._thread = ThreadPoolExecutor(1, "events")
        self._lock = threading.Lock()
        self._waiting: list[_Entry] = []
        self._database: sqlite3.Connection | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._problem = ""
        self._retry_at_s = 0.0
        self._wrote_s = float("-inf")
        self._aged_at_s = 0.0
        self._closed = False
        self.moved_aside: Path | None = None
        """Where a damaged file was moved to, in this life."""
        self.counts = {"written": 0, "dropped": 0, "pruned": 0, "failures": 0}

    # --- on the loop ----------------------------------------------------------------------------------------------

    async def open(self) -> str:
        """Open or create the file; returns the kind of the last event that this node wrote, "" for none."""
        self._loop = asyncio.get_running_loop()
        return await self._loop.run_in_executor(self._thread, self._begin)

    def put(self, record: EventRecord, account: str = "") -> None:
        """Keep an event; returns at once.

        Args:
            record: What happened.
            account: Who answers for the row: another node's id, or a word for what repeats at this one; "": this node.
        """
        if self._closed:
            return
        with self._lock:
            self._waiting.append(_Entry(record, account))
            if len(self._waiting) > WAITING_MAX:
                # What others cause goes before what this node has to say.
                del self._waiting[next((at for at, one in enumerate(self._waiting) if one.account), 0)]
                self.counts["dropped"] += 1
            is_first = len(self._waiting) == 1
        if is_first and self._loop is not None and (wait_s := self._wrote_s + GATHER_S - time.monotonic()) > 0:
            self._loop.call_later(wait_s, self._write_gathered)
        elif is_first or (self._problem and time.monotonic() >= self._retry_at_s):
            self._thread.submit(self._write)

    def _write_gathered(self) -> None:
        if not self._closed:
            self._thread.submit(self._write)

    def tick(self) -> None:
        """Once a second: try again where the disk failed, and look for old rows now and then."""
        now_s = time.monotonic()
        if self._waiting and now_s >= self._retry_at_s:
            self._thread.submit(self._write)
        if now_s >= self._aged_at_s and not self._closed:
            self._aged_at_s = now_s + AGE_CHECK_S
            self._thread.submit(self._age)

    async def find(self, query: Query) -> list[EventRecord]:
        """What matches, oldest first."""
        assert self._loop is not None
        return await self._loop.run_in_executor(self._thread, self._find, query)

    def close(self) -> None:
        """Write what waits and close; may be called twice."""
        if self._closed:
            return
        self._closed = True
        self._thread.submit(self._end)
        self._thread.shutdown(wait=True)

    # --- in the thread ----------------------------------------------------------------------------------------------

    def _begin(self) -> str:
        try:
            self._database = self._connected()
            row = self._database.execute(
                "SELECT kind FROM events WHERE account='' ORDER BY seq DESC LIMIT 1"
            ).fetchone()
        except sqlite3.Error as error:
            self._failed(error)
            return ""
        return "" if row is None else str(row[0])

    def _connected(self) -> sqlite3.Connection:
        try:
            return self._connect()
        except sqlite3.DatabaseError as error:
            if is_the_disk(error):
                raise
            rows = self._salvage()
            self.moved_aside = move_aside(self._path, error)
            database = self._connect()
            with contextlib.suppress(sqlite3.Error):
                database.executemany(f"INSERT OR IGNORE INTO events VALUES ({','.join('?' * 12)})", rows)
            return database

    def _connect(self) -> sqlite3.Connection:
        pages = self._bounds.max_bytes // _PAGE_BYTES
        return open_sound(self._path, ("synchronous=FULL", f"max_page_count={pages}"), _SCHEMA)

    def _salvage(self) -> list[Any]:
        """Rows of a damaged file, from the front and, past the damage, from the back."""
        rows: dict[int, Any] = {}
        for order in ("ASC", "DESC"):
            with (
                contextlib.suppress(sqlite3.Error, TypeError, ValueError),
                contextlib.closing(sqlite3.connect(f"file:{self._path}?mode=ro", uri=True)) as database,
            ):
                for row in database.execute(f"SELECT * FROM events ORDER BY seq {order} LIMIT {FOUND_MAX}"):
                    if len(row) == 12 and isinstance(row[0], int):
                        rows[row[0]] = row
        return [rows[seq] for seq in sorted(rows)]

    def _write(self) -> None:
        """Write what waits, a chunk at a time, until nothing does or the disk refuses."""
        while self._write_chunk():
            pass

    def _write_chunk(self) -> bool:
        """One transaction; whether there was anything to write, and it was written."""
        with self._lock:
            entries = self._waiting[:_CHUNK_ROWS]
        if not entries:
            return False
        try:
            if self._database is None:
                self._database = self._connected()
            self._insert(self._database, entries)
        except sqlite3.Error as error:
            self._failed(error)
            return False
        self._wrote_s = time.monotonic()  # Before anybody sees that nothing waits: the next one gathers.
        with self._lock:
            # What was put in the meantime may have pushed some of these out.
            written = set(map(id, entries))
            self._waiting = [entry for entry in self._waiting if id(entry) not in written]
        self.counts["written"] += len(entries)
        if self._problem:
            self._say("")
        return True

    def _insert(self, database: sqlite3.Connection, entries: Sequence[_Entry]) -> None:
        """One transaction; where the file has reached its bound, rows go until it fits."""
        stored_ms = time.time_ns() // 1_000_000
        rows = [
            (
                one.record.origin_id, one.record.life, one.record.number, one.record.at_ms, stored_ms,
                one.record.origin, one.record.kind, one.record.subject, one.record.reason, one.record.evidence,
                one.account,
            )
            for one in entries
        ]  # fmt: skip
        self._make_room(database)
        database.execute("BEGIN IMMEDIATE")
        try:
            database.executemany(
                "INSERT OR IGNORE INTO events (origin, life, number, at_ms, stored_ms, name, kind, subject, reason, "
                f"evidence, account) VALUES ({','.join('?' * 11)})",
                rows,
            )
            for account in sorted({entry.account for entry in entries} - {""}):
                self._prune(
                    database,
                    "DELETE FROM events WHERE account=? AND seq <= (SELECT seq FROM events WHERE account=? "
                    "ORDER BY seq DESC LIMIT 1 OFFSET ?)",
                    (account, account, self._bounds.author_rows),
                )
            database.execute("COMMIT")
        except sqlite3.Error:
            with contextlib.suppress(sqlite3.Error):
                database.execute("ROLLBACK")
            raise

    def _make_room(self, database: sqlite3.Connection) -> None:
        """Let rows go where there are too many: of whoever has the most, this node apart; then the oldest of all."""
        most = self._bounds.max_bytes // ROW_BYTES
        while database.execute("SELECT count(*) FROM events").fetchone()[0] > most:
            row = database.execute(
                "SELECT account, count(*) AS n FROM events WHERE account != '' GROUP BY account ORDER BY n DESC LIMIT 1"
            ).fetchone()
            if row is not None and row[1] > FAIR_ROWS:
                self._drop_oldest(database, "WHERE account=?", (row[0],), max(1, row[1] // 8))
            else:
                self._drop_oldest(database, "", (), max(1, most // 8))
        pages = database.execute("PRAGMA page_count").fetchone()[0]
        pages -= database.execute("PRAGMA freelist_count").fetchone()[0]
        if pages * _PAGE_BYTES > self._bounds.max_bytes * _FULL_SHARE:
            # Rows that went here and there leave pages half empty; the oldest in a run give whole ones back.
            self._drop_oldest(database, "", (), max(1, most // 8))

    def _drop_oldest(self, database: sqlite3.Connection, where: str, values: tuple[object, ...], count: int) -> None:
        statement = f"DELETE FROM events WHERE seq IN (SELECT seq FROM events {where} ORDER BY seq LIMIT ?)"
        self._prune(database, statement, (*values, count))

    def _prune(self, database: sqlite3.Connection, statement: str, values: Iterable[object]) -> None:
        self.counts["pruned"] += database.execute(statement, tuple(values)).rowcount

    def _age(self) -> None:
        if self._database is None:
            return
        oldest_ms = time.time_ns() // 1_000_000 - self._bounds.max_age_ms
        try:
            self._prune(
                self._database,
                "DELETE FROM events WHERE stored_ms < ? AND seq <= (SELECT seq FROM events ORDER BY seq DESC LIMIT 1 "
                "OFFSET ?)",
                (oldest_ms, KEPT_ROWS),
            )
        except sqlite3.Error as error:
            self._failed(error)

    def _find(self, query: Query) -> list[EventRecord]:
        if not self._problem:
            self._write()
        found: dict[str, EventRecord] = {}
        try:
            if self._database is not None:
                found = {record.event_id: record for record in select(self._database, query)}
        except sqlite3.Error as error:
            self._failed(error)
        with self._lock:
            found |= {one.record.event_id: one.record for one in self._waiting if query.matches(one.record)}
        newest = sorted(found.values(), key=lambda one: (one.at_ms, one.origin_id, one.life, one.number))
        return newest[max(0, len(newest) - min(query.limit, FOUND_MAX)) :]

    def _failed(self, error: sqlite3.Error) -> None:
        self.counts["failures"] += 1
        self._retry_at_s = time.monotonic() + RETRY_S
        if not is_the_disk(error) and self._database is not None:
            # It was sound when it was opened: the next attempt moves it aside and keeps what can be read.
            with contextlib.suppress(sqlite3.Error):
                self._database.close()
            self._database = None
        if not self._problem:
            self._say(f"{self._path}: {error}; events wait in memory")

    def _say(self, problem: str) -> None:
        self._problem = problem
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # The loop has ended: nobody is left to be told.
                self._loop.call_soon_threadsafe(self._on_problem, problem)

    def _end(self) -> None:
        self._write()
        if self._database is not None:
            with contextlib.suppress(sqlite3.Error):
                self._database.close()
            self._database = None


def select(database: sqlite3.Connection, query: Query) -> list[EventRecord]:
    """What a file holds of a query, oldest first; raises `sqlite3.Error`."""
    where, values = "at_ms BETWEEN ? AND ?", [query.since_ms, query.until_ms]
    arguments: list[object] = list(values)
    if query.kinds:
        where += f" AND kind IN ({','.join('?' * len(query.kinds))})"
        arguments += query.kinds
    if query.origin:
        where += " AND (name = ? OR substr(origin, 1, ?) = ?)"
        arguments += [query.origin, len(query.origin), query.origin]
    sql = f"SELECT {_COLUMNS} FROM events WHERE {where} ORDER BY at_ms DESC, seq DESC LIMIT ?"
    rows = list(database.execute(sql, (*arguments, min(query.limit, FOUND_MAX))))
    return [EventRecord(row[0], row[1], *row[2:]) for row in reversed(rows)]


def read_file(path: Path, query: Query) -> list[EventRecord]:
    """What a file of events holds, where no daemon runs that could be asked; raises `sqlite3.Error`."""
    with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
        check_version(database)
        return select(database, query)
