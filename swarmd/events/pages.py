"""The file of pages: what this node wrote down of its own past, and what it fetched of others', each page as its author
signed it (`swarmd_protocols.past`). SQLite (WAL), one thread that alone reads and writes it.

Rules this file keeps:

- Of two pages that an author signed under one number the one with the lower digest stays, whichever came first.
- Bounds: `max_age_ms`, beside which the newest `KEPT_PAGES` of an author stay; `author_bytes` of each other node and
  `max_bytes` in all, beyond which pages of whoever has the most go first, the oldest before newer ones. What went is
  marked by a floor below which nothing of that author is taken again: so what is kept does not depend on the order in
  which pages came, and whoever asks is told of the gap.
- Events of others' pages lie in a table beside them, for `swarmd events` and the timeline; own events have a file of
  their own (`store.py`).
- A damaged file is moved aside and begun anew: what was fetched can be fetched again.
- Each row is kept with a digest of all that is in it. One that does not hold is shown and given to nobody, counts as
  damaged and goes: a disk's fault is not told to others as if this node had made it up.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from swarmd.events.kinds import KINDS
from swarmd.events.record import SUBJECT_MAX_CHARS, TEXT_MAX_CHARS, EventRecord, clean
from swarmd.events.store import FOUND_MAX, Query
from swarmd.sqlite_files import is_the_disk, move_aside, open_sound
from swarmd_protocols.ids import NodeId
from swarmd_protocols.past import messages, requests
from swarmd_protocols.past.pages import Page, PastEvent, digest_of, read_page
from swarmd_protocols.past.spans import Span, joined
from swarmd_protocols.state.clock import EPOCH_2020_NS

FILE_NAME = "past.sqlite"
KEPT_PAGES = 60
"""Newest pages of an author that no age takes, an hour: a clock that is years off must not empty the file."""
READ_PAGES = 4_000
"""Pages of one answer to this node's own programs, some 6 MB: two minutes of a thousand nodes."""
_EPOCH_MS = EPOCH_2020_NS // 1_000_000
_AGE_PAGES = 60
"""Own pages between two looks for what is too old: an hour."""
_FAILURES = (sqlite3.Error, OSError)
"""What a disk can do: a damaged file that cannot be moved aside either is the second."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS pages (
    author BLOB NOT NULL, number INTEGER NOT NULL, from_ms INTEGER NOT NULL, to_ms INTEGER NOT NULL,
    size INTEGER NOT NULL, page BLOB NOT NULL, digest BLOB NOT NULL, UNIQUE (author, number));
CREATE INDEX IF NOT EXISTS pages_by_end ON pages (author, to_ms, number);
CREATE INDEX IF NOT EXISTS pages_by_time ON pages (to_ms);
CREATE TABLE IF NOT EXISTS floors (author BLOB PRIMARY KEY, to_ms INTEGER NOT NULL, number INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS told (
    author BLOB NOT NULL, page INTEGER NOT NULL, at_ms INTEGER NOT NULL, life INTEGER NOT NULL,
    number INTEGER NOT NULL, kind TEXT NOT NULL, subject TEXT NOT NULL, reason TEXT NOT NULL, evidence TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS told_by_time ON told (at_ms);
CREATE INDEX IF NOT EXISTS told_by_page ON told (author, page);
"""
_LOOKS = 16
"""Looks at rows for one question, where all that are read are damaged and go."""
_ROW = "author, number, from_ms, to_ms, page, digest"
"""Columns that `_is_whole` reads."""
_T = TypeVar("_T")


def _row_digest(author: bytes, number: int, from_ms: int, to_ms: int, page: bytes) -> bytes:
    """16 bytes over what a row says: a disk's flipped bit anywhere in it shows."""
    head = b"%b%d/%d/%d/" % (author, number, from_ms, to_ms)
    return blake2b(head + page, digest_size=16, person=b"swarmd-row").digest()


def _is_whole(row: Sequence[Any]) -> bool:
    """Whether a row is what was written."""
    try:
        return _row_digest(*row[:5]) == bytes(row[5])
    except TypeError:
        return False  # What the disk made of it is of another kind.


class PageBounds(msgspec.Struct, frozen=True):
    """How much is kept."""

    max_bytes: int = 256 << 20
    """Of all pages."""
    author_bytes: int = 64 << 20
    """Of one other node's: a month of a drone that flies an hour a day, ten days of one that flies all day."""
    max_age_ms: int = 24 * 3_600_000


class Fetched(msgspec.Struct, frozen=True):
    """One page, for who shows it."""

    author: NodeId
    page: Page


def record_of(author: NodeId, name: str, from_ms: int, event: PastEvent) -> EventRecord:
    """An event of a page, as every outlet shows it.

    Args:
        author: Whose page.
        name: What it is called here.
        from_ms: The page's beginning.
        event: Of it.
    """
    return EventRecord(
        from_ms + event.at + _EPOCH_MS, name, author.hex(), event.life, event.number, event.kind,
        clean(event.subject, SUBJECT_MAX_CHARS), clean(event.reason, TEXT_MAX_CHARS),
        clean(event.evidence, TEXT_MAX_CHARS),
    )  # fmt: skip


class PageFile:
    """The file, as its one thread sees it.

    Args:
        path: Where it lies, or is to lie.
        node: This node.
        bounds: How much is kept.
    """

    def __init__(self, path: Path, node: NodeId, bounds: PageBounds) -> None:
        self._path = path
        self._node = node
        self._bounds = bounds
        self._database: sqlite3.Connection | None = None
        self._sizes: dict[bytes, int] = {}
        self._floors: dict[bytes, tuple[int, int]] = {}
        self._since_aged = 0
        self._lost: set[bytes] = set()
        """Of whom a damaged row went since it was last asked."""
        self.problem = ""
        """Why the last page was not written; "" while all is well."""
        self.counts = {"written": 0, "dropped": 0, "failures": 0, "damaged": 0}

    def open(self) -> list[requests.Held]:
        """Open or create the file; what it holds of each author."""
        try:
            database = self._connect()
        except _FAILURES as error:
            self._failed(error)
            return []
        self._sizes = dict(database.execute("SELECT author, total(size) FROM pages GROUP BY author"))
        self._floors = {row[0]: (row[1], row[2]) for row in database.execute("SELECT * FROM floors")}
        return [self._held(author) for author in sorted({*self._sizes, *self._floors})]

    def _connect(self) -> sqlite3.Connection:
        if self._database is None:
            try:
                self._database = self._open()
            except sqlite3.DatabaseError as error:
                if is_the_disk(error):
                    raise
                move_aside(self._path, error)
                self._database = self._open()
        return self._database

    def _open(self) -> sqlite3.Connection:
        database = open_sound(self._path, ("synchronous=NORMAL",), _SCHEMA)
        if "digest" not in {column[1] for column in database.execute("PRAGMA table_info(pages)")}:
            # A file of before rows had digests: what is there now is what is held to from here on.
            database.create_function("row_digest", 5, _row_digest, deterministic=True)
            database.execute("ALTER TABLE pages ADD COLUMN digest BLOB NOT NULL DEFAULT x''")
            database.execute("UPDATE pages SET digest = row_digest(author, number, from_ms, to_ms, page)")
        return database

    def _held(self, author: bytes) -> requests.Held:
        found = self._connect().execute("SELECT from_ms, to_ms FROM pages WHERE author=? ORDER BY to_ms", (author,))
        spans: list[Span] = joined(found)
        return requests.Held(NodeId(author), tuple(spans), self._floors.get(author, (0, 0))[0])

    def add(self, pages: Sequence[bytes], now_ms: int) -> list[requests.Held]:
        """Keep verified pages, own or others'.

        Args:
            pages: As they are signed.
            now_ms: Swarm time, milliseconds since 2020.

        Returns:
            Of whom something else is there than all that was held before and these: older pages had to go, or a page
            was not taken.
        """
        try:
            database = self._connect()
            database.execute("BEGIN IMMEDIATE")
            try:
                short = {author for data in pages if (author := self._put(database, data)) is not None}
                short |= self._make_room(database, now_ms)
                database.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    database.execute("ROLLBACK")
                self._sizes = dict(database.execute("SELECT author, total(size) FROM pages GROUP BY author"))
                self._floors = {row[0]: (row[1], row[2]) for row in database.execute("SELECT * FROM floors")}
                raise
        except _FAILURES as error:
            self._failed(error)
            return [] if self._database is None else self._held_of(pages)
        self.problem = ""
        return [self._held(author) for author in sorted(short)]

    def _held_of(self, pages: Sequence[bytes]) -> list[requests.Held]:
        """What is there of the authors of pages that could not be written: they are fetched again."""
        with contextlib.suppress(*_FAILURES):
            return [self._held(author) for author in sorted({read_page(data).author for data in pages})]
        return []

    def _put(self, database: sqlite3.Connection, data: bytes) -> bytes | None:
        """One page; its author where it was not taken."""
        page = read_page(data)
        if (page.to_ms, page.number) <= self._floors.get(page.author, (0, 0)):
            return page.author
        key = (page.author, page.number)
        row = database.execute(f"SELECT {_ROW}, size FROM pages WHERE author=? AND number=?", key).fetchone()
        is_whole = row is not None and _is_whole(row[:6])
        if is_whole and digest_of(row[4]) <= digest_of(data):
            return None if row[4] == data else page.author
        if row is not None:
            self.counts["damaged"] += not is_whole
            self._drop(database, *key, row[6])
        values = (*key, page.from_ms, page.to_ms, len(data), data)
        database.execute("INSERT INTO pages VALUES (?, ?, ?, ?, ?, ?, ?)", (*values, _row_digest(*values[:4], data)))
        self._sizes[page.author] = self._sizes.get(page.author, 0) + len(data)
        self.counts["written"] += 1
        if page.author != self._node:
            told = [
                (*key, page.from_ms + one.at, one.life, one.number, one.kind, one.subject, one.reason, one.evidence)
                for one in page.events
                if one.kind in KINDS  # A newer version may know others.
            ]
            database.executemany("INSERT INTO told VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", told)
        return None if row is None else page.author

    def _drop(self, database: sqlite3.Connection, author: bytes, number: int, size: int) -> None:
        database.execute("DELETE FROM pages WHERE author=? AND number=?", (author, number))
        database.execute("DELETE FROM told WHERE author=? AND page=?", (author, number))
        self._sizes[author] -= size

    def _make_room(self, database: sqlite3.Connection, now_ms: int) -> set[bytes]:
        """Let go what is too old or too much; of whom anything went."""
        bounds, short = self._bounds, set()
        for author in sorted(self._sizes):
            while author != self._node and self._sizes[author] > bounds.author_bytes:
                short |= self._drop_oldest(database, author)
        while sum(self._sizes.values()) > bounds.max_bytes:
            short |= self._drop_oldest(database, max(self._sizes, key=lambda one: (self._sizes[one], one)))
        self._since_aged += 1
        if self._since_aged >= _AGE_PAGES:
            self._since_aged = 0
            for author in sorted(self._sizes):
                short |= self._drop_old(database, author, now_ms - bounds.max_age_ms)
        return short

    def _drop_oldest(self, database: sqlite3.Connection, author: bytes) -> set[bytes]:
        row = database.execute(
            "SELECT to_ms, number, size FROM pages WHERE author=? ORDER BY to_ms, number LIMIT 1", (author,)
        ).fetchone()
        self._raise_floor(database, author, (row[0], row[1]))
        self._drop(database, author, row[1], row[2])
        self.counts["dropped"] += 1
        return {author}

    def _drop_old(self, database: sqlite3.Connection, author: bytes, oldest_ms: int) -> set[bytes]:
        newest = database.execute(
            "SELECT to_ms FROM pages WHERE author=? ORDER BY to_ms DESC LIMIT 1 OFFSET ?", (author, KEPT_PAGES - 1)
        ).fetchone()
        if newest is None:
            return set()
        old = database.execute(
            "SELECT to_ms, number, size FROM pages WHERE author=? AND to_ms < ? ORDER BY to_ms, number",
            (author, min(oldest_ms, newest[0])),
        ).fetchall()
        for to_ms, number, size in old:
            self._raise_floor(database, author, (to_ms, number))
            self._drop(database, author, number, size)
        self.counts["dropped"] += len(old)
        return {author} if old else set()

    def _raise_floor(self, database: sqlite3.Connection, author: bytes, floor: tuple[int, int]) -> None:
        self._floors[author] = max(floor, self._floors.get(author, (0, 0)))
        database.execute("INSERT OR REPLACE INTO floors VALUES (?, ?, ?)", (author, *self._floors[author]))

    def rows(self) -> tuple[messages.Row, ...]:
        """What is kept of each author: this node first, then the newest words."""
        found = self._execute("SELECT author, min(from_ms), max(to_ms) FROM pages GROUP BY author", ())
        rows = [messages.Row(row[0], self._floors.get(row[0], (0, 0))[0], row[1], row[2]) for row in found]
        rows.sort(key=lambda row: (row.author != self._node, -row.to_ms))
        return tuple(rows[: messages.ROWS_MAX])

    def find(self, ask: requests.FindPages) -> requests.Pages:
        """Pages for a peer."""
        statement = (
            f"SELECT rowid, {_ROW} FROM pages WHERE author=? AND to_ms >= ? AND from_ms <= ? "
            "AND (to_ms, number) < (?, ?) "
            "ORDER BY to_ms DESC, number DESC LIMIT ?"
        )
        values = (ask.author, ask.from_ms, ask.to_ms, ask.below_ms, ask.below_number, messages.PAGES_MAX + 1)
        failures = self.counts["failures"]
        pages: list[bytes] = []
        for _ in range(_LOOKS):
            size, more = 0, False
            found = self._execute(statement, values)
            for page in self._whole(found):
                more = bool(pages) and (size + len(page) > ask.bytes_max or len(pages) >= messages.PAGES_MAX)
                if more:
                    break
                pages.append(page)
                size += len(page)
            # Where damaged rows went, there may be more below those that were read.
            more = more or len(found) > messages.PAGES_MAX
            if pages or not more:
                break
        if self.counts["failures"] > failures or (more and not pages):
            return requests.Pages(ask.ticket, (), False, 0, is_failed=True)
        return requests.Pages(ask.ticket, tuple(pages), more, self._floors.get(ask.author, (0, 0))[0])

    def take_lost(self) -> list[requests.Held]:
        """What is there of those of whom damaged rows went since this was last asked: they may be fetched again."""
        lost, self._lost = self._lost, set()
        with contextlib.suppress(*_FAILURES):
            return [self._held(author) for author in sorted(lost)]
        return []

    def _whole(self, rows: Iterable[Any]) -> Iterator[bytes]:
        """Pages of rows (rowid, then `_ROW`) that hold; the others go."""
        for rowid, *row in rows:
            if _is_whole(row):
                yield row[4]
            else:
                self._lose(rowid)

    def _lose(self, rowid: int) -> None:
        """A damaged row goes; what stays is counted anew, since what it says of itself may be wrong too."""
        self.counts["damaged"] += 1
        self._lost |= self._sizes.keys()
        named = "(author, page) IN (SELECT author, number FROM pages WHERE rowid=?)"
        self._execute(f"DELETE FROM told WHERE {named}", (rowid,))
        self._execute("DELETE FROM pages WHERE rowid=?", (rowid,))
        self._sizes = dict(self._execute("SELECT author, total(size) FROM pages GROUP BY author", ()))

    def between(self, from_ms: int, to_ms: int, most: int = READ_PAGES) -> list[Fetched]:
        """Others' pages that touch a stretch of time, by their end, the oldest first; `most` at most."""
        statement = (
            f"SELECT rowid, {_ROW} FROM pages WHERE to_ms >= ? AND from_ms <= ? AND author != ? ORDER BY to_ms LIMIT ?"
        )
        return self._read(self._execute(statement, (from_ms, to_ms, self._node, most)))

    def newest(self, at_ms: int) -> list[Fetched]:
        """Of each other author the newest page that began by a moment."""
        found: list[Any] = []
        for author in sorted(self._sizes):
            if author != self._node:
                statement = (
                    f"SELECT rowid, {_ROW} FROM pages WHERE author=? AND from_ms <= ? ORDER BY to_ms DESC LIMIT 1"
                )
                found += self._execute(statement, (author, at_ms))
        return self._read(found)

    def _read(self, rows: Iterable[Any]) -> list[Fetched]:
        pages = (read_page(data) for data in self._whole(rows))
        return [Fetched(NodeId(page.author), page) for page in pages]

    def events(self, query: Query, names: Mapping[NodeId, str]) -> list[EventRecord]:
        """What others' pages tell of a query, oldest first, the newest of them where there are more.

        Args:
            query: Which events.
            names: Of the authors that count; others' events are left out.
        """
        where = "at_ms BETWEEN ? AND ?"
        values: list[object] = [max(0, query.since_ms - _EPOCH_MS), min(query.until_ms, 1 << 60) - _EPOCH_MS]
        if query.kinds:
            where += f" AND kind IN ({','.join('?' * len(query.kinds))})"
            values += query.kinds
        columns = "author, at_ms, life, number, kind, subject, reason, evidence"
        statement = f"SELECT {columns} FROM told WHERE {where} ORDER BY at_ms DESC LIMIT ?"
        found: list[EventRecord] = []
        for author, at_ms, life, number, kind, subject, reason, evidence in self._execute(
            statement, (*values, min(query.limit, FOUND_MAX) if not query.origin else FOUND_MAX)
        ):
            node = NodeId(author)
            if node not in names:
                continue
            event = PastEvent(0, life, number, kind, subject, reason, evidence)
            record = record_of(node, names[node], at_ms, event)
            if query.matches(record):
                found.append(record)
        return found[: query.limit][::-1]

    def _execute(self, statement: str, values: Sequence[object]) -> list[Any]:
        try:
            return self._connect().execute(statement, tuple(values)).fetchall()
        except _FAILURES as error:
            self._failed(error)
            return []

    def authors(self) -> list[NodeId]:
        """Of whom anything is kept."""
        return [NodeId(author) for author in sorted(self._sizes)]

    def forget(self, author: bytes) -> None:
        """Drop all that is kept of an author."""
        for table in ("pages", "told", "floors"):
            self._execute(f"DELETE FROM {table} WHERE author=?", (author,))
        self._sizes.pop(author, None)
        self._floors.pop(author, None)

    def _failed(self, error: sqlite3.Error | OSError) -> None:
        self.counts["failures"] += 1
        self.problem = f"{self._path}: {error}"
        if not is_the_disk(error) and self._database is not None:
            with contextlib.suppress(sqlite3.Error):
                self._database.close()
            self._database = None  # The next attempt looks whether it is sound.

    def close(self) -> None:
        """Close it; may be called twice."""
        if self._database is not None:
            with contextlib.suppress(sqlite3.Error):
                self._database.close()
            self._database = None


class PageStore:
    """A file of pages and the one thread that works on it.

    Args:
        folder: Where the file lies; exists.
        node: This node.
        bounds: How much is kept.
    """

    def __init__(self, folder: Path, node: NodeId, bounds: PageBounds) -> None:
        self._file = PageFile(folder / FILE_NAME, node, bounds)
        self._thread = ThreadPoolExecutor(1, "past")
        self._is_closed = False

    @property
    def problem(self) -> str:
        """Why the last page was not written; "" while all is well."""
        return self._file.problem

    @property
    def counts(self) -> dict[str, int]:
        """Pages written and dropped, and failures of the disk."""
        return self._file.counts

    async def run(self, work: Callable[[PageFile], _T]) -> _T:
        """Have the thread do something with the file."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, self._file)

    def close(self, last: Sequence[bytes], now_ms: int) -> None:
        """Write the last pages and close; may be called twice."""
        if self._is_closed:
            return
        self._is_closed = True
        if last:
            self._thread.submit(self._file.add, last, now_ms)
        self._thread.submit(self._file.close)
        self._thread.shutdown(wait=True)
