"""The ground view's feed: what a daemon's bus and lists tell, as rows of a picture."""

import asyncio
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from swarmd.api.daemon import NodePosition, Operations, PositionSeen
from swarmd.events.alerts import Alert
from swarmd.events.record import EventRecord, Happened
from swarmd.events.store import Query
from swarmd.ground import live
from swarmd.ground.live import LiveFeed
from swarmd.ground.picture import Picture
from swarmd.ground.rows import KINDS, Mark
from swarmd_protocols.effects import MemberChanged, MemberState, StateChanged
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.observations import CellChanged, CellView, DetectionView, ObjectChanged, ObjectView
from swarmd_protocols.summary import MemberView
from tests.support.bridge_world import ALICE, BOB, Parts, World, happened, object_view, pose, sighting
from tests.support.turning import Turns, turning


class Past:
    def __init__(self) -> None:
        self.alerts: list[Alert] = []
        self.events: list[EventRecord] = []

    async def find(self, query: Query) -> Sequence[EventRecord]:
        return [one for one in self.events if query.matches(one)]

    def standing(self) -> Sequence[Alert]:
        return self.alerts


class Watched(World):
    """A daemon's view whose lists a test sets."""

    def __init__(self) -> None:
        super().__init__()
        self.past = Past()
        self.things: dict[str, ObjectView] = {"o1": object_view()}
        self.is_gone: set[NodeId] = set()
        self.sightings: list[DetectionView] = []
        self.states: dict[NodeId, MemberState] = {}
        self.qualities: dict[NodeId, str] = {}
        self.is_mesh = False

    def summary(self) -> Any:
        return SimpleNamespace(mesh=self.is_mesh)

    def members(self) -> Sequence[MemberView]:
        return [
            msgspec.structs.replace(
                one,
                state=self.states.get(one.node, MemberState.ALIVE),
                quality=self.qualities.get(one.node, one.quality),
            )
            for one in super().members()
        ]

    def objects(self) -> Sequence[ObjectView]:
        return list(self.things.values())

    @property
    def in_parts(self) -> Any:
        return Lists(self)


class Lists(Parts):
    def __init__(self, world: Watched) -> None:
        super().__init__(world)
        self._watched = world

    def members(self) -> Iterator[Sequence[Any]]:
        for part in super().members():
            yield [one for one in part if one.node not in self._watched.is_gone]

    def objects(self) -> Iterator[Sequence[ObjectView]]:
        yield self._watched.objects()

    def neighbours(self) -> Sequence[Any]:
        return ()

    def detections(self) -> Iterator[Sequence[DetectionView]]:
        yield self._watched.sightings


BOBS_PLACE = NodePosition(BOB, 48.0, 11.0, 12.0, 0.5, 0.3, 800, 1, None)


def rows(picture: Picture, kind: str) -> dict[str, Any]:
    assert kind in KINDS
    return {name: json.loads(row) for name, row in picture.frozen()[kind].items()}


class Fed:
    """A feed that runs in a test's loop, looking as fast as it can."""

    def __init__(self, monkeypatch: Any, world: Watched | None = None, **faster: float) -> None:
        for name, value in {"LOOK_S": 0.001, "MEMBERS_S": 0.0, **faster}.items():
            monkeypatch.setattr(live, name, value)
        self.world = world or Watched()
        self.picture = Picture()
        self.marks: list[Mark] = []
        self.feed = LiveFeed(cast(Operations, self.world), self.picture, self.marks.append)

    async def __aenter__(self) -> "Fed":
        self._task = asyncio.create_task(self.feed.run())
        await self.looked()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()

    async def looked(self) -> None:
        """A few looks later."""
        for _ in range(4):
            await asyncio.sleep(0.005)

    async def until(self, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Members by name, once they are as awaited."""
        async with asyncio.timeout(60):
            while not is_so(found := {row["name"]: row for row in rows(self.picture, "member").values()}):
                await asyncio.sleep(0.005)
        return found


async def test_what_is_there_at_the_beginning_is_shown(monkeypatch: Any) -> None:
    async with Fed(monkeypatch) as fed:
        members = rows(fed.picture, "member")
        assert members[ALICE.hex()]["is_self"]
        assert not members[BOB.hex()]["is_self"]
        assert {one["since_s"] for one in members.values()} == {None}
        thing = rows(fed.picture, "object")["o1"]
        assert (thing["tier"], thing["east_m"], thing["north_m"]) == ("confirmed", 10.0, 20.0)
        assert thing["covariance_m2"] == [0.04, 0.0, 0.04]
        assert rows(fed.picture, "cell")


async def test_in_a_mesh_who_is_reached_through_others_only_is_relayed(monkeypatch: Any) -> None:
    world = Watched()
    world.qualities[BOB] = "none"
    async with Fed(monkeypatch, world=world) as fed:
        assert (await fed.until(lambda found: len(found) == 2))["bob"]["quality"] == "none"
        world.is_mesh = True
        await fed.until(lambda found: found["bob"]["quality"] == "relayed")
        world.states[BOB] = MemberState.FAILED
        await fed.until(lambda found: (found["bob"]["state"], found["bob"]["quality"]) == ("failed", "none"))


def word(kind: str, subject: str, ago_s: float = 5.0) -> EventRecord:
    return EventRecord(int((time.time() - ago_s) * 1000), "bob", BOB.hex(), 1, int(1e6 - ago_s), kind, subject, "", "")


async def test_who_failed_before_this_node_came_is_a_member_that_failed(monkeypatch: Any) -> None:
    """By the word of who saw it, until somebody says that it is back, or dismissed, or it is met here."""
    world = Watched()
    names = ("carol", "dave", "erin", "bob", "old")
    world.past.events = [word("failed", name, 90_000.0 if name == "old" else 40.0) for name in names]
    world.past.events += [word("returned", "dave", 20.0), word("joined", "frank")]
    async with Fed(monkeypatch, world=world) as fed:
        told = await fed.until(lambda found: len(found) == 4)
        assert {name: row["state"] for name, row in told.items()} == {
            "alice": "alive", "bob": "alive", "carol": "failed", "erin": "failed",
        }  # fmt: skip
        assert abs(told["carol"]["since_s"] - (time.time() - 40)) < 5
        assert told["carol"]["id"] == "never met carol"
        fed.world.say(Happened(word("dismissed", "carol")))
        fed.world.say(Happened(word("failed", "carol", 30.0)))  # An older word that came late.
        fed.world.say(Happened(word("failed", "gina")))
        await fed.until(lambda found: set(found) == {"alice", "bob", "erin", "gina"})
        fed.world.say(Happened(word("returned", "erin", 0.0)))
        for number in range(3_000):
            fed.world.say(Happened(word("failed", f"n{number}", 1.0)))
        assert len(await fed.until(lambda found: "n2999" in found)) == 2 + live.TOLD_MAX


async def test_a_member_that_changes_its_state_says_since_when(monkeypatch: Any) -> None:
    async with Fed(monkeypatch) as fed:
        began_s = time.time()
        fed.world.states[BOB] = MemberState.FAILED
        fed.world.say(MemberChanged(BOB, "bob", MemberState.ALIVE, MemberState.FAILED, "unheard"))
        await fed.looked()
        told = rows(fed.picture, "member")[BOB.hex()]
        assert told["state"] == "failed"
        assert began_s - 0.1 <= told["since_s"] <= time.time()
        assert [(mark.lane, mark.level, mark.text) for mark in fed.marks] == [
            ("members", "warning", "bob alive → failed (unheard)")
        ]
        fed.world.is_gone.add(BOB)
        await fed.looked()
        assert list(rows(fed.picture, "member")) == [ALICE.hex()]


async def test_objects_follow_the_bus_and_the_sweep_finds_what_it_did_not_tell(monkeypatch: Any) -> None:
    async with Fed(monkeypatch, SWEEP_S=1e9) as fed:
        fed.world.things["o2"] = object_view("o2")
        await fed.looked()
        assert set(rows(fed.picture, "object")) == {"o1"}
        fed.world.say(StateChanged("state", ObjectChanged("new", object_view("o2"), "")))
        fed.world.say(StateChanged("state", ObjectChanged("superseded", object_view("o1"), "o2")))
        await fed.looked()
        assert set(rows(fed.picture, "object")) == {"o2"}
        assert [mark.lane for mark in fed.marks] == ["objects"]
        fed.world.things = {"o3": object_view("o3")}
        monkeypatch.setattr(live, "SWEEP_S", 0.0)
        await fed.looked()
        assert set(rows(fed.picture, "object")) == {"o3"}


async def test_positions_are_placed_and_a_lost_fix_keeps_the_place(monkeypatch: Any) -> None:
    async with Fed(monkeypatch) as fed:
        fed.world.say(pose())
        await fed.looked()
        own = rows(fed.picture, "position")[ALICE.hex()]
        assert own["yaw_deg"] == round(math.degrees(0.5), 1)
        assert abs(own["at_s"] - time.time()) < 5
        fed.world.say(PositionSeen(ALICE, "alice", None))
        lost = rows(fed.picture, "position")[ALICE.hex()]
        assert lost == {**own, "has_fix": False}
        fed.world.say(PositionSeen(BOB, "bob", None))
        assert BOB.hex() not in rows(fed.picture, "position")


async def test_the_place_of_who_is_no_member_any_more_goes(monkeypatch: Any) -> None:
    """Members come and go for weeks; what is kept of them has the bounds of the lists that it is read from."""
    async with Fed(monkeypatch) as fed:
        for number in range(300):
            node = NodeId(number.to_bytes(16, "big"))
            fed.world.say(PositionSeen(node, "passing", replace(BOBS_PLACE, node=node)))
            fed.world.say(PositionSeen(node, "passing", None))
        fed.world.say(PositionSeen(BOB, "bob", replace(BOBS_PLACE, node=BOB)))
        fed.world.say(PositionSeen(BOB, "bob", None))
        monkeypatch.setattr(live, "SWEEP_S", 0.0)
        await fed.looked()
        assert set(rows(fed.picture, "position")) == {BOB.hex()} | {node.hex() for node in fed.world.positions()}


async def test_cells_alerts_and_events_are_shown(monkeypatch: Any) -> None:
    async with Fed(monkeypatch) as fed:
        fed.world.say(StateChanged("state", CellChanged(CellView("c9", 100, 200, "claimed", BOB, ()))))
        assert rows(fed.picture, "cell")["c9"]["holder"] == "bob"
        fed.world.say(happened())
        fed.world.say(happened())
        assert [one["kind"] for one in rows(fed.picture, "event").values()] == ["failed"]
        assert [mark.lane for mark in fed.marks] == ["events"]
        fed.world.past.alerts = [Alert("clock-wrong", "", "12 s ahead", 1_000)]
        await fed.looked()
        alert = rows(fed.picture, "alert")["clock-wrong"]
        assert (alert["level"], alert["since_s"]) == ("warning", 1.0)
        assert "timedatectl" in alert["remedy"]
        fed.world.past.alerts = []
        await fed.looked()
        assert rows(fed.picture, "alert") == {}


async def test_what_other_nodes_say_is_short_and_written_forwards(monkeypatch: Any) -> None:
    """A label of another node's model may be anything."""
    evil = "\u202eenod\n\x1b[2J" + "a" * 500
    async with Fed(monkeypatch) as fed:
        view = msgspec.structs.replace(object_view("o2"), label=evil, asset=evil)
        fed.world.say(StateChanged("state", ObjectChanged("new", view, "")))
        await fed.looked()
        thing = rows(fed.picture, "object")["o2"]
        for text in (thing["label"], thing["asset"], fed.marks[0].text):
            assert text.isprintable()
            assert len(text) <= 240


async def test_evidence_is_who_saw_it_and_with_what(monkeypatch: Any) -> None:
    async with Fed(monkeypatch) as fed:
        fed.world.sightings = [sighting(), sighting(ALICE), msgspec.structs.replace(sighting(), object_id="o2")]
        found = await fed.feed.evidence("o1")
        assert sorted(one.node for one in found) == ["alice", "bob"]
        assert {one.model_digest for one in found} == {"01" * 8}
        assert await fed.feed.evidence("nothing") == []


async def test_a_long_list_lets_the_loop_turn(monkeypatch: Any) -> None:
    """Between two batches of rows others run: counted, not timed."""
    async with Fed(monkeypatch, SWEEP_S=1e9) as fed:
        for number in range(10 * live.BATCH):
            view = object_view(f"x{number}")
            fed.world.things[view.object_id] = view
            fed.world.say(StateChanged("state", ObjectChanged("new", view, "")))
        async with turning(Turns()) as loop:
            while len(rows(fed.picture, "object")) < 10 * live.BATCH:
                await asyncio.sleep(0)
        assert loop.turns >= 10


def test_a_view_without_origin_has_no_places(monkeypatch: Any) -> None:
    world = Watched()
    info = replace(world.info(), has_origin=False)
    world.info = lambda: info  # type: ignore[method-assign]
    picture = Picture()
    feed = LiveFeed(cast(Operations, world), picture, lambda mark: None)
    feed._on_event(pose())
    place = rows(picture, "position")[ALICE.hex()]
    assert (place["east_m"], place["north_m"]) == (None, None)
    assert place["latitude_deg"] == -18.88
