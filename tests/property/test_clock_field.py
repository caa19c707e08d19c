"""Fifty clocks of a mesh, or of a line, come to one time within a minute. Each law has mutants that break it."""

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.clock import Clock, ClockConfig
from swarmd_protocols.state.sent import Sent
from swarmd_protocols.state.time_questions import TimeQuestions
from swarmd_protocols.subprotocol import Peer, Send
from tests.support.clock_field import MS, Field, S
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


def fifty_on_a_line_have_one_time_after_a_minute() -> None:
    """A question goes twelve hops, and parts that are longer agree among themselves; nobody hears both ends."""
    for seed in SEEDS:
        field = Field(50, seed, is_line=True)
        field.run(60)
        assert field.spread_ms(60) <= 100, seed


def a_hundred_on_a_line_have_after_two_minutes() -> None:
    for seed in (2, 3):
        field = Field(100, seed, is_line=True)
        field.run(120)
        assert field.spread_ms(120) <= 100, seed


def who_is_not_reached_yet_takes_no_question_on_a_long_line() -> None:
    """All are known by their records, and no report of sixty has come: only those answer to whom a way is known."""
    nodes = [NodeId(bytes((index + 1,)) * 16) for index in range(88)]
    far = [Peer(node, "", b"", True, 90, True, 4 * hops, b"r") for hops, node in enumerate(nodes[2:28], 2)]
    near = [Peer(node, "", b"", True, 90, False, 4, side) for node, side in zip(nodes, (b"l", b"r"), strict=False)]
    unknown = [Peer(node, "", b"", True, 90, True, 0, b"") for node in nodes[28:]]
    clock, questions = Clock(ClockConfig(), 1_700_000_000 * S), TimeQuestions(random.Random(1), Sent())
    questions.know_peers([*near, *far, *unknown])
    asked: list[NodeId] = []
    for second in range(1, 21):
        for send in questions.ask(second * S, clock):
            assert isinstance(send, Send)
            asked.append(send.to)
            if send.to in nodes[:28]:
                clock.vote(send.to, second * S, clock.physical_ns(second * S), second * S + MS)
    assert asked
    assert set(asked) <= set(nodes[:28])
    assert clock.synced


def few_liars_move_nobody_on_a_line() -> None:
    """Five anywhere, or three side by side, who are all that join two parts, far ahead or to and fro."""
    for seed in (1, 2, 3):
        rng = random.Random(seed)
        first = rng.randrange(48)
        for liars in (rng.sample(range(50), 5), [first, first + 1, first + 2]):
            for lie in (lambda now_ns: 3 * S, lambda now_ns: 400 * MS if now_ns // S // 2 % 2 else -400 * MS):
                field = Field(50, seed, is_line=True)
                field.liars = dict.fromkeys(liars, lie)
                field.run(60)
                assert field.spread_ms(60) <= 100, (seed, liars)


def sides_are_asked_alike(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("swarmd_protocols.state.time_questions._SIDES_POWER", 0)


def whoever_s_turn_it_is_is_asked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TimeQuestions, "_of_one_side", lambda self, peers, turn_ns: peers)


def who_agrees_is_sure_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("swarmd_protocols.state.time_questions._SETTLES_NS", 0)


def all_are_on_some_side(patch: pytest.MonkeyPatch) -> None:
    original = TimeQuestions.know_peers

    def know_peers(self: TimeQuestions, peers: Sequence[Peer]) -> None:
        original(self, peers)
        self._side = {peer.node: peer.over for peer in peers if peer.reachable}
        self._members = Counter(self._side.values())

    patch.setattr(TimeQuestions, "know_peers", know_peers)


def clocks_follow_the_mean(patch: pytest.MonkeyPatch) -> None:
    def mean(self: Clock, counted: list[tuple[NodeId, int]]) -> list[int]:
        return [sum(offset for _, offset in counted) // len(counted)] if counted else []

    patch.setattr(Clock, "_weighted", mean)


def far_ones_are_rare(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("swarmd_protocols.state.time_questions._FAR_GAP_NEW_NS", 15_000_000)
    patch.setattr("swarmd_protocols.state.time_questions._FAR_GAP_NS", 15_000_000)


def far_ones_are_asked_each_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TimeQuestions, "_far_gap_ns", lambda self, clock, now_ns: 0)


LAWS: list[tuple[Law, Mutant]] = [
    (fifty_have_one_time_after_a_minute, far_ones_are_rare),
    (their_questions_stay_few, far_ones_are_asked_each_time),
    (fifty_on_a_line_have_one_time_after_a_minute, sides_are_asked_alike),
    (fifty_on_a_line_have_one_time_after_a_minute, whoever_s_turn_it_is_is_asked),
    (a_hundred_on_a_line_have_after_two_minutes, who_agrees_is_sure_at_once),
    (who_is_not_reached_yet_takes_no_question_on_a_long_line, all_are_on_some_side),
    (few_liars_move_nobody_on_a_line, clocks_follow_the_mean),
]


@each_law(LAWS)
def test_law(law: Law) -> None:
    law()


@each_mutant(LAWS)
def test_a_law_finds_its_mutant(law: Law, mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
