"""The history of a picture: blocks of a minute, each a picture and what changed after it, in one SQLite file.

A block's picture is whole, or what differs from that of an earlier block, its *base*. Any moment is one block and its
base read and played to that moment, so seeking costs the same however long the history is. A base and the blocks that
need it are a *group*, and go together. Marks of
the timeline lie in a table beside it. One thread alone reads and writes the file; what is not yet in a block is in
memory. Where nothing was written down (the server did not run) there is a gap, and answers say so.

Bounds: `max_bytes` of blocks and `max_age_s`, beyond which the oldest go with their marks; `MARKS_KEPT` marks;
`BLOCK_CHANGES` in memory.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from swarmd.errors import DaemonError
from swarmd.ground.blocks import Block, changed, pack, unpack, unpack_rows
from swarmd.ground.picture import snapshot
from swarmd.ground.rows import Change, History, Mark, Timeline
from swarmd.sqlite_files import is_the_disk, move_aside, open_sound

FILE_NAME = "history.sqlite"
BLOCK_S = 60.0
"""Seconds of a block, and of what a crash loses at most."""
BLOCK_CHANGES = 5_000
"""Changes of a block at most, some 2 MB in memory, 25 s of 200 drones: playing to its end costs some 25 ms."""
GROUP_BLOCKS = 360
"""Blocks of a group at most, six hours where little happens: a group goes as one, with so much of the past."""
GROUP_SHARE = 8
"""A group has at most this part of all bytes, for the same reason."""
DIFFERS_SHARE = 4
"""Where more than this part of a picture differs from its base, it becomes a base itself."""
GAP_S = 5.0
"""Seconds without a word after which there is a gap: five looks at a server that runs."""
PAGE_MAX = 2_000
"""Changes of one answer, some 500 kB."""
MARKS_MAX = 1_500
"""Marks of one answer: a line of pixels; beyond, marks are counted in bins."""
MARKS_KEPT = 1_000_000
"""Newest marks in the file, some 200 MB: one each three seconds for a month; whoever says much fills no disk with them,
since blocks are packed and count by themselves."""
BLOCKS_MAX = 60
"""Blocks that one page reads, an hour: whoever asks for what is rare gets a cursor after a second, and the one thread
writes and answers others in between."""
_LEVELS = ("info", "warning", "error")
_SCHEMA = """
CREATE TABLE IF NOT EXISTS minutes (
    number INTEGER PRIMARY KEY, base INTEGER NOT NULL, began_s REAL NOT NULL, ended_s REAL NOT NULL,
    packed BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS minutes_by_time ON minutes (began_s);
CREATE INDEX IF NOT EXISTS minutes_by_base ON minutes (base);
CREATE TABLE IF NOT EXISTS marks (
    at_s REAL NOT NULL, lane TEXT NOT NULL, level INTEGER NOT NULL, text TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS marks_by_time ON marks (at_s);
"""
_Rows = dict[str, dict[str, bytes]]
_T = TypeVar("_T")


@dataclass(slots=True)
class _Group:
    """The blocks that need one base, while more of them are written; the writing thread's."""

    base: int
    rows: _Rows
    rows_bytes: int
    bytes: int = 0
    blocks: int = 0


@dataclass(slots=True)
class _Open:
    """The block that is being written."""

    number: int
    began_s: float
    ended_s: float
    rows: _Rows
    changes: list[Change] = field(default_factory=list)

    def block(self) -> Block:
        """As it is."""
        rows = [
            (one.seq, one.at_s, one.kind, one.id, None if one.row is None else bytes(one.row)) for one in self.changes
        ]
        return Block(self.rows, rows)


class Past:
    """One file of history.

    Args:
        path: Where it lies, or is to lie.
        frozen: Gives the picture as it is.
        max_bytes: Of all blocks together.
        max_age_s: Of the oldest block, beside the newest one's end.
    """

    def __init__(
        self, path: Path, frozen: Callable[[], _Rows], max_bytes: int = 1 << 30, max_age_s: float = 30 * 86_400.0
    ) -> None:
        self._path = path
        self._frozen = frozen
        self._max_bytes = max_bytes
        self._max_age_s = max_age_s
        self._open: _Open | None = None
        self._marks: list[Mark] = []
        self._group: _Group | None = None
        self._read: tuple[int, Block] = (0, Block({}, []))
        """The block of the page that was read last: its next pages are asked for one after the other."""
        self._base: tuple[int, _Rows] = (0, {})
        """The base that was read last, and its picture: most moments that are asked for after another have the same."""
        self._thread = ThreadPoolExecutor(1, "history")
        self._database = self._thread.submit(self._connect).result()
        self._next = self._thread.submit(self._newest).result() + 1
        """Number of the next block."""
        self.problem = ""
        """Why the last block was not written; "" while all is well."""

    # --- on the loop ------------------------------------------------------------------------------------------------

    def begin(self, at_s: float) -> None:
        """From here on things are written down."""
        self._begin(at_s)

    def _begin(self, at_s: float) -> _Open:
        held = self._open = _Open(self._next, at_s, at_s, self._frozen())
        self._next += 1
        return held

    def take(self, change: Change) -> None:
        """One change, as it happens."""
        held = self._open
        if held is None:
            return
        if change.at_s - held.began_s >= BLOCK_S or len(held.changes) >= BLOCK_CHANGES:
            self._close_block()
            # The picture holds this change already; told again in the new block it changes nothing.
            held = self._begin(max(change.at_s, held.ended_s))
        held.ended_s = max(held.ended_s, change.at_s)
        held.changes.append(change)

    def mark(self, mark: Mark) -> None:
        """A point of the timeline."""
        self._marks.append(mark)

    def tick(self, at_s: float) -> None:
        """Nothing may have changed, and yet time went by."""
        held = self._open
        # This machine slept, which is a gap; or its clock was set back, and this block would not end for as long.
        if held is None or abs(at_s - held.ended_s) > GAP_S:
            if held is not None:
                self._close_block()
            self.begin(at_s)
            return
        held.ended_s = max(held.ended_s, at_s)
        if at_s - held.began_s >= BLOCK_S:
            self._close_block()
            self.begin(at_s)

    def end(self, at_s: float) -> None:
        """The last moment, of a recording that was read: nothing comes after it."""
        if self._open is not None:
            self._open.ended_s = max(self._open.ended_s, at_s)
            self._close_block()
            self._open = None

    async def at(self, at_s: float) -> Sequence[bytes]:
        """The `rows.Snapshot` of a moment, in pieces; of a gap, what was known at its beginning."""
        held = self._open
        if held is not None and held.began_s <= at_s:
            block = held.block()
            return await self._in_thread(lambda: _moment(block, at_s))
        return await self._in_thread(lambda: self._at(at_s))

    async def history(self, from_s: float, to_s: float, kinds: Sequence[str], cursor: str, limit: int) -> History:
        """A page of changes.

        Args:
            from_s: The first moment.
            to_s: The last.
            kinds: Which; none: all.
            cursor: Of the page before; "" for the first.
            limit: Changes at most; fewer, or none, with a cursor where `BLOCKS_MAX` blocks had no more.

        Raises:
            DaemonError: The cursor is none.
        """
        number, skip = _cursor(cursor)
        held = self._open
        extra = None if held is None else (held.number, held.began_s, held.ended_s, held.block())
        limit = max(1, min(limit, PAGE_MAX))
        return await self._in_thread(lambda: self._history(from_s, to_s, frozenset(kinds), number, skip, limit, extra))

    async def timeline(self, from_s: float, to_s: float) -> Timeline:
        """What there is between two moments."""
        held = self._open
        span = None if held is None else (held.began_s, held.ended_s)
        self._flush_marks()
        return await self._in_thread(lambda: self._timeline(from_s, to_s, span))

    def close(self) -> None:
        """Write what is open; may be called twice."""
        if self._open is not None:
            self._close_block()
            self._open = None
        self._thread.submit(self._end)
        self._thread.shutdown(wait=True)

    # --- parts of it --------------------------------------------------------------------------------------------------

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _close_block(self) -> None:
        held = self._open
        assert held is not None
        self._flush_marks()
        self._thread.submit(self._write, held)

    def _flush_marks(self) -> None:
        marks, self._marks = self._marks, []
        if marks:
            self._thread.submit(self._write_marks, marks)

    # --- in the thread ------------------------------------------------------------------------------------------------

    def _connect(self) -> sqlite3.Connection:
        try:
            return open_sound(self._path, ("synchronous=NORMAL",), _SCHEMA)
        except sqlite3.DatabaseError as error:
            if is_the_disk(error):
                raise DaemonError(f"{self._path}: {error}; make room, or name another --state") from error
            move_aside(self._path, error)
            return open_sound(self._path, ("synchronous=NORMAL",), _SCHEMA)

    def _newest(self) -> int:
        return int(self._database.execute("SELECT coalesce(max(number), 0) FROM minutes").fetchone()[0])

    def _write(self, held: _Open) -> None:
        group, packed = self._packed(held)
        row = (held.number, group.base, held.began_s, held.ended_s, packed)
        if self._execute("INSERT INTO minutes VALUES (?, ?, ?, ?, ?)", row):
            self.problem = ""
            group.bytes += len(packed)
            group.blocks += 1
            self._group = group
        else:
            self._group = None  # What is not there can be nobody's base.
        # Of the last hour's blocks the earliest says what is old: one written by a clock that was ahead makes all so.
        newest = f"SELECT min(ended_s) FROM (SELECT ended_s FROM minutes ORDER BY number DESC LIMIT {BLOCKS_MAX})"
        old = f"SELECT base FROM minutes GROUP BY base HAVING max(ended_s) < ({newest}) - ?"
        self._execute(f"DELETE FROM minutes WHERE base IN ({old})", (self._max_age_s,))
        oldest = "DELETE FROM minutes WHERE base = (SELECT min(base) FROM minutes) AND base < ?"
        while self._bytes() > self._max_bytes and self._execute(oldest, (group.base,)):
            pass
        self._execute("DELETE FROM marks WHERE at_s < (SELECT min(began_s) FROM minutes)", ())
        self._execute("DELETE FROM marks WHERE rowid <= (SELECT max(rowid) FROM marks) - ?", (MARKS_KEPT,))

    def _packed(self, held: _Open) -> tuple[_Group, bytes]:
        """A block's bytes, and the group that it is in: that of the block before, or one of its own."""
        group, block = self._group, held.block()
        if group is not None and group.blocks < GROUP_BLOCKS and group.bytes * GROUP_SHARE < self._max_bytes:
            differs = changed(group.rows, block.rows)
            if _size(differs) * DIFFERS_SHARE <= group.rows_bytes:
                return group, pack(differs, block.changes)
        return _Group(held.number, held.rows, _size(block.rows)), pack(block.rows, block.changes)

    def _bytes(self) -> int:
        row = self._database.execute("SELECT total(length(packed)) FROM minutes").fetchone()
        return int(row[0])

    def _write_marks(self, marks: Iterable[Mark]) -> None:
        try:
            self._database.execute("BEGIN")
            rows = [(one.at_s, one.lane, _LEVELS.index(one.level), one.text) for one in marks]
            self._database.executemany("INSERT INTO marks VALUES (?, ?, ?, ?)", rows)
            self._database.execute("COMMIT")
        except sqlite3.Error as error:
            self.problem = f"{self._path}: {error}"
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")

    def _execute(self, statement: str, values: tuple[object, ...]) -> int:
        try:
            count = self._database.execute(statement, values).rowcount
        except sqlite3.Error as error:
            self.problem = f"{self._path}: {error}"
            return 0
        return count

    def _end(self) -> None:
        self._database.close()

    def _at(self, at_s: float) -> Sequence[bytes]:
        row = self._database.execute(
            "SELECT number FROM minutes WHERE began_s <= ? ORDER BY began_s DESC LIMIT 1", (at_s,)
        ).fetchone()
        return _moment(Block({}, []) if row is None else self._stored(int(row[0]), at_s), at_s)

    def _history(
        self,
        from_s: float,
        to_s: float,
        kinds: frozenset[str],
        number: int,
        skip: int,
        limit: int,
        extra: tuple[int, float, float, Block] | None,
    ) -> History:
        gaps: list[tuple[float, float]] = []
        found: list[Change] = []
        last_s: float | None = None
        spans = [
            (int(row[0]), float(row[1]), float(row[2]))
            for row in self._database.execute(
                "SELECT number, began_s, ended_s FROM minutes WHERE number >= ? AND ended_s >= ? AND began_s <= ? "
                "ORDER BY number LIMIT ?",
                (number, from_s, to_s, BLOCKS_MAX + 1),
            )
        ]
        if extra is not None and extra[0] >= number and extra[1] <= to_s and extra[2] >= from_s:
            spans.append(extra[:3])
        for count, (at, began_s, ended_s) in enumerate(spans):
            if last_s is not None and began_s - last_s > GAP_S:
                gaps.append((last_s, began_s))
            last_s = ended_s
            if count == BLOCKS_MAX:
                return History(found, gaps, f"{at}.0")
            block = self._block(at, extra)
            first = skip if at == number else 0
            for index in range(first, len(block.changes)):
                seq, at_s, kind, name, row = block.changes[index]
                if from_s <= at_s <= to_s and (not kinds or kind in kinds):
                    if len(found) >= limit:
                        return History(found, gaps, f"{at}.{index}")
                    found.append(Change(seq, at_s, kind, name, None if row is None else msgspec.Raw(row)))
        return History(found, gaps, None)

    def _block(self, number: int, extra: tuple[int, float, float, Block] | None) -> Block:
        if extra is not None and number == extra[0]:
            return extra[3]
        if number != self._read[0]:
            self._read = (number, self._stored(number))
        return self._read[1]

    def _stored(self, number: int, until_s: float | None = None) -> Block:
        """A block out of the file."""
        query = "SELECT base, packed FROM minutes WHERE number=?"
        base, packed = self._database.execute(query, (number,)).fetchone()
        if base != number and base != self._base[0]:
            self._base = base, unpack_rows(self._database.execute(query, (base,)).fetchone()[1])
        return unpack(packed, {} if base == number else self._base[1], until_s)

    def _timeline(self, from_s: float, to_s: float, span: tuple[float, float] | None) -> Timeline:
        query = "SELECT began_s, ended_s FROM minutes WHERE ended_s >= ? AND began_s <= ? ORDER BY began_s"
        spans = [(float(row[0]), float(row[1])) for row in self._database.execute(query, (from_s, to_s))]
        if span is not None and span[1] >= from_s and span[0] <= to_s:
            spans.append(span)
        covered: list[tuple[float, float]] = []
        for began_s, ended_s in spans:
            if covered and began_s - covered[-1][1] <= GAP_S:
                covered[-1] = (covered[-1][0], max(covered[-1][1], ended_s))
            else:
                covered.append((began_s, ended_s))
        first_s = max(from_s, covered[0][0]) if covered else from_s
        last_s = min(to_s, covered[-1][1]) if covered else to_s
        return Timeline(first_s, last_s, covered, self._marks_between(first_s, last_s))

    def _marks_between(self, from_s: float, to_s: float) -> list[Mark]:
        where, values = "FROM marks WHERE at_s BETWEEN ? AND ?", (from_s, to_s)
        count = self._database.execute(f"SELECT count(*) {where}", values).fetchone()[0]
        if count <= MARKS_MAX:
            rows = self._database.execute(f"SELECT at_s, lane, level, text {where} ORDER BY at_s", values)
            return [Mark(row[0], row[1], _LEVELS[row[2]], row[3]) for row in rows]
        bin_s = max((to_s - from_s) / (MARKS_MAX / 3), 1e-3)
        rows = self._database.execute(
            "SELECT (CAST((at_s - ?) / ? AS INTEGER) + 0.5) * ? + ?, lane, max(level), text, count(*) "
            f"{where} GROUP BY CAST((at_s - ?) / ? AS INTEGER), lane ORDER BY 1",
            (from_s, bin_s, bin_s, from_s, *values, from_s, bin_s),
        )
        return [Mark(row[0], row[1], _LEVELS[row[2]], row[3], row[4]) for row in rows]


def _cursor(text: str) -> tuple[int, int]:
    """(block, change in it) of a cursor.

    >>> _cursor("12.7"), _cursor("")
    ((12, 7), (0, 0))
    """
    if not text:
        return 0, 0
    number, _, index = text.partition(".")
    # Eighteen digits: what SQLite and a list take.
    if not all(part.isascii() and part.isdecimal() and len(part) <= 18 for part in (number, index)):
        raise DaemonError("cursor is none that an answer gave")
    return int(number), int(index)


def _size(rows: Mapping[str, Mapping[str, bytes | None]]) -> int:
    """Bytes of rows, and of their names."""
    return sum(len(name) + len(row or b"") for held in rows.values() for name, row in held.items())


def _moment(block: Block, at_s: float) -> list[bytes]:
    """A block played to a moment."""
    rows: dict[str, dict[str, Any]] = {kind: dict(held) for kind, held in block.rows.items()}
    for _, changed_s, kind, name, row in block.changes:
        if changed_s > at_s:
            continue
        if row is None:
            rows.get(kind, {}).pop(name, None)
        else:
            rows.setdefault(kind, {})[name] = row
    return list(snapshot("", 0, at_s, rows))
