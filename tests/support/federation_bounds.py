"""What one swarm, one gateway or one node can fill at a region, and for how long: laws, each in a folder of its own."""

import random
from pathlib import Path

import pytest

from swarmd.federation import bounds
from swarmd.federation.outbox import Waiting
from swarmd.federation.store import Store
from swarmd_protocols.federation.gate import AHEAD_MS, RecordRow
from swarmd_protocols.federation.objects import Derived
from swarmd_protocols.federation.wire import RowKind, SiteRow, TrustRow, Way, encode_row
from swarmd_protocols.ids import NodeId
from swarmd_protocols.releases.reports import Report, Verdict
from swarmd_protocols.state.crdt.batch import Stream
from swarmd_protocols.state.crdt.records import EventRow
from swarmd_protocols.trust.identity import dev_role_seeds, enrol, make_dev_identity
from tests.support.federation_world import CRYPTO, Frame, make_world, one_gateway


def words_of_times_to_come_are_refused(folder: Path) -> None:
    """A gateway's word from far ahead is refused in so many words; the honest one's, however late its clock, counts."""
    world = make_world(folder, random.Random(1), 1, 2)
    [swarm] = world.swarms
    thief, honest = swarm.gateways
    ahead = thief.say(1, 900, world.now_ms + 2 * AHEAD_MS)
    world.settle()
    assert world.seen(swarm) == {}, "a word of times to come is kept"
    assert "set the clock" in thief.refused[0]
    thief.say(1, 901, world.now_ms + AHEAD_MS - 60_000)
    world.settle()
    assert world.seen(swarm)[ahead.object_id][0] <= world.now_ms + AHEAD_MS
    last = honest.say(1, 700, world.seen(swarm)[ahead.object_id][0] + 1)
    world.settle()
    assert world.seen(swarm) == {last.object_id: (last.stamp, last.digest.hex())}
    assert not honest.refused
    world.close()


def a_restart_forgets_no_certificate(folder: Path) -> None:
    """A region that starts again knows its gateways from its file, and asks none of them who it is."""
    world, swarm, gateway = one_gateway(folder)
    gateway.say(1, 600)
    world.settle()
    world.region.tidy(0.0)
    world.open()
    gate = world.region.gates[swarm.pin.key]
    assert gate.is_gateway(CRYPTO.public_key(gateway.identity.seed)), "a gateway is a stranger after a restart"
    world.close()


def a_statement_costs_what_it_is(folder: Path) -> None:
    """What one more certificate has the region write does not grow with how many a swarm has; a restart has them all,
    and what was replaced goes."""
    world, swarm, gateway = one_gateway(folder)
    nodes = [make_dev_identity(swarm.secret, swarm.name, f"n{at}", CRYPTO) for at in range(80)]
    gateway.trust(*nodes[:-1])
    world.settle()
    assert world.store is not None
    database = world.store._db
    before = database.total_changes
    gateway.trust(nodes[-1])
    world.settle()
    assert database.total_changes - before < 20, "one statement has all that a swarm has said written again"
    for _ in range(2):
        trust = world.region.gates[swarm.pin.key].trust
        assert all(trust.certified(one.node) for one in nodes), "a certificate is forgotten"
        world.open()
    seeds = dev_role_seeds(swarm.secret, "enrol")
    again = [
        enrol(nodes[0].seed, "n0", swarm.name, nodes[0].roots, (), seeds, CRYPTO, counter=counter).certificate
        for counter in (5, 6)
    ]
    for statement in again:
        row = Waiting(RowKind.TRUST, statement[-64:], encode_row(TrustRow("node", statement)))
        gateway.outbox.put([row], world.now_ms)
        world.settle()
    world.region.tidy(0.0)
    held = [statement for _, statement in world.store.trust(swarm.pin.key.hex())]
    assert [one in held for one in again] == [False, True], "what was replaced stays"
    world.close()


def frames_of_before_a_restart_are_copies(folder: Path) -> None:
    """Whoever plays back what a region heard before it was restarted makes no gateway look alive."""
    world, _swarm, gateway = one_gateway(folder)
    recorded: list[Frame] = []
    for thing in range(5):
        gateway.say(thing, 600)
        world.pump(5_000)
        recorded += [frame for frame in world.flying if frame.place.way is Way.UP]
        world.settle()
    assert len(recorded) >= 5
    world.open()
    for frame in recorded:
        world.deliver(frame)
    world.region.write()
    assert world.region.counts["frames"] == 0, "frames that were played back are heard"
    assert not any(world.region._lines.values()), "who is played back looks alive"
    gateway.say(7, 600)
    gateway.kill()
    gateway.say(8, 600)
    world.settle()
    world.check()
    world.close()


def a_row_that_cannot_be_written_stops_nobody(folder: Path) -> None:
    """What the file cannot take of one swarm is refused; others', and the rest of its own, are written."""
    world = make_world(folder, random.Random(1), 2, 1)
    hostile, good = world.swarms
    bad = hostile.gateways[0].say(3, 500)
    others = [hostile.gateways[0].say(thing, 500) for thing in range(2)]
    good.gateways[0].say(1, 800)
    real = Store.put_object

    def put(self: Store, swarm: str, found: Derived, *rest: object) -> bool:
        is_new = real(self, swarm, found, *rest)  # type: ignore[arg-type]
        if found.object_id == bad.object_id and swarm == hostile.pin.key.hex():
            self._db.execute("SELECT ?", (1 << 64,))  # As of a value that is larger than a file's columns.
        return is_new

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "put_object", put)
        try:
            world.settle(60)
        except OverflowError as error:
            raise AssertionError("one row keeps all from being written") from error
    assert len(world.seen(good)) == 1, "one swarm's row keeps another's away"
    assert world.seen(hostile).keys() == {one.object_id for one in others}, "a part of a row is written"
    assert ["cannot be written" in why for why in hostile.gateways[0].refused] == [True]
    assert any(hostile.name in text for text in world.said), "it is not said whose it was"
    world.close()


def _node(number: int) -> NodeId:
    return NodeId(bytes([number]) * 16)


def a_swarm_has_a_bound_and_each_node_its_share(folder: Path) -> None:
    """Whatever one node signs without end, it pushes out its own; no swarm has more rows than the bound."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("OBJECTS_KEPT", "EVENTS_KEPT", "COUNTERS_KEPT", "REPORTS_KEPT", "NODES_KEPT", "SITES_KEPT"):
            patch.setattr(bounds, name, 20)
        world = make_world(folder, random.Random(1), 2, 1)
        flooder, swarm = world.swarms
        for thing in range(60):
            flooder.gateways[0].say(thing, 500)
        swarm.gateways[0].say(1, 500)
        world.settle()
        store, name = world.store, swarm.pin.key.hex()
        assert store is not None
        with store.transaction():
            for life in range(60):
                _say_all(store, name, 1, life, 9_000 + life)
            for life in range(3):
                _say_all(store, name, 2, life, life)
            for number in range(60):
                place = (_node(number), Stream.STATUS, 1, 1, number << 16)
                store.put_record(name, RecordRow(*place, status=b"{}"))
                store.put_site(name, _node(number), SiteRow(1, 1, 1, 1, 1, 0, 0, False, 0, 0, ""), number)
            store.heard(name, _node(1), 0, 1)
        store.tidy()

        def count(table: str, of: str = name) -> int:
            return int(store._db.execute(f"SELECT count(*) FROM {table} WHERE swarm = ?", (of,)).fetchone()[0])

        for table in ("objects", "merged", "nodes", "sites", "events", "counters", "reports"):
            assert count(table) <= 20, f"{table} has {count(table)} rows of one swarm"
        assert count("objects", flooder.pin.key.hex()) == 20
        assert count("objects") == 1, "a swarm has pushed another's objects out"
        for table in ("events", "counters", "reports"):
            kept = store._db.execute(f"SELECT count(*) FROM {table} WHERE swarm = ? GROUP BY node", (name,)).fetchall()
            assert sorted(kept) == [(3,), (17,)], f"{table}: a node has pushed another's out"
        newest = [row[0] for row in store._db.execute("SELECT said_ms FROM nodes ORDER BY said_ms")]
        assert newest[0] >= newest[-1] - 20
        world.close()


def what_a_node_alone_says_pushes_out_its_own_objects(folder: Path) -> None:
    """However many objects one node says alone: those that others saw, with it or without it, stay, and their words."""
    kept = 20
    with pytest.MonkeyPatch.context() as patch:
        for name in ("OBJECTS_KEPT", "HISTORY_KEPT"):
            patch.setattr(bounds, name, kept)
        store = Store(folder / "region.sqlite")
        others = [_object(number, (2,), number) for number in range(3)]
        others += [_object(10 + number, (1, 2), number) for number in range(3)]
        flood = [_object(100 + number, (1,), 1_000 + number) for number in range(60)]
        with store.transaction():
            for found in (*others, *flood):
                store.put_object("farm", found, _node(9), 2, 1)
            store.heard("farm", _node(9), 0, 1)
        assert store.tidy() == len(others) + len(flood) - kept
        columns = {"objects": "object", "merged": "into_object", "history": "object"}
        for table, column in columns.items():
            held = [row[0] for row in store._db.execute(f"SELECT {column} FROM {table} ORDER BY stamp")]
            wanted = [*others, *flood[len(others) - kept :]]
            assert sorted(held) == sorted(found.object_id.hex() for found in wanted), f"{table} keeps {held}"
        store.close()


def a_file_of_before_the_bounds_is_read_on(folder: Path) -> None:
    """A region's file that does not say who saw its objects gets the column, and keeps what it holds."""
    store = Store(folder / "region.sqlite")
    with store.transaction():
        store.put_object("farm", _object(1, (1,), 1), _node(9), 2, 1)
    for table in ("objects", "merged", "history"):
        store._db.execute(f"DROP INDEX {table}_by_seer")
        store._db.execute(f"ALTER TABLE {table} DROP COLUMN seen_by")
    store.close()
    store = Store(folder / "region.sqlite")
    with store.transaction():
        store.put_object("farm", _object(2, (1,), 2), _node(9), 2, 1)
        store.heard("farm", _node(9), 0, 1)
    assert store.tidy() == 0
    assert [number for number, _ in store.history(9)] == [1, 2]
    held = dict(store._db.execute("SELECT object, seen_by FROM objects ORDER BY stamp"))
    assert list(held) == [_object(number, (), 0).object_id.hex() for number in (1, 2)]
    assert [bool(seen_by) for seen_by in held.values()] == [False, True]
    store.close()


def _object(number: int, observers: tuple[int, ...], stamp: int) -> Derived:
    """What nodes have seen, into which something else has gone."""
    name, other = number.to_bytes(8, "big"), (1_000 + number).to_bytes(8, "big")
    seen_by = tuple(map(_node, observers))
    return Derived(
        name, stamp, "person", "", 900, None, None, None, "", seen_by, 1, 2, 1, "", (), (other,), (), b"", ()
    )


def _say_all(store: Store, swarm: str, node: int, life: int, at_ms: int) -> None:
    """An event, a counter and a report of one node, of one life or model."""
    row = EventRow(life, 1, at_ms, "started", "", "", "")
    store.put_record(swarm, RecordRow(_node(node), Stream.EVENTS, life, 1, at_ms << 16, events=(row,)))
    store.put_record(swarm, RecordRow(_node(node), Stream.COUNTERS, life, 1, at_ms << 16, counters={"frames": 1}))
    key = bytes([node]) * 32
    store.put_report(swarm, Report(key, f"model-{life}", 1 + life, b"", 1, 1, "idle", b"", Verdict.NONE, 0, 0, ""))
