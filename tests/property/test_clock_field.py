"""Fifty clocks of a mesh come to one time within a minute. Each law has mutants that break it."""

import pytest

from swarmd_protocols.state.time_questions import TimeQuestions
from tests.support.clock_field import Field
from tests.support.mutants import Law, Mutant, assert_found, each_law, each_mutant

SEEDS = range(1, 7)
HOPS_MOST = 2.5
"""Of questions, for each node and second of the first minute; answers come on top."""


def fifty_have_one_time_after_a_minute() -> None:
    """A part of eight who hear each other is a majority of whom each of them has asked, and none of the swarm."""
    for seed in SEEDS:
        field = Field(50, seed)
        field.run(60)
        assert field.spread_ms(60) <= 100, seed


def their_questions_stay_few() -> None:
    for seed in SEEDS:
        field = Field(50, seed)
        field.run(60)
        assert field.asked_hops <= 50 * 60 * HOPS_MOST, seed


def far_ones_are_rare(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("swarmd_protocols.state.time_questions._FAR_GAP_NEW_NS", 15_000_000)
    patch.setattr("swarmd_protocols.state.time_questions._FAR_GAP_NS", 15_000_000)


def far_ones_are_asked_each_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TimeQuestions, "_far_gap_ns", lambda self, clock, now_ns: 0)


LAWS: list[tuple[Law, Mutant]] = [
    (fifty_have_one_time_after_a_minute, far_ones_are_rare),
    (their_questions_stay_few, far_ones_are_asked_each_time),
]


@each_law(LAWS)
def test_law(law: Law) -> None:
    law()


@each_mutant(LAWS)
def test_a_law_finds_its_mutant(law: Law, mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
