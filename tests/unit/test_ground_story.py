"""The past as the page reads it: own and others' in the order of time, page by page, with every gap told."""

import json
import random
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from swarmd.errors import DaemonError
from swarmd.ground.fetched import FetchedPast
from swarmd.ground.past import Past
from swarmd.ground.picture import Picture
from swarmd.ground.rows import History, Snapshot
from swarmd.ground.story import Story
from swarmd_models.geo.positions import Plane
from tests.support.ground import member
from tests.support.past_pages import BEGIN_S, NINE, ONE, TWO, Pages, flown


def story_of(folder: Path, unheard: dict[str, str] | None = None) -> tuple[Story, Past]:
    """Of `flown`, with this server from minute 25 on."""
    picture = Picture()
    past = Past(folder / "history.sqlite", picture.frozen)
    picture._on_change = past.take
    past.begin(BEGIN_S + 1_500)
    for second in range(120):
        at_s = BEGIN_S + 1_500 + second
        picture.put("member", member(second % 3, "alive" if second % 2 else "suspect"), at_s)
        past.tick(at_s)
    others = FetchedPast(Pages(folder, flown()), Plane(48.0, 11.0), lambda: unheard or {})
    return Story(past, others), past


async def told(story: Story, limit: int, kinds: Sequence[str] = (), to_s: float = BEGIN_S + 2_000) -> History:
    """All pages of a history as one."""
    whole = History([], [], None)
    cursor = ""
    for _ in range(5_000):
        page = await story.history(BEGIN_S - 100, to_s, kinds, cursor, limit)
        assert len(page.changes) <= limit
        whole.changes.extend(page.changes)
        whole.gaps.extend(page.gaps)
        if page.next is None:
            return History(whole.changes, whole.gaps, None, page.peers)
        assert page.next != cursor, "a cursor goes on"
        cursor = page.next
    raise AssertionError("no end")


async def snapshot(story: Story, at_s: float) -> Snapshot:
    return msgspec.json.decode(b"".join(await story.at(at_s)), type=Snapshot)


async def test_history_is_the_same_however_it_is_paged(tmp_path: Path) -> None:
    story, past = story_of(tmp_path)
    whole = await told(story, 2_000)
    assert len([one for one in whole.changes if one.kind == "position"]) == 10 * 60 + 2
    assert len([one for one in whole.changes if one.kind == "event"]) == 22
    times = [one.at_s for one in whole.changes]
    assert times == sorted(times)
    rng = random.Random(5)
    for limit in (1, 7, rng.randrange(30, 400)):
        again = await told(story, limit, to_s=BEGIN_S + (300 if limit == 1 else 2_000))
        same = whole.changes if limit > 1 else [one for one in whole.changes if one.at_s < BEGIN_S + 300]
        assert [(one.at_s, one.kind, one.id) for one in again.changes] == [(one.at_s, one.kind, one.id) for one in same]
    events = await told(story, 10, ["event"])
    assert [one.kind for one in events.changes] == ["event"] * 22
    past.close()


async def test_every_gap_is_told_and_the_seam_too(tmp_path: Path) -> None:
    story, past = story_of(tmp_path)
    whole = await told(story, 500)
    gaps = [(round(begin - BEGIN_S), round(end - BEGIN_S)) for begin, end in whole.gaps]
    assert (600, 900) in gaps
    assert (1_499, 1_500) in gaps, "whoever replays takes a snapshot where this server began"
    assert (1_200, 1_500) in gaps
    what = {(one.name, round(one.from_s - BEGIN_S), round(one.to_s - BEGIN_S)): one.what for one in whole.peers}
    assert what["drone-1", 0, 600] == "whole"
    assert what["drone-1", 600, 900] == "off"
    assert what["drone-2?", 420, 2_000] == "unreachable", "and no name steers a terminal"
    past.close()


async def test_a_moment_is_as_the_pages_say_and_nobody_is_alive_in_a_gap(tmp_path: Path) -> None:
    story, past = story_of(tmp_path, {"never met drone-9": "drone-9"})
    then = await snapshot(story, BEGIN_S + 380)
    assert {one.name: one.state for one in then.rows.member} == {
        "drone-1": "alive", "drone-2?": "alive", "drone-9": "failed",
    }  # fmt: skip
    two = next(one for one in then.rows.position if one.name == "drone-2?")
    assert (two.has_fix, two.height_agl_m, two.battery) == (True, 30.0, 0.5)
    assert (two.east_m, two.north_m) != (None, None)
    later = await snapshot(story, BEGIN_S + 550)
    states = {one.name: one.state for one in later.rows.member}
    assert states == {"drone-1": "alive", "drone-2?": "unknown", "drone-9": "failed"}
    assert not next(one for one in later.rows.position if one.name == "drone-2?").has_fix
    hole = await snapshot(story, BEGIN_S + 700)
    assert hole.rows.member == [], "of a time of which nobody tells nothing is shown"
    own = await snapshot(story, BEGIN_S + 1_560)
    assert own.rows.member
    assert not own.rows.position
    past.close()


async def test_a_member_without_a_page_is_shown_by_the_word_of_others(tmp_path: Path) -> None:
    """One that this node has met, so that it is not among those of which it knows by others' word alone."""
    others = FetchedPast(Pages(tmp_path, flown(), (ONE.node, TWO.node, NINE.node)), None, dict)
    at_s = BEGIN_S + 360
    before = (await others.at(at_s)) or {}
    named = {json.loads(row)["name"]: json.loads(row)["state"] for row in before["member"].values()}
    assert named == {"drone-1": "alive", "drone-2?": "alive", "drone-9": "unknown"}
    after = (await others.at(BEGIN_S + 380)) or {}
    assert json.loads(after["member"][NINE.node.hex()])["state"] == "failed"


async def test_the_timeline_goes_back_to_what_others_wrote(tmp_path: Path) -> None:
    story, past = story_of(tmp_path, {"never met drone-9": "drone-9"})
    line = await story.timeline(0.0, BEGIN_S + 2_000)
    assert round(line.from_s - BEGIN_S) == 0
    fetched = [(round(begin - BEGIN_S), round(end - BEGIN_S)) for begin, end in line.fetched]
    assert fetched == [(0, 600), (900, 1_200)]
    assert [(round(begin - BEGIN_S), round(end - BEGIN_S)) for begin, end in line.covered] == [(1_500, 1_619)]
    assert any("failed drone-9" in mark.text for mark in line.marks)
    assert [one.what for one in line.peers if one.name == "drone-9"] == ["unreachable"]
    past.close()


@pytest.mark.parametrize("cursor", ["x", "1", "a:1.2", "12:1.x", "99999999999999999999:1.1", "0:x.y", "-1:0.0"])
async def test_a_cursor_that_is_none_is_refused(tmp_path: Path, cursor: str) -> None:
    story, past = story_of(tmp_path)
    with pytest.raises(DaemonError, match="cursor"):
        await story.history(BEGIN_S, BEGIN_S + 100, (), cursor, 10)
    past.close()
