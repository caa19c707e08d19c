"""What a device that starts again may do about models: no more, and no less, than if it had gone on."""

import pytest

from swarmd_protocols.crypto import ModelCrypto
from swarmd_protocols.effects import Persist
from swarmd_protocols.releases import requests, roster, slots
from swarmd_protocols.releases.reports import MAX_STATUSES_PER_NODE, ReportBook
from swarmd_protocols.releases.statements import Floor, Heartbeat
from swarmd_protocols.trust.roots import root_digest
from tests.support.release_world import MODEL, World, make_release
from tests.unit.test_release_hostile import DATA, publish, ranked, release

DAY_S = 86_400


def running(count: int) -> tuple[World, bytes]:
    """A fleet that runs version 1, and its digest."""
    world = World(count, crypto=ModelCrypto())
    first = release(world, 1)
    publish(world, first, 1)
    world.run(120, lambda: world.versions() == [1] * count)
    world.run(10)
    return world, first.digest


def restart(world: World, at: int, runs: bytes) -> None:
    """A new life on the journal; the daemon says what runs before anybody is met."""
    world.nodes[at] = world.build(at)
    world.due[at].clear()
    world.perform(at, world.nodes[at].start(world.now))
    world.command(at, requests.Running(MODEL, runs))


def test_law_who_restarts_tries_nothing_before_its_turn() -> None:
    """The power comes back everywhere in the first stage of a release: its canaries try it, and nobody else."""
    world, first = running(20)
    second = release(world, 2, first)
    world.healthy = lambda at, digest: digest != second.digest
    publish(world, second, 2)
    world.run(3)
    assert all(second.digest in node.local[MODEL].prepared for node in world.nodes), "the files are everywhere"
    for at in range(20):
        restart(world, at, first)
    world.run(0.05)  # Nobody has met anybody yet.
    world.meet()
    world.run(60)
    tried = {at for at in range(20) if second.digest in world.tried[at]}
    assert tried <= set(ranked(world, second.digest)[:4]), "two canaries, and as many that stand in for them"


def test_law_a_canary_that_restarts_does_not_take_its_own_pass_for_the_fleets() -> None:
    world, first = running(8)
    second = release(world, 2, first)
    lucky = ranked(world, second.digest)[0]
    world.healthy = lambda at, digest: digest != second.digest or at == lucky
    publish(world, second, 2)
    world.run(10, lambda: world.versions()[lucky] == 2)
    restart(world, lucky, second.digest)
    world.run(0.05)
    world.meet()
    world.run(90)
    assert world.nodes[lucky].halted(MODEL) == [second.digest], "two of the canaries have said FAIL"
    assert 2 not in world.versions()


def test_places_are_kept_of_those_that_are_certified_until_nobody_speaks_of_them() -> None:
    world, first = running(5)
    world.revoke([world.ids[4]], 0)
    places = {key for key in world.journals[0] if key.startswith(roster.PLACE)}
    assert places == {roster.PLACE + world.ids[at] for at in (1, 2, 3)}
    world.journals[0][roster.PLACE + world.ids[2]] = b"\xc1torn"
    world.journals[0][roster.PLACE + b"short"] = world.journals[0][roster.PLACE + world.ids[1]]
    restart(world, 0, first)
    node = world.nodes[0]
    assert node.policy.participants(MODEL) == sorted(world.ids[at] for at in (0, 1, 3))
    assert {key for key in world.journals[0] if key.startswith(roster.PLACE)} == {
        roster.PLACE + world.ids[at] for at in (1, 3)
    }
    world.cut = {(at, 0) for at in range(1, 5)}
    world.perform(0, node.on_timer(("releases", "slow"), world.now + roster.FORGET_NS))
    assert node.policy.participants(MODEL) == [world.ids[0]]
    assert not any(key.startswith(roster.PLACE) for key in world.journals[0])


def test_a_record_of_places_fills_no_more_than_a_node_may() -> None:
    book = ReportBook()
    models = [f"m{at}" for at in range(9)]
    kept = roster.Roster(book, models, met := set())
    packed = b"\x99" + b"".join(b"\xa2" + name.encode() for name in models)
    kept.restore(roster.PLACE + b"n" * 16, packed, lambda node: True)
    assert met == {b"n" * 16}
    assert len(book.expected) == MAX_STATUSES_PER_NODE


def _stolen_floor() -> tuple[World, bytes, list[dict[bytes, bytes]], slots.Record]:
    """Floor and release keys were stolen and are replaced: the journals that a power cut in between may leave."""
    world, first = running(3)
    world.publish(0, [world.keys.sign("floor", Floor(MODEL, 1, 900).payload(), "floor")])
    world.run(5)
    record = slots.floored(slots.Record(), *_told(world)[-1])
    assert slots.is_below_floor(record, (1, 1))
    cuts, journal = [dict(world.journals[1])], dict(world.journals[1])
    for at in range(3):
        trust = world.trusts[at]
        trust.add("root", world.keys.root(2, 2, root_digest(trust.roots[-1]), {"floor": 1, "release": 1}))
        effects = world.nodes[at].on_trust(world.now)
        for effect in effects if at == 1 else ():
            if isinstance(effect, Persist):
                _write(journal, effect)
                cuts.append(dict(journal))
        world.perform(at, effects)
    return world, first, cuts, record


def _write(journal: dict[bytes, bytes], effect: Persist) -> None:
    if effect.value is None:
        journal.pop(effect.key, None)
    else:
        journal[effect.key] = effect.value


def _told(world: World) -> list[tuple[int, tuple[int, int]]]:
    """What the slots of the second node were told of the floor."""
    orders = [one for at, one in world.details if at == 1 and isinstance(one, requests.RaiseFloor)]
    return [(one.root_epoch, one.floor) for one in orders]


def test_law_a_floor_of_stolen_keys_leaves_the_slots_wherever_the_power_is_cut() -> None:
    """The orders of the life that heard the root are lost with it; no model is known when the next one begins."""
    for cut in range(len(_stolen_floor()[2])):
        world, first, cuts, record = _stolen_floor()
        world.details.clear()
        world.journals[1] = cuts[cut]
        # The root is written last. A life that has not got it hears it anew, with what the journal still holds.
        whole, world.trusts[1] = world.trusts[1], type(world.trusts[1])("world", [world.keys.root()], world.crypto)
        for statement in world.certificates:
            world.trusts[1].admit_certificate(statement)
        restart(world, 1, b"")
        world.meet()
        world.trusts[1].add("root", whole.roots[-1])
        world.perform(1, world.nodes[1].on_trust(world.now))
        restart(world, 1, b"")
        world.meet()
        again = world.keys.sign("release", make_release(DATA[1]).payload(), "release", generation=1)
        assert again.digest == first
        world.publish(0, [again])
        world.run(30)
        for told in _told(world):
            record = slots.floored(record, *told)
        assert not slots.is_below_floor(record, (1, 1)), f"cut after {cut} writes"


def test_a_fallen_floor_is_told_once_more_and_forgotten_with_the_next() -> None:
    world, _, _, _ = _stolen_floor()
    assert _told(world)[-1] == (2, (0, 0))
    assert b"releases/f/" + MODEL.encode() in world.journals[1]
    world.publish(0, [world.keys.sign("floor", Floor(MODEL, 2, 1).payload(), "floor", generation=1)])
    world.run(5)
    assert _told(world)[-1] == (2, (2, 1))
    assert b"releases/f/" + MODEL.encode() not in world.journals[1]


@pytest.mark.parametrize("is_off", [False, True])
def test_law_a_time_that_stolen_keys_said_ends_with_them(is_off: bool) -> None:
    """Twenty years in steps that are each believed; the publisher's next word is news all the same."""
    world, first = running(2)
    now_s = 1_700_000_000
    for step in range(20):
        beat = Heartbeat(1, step + 1, now_s + step * 399 * DAY_S)
        world.publish(0, [world.keys.sign("heartbeat", beat.payload(), "heartbeat")])
        world.run(1)
    assert world.nodes[1].time_low_s(world.now) >= now_s + 19 * 399 * DAY_S
    previous = root_digest(world.trusts[0].roots[-1])
    for at in range(2):
        world.trusts[at].add("root", world.keys.root(2, 2, previous, {"heartbeat": 1}))
        if is_off and at == 1:
            restart(world, 1, first)
            world.meet()
        world.perform(at, world.nodes[at].on_trust(world.now))
    again = world.keys.sign("heartbeat", Heartbeat(2, 1, now_s).payload(), "heartbeat", generation=1)
    world.publish(0, [again])
    world.run(5)
    for node in world.nodes:
        assert not node.is_stale(world.now)
        assert now_s <= node.time_low_s(world.now) < now_s + DAY_S
