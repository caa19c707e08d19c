"""Laws of members that fly between two parts which never hear each other: they bring what gone members have said."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from swarmd_protocols.effects import UserEvent
from swarmd_protocols.swim.repair import Repair
from tests.support.mutants import assert_found
from tests.support.swim_net import Net, S

HOME, CARRIERS, AWAY = [0, 1], [2, 3], [4, 5]
ALL = [*HOME, *CARRIERS, *AWAY]
ORIGIN = 1
SAID = tuple(f"event {number}" for number in range(3))
GONE_S = 20
"""After so long both parts hold each other for failed."""


def told(net: Net, index: int) -> tuple[str, ...]:
    return tuple(event.name for _, at, event in net.delivered() if at == index)


def carried(seed: int, flight_s: int, *, loses_power: bool) -> Net:
    """All had met; the parts are far apart; the carriers hear the events, fly, and are with the others for 6 s."""
    net = Net(len(ALL), seed)
    assert net.run_until(net.formed, 8) is not None
    net.run(6)
    net.cut([*HOME, *CARRIERS], AWAY)
    net.run(GONE_S)
    for name in SAID:
        net.feed(ORIGIN, UserEvent(name, b""))
    net.run(2)
    net.cut(HOME, CARRIERS)
    for index in CARRIERS if loses_power else ():
        net.kill(index)
    net.run(flight_s)
    net.blocked = {pair for pair in net.blocked if set(pair) & set(HOME)}
    for index in CARRIERS if loses_power else ():
        net.restart(index)
    net.run(10 if loses_power else 6)
    return net


@settings(max_examples=8, deadline=None, derandomize=True)
@given(seed=st.integers(0, 99), flight_s=st.integers(0, 60), loses_power=st.booleans())
@example(seed=1, flight_s=30, loses_power=False)
@example(seed=1, flight_s=30, loses_power=True)
def test_what_gone_members_said_is_brought_once_and_in_order(seed: int, flight_s: int, loses_power: bool) -> None:
    check_carried(seed, flight_s, loses_power=loses_power)


def check_carried(seed: int, flight_s: int, *, loses_power: bool) -> None:
    net = carried(seed, flight_s, loses_power=loses_power)
    assert {index: told(net, index) for index in ALL} == dict.fromkeys(ALL, SAID)
    net.blocked.clear()
    net.run(GONE_S)
    assert {told(net, index) for index in ALL} == {SAID}


@settings(max_examples=4, deadline=None, derandomize=True)
@given(seed=st.integers(0, 99))
@example(seed=8)
def test_a_cut_that_ends_shows_nobody_who_is_gone(seed: int) -> None:
    """Who fell silent is back within two seconds, and counts: comparison brings what its part has said."""
    net = Net(8, seed)
    assert net.run_until(net.formed, 8) is not None
    net.run(6)
    net.cut([0, 1, 2, 3], [4, 5, 6, 7])
    net.run(GONE_S)
    net.feed(0, UserEvent("left", b""))
    net.feed(7, UserEvent("right", b""))
    net.run(2)
    net.blocked.clear()
    net.run(10)
    assert all(set(told(net, index)) == {"left", "right"} for index in range(8))
    assert shown(net) == 0


@settings(max_examples=4, deadline=None, derandomize=True)
@given(seed=st.integers(0, 99), flaps=st.integers(2, 8))
def test_who_comes_and_goes_is_shown_it_once_each_time(seed: int, flaps: int) -> None:
    net = carried(seed, GONE_S, loses_power=False)
    before = shown(net)
    for _ in range(flaps):
        net.cut(CARRIERS, AWAY)
        net.run(GONE_S)
        net.blocked = {pair for pair in net.blocked if set(pair) & set(HOME)}
        net.run(6)
    # Each of the two on each side meets at most two others again each time.
    assert shown(net) - before <= 8 * flaps
    assert {told(net, index) for index in ALL} == {SAID}


def shown(net: Net) -> int:
    return sum(host.node._core.counters["gone_shown"] for host in net.hosts)


# --- mutants ---------------------------------------------------------------------------------------------------------


def nobody_is_shown_what_gone_ones_said(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Repair, "on_met", lambda self, member: None)


def they_are_shown_to_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("swarmd_protocols.swim.repair._MET_NS", S // 1_000)


@pytest.mark.parametrize("loses_power", [False, True])
def test_the_law_finds_a_carrier_that_keeps_it_to_itself(monkeypatch: pytest.MonkeyPatch, loses_power: bool) -> None:
    assert_found(
        nobody_is_shown_what_gone_ones_said, lambda: check_carried(7, 30, loses_power=loses_power), monkeypatch
    )


def test_the_law_finds_those_who_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    law = test_a_cut_that_ends_shows_nobody_who_is_gone
    assert_found(they_are_shown_to_at_once, law, monkeypatch)
