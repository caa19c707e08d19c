"""The ground view's picture and its past: what a reader holds is what there is, and what was there is what is told."""

import asyncio
import json
import tempfile
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd.errors import DaemonError
from swarmd.ground import past as past_module
from swarmd.ground import picture as picture_module
from swarmd.ground.past import Past
from swarmd.ground.picture import EVENTS_KEPT, PIECE_ROWS, RING_MAX, Picture
from swarmd.ground.rows import KINDS, Cell, Change, Event, Mark

NAMES = st.sampled_from(("a", "b", "c", 'd"\\\n', "é"))
STEPS = st.lists(st.tuples(NAMES, st.sampled_from(("open", "claimed", "done", "gone"))), max_size=60)
State = dict[tuple[str, str], Any]


def cell(name: str, state: str) -> Cell:
    return Cell(name, 1.0, 2.0, state, "", [])


def step(picture: Picture, name: str, state: str, at_s: float) -> None:
    if state == "gone":
        picture.drop("cell", name, at_s)
    else:
        picture.put("cell", cell(name, state), at_s)


def state_of(text: bytes) -> State:
    rows = json.loads(text)["rows"]
    return {(kind, row["id"]): row for kind in KINDS for row in rows[kind]}


def apply(state: State, changes: Any) -> State:
    for change in msgspec.json.decode(msgspec.json.encode(list(changes))):
        key = (change["kind"], change["id"])
        if change["row"] is None:
            state.pop(key, None)
        else:
            state[key] = change["row"]
    return state


def whole(picture: Picture) -> State:
    return state_of(b"".join(picture.snapshot(0.0)))


@settings(deadline=None)
@given(STEPS, STEPS, STEPS, st.integers(0, 12))
def test_a_snapshot_and_what_changed_since_are_what_there_is(
    before: Any, meanwhile: Any, after: Any, pause: int
) -> None:
    """Also where the picture changes between two pieces of the snapshot."""
    picture = Picture()
    for name, state in before:
        step(picture, name, state, 1.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(picture_module, "PIECE_ROWS", 1)
        pieces = picture.snapshot(1.0)
        read = b"".join(islice(pieces, pause))
        for name, state in meanwhile:
            step(picture, name, state, 2.0)
        read += b"".join(pieces)
    for name, state in after:
        step(picture, name, state, 3.0)
    snapshot = json.loads(read)
    changes = picture.since(snapshot["epoch"], snapshot["seq"])
    assert changes is not None
    assert apply(state_of(read), changes) == whole(picture)


def test_the_same_again_is_no_change_and_numbers_leave_no_gap() -> None:
    told: list[Change] = []
    picture = Picture(told.append)
    assert picture.put("cell", cell("a", "open"), 1.0)
    assert not picture.put("cell", cell("a", "open"), 2.0)
    picture.drop("cell", "b", 3.0)
    assert picture.put("cell", cell("a", "done"), 4.0)
    assert [change.seq for change in told] == [1, 2]


def test_who_lags_too_far_behind_or_comes_from_another_life_starts_anew() -> None:
    picture = Picture()
    for number in range(RING_MAX + 10):
        picture.put("cell", cell("a", str(number)), 1.0)
    assert picture.since(picture.epoch, 9) is None
    assert len(list(picture.since(picture.epoch, 10) or [])) == RING_MAX
    assert list(picture.since(picture.epoch, picture.seq) or [1]) == []
    assert picture.since(picture.epoch, picture.seq + 1) is None
    assert picture.since("another", picture.seq) is None


def test_no_piece_of_a_snapshot_holds_more_than_a_few_rows() -> None:
    picture = Picture()
    for number in range(5_000):
        picture.put("cell", cell(str(number), "open"), 1.0)
    pieces = list(picture.snapshot(1.0))
    assert max(piece.count(b'"id"') for piece in pieces) == PIECE_ROWS
    assert len(state_of(b"".join(pieces))) == 5_000


def test_of_events_the_newest_are_kept() -> None:
    picture = Picture()
    for number in range(EVENTS_KEPT + 5):
        picture.put("event", Event(str(number), 1.0, "a", "failed", "info", "", "", ""), 1.0)
    assert picture.names("event") == [str(number) for number in range(5, EVENTS_KEPT + 5)]


# --- the past ---------------------------------------------------------------------------------------------------------


class Writer:
    """A picture that is written down, and beside it every state it had."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.picture = Picture(lambda change: self.take(change))
        self.past = Past(folder / "history.sqlite", self.picture.frozen, **options)
        self.changes: list[Change] = []
        self.states: list[tuple[float, State]] = []

    def take(self, change: Change) -> None:
        self.past.take(change)
        self.changes.append(change)

    def step(self, name: str, state: str, at_s: float) -> None:
        step(self.picture, name, state, at_s)
        self.states.append((at_s, whole(self.picture)))

    def at(self, at_s: float) -> State:
        return state_of(b"".join(get(self.past.at(at_s))))

    def pages(self, limit: int, from_s: float = 0.0, kinds: tuple[str, ...] = ()) -> Any:
        found, gaps, cursor = [], [], ""
        while True:
            page = get(self.past.history(from_s, 1e9, kinds, cursor, limit))
            assert len(page.changes) <= limit
            found += page.changes
            gaps += page.gaps
            if page.next is None:
                return found, gaps
            cursor = page.next


def get(answer: Any) -> Any:
    """What a coroutine of the past answers."""

    async def wait() -> Any:
        return await answer

    return asyncio.run(wait())


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(NAMES, st.sampled_from(("open", "done", "gone")), st.integers(0, 4_000)), min_size=1, max_size=40
    ),
    st.integers(1, 7),
    st.booleans(),
)
def test_any_moment_of_the_past_is_as_it_was_then(steps: Any, limit: int, is_restarted: bool) -> None:
    """Across blocks of a minute, full blocks and a restart; and every change is told once, in order, in any pages."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(past_module, "BLOCK_CHANGES", 5)
        patch.setattr(past_module, "GAP_S", 1e6)
        writer = Writer(Path(folder))
        at_s = 1_000.0
        writer.past.begin(at_s)
        for name, state, wait_ms in steps:
            at_s += wait_ms / 50
            writer.step(name, state, at_s)
        writer.past.tick(at_s)
        if is_restarted:
            writer.past.close()
            writer.past = Past(Path(folder) / "history.sqlite", writer.picture.frozen)
        for moment_s, state in dict(writer.states).items():
            assert writer.at(moment_s) == state
        told, gaps = writer.pages(limit)
        assert [change.seq for change in told] == [change.seq for change in writer.changes]
        assert gaps == []
        writer.past.close()


def test_a_page_may_be_read_while_the_block_that_it_began_in_is_finished(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.past.begin(0.0)
    for number in range(10):
        writer.step("a", str(number), float(number))
    first = get(writer.past.history(0.0, 1e9, (), "", 4))
    writer.past.tick(100.0)
    for number in range(10, 14):
        writer.step("a", str(number), 100.0 + number)
    second = get(writer.past.history(0.0, 1e9, (), first.next, 100))
    assert [change.seq for change in (*first.changes, *second.changes)] == list(range(1, 15))
    writer.past.close()


def test_where_nothing_was_written_down_there_is_a_gap(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.past.begin(0.0)
    writer.step("a", "open", 1.0)
    writer.past.tick(2.0)
    writer.past.tick(500.0)  # This machine slept.
    writer.step("a", "done", 501.0)
    told, gaps = writer.pages(100)
    assert len(told) == 2
    assert gaps == [(2.0, 500.0)]
    line = get(writer.past.timeline(0.0, 600.0))
    assert line.covered == [(0.0, 2.0), (500.0, 501.0)]
    assert writer.at(300.0) == writer.at(2.0)
    writer.past.close()


def test_a_moment_within_a_block_is_as_it_was_then(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.past.begin(0.0)
    writer.step("a", "open", 1.0)
    writer.step("a", "done", 3.0)
    assert writer.at(2.0) == writer.states[0][1]
    writer.past.close()


def test_of_a_time_before_the_history_nothing_is_known(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.past.begin(100.0)
    writer.step("a", "open", 101.0)
    assert writer.at(50.0) == {}
    writer.past.close()


def test_the_history_stays_within_its_bounds(tmp_path: Path) -> None:
    """The oldest blocks go with their marks; the newest stays however large it is."""
    writer = Writer(tmp_path, max_bytes=2_000)
    writer.past.begin(0.0)
    for number in range(400):
        at_s = 10.0 * number
        writer.past.tick(at_s)
        writer.past.mark(Mark(at_s, "events", "info", f"mark {number}"))
        writer.step("a", f"{number:040}", at_s)
        if number % 6 == 5:
            for other in range(3):
                writer.past.tick(at_s + 3 * other)
    line = get(writer.past.timeline(0.0, 1e9))
    assert line.covered
    assert line.covered[0][0] > 3_000.0
    assert writer.past._thread.submit(writer.past._bytes).result() <= 2_000
    assert line.marks[0].at_s >= line.covered[0][0]
    writer.past.close()


def test_a_disk_that_is_full_is_told_until_a_block_is_written(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    past = writer.past
    pages = past._thread.submit(lambda: past._database.execute("PRAGMA page_count").fetchone()[0]).result()

    def allow(most: int) -> None:
        past._thread.submit(lambda: past._database.execute(f"PRAGMA max_page_count={most}").fetchone()).result()

    allow(pages)
    past.begin(0.0)
    for number in range(400):
        writer.step(sha256(str(number).encode()).hexdigest(), "open", number / 10)  # What packs badly.
    past.tick(100.0)
    past._thread.submit(lambda: None).result()
    assert "full" in past.problem
    allow(1 << 20)
    writer.step("a", "open", 101.0)
    past.tick(200.0)
    past._thread.submit(lambda: None).result()
    assert past.problem == ""
    past.close()


def test_who_asks_for_what_is_rare_reads_it_in_pages_of_an_hour(tmp_path: Path) -> None:
    """One question reads a bounded part of the file, and neither a change nor a gap between two parts is lost."""
    writer = Writer(tmp_path)
    writer.past.begin(0.0)
    hours = 3 * past_module.BLOCKS_MAX + 7
    for number in range(hours):
        writer.step("a", ("open", "done")[number % 2], 1_000.0 * number)
        writer.past.tick(1_000.0 * number + 1.0)
        writer.past.tick(1_000.0 * number + 500.0)
    read: list[int] = []
    block = writer.past._block
    writer.past._block = lambda number, extra: read.append(number) or block(number, extra)  # type: ignore[func-returns-value, method-assign]
    first = get(writer.past.history(0.0, 1e9, ("alert",), "", 10))
    assert first.next is not None
    assert len(read) == past_module.BLOCKS_MAX
    assert writer.pages(10, kinds=("alert",))[0] == []
    told, gaps = writer.pages(10_000)
    assert [change.seq for change in told] == list(range(1, hours + 1))
    assert len(gaps) == len(set(gaps))
    assert [gap for gap in gaps if gap[1] % 1_000.0 == 500.0] == [
        (1_000.0 * number + 1.0, 1_000.0 * number + 500.0) for number in range(hours)
    ]
    writer.past.close()


def test_of_marks_the_newest_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many a swarm that flaps makes of one minute."""
    monkeypatch.setattr(past_module, "MARKS_KEPT", 50)
    writer = Writer(tmp_path)
    writer.past.begin(0.0)
    for minute in range(3):
        for number in range(100):
            writer.past.mark(Mark(61.0 * minute + number / 10, "members", "info", f"{minute} {number}"))
        writer.past.tick(61.0 * minute + 60.0)
    line = get(writer.past.timeline(0.0, 1e9))
    assert [mark.text for mark in line.marks] == [f"2 {number}" for number in range(50, 100)]
    writer.past.close()


def test_many_marks_are_counted_in_bins_and_none_is_lost(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.past.begin(0.0)
    count = past_module.MARKS_MAX + 500
    for number in range(count):
        lane = ("members", "objects")[number % 2]
        writer.past.mark(Mark(number / 100, lane, "error" if number == 700 else "info", str(number)))
    writer.past.tick(count / 100)
    line = get(writer.past.timeline(0.0, 1e9))
    assert len(line.marks) <= past_module.MARKS_MAX
    assert sum(mark.count for mark in line.marks) == count
    assert [mark.level for mark in line.marks].count("error") == 1
    writer.past.close()


@pytest.mark.parametrize("cursor", ["x", "1.", ".1", "-1.0", "1.2.3", "9" * 50 + ".1", "9" * 20 + ".1", "１.１"])
def test_a_cursor_that_nobody_gave_is_refused(tmp_path: Path, cursor: str) -> None:
    writer = Writer(tmp_path)
    writer.past.begin(0.0)
    with pytest.raises(DaemonError, match="cursor"):
        get(writer.past.history(0.0, 1.0, (), cursor, 10))
    writer.past.close()


def test_what_changes_little_takes_little(tmp_path: Path) -> None:
    """A plant of which one thing changes a minute: an hour of it takes a few times the plant, not sixty."""
    writer = Writer(tmp_path)
    writer.past.begin(0.0)
    for number in range(1_000):
        writer.step(sha256(str(number).encode()).hexdigest(), "open", number / 1_000)
    writer.past.tick(61.0)
    whole_bytes = writer.past._thread.submit(writer.past._bytes).result()
    for minute in range(2, 62):
        writer.step(sha256(str(minute).encode()).hexdigest(), "done", minute * 60.0)
        writer.past.tick(minute * 60.0 + 1)
    line = get(writer.past.timeline(0.0, 1e9))
    size = writer.past._thread.submit(writer.past._bytes).result()
    assert size < 4 * whole_bytes
    assert line.to_s >= 3_600
    assert len([one for one in writer.at(3_661.0).values() if one["state"] == "done"]) == 60
    assert len([one for one in writer.at(1_830.0).values() if one["state"] == "done"]) == 29
    writer.past.close()


def test_a_base_goes_with_what_needs_it_and_never_before(tmp_path: Path) -> None:
    """However little room there is: every moment that is told to be covered is answered as it was."""
    writer = Writer(tmp_path, max_bytes=6_000)
    writer.past.begin(0.0)
    for number in range(300):
        writer.step(sha256(str(number % 9).encode()).hexdigest(), ("open", "done")[number % 2], number * 70.0)
    line = get(writer.past.timeline(0.0, 1e9))
    assert writer.past._thread.submit(writer.past._bytes).result() <= 6_000
    assert line.covered[0][0] > 0.0, "the oldest are gone"
    for at_s, state in writer.states:
        if any(began_s <= at_s <= ended_s for began_s, ended_s in line.covered):
            assert writer.at(at_s) == state
    writer.past.close()
