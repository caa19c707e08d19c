"""Law: what a node says before it has met anybody reaches all that it meets, once each, whatever its disk forgot.

It has lost its journal, numbers its life as an earlier one, and hears nobody for a while.
"""

from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from swarmd_protocols.channel.channel import CONTACT, GROUP
from swarmd_protocols.effects import DatagramReceived, Started, UserEvent
from swarmd_protocols.swim import event_alone
from swarmd_protocols.swim.event_alone import Alone
from swarmd_protocols.swim.rules import BOOT_SHIFT
from tests.support.mutants import assert_found
from tests.support.swim_net import Host, Net

HEALED_S = 20


def others_than(net: Net, index: int) -> list[int]:
    return [host.index for host in net.hosts if host.index != index]


def said_alone(
    count: int, seed: int, lives: int, before: int, alone: int, *, lost: bool, hears: bool, one_way: bool
) -> Net:
    """The last node has had `lives` lives, said `before` events in each, and then `alone` ones that nobody hears.

    Args:
        count: Nodes.
        seed: Of all draws.
        lives: Lives of the last node whose journal it keeps.
        before: Events in each of them.
        alone: Events in the life after them, before it meets anybody.
        lost: Whether its journal is lost then.
        hears: Whether it hears others while it is alone, without being heard.
        one_way: Whether others hear it then.
    """
    net = Net(count, seed=seed)
    assert net.run_until(net.formed, 10) is not None
    last = count - 1
    others = others_than(net, last)
    for life in range(lives):
        for number in range(before):
            net.feed(last, UserEvent(f"old-{life}-{number}", bytes(40)))
        net.run(4)
        if life < lives - 1:
            net.kill(last)
            net.restart(last)
            net.run(4)
    net.kill(last)
    net.run(1)
    if hears:
        net.cut([last], others, one_way=True)
    else:
        net.cut(others, [last], one_way=one_way)
    net.restart(last, keep_journal=not lost)
    for number in range(alone):
        net.run(1.3)
        net.feed(last, UserEvent(f"new-{number}", bytes(40)))
    net.run(1)
    net.blocked.clear()
    net.run(HEALED_S)
    return net


def it_reaches_all_once(*args: int, lost: bool = True, hears: bool = False, one_way: bool = False) -> None:
    net = said_alone(*args, lost=lost, hears=hears, one_way=one_way)
    count, alone = args[0], args[-1]
    wanted = [f"new-{number}" for number in range(alone)]
    for index in range(count):
        told = [event.name for _, at, event in net.delivered() if at == index and event.name.startswith("new-")]
        assert told == wanted, (index, told)
        everything = Counter(event.name for _, at, event in net.delivered() if at == index)
        assert index == count - 1 or max(everything.values()) == 1
    assert net.agreed()


@settings(deadline=None, max_examples=15)
@given(
    st.integers(2, 5),
    st.integers(0, 99),
    st.integers(1, 3),
    st.integers(0, 4),
    st.integers(1, 6),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
@example(5, 1, 1, 2, 1, True, False, True)
@example(5, 1, 3, 4, 3, True, False, False)
@example(3, 1, 1, 2, 3, False, False, True)
def test_what_was_said_alone_reaches_all_once(
    count: int, seed: int, lives: int, before: int, alone: int, lost: bool, hears: bool, one_way: bool
) -> None:
    it_reaches_all_once(count, seed, lives, before, alone, lost=lost, hears=hears, one_way=one_way)


def test_a_founder_that_had_forgotten_a_life_tells_what_it_said_alone() -> None:
    """It has no seeds: nobody to look for, so that it waits for no answer."""
    net = Net(3, seed=1)
    net.run(4)
    for number in range(3):
        net.feed(0, UserEvent(f"old-{number}", b""))
    net.run(3)
    net.kill(0)
    net.cut([0], [1, 2])
    net.restart(0, keep_journal=False)
    net.feed(0, UserEvent("new", b""))
    net.run(5)
    net.blocked.clear()
    net.run(HEALED_S)
    for index in (1, 2):
        assert [event.name for _, at, event in net.delivered() if at == index and event.name == "new"] == ["new"]


def test_a_newcomer_of_a_founder_is_not_told_what_was_said_before() -> None:
    net = Net(2, seed=1, start=False)
    net.feed(0, Started())
    for number in range(3):
        net.feed(0, UserEvent(f"old-{number}", bytes(1_100)))
    net.run(60)
    net.feed(1, Started())
    net.run(10)
    assert [event.name for _, at, event in net.delivered() if at == 1] == []


def test_what_was_said_alone_is_in_the_journal_under_its_new_number_alone() -> None:
    net = said_alone(3, 1, 2, 3, 2, lost=True, hears=False, one_way=True)
    host = net.hosts[2]
    own = host.node._core.own
    numbers = sorted(
        int.from_bytes(key[-8:], "big") for key in host.journal if key.startswith(b"swim/event/" + own.node)
    )
    assert numbers == [(own.boot << BOOT_SHIFT) + 1, (own.boot << BOOT_SHIFT) + 2]
    assert own.boot == 3


def what_an_earlier_life_said_alone_comes_first(count: int, speaks: str) -> None:
    """Nobody else holds it: the journal does, and the first event of a life follows whatever came before it."""
    net = Net(count, seed=1)
    assert net.run_until(net.formed, 10) is not None
    last = count - 1
    net.feed(last, UserEvent("before", b""))
    net.run(4)
    net.cut([last], others_than(net, last))
    for number in range(3):
        net.feed(last, UserEvent(f"old-{number}", b""))
    net.run(2)
    net.kill(last)
    net.restart(last)
    net.run(2)
    if speaks == "alone":
        net.feed(last, UserEvent("new", b""))
    net.blocked.clear()
    assert net.run_until(lambda: net.hosts[last].node._swim.events.has_baseline, 20) is not None
    if speaks == "when met":
        net.feed(last, UserEvent("new", b""))
    net.run(HEALED_S)
    for index in others_than(net, last):
        told = [event.name for _, at, event in net.delivered() if at == index]
        assert told == ["before", "old-0", "old-1", "old-2", "new"], (index, told)
    assert net.agreed()


@pytest.mark.parametrize("speaks", ["alone", "when met"])
@pytest.mark.parametrize("count", [2, 3, 6])
def test_what_an_earlier_life_said_alone_comes_first(count: int, speaks: str) -> None:
    what_an_earlier_life_said_alone_comes_first(count, speaks)


def test_who_knows_what_was_said_is_told_at_once() -> None:
    """After a restart that lost nothing an event is pushed: the first answer shows that all is known."""
    net = Net(6, seed=1)
    assert net.run_until(net.formed, 10) is not None
    for number in range(3):
        net.feed(5, UserEvent(f"old-{number}", b""))
    net.run(4)
    net.kill(5)
    net.restart(5)
    assert net.run_until(lambda: net.hosts[5].node._swim.events.has_baseline, 20) is not None
    net.feed(5, UserEvent("new", b""))
    net.run(0.05)
    assert sorted(at for _, at, event in net.delivered() if event.name == "new") == list(range(6))


def who_answers_too_little_is_not_told_twice() -> None:
    """Another that has forgotten everything hears it first, and only first contacts of that one arrive."""
    net = Net(4, seed=1)
    assert net.run_until(net.formed, 10) is not None
    for number in range(2):
        net.feed(3, UserEvent(f"old-{number}", b""))
    net.run(3)
    net.cut([2, 3], [0, 1])
    real, is_mute = net.carry, [True]

    def carry(host: Host, destination: str, event: object, loss: float) -> None:
        is_contact = isinstance(event, DatagramReceived) and event.data[0] & 15 in (GROUP, CONTACT)
        if host.index != 2 or is_contact or not is_mute[0]:
            real(host, destination, event, loss)

    net.carry = carry  # type: ignore[assignment,method-assign]
    for index in (2, 3):
        net.kill(index)
        host = net.hosts[index]
        host.journal.clear()
        host.node = net.make(index, {})
        host.node._swim.seeds = dict.fromkeys((net.address(5 - index), net.address(0)), -(2**62))
    for index in (2, 3):
        net.hosts[index].up = True
        net.feed(index, Started())
    net.feed(3, UserEvent("new", b""))
    net.run(5)
    net.blocked.clear()
    net.run(5)
    is_mute[0] = False
    net.run(HEALED_S)
    for index in range(4):
        assert [event.name for _, at, event in net.delivered() if at == index and event.name == "new"] == ["new"], index


def test_who_answers_too_little_is_not_told_twice() -> None:
    who_answers_too_little_is_not_told_twice()


def test_mutants_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def keeps_its_numbers(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(event_alone, "BOOT_SHIFT", 0)

    with monkeypatch.context() as patch:
        assert_found(keeps_its_numbers, lambda: it_reaches_all_once(5, 1, 1, 2, 1, one_way=True), patch)

    def says_at_once(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(Alone, "holds", lambda *_: False)

    with monkeypatch.context() as patch:
        assert_found(says_at_once, who_answers_too_little_is_not_told_twice, patch)

    def lets_the_newest_be_first(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(Alone, "keeps", lambda *_: None)

    with monkeypatch.context() as patch:
        assert_found(
            lets_the_newest_be_first, lambda: what_an_earlier_life_said_alone_comes_first(3, "when met"), patch
        )
