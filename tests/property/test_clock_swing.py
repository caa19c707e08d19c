"""Whom a clock in a mesh follows while it is young, and how that ends. Each law has a mutant that breaks it."""

from itertools import product

import pytest

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.clock import Clock, ClockConfig
from tests.support.mutants import Law, Mutant, assert_found, each_law, each_mutant

MS, S = 1_000_000, 1_000_000_000
HONEST = [NodeId(bytes((index,)) * 16) for index in range(3)]
THIEVES = [NodeId(bytes((100 + index,)) * 16) for index in range(3)]


def half_of_the_voters_move_it_no_more_once_it_is_old() -> None:
    """Three of six say 400 ms less and as much more in turn: each time the median is another by more than a step."""
    clock = Clock(ClockConfig(), 1_700_000_000 * S)
    clock.asks_far = clock.has_few_near = True
    true_ns, late_ms = clock.offset_ns, 0
    for second in range(90):
        now_ns = (100 + second) * S
        for voter in HONEST:
            clock.vote(voter, now_ns, now_ns + true_ns, now_ns)
        for voter in THIEVES:
            clock.vote(voter, now_ns, now_ns + true_ns + (400 if second // 2 % 2 else -400) * MS, now_ns)
        stepped_ms = clock.take_step_ms()
        if now_ns > 101 * S + 2 * ClockConfig().young_ns:
            late_ms += abs(stepped_ms)
    assert late_ms == 0
    assert not clock.is_young(190 * S)


def what_was_said_while_all_were_young_counts_no_more() -> None:
    """Where a swarm begins, each is set by its neighbours, who move in their turn; six have answered since."""
    clock = Clock(ClockConfig(), 1_700_000_000 * S)
    clock.asks_far = clock.has_few_near = True
    true_ns, begun_ns = clock.offset_ns, 100 * S
    many = [NodeId(bytes((index,)) * 16) for index in range(20)]
    for second, voter in enumerate(many[:14]):
        now_ns = begun_ns + second * S // 2
        clock.vote(voter, now_ns, now_ns + true_ns + (240 if second % 7 else -900) * MS, now_ns)
    for second, voter in enumerate(many[14:]):
        now_ns = begun_ns + (25 + second) * S
        clock.vote(voter, now_ns, now_ns + true_ns, now_ns)
    now_ns = begun_ns + 60 * S
    clock.slew(now_ns)
    assert abs(clock.offset_ns - true_ns) <= 5 * MS


def meshed(voters: int) -> tuple[Clock, list[NodeId], int]:
    """A clock that asks over others and was set a minute ago; its voters; the time that they had."""
    clock = Clock(ClockConfig(), 1_700_000_000 * S)
    nodes = [NodeId(bytes((index,)) * 16) for index in range(voters)]
    clock.asks_far, clock.voters = True, voters
    true_ns = clock.offset_ns
    tell(clock, nodes, true_ns, 100 * S)
    tell(clock, nodes, true_ns, 160 * S)
    return clock, nodes, true_ns


def tell(clock: Clock, nodes: list[NodeId], offset_ns: int, now_ns: int) -> None:
    for node in nodes:
        clock.vote(node, now_ns, now_ns + offset_ns, now_ns)


def who_hears_two_times_is_unsure_and_not_for_long() -> None:
    """Three of twelve keep another time, below what is stepped: others are asked quickly, for two minutes."""
    clock, nodes, true_ns = meshed(12)
    assert clock.is_sure(160 * S)
    for now_s in (165, 200, 215):
        tell(clock, nodes[:3], true_ns + 100 * MS, now_s * S)
        assert not clock.is_sure(now_s * S), now_s
    tell(clock, nodes[:3], true_ns + 100 * MS, 221 * S)
    assert clock.is_sure(221 * S)


def a_liar_keeps_nobody_unsure() -> None:
    for voters in (6, 12):
        clock, nodes, true_ns = meshed(voters)
        for now_s in range(161, 200):
            tell(clock, nodes[:1], true_ns - 240 * MS, now_s * S)
            assert clock.is_sure(now_s * S), (voters, now_s)


def who_is_far_from_all_goes_there_in_seconds() -> None:
    """Unsure it slews by a twelfth: what it tells others meanwhile is wrong."""
    clock, nodes, true_ns = meshed(12)
    for now_s in range(161, 166):
        tell(clock, nodes, true_ns + 200 * MS, now_s * S)
        clock.slew(now_s * S)
    assert abs(clock.offset_ns - true_ns - 200 * MS) <= 60 * MS


def fielded(far: int) -> tuple[Clock, list[NodeId], int]:
    """A clock with eight near and 41 out of reach, of whom so many have answered; set a while ago.

    Returns:
        It, its voters, the near ones first, and the time that all had.
    """
    clock, nodes, true_ns = meshed(8 + far)
    clock.near, clock.voters = frozenset(nodes[:8]), 49
    return clock, nodes, true_ns


def a_neighbourhood_keeps_no_time_of_its_own() -> None:
    """Four far ones stand for forty."""
    clock, nodes, true_ns = fielded(4)
    tell(clock, nodes[8:], true_ns + 200 * MS, 165 * S)
    assert clock._target_ns == true_ns + 200 * MS


def two_far_ones_that_lie_are_fewer_than_those_near() -> None:
    """However few are near, whatever the far ones stand for, and however many of those have answered."""
    for near, far, lie_ms in product((3, 4, 5, 6, 8), (1, 2, 3, 4, 5), (200, -200)):
        for others in range(far, 42, 3):
            clock, nodes, true_ns = meshed(near + far)
            clock.near, clock.voters = frozenset(nodes[:near]), near + others
            tell(clock, nodes[near : near + 2], true_ns + lie_ms * MS, 165 * S)
            assert clock._target_ns == true_ns, (near, far, lie_ms, others)


def one_that_says_nothing_keeps_nobody_unsure() -> None:
    clock, nodes, _ = meshed(8)
    clock.near, clock.voters = frozenset(nodes), 9
    assert clock.is_sure(160 * S)


def what_many_said_before_holds_nobody_back() -> None:
    """Fourteen have moved since they were asked; the next twelve are where they went."""
    clock, nodes, true_ns = meshed(26)
    tell(clock, nodes[:14], true_ns, 165 * S)
    for index, node in enumerate(nodes[14:]):
        tell(clock, [node], true_ns + 200 * MS, (170 + index) * S)
    assert clock._target_ns == true_ns + 200 * MS


def who_has_heard_those_near_alone_is_not_sure() -> None:
    for far in range(8):
        assert fielded(far)[0].is_sure(160 * S) == (far >= 6), far


def who_is_on_a_long_line_is_not_sure_before_its_ends_can_have_spoken() -> None:
    """All that it has asked agree; two minutes at most, however long the line is said to be."""
    for settles_s, sure_s in ((30, 100), (90, 190), (600, 220)):
        clock, nodes, true_ns = meshed(12)
        clock.settles_ns = settles_s * S
        for now_s in range(161, 230, 3):
            tell(clock, nodes, true_ns, now_s * S)
            assert clock.is_sure(now_s * S) == (now_s >= sure_s), (settles_s, now_s)


def no_far_one_weighs_more(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Clock, "_far_weight", lambda self, counted: 1)


def a_far_one_weighs_what_it_stands_for(patch: pytest.MonkeyPatch) -> None:
    def stands_for(self: Clock, counted: list[tuple[NodeId, int]]) -> int:
        near = sum(voter in self.near for voter, _ in counted)
        far = len(counted) - near
        return max(1, (self.voters - len(self.near)) // far) if self.asks_far and near and far > 1 else 1

    patch.setattr(Clock, "_far_weight", stands_for)


def all_that_is_settled_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Clock, "_counted", Clock._settled)


def all_others_are_waited_for(patch: pytest.MonkeyPatch) -> None:
    def has_asked_few(self: Clock, now_ns: int) -> bool:
        others = self.voters - len(self.near)
        return sum(voter not in self.near for voter, _ in self._settled(now_ns)) < others

    patch.setattr(Clock, "_has_asked_few_far", has_asked_few)


def near_ones_are_enough(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Clock, "_has_asked_few_far", lambda self, now_ns: False)


def two_times_are_none_of_its_business(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Clock, "_is_contested", lambda self, now_ns: False)


def one_voter_is_enough_to_doubt(patch: pytest.MonkeyPatch) -> None:
    def is_contested(self: Clock, now_ns: int) -> bool:
        return any(abs(vote - self._target_ns) > 60 * MS for _, vote in self._counted(now_ns))

    patch.setattr(Clock, "_is_contested", is_contested)


def all_slew_alike(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Clock, "_slew_ppm", lambda self, now_ns: self._config.far_slew_ppm)


def all_lines_are_short(patch: pytest.MonkeyPatch) -> None:
    original = Clock._is_contested

    def is_contested(self: Clock, now_ns: int) -> bool:
        self.settles_ns = 0
        return original(self, now_ns)

    patch.setattr(Clock, "_is_contested", is_contested)


def each_step_makes_it_young(patch: pytest.MonkeyPatch) -> None:
    original = Clock._settle

    def settle(self: Clock, now_ns: int) -> None:
        before = self._stepped_ms
        original(self, now_ns)
        if self._stepped_ms != before:
            self._synced_ns = now_ns

    patch.setattr(Clock, "_settle", settle)


def all_that_was_said_counts(patch: pytest.MonkeyPatch) -> None:
    def counted(self: Clock, now_ns: int) -> list[tuple[NodeId, int]]:
        return [(voter, offset) for voter, (offset, _) in self._votes.items()]

    patch.setattr(Clock, "_counted", counted)


LAWS: list[tuple[Law, Mutant]] = [
    (half_of_the_voters_move_it_no_more_once_it_is_old, each_step_makes_it_young),
    (what_was_said_while_all_were_young_counts_no_more, all_that_was_said_counts),
    (who_hears_two_times_is_unsure_and_not_for_long, two_times_are_none_of_its_business),
    (a_liar_keeps_nobody_unsure, one_voter_is_enough_to_doubt),
    (who_is_far_from_all_goes_there_in_seconds, all_slew_alike),
    (a_neighbourhood_keeps_no_time_of_its_own, no_far_one_weighs_more),
    (two_far_ones_that_lie_are_fewer_than_those_near, a_far_one_weighs_what_it_stands_for),
    (one_that_says_nothing_keeps_nobody_unsure, all_others_are_waited_for),
    (what_many_said_before_holds_nobody_back, all_that_is_settled_counts),
    (who_has_heard_those_near_alone_is_not_sure, near_ones_are_enough),
    (who_is_on_a_long_line_is_not_sure_before_its_ends_can_have_spoken, all_lines_are_short),
]


@each_law(LAWS)
def test_law(law: Law) -> None:
    law()


@each_mutant(LAWS)
def test_a_law_finds_its_mutant(law: Law, mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
