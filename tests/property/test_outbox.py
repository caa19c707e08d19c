"""What a lender keeps for the next: bounded for each borrower and in all, for a while, for one reader, once."""

import time
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from swarmd.worker import outbox
from swarmd.worker.for_others import ForOthers
from swarmd.worker.keeps import Keeps
from swarmd.worker.lent import BORROWER, KEY_BYTES, Place, token_of
from swarmd.worker.oip import OipError
from swarmd.worker.outbox import (
    EACH_MAX,
    EACH_MAX_BYTES,
    KEEP_MAX_NS,
    READERS_MAX,
    SAFE_MAX,
    TOTAL_MAX,
    TOTAL_MAX_BYTES,
    Outbox,
)

CHUNK = 1 << 20
"""So large that whole shares are read in few steps."""
S = 1_000_000_000
MIB = bytes(1 << 20)
WHO = [bytes([number]) * 8 for number in range(1, 6)]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("keep"), st.integers(0, 6), st.sampled_from([1, 3, 9, 16, 17]), st.integers(0, 40)),
        st.tuples(st.just("read"), st.integers(0, 60), st.integers(0, 4), st.booleans()),
        st.tuples(st.just("wait"), st.integers(0, 6), st.just(0), st.just(0)),
    ),
    min_size=1,
    max_size=80,
)


def key_of(number: int) -> bytes:
    return number.to_bytes(KEY_BYTES, "big")


def whole(box: Outbox, key: bytes, who: bytes, connection: bytes, now_ns: int) -> bytes:
    found = bytearray()
    while chunk := box.read(token_of(key, who), connection, len(found), now_ns):
        found += chunk
    return bytes(found)


@given(STEPS)
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_law_the_bounds_hold_and_what_is_unread_stays_until_its_time(steps: list[Any]) -> None:
    """Nobody's tensor makes way for another borrower's, and what nobody has read for nothing but its time."""
    box, now_ns, numbers = Outbox(CHUNK), 100 * S, 0
    alive: dict[bytes, tuple[str, int, bool]] = {}
    for kind, one, two, three in steps:
        match kind:
            case "keep":
                numbers += 1
                borrower, key = f"b{one}", key_of(numbers)
                others = {key: row for key, row in alive.items() if row[0] != borrower or not row[2]}
                if box.keep(borrower, key, MIB * two, now_ns + three * S, now_ns):
                    alive[key] = borrower, now_ns + min(three * S, KEEP_MAX_NS), False
                    assert two * len(MIB) <= EACH_MAX_BYTES
                for held, (_, until_ns, _) in others.items():
                    assert (held in box._kept) == (now_ns < until_ns), "it made way, or outlived its time"
                alive = {key: row for key, row in alive.items() if key in box._kept}
            case "read" if alive:
                key = list(alive)[one % len(alive)]
                borrower, until_ns, was_read = alive[key]
                assert key in box._kept, "it went before its time"
                size_bytes = len(box._kept[key].body)
                found = whole(box, key, WHO[two], b"c" if three else b"d", now_ns)
                assert len(found) in (0, size_bytes)
                alive[key] = borrower, until_ns, was_read or bool(found)
            case _:
                now_ns += one * S
                box.expire(now_ns)
                alive = {key: row for key, row in alive.items() if now_ns < row[1]}
                assert set(box._kept) == set(alive), "it is gone at its deadline, and not before"
        assert box.held_bytes <= TOTAL_MAX_BYTES
        assert len(box._kept) <= TOTAL_MAX
        for borrower in {row[0] for row in alive.values()}:
            assert box.held_bytes_of(borrower) <= EACH_MAX_BYTES
            assert box.count_of(borrower) <= EACH_MAX


def test_law_a_borrowers_small_tensors_are_counted_too() -> None:
    """And those that were read make room for its newest, the oldest first."""
    box = Outbox(CHUNK)
    for number in range(EACH_MAX + 5):
        assert box.keep("b", key_of(number), b"x", 9 * S, S) == (number < EACH_MAX)
    for number in (4, 7):
        assert whole(box, key_of(number), WHO[0], b"c", S) == b"x"
    assert box.keep("b", key_of(100), b"y", 9 * S, S)
    assert (key_of(4) in box._kept, key_of(7) in box._kept) == (False, True)
    assert box.counters["outbox_full"] == 5


@given(
    size=st.integers(1, 5_000),
    owner=st.sampled_from(WHO),
    shown=st.binary(min_size=16, max_size=16),
    other=st.integers(0, 9),
)
@settings(max_examples=100, deadline=None)
def test_law_a_token_opens_one_tensor_for_one_reader_once(size: int, owner: bytes, shown: bytes, other: int) -> None:
    """Not for another reader, not another tensor, not over another connection, not twice, not after the deadline."""
    box, first, second = Outbox(1_000), key_of(1), key_of(2)
    bodies = {first: bytes([1]) * size, second: bytes([2]) * size}
    for key, body in bodies.items():
        assert box.keep("b", key, body, 5 * S, S)
    assert box.read(shown, b"c", 0, S) is None, "who guesses"
    thief = WHO[(WHO.index(owner) + 1) % len(WHO)]
    token = token_of(first, owner)
    for wrong in (thief + token[8:], thief + token_of(second, owner)[8:], token_of(key_of(3), owner)):
        assert box.read(wrong, b"c", 0, S) is None, "a token of another reader or key"
    assert whole(box, first, owner, b"mine", S) == bodies[first]
    for connection in (b"mine", b"another"):
        for offset in {0, other * 1_000, max(0, size - 1)}:
            assert box.read(token, connection, offset, S) is None, "a replay gives something"
    assert box.read(token_of(second, owner), b"mine", 1_000, S) is None, "not from the middle"
    assert box.read(token_of(second, owner), b"another", 0, 5 * S) is None, "after the deadline"
    assert box.held_bytes == 0


def test_law_a_borrower_has_its_share_and_no_more() -> None:
    """And what was read goes only where that makes room enough."""
    box, most = Outbox(CHUNK), EACH_MAX_BYTES // len(MIB)
    found = [box.keep("b", key_of(number), MIB, 9 * S, S) for number in range(most + 2)]
    assert found == [True] * most + [False] * 2
    assert whole(box, key_of(0), WHO[0], b"c", S) == MIB
    assert not box.keep("b", key_of(100), MIB * 2, 9 * S, S)
    assert key_of(0) in box._kept
    assert box.keep("c", key_of(100), MIB, 9 * S, S), "another's share is its own"


def test_law_so_many_readers_and_no_more() -> None:
    box = Outbox(CHUNK)
    assert box.keep("b", key_of(1), b"x" * 9, 5 * S, S)
    found = [whole(box, key_of(1), who, who, S) for who in WHO]
    assert found == [b"x" * 9] * READERS_MAX + [b""] * (len(WHO) - READERS_MAX)
    assert not box.keep("c", key_of(1), b"other", 5 * S, S), "a key opens one tensor"
    assert not box.keep("c", b"short", b"other", 5 * S, S)
    assert not box.keep("c", key_of(2), b"", 5 * S, S)


def test_law_all_borrowers_together_are_bounded() -> None:
    box, number = Outbox(CHUNK), 0
    for borrower in range(40):
        for _ in range(12):
            number += 1
            box.keep(f"b{borrower}", key_of(number), b"z", 9 * S, S)
    assert len(box._kept) == TOTAL_MAX
    assert outbox.TOTAL_MAX_BYTES >= 4 * EACH_MAX_BYTES, "no borrower has it all"


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("ask"), st.sampled_from([1, 3, 9]), st.integers(0, 12)),
            st.tuples(st.just("others"), st.integers(0, 8), st.integers(1, 40)),
            st.tuples(st.just("read"), st.integers(0, 60), st.integers(0, 4)),
            st.tuples(st.just("wait"), st.integers(0, 6), st.just(0)),
        ),
        min_size=1,
        max_size=120,
    )
)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_law_what_a_borrower_is_owed_an_honest_lender_has(steps: list[Any]) -> None:
    """Whatever others keep there and whoever came first: else an honest lender would be found wrong."""
    box, keeps, now_ns, numbers = Outbox(CHUNK), Keeps(), 100 * S, 0
    mine: dict[bytes, Any] = {}
    for kind, one, two in steps:
        match kind:
            case "ask":
                numbers += 1
                key, until_ns = key_of(numbers), now_ns + two * S
                standing = keeps.begin(one * len(MIB), until_ns, now_ns)
                if box.keep("me", key, MIB * one, until_ns, now_ns):
                    keeps.end(standing, now_ns)
                    mine[key] = SimpleNamespace(asked_ns=now_ns, until_ns=min(until_ns, now_ns + KEEP_MAX_NS))
            case "others":
                for _ in range(two):
                    numbers += 1
                    box.keep(f"b{one}", key_of(numbers), MIB, now_ns + 9 * S, now_ns)
            case "read" if mine:
                key = list(mine)[one % len(mine)]
                whole(box, key, WHO[two], b"c", now_ns)
            case _:
                now_ns += one * S
        for key in [key for key, far in mine.items() if keeps.is_owed(far, now_ns)][-2:]:
            assert key in box._kept, "it is owed, and gone"
    for key in [key for key, far in mine.items() if keeps.is_owed(far, now_ns)]:
        assert whole(box, key, BORROWER, b"mine", now_ns), "it is owed, and the borrower may not read it"


def test_law_a_full_house_costs_nobody_what_is_owed_to_it() -> None:
    """Neither others' tensors nor those who came first keep a borrower from the little that it has there."""
    box, keeps = Outbox(CHUNK), Keeps()
    keeps.end(keeps.begin(len(MIB), 9 * S, S), S)
    assert box.keep("me", key_of(1), MIB, 9 * S, S)
    for who in WHO:
        whole(box, key_of(1), who, who, S)
    for number in range(2, 99):
        box.keep(f"b{number % 6}", key_of(number), MIB, 9 * S, S)
    assert box.held_bytes == TOTAL_MAX_BYTES
    keeps.begin(len(MIB), 9 * S, S)
    assert not box.keep("me", key_of(100), MIB, 9 * S, S)
    assert keeps.is_owed(SimpleNamespace(asked_ns=S, until_ns=9 * S), S)  # type: ignore[arg-type]
    assert whole(box, key_of(1), BORROWER, b"mine", S), "it is owed, and gone"


def test_what_is_little_is_owed_until_its_time_and_what_is_much_is_not() -> None:
    keeps, far = Keeps(), SimpleNamespace(asked_ns=2, until_ns=9 * S)
    for at in range(SAFE_MAX - 1):
        keeps.end(keeps.begin(1, 60 * S, 1 + at), 1 + at)
    assert keeps.is_owed(far, 8 * S)  # type: ignore[arg-type]
    assert not keeps.is_owed(far, 9 * S)  # type: ignore[arg-type]
    keeps.begin(1, 60 * S, 3)
    assert not keeps.is_owed(far, 8 * S)  # type: ignore[arg-type]
    later = SimpleNamespace(asked_ns=40 * S, until_ns=50 * S)
    keeps.begin(1, 50 * S, 40 * S)
    assert keeps.is_owed(later, 41 * S), "what was much is over"  # type: ignore[arg-type]


def test_who_keeps_it_itself_takes_it_with_the_size_that_a_ticket_paid_for() -> None:
    """No signature stands behind the place then: it is the borrower's word."""
    box, key, now_ns = Outbox(CHUNK), key_of(1), time.monotonic_ns()
    nothing: Any = SimpleNamespace(outbox=box)
    others = ForOthers(nothing, nothing, None)
    assert box.keep("a", key, MIB, now_ns + 60 * S, now_ns)
    for who, size_bytes in ((WHO[0], 1), (WHO[1], len(MIB) + 1)):
        with pytest.raises(OipError, match="1048576 bytes"):
            others._own(Place(1, bytes(32), token_of(key, who), size_bytes, b""))
    assert others._own(Place(1, bytes(32), token_of(key, WHO[2]), 1 << 20, b""))
