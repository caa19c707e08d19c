"""The law of events that came too early and had no room: what its origin still keeps is never given up for that.

Of an origin that floods (here: 250 large events in a second) one wait is enough, as ever: `test_author_laws.py`.
"""

from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from swarmd_protocols.effects import UserEvent
from swarmd_protocols.swim.event_log import EventLog
from tests.support.mutants import assert_found
from tests.support.swim_net import Net

COUNT, ORIGIN, BEHIND = 7, 1, 5
OTHERS = [index for index in range(COUNT) if index != BEHIND]


def full_of_gaps(said: int, every: int, seed: int) -> Net:
    """A swarm of which one member was cut off while another spoke, and heard but some of it: room for no more."""
    net = Net(COUNT, seed)
    assert net.run_until(net.formed, 8) is not None
    net.run(6)
    for number in range(said):
        net.blocked.clear()
        net.cut([index for index in OTHERS if index != ORIGIN or number % every], [BEHIND], one_way=True)
        net.feed(ORIGIN, UserEvent(f"e{number}", b""))
        net.run(0.004)
    return net


def told(net: Net, index: int) -> list[str]:
    return [event.name for _, at, event in net.delivered() if at == index]


def log_of_origin(net: Net, index: int) -> EventLog:
    return net.hosts[index].node._swim.events.logs[net.hosts[ORIGIN].node.node]


@settings(max_examples=6, deadline=None, derandomize=True)
@given(st.integers(150, 300), st.integers(1, 3), st.integers(0, 99))
@example(250, 1, 1)
@example(250, 2, 1)
def test_what_had_no_room_comes_again(said: int, every: int, seed: int) -> None:
    check_room(said, every, seed)


def check_room(said: int, every: int, seed: int) -> None:
    net = full_of_gaps(said, every, seed)
    net.run(6)
    net.blocked.clear()
    net.feed(ORIGIN, UserEvent("last", b""))
    kept = [*(f"e{number}" for number in range(said - 63, said)), "last"]
    net.run(30)
    names = told(net, BEHIND)
    assert [name for name in kept if name not in names] == []
    assert names == sorted(set(names), key=names.index)


def _what_had_no_room_is_given_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EventLog, "spare", lambda self, given_up, until_ns: given_up)


def _what_had_no_room_is_awaited_for_ever(patch: pytest.MonkeyPatch) -> None:
    original = EventLog.spare

    def spare(self: EventLog, given_up: int, until_ns: int) -> int:
        displaced = self._displaced
        spared = original(self, given_up, until_ns)
        self._displaced = displaced
        return spared

    patch.setattr(EventLog, "spare", spare)


@pytest.mark.parametrize("mutant", [_what_had_no_room_is_given_up, _what_had_no_room_is_awaited_for_ever])
def test_the_law_finds_the_mutant(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_found(mutant, lambda: check_room(250, 1, 1), monkeypatch)
