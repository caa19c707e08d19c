"""Join laws for every type: associative, commutative, idempotent, and inflating; equal digests mean equal states."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_protocols.crypto import ModelCrypto
from swarmd_protocols.ids import NodeId, node_id_of
from swarmd_protocols.state.anti_entropy import AntiEntropy
from swarmd_protocols.state.clock import Clock, ClockConfig, stamp_of
from swarmd_protocols.state.config import ReplicaConfig
from swarmd_protocols.state.crdt import log as log_module
from swarmd_protocols.state.crdt.batch import NodeSigner, Stream, open_batch, seal_batch, verify_batch
from swarmd_protocols.state.crdt.columns import pack, pack_deltas, unpack, unpack_deltas
from swarmd_protocols.state.crdt.facts import (
    LATTICE,
    Done,
    Facts,
    Join,
    NotePut,
    NoteRemoval,
    Sighting,
    decode_facts,
    encode_facts,
)
from swarmd_protocols.state.crdt.log import OriginLog, cost_of
from swarmd_protocols.state.crdt.messages import ID_BYTES
from swarmd_protocols.state.crdt.notes import NoteMap
from swarmd_protocols.state.crdt.records import (
    EventRow,
    Lease,
    decode_counters,
    decode_leases,
    encode_counters,
    encode_events,
    encode_leases,
)
from swarmd_protocols.state.crdt.store import Store
from swarmd_protocols.state.holdings import Holdings
from swarmd_protocols.state.projection import Projection
from swarmd_protocols.state.quota import Quotas
from swarmd_protocols.subprotocol import Peer

S = 1_000_000_000

CRYPTO = ModelCrypto()
SEEDS = [bytes([n]) * 32 for n in range(3)]
NODES = [node_id_of(CRYPTO.public_key(seed)) for seed in SEEDS]
SIGNERS = [NodeSigner(CRYPTO, seed) for seed in SEEDS]
I64 = st.integers(-(2**62), 2**62)


def sighting(rng, n):
    first = rng.randrange(1000) << 16
    return Sighting(
        rng.choice(["a", "b"]), LATTICE, (n, rng.randrange(2)), False, True, rng.randrange(5000), rng.randrange(5000),
        (rng.randrange(1, 900), 0, 9), rng.randrange(1000), first, first + (5 << 16), 1, b"m" * 8, (),
    )  # fmt: skip


def history(rng, who, length=8, stamps=()):
    """One origin's batches: a log with advancing bases over two lives, and its records."""
    out, previous, base = [], bytes(16), (0, 0)
    lives = [1, 5]
    for life in lives:
        previous = bytes(16)
        for n in range(1, length // 2 + 1):
            if rng.random() < 0.3:
                base = max(base, (life, max(1, n - rng.randrange(3))))
            puts = [NotePut(life, n, n << 16, rng.choice("xy"), b"v%d" % n, ())] if rng.random() < 0.4 else []
            removed = [NoteRemoval("x", ((NODES[rng.randrange(3)], life, rng.randrange(1, 4)),))]
            facts = Facts(
                [sighting(rng, rng.randrange(4))],
                [Join(NODES[rng.randrange(3)], ("a", LATTICE, (rng.randrange(4), 0)), 0, n << 16)],
                [Done(bytes([rng.randrange(3)]) * 6, rng.randrange(1000))],
                puts,
                removed if rng.random() < 0.2 else [],
            )
            batch = seal_batch(
                Stream.FACTS,
                NODES[who],
                (life, n),
                min(base, (life, n)),
                previous,
                rng.choice(stamps) if stamps else n,
                encode_facts(facts),
                SIGNERS[who],
            )
            previous = batch.digest
            out.append(batch)
        for n in (1, 2):
            for stream, body in (
                (Stream.COUNTERS, encode_counters({"c": n + life}, rng.choice((b"", b"t%d" % n)))),
                (Stream.STATUS, b"s%d" % n),
                (Stream.EVENTS, encode_events((EventRow(life, n, n, "failed", "x", "", ""),))),
                (Stream.LEASES, encode_leases((Lease(b"cellll", n, 0, False, 7, 0),))),
            ):
                keep = (0, 0) if stream is Stream.COUNTERS and who else (life, 0)
                stamp = n if stream is Stream.EVENTS else rng.randrange(1, 4)
                out.append(seal_batch(stream, NODES[who], (life, n), keep, bytes(16), stamp, body, SIGNERS[who]))
    return [open_batch(batch.raw) for batch in out]


def build(batches):
    """A store and its views, as a replica would join them."""
    store, views = Store(100, 1 << 20), Projection(NODES[0], ReplicaConfig())
    for batch in batches:
        reading = views.read(batch)
        batch.cost = cost_of(batch, reading.weight if isinstance(reading, Facts) else 0)
        verdict, dropped = store.add(batch)
        if verdict.value != "added":
            continue
        for old in dropped:
            views.drop(old)
        views.take(batch, reading, 10)
    views.work()
    return store, views


def state_of(store, views):
    held = sorted(batch.digest for batch in store.batches())
    assert store.names == {digest[:ID_BYTES] for digest in held}
    view = sorted((e.origin, e.row, e.leader.origin, e.leader.row.key) for e in views.view.all())
    done = {cell: dict(sorted(by.items())) for cell, by in views.survey.claims.done.items() if by}
    return (
        held,
        view,
        done,
        views.notes.values(),
        list(views.vitals.counter_parts()),
        [views.vitals.status(node) for node in NODES],
        views.vitals.events(),
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.randoms(use_true_random=False))
def test_the_store_and_every_view_know_no_order_and_no_repetition(seed, shuffler):
    rng = random.Random(seed)
    batches = [batch for who in range(3) for batch in history(rng, who)]
    store, views = build(batches)
    once = state_of(store, views)
    for _ in range(3):
        order = batches + shuffler.sample(batches, len(batches) // 2)
        shuffler.shuffle(order)
        other_store, other_views = build(order)
        assert other_store.lasting_digest() == store.lasting_digest()
        assert other_store.vitals_digest() == store.vitals_digest()
        assert state_of(other_store, other_views) == once


WRONG_MS = 3_600_000
STAMPS = tuple(stamp_of(ms) for ms in (1_000, 1_400, 2_000, 30_000, WRONG_MS))


def check_what_is_set_aside(seed, shuffler):
    """However often the clock was wrong: what is shown are the facts held whose time has come, and nothing else."""
    rng = random.Random(seed)
    batches = [b for who in range(3) for b in history(rng, who, 12, STAMPS) if b.stream is Stream.FACTS]
    clock = Clock(ClockConfig(), 0)
    holdings = Holdings(NODES[0], ReplicaConfig(), clock)
    clock._wall_offset_ns = 1
    shuffler.shuffle(batches)
    for batch in batches:
        is_restored = shuffler.random() < 0.2
        holdings.join(batch, S, is_restored)
        if shuffler.random() < 0.3:
            clock._offset_ns = shuffler.choice((0, S, 30 * S, 2 * WRONG_MS * 1_000_000))
            for ahead in holdings.ahead(S).values():
                holdings.defer(ahead)
            holdings.take_due(S)
    clock._offset_ns = 0
    for ahead in holdings.ahead(S).values():
        holdings.defer(ahead)
    holdings.take_due(S)
    holdings.projection.work()
    held = list(holdings.store.batches())
    shown = [batch for batch in held if not clock.is_ahead(batch.stamp, S)]
    assert {batch.digest for batch in held} - {batch.digest for batch in shown} == set(holdings.deferred)
    store, views = build(shown)
    assert holdings.digest() == store.lasting_digest()
    assert state_of(holdings.store, holdings.projection)[1:] == state_of(store, views)[1:]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.randoms(use_true_random=False))
def test_what_is_set_aside_hides_nothing_of_what_is_held(seed, shuffler):
    check_what_is_set_aside(seed, shuffler)


BOUNDS = (2_500, 6_000, 15_000)
"""Costs that some of the histories exceed by far and some a little."""


def bounded(batches, cost_max):
    store, views = Store(100, cost_max), Projection(NODES[0], ReplicaConfig())
    for batch in batches:
        reading = views.read(batch)
        batch.cost = cost_of(batch, reading.weight if isinstance(reading, Facts) else 0)
        verdict, dropped = store.add(batch)
        for old in dropped:
            views.drop(old)
        if verdict.value == "added":
            views.take(batch, reading, 10)
    views.work()
    return store, views


def check_bounds_that_are_joins(seed, shuffler, batches_max=4, lives_max=2):
    """What a log keeps under its bounds, and what the views show of it, know no order and no grouping."""
    rng = random.Random(seed)
    batches = [batch for who in range(2) for batch in history(rng, who, 12)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_module, "BATCHES_MAX", rng.choice((batches_max, 100)))
        patch.setattr(log_module, "INCARNATIONS_MAX", rng.choice((lives_max, 1)))
        cost_max = rng.choice(BOUNDS)
        store, views = bounded(batches, cost_max)
        once = state_of(store, views)
        for log in store.logs.values():
            assert log.cost - max((batch.cost for batch in log.facts.values()), default=0) <= cost_max
        for _ in range(4):
            order = batches + shuffler.sample(batches, len(batches) // 2)
            shuffler.shuffle(order)
            assert state_of(*bounded(order, cost_max)) == once
            cut = shuffler.randrange(len(order))
            left, right = bounded(order[:cut], cost_max)[0], bounded(order[cut:], cost_max)[0]
            joined = [*left.batches(), *right.batches()]
            shuffler.shuffle(joined)
            assert bounded(joined, cost_max)[0].lasting_digest() == store.lasting_digest()


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32), st.randoms(use_true_random=False))
def test_bounds_are_joins(seed, shuffler):
    check_bounds_that_are_joins(seed, shuffler)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.randoms(use_true_random=False))
def test_joining_states_is_associative(seed, shuffler):
    rng = random.Random(seed)
    batches = [batch for who in range(3) for batch in history(rng, who)]
    parts = [[], [], []]
    for batch in batches:
        parts[shuffler.randrange(3)].append(batch)
    results = set()
    for a, b, c in itertools.permutations(parts):
        left, _ = build(a + b)
        right, _ = build(c)
        joined, _ = build([*left.batches(), *right.batches()])
        results.add((joined.lasting_digest(), joined.vitals_digest()))
    assert len(results) == 1


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_different_states_have_different_digests(seed):
    rng = random.Random(seed)
    batches = history(rng, 0)
    seen = {}
    for size in range(len(batches)):
        store, _ = build(rng.sample(batches, size))
        digest = (store.lasting_digest(), store.vitals_digest())
        held = sorted(batch.digest for batch in store.batches())
        assert seen.setdefault(digest, held) == held


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9), st.booleans()), max_size=30), st.randoms())
def test_notes_know_no_order(steps, shuffler):
    def play(order):
        notes = NoteMap()
        for who, serial, put in order:
            dot = (NODES[who % 3], 1, serial)
            if put:
                notes.put(dot, f"k{serial % 3}", b"v%d" % serial, serial << 16)
            else:
                notes.remove(dot, (serial + 1) << 16)
        return notes.values()

    shuffled = list(steps)
    shuffler.shuffle(shuffled)
    assert play(steps) == play(shuffled)


def test_a_concurrent_put_survives_a_removal():
    notes = NoteMap()
    notes.put((NODES[0], 1, 1), "k", b"old", 1)
    notes.remove((NODES[0], 1, 1), 2)
    notes.put((NODES[1], 1, 1), "k", b"new", 1)
    notes.remove((NODES[0], 1, 1), 2)
    assert notes.values() == {"k": b"new"}


def test_a_removal_that_comes_before_its_put_still_holds():
    notes = NoteMap()
    notes.remove((NODES[0], 1, 1), 2)
    notes.put((NODES[0], 1, 1), "k", b"v", 1)
    assert notes.values() == {}


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 3), st.integers(0, 4)), max_size=30), st.data())
def test_notes_are_what_was_put_and_not_removed_later_in_any_order(steps, data):
    said = [(is_put, (NODES[0], 1, serial), stamp) for is_put, serial, stamp in steps]
    notes = NoteMap()
    for is_put, dot, stamp in data.draw(st.permutations(said)):
        (notes.put(dot, f"k{dot[2]}", b"%d" % stamp, stamp) if is_put else notes.remove(dot, stamp))
    gone = data.draw(st.lists(st.sampled_from(said), max_size=5, unique_by=id) if said else st.just([]))
    left = list(said)
    for is_put, dot, stamp in gone:
        if (is_put, dot, stamp) in left:
            left.remove((is_put, dot, stamp))
            (notes.unput(dot, f"k{dot[2]}", b"%d" % stamp, stamp) if is_put else notes.unremove(dot, stamp))
    expected = {}
    for serial in (1, 2, 3):
        put = max((stamp for is_put, dot, stamp in left if is_put and dot[2] == serial), default=None)
        removed = max((stamp for is_put, dot, stamp in left if not is_put and dot[2] == serial), default=-1)
        if put is not None and put >= removed:
            expected[f"k{serial}"] = b"%d" % put
    assert notes.values() == expected


@given(st.lists(I64, min_size=1, max_size=200))
def test_columns_come_back(values):
    assert list(unpack(pack(values), len(values))) == values


@given(st.lists(st.integers(-(2**60), 2**60), min_size=1, max_size=200))
def test_columns_of_differences_come_back(values):
    assert list(unpack_deltas(pack_deltas(values), len(values))) == values


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_facts_come_back_and_have_one_form(seed):
    rng = random.Random(seed)
    for batch in history(rng, 0):
        if batch.stream is Stream.FACTS:
            assert encode_facts(decode_facts(batch.body)) == batch.body
            assert verify_batch(batch, CRYPTO.public_key(SEEDS[0]), SIGNERS[1])
            assert not verify_batch(batch, CRYPTO.public_key(SEEDS[1]), SIGNERS[1])


@given(st.dictionaries(st.text(max_size=10), st.integers(0, 2**60), max_size=20))
def test_counters_come_back(counters):
    assert decode_counters(encode_counters(counters)) == counters


def test_leases_come_back():
    leases = (Lease(b"abcdef", 3, 2, True, 99, 4), Lease(b"ghijkl", 4, 0, False, 5, 0))
    assert decode_leases(encode_leases(leases)) == leases


def test_a_log_keeps_nothing_below_its_base():
    rng = random.Random(4)
    log = OriginLog(NODES[0])
    for batch in history(rng, 0, 40):
        log.add(batch, 1 << 20)
    assert all(dot >= log.base for dot in log.facts)
    assert log.size_bytes == sum(len(batch.raw) for batch in log.facts.values())


@given(st.lists(st.tuples(st.integers(-(10**7), 10**7), st.integers(0, 10**9)), max_size=40))
def test_stamps_only_grow_whatever_peers_say(steps):
    clock, now, last = Clock(ClockConfig(), 0), 10**12, 0
    for ahead_ms, passed in steps:
        now += passed
        remote = max(0, clock.physical_ms(now) + ahead_ms) << 16
        taken = clock.observe(remote, now)
        assert taken == (ahead_ms <= 500)
        stamp = clock.tick(now)
        assert stamp > last
        assert (stamp >> 16) <= clock.physical_ms(now) + 501
        last = stamp


def test_peers_cannot_ratchet_the_clock():
    clock, now = Clock(ClockConfig(), 0), 10**12
    for _ in range(1200):
        now += 500_000_000
        clock.observe((clock.physical_ms(now) + 500) << 16, now)
        clock.observe((max(clock.physical_ms(now), clock.tick(now) >> 16) + 500) << 16, now)
    assert (clock.tick(now) >> 16) - clock.physical_ms(now) <= 501


def test_one_wrong_clock_of_four_moves_nobody():
    now = 10**12
    wrong = 3_600 * 10**9
    for bad in range(4):
        clock = Clock(ClockConfig(), 0)
        for voter in range(4):
            offset = wrong if voter == bad else 0
            clock.vote(NodeId(bytes([voter]) * 16), now, now + offset, now)
        assert abs(clock.offset_ns) < 10**6
        assert clock.synced


def _ask_all(clock, offsets, now):
    for voter, offset in enumerate(offsets):
        clock.vote(NodeId(bytes([voter]) * 16), now, now + offset, now)


def test_a_clock_that_was_set_by_the_wrong_three_is_set_again():
    hour, now = 3_600 * S, 10**12
    clock = Clock(ClockConfig(), 0)
    _ask_all(clock, [hour, hour, hour], now)
    assert clock.synced
    assert clock.offset_ns == hour
    clock.take_step_ms()
    # Two of them were new themselves and have been put right since; the others had never been wrong.
    _ask_all(clock, [hour, 0, 0, 0, 0], now + S)
    assert clock.offset_ns > hour - S
    _ask_all(clock, [hour, 0, 0, 0, 0], now + 17 * S)
    assert abs(clock.offset_ns) < S
    assert clock.take_step_ms() == pytest.approx(-3_600_000, abs=10)


@pytest.mark.parametrize(
    "offsets", [[3_600 * S] * 3 + [0] * 3, [3_600 * S] * 4 + [0] * 3, [-7 * S * i for i in range(7)]]
)
def test_a_clock_that_no_clear_majority_contradicts_is_not_set_again(offsets):
    now = 10**12
    clock = Clock(ClockConfig(), 0)
    _ask_all(clock, [0, 0, 0], now)
    for step in range(60):
        _ask_all(clock, offsets, now + step * S)
        # 500 ppm of a minute.
        assert abs(clock.offset_ns) <= 30_000_000


def test_a_clock_that_is_contradicted_for_a_moment_is_not_set_again():
    now = 10**12
    clock = Clock(ClockConfig(), 0)
    _ask_all(clock, [0, 0, 0], now)
    for step in range(60):
        offset = 3_600 * S if step % 10 < 4 else 0
        _ask_all(clock, [offset] * 5, now + step * S)
        assert abs(clock.offset_ns) <= 30_000_000


def test_the_time_is_asked_of_whom_it_was_not_asked_yet_and_then_in_turn():
    store, clock, now = Store(8, 1 << 20), Clock(ClockConfig(), 0), 10**12
    repair = AntiEntropy(NODES[0], ReplicaConfig(), random.Random(1), store, Quotas())
    peers = [NodeId(bytes([n]) * 16) for n in range(7)]
    repair.know_peers([Peer(node, "n", b"", True, 0) for node in peers])
    asked = []
    for _ in range(21):
        now += S
        (question,) = repair.time.ask(now, clock)
        asked.append(question.to)
        clock.vote(question.to, now, now, now)
        assert clock.is_young(now) == (len(asked) >= 3)
    assert [sorted(asked[i : i + 7]) for i in (0, 7, 14)] == [peers] * 3
    assert not clock.is_young(now + 2 * S)


def test_two_nodes_agree_on_the_slower_clock():
    from swarmd_protocols.state.clock import EPOCH_2020_NS

    now = 10**12
    offsets = (EPOCH_2020_NS + 10**15, EPOCH_2020_NS + 10**15 + 3_600 * 10**9)
    a, b = (Clock(ClockConfig(), offset) for offset in offsets)
    for _ in range(3):
        physical_a, physical_b = a.physical_ns(now), b.physical_ns(now)
        a.vote(NODES[1], now, physical_b, now)
        b.vote(NODES[0], now, physical_a, now)
    assert abs(a.offset_ns - b.offset_ns) < 10**6
    assert not a.synced
    assert not b.synced
