"""A claim stands for as long as news takes to whoever may contend, and back: two never both begin a cell."""

from dataclasses import dataclass, field
from heapq import heappop, heappush

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.claims.claims import Claims
from swarmd_protocols.state.claims.config import ClaimConfig
from swarmd_protocols.state.claims.delays import Delays, usual_ns
from swarmd_protocols.state.crdt.records import Lease
from tests.support.mutants import assert_found

MS, S = 1_000_000, 1_000_000_000
CONFIG = ClaimConfig()
END_NS = 40 * S


def node(number: int) -> NodeId:
    return NodeId(bytes([number + 1]) * 16)


@dataclass
class Line:
    """Nodes on a line that hear each other's claims after the sum of the hops between them."""

    hops_ms: list[int]
    cells: list[tuple[str, int, int]]
    now_ns: int = 0
    count: int = 0
    queue: list[tuple[int, int, int, tuple[int, tuple[Lease, ...]] | None]] = field(default_factory=list)
    """When, order, whose; and whose record comes, where one does."""
    begun: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.nodes = [Claims(node(at), CONFIG) for at in range(len(self.hops_ms) + 1)]
        roster = [node(at) for at in range(len(self.nodes))]
        for claims in self.nodes:
            claims.define(self.cells)
            claims.know_roster(roster, roster, -END_NS)

    def delay_ns(self, one: int, other: int) -> int:
        return sum(self.hops_ms[min(one, other) : max(one, other)]) * MS

    def measure(self, by_answers: bool, liar: int | None, lie_ns: int) -> None:
        """Each has measured each other; whoever lies is measured as it likes."""
        for at, claims in enumerate(self.nodes):
            for other in range(len(self.nodes)):
                delay_ns = lie_ns if other == liar else self.delay_ns(at, other)
                if other != at and by_answers:
                    claims.delays.answered(node(other), 2 * delay_ns, 0)
                elif other != at:
                    claims.delays.heard(node(other), delay_ns, 0)

    def put(self, at_ns: int, whose: int, said: tuple[int, tuple[Lease, ...]] | None = None) -> None:
        self.count += 1
        heappush(self.queue, (at_ns, self.count, whose, said))

    def run(self, wants: list[tuple[int, int, int]]) -> None:
        """Each wants a cell: when, from where east, with what battery."""
        for at, (when_ms, _, _) in enumerate(wants):
            self.put(when_ms * MS, at)
        free = dict(enumerate(wants))
        while self.queue and self.queue[0][0] < END_NS:
            self.now_ns, _, at, said = heappop(self.queue)
            claims = self.nodes[at]
            if said is not None:
                claims.hear(node(said[0]), said[1], self.now_ns)
            elif at in free and self.now_ns >= free[at][0] * MS:
                _, east_cm, battery_milli = free.pop(at)
                claims.want(east_cm, 0, battery_milli)
            begun, _ = claims.step(self.now_ns)
            for cell in begun:
                other = self.begun.setdefault(cell, at)
                assert other == at, f"{other} and {at} both began {cell} in a line of {self.hops_ms} ms"
            if claims.dirty:
                claims.dirty = False
                for hearer in range(len(self.nodes)):
                    if hearer != at:
                        self.put(self.now_ns + self.delay_ns(at, hearer), hearer, (at, claims.record()))
            self.put(claims.due_ns(self.now_ns), at)


def lines(nodes_min: int = 2) -> st.SearchStrategy[list[int]]:
    """Hops, milliseconds: 5 s from end to end at most, for a claim stands for a renewal (10 s) at most."""
    return st.lists(st.integers(0, 2_500), min_size=nodes_min - 1, max_size=5).map(
        lambda hops: [hop * 5_000 // max(5_000, sum(hops)) for hop in hops]
    )


cells = st.lists(st.integers(0, 30_000), min_size=1, max_size=3, unique=True).map(
    lambda easts: [(f"c{at}", east, 0) for at, east in enumerate(easts)]
)
wants = st.lists(
    st.tuples(st.integers(0, 9_000), st.integers(0, 30_000), st.integers(0, 1_000)), min_size=6, max_size=6
)


@settings(max_examples=400, deadline=None)
@given(lines(), cells, wants, st.booleans())
@example([1_500, 1_500], [("c", 0, 0)], [(0, 0, 1_000), (9_000, 0, 1_000), (100, 0, 1_000)], True)
@example([10, 2_400], [("c", 0, 0)], [(4_000, 0, 1_000), (9_000, 0, 1_000), (0, 20_000, 1_000)], True)
def two_never_begin_a_cell(
    hops_ms: list[int], area: list[tuple[str, int, int]], free: list[tuple[int, int, int]], by_answers: bool
) -> None:
    line = Line(hops_ms, area)
    line.measure(by_answers, None, 0)
    line.run(free[: len(line.nodes)])


@settings(max_examples=200, deadline=None)
@given(lines(4), cells, wants, st.integers(0, 3), st.integers(0, 60_000))
def one_liar_makes_no_two_begin_a_cell(
    hops_ms: list[int], area: list[tuple[str, int, int]], free: list[tuple[int, int, int]], liar: int, lie_ms: int
) -> None:
    """Whoever lies about its own delay; what it begins itself is its own affair."""
    line = Line(hops_ms, area)
    line.measure(True, liar, lie_ms * MS)
    others = [at for at in range(len(line.nodes)) if at != liar]
    line.run([want if at in others else (END_NS // MS, 0, 0) for at, want in enumerate(free[: len(line.nodes)])])


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 40_000), min_size=2, max_size=12), st.integers(0, 10**9))
def one_liar_adds_what_the_farthest_other_takes(honest_ms: list[int], lie_ms: int) -> None:
    delays, most_ms = Delays(CONFIG), max(honest_ms)
    delays.know(len(honest_ms) + 1, ())
    for at, both_ms in enumerate(honest_ms):
        delays.answered(node(at), both_ms * MS, 0)
    truth_ns = delays.settle_ns(0)
    delays.answered(node(99), lie_ms * MS, 0)
    assert truth_ns <= delays.settle_ns(0) <= max(CONFIG.settle_ns, 2 * most_ms * MS)
    assert delays.settle_ns(0) <= max(CONFIG.settle_ns, CONFIG.renew_ns), "however slow all are"


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(2_000, 5_000), min_size=2, max_size=4),
    st.integers(5_001, 9_000),
    st.integers(0, 200),
    st.integers(0, 200),
)
@example([2_000, 2_000], 6_000, 0, 61)
def who_has_left_counts_for_two_leases(near_ms: list[int], far_ms: int, left_s: int, later_s: int) -> None:
    """Two far ones leave the roster for good; whoever stays counts, however long ago it was measured."""
    claims, near, far = Claims(node(0), CONFIG), range(1, len(near_ms) + 1), (20, 21)
    everybody = [node(0), *map(node, near), *map(node, far)]
    claims.know_roster(everybody, everybody, 0)
    for at, both_ms in [*zip(near, near_ms, strict=True), *((at, far_ms) for at in far)]:
        claims.delays.answered(node(at), both_ms * MS, 0)
    assert claims.delays.settle_ns(left_s * S) == far_ms * MS
    claims.know_roster(everybody[:-2], everybody[:-2], left_s * S)
    now_s = left_s + later_s
    counts_ms = far_ms if now_s * S <= 2 * CONFIG.lease_ns else min(max(near_ms), 2 * sorted(near_ms)[-2])
    assert claims.delays.settle_ns(now_s * S) == max(CONFIG.settle_ns, counts_ms * MS)


LAWS = [
    two_never_begin_a_cell,
    one_liar_makes_no_two_begin_a_cell,
    one_liar_adds_what_the_farthest_other_takes,
    who_has_left_counts_for_two_leases,
]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_a_claim_waits_for_those_who_contend(law) -> None:  # type: ignore[no-untyped-def]
    law()


SETTLE, WITH = Delays.settle_ns, Delays.settle_with_ns


def always_two_seconds(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Delays, "settle_ns", lambda self, now_ns: CONFIG.settle_ns)
    patch.setattr(Delays, "settle_with_ns", lambda self, member: CONFIG.settle_ns)


def only_the_way_there(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Delays, "settle_ns", lambda self, now_ns: max(CONFIG.settle_ns, SETTLE(self, now_ns) // 2))
    patch.setattr(Delays, "settle_with_ns", lambda self, member: max(CONFIG.settle_ns, WITH(self, member) // 2))


def the_second_farthest_is_enough(patch: pytest.MonkeyPatch) -> None:
    def second(self: Delays, now_ns: int) -> int:
        both = sorted(self._both.values())
        return max(CONFIG.settle_ns, both[-2 if len(both) > 1 else 0])

    patch.setattr(Delays, "settle_ns", second)


def the_farthest_is_believed(patch: pytest.MonkeyPatch) -> None:
    def farthest(self: Delays, now_ns: int) -> int:
        return max(CONFIG.settle_ns, min(CONFIG.renew_ns, max(self._both.values())))

    patch.setattr(Delays, "settle_ns", farthest)


def there_is_no_bound(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Delays, "_bounded_ns", lambda self, both_ns: max(CONFIG.settle_ns, both_ns))


def who_takes_what_waits_does_not_wait(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Delays, "settle_with_ns", lambda self, member: CONFIG.settle_ns)


def who_has_left_counts_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Delays, "settle_ns", lambda self, now_ns: SETTLE(self, 0))


def who_stays_counts_for_two_leases(patch: pytest.MonkeyPatch) -> None:
    know = Delays.know
    patch.setattr(Delays, "know", lambda self, others, away, here=(): know(self, others, away))


MUTANTS = [
    (always_two_seconds, two_never_begin_a_cell),
    (only_the_way_there, two_never_begin_a_cell),
    (the_second_farthest_is_enough, two_never_begin_a_cell),
    (who_takes_what_waits_does_not_wait, two_never_begin_a_cell),
    (the_farthest_is_believed, one_liar_adds_what_the_farthest_other_takes),
    (who_has_left_counts_for_ever, who_has_left_counts_for_two_leases),
    (who_stays_counts_for_two_leases, who_has_left_counts_for_two_leases),
    (there_is_no_bound, one_liar_adds_what_the_farthest_other_takes),
]


@pytest.mark.parametrize(("mutant", "law"), MUTANTS, ids=[mutant.__name__ for mutant, _ in MUTANTS])
def test_the_mutant_is_caught(mutant, law, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    assert_found(mutant, law, monkeypatch)


def test_what_one_in_four_exceeds_is_no_measure() -> None:
    assert usual_ns([]) == 0
    assert [usual_ns(list(range(1, count + 1))) for count in range(1, 9)] == [1, 2, 3, 3, 4, 5, 6, 6]


def test_a_table_of_delays_is_bounded_and_lets_go_of_who_is_out() -> None:
    delays = Delays(CONFIG)
    for number in range(3_000):
        delays.answered(NodeId(number.to_bytes(16, "big")), 9 * S, 0)
    assert len(delays) == len(delays._answered) == len(delays._at_ns) == 1_024
    for number in range(3_000):
        delays.forget(NodeId(number.to_bytes(16, "big")))
    assert delays.settle_ns(0) == CONFIG.settle_ns


def test_who_is_away_is_not_waited_for() -> None:
    delays = Delays(CONFIG)
    delays.know(2, ())
    for number, both_ns in ((1, 8 * S), (2, 6 * S)):
        delays.answered(node(number), both_ns, 0)
    assert delays.settle_ns(0) == 8 * S
    delays.know(1, {node(1)})
    assert delays.settle_ns(0) == 6 * S
