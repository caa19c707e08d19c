"""What witnesses are worth together: laws of `dedup/tiers.py` over sets of words, and of one register's own looks."""

import random
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.config import ReplicaConfig
from swarmd_protocols.state.crdt.facts import LATTICE, Sighting
from swarmd_protocols.state.dedup import tiers
from swarmd_protocols.state.dedup.config import DedupConfig
from swarmd_protocols.state.dedup.tiers import (
    Witness,
    certainty_milli,
    evidence_milli,
    is_confirmed,
    merged,
    said_after,
)
from tests.support.state_mesh import Mesh, detection

CONFIG = DedupConfig(confirm_observers=1)
NODES = [NodeId(bytes([n]) * 16) for n in range(1, 7)]
LIAR = NODES[0]
MODELS = (b"model--1", b"model--2", b"model--3", b"model--4")
DAY_MS = 86_400_000
ALIKE = st.sampled_from([(0, 0), (970, 0), (960, 900), (1000, 1000), (1, 1), (300, 990)])


@st.composite
def words(draw: st.DrawFn) -> Witness:
    first = draw(st.integers(0, 3)) * DAY_MS + draw(st.integers(0, 10_000))
    last = first + draw(st.sampled_from([0, 60_000, DAY_MS]))
    certainty = draw(st.integers(0, 999) | st.sampled_from([0, 930, 990, 999]))
    return Witness(draw(st.sampled_from(NODES)), certainty, draw(st.sampled_from(MODELS)), first, last, draw(ALIKE))


def best_of_each(said: list[Witness]) -> list[int]:
    return [max(one.certainty_milli for one in said if one.origin == node) for node in {one.origin for one in said}]


@settings(max_examples=300, deadline=None)
@given(st.lists(words(), max_size=10), st.randoms(use_true_random=False))
def test_law_no_order_shows_and_no_word_takes_away(said: list[Witness], rng: random.Random) -> None:
    """Neither another's, nor an author's own second, third or tenth."""
    whole = evidence_milli(said, CONFIG)
    assert evidence_milli(rng.sample(said, len(said)), CONFIG) == whole
    for at in range(len(said)):
        assert evidence_milli(said[:at] + said[at + 1 :], CONFIG) <= whole


@settings(max_examples=300, deadline=None)
@given(st.lists(words(), min_size=1, max_size=10))
def test_law_looks_are_worth_at_least_one_and_at_most_independent_ones(said: list[Witness]) -> None:
    authors = best_of_each(said)
    assert max(authors) <= evidence_milli(said, CONFIG) <= min(1000, sum(authors))


@settings(max_examples=300, deadline=None)
@given(st.lists(words(), min_size=1, max_size=12), st.integers(1, 3))
def test_law_one_author_confirms_nothing(said: list[Witness], observers: int) -> None:
    """Whatever it says of whatever models and days, and however often."""
    alone = [word._replace(origin=LIAR) for word in said]
    assert evidence_milli(alone, CONFIG) < tiers.SURE_MILLI
    assert not is_confirmed(alone, CONFIG, observers)


@settings(max_examples=300, deadline=None)
@given(st.lists(words(), min_size=1, max_size=8))
@example(
    # The surest two are one author's: the best pair has its second word.
    [Witness(NODES[0], 900, MODELS[0]), Witness(NODES[0], 890, MODELS[1]), Witness(NODES[1], 880, MODELS[0])]
)
def test_law_the_choice_of_witnesses_is_the_best(said: list[Witness]) -> None:
    """Beside every choice tried one by one."""
    known = [tiers._known(one.alike, CONFIG) for one in said]
    best = 0
    for count in range(1, min(len(said), 6) + 1):
        for chosen in combinations(range(len(said)), count):
            some = [said[at] for at in chosen]
            if len({one.origin for one in some}) < count:
                continue
            limits = [max(known[at][0] for at in chosen)]
            if count <= 3 and len({one.model for one in some}) == count:
                limits.append(CONFIG.model_correlation_milli)
            apart = [a.last_ms - b.first_ms for a in some for b in some if a is not b]
            if count == 2 and max(apart) >= CONFIG.other_day_ms:
                limits.append(max(known[at][1] for at in chosen))
            total = sum(one.certainty_milli for one in some)
            best = max(best, *(1000 * total // (1000 + (count - 1) * limit) for limit in limits))
    assert evidence_milli(said, CONFIG) == min(1000, best)


@settings(max_examples=200, deadline=None)
@given(st.lists(words(), min_size=1, max_size=8), st.integers(0, 1000))
def test_law_who_says_that_its_looks_are_unlike_others_makes_no_others_so(said: list[Witness], low: int) -> None:
    """A liar's correlation counts for choices with itself in them, and there the other's, which is higher."""
    honest = [one._replace(alike=(960, 940), origin=NODES[1 + at % 5]) for at, one in enumerate(said)]
    lie = Witness(LIAR, 999, MODELS[0], 0, 9 * DAY_MS, (low, low))
    allowed = evidence_milli([*honest, lie._replace(alike=(960, 940))], CONFIG)
    assert evidence_milli([*honest, lie], CONFIG) <= max(allowed, evidence_milli(honest, CONFIG))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(NODES), st.integers(0, 999)), min_size=1, max_size=8))
def test_law_a_model_in_several_runtimes_is_one_model(said: list[tuple[NodeId, int]]) -> None:
    """Words of one bundle, on whatever runtimes, are looks of one model; an author's on two runtimes are one word.

    What two runtimes say of one picture is more alike (0.998) than two looks of one drone (0.979 at most).
    """
    same = [Witness(origin, certainty, MODELS[0], 0, 0, (970, 900)) for origin, certainty in said]
    best = sorted(best_of_each(same), reverse=True)
    worth = [1000 * sum(best[:count]) // (1000 + (count - 1) * 970) for count in range(1, len(best) + 1)]
    assert evidence_milli(same, CONFIG) == min(1000, max(worth))
    assert evidence_milli([one._replace(origin=LIAR) for one in same], CONFIG) == best[0]


def test_ten_looks_are_worth_the_measured_one() -> None:
    """At a correlation of 0.97 ten equal looks are 10 / (1 + 9 x 0.97) = 1.03; at what a bundle says, that."""
    ten = [Witness(NodeId(bytes([n]) * 16), 900, MODELS[0]) for n in range(10)]
    assert evidence_milli(ten[:1], CONFIG) == 900
    assert evidence_milli(ten, CONFIG) == pytest.approx(900 * 10 / (1 + 9 * 0.97), abs=1)
    measured = [one._replace(alike=(920, 0)) for one in ten]
    assert evidence_milli(measured, CONFIG) == pytest.approx(900 * 10 / (1 + 9 * 0.92), abs=1)
    assert evidence_milli([*measured[:9], ten[9]], CONFIG) == pytest.approx(900 * 9 / (1 + 8 * 0.92), abs=1)


def test_who_is_nearly_sure_is_confirmed_by_another_that_is() -> None:
    """Of one model both must be within 2 %, of two models within 3 %."""
    one, other = Witness(NODES[0], 990, MODELS[0]), Witness(NODES[1], 985, MODELS[0])
    assert is_confirmed([one, other], CONFIG, 1)
    assert not is_confirmed([one, other._replace(certainty_milli=970)], CONFIG, 1)
    assert is_confirmed([one, other._replace(certainty_milli=970, model=MODELS[1])], CONFIG, 1)
    assert not is_confirmed([one, other], CONFIG, 3)


def test_a_look_on_another_day_counts_by_its_own_correlation() -> None:
    said = (960, 800)
    one = Witness(NODES[0], 920, MODELS[0], 0, 0, said)
    for hours, is_worth_more in ((0, False), (7.9, False), (8, True), (30, True)):
        other = Witness(NODES[1], 920, MODELS[0], int(hours * 3_600_000), int(hours * 3_600_000), said)
        assert is_confirmed([one, other], CONFIG, 1) == is_worth_more
        assert evidence_milli([one, other], CONFIG) == (1000 if is_worth_more else 1000 * 1840 // 1960)
    unsaid = [one._replace(alike=(0, 0)), other]
    assert evidence_milli(unsaid, CONFIG) < 1000, "of two the higher correlation counts"
    alone = [one, one._replace(first_ms=other.first_ms, last_ms=other.last_ms)]
    assert evidence_milli(alone, CONFIG) == 920, "one author on two days is one witness"


def test_an_authors_second_word_by_anothers_model_takes_nothing_from_its_first() -> None:
    said = [Witness(NODES[0], 950, MODELS[0]), Witness(NODES[1], 950, MODELS[1])]
    assert evidence_milli([*said, Witness(NODES[0], 951, MODELS[1])], CONFIG) == evidence_milli(said, CONFIG) == 974


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 1000))
def test_law_certainty_rises_with_the_score(low: int, high: int, need: int, prior: int) -> None:
    low, high = min(low, high), max(low, high)
    assert certainty_milli(low, need, prior) <= certainty_milli(high, need, prior)
    assert (certainty_milli(high, need, prior) == tiers.SURE_MILLI) == (high >= need)


# --- One register ---

LOOKS = st.tuples(st.integers(0, 1000), st.integers(0, 1000), st.sampled_from(MODELS), ALIKE, st.integers(0, 3))


def witness_of(row: Sighting) -> Witness:
    worth = certainty_milli(row.score_milli, row.need_milli, CONFIG.prior_milli)
    return Witness(LIAR, worth, row.model, row.first >> 16, row.last >> 16, row.alike)


@settings(max_examples=400, deadline=None)
@given(st.lists(LOOKS, min_size=2, max_size=6), st.lists(words(), max_size=5))
def test_law_an_authors_further_look_never_lowers_the_evidence(
    looks: list[tuple[int, int, bytes, tuple[int, int], int]], others: list[Witness]
) -> None:
    """By whatever model, with whatever score, on whatever day."""
    others = [one._replace(origin=NODES[1 + at]) for at, one in enumerate(others)]
    row, before = None, 0
    for score, need, model, alike, day in sorted(looks, key=lambda one: one[4]):
        stamp = (day * DAY_MS) << 16
        seen = replace(detection(0, score=score), need_milli=need, model_digest=model, alike_milli=alike)
        if row is None:
            row = Sighting("a", LATTICE, (0, 0), False, True, 0, 0, (1, 0, 1), score, stamp, stamp, 1, model, (),
                           b"", b"", need if need > score else 0, alike if need > score else (0, 0))  # fmt: skip
        else:
            said = said_after(row, seen, CONFIG)
            row = row._replace(
                score_milli=said.score_milli, need_milli=said.need_milli, alike=said.alike, last=stamp,
                model=model if said.is_surer else row.model,
            )  # fmt: skip
        now = evidence_milli([witness_of(row), *others], CONFIG)
        assert now >= before
        before = now


def test_a_look_by_anothers_model_must_be_surer_by_more_than_it_loses() -> None:
    def score_of(certainty: int) -> int:
        return next(score for score in range(1000) if certainty_milli(score, 990, CONFIG.prior_milli) >= certainty)

    row = Sighting("a", LATTICE, (0, 0), False, True, 0, 0, (1, 0, 1), score_of(880), 1, 2, 1, MODELS[0], (), b"",
                   b"", 990)  # fmt: skip
    for certainty, is_taken in ((885, False), (950, True)):
        look = replace(detection(0, score=score_of(certainty)), need_milli=990, model_digest=MODELS[1])
        assert said_after(row, look, CONFIG).is_surer == is_taken
        assert said_after(row, replace(look, model_digest=MODELS[0]), CONFIG).is_surer


def test_a_register_that_was_sure_is_sure_when_two_lives_of_it_meet() -> None:
    sure = Sighting("a", LATTICE, (0, 0), False, True, 0, 0, (9, 0, 9), 700, 1, 2, 1, MODELS[0], ())
    unsure = sure._replace(covariance_cm2=(1, 0, 1), score_milli=800, need_milli=968, alike=(960, 900), last=9)
    for a, b in ((sure, unsure), (unsure, sure)):
        assert (merged(a, b, CONFIG).need_milli, merged(a, b, CONFIG).score_milli) == (0, 800)
    surer = unsure._replace(score_milli=900, covariance_cm2=(4, 0, 4))
    assert (merged(unsure, surer, CONFIG).score_milli, merged(surer, unsure, CONFIG).need_milli) == (900, 968)


def test_what_a_bundle_says_of_looks_reaches_everybody() -> None:
    """Two drones, neither sure, whose bundle has found two drones' looks little alike: a fault for all."""
    for alike, is_fault in (((0, 0), False), ((500, 400), True)):
        mesh = Mesh(3, config=ReplicaConfig(dedup=CONFIG))
        mesh.run(3)
        for index in (0, 1):
            mesh.see(index, replace(detection(mesh.now_ns, score=900), need_milli=968, alike_milli=alike))
        mesh.run(5)
        for replica in mesh.replicas:
            [view] = replica.views.objects()
            assert (view.is_fault, len(view.observers)) == (is_fault, 2)
