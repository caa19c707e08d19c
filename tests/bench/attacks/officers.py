"""Attacks on what officers have signed: floors, revocations, certificates, releases."""

from swarmd_protocols.crypto import ModelCrypto, NaClCrypto
from swarmd_protocols.effects import MemberState
from swarmd_protocols.releases import versions
from swarmd_protocols.releases.messages import Push, encode_message
from swarmd_protocols.releases.reports import Verdict
from swarmd_protocols.releases.statements import Floor, Revoke
from swarmd_protocols.trust.envelopes import Envelope
from swarmd_protocols.trust.identity import enrol
from tests.bench.attacks.seen import Seen
from tests.support.fleet_net import FleetNet, fleet_folder
from tests.support.release_world import MODEL, World, make_release
from tests.unit.test_release_hostile import give, said
from tests.unit.test_trust_attacks import Desk

ALIVE = MemberState.ALIVE
V = [bytes([number]) * 9_000 for number in range(4)]


def _standing(world: World) -> list[tuple[object, int]]:
    models = [node.view.models[MODEL] for node in world.nodes]
    return [(one.floor.order if one.floor else None, len(one.revoked)) for one in models]


def _release(world: World, version: int, previous: bytes = b"", count: int = 0) -> Envelope:
    return world.keys.sign("release", make_release(V[version], version, previous).payload(), "release", count)


def merge_unsigns() -> Seen:
    """Five pushes of an envelope with one signature zeroed each, by a plain member, then its vote to fail."""
    world = World(5, crypto=NaClCrypto())
    first = _release(world, 1)
    world.publish(0, [first], V[1])
    world.run(120)
    second = _release(world, 2, first.digest)
    world.publish(0, [second], V[2])
    world.run(200)
    floor = world.keys.sign("floor", Floor(MODEL, 1, 2).payload(), "floor", 3)
    bad = world.keys.sign("model-revoke", Revoke(MODEL, 1, first.digest, "vulnerable", 5).payload(), "revoke", 2)
    world.publish(0, [floor, bad])
    world.run(20)
    before = _standing(world)

    def inject(envelope: Envelope) -> None:
        for at in range(len(envelope.signatures)):
            pairs = tuple((key, bytes(64) if i == at else one) for i, (key, one) in enumerate(envelope.signatures))
            push = encode_message(Push((), (Envelope(envelope.kind, envelope.payload, pairs).encode(),), ()))
            world.perform(0, world.nodes[0].on_message(world.ids[4], push, world.now))
            world.run(0.1)

    inject(floor)
    inject(bad)
    world.run(60)
    after = _standing(world)
    third = _release(world, 3, second.digest, 3)
    world.publish(0, [third], V[3])
    world.run(1)
    inject(third)
    world.run(100)
    known = [node.desired(MODEL) for node in world.nodes]
    desired = [one[1].version if one else None for one in known]
    give(world, 4, [said(world, 4, second.digest, Verdict.FAIL, 10**6)])
    world.run(200)
    runs = world.versions()
    return Seen(
        "floor and revocation gone on all 5 nodes; 3 of 5 ran a revoked version below the floor",
        before != after or set(desired) != {3} or min(runs) < 2,
        f"(floor, revocations) {before[0]} before, {sorted(set(after))} after; release 3 desired at "
        f"{desired.count(3)} of 5; after a vote of the thief they run {runs}",
    )


def unrevoke() -> Seen:
    """The revoke keys are replaced, everybody reboots, the thief comes back."""
    with fleet_folder() as fleet:
        net = FleetNet(fleet, [fleet.enrol(f"n{index:03d}", "farm") for index in range(4)])
        net.run(5)
        fleet.revoke("farm", [net.identities[3].node], "stolen")
        fleet.rotate("farm")
        net.push(0)
        net.run(5)
        fleet.change_role("revoke", 1, 2, stolen=True)
        for index in range(3):
            net.push(index)
        net.run(5)
        for index in range(3):
            net.restart(index)
            net.run(5)
        net.restart(3)
        net.run(10)
        seen = [net.seen(index, "n003") for index in range(3)]
        newest = max(net.trust(0).group_keys)
        has_key = newest in net.trust(3).group_keys
        return Seen(
            "the thief ALIVE everywhere and holding the newest group key",
            any(seen) or has_key,
            f"the thief is seen as {seen}, revoked at {sum(bool(net.trust(i).revoked) for i in range(3))} of 3; it "
            f"holds {'the' if has_key else 'not the'} newest group key",
        )


def rogue_after_enrol_rotation() -> Seen:
    """A stolen enrol key makes a member; then it is replaced, and the group key with it, twice."""
    with fleet_folder() as fleet:
        identities = [fleet.enrol(f"n{index:03d}", "farm") for index in range(3)]
        first = identities[0]
        rogue = enrol(b"R" * 32, "n003", "farm", first.roots, first.group_keys, fleet.seeds("enrol"), NaClCrypto())
        net = FleetNet(fleet, [*identities, rogue])
        net.run(5)
        was = [net.seen(index, "n003") for index in range(3)]
        fleet.change_role("enrol", 1, 1, stolen=True)
        net.push(0)
        net.run(60)
        seen = [net.seen(index, "n003") for index in range(3)]
        fleet.rotate("farm")
        net.push(0)
        net.run(5)
        held, newest = max(net.trust(3).group_keys), max(net.trust(0).group_keys)
        honest = all(net.seen(0, f"n00{index}") is ALIVE for index in range(3))
        return Seen(
            "the rogue stays ALIVE and receives both new group keys",
            was != [ALIVE] * 3 or any(seen) or held >= newest or not honest,
            f"the rogue, ALIVE at {was.count(ALIVE)} of 3, is seen as {seen} 60 s later; its newest group key is "
            f"{held}, the fleet's {newest}",
        )


def _erased_floor() -> tuple[int | None, int | None]:
    desk = Desk((2, 2, {"release": 1, "floor": 1}))
    previous = b""
    for version in (1, 2, 3):
        payload = make_release(bytes([version]) * 5_000, version, previous, epoch=2).payload()
        envelope = desk.keys.sign("release", payload, "release", generation=1)
        previous = envelope.digest
        desk.add(envelope)
    desk.add(desk.keys.sign("floor", Floor(MODEL, 2, 3).payload(), "floor", generation=1))
    desk.add(desk.keys.sign("model-revoke", Revoke(MODEL, 2, previous).payload(), "revoke"))
    before = desk.desired
    desk.add(desk.keys.sign("floor", Floor(MODEL, 2, 1 << 60).payload(), "floor", generation=0))
    return before, desk.desired


def _flooded_revocation() -> tuple[int | None, int | None]:
    desk = Desk()
    first = desk.keys.sign("release", make_release(b"a" * 5_000, 1).payload(), "release")
    bad = desk.keys.sign("release", make_release(b"bad" * 5_000, 2, first.digest).payload(), "release")
    genuine = desk.keys.sign("model-revoke", Revoke(MODEL, 1, bad.digest, "bad", 1).payload(), "revoke")
    for envelope in (first, bad, genuine):
        desk.add(envelope)
    before, made, number = desk.desired, 0, 0
    while made < 64:
        number += 1
        payload = Revoke(MODEL, 1, number.to_bytes(32, "big"), "", 1).payload()
        envelope = desk.keys.sign("model-revoke", payload, "revoke", 1)
        if envelope.digest > genuine.digest:
            desk.add(envelope)
            made += 1
    return before, desk.desired


def _invented_models() -> tuple[int | None, int | None]:
    desk = Desk((2, 2, {"release": 1, "floor": 1, "revoke": 1}))
    first = desk.keys.sign("release", make_release(b"a" * 5_000, 1, epoch=2).payload(), "release", generation=1)
    desk.add(first)
    desk.add(desk.keys.sign("floor", Floor(MODEL, 2, 1).payload(), "floor", generation=1))
    for number in range(64):
        payload = Revoke(f"0{number:02d}", 2, bytes(32)).payload()
        desk.add(desk.keys.sign("model-revoke", payload, "revoke", 1, generation=0))
    kept = desk.desired
    second = make_release(b"b" * 5_000, 2, first.digest, epoch=2).payload()
    desk.add(desk.keys.sign("release", second, "release", generation=1))
    has_model = list(versions.view_of(desk.state, desk.chain).models) == [MODEL]
    return (1, 2), (kept, desk.desired if has_model else None)  # type: ignore[return-value]


def prune_before_count() -> Seen:
    """Replaced floor keys, one revoke key of one, replaced revoke keys: 1, 64 and 64 statements."""
    floor, revoked, models = _erased_floor(), _flooded_revocation(), _invented_models()
    return Seen(
        "a floor erased; a bad release un-revoked; every real model pushed out by invented ones",
        any(before != after for before, after in (floor, revoked, models)),
        f"desired before and after: {floor} (the floor forbids all), {revoked} (2 is revoked), {models}",
    )


def reenrol() -> Seen:
    """One name is enrolled twice."""
    with fleet_folder() as fleet:
        base, old, new = (fleet.enrol(name, "farm") for name in ("base", "drone-1", "drone-1"))
        net = FleetNet(fleet, [base, old, new])
        net.run(10)
        held = [(view.name, view.node, view.state) for view in net.hosts[0].node.members()]
        keys = [node for name, node, state in held if name == "drone-1" and state is ALIVE]
        return Seen("both keys of one name are ALIVE", keys != [new.node], f"ALIVE under the name: {len(keys)} key")


def one_fail_vote() -> Seen:
    """One member fails what is promoted and floored, and then the next release."""
    world = World(8, crypto=ModelCrypto())
    previous = b""
    for version in (1, 2):
        envelope = _release(world, version, previous)
        previous = envelope.digest
        world.publish(0, [envelope], V[version])
        world.run(120)
    promoted = world.versions()
    world.publish(0, [world.keys.sign("floor", Floor(MODEL, 1, 2).payload(), "floor")])
    world.run(5)
    push = encode_message(Push((), (), (said(world, 7, previous, Verdict.FAIL, 10**6),)))
    world.perform(0, world.nodes[0].on_message(world.ids[7], push, world.now))
    world.run(30)
    after = world.versions()
    third = _release(world, 3, previous)
    world.publish(0, [third], V[3])
    world.run(0.5)
    push = encode_message(Push((), (), (said(world, 7, third.digest, Verdict.FAIL, 10**6 + 1),)))
    world.perform(0, world.nodes[0].on_message(world.ids[7], push, world.now))
    world.run(120)
    last = world.versions()
    return Seen(
        "a promoted and floored release leaves all 8 nodes, and the next one too",
        after != promoted or last != [3] * 8,
        f"they ran {promoted}, after one vote {after}, and 120 s after the next release and another vote {last}",
    )


def vote_table_full() -> Seen:
    """8,241 votes on releases that do not exist; then a release that is bad on every real node."""
    world = World(6, crypto=ModelCrypto())
    votes = [said(world, 5, number.to_bytes(32, "big"), Verdict.PASS, number) for number in range(1, 8_242)]
    for at in range(0, len(votes), 2_000):
        push = encode_message(Push((), (), tuple(votes[at : at + 2_000])))
        for node in range(5):
            world.perform(node, world.nodes[node].on_message(world.ids[5], push, world.now))
    held = [len(node.book.votes) for node in world.nodes[:5]]
    world.healthy = lambda node, release: False
    first = _release(world, 1)
    world.publish(0, [first], V[1])
    world.run(400)
    halted = [bool(node.halted(MODEL)) for node in world.nodes[:5]]
    return Seen(
        "8,192 votes: real verdicts dropped, a bad release never halted",
        not all(halted) or any(world.versions()),
        f"votes held {held}; halted at {sum(halted)} of 5; they run {world.versions()}",
    )
