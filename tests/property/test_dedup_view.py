"""The incremental view equals the rule from nothing, after any change, in any order."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.facts import ASSET, LATTICE, TRACK, Sighting
from swarmd_protocols.state.dedup.config import DedupConfig
from swarmd_protocols.state.dedup.gate import fuse
from swarmd_protocols.state.dedup.view import DedupView
from tests.support.dedup_reference import decide

NODES = [NodeId(bytes([n]) * 16) for n in range(4)]
CONFIG = DedupConfig(groups={"b": "a"})
CROWDED = DedupConfig(groups={"b": "a"}, crowd_max=2, listed_max=1)


def row(draw_or_rng):
    """A random sighting in a small world, so that everything collides."""
    pick = draw_or_rng
    kind = pick([LATTICE] * 6 + [ASSET] * 2 + [TRACK])
    east, north = pick(range(0, 900, 30)), pick(range(0, 900, 30))
    sigma = pick([10, 40, 150])
    place = {
        LATTICE: (pick(range(6)), pick(range(6))),
        ASSET: pick(["p1", "p2", "p3"]),
        TRACK: (1, pick(range(5))),
    }[kind]
    model = pick([b"", bytes(8), b"model--1", b"model--1", b"model--1", b"model--2"])
    features = bytes([pick([1, 1, 1, 2]), *(pick([0, 100, 156]) for _ in range(16))]) if pick([0, 1, 1]) else b""
    beside = ((pick(range(-2, 3)), pick(range(-2, 3))),) if kind == LATTICE and pick([0, 0, 1]) else ()
    return Sighting(
        pick(["a", "a", "b", "c"]), kind, place, kind == TRACK and pick([True, False]), pick([True] * 5 + [False]),
        east, north, (sigma**2, 0, sigma**2), 500, pick(range(20)) << 16, 100 << 16, 1, model, beside,
        b"", features,
    )  # fmt: skip


def state_of(view):
    return {(e.origin, e.row.key): (e.leader.origin, e.leader.row.key) for e in view.all()}


def check(view, rows, config):
    assert state_of(view) == decide(rows, config)


def run(pick, steps, config, budgets=(None,)):
    view, rows, dots = DedupView(config), {}, 0
    for _ in range(steps):
        action = pick(["put"] * 5 + ["remove", "settle"])
        budget = pick(budgets)
        if budget is not None:
            # A slice: nothing, one decision or some, with whoever has used up its share coming last.
            view.undecided.slow = set(pick([(), NODES[:1], NODES[1:3]]))
            view.settle(budget)
        if action == "put":
            dots += 1
            node, sighting = pick(NODES), row(pick)
            rows[node, sighting.key] = sighting
            view.put(node, sighting, (1, dots))
        elif action == "remove" and rows:
            name = pick(sorted(rows, key=repr))
            del rows[name]
            view.remove(*name)
        else:
            view.settle()
            check(view, rows, config)
    view.settle()
    check(view, rows, config)
    return rows


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_incremental_is_from_scratch(data):
    run(lambda options: data.draw(st.sampled_from(list(options))), data.draw(st.integers(1, 25)), CONFIG)


@pytest.mark.slow
def test_incremental_is_from_scratch_in_larger_worlds():
    for seed in range(150):
        rng = random.Random(seed)
        run(lambda options, rng=rng: rng.choice(list(options)), 80, CONFIG)


@pytest.mark.slow
def test_where_slices_end_and_whose_work_comes_last_does_not_show():
    for seed in range(250):
        rng = random.Random(seed)
        config = CROWDED if seed % 2 else CONFIG
        run(lambda options, rng=rng: rng.choice(list(options)), 60, config, budgets=(None, 0, 1, 30))


@pytest.mark.slow
def test_a_crowd_is_told_apart_up_to_its_bound():
    for seed in range(250):
        rng = random.Random(seed)
        run(lambda options, rng=rng: rng.choice(list(options)), 80, CROWDED)


def test_one_decision_costs_no_more_however_much_one_origin_stacks_on_a_spot():
    """The bound behind slices: looking around is bounded, so that a slice ends soon after its budget."""
    worst = {}
    for total in (500, 2_000):
        view, rng = DedupView(DedupConfig()), random.Random(2)
        for n in range(total):
            east, north = rng.randrange(700), rng.randrange(700)
            view.put(NODES[0], Sighting("a", LATTICE, (n, 0), False, True, east, north, (0, 0, 0), 1, n << 16, n << 16,
                                        1, b"", ((-1, 0),)), (1, n + 1))  # fmt: skip
            view.settle()
        worst[total] = 0
        for step in range(40):
            wide = 10**10 * (step % 2)
            view.put(NODES[0], Sighting("a", LATTICE, (-9, 0), False, True, 345, 345, (wide, step % 2, wide), 1, 0, 0,
                                        1, b"", ()), (2, step + 1))  # fmt: skip
            while view.undecided:
                worst[total] = max(worst[total], view.settle(1))
    assert worst[2_000] <= 1.2 * worst[500] < 2_000


def test_plain_distance_too():
    config = DedupConfig(use_covariance=False)
    for seed in range(60):
        rng = random.Random(seed)
        run(lambda options, rng=rng: rng.choice(list(options)), 60, config)


def test_order_does_not_matter():
    for seed in range(20):
        rng = random.Random(seed)
        rows = run(lambda options, rng=rng: rng.choice(list(options)), 60, CONFIG)
        states = []
        for _ in range(4):
            view = DedupView(CONFIG)
            names = list(rows) * 2
            rng.shuffle(names)
            for count, name in enumerate(names):
                view.put(name[0], rows[name], (1, 1))
                if count % 7 == 0:
                    view.settle()
            view.settle()
            states.append(state_of(view))
        assert all(state == states[0] for state in states)


def test_leaders_are_apart_and_everybody_is_near_one():
    config = DedupConfig(use_covariance=False)
    for seed in range(10):
        rng = random.Random(seed)
        view = DedupView(config)
        for n in range(300):
            sighting = Sighting(
                "a", LATTICE, (n, 0), False, True, rng.randrange(8000), rng.randrange(8000), (1, 0, 1), 1,
                rng.randrange(1000) << 16, 1000 << 16, 1, b"", (),
            )  # fmt: skip
            view.put(rng.choice(NODES), sighting, (1, n + 1))
        view.settle()
        places = [(e.row.east_cm, e.row.north_cm) for e in view.leaders()]
        for i, (x, y) in enumerate(places):
            assert all((x - a) ** 2 + (y - b) ** 2 > 500**2 for a, b in places[:i])
        for entry in view.all():
            lead = entry.leader.row
            assert (entry.row.east_cm - lead.east_cm) ** 2 + (entry.row.north_cm - lead.north_cm) ** 2 <= 500**2


def test_a_newer_sighting_changes_no_other_leader():
    for seed in range(30):
        rng = random.Random(seed)
        view = DedupView(CONFIG)
        for n in range(60):
            sighting = row(lambda options, rng=rng: rng.choice(list(options)))
            if sighting.kind == ASSET:
                continue
            before = {e for e in view.all() if e.leader is e}
            fresh = sighting._replace(place=(n, 100), first=(100 + n) << 16, beside=())
            view.put(rng.choice(NODES), fresh, (1, n + 1))
            view.settle()
            after = {e for e in view.all() if e.leader is e}
            assert before <= after


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(-(10**6), 10**6), st.integers(-(10**6), 10**6), st.integers(1, 10**5)),
        min_size=1,
        max_size=6,
    ),
    st.randoms(use_true_random=False),
)
def test_fusing_knows_no_order_and_only_gains(reports, rng):
    packed = [(e, n, (v, v // 3, v + 5)) for e, n, v in reports]
    shuffled = packed[:]
    rng.shuffle(shuffled)
    result = fuse(packed, 5)
    assert fuse(shuffled, 5) == result
    best = min(v + v + 5 for _, _, v in reports)
    assert result[2][0] + result[2][2] <= best + 60
    assert min(e for e, _, _ in reports) - 500000 <= result[0] <= max(e for e, _, _ in reports) + 500000
