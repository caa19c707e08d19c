"""Laws of learning in the swarm: one head of one set, a fifth may lie, nothing is forgotten, and nobody pays for it."""

import contextlib
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_protocols.errors import StateError, WireError
from swarmd_protocols.learning import form, learning, messages
from swarmd_protocols.learning.form import ENTRIES_MAX, ROUNDS_MAX, Delta, Session, open_delta, sign_delta, verify_delta
from swarmd_protocols.learning.learning import LearningConfig
from swarmd_protocols.learning.merging import BAD_SHARE, robust_mean
from swarmd_protocols.learning.messages import Give, Have, Row, decode, encode
from swarmd_protocols.learning.privacy import Privacy, epsilon, hidden
from swarmd_protocols.learning.requests import JOURNAL, Learn, Trained
from swarmd_protocols.learning.sparse import in_units, top_k
from swarmd_protocols.trust.envelopes import sign_statement
from swarmd_protocols.trust.identity import dev_role_seeds
from swarmd_protocols.trust.payloads import Revocation
from tests.support.learning_world import CONFIG, CRYPTO, DIM, SECRET, SESSION, S, World, moved

WORDS = st.integers(0, 2**32 - 1)
LONG = Session(b"l" * 32, DIM, 8, 24)
"""Time enough to tell everything."""


def wants(index: int) -> list[float]:
    """What members' labels want differs from member to member, by a tenth about a common middle."""
    rng = Random(index)
    return [0.5 * (at % 3 - 1) + rng.uniform(-0.05, 0.05) for at in range(DIM)]


def middle() -> list[float]:
    return [0.5 * (at % 3 - 1) for at in range(DIM)]


def far(found: Sequence[float]) -> float:
    return max(abs(one - other) for one, other in zip(found, middle(), strict=True))


def mean_of(rows: Sequence[Sequence[int]]) -> list[int]:
    steps = robust_mean(rows, len(rows) // BAD_SHARE)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: list[int] = end.value
            return found


# --- one head ---------------------------------------------------------------------------------------------------------


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10_000), loss=st.sampled_from([0.0, 0.1, 0.4]))
def test_whoever_holds_the_same_deltas_has_the_same_head(seed: int, loss: float) -> None:
    world = World(5, seed, wants, loss)
    ends = world.end()
    assert len({tuple(one.moved) for one in ends}) == 1
    assert {one.authors for one in ends} == {5}
    assert not [alarm for one in world.members for alarm in one.alarms]


def test_what_was_not_told_is_told_later() -> None:
    """A third of the weights fits a delta; after 24 rounds all are where labels want them."""
    world = World(5, 3, wants, session=LONG)
    assert far(moved(world.end()[0])) < 0.2


def test_a_member_without_labels_says_nothing_and_has_the_head() -> None:
    world = World(5, 4, lambda index: None if index == 4 else wants(index))
    ends = world.end()
    assert ends[4].moved == ends[0].moved
    assert ends[0].authors == 4
    assert world.members[4].learning.counts["told"] == 0


def test_who_comes_late_goes_on_where_the_others_are() -> None:
    world = World(5, 5, wants)
    world.members[4].is_up = False
    world.members[4].learning.on_command(Learn(None), world.now_ns)
    world.run(60)
    world.boot(4)
    ends = world.end()
    assert ends[4].moved == ends[0].moved
    assert min(train.round for train in world.members[4].trains) >= 4


def test_another_session_counts_for_nothing() -> None:
    world = World(4, 6, wants)
    world.run(30)
    other = Session(b"x" * 32, DIM, 4, 12)
    one = world.members[0]
    held = len(one.learning.view().deltas)
    raw = sign_delta(world.members[1].id, other.id, 0, 5, 3, [(0, 5)], world.members[1].signer).raw
    before = one.learning.summary()
    world.give(1, 0, raw)
    assert one.learning.summary() == before
    assert len(one.learning.view().deltas) == held
    world.perform(one, one.learning.on_command(Learn(other), world.now_ns))
    assert one.disk, "it may run again, and what was said of it must not be said otherwise"
    for name in (b"y", b"z"):
        world.run(30)
        world.perform(one, one.learning.on_command(Learn(Session(name * 32, DIM, 4, 12)), world.now_ns))
    assert one.learning.view().session != other
    assert not [key for key in one.disk if key.startswith(JOURNAL + SESSION.id)], "two models back it is over"
    assert one.learning.summary() != before


# --- a fifth may lie --------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_fifth_moves_the_mean_no_further_than_honest_ones_are(data: st.DataObject) -> None:
    count = data.draw(st.integers(5, 15))
    bad = count // BAD_SHARE
    honest = [[data.draw(st.integers(-100, 100)) for _ in range(4)] for _ in range(count - bad)]
    extreme = st.integers(-(1 << 35), 1 << 35)
    liars = [[data.draw(extreme) for _ in range(4)] for _ in range(bad)]
    low, high = min(map(min, honest)), max(map(max, honest))
    for found in mean_of(honest + liars):
        assert low - 2 <= found <= high + 2 or any(low <= one <= high for row in liars for one in row)


LIES = {
    "everything the other way": lambda at, mine: [-one for one in mine],
    "a hundred times as much": lambda at, mine: [100 * one for one in mine],
    "one weight alone": lambda at, mine: [120.0, *mine[1:]],
    "all alike": lambda at, mine: [3.0] * DIM,
}


@pytest.mark.parametrize("lie", LIES)
def test_a_fifth_of_the_members_does_not_move_the_head(lie: str) -> None:
    """Two of ten say what they like, the same thing."""
    world = World(10, 7, lambda index: LIES[lie](index, wants(index)) if index < 2 else wants(index), session=LONG)
    assert far(moved(world.end()[5])) < 0.2


def test_who_says_two_things_counts_with_nothing_anywhere_and_is_named() -> None:
    world = World(5, 8, wants)
    world.run(25)
    one, other = world.delta(4, 9, [(0, 120)], 24), world.delta(4, 9, [(0, -120)], 24)
    world.give(4, 0, one)
    world.give(4, 1, other)
    ends = world.end(but=[4])
    assert {end.liars for end in ends} == {1}
    assert {end.authors for end in ends} == {4}
    assert len({tuple(end.moved) for end in ends}) == 1
    assert far(moved(ends[0])) < 1.0
    for member in world.members[:4]:
        assert [alarm.code for alarm in member.alarms] == ["learning-liar"]
        assert "n4" in member.alarms[0].text


def test_who_is_shut_out_has_said_nothing() -> None:
    world = World(5, 9, wants)
    world.run(25)
    for one in world.members[:4]:
        payload = Revocation("test", 1, (world.members[4].id,), "lost")
        one.trust.add("revoke", sign_statement("revoke", payload, dev_role_seeds(SECRET, "revoke"), CRYPTO))
        world.perform(one, one.learning.on_trust(world.now_ns))
    world.give(0, 1, world.delta(4, 3, [(0, 1)]))
    ends = world.end(but=[4])
    assert {end.authors for end in ends} == {4}
    assert len({tuple(end.moved) for end in ends}) == 1


# --- what does not hold -----------------------------------------------------------------------------------------------


def forged(world: World) -> bytes:
    raw = bytearray(world.delta(2, 5, [(0, 5)]))
    raw[1:17] = world.members[3].id
    return bytes(raw)


GARBAGE = {
    "a signature of somebody else": forged,
    "a round beyond the last": lambda world: world.delta(1, SESSION.rounds, [(0, 1)]),
    "more entries than a round has": lambda world: world.delta(1, 0, [(at, 1) for at in range(5)]),
    "a weight that there is not": lambda world: world.delta(1, 0, [(DIM, 1)]),
    "bytes": lambda world: b"\x05" * 200,
    "too many bytes": lambda world: bytes(form.DELTA_MAX_BYTES),
}


@pytest.mark.parametrize("what", GARBAGE)
def test_what_does_not_hold_is_refused_and_named(what: str) -> None:
    world = World(4, 10, wants)
    before = world.members[0].learning.summary()
    for _ in range(20):
        world.give(1, 0, GARBAGE[what](world))
    one = world.members[0]
    assert one.learning.summary() == before
    assert len(one.rejected) == 20
    assert [alarm.code for alarm in one.alarms] == ["learning-garbage"]
    assert "n1" in one.alarms[0].text


def test_a_stranger_is_not_heard() -> None:
    world = World(3, 11, wants)
    one = world.members[0]
    assert one.learning.on_message(form.NodeId(bytes(16)), b"\x07", world.now_ns) == []


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1e9])
def test_a_training_that_failed_is_not_told(bad: float) -> None:
    world = World(3, 12, lambda index: None)
    world.run(5)
    one = world.members[0]
    assert one.trains
    one.learning._asked = 0
    with pytest.raises(StateError, match="no numbers"):
        one.learning.on_command(Trained(SESSION.id, 0, [bad] + [0.0] * (DIM - 1), 5), world.now_ns)
    assert not one.disk


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, form.DIM_MAX - 1), st.integers(-127, 127).filter(bool)), max_size=ENTRIES_MAX),
    st.integers(0, ROUNDS_MAX - 1),
    st.integers(0, form.EXPONENT_MAX),
)
def test_a_delta_reads_as_it_was_written(entries: list[tuple[int, int]], number: int, exponent: int) -> None:
    world = WORLD
    rising = sorted(dict(entries).items())
    one = world.members[0]
    made = sign_delta(one.id, SESSION.id, number, 77, exponent, rising, one.signer)
    read = open_delta(made.raw)
    assert (read.author, read.round, read.rows, read.exponent) == (one.id, number, 77, exponent)
    assert list(zip(read.indices, read.values, strict=True)) == rising
    assert verify_delta(read, one.identity.claims().public_key, one.signer)


def test_a_changed_delta_is_none_or_not_its_authors() -> None:
    one = WORLD.members[0]
    raw = WORLD.delta(0, 3, [(1, 5), (20, -7), (23, 100)])
    for bit in range(8 * len(raw)):
        changed = bytearray(raw)
        changed[bit // 8] ^= 1 << bit % 8
        with contextlib.suppress(WireError):
            assert not verify_delta(open_delta(bytes(changed)), one.identity.claims().public_key, one.signer)
    for size in range(len(raw)):
        with contextlib.suppress(WireError):
            assert not verify_delta(open_delta(raw[:size]), one.identity.claims().public_key, one.signer)


def test_a_delta_has_one_form() -> None:
    """A gap of 0 in two bytes is no second way to write the same."""
    one = WORLD.members[0]
    raw = WORLD.delta(0, 3, [(0, 5)])
    body = raw[:-64]
    twice = body[:-2] + b"\x80\x00" + body[-1:]
    with pytest.raises(WireError):
        open_delta(twice + one.signer.sign(b"swarmd/learning/v1\0" + twice))


# --- what it costs ----------------------------------------------------------------------------------------------------


def test_nobody_makes_a_node_give_more_than_its_budget() -> None:
    config = LearningConfig(round_ns=10 * S, settle_ns=3 * S, bytes_s=300)
    world = World(12, 13, wants, config=config)
    lacks_all = encode(Have(SESSION.id, True, ()))
    for _ in range(240):
        world.run(0.5)
        for hostile in (1, 2, 3):
            world.hand(hostile, 0, lacks_all)
    sent = world.members[0].sent
    for begin in range(0, 120, 10):
        inside = [size for at, size in sent if begin <= at / S - 100 < begin + 10]
        assert sum(inside) <= 300 * 10 * 1.25 + 300
    assert sum(size for _, size in sent) > 300 * 30, "who floods is all that is heard"


def test_who_asks_without_end_is_refused_and_named() -> None:
    world = World(3, 14, wants)
    for _ in range(50):
        world.hand(1, 0, encode(Have(SESSION.id, True, ())))
    one = world.members[0]
    assert len(one.rejected) == 50 - learning.HAVES_BURST
    assert [alarm.code for alarm in one.alarms] == ["learning-garbage"]


def test_one_author_takes_so_much_and_no_more() -> None:
    """All that one member can have the others keep: a delta a round, however many it signs."""
    world = World(3, 15, lambda index: None)
    for number in range(ROUNDS_MAX):
        for value in range(1, 4):
            with contextlib.suppress(WireError):
                world.give(1, 0, world.delta(1, number, [(0, value)]))
    one = world.members[0]
    book = one.learning._book
    assert book is not None
    assert book.liars == [world.members[1].id]
    assert not book.of(world.members[1].id)


def test_a_quarter_pushes_nobody_on() -> None:
    world = World(7, 16, wants)
    for liar in (0, 1):
        for number in range(SESSION.rounds):
            world.give(liar, 6, world.delta(liar, number, [(0, 1)]))
    world.run(8)
    assert [train.round for train in world.members[6].trains] == [0]


def test_who_falls_silent_holds_the_others_up_for_a_while() -> None:
    world = World(5, 17, wants)
    world.run(16)
    world.members[4].is_up = False
    world.run(40 + 10 * 10)
    assert world.members[0].learning.view().round >= 9


def test_own_words_go_before_what_others_ask_for() -> None:
    """Comparisons that never end would take the budget; what this node has to say is said all the same."""
    session = Session(SESSION.model, DIM, DIM, 12)
    config = LearningConfig(round_ns=30 * S, settle_ns=3 * S, bytes_s=100)
    world = World(10, 19, lambda index: wants(index) if index < 2 else None, config=config, session=session)
    pretends = encode(Have(session.id, True, (Row(world.members[1].id, 0xFFF, 1, False),)))
    for _ in range(120):
        for hostile in range(2, 10):
            world.hand(hostile, 0, pretends)
        world.run(1)
    one = world.members[0].learning
    assert one.counts["told"] >= 2
    assert len(one._pushes) <= 9, "the first round's are not all out after a minute and a half"


# --- a restart --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keeps", [True, False], ids=["its disk", "no disk"])
def test_a_restart_makes_nobody_a_liar(keeps: bool) -> None:
    world = World(5, 18, lambda index: [one + world_draw(index) for one in wants(index)], config=SLOW)
    world.run(SLOW.settle_ns / S + 12)
    one = world.members[2]
    assert one.learning.counts["told"]
    if not keeps:
        one.disk.clear()
    world.boot(2)
    ends = world.end()
    assert {end.liars for end in ends} == {0}
    assert {end.authors for end in ends} == {5}


def test_a_model_that_is_tried_and_taken_back_makes_nobody_a_liar() -> None:
    """Also where nobody is there to bring back what was said of it: it is still on the disk."""
    world = World(5, 20, lambda index: [one + world_draw(index) for one in wants(index)], config=SLOW)
    world.run(SLOW.settle_ns / S + 12)
    one = world.members[2]
    assert one.learning.counts["told"]
    other = Session(b"o" * 32, DIM, 4, 12)
    world.perform(one, one.learning.on_command(Learn(other), world.now_ns))
    world.run(5)
    world.boot(2)
    world.deaf.add(2)
    world.run(SLOW.settle_ns / S + 3)
    world.deaf.clear()
    ends = world.end()
    assert {end.liars for end in ends} == {0}
    assert {end.authors for end in ends} == {5}


SLOW = LearningConfig(round_ns=20 * S, settle_ns=12 * S, bytes_s=0)
_DRAWS = Random(5)


def world_draw(index: int) -> float:
    """No training gives the same twice."""
    return _DRAWS.uniform(-0.01, 0.01)


# --- noise ------------------------------------------------------------------------------------------------------------


def test_epsilon_is_that_of_the_paper() -> None:
    """rho = rounds / (2 noise²); rho + 2 sqrt(rho ln(1/delta)), worked by hand: ln(1e5) = 11.512925."""
    assert epsilon(1.0, 1) == pytest.approx(0.5 + 2 * (0.5 * 11.512925465) ** 0.5, rel=1e-9)
    assert epsilon(4.0, 12) == pytest.approx(0.375 + 2 * (0.375 * 11.512925465) ** 0.5, rel=1e-9)
    assert epsilon(2.0, 4, 1e-6) == pytest.approx(0.5 + 2 * (0.5 * 13.815510558) ** 0.5, rel=1e-9)


def test_what_is_told_is_clipped_and_noisy() -> None:
    privacy = Privacy(2.0, 0.5)
    change = [30.0, -40.0] + [0.0] * 2_000
    told = hidden(change, privacy, Random(1))
    assert told[0] == pytest.approx(1.2, abs=5)
    assert told[1] == pytest.approx(-1.6, abs=5)
    deviation = (sum(one * one for one in told[2:]) / 2_000) ** 0.5
    assert deviation == pytest.approx(1.0, rel=0.1)
    quiet = hidden(change, Privacy(2.0, 1e-9), Random(1))
    assert sum(one * one for one in quiet) ** 0.5 == pytest.approx(2.0, rel=1e-6)


def test_with_noise_the_epsilon_is_said_and_what_is_told_is_not_what_was_trained() -> None:
    config = LearningConfig(round_ns=10 * S, settle_ns=3 * S, bytes_s=0, privacy=Privacy(1.0, 2.0))
    noisy, plain = World(4, 19, wants, config=config), World(4, 19, wants)
    for world in (noisy, plain):
        world.run(5)
    assert noisy.members[0].learning.view().epsilon == pytest.approx(epsilon(2.0, SESSION.rounds))
    assert plain.members[0].learning.view().epsilon is None
    assert noisy.members[0].disk.keys() == plain.members[0].disk.keys()
    assert noisy.members[0].disk != plain.members[0].disk


@pytest.mark.parametrize(("length", "noise"), [(0.0, 1.0), (1.0, 0.0), (float("inf"), 1.0), (1.0, float("nan"))])
def test_what_hides_nothing_is_refused(length: float, noise: float) -> None:
    with pytest.raises(StateError):
        Privacy(length, noise)


# --- small things -----------------------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-(1 << 31), 1 << 31), min_size=1, max_size=40), st.integers(1, 40))
def test_the_largest_are_told_to_a_hundredth_of_the_largest(rest: list[int], entries: int) -> None:
    exponent, told = top_k(rest, [0] * len(rest), min(entries, len(rest)))
    most = max(map(abs, rest))
    assert all(-127 <= value <= 127 and value for _, value in told)
    for at, value in told:
        assert abs((value << exponent) - rest[at]) <= max(1, most >> 7) or most > 127 << form.EXPONENT_MAX


def test_units_and_back() -> None:
    assert in_units([1.0, -0.5, 2**-24]) == [1 << 24, -(1 << 23), 1]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.binary(min_size=16, max_size=16), WORDS, WORDS, st.booleans()), max_size=9))
def test_lists_of_deltas_read_as_written(rows: list[tuple[bytes, int, int, bool]]) -> None:
    have = Have(SESSION.id, True, tuple(Row(*row) for row in rows))
    assert decode(encode(have)) == have


def test_frames_have_bounds() -> None:
    assert decode(encode(Give((b"a", b"bb")))) == Give((b"a", b"bb"))
    many = Give(tuple(b"x" for _ in range(messages.GIVE_MAX + 1)))
    for payload in (b"", b"\x03", b"\x02", encode(many), b"\x02\x00\x00", b"\x02\x05\x00abc", bytes(70_000)):
        with pytest.raises(WireError):
            decode(payload)


def test_a_session_is_what_it_is_of() -> None:
    for bad in ((b"m", 5, 2, 3), (b"m" * 32, 0, 1, 3), (b"m" * 32, 5, 6, 3), (b"m" * 32, 5, 2, ROUNDS_MAX + 1)):
        with pytest.raises(StateError):
            Session(*bad)


def test_the_merge_is_of_sums_not_of_deltas() -> None:
    """What an author left out of a round is not taken for nothing."""
    assert isinstance(open_delta(WORLD.delta(0, 0, [(0, 1)])), Delta)
    assert mean_of([[4, 0], [6, 0], [5, 0]]) == [5, 0]


WORLD = World(2, config=CONFIG)
