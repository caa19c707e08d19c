"""Objects of a moment at which nobody looked: there from their first sighting on, with what was said by then."""

from pathlib import Path

import msgspec

from swarmd.api.views import unix_s
from swarmd.ground.fetched import FetchedPast
from swarmd.ground.grown import Grown
from swarmd.ground.past import Past
from swarmd.ground.rows import Snapshot
from swarmd.ground.story import Story
from swarmd_protocols.state.clock import EPOCH_2020_NS
from swarmd_protocols.state.observations import DetectionView, ReviewView
from tests.support.bridge_world import ALICE, BOB, object_view, sighting
from tests.support.past_pages import BEGIN_S, Pages, flown

NAMES = {ALICE: "alice", BOB: "bob"}


def hlc(at_s: float) -> int:
    """A stamp of the swarm's clock."""
    made = (round(at_s * 1000) - EPOCH_2020_NS // 1_000_000) << 16
    assert unix_s(made) == at_s
    return made


def seen(origin: bytes, at_s: float) -> DetectionView:
    return msgspec.structs.replace(sighting(), origin=origin, first_hlc=hlc(at_s), last_hlc=hlc(at_s + 50))


def said(operator: str, verdict: str, text: str, at_s: float) -> ReviewView:
    return ReviewView(operator, operator, verdict, text, "hot-spot", round(at_s * 1000), 1, operator.encode(), b"")


def grown() -> Grown:
    """Seen by alice, twenty seconds later by bob; alice confirms it after thirty, bob relabels it after forty."""
    reviews = (said("alice", "confirm", "", BEGIN_S + 40), said("bob", "relabel", "crack", BEGIN_S + 50))
    view = msgspec.structs.replace(
        object_view(), first_hlc=hlc(BEGIN_S + 10), last_hlc=hlc(BEGIN_S + 80), review="disputed", reviews=reviews
    )
    return Grown(view, [seen(ALICE, BEGIN_S + 10), seen(BOB, BEGIN_S + 30)])


def test_an_object_grows_and_nothing_is_known_before_it_was_said() -> None:
    thing = grown()
    assert [at_s - BEGIN_S for at_s in thing.moments] == [10, 30, 40, 50]
    assert thing.at(BEGIN_S + 9.9, NAMES) is None
    told = [thing.at(at_s, NAMES) for at_s in thing.moments]
    assert [(one.tier, one.observers, one.review, len(one.reviews)) for one in told if one is not None] == [
        ("candidate", ["alice"], "", 0),
        ("confirmed", ["alice", "bob"], "", 0),
        ("reviewed", ["alice", "bob"], "confirmed", 1),
        ("confirmed", ["alice", "bob"], "disputed", 2),
    ]
    early = thing.at(BEGIN_S + 20, NAMES)
    assert early is not None
    assert (early.first_seen_s, early.last_seen_s, early.label) == (BEGIN_S + 10, BEGIN_S + 20, "hot-spot")


def test_a_label_that_operators_gave_later_is_not_shown_before() -> None:
    view = msgspec.structs.replace(
        object_view(), first_hlc=hlc(BEGIN_S), last_hlc=hlc(BEGIN_S + 9), label="crack", detected="hot-spot",
        review="relabelled", reviews=(said("bob", "relabel", "crack", BEGIN_S + 5),),
    )  # fmt: skip
    rows = [Grown(view, ()).at(BEGIN_S + at_s, NAMES) for at_s in (4, 5)]
    assert [(one.label, one.detected, one.tier) for one in rows if one is not None] == [
        ("hot-spot", "", "confirmed"),
        ("crack", "hot-spot", "reviewed"),
    ]


async def test_the_fetched_past_shows_them_and_tells_their_changes(tmp_path: Path) -> None:
    async def things() -> list[Grown]:
        return [grown()]

    others = FetchedPast(Pages(tmp_path, flown()), None, dict, things, lambda: NAMES)
    story = Story(Past(tmp_path / "history.sqlite", dict), others)

    async def shown(at_s: float) -> list[tuple[str, str]]:
        told = msgspec.json.decode(b"".join(await story.at(at_s)), type=Snapshot)
        return [(one.id, one.review) for one in told.rows.object]

    assert await shown(BEGIN_S + 5) == []
    assert await shown(BEGIN_S + 45) == [("o1", "confirmed")]
    page = await story.history(BEGIN_S, BEGIN_S + 45, ["object"], "", 100)
    assert [one.at_s - BEGIN_S for one in page.changes] == [10, 30, 40]
    whole = await story.history(BEGIN_S, BEGIN_S + 60, [], "", 2_000)
    assert [one.at_s for one in whole.changes] == sorted(one.at_s for one in whole.changes)
    assert sum(one.kind == "object" for one in whole.changes) == 4
