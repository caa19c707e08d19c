"""Law: a link whose answers come late is known as late while they do, and as good soon after they do not.

One lucky answer clears no late link, and a good one is not called late for one slow answer. What was late is asked
often enough that it is told late for seconds after its recovery, however many members there are, and by single pings
in the place of others.
"""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from swarmd_protocols.effects import MemberState
from swarmd_protocols.swim import lateness
from swarmd_protocols.swim.config import SwimConfig
from swarmd_protocols.swim.lateness import EVERY
from swarmd_protocols.swim.members import Member
from swarmd_protocols.swim.messages import LINK_LATE
from tests.support.swim_net import MS, Net

WINDOW_NS = SwimConfig().probe_window_ns
trips = st.integers(1, 4 * WINDOW_NS)
slow = st.integers(WINDOW_NS + 8, 4 * WINDOW_NS)
quick = st.integers(1, WINDOW_NS // 4)


class Link:
    """A link as its answers make it."""

    def __init__(self) -> None:
        self.rtt_ns = 0
        self.late = False

    def answer(self, trip_ns: int) -> bool:
        self.rtt_ns = lateness.smoothed(self.rtt_ns, trip_ns, WINDOW_NS, late=self.late)
        self.late = lateness.is_late(self.rtt_ns, WINDOW_NS, late=self.late)
        return self.late


def late_link(before: list[int]) -> Link:
    """A link with any past, whose answers come late from then on."""
    link = Link()
    for trip_ns in [*before, *[2 * WINDOW_NS] * 12]:
        link.answer(trip_ns)
    assert link.late
    return link


@settings(derandomize=True, deadline=None)
@given(before=st.lists(trips, max_size=20), late=st.lists(slow, max_size=20), lucky=trips)
@example(before=[], late=[], lucky=1)
@example(before=[], late=[WINDOW_NS + 8] * 20, lucky=1)
def test_one_lucky_answer_clears_no_late_link(before, late, lucky):
    check_lucky(before, late, lucky)


def check_lucky(before: list[int], late: list[int], lucky: int) -> None:
    link = late_link(before)
    assert all(link.answer(trip_ns) for trip_ns in late)
    assert link.answer(lucky)


@settings(derandomize=True, deadline=None)
@given(answers=st.lists(st.tuples(quick, st.integers(WINDOW_NS * 3 // 2 + 8, 4 * WINDOW_NS)), max_size=30))
@example(answers=[(1, WINDOW_NS * 3 // 2 + 8)] * 30)
def test_a_link_that_is_quick_every_second_time_stays_late(answers):
    check_every_second(answers)


def check_every_second(answers: list[tuple[int, int]]) -> None:
    link = late_link([])
    assert all(link.answer(quick_ns) and link.answer(late_ns) for quick_ns, late_ns in answers)


@settings(derandomize=True, deadline=None)
@given(before=st.lists(trips, max_size=20), answers=st.lists(quick, min_size=3, max_size=3))
@example(before=[], answers=[WINDOW_NS // 4] * 3)
def test_three_quick_answers_clear_a_late_link(before, answers):
    check_quick(before, answers)


def check_quick(before: list[int], answers: list[int]) -> None:
    link = late_link(before)
    for trip_ns in answers:
        link.answer(trip_ns)
    assert not link.late


@settings(derandomize=True, deadline=None)
@given(before=st.lists(quick, min_size=1, max_size=20), late=trips)
@example(before=[WINDOW_NS // 4], late=4 * WINDOW_NS)
def test_one_slow_answer_makes_no_link_late(before, late):
    check_slow(before, late)


def check_slow(before: list[int], late: int) -> None:
    link = Link()
    assert not any(link.answer(trip_ns) for trip_ns in [*before, late, 1])


# --- in a swarm ------------------------------------------------------------------------------------------------------


def seen(net: Net, observer: int, subject: int) -> Member:
    return net.hosts[observer].node._core.table.by_node[net.hosts[subject].node.node]


def slowed(count: int, links: int, seed: int) -> tuple[Net, list[int]]:
    """A swarm in which some links of the first node are slow, and known to be: those that are not on its ring."""
    net = Net(count, seed)
    assert net.run_until(net.formed, 10) is not None
    ring = sorted(net.hosts, key=lambda host: host.node.node)
    at = ring.index(net.hosts[0])
    around = [host.index for host in [*ring[at + 1 :], *ring[:at]]]
    others = around[2 : 2 + links]
    for other in others:
        net.slow_ns[0, other] = net.slow_ns[other, 0] = 350 * MS
    assert net.run_until(lambda: all(seen(net, 0, other).link.quality == LINK_LATE for other in others), 240, 0.25)
    assert net.all_see(MemberState.DEGRADED, others[0], [0])
    return net, others


@settings(max_examples=2, deadline=None, derandomize=True)
@given(links=st.integers(1, 3), seed=st.integers(0, 99))
@example(links=1, seed=1)
def test_a_link_that_was_late_is_good_soon_after_its_answers_are_in_time(links, seed):
    check_recovers(links, seed)


def check_recovers(links: int, seed: int) -> None:
    count = 16
    net, others = slowed(count, links, seed)
    net.run(5)
    assert all(seen(net, 0, other).link.quality == LINK_LATE for other in others)
    net.slow_ns.clear()
    period_s = SwimConfig().protocol_period_ns / 1e9
    # Three answers of each, in every fourth turn, and one more that was on its way; budgets may stretch the period.
    bound_s = 1.5 * EVERY * period_s * 4 * links
    good = lambda: all(seen(net, 0, other).link.quality == 0 for other in others)  # noqa: E731
    assert net.run_until(good, bound_s) is not None
    assert net.run_until(lambda: net.all_see(MemberState.ALIVE, others[0], range(count)), 5) is not None


def test_late_links_cost_no_more_than_others():
    check_cost(pytest.MonkeyPatch())


def check_cost(patch: pytest.MonkeyPatch) -> None:
    """Beside the same swarm in which late links are asked in their own turn alone."""
    sent = []
    for every in (EVERY, 2**30):
        with patch.context() as inner:
            inner.setattr(lateness, "EVERY", every)
            net, others = slowed(12, 4, 3)
            before = net.hosts[0].bytes_out
            net.run(30)
            assert seen(net, 0, others[0]).link.quality == LINK_LATE
            sent.append(net.hosts[0].bytes_out - before)
    assert sent[0] < 1.15 * sent[1], sent
