"""Law: a node that is let in and hears others is told what is said from then on, though nobody hears what it asks.

It starts again, one of its hellos gets through (or somebody plays it again), and nothing else that it says for a while.
"""

from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from swarmd_protocols.channel.channel import CONTACT, GROUP
from swarmd_protocols.effects import DatagramReceived, Started
from swarmd_protocols.swim.event_baseline import Answers
from swarmd_protocols.swim.repair import Repair
from tests.support.mutants import Mutant, assert_found
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


def who_was_not_asked_tells_it(count: int, seed: int, late_s: int, waits_s: int) -> None:
    """It has met one member, which does not hear it; a stranger plays its hello to another, which it has not met."""
    net = Net(count, seed=seed)
    net.run(10)
    net.hosts[0].node._swim.events.say("old", b"")
    net.run(3)
    net.kill(STARTS)
    net.run(10)
    real, hellos = net.carry, list[bytes]()
    net.is_mute = True  # type: ignore[attr-defined]

    def carry(host: Host, destination: str, event: object, loss: float) -> None:
        if host.index == STARTS and net.is_mute:  # type: ignore[attr-defined]
            if isinstance(event, DatagramReceived) and event.data[0] & 15 in (GROUP, CONTACT):
                hellos.append(event.data)
            return
        real(host, destination, event, loss)

    net.carry = carry  # type: ignore[method-assign]
    net.restart(STARTS)
    core = net.hosts[0].node._core
    core.scheduler.at(net.now, lambda _: core.port.hello(net.address(STARTS), True), None)
    net.run(late_s)
    net.feed(count - 1, DatagramReceived(net.address(count), hellos[0]))
    net.run(SETTLED_S + waits_s)
    before = len(net.delivered())
    sayers = [index for index in range(count) if index != STARTS]
    for index in sayers:
        net.hosts[index].node._swim.events.say(f"new-{index}", bytes(400))
    net.run(5)
    net.is_mute = False  # type: ignore[attr-defined]
    net.run(HEALED_S)
    told = sorted(event.name for _, index, event in net.delivered()[before:] if index == STARTS)
    assert told == [f"new-{index}" for index in sayers], told


@settings(deadline=None, max_examples=12)
@given(st.integers(4, 7), st.integers(0, 99), st.integers(1, 4), st.integers(1, 10))
@example(7, 3, 3, 1)
def test_who_was_not_asked_tells_it_all_the_same(count: int, seed: int, late_s: int, waits_s: int) -> None:
    who_was_not_asked_tells_it(count, seed, late_s, waits_s)


def _silent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Repair, "tell_unheard", lambda *_: None)


def _deaf_to_the_unasked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Answers, "take_unasked", lambda self, now_ns: False)


@pytest.mark.parametrize(
    ("mutant", "law"),
    [
        (_silent, lambda: what_is_said_comes(5, 1, 10, 10, is_new=True)),
        (_deaf_to_the_unasked, lambda: who_was_not_asked_tells_it(7, 3, 3, 1)),
    ],
)
def test_mutants_are_found(mutant: Mutant, law: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
