"""Laws of neighbouring swarms over drawn histories."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_protocols.errors import WireError
from swarmd_protocols.neighbours import words
from swarmd_protocols.neighbours.messages import decode
from swarmd_protocols.neighbours.space import GUARD_MS, Holds, right_of_way
from tests.support import neighbour_laws as laws

KEYS = st.binary(min_size=16, max_size=16)


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 1 << 30))
def test_nothing_is_shared_unless_both_agree(seed: int) -> None:
    laws.both_must_agree(random.Random(seed))


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 1 << 30))
def test_none_begins_where_the_other_works(seed: int) -> None:
    laws.keep_clear(random.Random(seed))


@given(KEYS, KEYS, st.integers(0, 1 << 42), st.integers(-GUARD_MS, GUARD_MS))
def test_never_do_both_have_the_right_of_way(own: bytes, other: bytes, now_ms: int, off_ms: int) -> None:
    if own != other:
        assert not (right_of_way(own, other, now_ms) and right_of_way(other, own, max(0, now_ms + off_ms)))


@given(KEYS, KEYS, st.integers(0, 1 << 42))
def test_each_has_it_within_two_turns(own: bytes, other: bytes, now_ms: int) -> None:
    if own != other:
        assert any(right_of_way(own, other, now_ms + at * 60_000) for at in range(21))


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5_000)), max_size=300))
def test_a_place_is_kept_for_no_longer_than_agreed(steps: list[tuple[bool, int]]) -> None:
    """Of any stretch of time at most what was agreed, and two thirds of the rest (it rises as fast as it falls, and has
    to fall by half)."""
    holds, now_ms, kept_ms, since_ms = Holds(20_000), 0, 0, 0
    was_kept = False
    for is_covered, passed_ms in steps:
        now_ms += passed_ms
        if was_kept:
            kept_ms += passed_ms
        counts = holds.count({b"cell": True} if is_covered else {}, now_ms)
        was_kept = b"cell" in counts
        assert kept_ms <= 20_000 + 5_000 + (now_ms - since_ms) * 2 // 3


@given(st.binary(max_size=400))
def test_no_bytes_do_harm(data: bytes) -> None:
    for read in (words.read_agreement, words.read_introduction, words.read_word, decode):
        try:
            read(data)
        except WireError:
            continue
