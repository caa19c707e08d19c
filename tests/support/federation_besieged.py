"""What pipes, clocks, copies of files and stolen keys do to a region and its gateways: laws, each in a folder of its
own."""

import random
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from swarmd.federation import region
from swarmd.federation.outbox import FILE_NAME as OUTBOX_FILE
from swarmd.federation.outbox import Done, Waiting
from swarmd.federation.store import FILE_NAME
from swarmd.federation.unproven import Unproven
from swarmd.federation.uplink import Place
from swarmd_protocols.errors import IdentityError
from swarmd_protocols.federation.gate import Gate, Heard, Pin
from swarmd_protocols.federation.objects import EPOCH_UNIX_MS
from swarmd_protocols.federation.shares import ROLE
from swarmd_protocols.federation.wire import (
    LIFE_HEARD,
    NUMBER_MAX,
    Down,
    Have,
    Pair,
    RowKind,
    TrustRow,
    Up,
    UpRow,
    Way,
    encode_row,
    read_head,
)
from swarmd_protocols.ids import NodeId
from swarmd_protocols.trust.identity import make_dev_identity
from tests.support import federation_world
from tests.support.federation_hostile import SALT, revocation_of, two
from tests.support.federation_world import CRYPTO, REGION_SEED, Frame, World, clock_of, make_world, one_gateway
from tests.support.state_mesh import CRYPTO as MESH_CRYPTO
from tests.unit.test_federation_publisher import ALL, Site


async def a_statement_that_overtakes_its_root_arrives(folder: Path) -> None:
    """Two new roots while the region was away, whose frames come in the wrong order: the region has both in the end."""
    site = Site(folder)
    publisher, outbox = site.publishers[0], site.outboxes[0]
    publisher.claim(ALL, 1)
    gate = Gate(Pin("mesh", "mesh", site.daemons[0].first_root), bytes(32), MESH_CRYPTO)
    for _ in range(2):
        site.mesh.rotate_enrol(re_sign=True)
    for rounds in range(4):
        await publisher.scan()
        refused = []
        for seq, _ in reversed(outbox.waiting(1_000)):
            for row in outbox.read([seq]):
                try:
                    gate._row(row, row.proofs, Heard(site.daemons[0].member.node, b"", 1, None))  # type: ignore[arg-type]
                except IdentityError:
                    refused.append(seq)
        assert refused or rounds, "nothing overtakes anything"
        done = outbox.acknowledge([(0, 1 << 40)])
        publisher.on_refused(row for row in done if row.seq in refused)
        assert not await _trust_said(site), "a refused statement comes again at once"
        publisher._again.due_s = 0.0
        if len(gate.trust.roots) == 3:
            break
    assert len(gate.trust.roots) == 3, "a root that overtook the one before it never arrives"
    for each in site.outboxes:
        each.close()


async def _trust_said(site: Site) -> list[int]:
    await site.publishers[0].scan()
    outbox = site.outboxes[0]
    return [row.seq for row in outbox.read([seq for seq, _ in outbox.waiting(1_000)]) if row.kind == RowKind.TRUST]


def lose_the_file(world: World) -> None:
    """The region ends, and begins anew with an empty disk."""
    assert world.store is not None
    world.store.close()
    world.store = None
    for suffix in ("", "-wal", "-shm"):
        (world.folder / (FILE_NAME + suffix)).unlink(missing_ok=True)
    world.open()


def a_region_whose_clock_was_ahead_is_heard(folder: Path) -> None:
    """It ran an hour ahead, its disk was lost, its clock set right: its gateways hear it, known to it or not."""
    world = make_world(folder, random.Random(1), 1, 2)
    world.region._life += 3_600
    for gateway in world.swarms[0].gateways:
        gateway.say(1, 500)
    world.settle()
    lose_the_file(world)
    for gateway in world.swarms[0].gateways:
        gateway.say(2, 600)
    world.settle(20)
    assert len(world.seen(world.swarms[0])) == 1
    world.close()


def a_region_is_heard_after_a_second_one_has_gone(folder: Path) -> None:
    """A second process of one folder was started and ended: the first goes on."""
    world = make_world(folder, random.Random(1), 1, 1)
    [gateway] = world.swarms[0].gateways
    gateway.say(1, 500)
    world.settle()
    first, store = world.region, world.store
    assert store is not None
    world.store = None
    world.open()
    gateway.say(2, 500)
    world.settle()
    assert world.store is not None
    world.store.close()
    world.region, world.store = first, store
    gateway.say(3, 500)
    world.settle(20)
    assert len(world.seen(world.swarms[0])) == 3
    world.close()


def who_plays_answers_back_moves_nothing(folder: Path) -> None:
    """A pipe plays answers of an earlier life back: the region's life stays, and so does what it knows of the log."""
    world = make_world(folder, random.Random(1), 1, 1)
    [gateway], key = world.swarms[0].gateways, world.swarms[0].pin.key
    assert world.store is not None
    world.store.send_down(key.hex(), 4, b"", b"")
    gateway.say(1, 500)
    recorded: list[Frame] = []
    for _ in range(4):
        world.pump(1_000)
        flying, world.flying = world.flying, []
        recorded += [frame for frame in flying if frame.place.way is Way.DOWN]
        for frame in flying:
            world.deliver(frame)
        world.region.write()
    recorded += world.flying
    world.settle()
    world.open()
    gateway.say(2, 600)
    world.settle()
    line = world.region._lines[key][gateway.node]
    have = (line.log, line.have)
    for _ in range(5):
        world.pump(4_000)
        for frame in [*recorded, *world.flying]:
            world.deliver(frame)
        world.flying.clear()
        world.region.write()
    assert recorded
    assert (line.life, line.log, line.have) == (0, *have), "what is played back moves the region's life"
    world.close()


def a_liar_about_lives_is_its_own_loss(folder: Path) -> None:
    """A gateway that has heard of the last of all lives is answered in it; others are not."""
    world = make_world(folder, random.Random(1), 1, 2)
    [swarm], life = world.swarms, world.region._life
    liar, honest = swarm.gateways
    for gateway, thing in ((liar, 1), (honest, 2)):
        gateway.say(thing, 500)
    world.settle()
    up = Up(bytes(8), 1, 0, 0, Have(LIFE_HEARD, NUMBER_MAX))
    pair = Pair(CRYPTO, liar.identity.seed, CRYPTO.public_key(REGION_SEED))
    frame = pair.seal(Way.UP, swarm.pin.key, 1 << 40, 0, b"saltsalt", up)
    world.region.on_frame(0, Place(swarm.pin.key, Way.UP, liar.node), frame)
    world.region.write()
    assert [read_head(frame.data).life for frame in world.flying] == [NUMBER_MAX]
    world.flying.clear()
    honest.say(3, 700)
    world.pump(500)
    for one in world.flying:
        world.deliver(one)
    world.region.write()
    answers = [one for one in world.flying if one.place == Place(swarm.pin.key, Way.DOWN, honest.node)]
    assert {read_head(one.data).life for one in answers} == {life}, "a liar moves others' lives"
    world.open()
    assert world.region._life < 1 << 40, "a liar's life outlasts a restart"
    world.close()


def an_outbox_put_back_is_heard(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """A device without a clock starts once more from a copy of its disk, as it did before: the region hears it."""
    world = make_world(folder, random.Random(1), 1, 1)
    [gateway] = world.swarms[0].gateways
    patch.setattr(time, "time", lambda: 20.0)
    gateway.kill()
    gateway.outbox.close()
    for one in gateway.folder.glob(OUTBOX_FILE + "*"):
        shutil.copy(one, folder / one.name)
    gateway.boot()
    for score in range(40):
        gateway.say(1, 500 + score)
        world.settle()
    gateway.outbox.close()
    for one in gateway.folder.glob(OUTBOX_FILE + "*"):
        one.unlink()
    for one in folder.glob(OUTBOX_FILE + "*"):
        shutil.copy(one, gateway.folder / one.name)
    gateway.boot()
    gateway.say(2, 600)
    world.settle(20)
    world.check()
    world.close()


def a_stolen_gateway_keeps_no_revocation_away(folder: Path) -> None:
    """It says the largest frames without end: what its swarm's other gateway says of it is heard within 30 s."""
    world = make_world(folder, random.Random(1), 1, 2)
    [swarm] = world.swarms
    thief, good = swarm.gateways
    for gateway, thing in ((thief, 1), (good, 2)):
        gateway.say(thing, 500)
        world.settle()
    swarm.pin = msgspec.structs.replace(swarm.pin, quota_bytes_s=131_072, quota_burst_bytes=1 << 20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(region, "time", clock_of(world))
        world.open()
        gate = world.region.gates[swarm.pin.key]
        pair = Pair(CRYPTO, thief.identity.seed, CRYPTO.public_key(REGION_SEED))
        up = Up(bytes(8), 1, 0, 0, Have(bytes(8), 0), (UpRow(0, 99, bytes(60_000)),))
        numbers = iter(range(1 << 20))

        def flood(count: int) -> None:
            for _, number in zip(range(count), numbers, strict=False):
                frame = pair.seal(Way.UP, swarm.pin.key, 1 << 40, number, SALT, up)
                world.region.on_frame(0, Place(swarm.pin.key, Way.UP, thief.node), frame)
            world.region.write()

        for _ in range(200):
            world.now_ns += 50_000_000
            flood(3)
        taken = 60_000 * gate.counts["refused"]
        most = (1 << 20) + 65_536 + 10 * (131_072 + 8_192) + 2 * 60_000
        assert taken < most, "a gateway has no quota"
        world.flying.clear()
        said = encode_row(TrustRow("revoke", revocation_of(swarm, thief)))
        good.outbox.put([Waiting(RowKind.TRUST, b"revoke", said)], world.now_ms)
        for _ in range(600):
            world.now_ns += 50_000_000
            flood(3)
            world.pump(0)
            for _ in range(2):
                flying, world.flying = world.flying, []
                for frame in flying:
                    world.deliver(frame)
                world.region.write()
            if thief.node in gate.trust.revoked:
                break
    assert thief.node in gate.trust.revoked, "a stolen gateway keeps the word that it was stolen away"
    world.close()


def small_frames_take_no_others_place(folder: Path) -> None:
    """A swarm says the smallest frames without end, within its quota: another's are heard with the first turn."""
    world, hostile, good = two(folder)
    [mine], [other] = hostile.gateways, good.gateways
    mine.say(1, 500)
    world.settle()
    other.say(2, 500)
    pair = Pair(CRYPTO, mine.identity.seed, CRYPTO.public_key(REGION_SEED))
    up = Up(bytes(8), 1, 0, 0, Have(bytes(8), 0))
    for number in range(2 * region.GATHERED_MAX):
        frame = pair.seal(Way.UP, hostile.pin.key, 1 << 40, number, SALT, up)
        world.region.on_frame(0, Place(hostile.pin.key, Way.UP, mine.node), frame)
    world.pump(500)
    for one in world.flying:
        world.deliver(one)
    world.region.write()
    assert len(world.seen(good)) == 2, "a swarm's small frames take another's place"
    world.close()


def what_will_be_seen_is_refused(folder: Path) -> None:
    """A node says that it sees something in a hundred years: that comes first in no answer, and has no partition."""
    world, swarm, gateway = one_gateway(folder)
    found = gateway.say(1, 600)
    world.settle()
    with pytest.MonkeyPatch.context() as patch:
        ahead_ms = world.now_ms - EPOCH_UNIX_MS + 100 * 365 * 86_400_000
        patch.setattr(federation_world, "MINUTE", ahead_ms << 16)
        gateway.say(2, 600)
    world.settle()
    assert set(world.seen(swarm)) == {found.object_id}, "what will be seen is shown"
    assert "set the clock" in gateway.refused[0]
    [said] = [text for text in world.said if "refused" in text]
    for part in ("s0: ", "gateway g0 (", gateway.node.hex()[:16], "set the clock"):
        assert part in said, "nobody at the region is told of it"
    world.close()


def who_has_no_certificate_keeps_nothing_back(folder: Path) -> None:
    """More rows than are looked at wait for a certificate that nobody has: what is said after them is heard."""
    world, swarm, gateway = one_gateway(folder)
    gateway.say(1, 500)
    world.settle()
    good, lost = swarm.author, make_dev_identity(swarm.secret, swarm.name, "lost", CRYPTO)
    unproven = Unproven(gateway.outbox, lambda node: node != lost.node)
    taken_back: list[Done] = []

    def on_down(down: Down, done: Sequence[Done]) -> None:
        wanted = [NodeId(node) for node in down.wanted]
        taken_back.extend(unproven.asked(wanted, world.now_ns / 1e9))

    gateway.sending._on_down = on_down
    swarm.author = lost
    for thing in range(10, 1_110):
        gateway.say(thing, 500)
    swarm.author = good
    found = gateway.say(2, 600)
    began_ns = world.now_ns
    world.settle(400)
    assert found.object_id in world.seen(swarm), "rows without a certificate keep others back"
    assert 60 <= (world.now_ns - began_ns) / 1e9 <= 180
    assert len(taken_back) == 1_100
    assert len(world.seen(swarm)) == 2
    world.close()


def who_lies_about_its_place_in_the_log_is_told_little(folder: Path) -> None:
    """A gateway says with each of its small frames that it took one more row in: the answers stay within a bound."""
    world, hostile, good = two(folder, 30_000)
    [mine] = hostile.gateways
    mine.say(1, 500)
    world.settle()
    assert world.store is not None
    for name in range(3):
        world.store.send_down(hostile.pin.key.hex(), 1, bytes([name]), bytes(30_000))
    first = world.store.down(hostile.pin.key.hex(), 0, 1)[0].seq
    pair = Pair(CRYPTO, mine.identity.seed, CRYPTO.public_key(REGION_SEED))
    for number in range(300):
        up = Up(bytes(8), 1, 0, 0, Have(world.store.log, first - 400 + number))
        frame = pair.seal(Way.UP, hostile.pin.key, 1 << 40, number, SALT, up)
        world.region.on_frame(0, Place(hostile.pin.key, Way.UP, mine.node), frame)
        world.region.write()
    said = sum(len(frame.data) for frame in world.flying if frame.place.way is Way.DOWN)
    assert said < region.DOWN_BURST_BYTES + 300 * 300 + 300_000, "small frames have large answers"
    good.gateways[0].say(2, 600)
    world.settle()
    assert len(world.seen(good)) == 2
    world.close()


def a_long_log_comes_down_at_once(folder: Path) -> None:
    """A megabyte of statements for a swarm is at its gateway within a few round trips, not one frame a second."""
    world, swarm, gateway = one_gateway(folder)
    gateway.say(1, 500)
    world.settle()
    assert world.store is not None
    for name in range(30):
        world.store.send_down(swarm.pin.key.hex(), 1, bytes([name]), bytes(30_000))
    taken: set[int] = set()

    def on_down(down: Down, done: Sequence[Done]) -> None:
        if down.rows:
            taken.update(row.seq for row in down.rows)
            gateway.outbox.have = (down.log, down.rows[-1].seq)

    gateway.sending._on_down = on_down
    began_s = time.monotonic()
    for score in range(40):
        gateway.say(2, 500 + score)
        world.pump(100)
        for _ in range(2):
            flying, world.flying = world.flying, []
            for frame in flying:
                world.deliver(frame)
            world.region.write()
    assert time.monotonic() - began_s < 20, "a slow machine shows nothing"
    assert len(taken) == 30, "what there is for a swarm comes by one frame a second"
    world.close()


def who_says_less_is_told_with_each_acknowledgement(folder: Path) -> None:
    """Two frames of words that are not the greatest are written at once, and the first answer is lost: what the second
    acknowledges comes with what stands, or its gateway would take its own word for what the region shows."""
    world = make_world(folder, random.Random(1), 1, 2)
    mine, other = world.swarms[0].gateways
    for gateway in (mine, other):
        gateway.say(90, 500)
        world.settle()
    for thing in (1, 2):
        other.say(thing, 500, world.stamp + 1_000)
    world.settle()
    mine.known.clear()
    least = [mine.say(1, 600).object_id]
    world.pump(100)
    least.append(mine.say(2, 600).object_id)
    world.pump(100)
    for frame in world.flying:
        world.deliver(frame)
    world.flying.clear()
    world.region.write()
    answers = [one for one in world.flying if one.place.gateway == mine.node]
    assert len(answers) == 2, "not two frames, or not two answers"
    world.deliver(answers[1])
    assert least[1] in mine.known, "a word that is not the greatest is acknowledged, and nobody says what stands"
    world.settle()
    assert least[0] in mine.known
    world.close()


def four_swarms_take_no_fifth_ones_place(folder: Path) -> None:
    """Four swarms say the smallest frames without end, each within its part of what waits: a fifth is heard."""
    world = make_world(folder, random.Random(1), 5, 1)
    *hostile, good = world.swarms
    for swarm in world.swarms:
        swarm.gateways[0].say(1, 500)
    world.settle()
    good.gateways[0].say(2, 500)
    up = Up(bytes(8), 1, 0, 0, Have(bytes(8), 0))
    for swarm in hostile:
        [mine] = swarm.gateways
        pair = Pair(CRYPTO, mine.identity.seed, CRYPTO.public_key(REGION_SEED))
        for number in range(2 * region.GATHERED_OF_ONE):
            frame = pair.seal(Way.UP, swarm.pin.key, 1 << 40, number, SALT, up)
            world.region.on_frame(0, Place(swarm.pin.key, Way.UP, mine.node), frame)
    world.pump(500)
    for one in world.flying:
        world.deliver(one)
    assert len(world.region._gathered) < 2 * region.GATHERED_MAX
    world.region.write()
    assert len(world.seen(good)) == 2, "four swarms' small frames take a fifth one's place"
    world.close()


def a_thief_of_a_key_spoils_no_outbox(folder: Path) -> None:
    """Who has a gateway's key speaks in the last of all lives: the device that is enrolled anew on the same disk is
    heard, also after a restart."""
    world, swarm, gateway = one_gateway(folder)
    gateway.say(1, 500)
    world.settle()
    pair = Pair(CRYPTO, gateway.identity.seed, CRYPTO.public_key(REGION_SEED))
    frame = pair.seal(Way.UP, swarm.pin.key, NUMBER_MAX, 0, SALT, Up(bytes(8), 1, 0, 0, Have(bytes(8), 0)))
    world.region.on_frame(0, Place(swarm.pin.key, Way.UP, gateway.node), frame)
    world.region.write()
    gateway.say(2, 500)
    for _ in range(4):
        world.pump(2_000)
        for one in world.flying:
            world.deliver(one)
        world.flying.clear()
        world.region.write()
    assert len(world.seen(swarm)) == 1
    gateway.identity = make_dev_identity(swarm.secret, swarm.name, "anew", CRYPTO, roles=[ROLE])
    gateway.node = gateway.identity.node
    for thing in (3, 4):
        gateway.kill()
        gateway.say(thing, 500)
        world.settle(20)
    assert len(world.seen(swarm)) == 4
    world.close()
