"""What a gateway still has to say, on disk until the region has it; and what it knows the region to have.

    rows    (seq, kind, key, body, proofs, mark, bytes, at_ms)   in the order of `seq`; one row for each (kind, key)
    known   (object, stamp, digest)                          objects as the region has them
    bundles (seq, log, body)                                 what is to be fetched, by its number in the region's log
    facts   (name, value)                                    the life, counts, the place in the log

A newer row of one key replaces an unsent one and gets a new number: of a thing that changes only the last word counts.

Numbers are never used twice under one name. Each start takes a new name: a power cut, or a disk that is put back from a
copy, gives numbers again, and an acknowledgement of before must not take what bears one of them now.

A row leaves when it is acknowledged, or when the bounds are reached: then what can be said again goes first
(`_GOES_FIRST`), the oldest first, and counts as dropped; objects go last.

What the process has been told survives it (`synchronous=NORMAL`); a power cut may take the last moments, which the
comparison with `known` finds again as long as the swarm still shows the objects.
"""

import contextlib
import os
import sqlite3
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from swarmd.errors import DaemonError
from swarmd.federation.lives import APART, next_life
from swarmd.sqlite_files import is_the_disk, move_aside, open_sound
from swarmd_protocols.errors import WireError
from swarmd_protocols.federation.wire import EPOCH_BYTES, NUMBER_MAX, RowKind
from swarmd_protocols.state.crdt.batch import open_batch

FILE_NAME = "outbox.sqlite"
KNOWN_MAX = 200_000
"""Objects that are known to be at the region, 20 MB there and 45 MB in memory: those learned longest ago are
forgotten, and would be said again."""
LOST_MAX = 50_000
"""Dropped rows that are kept in mind, 3 MB: as many as it is known of what was said last."""
TAKEN_BACK = 1_024
"""Rows of one node that leave in one go, some tens of milliseconds; the region asks again for the rest."""
_ROW_BYTES = 64
"""What a row takes in the file beside its body and proofs."""
_GOES_FIRST = (RowKind.SITE, RowKind.RECORD, RowKind.REPORT, RowKind.OBJECT, RowKind.TRUST)
"""What is dropped first where there is no room: what is said again every minute, then what a later word replaces."""
_KINDS = frozenset(RowKind)
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS rows (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, kind INTEGER NOT NULL, key BLOB NOT NULL, body BLOB NOT NULL,
    proofs BLOB NOT NULL, mark BLOB NOT NULL, bytes INTEGER NOT NULL, at_ms INTEGER NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS rows_by_key ON rows (kind, key);
CREATE INDEX IF NOT EXISTS rows_in_order ON rows (kind != {int(RowKind.TRUST)}, seq);
CREATE TABLE IF NOT EXISTS known (object BLOB PRIMARY KEY, stamp INTEGER NOT NULL, digest BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS bundles (seq INTEGER PRIMARY KEY, log BLOB NOT NULL, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value BLOB NOT NULL);
"""
_NOTHING = bytes(EPOCH_BYTES + 8)
"""A place in no log."""
_encode = msgspec.msgpack.Encoder().encode
_PROOFS = msgspec.msgpack.Decoder(tuple[bytes, ...]).decode
_COUNTS = msgspec.msgpack.Decoder(dict[str, int]).decode


class Waiting(msgspec.Struct, frozen=True):
    """A row to be put into the outbox."""

    kind: RowKind
    key: bytes
    body: bytes
    proofs: tuple[bytes, ...] = ()
    mark: bytes = b""
    """Given back when the row is acknowledged; travels nowhere."""


class Done(msgspec.Struct, frozen=True):
    """A row that was acknowledged."""

    seq: int
    kind: int
    key: bytes
    mark: bytes


class Held(msgspec.Struct, frozen=True):
    """A row of the outbox."""

    seq: int
    kind: int
    body: bytes
    proofs: tuple[bytes, ...]


class Outbox:
    """One gateway's; every call is short, and on one thread. What the disk does not take raises `DaemonError`.

    Args:
        path: The file; a damaged one is moved aside, and what it held is said again from the swarm's state.
        max_bytes: Of all rows.
        max_age_s: Rows older than this are dropped.

    Raises:
        DaemonError: The disk does not take it.
    """

    def __init__(self, path: Path, max_bytes: int, max_age_s: float) -> None:
        self._max_bytes = max_bytes
        self._max_age_ms = round(max_age_s * 1000)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        settings = ("synchronous=NORMAL", "wal_autocheckpoint=256", "journal_size_limit=2097152")
        self.moved_aside: Path | None = None
        """Where a damaged file went."""
        try:
            try:
                self._db = open_sound(path, settings, _SCHEMA, "integrity_check")
                _look(self._db)
            except (sqlite3.Error, ValueError) as error:
                if is_the_disk(error):
                    raise
                self.moved_aside = move_aside(path, error)
                self._db = open_sound(path, settings, _SCHEMA, "integrity_check")
            self.epoch = os.urandom(EPOCH_BYTES)
            stored = int.from_bytes(self._fact("life"), "big")
            self.life = next_life(stored, int(time.time()))
            self._keep("life", self.life.to_bytes(8, "big"))
            self._bytes = self._count = 0
            self._lost: list[tuple[int, bytes]] = []
            self.dropped: dict[str, int] = {}
            """Kind to rows that were dropped for want of room or for their age, ever."""
            self._recount()
        except sqlite3.Error as error:
            raise DaemonError(f"the outbox {path} cannot be written: {error}; make room on that disk") from error

    def close(self) -> None:
        """Nothing is read or written any more."""
        self._db.close()

    # --- Rows ---------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Rows that wait."""
        return self._count

    @property
    def size_bytes(self) -> int:
        """Of all rows."""
        return self._bytes

    @property
    def dropped_rows(self) -> int:
        """Dropped, ever."""
        return sum(self.dropped.values())

    @property
    def has_room(self) -> bool:
        """Whether what was dropped may be said again: half of it is free."""
        return 2 * self._bytes < self._max_bytes

    def take_lost(self) -> list[tuple[int, bytes]]:
        """(kind, key) of rows that were dropped since this was last asked; the newest `LOST_MAX` of them."""
        lost, self._lost = self._lost, []
        return lost

    def put(self, rows: Iterable[Waiting], now_ms: int) -> int:
        """Write rows down, all or none; returns how many are new or say something else.

        Args:
            rows: What is to be said.
            now_ms: Wall clock.
        """
        count = 0
        with self._transaction():
            for row in rows:
                proofs = _encode(row.proofs)
                held = self._db.execute(
                    "SELECT seq, body, proofs, bytes FROM rows WHERE kind = ? AND key = ?", (row.kind, row.key)
                ).fetchone()
                if held is not None:
                    if (held[1], held[2]) == (row.body, proofs):
                        continue
                    self._delete([(held[0], held[3])])
                size = len(row.body) + len(proofs) + len(row.key) + _ROW_BYTES
                self._db.execute(
                    "INSERT INTO rows (kind, key, body, proofs, mark, bytes, at_ms) VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (row.kind, row.key, row.body, proofs, row.mark, size, now_ms),
                )
                self._bytes += size
                self._count += 1
                count += 1
            self._make_room(now_ms)
        return count

    def tidy(self, now_ms: int) -> None:
        """Drop what is too old."""
        with self._transaction():
            self._make_room(now_ms)

    def waiting(self, limit: int) -> list[tuple[int, int]]:
        """(number, bytes) of the first rows that wait.

        Certificates come first and weigh nothing: without them others cannot be taken, and would fill the window.
        """
        trust = int(RowKind.TRUST)
        return self._db.execute(
            f"SELECT seq, CASE kind WHEN {trust} THEN 0 ELSE bytes END FROM rows ORDER BY kind != {trust}, seq LIMIT ?",
            (limit,),
        ).fetchall()

    def read(self, seqs: Sequence[int]) -> Iterator[Held]:
        """These rows, as far as they still wait."""
        for seq in seqs:
            row = self._db.execute("SELECT seq, kind, body, proofs FROM rows WHERE seq = ?", (seq,)).fetchone()
            if row is not None:
                yield Held(row[0], row[1], row[2], _PROOFS(row[3]))

    def oldest(self) -> int:
        """The lowest number that waits; where none does, the next."""
        found = self._db.execute("SELECT min(seq) FROM rows").fetchone()[0]
        if found is not None:
            return int(found)
        last = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'rows'").fetchone()
        return 1 if last is None else int(last[0]) + 1

    def acknowledge(self, ranges: Iterable[tuple[int, int]]) -> list[Done]:
        """Rows that the region has; returns those that waited."""
        gone: list[tuple[int, int, bytes, bytes, int]] = []
        with self._transaction():
            for first, last in ranges:
                gone += self._db.execute(
                    "SELECT seq, kind, key, mark, bytes FROM rows WHERE seq BETWEEN ? AND ?", (first, last)
                ).fetchall()
            self._delete([(row[0], row[4]) for row in gone])
        return [Done(*row[:4]) for row in gone]

    def take_back(self, node: bytes) -> list[Done]:
        """Rows that a batch or a report of this node stands behind wait no more; at most `TAKEN_BACK` of them."""
        gone: list[tuple[int, int, bytes, bytes, int]] = []
        with self._transaction():
            found = self._db.execute(
                "SELECT seq, kind, key, mark, bytes, proofs FROM rows WHERE instr(proofs, ?) "
                f"OR (kind = {int(RowKind.REPORT)} AND instr(key, ?) = 1) ORDER BY seq",
                (node, node),
            )
            for *row, proofs in found:
                # Others may name it in what they say.
                if row[1] == RowKind.REPORT or any(_is_of(raw, node) for raw in _PROOFS(proofs)):
                    gone.append((row[0], row[1], row[2], row[3], row[4]))
                if len(gone) == TAKEN_BACK:
                    break
            found.close()
            self._delete([(row[0], row[4]) for row in gone])
        return [Done(*row[:4]) for row in gone]

    def _make_room(self, now_ms: int) -> None:
        old = self._db.execute(
            "SELECT seq, bytes, kind, key FROM rows WHERE at_ms < ? ORDER BY seq", (now_ms - self._max_age_ms,)
        ).fetchall()
        self._drop(old)
        for kind in _GOES_FIRST:
            while self._bytes > self._max_bytes:
                oldest = self._db.execute(
                    "SELECT seq, bytes, kind, key FROM rows WHERE kind = ? ORDER BY seq LIMIT 64", (kind,)
                ).fetchall()
                if not oldest:
                    break
                over, chosen = self._bytes - self._max_bytes, []
                for row in oldest:
                    if over <= 0:
                        break
                    chosen.append(row)
                    over -= row[1]
                self._drop(chosen)

    def _drop(self, rows: Sequence[tuple[int, int, int, bytes]]) -> None:
        if not rows:
            return
        self._lost = [*self._lost, *((kind, key) for _, _, kind, key in rows)][-LOST_MAX:]
        for _, _, kind, _ in rows:
            # One of a later version's, or in which bits have turned, is no reason to keep it.
            name = RowKind(kind).name.lower() if kind in _KINDS else str(kind)
            self.dropped[name] = self.dropped.get(name, 0) + 1
        self._delete([(seq, size) for seq, size, _, _ in rows])
        self._keep("dropped", _encode(self.dropped))

    def _delete(self, rows: Collection[tuple[int, int]]) -> None:
        self._db.executemany("DELETE FROM rows WHERE seq = ?", [(seq,) for seq, _ in rows])
        self._bytes -= sum(size for _, size in rows)
        self._count -= len(rows)

    # --- What the region has ------------------------------------------------------------------------------------------

    def known(self) -> dict[bytes, tuple[int, bytes]]:
        """Object to (stamp, digest), as the region is known to have it."""
        rows = self._db.execute("SELECT object, stamp, digest FROM known")
        return {key: (stamp, digest) for key, stamp, digest in rows}

    def learn(self, objects: Mapping[bytes, tuple[int, bytes]]) -> None:
        """The region has these."""
        with self._transaction():
            self._db.executemany(
                "INSERT INTO known (object, stamp, digest) VALUES (?, ?, ?) ON CONFLICT (object) DO UPDATE SET "
                "stamp = excluded.stamp, digest = excluded.digest "
                "WHERE (excluded.stamp, excluded.digest) > (stamp, digest)",
                [(key, stamp, digest) for key, (stamp, digest) in objects.items()],
            )
            self._db.execute(
                # Numbers without a gap: only the lowest ever go.
                "DELETE FROM known WHERE rowid <= (SELECT max(rowid) FROM known) - ?",
                (KNOWN_MAX,),
            )

    def forget_known(self) -> None:
        """The region has lost what it had: everything is to be said again."""
        with self._transaction():
            self._db.execute("DELETE FROM known")

    # --- The region's log ---------------------------------------------------------------------------------------------

    @property
    def have(self) -> tuple[bytes, int]:
        """(name of the region's log, number up to which everything was taken in)."""
        stored = self._fact("have")
        return (
            (stored[:EPOCH_BYTES], int.from_bytes(stored[EPOCH_BYTES:], "big")) if stored else (bytes(EPOCH_BYTES), 0)
        )

    @have.setter
    def have(self, place: tuple[bytes, int]) -> None:
        with self._transaction():
            self._keep("have", place[0] + place[1].to_bytes(8, "big"))

    def bundles(self, log: bytes) -> dict[int, bytes]:
        """By number in this log, the bundles that were to be fetched when something was written here last."""
        return dict(self._db.execute("SELECT seq, body FROM bundles WHERE log = ? ORDER BY seq", (log,)))

    def take_down(self, log: bytes, seq: int, bundles: Mapping[int, bytes]) -> None:
        """All of the region's log up to a number is taken in, but for these bundles, which are still to be fetched."""
        with self._transaction():
            self._db.execute("DELETE FROM bundles WHERE log != ?", (log,))
            held = {one for (one,) in self._db.execute("SELECT seq FROM bundles")}
            self._db.executemany("DELETE FROM bundles WHERE seq = ?", [(one,) for one in held if one not in bundles])
            fresh = [(one, log, body) for one, body in bundles.items() if one not in held]
            self._db.executemany("INSERT INTO bundles (seq, log, body) VALUES (?, ?, ?)", fresh)
            name, last = self.have
            self._keep("have", log + max(seq, last if name == log else 0).to_bytes(8, "big"))

    def drop_bundle(self, seq: int) -> None:
        """It was fetched, or given up."""
        with self._transaction():
            self._db.execute("DELETE FROM bundles WHERE seq = ?", (seq,))

    def begin_life(self, above: int) -> None:
        """Take a life above one that the region knows of: this outbox or its clock was set back."""
        self.life = next_life(max(self.life, above), 0)
        with self._transaction():
            self._keep("life", self.life.to_bytes(8, "big"))

    def _fact(self, name: str) -> bytes:
        row = self._db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return b"" if row is None else bytes(row[0])

    def _keep(self, name: str, value: bytes) -> None:
        self._db.execute("INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)", (name, value))

    def _recount(self) -> None:
        """What the file says, after a failure."""
        self._bytes, self._count = self._db.execute("SELECT coalesce(sum(bytes), 0), count(*) FROM rows").fetchone()
        dropped = self._fact("dropped")
        self.dropped = _COUNTS(dropped) if dropped else {}

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing; autocommit is on outside of it."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield
            self._db.execute("COMMIT")
        except BaseException as error:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            self._recount()
            if isinstance(error, sqlite3.Error):
                raise DaemonError(f"the outbox takes nothing: {error}; make room on its disk") from error
            raise


def _look(database: sqlite3.Connection) -> None:
    """Whether all in it can be read: what SQLite calls sound may hold bits that were turned.

    Raises:
        sqlite3.Error: SQLite cannot read it.
        ValueError: Something cannot be read. The file is closed in either case.
    """
    try:
        odd = "typeof(body) != 'blob' OR typeof(proofs) != 'blob' OR kind NOT BETWEEN 0 AND 255"
        if database.execute(f"SELECT 1 FROM rows WHERE {odd} LIMIT 1").fetchone():
            raise ValueError("a row")
        for (proofs,) in database.execute("SELECT proofs FROM rows"):
            _PROOFS(proofs)
        facts = dict(database.execute("SELECT name, value FROM facts"))
        if not all(isinstance(value, bytes) for value in facts.values()):
            raise ValueError("a fact")
        if int.from_bytes(facts.get("life", b""), "big") > NUMBER_MAX - APART:
            raise ValueError("the life")
        if len(facts.get("have", _NOTHING)) != len(_NOTHING):
            raise ValueError("the place in the log")
        _COUNTS(facts.get("dropped", b"\x80"))
    except BaseException:
        database.close()
        raise


def _is_of(raw: bytes, node: bytes) -> bool:
    """Whether a batch is this node's; one that cannot be read is nobody's, and no region takes it."""
    try:
        return open_batch(raw).origin == node
    except WireError:
        return True
