"""Parities of a chunk, and casts that repair with them: what is missing is made, different losses share a repair."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_protocols.ids import NodeId
from swarmd_protocols.releases import casting, parity
from swarmd_protocols.releases.casting import PIECE_BYTES, CastConfig, Caster, CastHearing, CastPiece, place_of_piece
from swarmd_protocols.releases.parity import MISSING_MAX, PARITIES, PIECES_MAX, missing_pieces, parity_of
from swarmd_protocols.releases.stores import describe
from tests.support.mutants import Mutant, assert_found, each_mutant

SECOND = 1_000_000_000
DATA = random.Random(3).randbytes(1_000_001)
BLOB, _ = describe(DATA)
PER_CHUNK = BLOB.chunk_bytes // PIECE_BYTES


@settings(max_examples=60, deadline=None, report_multiple_bugs=False)
@given(st.data())
def test_law_any_parities_make_whatever_is_missing(data: st.DataObject) -> None:
    """As many parities as pieces are missing, whichever of them, wherever the chunk ends."""
    size = data.draw(st.integers(1, 16))
    chunk = random.Random(data.draw(st.integers(0, 99))).randbytes(data.draw(st.integers(1, PIECES_MAX * size)))
    pieces = {at // size: chunk[at : at + size] for at in range(0, len(chunk), size)}
    lost = data.draw(st.sets(st.sampled_from(sorted(pieces)), min_size=1, max_size=MISSING_MAX))
    which = data.draw(st.sets(st.integers(0, PARITIES - 1), min_size=len(lost), max_size=len(lost) + 2))
    here = {number: piece for number, piece in pieces.items() if number not in lost}
    parities = {number: parity_of(chunk, size, number) for number in which}
    made = missing_pieces(here, parities, sorted(lost))
    assert {number: made[number][: len(pieces[number])] for number in lost} == {n: pieces[n] for n in lost}


def cast(loss: float, receivers: int, seed: int) -> tuple[list[int], list[CastHearing], list[dict[int, bytes]]]:
    """A cast to some, of whom each misses its own pieces; pieces of each round, what they heard, chunks they made."""
    rng, nodes = random.Random(seed), [NodeId(bytes([n + 1]) * 16) for n in range(receivers)]
    caster, heard = Caster(BLOB, CastConfig()), [CastHearing(BLOB, CastConfig()) for _ in nodes]
    chunks: list[dict[int, bytes]] = [{} for _ in nodes]
    for node in nodes:
        caster.on_receiver(node, 0)
    now_ns, rounds, told = 0, [0] * 12, 0
    waiting: list[object] = []
    while not caster.over:
        if not waiting:
            now_ns = max(now_ns, caster.due_ns or 0)
            waiting += caster.on_due(now_ns)
        for action in waiting:
            if not isinstance(action, CastPiece):
                continue
            rounds[caster.round] += 1
            for hearing, have in zip(heard, chunks, strict=True):
                if rng.random() < loss:
                    continue
                mask = sum(1 << index for index in have)
                made = hearing.on_piece(action.number, bytes_of(action.number), mask, now_ns)
                if made is not None:
                    have[made[0]] = made[1]
        waiting.clear()
        if caster.round > told and not caster._is_casting:
            told = caster.round
            for node, hearing, have in zip(nodes, heard, chunks, strict=True):
                waiting += caster.on_lacks(node, told, hearing.lacks(sum(1 << index for index in have)), now_ns)
        assert now_ns < 600 * SECOND
    return rounds, heard, chunks


def bytes_of(number: int) -> bytes:
    """What a caster sends under a number."""
    place = place_of_piece(BLOB, number)
    if place is not None:
        start = place[0] * BLOB.chunk_bytes + place[1]
        return DATA[start : start + place[2]]
    index, which = casting.place_of_parity(BLOB, number) or (0, 0)
    return parity_of(DATA[index * BLOB.chunk_bytes : (index + 1) * BLOB.chunk_bytes], PIECE_BYTES, which)


def test_law_eight_share_their_repairs() -> None:
    """A round costs what the unluckiest needs of each chunk, not what all lack together: a third of it at 5 %."""
    whole, sent = 0, 0
    for seed in range(4):
        rounds, _, chunks = cast(0.05, 8, seed)
        for have in chunks:
            assert b"".join(have[index] for index in sorted(have)) == DATA
        whole, sent = whole + rounds[1], sent + sum(rounds)
    assert sent <= 1.25 * whole, f"{sent} pieces and parities for {whole}"


def test_law_a_lone_parity_or_a_false_one_makes_no_chunk() -> None:
    hearing, count = CastHearing(BLOB, CastConfig()), len(casting.pieces_of_chunk(BLOB, 0))
    for number in range(2, count):
        assert hearing.on_piece(number, bytes_of(number), 0, 1) is None
    one, other = (casting.parity_number(BLOB, 0, which) for which in (0, PARITIES - 1))
    assert hearing.on_piece(one, bytes_of(one), 0, 1) is None
    assert hearing.on_piece(one, bytes_of(one), 0, 1) is None, "the same again is no second"
    assert hearing.lacks(0).bit_count() == -(-BLOB.size // PIECE_BYTES) - count + 1, "one is wanted, and the others"
    assert hearing.on_piece(other, b"short", 0, 1) is None
    assert hearing.on_piece(other, bytes(PIECE_BYTES), 0, 1) != (0, DATA[: BLOB.chunk_bytes]), "its hash will tell"


def test_law_parities_kept_have_a_bound() -> None:
    """Nobody is made to keep more parities than can be of use, nor to solve for more than `MISSING_MAX` pieces."""
    hearing = CastHearing(BLOB, CastConfig(assembly_bytes=BLOB.chunk_bytes * 2))
    for index in range(BLOB.chunk_count):
        for which in range(PARITIES):
            hearing.on_piece(casting.parity_number(BLOB, index, which), bytes(PIECE_BYTES), 0, 1)
    assert hearing._kept_bytes <= hearing.config.assembly_bytes
    assert all(len(part.parities) <= MISSING_MAX for part in hearing._parts.values())


def test_law_numbers_of_pieces_and_parities_are_different() -> None:
    for index in range(BLOB.chunk_count):
        for which in (0, 1, PARITIES - 1):
            number = casting.parity_number(BLOB, index, which)
            assert place_of_piece(BLOB, number) is None
            assert casting.place_of_parity(BLOB, number) == (index, which)
        assert all(casting.place_of_parity(BLOB, number) is None for number in casting.pieces_of_chunk(BLOB, index))
    assert casting.place_of_parity(BLOB, 1 << 60) is None


def _one_row(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(parity, "_coefficient", lambda which, piece: 1)


def _rows_repeat(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(parity, "_coefficient", lambda which, piece: parity._inverse(PIECES_MAX + which % 8 ^ piece))


def _everything_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(casting, "MISSING_MAX", 0)


def _deaf_to_parities(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(casting._Part, "put_parity", lambda self, which, data: False)


@each_mutant(
    [
        (test_law_any_parities_make_whatever_is_missing, _one_row),
        (test_law_any_parities_make_whatever_is_missing, _rows_repeat),
        (test_law_eight_share_their_repairs, _everything_again),
        (test_law_eight_share_their_repairs, _deaf_to_parities),
    ]
)
def test_mutants_of_parity_are_found(law: Callable[[], None], mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
