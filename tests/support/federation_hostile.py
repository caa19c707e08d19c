"""What swarm A, with a gateway of its own at the same region and brokers, tries on swarm B; each looks how B fares."""

import random
from pathlib import Path

import pytest

from swarmd.federation import bounds
from swarmd.federation.outbox import Waiting
from swarmd.federation.uplink import Place
from swarmd_protocols.errors import IdentityError
from swarmd_protocols.federation.allowance import Allowance
from swarmd_protocols.federation.objects import encode_object
from swarmd_protocols.federation.wire import (
    HEAD_BYTES,
    FactKind,
    Have,
    Pair,
    RowKind,
    SiteRow,
    Up,
    UpRow,
    Way,
    encode_row,
    read_down,
    read_up,
)
from swarmd_protocols.trust.envelopes import sign_statement
from swarmd_protocols.trust.identity import Identity, dev_role_seeds
from swarmd_protocols.trust.payloads import Revocation
from tests.support.federation_world import BEGIN_MS, CRYPTO, REGION_SEED, Frame, Gateway, Swarm, World, make_world

SALT = b"hostile!"


def two(folder: Path, quota_bytes_s: int = 1 << 20) -> tuple[World, Swarm, Swarm]:
    """A region with a hostile swarm and a good one, whose gateways have met it."""
    world = make_world(folder, random.Random(1), swarms=0)
    world.swarms += [Swarm(world, "hostile", 1, quota_bytes_s), Swarm(world, "good", 1, quota_bytes_s)]
    world.open()
    world.swarms[1].gateways[0].say(1, 500)
    world.settle()
    return world, world.swarms[0], world.swarms[1]


def inject(world: World, seed: bytes, swarm: bytes, gateway: Gateway, rows: list[Waiting], life: int = 1 << 40) -> None:
    """A frame to any place, made with any key."""
    batches = [raw for row in rows for raw in row.proofs]
    said = [
        UpRow(at, row.kind, row.body, tuple(batches.index(raw) for raw in row.proofs)) for at, row in enumerate(rows)
    ]
    up = Up(bytes(8), 1, 0, 0, Have(bytes(8), 0), tuple(said), tuple(batches))
    frame = Pair(CRYPTO, seed, CRYPTO.public_key(REGION_SEED)).seal(Way.UP, swarm, life, 0, SALT, up)
    world.region.on_frame(0, Place(swarm, Way.UP, gateway.node), frame)
    world.region.write()


def attack_as_another(folder: Path) -> None:
    """Write rows into another swarm: with an own key at its place, and with own nodes' batches by its gateway."""
    world, hostile, good = two(folder)
    before = world.seen(good)
    mine = hostile.gateways[0]
    found, row, batch = hostile.word(3, 900, BEGIN_MS + 9_000)
    lie = Waiting(RowKind.OBJECT, found.object_id, encode_object(row), (batch.raw,))
    site = Waiting(RowKind.SITE, b"", encode_row(SiteRow(BEGIN_MS + 9_000, 9, 9, 1, 9, 0, 0, True, 1, 1, "")))
    for seed in (mine.identity.seed, b"x" * 32):
        inject(world, seed, good.pin.key, good.gateways[0], [lie, site])
        inject(world, seed, good.pin.key, mine, [lie, site])
    assert world.as_of(good) is None, "a swarm has spoken as another's gateway"
    # A member of the good swarm that turned bad has its gateway's key, and no other node's: it signs as another.
    _, honest, signed = good.word(4, 900, BEGIN_MS + 9_000)
    good.said.clear()
    forged = signed.raw[:-64] + bytes(64)
    inject(
        world, good.gateways[0].identity.seed, good.pin.key, good.gateways[0],
        [Waiting(RowKind.OBJECT, b"", encode_object(honest), (forged,))],
    )  # fmt: skip
    assert world.seen(good) == before, "a swarm has written as another"
    world.close()


def play_back(folder: Path) -> None:
    """Record what the other's gateway says, and play it back until its quota would be gone."""
    world, _, good = two(folder, 4_000)
    gateway = good.gateways[0]
    gateway.say(2, 600)
    world.pump(5_000)
    recorded = [frame for frame in world.flying if frame.place.way is Way.UP and frame.place.swarm == good.pin.key]
    assert recorded
    world.settle()
    allowance: Allowance = world.region.gates[good.pin.key]._allowance
    left = allowance._left
    for _ in range(400):
        for frame in recorded:
            world.deliver(Frame(0, frame.place, frame.data))
    assert allowance._left >= left, "frames that were played back used up the quota"
    gateway.say(3, 700)
    world.settle(20)
    assert len(world.seen(good)) == 3
    world.close()


def flood_another(folder: Path) -> None:
    """Say a hundred times the own quota; the other's rows come all the same, and little of the flood is kept."""
    world, hostile, good = two(folder, 2_000)
    mine = hostile.gateways[0]
    for thing in range(800):
        mine.say(thing, 500)
    good.gateways[0].say(5, 800)
    for _ in range(30):
        world.pump(1_000)
        flying, world.flying = world.flying, []
        for frame in flying:
            world.deliver(frame)
        world.region.write()
    assert len(world.seen(good)) == 2, "a flood has kept another swarm's rows away"
    kept = len(world.seen(hostile))
    # 4 s of quota at once, and one frame of 32 KiB into debt; a word takes some 450 bytes.
    assert kept <= 2 * (8_000 + 32_768) // 300, f"{kept} words of a flood were kept"
    assert kept < 800, "the flood was taken in whole"
    world.close()


def read_another(folder: Path) -> None:
    """Listen to everything at the brokers: neither what the other says nor what it is told can be read."""
    world, hostile, good = two(folder)
    gateway, mine = good.gateways[0], hostile.gateways[0]
    gateway.say(2, 600)
    world.pump(5_000)
    heard = [frame for frame in world.flying if frame.place.swarm == good.pin.key]
    for frame in heard:
        world.deliver(frame)
    world.region.write()
    heard += [frame for frame in world.flying if frame.place.swarm == good.pin.key]
    assert {frame.place.way for frame in heard} == {Way.UP, Way.DOWN}
    for frame in heard:
        others = [gateway.identity.seed, REGION_SEED]
        for public in [CRYPTO.public_key(seed) for seed in others]:
            try:
                inside = Pair(CRYPTO, mine.identity.seed, public).open(frame.data)
            except IdentityError:
                continue
            said = read_up(inside) if frame.place.way is Way.UP else read_down(inside)
            raise AssertionError(f"a swarm has read what another said: {said}")
        assert len(frame.data) > HEAD_BYTES
    world.close()


def push_the_past_out(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Say more than the region keeps until it is exported: the other's words stay, and who said most loses."""
    world, hostile, good = two(folder)
    patch.setattr(bounds, "HISTORY_KEPT", 20)
    for thing in range(60):
        hostile.gateways[0].say(thing, 500)
    world.settle()
    assert world.store is not None
    gone = world.store.tidy()
    kept = [row["swarm"] for _, row in world.store.history(1_000)]
    assert kept.count(good.pin.key.hex()) == 1, "a swarm has pushed another's past out"
    assert (len(kept), gone) == (20, 41)
    world.close()


def revocation_of(swarm: Swarm, member: Gateway | Identity) -> bytes:
    """A statement of the swarm's officers that shuts a member out."""
    said = Revocation(swarm.name, 1, (member.node,), "stolen")
    return sign_statement("revoke", said, dev_role_seeds(swarm.secret, "revoke"), CRYPTO)


def be_told_after_revocation(folder: Path) -> None:
    """A gateway that was shut out goes on speaking: it is told nothing of what its swarm says."""
    world = make_world(folder, random.Random(1), swarms=1)
    [swarm] = world.swarms
    thief, good = swarm.gateways
    for gateway, thing in ((thief, 4), (good, 1), (thief, 5)):
        gateway.say(thing, 500)
        world.settle()
    assert thief.known, "a gateway is told what the other brought"
    thief.known.clear()
    gate = world.region.gates[swarm.pin.key]
    gate.trust.add("revoke", revocation_of(swarm, thief))
    assert not gate.is_gateway(CRYPTO.public_key(thief.identity.seed))
    good.say(2, 600)
    thief.say(3, 700)
    for _ in range(5):
        world.pump(500)
        flying, world.flying = world.flying, []
        for frame in flying:
            world.deliver(frame)
        world.region.write()
    assert thief.known == {}, "a gateway that was shut out is told what its swarm says"
    assert len(world.seen(swarm)) == 4
    world.close()


def keep_the_dead_alive(folder: Path) -> None:
    """Play a frame of an earlier life back for ever: the site that has gone silent is not heard by it, nor answered."""
    world, _, good = two(folder)
    gateway = good.gateways[0]
    site = encode_row(SiteRow(BEGIN_MS, 1, 1, 1, 1, 0, 0, False, 0, 0, ""))
    gateway.outbox.put([Waiting(RowKind.SITE, b"site", site)], BEGIN_MS)
    gateway.say(7, 700)
    world.pump(1_000)
    recorded = [frame for frame in world.flying if frame.place.way is Way.UP and frame.place.swarm == good.pin.key]
    world.settle()
    gateway.kill()
    gateway.say(8, 700)
    world.settle()
    assert world.store is not None
    world.store._db.execute("UPDATE sites SET heard_ms = 1")  # An age ago.
    line = world.region._lines[good.pin.key][gateway.node]
    line.heard_s, line.path, have = 0.0, 1, line.have
    for frame in recorded:
        world.region.on_frame(0, frame.place, frame.data)
    world.region.write()
    assert world.store._db.execute("SELECT heard_ms FROM sites").fetchall() == [(1,)], "a site is heard by what is old"
    line = world.region._lines[good.pin.key][gateway.node]
    assert (line.heard_s, line.path, line.have) == (0.0, 1, have), "what is old says where answers go"
    world.close()


def keep_another_from_being_told(folder: Path) -> None:
    """Play one gateway's frames back: another, whose clock and disk are gone, is told its life all the same."""
    world = make_world(folder, random.Random(1), swarms=1, gateways=2)
    [swarm] = world.swarms
    recorded: list[Frame] = []
    for gateway in swarm.gateways:
        gateway.say(1, 500)
        world.pump(1_000)
        recorded += [frame for frame in world.flying if frame.place.gateway == swarm.gateways[0].node]
        world.settle()
        gateway.kill()
        gateway.say(1, 600)
        world.settle()
    poor = swarm.gateways[1]
    poor.outbox.life = 5
    poor.say(2, 700)
    for _ in range(3):
        world.pump(2_000)
        flying, world.flying = world.flying, []
        for frame in [*recorded, *flying]:
            world.deliver(frame)
        world.region.write()
        for frame in [frame for frame in world.flying if frame.place.way is Way.DOWN]:
            world.deliver(frame)
    assert poor.outbox.life > 5, "what is played back of one gateway keeps another from being told its life"
    world.close()


def be_answered_at_length(folder: Path) -> None:
    """Say small frames without end, within the quota and beyond it: the answers are no larger than what is new."""
    world, hostile, good = two(folder, 8_000)
    [mine] = hostile.gateways
    assert world.store is not None
    world.store.send_down(hostile.pin.key.hex(), FactKind.STATEMENT, b"long", bytes(30_000))
    own = Pair(CRYPTO, mine.identity.seed, CRYPTO.public_key(REGION_SEED))
    up = Up(bytes(8), 1, 0, 0, Have(world.store.log, 0))
    place = Place(hostile.pin.key, Way.UP, mine.node)
    for number in range(600):
        frame = own.seal(Way.UP, hostile.pin.key, 1 << 40, number, SALT, up)
        world.region.on_frame(0, place, frame)
        if number % 20 == 19:
            world.region.write()
    answers = [frame for frame in world.flying if frame.place == place._replace(way=Way.DOWN)]
    taken = world.region.counts["frames"]
    assert len(answers) <= taken + 10, "each frame beyond the quota is answered"
    assert sum(len(frame.data) for frame in answers) < 500 * len(answers) + 5 * 31_000, (
        "small frames have large answers"
    )
    assert sum(len(frame.data) > 30_000 for frame in answers) >= 1, "what there is does not come"
    good.gateways[0].say(2, 900)
    world.settle()
    assert len(world.seen(good)) == 2
    world.close()


def keep_newcomers_away(folder: Path) -> None:
    """Say what strangers say at the own place, without end: another swarm's new gateway is heard all the same."""
    world, hostile, good = two(folder)
    [mine] = hostile.gateways
    up = Up(bytes(8), 1, 0, 0, Have(bytes(8), 0), (UpRow(0, RowKind.TRUST, bytes(3_000)),))
    strangers = (number.to_bytes(32, "big") for number in range(1 << 20))

    def flood(count: int) -> None:
        for _, seed in zip(range(count), strangers, strict=False):
            frame = Pair(CRYPTO, seed, CRYPTO.public_key(REGION_SEED)).seal(Way.UP, hostile.pin.key, 1, 0, SALT, up)
            world.region.on_frame(0, Place(hostile.pin.key, Way.UP, mine.node), frame)
            world.region.write()
        world.flying = [frame for frame in world.flying if frame.place.swarm != hostile.pin.key]

    flood(400)
    newcomer = Gateway(world, good, 7)
    good.gateways.append(newcomer)
    newcomer.say(9, 900)
    for _ in range(20):
        flood(10)
        world.pump(500)
        for _ in range(2):
            flying, world.flying = world.flying, []
            for frame in flying:
                world.deliver(frame)
            world.region.write()
    assert len(world.seen(good)) == 2, "strangers at one swarm's place keep another's new gateway away"
    world.close()
