"""The file of events: bounds for everybody, a failing disk, a damaged file, a power cut between two syncs."""

import asyncio
import os
import sqlite3
import subprocess
import sys

import pytest

from swarmd.events import store as store_module
from swarmd.events.record import EventRecord, clean
from swarmd.events.store import FAIR_ROWS, Bounds, EventStore, Query

WAITING = 10
OWN, THIEF, HONEST = "aa" * 16, "bb" * 16, "cc" * 16


def record(number, origin=OWN, kind="joined", at_ms=None, text="x"):
    at_ms = 1_700_000_000_000 + number if at_ms is None else at_ms
    return EventRecord(at_ms, origin[:4], origin, 1, number, kind, "drone-1", text, "")


def run(folder, work, bounds=None):
    async def life():
        problems = []
        store = EventStore(folder, bounds or Bounds(), problems.append)
        last = await store.open()
        try:
            result = await work(store, problems)
        finally:
            store.close()
        return last, result

    return asyncio.run(life())


async def found(store, **query):
    return await store.find(Query(**query))


def test_what_was_put_is_found_in_order_once_and_after_a_restart(tmp_path):
    async def first(store, problems):
        for number in (2, 1, 3, 3):
            store.put(record(number))
        store.put(record(1, HONEST, "failed", at_ms=1), HONEST)
        return [(one.origin_id, one.number) for one in await found(store)]

    async def second(store, problems):
        return (
            len(await found(store)),
            [one.kind for one in await found(store, kinds=("failed",))],
            [one.number for one in await found(store, origin="aaaa", limit=2)],
            [one.number for one in await found(store, since_ms=1_700_000_000_002)],
            [one.number for one in await found(store, until_ms=5)],
        )

    last, order = run(tmp_path, first)
    assert last == ""
    assert order == [(HONEST, 1), (OWN, 1), (OWN, 2), (OWN, 3)]
    last, seen = run(tmp_path, second)
    assert last == "joined", "the last event of this node, whatever others said"
    assert seen == (4, ["failed"], [2, 3], [2, 3], [1])


def check_a_flood(folder):
    """A hostile author and what it causes take their own rows, and nobody else's go."""

    async def flood(store, problems):
        store.put(record(1, HONEST, "failed"), HONEST)
        store.put(record(1))
        for number in range(1, 3_000):
            store.put(record(number, THIEF, "failed"), THIEF)
            if number % 500 == 0:
                await found(store)
        rows = await found(store, limit=10_000)
        return {origin: sum(one.origin_id == origin for one in rows) for origin in (OWN, THIEF, HONEST)}

    _, counts = run(folder, flood, Bounds(author_rows=100))
    assert counts == {OWN: 1, THIEF: 100, HONEST: 1}


def test_a_flood_of_one_author_takes_its_own_rows(tmp_path):
    check_a_flood(tmp_path)


def test_the_file_is_bounded_and_the_greediest_gives_way(tmp_path):
    async def fill(store, problems):
        for number in range(1, FAIR_ROWS + 1):
            store.put(record(number, HONEST, "failed", text="h" * 200), HONEST)
        for number in range(1, 12_000):
            store.put(record(number, THIEF, "failed", text="t" * 200), THIEF)
            if number % 1_000 == 0:
                await found(store)
        rows = await found(store, limit=10_000)
        return sum(one.origin_id == HONEST for one in rows), problems, dict(store.counts)

    bounds = Bounds(max_bytes=2 << 20, author_rows=100_000)
    _, (honest, problems, counts) = run(tmp_path, fill, bounds)
    assert honest == FAIR_ROWS
    assert problems == []
    assert counts["pruned"] > 1_000
    assert (tmp_path / store_module.FILE_NAME).stat().st_size <= 2 << 20


def test_old_rows_go_but_never_the_newest(tmp_path, monkeypatch):
    monkeypatch.setattr(store_module, "KEPT_ROWS", 5)

    async def old(store, problems):
        for number in range(1, 21):
            store.put(record(number))
        await found(store)
        store._thread.submit(store._age)
        return [one.number for one in await found(store)]

    assert run(tmp_path, old, Bounds(max_age_ms=-1_000))[1] == [16, 17, 18, 19, 20]


def test_a_damaged_file_is_moved_aside_and_what_can_be_read_is_kept(tmp_path):
    async def fill(store, problems):
        for number in range(1, 400):
            store.put(record(number, text="y" * 200))

    run(tmp_path, fill)
    path = tmp_path / store_module.FILE_NAME
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 9000] = b"\xff" * 9000
    path.write_bytes(data)

    async def again(store, problems):
        store.put(record(1_000))
        rows = await found(store)
        return store.moved_aside, len(rows), rows[-1].number, problems

    _, (aside, count, last, problems) = run(tmp_path, again)
    assert aside is not None
    assert aside.exists()
    assert count > 100
    assert last == 1_000
    assert problems == []


def test_a_file_that_is_no_database_does_not_stop_anything(tmp_path):
    (tmp_path / store_module.FILE_NAME).write_bytes(b"not a database at all" * 1_000)

    async def work(store, problems):
        store.put(record(1))
        return [one.number for one in await found(store)]

    assert run(tmp_path, work)[1] == [1]


def test_a_failing_disk_is_said_once_events_wait_and_are_written_later(tmp_path, monkeypatch):
    monkeypatch.setattr(store_module, "RETRY_S", 0.0)

    class Full(sqlite3.OperationalError):
        sqlite_errorcode = sqlite3.SQLITE_FULL

    def full(self, database, entries):
        raise Full("database or disk is full")

    async def work(store, problems):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(EventStore, "_insert", full)
            for number in range(1, 5):
                store.put(record(number))
                await found(store)
            during = [one.number for one in await found(store)]
            await asyncio.sleep(0)
            said = list(problems)
        store.tick()
        after = [one.number for one in await found(store)]
        await asyncio.sleep(0)
        return during, said, after, list(problems), store.counts["written"]

    _, (during, said, after, problems, written) = run(tmp_path, work)
    assert during == after == [1, 2, 3, 4]
    assert len(said) == 1
    assert "disk is full" in said[0]
    assert problems[1:] == [""]
    assert written == 4


def test_what_waits_for_a_disk_is_bounded(tmp_path, monkeypatch):
    check_what_waits_is_bounded(tmp_path, monkeypatch)


def check_what_waits_is_bounded(tmp_path, monkeypatch):
    """The newest ones wait, and what others cause goes first."""
    monkeypatch.setattr(store_module, "WAITING_MAX", WAITING)
    monkeypatch.setattr(EventStore, "_connected", lambda self: (_ for _ in ()).throw(sqlite3.OperationalError("no")))

    async def work(store, problems):
        for number in range(1, 31):
            store.put(record(number))
        for number in range(31, 61):
            store.put(record(number), THIEF)
        return [one.number for one in await found(store)], store.counts["dropped"]

    assert run(tmp_path, work)[1] == ([*range(21, 31)], 50)


def test_text_is_bounded_and_cannot_steer_a_terminal():
    assert clean("a\x1b[2Jb\nc", 64) == "a?[2Jb?c"
    assert len(clean("é" * 500, 240)) == 240


def test_every_transaction_is_synced_so_that_a_power_cut_takes_nothing_that_was_written(tmp_path):
    async def work(store, problems):
        store.put(record(1))
        await found(store)
        database = store._database
        ask = lambda what: store._thread.submit(lambda: database.execute(f"PRAGMA {what}").fetchone()[0]).result()  # noqa: E731
        return ask("journal_mode"), ask("synchronous")

    assert run(tmp_path, work)[1] == ("wal", 2)


PROGRAM = """
import asyncio, sys
from pathlib import Path
from swarmd.events.record import EventRecord
from swarmd.events.store import Bounds, EventStore, Query

async def main():
    folder, problems = Path(sys.argv[1]), []
    store = EventStore(folder, Bounds(), problems.append)
    await store.open()
    (folder / "ballast").write_bytes(bytes(1 << 20)) if not (folder / "ballast").exists() else None
    number = 0
    while not problems and number < 20_000:
        number += 1
        store.put(EventRecord(number, "a", "aa" * 16, 1, number, "joined", "x" * 60, "y" * 200, "z" * 200))
        if number % 100 == 0:
            await store.find(Query(limit=1))
            await asyncio.sleep(0)
    full = problems[0]
    (folder / "ballast").unlink()
    store._retry_at_s = 0.0
    store.tick()
    rows = await store.find(Query(limit=10_000, since_ms=number - 50))
    async with asyncio.timeout(60):
        while problems[-1]:
            await asyncio.sleep(0.01)
    store.close()
    print(full)
    print(len(rows), repr(problems[-1]), store.counts["dropped"])

asyncio.run(main())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="not root here, to mount a small disk")
def test_a_disk_that_is_really_full_is_said_and_written_to_again(tmp_path):
    script = tmp_path / "work.py"
    script.write_text(PROGRAM)
    small = tmp_path / "small"
    small.mkdir()
    command = f"mount -t tmpfs -o size=2m none {small} && exec {sys.executable} {script} {small}"
    done = subprocess.run(["unshare", "-m", "sh", "-c", command], capture_output=True, text=True, timeout=120)
    if "unshare failed" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"no private mounts here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    said, counts = done.stdout.splitlines()
    assert "full" in said
    assert counts == "51 '' 0"


def test_a_lone_event_is_written_at_once_and_what_follows_shares_a_sync(tmp_path, monkeypatch):
    async def work(store, problems):
        monkeypatch.setattr(store_module, "GATHER_S", 3_600.0)
        store.put(record(1))
        async with asyncio.timeout(60):
            while not store.counts["written"]:
                await asyncio.sleep(0.001)
        for number in range(2, 30):
            store.put(record(number))
            await asyncio.sleep(0)
        waiting = store.counts["written"]
        return waiting, len(await found(store))

    assert run(tmp_path, work)[1] == (1, 29)


def test_what_was_gathered_is_written_without_being_asked_for(tmp_path, monkeypatch):
    async def work(store, problems):
        monkeypatch.setattr(store_module, "GATHER_S", 0.01)
        for number in range(1, 4):
            store.put(record(number))
            async with asyncio.timeout(60):
                while store.counts["written"] < number:
                    await asyncio.sleep(0.001)
        return store.counts["written"]

    assert run(tmp_path, work)[1] == 3
