"""A region's memory: one SQLite file that one process writes and any may read.

    objects   the present word on each object (`rows.OBJECT_COLUMNS`); (swarm, object) is the key; here and in the
              next two `seen_by` is a hash of who saw it, for the bounds (`bounds.py`)
    merged    (swarm, object, into, stamp)      objects that have become part of others
    history   every accepted word on an object since it was last exported, for Parquet
    nodes     (swarm, node, stream, …)          the newest status of each node; counters add up by life
    events    (swarm, node, life, number, …)
    reports   (swarm, node, model, …)           what each node runs
    sites     (swarm, gateway, …)               the gateways' own word, and when they were heard
    trust, lives, down, facts                   what must survive a restart

Every write is an upsert with an order of its own, so rows in any order, twice, or by two gateways end alike. It is
synced before it is acknowledged: then it leaves the gateways' outboxes, and must not go with a power cut here.
"""

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from swarmd.errors import DaemonError
from swarmd.federation import seers
from swarmd.federation.bounds import tidy_history, tidy_swarm
from swarmd.federation.lives import next_life
from swarmd.federation.rows import OBJECT_COLUMNS, ObjectQuery, ObjectsAnswer, SiteAnswer, object_row, told
from swarmd.federation.whole_files import make_for_owner
from swarmd.sqlite_files import check_version, in_words, open_sound
from swarmd_models.geo.positions import Plane
from swarmd_protocols.federation.gate import Pin, RecordRow
from swarmd_protocols.federation.objects import EPOCH_UNIX_MS, Derived
from swarmd_protocols.federation.wire import EPOCH_BYTES, DownRow, Known, SiteRow
from swarmd_protocols.ids import NodeId
from swarmd_protocols.releases.reports import Report
from swarmd_protocols.state.clock import stamp_ms
from swarmd_protocols.state.crdt.batch import Stream

FILE_NAME = "region.sqlite"
DOWN_KEPT = 10_000
"""Rows that a region has for one swarm; the oldest go: all of them replace each other by name or digest."""
_NAMES = tuple(name for name, _ in OBJECT_COLUMNS)
_COLUMNS = ", ".join(f"{name} {kind}" for name, kind in OBJECT_COLUMNS)
_MARKS = ", ".join("?" for _ in _NAMES)
_SEEN_BY = "seen_by TEXT NOT NULL DEFAULT ''"
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS objects ({_COLUMNS}, {_SEEN_BY}, PRIMARY KEY (swarm, object)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS objects_by_label ON objects (label, last_ms);
CREATE INDEX IF NOT EXISTS objects_by_time ON objects (last_ms);
CREATE INDEX IF NOT EXISTS objects_by_learning ON objects (swarm, learned_ms);
CREATE TABLE IF NOT EXISTS merged (swarm TEXT, object TEXT, into_object TEXT, stamp INTEGER,
    {_SEEN_BY}, PRIMARY KEY (swarm, object)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS history (number INTEGER PRIMARY KEY AUTOINCREMENT, {_COLUMNS},
    {_SEEN_BY}, UNIQUE (swarm, object, stamp, digest));
CREATE TABLE IF NOT EXISTS nodes (swarm TEXT, node TEXT, incarnation INTEGER, n INTEGER, said_ms INTEGER, status TEXT,
    PRIMARY KEY (swarm, node)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS counters (swarm TEXT, node TEXT, life INTEGER, n INTEGER, name TEXT, value INTEGER,
    PRIMARY KEY (swarm, node, life, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS events (swarm TEXT, node TEXT, life INTEGER, number INTEGER, at_ms INTEGER, kind TEXT,
    subject TEXT, reason TEXT, evidence TEXT, PRIMARY KEY (swarm, node, life, number)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS reports (swarm TEXT, node TEXT, model TEXT, sequence INTEGER, active TEXT, epoch INTEGER,
    version INTEGER, phase TEXT, verdict TEXT, reason TEXT, PRIMARY KEY (swarm, node, model)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sites (swarm TEXT, gateway TEXT, as_of_ms INTEGER, heard_ms INTEGER, members INTEGER,
    alive INTEGER, gateways INTEGER, objects INTEGER, waiting INTEGER, dropped INTEGER, has_origin INTEGER,
    latitude_e7 INTEGER, longitude_e7 INTEGER, version TEXT, shares INTEGER,
    PRIMARY KEY (swarm, gateway)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS swarms (swarm TEXT PRIMARY KEY, name TEXT, full_name TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS trust (swarm TEXT, kind TEXT, statement BLOB, PRIMARY KEY (swarm, kind, statement))
    WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS lives (swarm TEXT, gateway BLOB, life INTEGER, number INTEGER NOT NULL DEFAULT -1,
    PRIMARY KEY (swarm, gateway)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS down (seq INTEGER PRIMARY KEY AUTOINCREMENT, swarm TEXT, kind INTEGER, key BLOB, body BLOB);
CREATE UNIQUE INDEX IF NOT EXISTS down_by_key ON down (swarm, kind, key);
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;
{seers.SCHEMA}"""
_INDICES = """
CREATE INDEX IF NOT EXISTS objects_by_seer ON objects (swarm, seen_by, stamp);
CREATE INDEX IF NOT EXISTS merged_by_seer ON merged (swarm, seen_by, stamp);
CREATE INDEX IF NOT EXISTS history_by_seer ON history (swarm, seen_by);
"""
"""Made once the columns are there: files of before they were have none."""
_UPSERT = (
    f"INSERT INTO objects ({', '.join(_NAMES)}, seen_by) VALUES ({_MARKS}, ?) "
    "ON CONFLICT (swarm, object) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in (*_NAMES, "seen_by"))
    + " WHERE (excluded.stamp, excluded.digest) > (stamp, digest)"
)


class Store:
    """One region's file.

    Args:
        path: Where.
        is_reader: Only questions are asked; the file must be there.

    Raises:
        DaemonError: It cannot be opened.
    """

    def __init__(self, path: Path, *, is_reader: bool = False) -> None:
        try:
            if is_reader:
                # As an address of its own making: a folder's name may hold what ends or changes one.
                address = f"{path.absolute().as_uri()}?mode=ro"
                self._db = sqlite3.connect(address, uri=True, isolation_level=None, timeout=1.0)
                check_version(self._db)
            else:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                make_for_owner(path)
                self._db = open_sound(
                    path, ("synchronous=FULL", "wal_autocheckpoint=1000", "journal_size_limit=8388608"), _SCHEMA
                )
                self._db.execute(f"PRAGMA cache_size=-{8 << 10}")
                self._add_column("lives", "number INTEGER NOT NULL DEFAULT -1")
                for table in ("objects", "merged", "history"):
                    self._add_column(table, _SEEN_BY)
                self._db.executescript(_INDICES)
        except (OSError, sqlite3.Error) as error:
            raise DaemonError(f"the region's file {in_words(path, error)}") from error
        self._origins: dict[str, Plane | None] = {}
        self._written: set[str] = set()
        """Swarms of which something was written since their bounds were looked at."""
        self.log = b"" if is_reader else (self._fact("log") or self._named())
        """Name of the log of what goes down."""

    def _add_column(self, table: str, column: str) -> None:
        if column.split()[0] not in {row[1] for row in self._db.execute(f"PRAGMA table_info({table})")}:
            self._db.execute(f"ALTER TABLE {table} ADD COLUMN {column}")

    def close(self) -> None:
        """Nothing is read or written any more."""
        self._db.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise

    @contextlib.contextmanager
    def part(self) -> Iterator[None]:
        """All or nothing of a part. Inside a transaction, which goes on where this fails."""
        self._db.execute("SAVEPOINT part")
        try:
            yield
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK TO part")
                self._db.execute("RELEASE part")
            raise
        self._db.execute("RELEASE part")

    # --- What swarms say ----------------------------------------------------------------------------------------------

    def know_swarms(self, pins: Iterable[Pin]) -> None:
        """The swarms that are pinned now; what is held of others stays and is not shown."""
        with self.transaction():
            self._db.execute("DELETE FROM swarms")
            self._db.executemany(
                "INSERT INTO swarms VALUES (?, ?, ?)", [(pin.key.hex(), pin.name, pin.swarm) for pin in pins]
            )

    def put_object(self, swarm: str, found: Derived, gateway: NodeId, confirm_observers: int, now_ms: int) -> bool:
        """One word on an object; whether it is the newest. Inside a transaction."""
        row = _row_of(self, swarm, found, gateway, confirm_observers, now_ms)
        seen_by = seers.note(self._db, swarm, found.observers)
        is_newest = self._db.execute(_UPSERT, (*row, seen_by)).rowcount > 0
        self._db.execute(
            f"INSERT OR IGNORE INTO history ({', '.join(_NAMES)}, seen_by) VALUES ({_MARKS}, ?)",
            (*row, seen_by),
        )
        for other in found.merged:
            self._db.execute(
                "INSERT INTO merged VALUES (?, ?, ?, ?, ?) ON CONFLICT (swarm, object) DO UPDATE SET "
                "into_object = excluded.into_object, stamp = excluded.stamp, seen_by = excluded.seen_by "
                "WHERE (excluded.stamp, excluded.into_object) > (stamp, into_object)",
                (swarm, other.hex(), found.object_id.hex(), found.stamp, seen_by),
            )
        return is_newest

    def _plane(self, swarm: str) -> Plane | None:
        if swarm not in self._origins:
            row = self._db.execute(
                "SELECT latitude_e7, longitude_e7 FROM sites WHERE swarm = ? AND has_origin ORDER BY heard_ms DESC",
                (swarm,),
            ).fetchone()
            self._origins[swarm] = None if row is None else Plane(row[0] / 1e7, row[1] / 1e7)
        return self._origins[swarm]

    def put_record(self, swarm: str, said: RecordRow) -> None:
        """A node's status, counters or events. Inside a transaction."""
        node, said_ms = said.node.hex(), EPOCH_UNIX_MS + stamp_ms(said.stamp)
        match said.stream:
            case Stream.STATUS:
                _put_status(self._db, swarm, said, said_ms)
            case Stream.COUNTERS:
                if said.status:
                    _put_status(self._db, swarm, said, said_ms)
                self._db.executemany(
                    "INSERT INTO counters VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (swarm, node, life, name) DO UPDATE "
                    "SET n = excluded.n, value = excluded.value WHERE excluded.n > n",
                    [(swarm, node, said.incarnation, said.n, name, value) for name, value in said.counters.items()],
                )
            case _:
                self._db.executemany(
                    "INSERT OR IGNORE INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    [
                        (swarm, node, row.life, row.number, EPOCH_UNIX_MS + row.at_ms, row.kind, row.subject,
                         row.reason, row.evidence)
                        for row in said.events
                    ],
                )  # fmt: skip

    def put_report(self, swarm: str, report: Report) -> None:
        """What a node runs. Inside a transaction."""
        self._db.execute(
            "INSERT INTO reports VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (swarm, node, model) DO UPDATE SET "
            "sequence = excluded.sequence, active = excluded.active, epoch = excluded.epoch, "
            "version = excluded.version, phase = excluded.phase, verdict = excluded.verdict, reason = excluded.reason "
            "WHERE excluded.sequence > sequence",
            (swarm, report.node.hex(), report.model, report.sequence, report.active.hex(), report.epoch, report.version,
             report.phase, report.verdict.name.lower(), report.reason),
        )  # fmt: skip

    def put_site(self, swarm: str, gateway: NodeId, site: SiteRow, now_ms: int) -> None:
        """A gateway's own word. Inside a transaction."""
        self._db.execute(
            "INSERT INTO sites VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?) "
            "ON CONFLICT (swarm, gateway) DO UPDATE SET as_of_ms = max(as_of_ms, excluded.as_of_ms), "
            "heard_ms = excluded.heard_ms, members = excluded.members, alive = excluded.alive, "
            "gateways = excluded.gateways, objects = excluded.objects, waiting = excluded.waiting, "
            "has_origin = excluded.has_origin, latitude_e7 = excluded.latitude_e7, "
            "longitude_e7 = excluded.longitude_e7, version = excluded.version, shares = excluded.shares "
            "WHERE excluded.as_of_ms >= as_of_ms",
            (swarm, gateway.hex(), site.as_of_ms, now_ms, site.members, site.alive, site.gateways, site.objects,
             site.waiting, site.has_origin, site.latitude_e7, site.longitude_e7, site.version, site.shares),
        )  # fmt: skip
        self._origins.pop(swarm, None)

    def heard(self, swarm: str, gateway: NodeId, dropped: int, now_ms: int) -> None:
        """A gateway was heard. Inside a transaction."""
        self._db.execute(
            "UPDATE sites SET heard_ms = ?, dropped = ? WHERE swarm = ? AND gateway = ?",
            (now_ms, dropped, swarm, gateway.hex()),
        )
        self._written.add(swarm)

    def tidy(self) -> int:
        """Keep the bounds; returns how many words of history had to go unexported."""
        with self.transaction():
            written, self._written = self._written, set()
            for swarm in sorted(written):
                tidy_swarm(self._db, swarm)
                seers.tidy(self._db, swarm)
                self._origins.pop(swarm, None)
            gone = tidy_history(self._db)
        return gone

    def history(self, limit: int) -> list[tuple[int, dict[str, Any]]]:
        """(number, word) of what waits to be exported, in order."""
        rows = self._db.execute(
            f"SELECT number, {', '.join(_NAMES)} FROM history ORDER BY number LIMIT ?", (limit,)
        ).fetchall()
        return [(row[0], told(row[1:], self._plane(row[1]))) for row in rows]

    def forget_history(self, last: int) -> None:
        """Words up to this number are exported."""
        with self.transaction():
            self._db.execute("DELETE FROM history WHERE number <= ?", (last,))

    # --- Trust and lives ----------------------------------------------------------------------------------------------

    def trust(self, swarm: str) -> list[tuple[str, bytes]]:
        """(kind, statement) of what is kept of a swarm's trust."""
        return list(self._db.execute("SELECT kind, statement FROM trust WHERE swarm = ?", (swarm,)))

    def shut_out(self, judging: seers.Judging, revoked_of: Callable[[str], Collection[bytes]]) -> None:
        """Go on with who is out: what they alone saw is not shown. Inside a transaction."""
        judging.step(self._db, revoked_of)

    def keep_trust(self, swarm: str, statements: Iterable[tuple[str, bytes]]) -> None:
        """Keep exactly these. Inside a transaction."""
        self._db.execute("DELETE FROM trust WHERE swarm = ?", (swarm,))
        self._db.executemany("INSERT OR IGNORE INTO trust VALUES (?, ?, ?)", [(swarm, *one) for one in statements])

    def lives(self, swarm: str) -> dict[NodeId, tuple[int, int]]:
        """Gateway to the highest life that was heard, and the highest number in it."""
        rows = self._db.execute("SELECT gateway, life, number FROM lives WHERE swarm = ?", (swarm,))
        return {NodeId(gateway): (life, number) for gateway, life, number in rows}

    def keep_life(self, swarm: str, gateway: NodeId, life: int, number: int) -> None:
        """Inside a transaction."""
        self._db.execute("INSERT OR REPLACE INTO lives VALUES (?, ?, ?, ?)", (swarm, gateway, life, number))

    def next_life(self, unix_s: int) -> int:
        """The region's own."""
        life = next_life(int.from_bytes(self._fact("life"), "big"), unix_s)
        self._keep("life", life.to_bytes(8, "big"))
        return life

    # --- What goes down -----------------------------------------------------------------------------------------------

    def send_down(self, swarm: str, kind: int, key: bytes, body: bytes) -> None:
        """Have something for a swarm; what has the same key is replaced."""
        with self.transaction():
            put_down(self, swarm, kind, key, body)

    def down(self, swarm: str, after: int, limit: int) -> list[DownRow]:
        """What a swarm has not taken in."""
        rows = self._db.execute(
            "SELECT seq, kind, body FROM down WHERE swarm = ? AND seq > ? ORDER BY seq LIMIT ?", (swarm, after, limit)
        )
        return [DownRow(*row) for row in rows]

    def down_count(self) -> int:
        """The highest number that was ever given: rises with every row."""
        row = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'down'").fetchone()
        return 0 if row is None else int(row[0])

    # --- Questions ----------------------------------------------------------------------------------------------------

    def known(self, swarm: str, objects: Sequence[bytes]) -> list[Known]:
        """These objects as they are here."""
        found = []
        for one in objects:
            row = self._db.execute(
                "SELECT stamp, digest FROM objects WHERE swarm = ? AND object = ?", (swarm, one.hex())
            ).fetchone()
            if row is not None:
                found.append(Known(one, row[0], bytes.fromhex(row[1])))
        return found

    def objects(self, query: ObjectQuery, now_ms: int, stale_ms: int) -> ObjectsAnswer:
        """Answer a question; sites that were not heard of for `stale_ms` are named."""
        swarms = {key: (name, full) for key, name, full in self._db.execute("SELECT * FROM swarms")}
        wanted = [key for key, names in swarms.items() if query.swarm in ("", key, *names)]
        where = [f"o.swarm IN ({', '.join('?' for _ in wanted)})", "o.tier != 'candidate'", "o.review != 'rejected'"]
        values: list[Any] = list(wanted)
        for condition, value in (
            ("o.label = ?", query.label),
            ("o.tier = ?", query.tier),
            ("o.last_ms >= ?", query.since_ms),
            ("o.last_ms < ?", query.until_ms),
        ):
            if value:
                where.append(condition)
                values.append(value)
        joined, vouched = seers.vouched(self._db)
        text = (
            f"SELECT {', '.join(f'o.{name}' for name in _NAMES)} FROM objects o "
            f"LEFT JOIN merged m ON m.swarm = o.swarm AND m.object = o.object{joined} "
            f"WHERE {' AND '.join(where)}{vouched} AND (m.stamp IS NULL OR m.stamp < o.stamp) "
            "ORDER BY o.last_ms DESC LIMIT ?"
        )
        rows = self._db.execute(text, (*values, query.limit + 1)).fetchall() if wanted else []
        objects = tuple(told(row, self._plane(row[0])) | {"name": swarms[row[0]][0]} for row in rows[: query.limit])
        return ObjectsAnswer(
            now_ms, self._sites(swarms, wanted, objects, now_ms, stale_ms), objects, len(rows) > query.limit
        )

    def _sites(
        self,
        swarms: Mapping[str, tuple[str, str]],
        wanted: Sequence[str],
        objects: Sequence[Mapping[str, Any]],
        now_ms: int,
        stale_ms: int,
    ) -> tuple[SiteAnswer, ...]:
        counts: dict[str, int] = {}
        for one in objects:
            counts[one["swarm"]] = counts.get(one["swarm"], 0) + 1
        answers = []
        for key in sorted(wanted, key=lambda key: swarms[key]):
            rows = self._db.execute(
                "SELECT as_of_ms, heard_ms, waiting, dropped FROM sites WHERE swarm = ?", (key,)
            ).fetchall()
            # Heard in times to come: this clock was ahead then, and who has gone silent since is as old as any.
            fresh = [row for row in rows if abs(now_ms - row[1]) < stale_ms]
            # Each gateway answers for its own shares: the answer is as old as the oldest of those that publish.
            heard = fresh or rows
            as_of = (min if fresh else max)((row[0] for row in heard), default=None)
            answers.append(
                SiteAnswer(
                    swarms[key][0],
                    key,
                    as_of,
                    not fresh,
                    len(fresh),
                    sum(row[2] for row in heard),
                    sum(row[3] for row in rows),
                    counts.get(key, 0),
                )
            )
        return tuple(answers)

    # --- Facts --------------------------------------------------------------------------------------------------------

    def _named(self) -> bytes:
        name = os.urandom(EPOCH_BYTES)
        self._keep("log", name)
        return name

    def _fact(self, name: str) -> bytes:
        row = self._db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return b"" if row is None else bytes(row[0])

    def _keep(self, name: str, value: bytes) -> None:
        self._db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))


def candidates_of(store: Store, swarm: str) -> int:
    """How many objects of a swarm ("": of all) are not shown, since too few nodes have seen them."""
    text = (
        "SELECT count(*) FROM objects o JOIN swarms s ON s.swarm = o.swarm WHERE o.tier = 'candidate' "
        "AND o.review != 'rejected' AND ? IN ('', s.swarm, s.name, s.full_name)"
    )
    return int(store._db.execute(text, (swarm,)).fetchone()[0])


def gateways_of(store: Store, swarm: str) -> list[NodeId]:
    """A swarm's gateways that were ever heard, the last heard first."""
    rows = store._db.execute("SELECT gateway FROM sites WHERE swarm = ? ORDER BY heard_ms DESC, gateway", (swarm,))
    return [NodeId(bytes.fromhex(row[0])) for row in rows]


def _row_of(
    store: Store, swarm: str, found: Derived, gateway: NodeId, confirm_observers: int, now_ms: int
) -> tuple[Any, ...]:
    return object_row(swarm, found, gateway, found.tier(confirm_observers), store._plane(swarm), now_ms)


def word_of(
    store: Store, swarm: str, found: Derived, gateway: NodeId, confirm_observers: int, now_ms: int
) -> dict[str, Any]:
    """A word on an object as a row of an answer; it is not written down."""
    return dict(zip(_NAMES, _row_of(store, swarm, found, gateway, confirm_observers, now_ms), strict=True))


def add_trust(store: Store, swarm: str, kind: str, statement: bytes) -> None:
    """Keep one more statement of a swarm's trust. Inside a transaction."""
    store._db.execute("INSERT OR IGNORE INTO trust VALUES (?, ?, ?)", (swarm, kind, statement))


def put_down(store: Store, swarm: str, kind: int, key: bytes, body: bytes) -> None:
    """As `Store.send_down`, inside a transaction.

    Its number is above the last and not below the clock's milliseconds: gateways have taken in all up to a number, and
    a file that is put back from a backup must not give that one a second time.
    """
    seq, database = max(store.down_count() + 1, time.time_ns() // 1_000_000), store._db
    database.execute("DELETE FROM down WHERE swarm = ? AND kind = ? AND key = ?", (swarm, kind, key))
    database.execute("INSERT INTO down VALUES (?, ?, ?, ?, ?)", (seq, swarm, kind, key, body))
    database.execute(
        "DELETE FROM down WHERE swarm = ? AND seq <= (SELECT seq FROM down WHERE swarm = ? ORDER BY seq DESC "
        "LIMIT 1 OFFSET ?)",
        (swarm, swarm, DOWN_KEPT),
    )


def held_down(store: Store, swarm: str, kind: int, key: bytes) -> bytes:
    """What there is for a swarm under a key; b"" for nothing."""
    row = store._db.execute(
        "SELECT body FROM down WHERE swarm = ? AND kind = ? AND key = ?", (swarm, kind, key)
    ).fetchone()
    return b"" if row is None else bytes(row[0])


def newest_down(store: Store) -> dict[str, int]:
    """Swarm to the highest number of what it is to take in."""
    return dict(store._db.execute("SELECT swarm, max(seq) FROM down GROUP BY swarm"))


def _put_status(db: sqlite3.Connection, swarm: str, said: RecordRow, said_ms: int) -> None:
    # It comes alone or beside counters, whose numbers are another count: of one life the later stamp is newer, and it
    # stands in `n`, as both may be of one millisecond.
    db.execute(
        "INSERT INTO nodes VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (swarm, node) DO UPDATE SET "
        "incarnation = excluded.incarnation, n = excluded.n, said_ms = excluded.said_ms, status = excluded.status "
        "WHERE (excluded.incarnation, excluded.said_ms, excluded.n) > (incarnation, said_ms, n)",
        (swarm, said.node.hex(), said.incarnation, said.stamp, said_ms, said.status.decode("utf-8", "replace")),
    )
