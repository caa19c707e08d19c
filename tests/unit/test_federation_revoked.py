"""Law: what a revoked member said goes out of a region's view, as it goes out of its swarm's."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swarmd.federation import publisher, seers
from swarmd.federation.outbox import Waiting
from swarmd.federation.store import FILE_NAME, Store
from swarmd_protocols.federation.wire import RowKind, TrustRow, encode_row
from swarmd_protocols.ids import NodeId
from swarmd_protocols.trust.identity import make_dev_identity
from tests.support.federation_hostile import inject, revocation_of
from tests.support.federation_world import CRYPTO, make_world
from tests.support.mutants import assert_found
from tests.unit.test_federation_disk import write_fails
from tests.unit.test_federation_publisher import ALL, Site


def a_revoked_member_is_out(folder: Path) -> None:
    """Of two members that see, one is shut out: what it alone saw is not shown, also after a start, and the rest is."""
    world = make_world(folder, random.Random(1), swarms=1)
    [swarm] = world.swarms
    [gateway, *_] = swarm.gateways
    thief = swarm.author
    gateway.say(4, 500)
    world.settle()
    swarm.author = make_dev_identity(swarm.secret, swarm.name, "eye-2", CRYPTO)
    gateway.trust(swarm.author)
    good = gateway.say(1, 600)
    world.settle()
    assert len(world.seen(swarm)) == 2
    row = Waiting(RowKind.TRUST, b"", encode_row(TrustRow("revoke", revocation_of(swarm, thief))))
    inject(world, gateway.identity.seed, swarm.pin.key, gateway, [row])
    assert set(world.seen(swarm)) == {good.object_id}
    assert world.store is not None
    world.store._written.add(swarm.pin.key.hex())
    world.store.tidy()
    world.open()
    assert set(world.seen(swarm)) == {good.object_id}
    assert world.store is not None
    with world.store.transaction():
        seers.shut_out(world.store._db, swarm.pin.key.hex(), (), "", 100)
    assert len(world.seen(swarm)) == 2, "let in again by officers, what it said counts again"
    world.close()


def test_what_a_revoked_member_alone_saw_is_not_shown(tmp_path: Path) -> None:
    a_revoked_member_is_out(tmp_path)


def test_a_revocation_that_the_disk_refused_at_first_hides_what_its_member_saw(tmp_path: Path) -> None:
    """Said again it is no news to the region."""
    world = make_world(tmp_path, random.Random(1), swarms=1)
    [swarm] = world.swarms
    [gateway, *_] = swarm.gateways
    gateway.say(4, 500)
    world.settle()
    assert len(world.seen(swarm)) == 1
    row = Waiting(RowKind.TRUST, b"", encode_row(TrustRow("revoke", revocation_of(swarm, swarm.author))))
    gateway.outbox.put([row], world.now_ms)
    world.pump(100)
    write_fails(world)
    world.settle()
    assert world.seen(swarm) == {}
    world.close()


def test_a_region_that_hears_of_no_revocation_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deaf(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(Store, "shut_out", lambda self, judging, revoked_of: None)

    assert_found(deaf, lambda: a_revoked_member_is_out(tmp_path), monkeypatch)


def test_who_saw_what_is_forgotten_with_it_and_a_file_of_before_is_read(tmp_path: Path) -> None:
    store = Store(tmp_path / FILE_NAME)
    with store.transaction():
        seers.note(store._db, "a", [NodeId(b"n" * 16)])
        seers.tidy(store._db, "a")
    assert store._db.execute("SELECT count(*) FROM seers").fetchone() == (0,)
    assert seers.vouched(store._db) != ("", "")
    store._db.execute("DROP TABLE seers")
    assert seers.vouched(store._db) == ("", "")
    store.close()


async def candidate_again(folder: Path) -> None:
    """An object that two saw, of whom one is out, is a candidate: the region hears that, and shows it no more."""
    site = Site(folder)
    site.publishers[0].claim(ALL, 1)
    site.see(1)
    [said] = await site.said(0)
    site.acknowledge(0)
    site.see(2, observers=(0,))
    assert set(await site.said(0)) == set(), "what one alone has seen is not said"
    site.mesh.revoke(site.mesh.members[2])
    site.mesh.run(3)
    site.publishers[0]._compare_s = 0.0
    assert set(await site.said(0)) == {said}
    for outbox in site.outboxes:
        outbox.close()


async def test_what_is_a_candidate_again_is_said_where_the_region_shows_it(tmp_path: Path) -> None:
    await candidate_again(tmp_path)


async def test_a_gateway_that_says_no_candidates_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    knows: Callable[..., object] = publisher.Publisher.on_done
    monkeypatch.setattr(publisher.Publisher, "on_done", lambda self, done: knows(self, done) or self.known.clear())
    with pytest.raises(AssertionError):
        await candidate_again(tmp_path)


def out_of(store: Store, swarm: str) -> int:
    return int(store._db.execute("SELECT count(*) FROM seers WHERE swarm = ? AND is_out", (swarm,)).fetchone()[0])


def test_a_swarm_of_many_seers_that_revokes_without_end_is_judged_a_slice_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seers, "SLICE", 10)
    store, good = Store(tmp_path / FILE_NAME), NodeId(b"g" * 16)
    nodes = [NodeId(bytes([number]) * 16) for number in range(95)]
    with store.transaction():
        for node in nodes:
            seers.note(store._db, "large", [node])
        seers.note(store._db, "small", [good])
        seers.note(store._db, "small", [good, nodes[0]])
    revoked: dict[str, set[bytes]] = {"large": {*nodes[:1]}, "small": {good}}
    judging, judged, whole = seers.Judging(["large", "small"]), [], seers.shut_out

    def counted(*args: Any) -> tuple[str, int]:
        found = whole(*args)
        judged.append(found[1])
        return found

    monkeypatch.setattr(seers, "shut_out", counted)
    for turn in range(40):
        # One more with each turn: those before are judged all the same.
        revoked["large"].add(nodes[min(turn, 94)])
        judging.begin("large")
        before = len(judged)
        with store.transaction():
            store.shut_out(judging, revoked.__getitem__)
        assert sum(judged[before:]) <= 10
        if turn == 1:
            assert out_of(store, "small") == 1, "a swarm of many seers keeps another's waiting"
    assert out_of(store, "large") >= 20, "who revokes without end is never judged"
    turns = 0
    while judging:
        turns += 1
        assert turns < 30
        with store.transaction():
            store.shut_out(judging, revoked.__getitem__)
    assert out_of(store, "large") == len(revoked["large"]), "a set before the one that was judged last is passed over"
    judging.restart(["small"])
    revoked["small"] = set()
    with store.transaction():
        store.shut_out(judging, revoked.__getitem__)
    assert (out_of(store, "small"), len(judging)) == (0, 0)
    store.close()
