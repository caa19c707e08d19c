"""A blob cast on one channel that all share: bytes and air against unicast, loss, deafness, death, lies."""

import random
from hashlib import sha256

import pytest

from swarmd_protocols.ids import NodeId
from swarmd_protocols.releases.casting import BEGINS, ENDS, OVER, PIECE_BYTES, CastConfig, Caster, CastHearing, Note
from swarmd_protocols.releases.messages import CastNote, Piece, Push, encode_message
from swarmd_protocols.releases.statements import Blob
from swarmd_protocols.releases.stores import describe
from tests.support.release_air import AirWorld
from tests.support.release_world import make_release

DATA = random.Random(1).randbytes(256 << 10)
SECOND = 1_000_000_000


@pytest.mark.parametrize(("loss_ppm", "times"), [(0, 1.6), (50_000, 2.2), (100_000, 2.8)])
def test_eight_receivers_cost_little_more_than_one(loss_ppm: int, times: float) -> None:
    world = AirWorld(9, cast=True, loss_ppm=loss_ppm)
    world.spread(DATA)
    assert (world.cast_bytes + world.unicast_bytes) / len(DATA) <= times
    assert world.cast_bytes >= len(DATA)


def test_unicast_pays_for_every_receiver_on_the_same_air() -> None:
    alone, cast = AirWorld(9, cast=False), AirWorld(9, cast=True)
    slow_s, fast_s = alone.spread(DATA), cast.spread(DATA)
    assert alone.unicast_bytes >= 8 * len(DATA)
    assert cast.radio.airtime_ns * 4 < alone.radio.airtime_ns
    assert fast_s * 2 < slow_s


def test_who_cannot_hear_casts_gets_the_file_all_the_same() -> None:
    AirWorld(6, cast=True, deaf=[4, 5]).spread(DATA)


def test_a_single_receiver_is_sent_its_own() -> None:
    world = AirWorld(2, cast=True)
    world.spread(DATA)
    assert not world.cast_bytes


def test_the_caster_dies_and_the_others_mend_it_among_themselves() -> None:
    world = AirWorld(6, cast=True, loss_ppm=30_000)
    world.run(2)
    release = make_release(DATA)
    blob = release.bundle[0].blob
    world.publish(0, [world.keys.sign("release", release.payload(), "release")], DATA)
    world.run(60, lambda: world.nodes[0].fetcher.casts.counts["pieces_out"] >= blob.size // PIECE_BYTES)
    world.die(0)
    world.run(60, lambda: all(store.has_blob(blob.sha256) for store in world.stores))
    assert all(store.has_blob(blob.sha256) for store in world.stores)


def test_poisoned_pieces_cost_a_chunk_and_are_mended_where_there_is_somebody_to_blame() -> None:
    world = AirWorld(5, cast=True)
    world.run(2)
    release = make_release(DATA)
    blob = release.bundle[0].blob
    tag = blob.sha256[:8]
    world.publish(0, [world.keys.sign("release", release.payload(), "release")], DATA)
    world.run(0.5)
    for number in range(0, 256, 5):
        world.broadcast(4, encode_message(Piece(tag, number, b"\xee" * PIECE_BYTES)))
    world.run(60, lambda: all(store.has_blob(blob.sha256) for store in world.stores))
    assert all(sha256(store.blob(blob)).digest() == blob.sha256 for store in world.stores)
    assert sum(node.fetcher.casts.counts["bad_chunks"] for node in world.nodes) > 0
    assert not any(node.fetcher.blamed for node in world.nodes), "nobody answers for a cast"


def test_a_lying_note_holds_nobody_for_long() -> None:
    world = AirWorld(4, cast=False)
    world.run(2)
    release = make_release(DATA)
    blob = release.bundle[0].blob
    world.publish(0, [world.keys.sign("release", release.payload(), "release")], DATA)
    began_ns = world.now
    for step in range(400):
        world.push(began_ns + step * SECOND // 4, 1, (3, encode_message(CastNote(blob.sha256[:8], step, BEGINS))))
    world.run(60, lambda: world.stores[1].has_blob(blob.sha256))
    assert world.stores[1].has_blob(blob.sha256)
    assert world.now - began_ns < 30 * SECOND


def test_a_cast_carries_pieces_and_nothing_else() -> None:
    world = AirWorld(2, cast=True)
    envelope = world.keys.sign("release", make_release(DATA).payload(), "release")
    effects = world.nodes[1].on_cast(encode_message(Push((), (envelope.encode(),), ())), 1)
    assert not world.nodes[1].view.models
    assert [type(effect).__name__ for effect in effects] == ["Rejected"]
    assert [type(one).__name__ for one in world.nodes[1].on_cast(b"\xff", 1)] == ["Rejected"]


# --- The two halves, by themselves ---

BLOB, _ = describe(random.Random(2).randbytes(50_000))
NODES = [NodeId(bytes([index]) * 16) for index in range(4)]


def play(caster: Caster, seconds: int = 60) -> tuple[int, int]:
    """Let time pass; pieces sent, and when it was over."""
    now_ns, pieces = 0, 0
    while not caster.over and now_ns < seconds * SECOND:
        now_ns = max(now_ns, caster.due_ns or 0)
        pieces += sum(not isinstance(action, Note) for action in caster.on_due(now_ns))
    return pieces, now_ns


def test_a_receiver_that_never_has_enough_does_not_keep_a_caster_at_it() -> None:
    caster = Caster(BLOB, CastConfig())
    everything = (1 << 2 * BLOB.chunk_count * BLOB.chunk_bytes // PIECE_BYTES) - 1
    for node in NODES[:2]:
        caster.on_receiver(node, 0)
    now_ns = sent = 0
    while not caster.over:
        now_ns = max(now_ns, caster.due_ns or 0)
        for action in caster.on_due(now_ns):
            sent += not isinstance(action, Note)
            if isinstance(action, Note) and action.state == OVER:
                for node in NODES[:2]:
                    caster.on_lacks(node, action.round, everything, now_ns)
        assert now_ns < 600 * SECOND
    assert sent <= caster.config.budget * -(-BLOB.size // PIECE_BYTES)


def test_a_caster_goes_on_without_those_that_say_nothing_and_slows_down_where_much_is_lost() -> None:
    caster = Caster(BLOB, CastConfig())
    for node in NODES:
        caster.on_receiver(node, 0)
    now_ns = 0
    while caster.round < 2 and not caster.over:
        now_ns = max(now_ns, caster.due_ns or 0)
        for action in caster.on_due(now_ns):
            if isinstance(action, Note) and action.state == OVER:
                caster.on_lacks(NODES[0], 1, (1 << 30) - 1, now_ns)
    assert caster.round == 2
    assert caster.rate_bytes_s == caster.config.bytes_s // 2
    assert play(caster)[1] < 60 * SECOND
    assert caster.over


def test_answers_to_another_round_or_from_strangers_or_twice_do_not_count() -> None:
    caster = Caster(BLOB, CastConfig())
    for node in NODES[:2]:
        caster.on_receiver(node, 0)
    now_ns = 0
    while caster.round < 1 or caster._is_casting:
        now_ns = max(now_ns, caster.due_ns or 0)
        caster.on_due(now_ns)
    assert not caster.on_lacks(NODES[3], 1, 1, now_ns)
    assert not caster.on_lacks(NODES[0], 7, 1, now_ns)
    assert not caster.on_lacks(NODES[0], 1, 0, now_ns)
    assert not caster.on_lacks(NODES[0], 1, 1, now_ns), "its first word counts"
    actions = caster.on_lacks(NODES[1], 1, 0, now_ns)
    assert [one.state for one in actions if isinstance(one, Note)] == [ENDS, ENDS]


def test_hearing_takes_only_pieces_that_can_be() -> None:
    hearing = CastHearing(BLOB, CastConfig())
    pieces = -(-BLOB.size // PIECE_BYTES)
    for number, data in ((-1, b""), (pieces + 9, b"x"), (0, b"short"), (0, bytes(PIECE_BYTES + 1)), (1 << 60, b"x")):
        assert hearing.on_piece(number, data, 0, 1) is None
    assert not hearing.heard


def test_what_is_kept_of_unfinished_chunks_is_bounded() -> None:
    large = Blob(64 << 20, bytes(32), 65_536, bytes(32))
    hearing = CastHearing(large, CastConfig())
    for index in range(large.chunk_count):
        hearing.on_piece(index * 64, bytes(PIECE_BYTES), 0, 1)
    assert len(hearing._parts) * large.chunk_bytes <= hearing.config.assembly_bytes


def test_after_some_bad_chunks_casts_of_the_blob_are_not_believed() -> None:
    hearing = CastHearing(BLOB, CastConfig())
    hearing.on_note(NODES[0], BEGINS, 1)
    assert hearing.hold_until_ns
    for index in range(hearing.config.bad_chunks):
        hearing.on_bad_chunk(index)
    assert not hearing.is_trusted
    assert not hearing.hold_until_ns
    assert not hearing.lacks(0)
    assert hearing.on_piece(0, bytes(PIECE_BYTES), 0, 1) is None
