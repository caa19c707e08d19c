"""The file of pages: as the reference, whatever the order; bounded, with floors; events of others; damage and disks."""

import random
import sqlite3
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from swarmd.events.pages import FILE_NAME, PageBounds, PageFile, PageStore
from swarmd.events.store import Query
from swarmd_protocols.ids import NodeId
from swarmd_protocols.past import messages, requests
from swarmd_protocols.past.pages import NUMBER_MAX, TIME_MAX_MS, read_page
from swarmd_protocols.past.spans import without
from swarmd_protocols.state.clock import EPOCH_2020_NS
from tests.support.past_world import BEGIN_MS, Shelf, event, identity, minutes, page

OWN, OTHER, THIRD = (identity(name) for name in ("own", "other", "third"))
EPOCH_MS = EPOCH_2020_NS // 1_000_000
EVERY = [
    *minutes(OWN, 5),
    *minutes(OTHER, 8, BEGIN_MS + 20_000, places=30),
    *minutes(THIRD, 3, BEGIN_MS + 600_000, places=5),
    page(OTHER, 2, (BEGIN_MS, BEGIN_MS + 9), [event(1, 77, "another word")]),
]
NEVER = PageBounds(max_age_ms=1 << 45)


def opened(folder: Path, bounds: PageBounds = NEVER) -> PageFile:
    (folder / FILE_NAME).unlink(missing_ok=True)
    file = PageFile(folder / FILE_NAME, OWN.node, bounds)
    file.open()
    return file


def all_of(file: PageFile) -> list[bytes]:
    rows = file._execute("SELECT page FROM pages ORDER BY author, number", ())
    return [row[0] for row in rows]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1 << 30))
def test_it_keeps_and_finds_what_the_reference_does(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    rng, shelf = random.Random(seed), Shelf()
    file = opened(tmp_path_factory.mktemp("past"))
    some = rng.choices(EVERY, k=rng.randrange(1, 30))
    shelf.keep(some)
    while some:
        count = rng.randrange(1, 5)
        file.add(some[:count], BEGIN_MS)
        some = some[count:]
    assert all_of(file) == [shelf.pages[key] for key in sorted(shelf.pages)]
    assert sorted(file.rows(), key=lambda row: row.author) == sorted(shelf.rows(OWN.node), key=lambda row: row.author)
    assert file.rows()[0].author == OWN.node or not shelf.of(OWN.node)
    for author in (OWN.node, OTHER.node, THIRD.node):
        begin = BEGIN_MS + rng.randrange(900_000)
        ask = requests.FindPages(
            1, author, begin, begin + rng.randrange(600_000), rng.choice((TIME_MAX_MS - 1, begin + 90_000)),
            rng.choice((NUMBER_MAX, 3)), rng.choice((1, 3_000, 60_000)),
        )  # fmt: skip
        assert file.find(ask) == shelf.find(ask)
    file.close()


@settings(max_examples=30, deadline=None)
@example(seed=2718)  # The newest page alone is too much.
@given(seed=st.integers(0, 1 << 30))
def test_a_full_file_holds_the_newest_whatever_the_order(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    rng = random.Random(seed)
    pages = [
        page(OTHER, number, (BEGIN_MS + number, BEGIN_MS + number), (), rng.randrange(40)) for number in range(1, 20)
    ]
    bounds = PageBounds(author_bytes=rng.randrange(500, 12_000), max_age_ms=1 << 45)
    kept = []
    for _ in range(2):
        file = opened(tmp_path_factory.mktemp("past"), bounds)
        for data in rng.sample(pages, len(pages)):
            file.add([data], BEGIN_MS)
        kept.append(all_of(file))
        floor = file._held(OTHER.node).floor_ms
        assert sum(map(len, kept[-1])) <= bounds.author_bytes
        assert len(kept[-1]) == len(pages) or floor == read_page(pages[-1 - len(kept[-1])]).to_ms, "what went is told"
        file.close()
    assert kept[0] == kept[1] == pages[len(pages) - len(kept[0]) :]


def test_the_whole_has_a_bound_and_age_leaves_the_newest(tmp_path: Path) -> None:
    file = opened(tmp_path, PageBounds(max_bytes=3_000, max_age_ms=1 << 45))
    file.add(EVERY, BEGIN_MS)
    assert sum(map(len, all_of(file))) <= 3_000
    assert {row.author for row in file.rows()} == {OWN.node, OTHER.node, THIRD.node}, "who has the most gives way"
    file.close()
    file = opened(tmp_path, PageBounds(max_age_ms=3_600_000))
    file.add(minutes(OWN, 90), BEGIN_MS)
    far_ms = BEGIN_MS + (1 << 40)
    for at in range(60):
        file.add(minutes(OWN, 1, BEGIN_MS + (90 + at) * 60_000, 91 + at), far_ms)
    assert 60 <= len(all_of(file)) <= 61, "a clock that is years off empties nothing"
    assert file.rows()[0].floor_ms > BEGIN_MS
    file.close()


def test_others_events_are_found_and_go_with_their_pages(tmp_path: Path) -> None:
    file = opened(tmp_path)
    strange = page(THIRD, 9, (BEGIN_MS, BEGIN_MS), [event(0, 5, kind="of a newer version")])
    file.add([*minutes(OWN, 2), *minutes(OTHER, 3), strange], BEGIN_MS)
    names = {OTHER.node: "drone-2"}
    found = file.events(Query(since_ms=BEGIN_MS + EPOCH_MS + 60_000), names)
    assert [(one.origin, one.number, one.at_ms - EPOCH_MS - BEGIN_MS) for one in found] == [
        ("drone-2", 2, 60_005),
        ("drone-2", 3, 120_005),
    ]
    assert found[0].event_id == f"{OTHER.node.hex()[:16]}-7-2", "as its author's own file names it"
    assert len(file.events(Query(origin="drone-2", limit=1), names)) == 1
    assert file.events(Query(), {}) == [], "of who does not count nothing is told"
    file.forget(OTHER.node)
    assert file.events(Query(), names) == []
    assert file.between(0, 1 << 45) == [one for one in file.between(0, 1 << 45) if one.author == THIRD.node]
    file.close()


def test_what_was_dropped_is_not_taken_again_and_who_asks_is_told(tmp_path: Path) -> None:
    pages = minutes(OTHER, 6, places=20)
    file = opened(tmp_path, PageBounds(author_bytes=3 * len(pages[0]) + 50, max_age_ms=1 << 45))
    (held,) = file.add(pages, BEGIN_MS)
    assert held.author == OTHER.node
    assert held.floor_ms == read_page(pages[2]).to_ms
    assert [len(all_of(file)), len(held.spans)] == [3, 1]
    (again,) = file.add(pages[:1], BEGIN_MS)
    assert again.spans == held.spans
    ask = requests.FindPages(1, OTHER.node, 0, TIME_MAX_MS - 1, TIME_MAX_MS - 1, NUMBER_MAX, messages.ANSWER_BYTES)
    assert file.find(ask).floor_ms == held.floor_ms
    file.close()
    reopened = PageFile(tmp_path / FILE_NAME, OWN.node, NEVER)
    assert reopened.open() == [held], "over a restart too"
    reopened.close()


def test_a_damaged_file_is_moved_aside_and_a_disk_that_fails_is_said(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"no database at all" * 1_000)
    file = PageFile(tmp_path / FILE_NAME, OWN.node, NEVER)
    assert file.open() == []
    file.add(EVERY[:1], BEGIN_MS)
    assert all_of(file) == EVERY[:1]
    assert len(list(tmp_path.glob(f"{FILE_NAME}.corrupt-*"))) == 1
    file._connect().execute("PRAGMA max_page_count=1")
    assert file.add([page(OTHER, 1, (BEGIN_MS, BEGIN_MS), (), 500)] * 9, BEGIN_MS)[0].spans == ()
    assert "full" in file.problem
    assert all_of(file) == EVERY[:1]
    file.close()
    gone = PageFile(tmp_path / "nowhere" / FILE_NAME, OWN.node, NEVER)
    assert gone.open() == []
    ask = requests.FindPages(1, OTHER.node, 0, 1, 1, 1, 1)
    assert gone.find(ask).is_failed, "an asker does not take a failing disk for silence"


def asked(author: bytes) -> requests.FindPages:
    return requests.FindPages(1, NodeId(author), 0, TIME_MAX_MS - 1, TIME_MAX_MS - 1, NUMBER_MAX, messages.ANSWER_BYTES)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 30))
def test_a_bit_that_the_disk_flipped_is_given_to_nobody(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """What is given was signed, whatever bits of a row flip; what goes is told, and taken again."""
    rng = random.Random(seed)
    folder = tmp_path_factory.mktemp("past")
    file = opened(folder)
    pages = minutes(OTHER, 8)
    file.add([*pages, *minutes(OWN, 3)], BEGIN_MS)
    number, column = rng.randrange(1, 9), rng.choice(("page", "page", "number", "from_ms", "to_ms", "digest"))
    database = file._connect()
    where = "WHERE author=? AND number=?"
    (was,) = database.execute(f"SELECT {column} FROM pages {where}", (OTHER.node, number)).fetchone()
    if isinstance(was, int):
        other: object = was ^ (1 << rng.randrange(4, 40))
    else:
        at = rng.randrange(8 * len(was))
        other = was[: at // 8] + bytes([was[at // 8] ^ (1 << at % 8)]) + was[at // 8 + 1 :]
    database.execute(f"UPDATE pages SET {column}=? {where}", (other, OTHER.node, number))
    if rng.random() < 0.5:
        assert [one.page.number for one in file.between(0, 1 << 45)] == [n for n in range(1, 9) if n != number]
        file.newest(1 << 45)
    given_pages = file.find(asked(OTHER.node)).pages
    assert given_pages == tuple(data for data in reversed(pages) if data != pages[number - 1])
    assert file.counts["damaged"] == 1
    held = {one.author: one.spans for one in file.take_lost()}[OTHER.node]
    assert without((BEGIN_MS, BEGIN_MS + 480_000), held) == (
        [(BEGIN_MS + 60_000 * (number - 1), BEGIN_MS + 60_000 * number)]
    )
    assert file.take_lost() == []
    file.add([pages[number - 1]], BEGIN_MS)
    assert file.find(asked(OTHER.node)).pages == tuple(reversed(pages))
    assert file._sizes == dict(database.execute("SELECT author, total(size) FROM pages GROUP BY author"))
    file.close()


def test_a_damaged_row_wins_over_no_page(tmp_path: Path) -> None:
    """Of two pages of one number a damaged one is none, whatever its digest would be."""
    file = opened(tmp_path)
    first = page(OTHER, 1, (BEGIN_MS, BEGIN_MS + 9))
    file.add([first], BEGIN_MS)
    for flip in range(40):
        file._connect().execute("UPDATE pages SET page=?", (first[:-1] + bytes([first[-1] ^ 1, flip])[:2],))
        file.add([first], BEGIN_MS)
        assert all_of(file) == [first]
    assert file.counts["damaged"] == 40
    file.close()


def test_damage_leaves_more_below(tmp_path: Path) -> None:
    """A walk goes on below damaged rows, however many there are."""
    file, begin = opened(tmp_path), BEGIN_MS
    pages = [page(OTHER, number, (begin + number, begin + number)) for number in range(1, 150)]
    file.add(pages, begin)
    file._connect().execute("UPDATE pages SET page=x'00' WHERE number % 2 = 0 AND number != 80 OR number > 81")
    found: list[bytes] = []
    ask = asked(OTHER.node)
    for _ in range(9):
        some = file.find(ask)
        found += some.pages
        if not some.more:
            break
        last = read_page(some.pages[-1])
        ask = msgspec.structs.replace(ask, below_ms=last.to_ms, below_number=last.number)
    assert [read_page(data).number for data in found] == [81, 80, *range(79, 0, -2)]
    file.close()


def test_a_file_of_before_rows_had_digests_is_read(tmp_path: Path) -> None:
    file = opened(tmp_path)
    file.add(minutes(OTHER, 3), BEGIN_MS)
    file._connect().execute("ALTER TABLE pages DROP COLUMN digest")
    file.close()
    file = PageFile(tmp_path / FILE_NAME, OWN.node, NEVER)
    file.open()
    assert len(file.find(asked(OTHER.node)).pages) == 3
    assert file.counts["damaged"] == 0
    file.close()


async def test_the_last_page_is_written_at_the_end(tmp_path: Path) -> None:
    store = PageStore(tmp_path, OWN.node, NEVER)
    await store.run(lambda file: file.open())
    store.close(EVERY[:1], BEGIN_MS)
    store.close((), BEGIN_MS)
    with sqlite3.connect(tmp_path / FILE_NAME) as database:
        assert database.execute("SELECT count(*) FROM pages").fetchone() == (1,)


def test_a_damaged_file_that_cannot_be_moved_aside_is_said_and_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(path: Path, cause: Exception) -> Path:
        raise OSError(30, "Read-only file system", str(path))

    monkeypatch.setattr("swarmd.events.pages.move_aside", no_room)
    (tmp_path / FILE_NAME).write_bytes(b"no database at all" * 300)
    file = PageFile(tmp_path / FILE_NAME, OWN.node, NEVER)
    assert file.open() == []
    assert "Read-only" in file.problem
    assert file.find(requests.FindPages(1, OWN.node, 0, 9, TIME_MAX_MS - 1, NUMBER_MAX, 9_999)).is_failed
    assert file.add(EVERY[:1], BEGIN_MS) == []
    assert file.rows() == ()
