"""The journal: durable batches, and every way in which a disk can fail."""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from swarmd.brain.journal import FILE_NAME, PENDING_BYTES, Journal
from swarmd.errors import JournalError


def reopened(folder: Path) -> dict[bytes, bytes]:
    store = Journal(folder)
    try:
        return store.records
    finally:
        store.close()


def test_records_survive_and_the_last_value_wins(tmp_path: Path) -> None:
    store = Journal(tmp_path)
    store.commit([(b"a", b"1"), (b"b", b"2"), (b"a", b"3")])
    store.commit([(b"b", None), (b"c", b"")])
    store.close()
    assert reopened(tmp_path) == {b"a": b"3", b"c": b""}


def test_a_killed_process_loses_no_committed_batch(tmp_path: Path) -> None:
    program = (
        "import os, sys, signal; from pathlib import Path; from swarmd.brain.journal import Journal\n"
        "s = Journal(Path(sys.argv[1]))\n"
        "for i in range(50): s.commit([(b'k%d' % i, b'v'), (b'last', b'%d' % i)])\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert done.returncode == -9
    records = reopened(tmp_path)
    assert len(records) == 51
    assert records[b"last"] == b"49"


def test_two_daemons_cannot_share_a_directory(tmp_path: Path) -> None:
    first = Journal(tmp_path)
    with pytest.raises(JournalError, match="another daemon uses this directory"):
        Journal(tmp_path)
    first.close()
    Journal(tmp_path).close()


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="choose another --state"):
        Journal(tmp_path / "file" / "state")


@pytest.mark.parametrize("damage", ["header", "middle", "not a database", "other tables"])
def test_a_damaged_journal_is_moved_aside_and_what_can_be_read_is_kept(tmp_path: Path, damage: str) -> None:
    store = Journal(tmp_path)
    for i in range(400):
        store.commit([(b"key%05d" % i, b"v" * 200)])
    store.close()
    store.checkpoint()
    path = tmp_path / FILE_NAME
    data = bytearray(path.read_bytes())
    if damage == "header":
        data[:100] = os.urandom(100)
    elif damage == "middle":
        data[len(data) // 2 : len(data) // 2 + 4096] = os.urandom(4096)
    elif damage == "not a database":
        data = bytearray(b"hello")
    path.write_bytes(data)
    if damage == "other tables":
        path.unlink()
        with sqlite3.connect(path) as other:
            other.execute("CREATE TABLE records (something TEXT)")
        other.close()
    store = Journal(tmp_path)
    codes = [code for code, _ in store.take_alarms()]
    assert codes == ["journal_corrupt"]
    assert store.recovered_from is not None
    assert store.recovered_from.exists()
    if damage == "middle":
        assert len(store.records) >= 100
        assert all(key.startswith(b"key") for key in store.records)
    kept = dict(store.records)
    store.commit([(b"new", b"1")])
    store.close()
    assert reopened(tmp_path) == {**kept, b"new": b"1"}


def test_a_torn_write_ahead_log_costs_only_its_tail(tmp_path: Path) -> None:
    program = (
        "import os, sys, signal; from pathlib import Path; from swarmd.brain.journal import Journal\n"
        "s = Journal(Path(sys.argv[1]))\n"
        "for i in range(20): s.commit([(b'%03d' % i, b'v' * 100)])\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    log = tmp_path / (FILE_NAME + "-wal")
    with log.open("r+b") as handle:
        handle.truncate(log.stat().st_size - 1000)
    records = reopened(tmp_path)
    assert 15 <= len(records) < 20
    assert sorted(records) == [b"%03d" % i for i in range(len(records))]


def test_a_full_disk_degrades_to_memory_and_heals(tmp_path: Path) -> None:
    store = Journal(tmp_path)
    store.commit([(b"before", b"1")])
    assert store._database is not None
    pages = store._database.execute("PRAGMA page_count").fetchone()[0]
    store._database.execute(f"PRAGMA max_page_count={pages}")
    store.commit([(b"big", b"x" * 100_000)], now_ns=0)
    assert store.degraded
    store.commit([(b"small", b"2")], now_ns=1)
    assert [code for code, _ in store.take_alarms()] == ["journal_failing"]
    store._database.execute("PRAGMA max_page_count=100000")
    store.retry(10_000_000_000)
    assert not store.degraded
    assert [code for code, _ in store.take_alarms()] == ["journal_recovered"]
    store.close()
    assert set(reopened(tmp_path)) == {b"before", b"big", b"small"}


AUTHORS = (b"A" * 16, b"B" * 16)


def fact(author: bytes, number: int, size: int = 2_000) -> tuple[bytes, bytes]:
    return b"state/o/" + author + number.to_bytes(6, "big"), b"x" * size


@pytest.mark.slow
def test_a_flood_of_facts_stops_at_the_bound_and_names_its_author(tmp_path: Path) -> None:
    """Neither file nor memory grows beyond its bound, and the node's identity is written all the same."""
    bound = 1 << 20
    journal = Journal(tmp_path, "process", (b"swim/",), file_bytes=bound)
    journal.commit([fact(AUTHORS[1], 0)])
    now_ns = 0
    for number in range(6_000):
        now_ns += 100_000_000
        journal.commit([fact(AUTHORS[0], number)], now_ns)
        assert journal._pending_bytes <= PENDING_BYTES
    alarms = journal.take_alarms()
    assert [code for code, _ in alarms] == ["journal_full"]
    assert AUTHORS[0].hex() in alarms[0][1]
    assert journal.dropped > 0
    journal.commit([(b"swim/incarnation", b"7")], now_ns)
    assert b"swim/incarnation" not in journal._pending
    held = sum(len(key) + len(value or b"") for key, value in journal._pending.items())
    assert held == journal._pending_bytes
    journal._pending.clear()  # As if the process died: what waited in memory is lost.
    journal.close()
    again = reopened(tmp_path)
    assert bound / 2 < (tmp_path / FILE_NAME).stat().st_size <= bound + (1 << 20)
    assert again[b"swim/incarnation"] == b"7"
    assert fact(AUTHORS[1], 0)[0] in again


def test_what_is_deleted_makes_room_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path, file_bytes=1 << 20)
    for number in range(1_000):
        journal.commit([fact(AUTHORS[0], number)], 0)
    assert journal.degraded
    journal.commit([(fact(AUTHORS[0], number)[0], None) for number in range(990)], 0)
    journal.retry(10_000_000_000)
    assert not journal.degraded
    assert journal._pending_bytes == 0
    journal.close()
    assert len(reopened(tmp_path)) == 10


def test_power_durability_syncs_every_commit_and_process_only_identity(tmp_path: Path) -> None:
    def levels(store: Journal) -> list[str]:
        seen: list[str] = []
        assert store._database is not None
        store._database.set_trace_callback(lambda text: seen.append(text) if "synchronous" in text else None)
        store.commit([(b"state/x", b"1")])
        store.commit([(b"node/x", b"1")])
        store.close()
        return seen

    once = levels(Journal(tmp_path / "a", "process", (b"node/",)))
    assert len([text for text in once if "FULL" in text]) == 1
    assert len([text for text in levels(Journal(tmp_path / "b", "power", (b"node/",))) if "FULL" in text]) == 2
