"""The logs of writes beside SQLite's files: small whatever is written, and anew after each time they are folded in."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from swarmd.brain.brain import WAL_BYTES
from swarmd.brain.journal import Journal
from swarmd.events.pages import FILE_NAME, PageBounds, PageFile
from swarmd.sqlite_files import LOG_KEPT_BYTES, LOG_PAGES, open_sound
from tests.support.past_world import BEGIN_MS, identity, minutes

SCHEMA = "CREATE TABLE IF NOT EXISTS rows (number INTEGER PRIMARY KEY, body BLOB)"
_FRAME_BYTES = 4_096 + 24


def log_bytes(file: Path) -> int:
    return file.with_name(file.name + "-wal").stat().st_size


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal(tmp_path)
    yield journal
    journal.close()


def test_many_small_writes_leave_a_small_log(tmp_path: Path) -> None:
    rng, file = random.Random(1), tmp_path / "file"
    database = open_sound(file, ("synchronous=NORMAL",), SCHEMA)
    for number in range(1_000):
        database.execute("INSERT INTO rows VALUES (?, ?)", (number * 7_919 % 1_000, rng.randbytes(1_000)))
        assert log_bytes(file) <= (LOG_PAGES + 16) * _FRAME_BYTES
    database.close()


def test_a_large_write_leaves_a_small_log_after_the_next_ones(tmp_path: Path) -> None:
    rng, file = random.Random(1), tmp_path / "file"
    database = open_sound(file, ("synchronous=NORMAL",), SCHEMA)
    database.execute("BEGIN")
    database.executemany("INSERT INTO rows VALUES (?, ?)", ((number, rng.randbytes(4_000)) for number in range(1_000)))
    database.execute("COMMIT")
    assert log_bytes(file) > 3_000_000
    database.execute("INSERT INTO rows VALUES (5000, x'00')")
    assert log_bytes(file) <= LOG_KEPT_BYTES
    database.close()


def test_two_hours_of_pages_leave_a_small_log(tmp_path: Path) -> None:
    own = identity("own")
    file = PageFile(tmp_path / FILE_NAME, own.node, PageBounds(max_age_ms=1 << 45))
    file.open()
    for page in minutes(own, 120, BEGIN_MS, places=30):
        file.add([page], BEGIN_MS)
    assert log_bytes(tmp_path / FILE_NAME) <= LOG_KEPT_BYTES
    file.close()


def test_a_journal_is_folded_in_once_for_each_filled_log(journal: Journal) -> None:
    """The daemon looks once a second: a log that kept its size was folded in, and synced, at every look."""
    rng, folded, written = random.Random(1), 0, 0
    for _ in range(2_000):
        before = journal.wal_bytes()
        journal.commit([(b"state/%d" % rng.randrange(200), rng.randbytes(300))])
        written += max(0, journal.wal_bytes() - before)
        if journal.wal_bytes() > WAL_BYTES:
            journal.checkpoint()
            folded += 1
    assert 2 <= folded <= written // WAL_BYTES + 1
