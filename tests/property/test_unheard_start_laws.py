"""Law: a node that is let in and hears others is told what is said from then on, though nobody hears what it asks.

It starts again, one of its hellos gets through (or somebody plays it again), and nothing else that it says for a while.
"""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from swarmd_protocols.channel.channel import CONTACT, GROUP
from swarmd_protocols.effects import DatagramReceived, Started
from swarmd_protocols.swim.repair import Repair
from tests.support.mutants import assert_found
from tests.support.swim_net import Host, Net

STARTS = 1
SETTLED_S = 5
"""What is said later than this after a node was let in is its to deliver (the checker `state.event_lost`)."""
HEALED_S = 10


def only_one_hello_gets_out(net: Net) -> None:
    """Of all that `STARTS` sends from now on one first contact arrives, until its way is free again."""
    real, passed = net.carry, list[bytes]()

    def carry(host: Host, destination: str, event: object, loss: float) -> None:
        if host.index == STARTS and net.is_mute:  # type: ignore[attr-defined]
            if passed or not isinstance(event, DatagramReceived) or event.data[0] & 15 not in (GROUP, CONTACT):
                return
            passed.append(event.data)
        real(host, destination, event, loss)

    net.carry = carry  # type: ignore[method-assign]
    net.is_mute = True  # type: ignore[attr-defined]


def what_is_said_comes(count: int, seed: int, waits_s: int, mute_s: int, *, is_new: bool) -> None:
    net = Net(count, seed=seed, start=False)
    for index in range(count):
        if index != STARTS or not is_new:
            net.feed(index, Started())
    net.run(10)
    net.hosts[0].node._swim.events.say("old", b"")
    net.run(3)
    only_one_hello_gets_out(net)
    net.restart(STARTS)
    net.run(SETTLED_S + waits_s)
    before = len(net.delivered())
    sayers = [index for index in range(count) if index != STARTS]
    for index in sayers:
        net.hosts[index].node._swim.events.say(f"new-{index}", bytes(400))
    net.run(mute_s)
    net.is_mute = False  # type: ignore[attr-defined]
    net.run(HEALED_S)
    told = sorted(event.name for _, index, event in net.delivered()[before:] if index == STARTS)
    assert told == [f"new-{index}" for index in sayers], told


@settings(deadline=None, max_examples=12)
@given(st.integers(3, 6), st.integers(0, 99), st.integers(1, 15), st.integers(0, 20), st.booleans())
@example(5, 1, 10, 10, False)
@example(5, 1, 10, 10, True)
def test_who_is_let_in_and_not_heard_is_told_what_is_said(
    count: int, seed: int, waits_s: int, mute_s: int, is_new: bool
) -> None:
    what_is_said_comes(count, seed, waits_s, mute_s, is_new=is_new)


def test_mutants_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(Repair, "tell_unheard", lambda *_: None)

    assert_found(silent, lambda: what_is_said_comes(5, 1, 10, 10, is_new=True), monkeypatch)
