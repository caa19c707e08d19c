"""SQLite files over versions: a later one is never read or written as if it were ours, one without a number is ours."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from swarmd import sqlite_files
from swarmd.brain.journal import Journal
from swarmd.cli.main import main
from swarmd.errors import DaemonError
from swarmd.events import pages
from swarmd.events import store as events
from swarmd.federation import outbox
from swarmd.federation import store as regions
from swarmd.federation.settings import make_region
from swarmd.ground.past import Past
from tests.support.past_world import identity

LATER = sqlite_files.SCHEMA_VERSION + 1


def opens_journal(folder: Path) -> None:
    journal = Journal(folder)
    journal.commit([(b"node/own", b"1")])
    journal.close()


def opens_events(folder: Path) -> None:
    async def life() -> None:
        store = events.EventStore(folder, events.Bounds(), lambda problem: None)
        await store.open()
        store.close()

    asyncio.run(life())


def opens_pages(folder: Path) -> None:
    file = pages.PageFile(folder / pages.FILE_NAME, identity("own").node, pages.PageBounds(max_age_ms=1 << 45))
    file.open()
    file.close()


def opens_past(folder: Path) -> None:
    Past(folder / "history.sqlite", dict).close()


def opens_outbox(folder: Path) -> None:
    outbox.Outbox(folder / outbox.FILE_NAME, 1 << 20, 1e9).close()


def opens_region(folder: Path) -> None:
    regions.Store(folder / regions.FILE_NAME).close()


SET_ASIDE = [opens_journal, opens_events, opens_pages, opens_past, opens_outbox]
Opens = Callable[[Path], None]


def said(path: Path, *statements: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        return [row for one in statements for row in database.execute(one)]


def made(folder: Path, opens: Opens) -> Path:
    opens(folder)
    (path,) = folder.glob("*.sqlite")
    return path


@pytest.mark.parametrize("opens", [*SET_ASIDE, opens_region])
def test_a_new_file_has_a_number_and_one_without_is_taken_as_it_is(tmp_path: Path, opens: Opens) -> None:
    path = made(tmp_path, opens)
    assert said(path, "PRAGMA user_version") == [(sqlite_files.SCHEMA_VERSION,)]
    said(path, "PRAGMA user_version = 0", "PRAGMA journal_mode = DELETE", "CREATE TABLE mine (number INTEGER)")
    opens(tmp_path)
    opens(tmp_path)
    assert said(path, "PRAGMA user_version", "SELECT count(*) FROM mine") == [(0,), (0,)]
    assert [one.name for one in tmp_path.glob("*.sqlite*") if one.name.startswith(path.name + ".")] == []


@pytest.mark.parametrize("opens", SET_ASIDE)
def test_what_a_later_version_wrote_is_set_aside_whole(tmp_path: Path, opens: Opens) -> None:
    path = made(tmp_path, opens)
    said(path, f"PRAGMA user_version = {LATER}", "CREATE TABLE mine (number INTEGER)", "INSERT INTO mine VALUES (7)")
    opens(tmp_path)
    assert said(path, "PRAGMA user_version") == [(sqlite_files.SCHEMA_VERSION,)]
    (aside,) = (one for one in tmp_path.glob(f"{path.name}.later-*") if not one.name.endswith(("-wal", "-shm")))
    assert said(aside, "PRAGMA user_version", "SELECT number FROM mine") == [(LATER,), (7,)]
    opens(tmp_path)
    assert len(list(tmp_path.glob(f"{path.name}.later-*"))) == 1


def test_a_journal_of_a_later_version_says_so_and_keeps_what_could_be_read(tmp_path: Path) -> None:
    opens_journal(tmp_path)
    said(tmp_path / "journal.sqlite", f"PRAGMA user_version = {LATER}")
    journal = Journal(tmp_path)
    [(code, text)] = journal.alarms
    assert code == "journal_corrupt"
    assert f"a later version of swarmd wrote it (schema {LATER}, and this one knows {LATER - 1})" in text
    assert journal.records == {b"node/own": b"1"}
    journal.close()


@pytest.mark.parametrize("is_reader", [False, True])
def test_a_regions_file_of_a_later_version_is_refused_and_stays(tmp_path: Path, is_reader: bool) -> None:
    path = made(tmp_path, opens_region)
    said(path, f"PRAGMA user_version = {LATER}", "DROP TABLE objects", "PRAGMA journal_mode = DELETE")
    before = path.read_bytes()
    with pytest.raises(DaemonError, match=rf"{path} stays as it is: a later version .* put back the copy"):
        regions.Store(path, is_reader=is_reader)
    assert path.read_bytes() == before


def test_the_verbs_name_the_file_and_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    region = tmp_path / "region"
    make_region(region)
    opens_region(region)
    opens_events(tmp_path)
    for path, words in [
        (region / regions.FILE_NAME, ["region", "export", str(region), str(tmp_path / "past")]),
        (tmp_path / events.FILE_NAME, ["events", "--file", str(tmp_path / events.FILE_NAME)]),
    ]:
        said(path, f"PRAGMA user_version = {LATER}")
        assert main(words) == 1
        told = capsys.readouterr().err
        assert str(path) in told
        assert "a later version of swarmd wrote it" in told
        assert "run that version, or put back the copy from before it" in told


def test_a_file_is_made_whole_or_not_at_all(tmp_path: Path) -> None:
    """Tables without their number would be those of schema 1 to a later version, for good."""
    with pytest.raises(sqlite3.Error):
        sqlite_files.open_sound(tmp_path / "file", (), "CREATE TABLE one (number INTEGER); CREATE TABLE (")
    assert said(tmp_path / "file", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master") == [(0,), (0,)]
