"""Laws of gaps in an origin's user events: nothing is given up that a cut holds back, and nothing waits for ever."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from swarmd_protocols.effects import UserEvent
from swarmd_protocols.swim import user_events
from swarmd_protocols.swim.event_claims import CUT_OFF_NS
from tests.support.mutants import assert_found
from tests.support.swim_net import Net, S

COUNT, ORIGIN = 7, 1
SIDE = [4, 5]
"""These two lose the first event and hear the second."""
OTHERS = [index for index in range(COUNT) if index not in SIDE]


def with_a_gap(seed: int) -> Net:
    """A swarm of which two members have heard an origin's second event and not its first."""
    net = Net(COUNT, seed)
    assert net.run_until(net.formed, 8) is not None
    net.run(6)
    net.cut(OTHERS, SIDE, one_way=True)
    net.feed(ORIGIN, UserEvent("first", b""))
    net.run(0.02)
    net.blocked.clear()
    net.feed(ORIGIN, UserEvent("second", b""))
    net.run_until(lambda: all(waits(net, index) for index in SIDE), 0.05, 0.001)
    return net


def waits(net: Net, index: int) -> bool:
    log = net.hosts[index].node._swim.events.logs.get(net.hosts[ORIGIN].node.node)
    return log is not None and bool(log.pending)


def told(net: Net, index: int) -> list[str]:
    return [event.name for _, at, event in net.delivered() if at == index]


@settings(max_examples=6, deadline=None, derandomize=True)
@given(cut_s=st.integers(6, 45), seed=st.integers(0, 99))
@example(cut_s=17, seed=1)
def test_what_a_cut_holds_back_is_not_given_up(cut_s: int, seed: int) -> None:
    check_cut(cut_s, seed)


def check_cut(cut_s: int, seed: int) -> None:
    net = with_a_gap(seed)
    net.cut(OTHERS, SIDE)
    net.run(cut_s)
    net.blocked.clear()
    net.run(15)
    assert {tuple(told(net, index)) for index in range(COUNT)} == {("first", "second")}


@settings(max_examples=3, deadline=None, derandomize=True)
@given(seed=st.integers(0, 99))
def test_what_died_with_its_origin_holds_nothing_up_for_ever(seed: int) -> None:
    check_death(seed)


def check_death(seed: int) -> None:
    """All who heard the first event die: the second is delivered, late."""
    net = with_a_gap(seed)
    for index in OTHERS:
        net.kill(index)
    net.run(CUT_OFF_NS / S + 6)
    assert [told(net, index) for index in SIDE] == [["second"], ["second"]]


def test_a_gap_that_is_given_up_behind_a_cut_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(
        lambda patch: patch.setattr(user_events, "_is_cut_off", lambda *_: False),
        lambda: check_cut(17, 1),
        monkeypatch,
    )


def test_a_gap_that_is_awaited_for_ever_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(lambda patch: patch.setattr(user_events, "CUT_OFF_NS", 1 << 62), lambda: check_death(1), monkeypatch)
