"""Law: a number of an author's events stands for one content, whatever its disk lost, and whatever a member claims.

Members say events, start again with their journal, an older copy of it, one whose record of lives was damaged, or none,
are cut off and come back, and one of them lies about how far everybody was heard. Nobody ever hears two events under
one number, and whoever says an event is told of it: what a journal gives back takes no later event's place.
"""

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from swarmd_protocols import node as node_module
from swarmd_protocols.effects import UserEvent
from swarmd_protocols.swim import event_shelf
from swarmd_protocols.swim.event_alone import Alone
from swarmd_protocols.swim.members import Member
from swarmd_protocols.swim.messages import EventBody, SignedEvent
from swarmd_protocols.swim.rules import BOOT_SHIFT
from swarmd_protocols.swim.user_events import UserEvents
from tests.support.mutants import Mutant, assert_found
from tests.support.swim_net import Net

FAR = 500
HEALED_S = 12
STEPS = ("say", "again", "older", "damaged", "lost", "cut", "heal", "lie")
LOST_LIVES = [("say", 0), ("damaged", 0), ("say", 0)]
"""The record of lives was damaged while own events were not, and nobody else knows of those lives."""
LOST_DISK = [("say", 1), ("cut", 1), ("lost", 1), ("say", 1), ("heal", 1), ("say", 1)]
"""It speaks alone, numbered as in a life that others know, and goes on before it is answered."""


class Numbers:
    """What was heard under which number, by anybody."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.heard: dict[tuple[bytes, int], str] = {}
        self.clashes: list[tuple[int, str, str]] = []
        real = UserEvents._hear

        def hear(events: UserEvents, origin: object, body: EventBody, message: SignedEvent, via: Member) -> None:
            first = self.heard.setdefault((body.origin, body.sequence), body.name)
            if first != body.name:
                self.clashes.append((body.sequence, first, body.name))
            real(events, origin, body, message, via)  # type: ignore[arg-type]

        patch.setattr(UserEvents, "_hear", hear)


def lie(net: Net) -> None:
    """The first host says from now on that everybody was heard much further than it was."""
    events = net.hosts[0].node._swim.events
    known = {host.node.node: host.node._core.own.boot << BOOT_SHIFT for host in net.hosts[1:]}
    far = tuple(sorted((node, first + FAR) for node, first in known.items()))
    events.vector = lambda: far  # type: ignore[method-assign]


def restart(net: Net, index: int, how: str, copies: dict[int, dict[bytes, bytes]]) -> None:
    net.kill(index)
    journal = net.hosts[index].journal
    if how == "damaged":
        journal.pop(b"node/boot", None)
    if how == "older" and index in copies:
        journal.clear()
        journal.update(copies[index])
    copies[index] = dict(journal)
    net.restart(index, keep_journal=how != "lost")


def one_number_one_content(count: int, seed: int, steps: list[tuple[str, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        numbers = Numbers(patch)
        net, rng = Net(count, seed=seed), Random(seed)
        net.run(4)
        copies: dict[int, dict[bytes, bytes]] = {}
        said: dict[str, int] = {}
        for what, which in steps:
            index = which % count
            if what == "say":
                for _ in range(2):
                    said[f"e{len(said)}"] = index
                    net.feed(index, UserEvent(f"e{len(said) - 1}", b""))
            elif what == "cut":
                net.cut([index], [other for other in range(count) if other != index])
            elif what == "heal":
                net.blocked.clear()
            elif what == "lie":
                lie(net)
            else:
                restart(net, index, what, copies)
            net.run(rng.choice((0.05, 1, 4)))
        net.blocked.clear()
        net.run(HEALED_S)
        assert numbers.clashes == []
        told = {(event.name, index) for _, index, event in net.delivered()}
        assert [name for name, index in said.items() if (name, index) not in told] == []


@settings(deadline=None, max_examples=15)
@given(
    st.integers(1, 4),
    st.integers(0, 99),
    st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 3)), min_size=2, max_size=8),
)
@example(1, 1, LOST_LIVES)
@example(2, 2, LOST_DISK)
def test_a_number_stands_for_one_content(count: int, seed: int, steps: list[tuple[str, int]]) -> None:
    one_number_one_content(count, seed, steps)


def _lives_are_what_their_record_says(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(node_module, "last_life", lambda records, node: 0)


def _forgotten_numbers_are_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Alone, "holds", lambda self, origin: False)


@pytest.mark.parametrize(
    ("mutant", "example"),
    [
        (_lives_are_what_their_record_says, (1, 1, LOST_LIVES)),
        (_forgotten_numbers_are_told, (2, 2, LOST_DISK)),
    ],
)
def test_mutants_are_found(
    mutant: Mutant, example: tuple[int, int, list[tuple[str, int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_found(mutant, lambda: one_number_one_content(*example), monkeypatch)


def test_what_is_damaged_or_anothers_says_nothing_of_lives() -> None:
    net = Net(2, seed=1)
    net.run(4)
    net.feed(1, UserEvent("said", b""))
    net.run(4)
    own, other = (host.node.node for host in net.hosts)
    journal = dict(net.hosts[1].journal)
    assert event_shelf.last_life(journal, other) == 1
    assert event_shelf.last_life(journal, own) == 0
    ((key, value),) = ((key, value) for key, value in journal.items() if key.startswith(b"swim/event/" + other))
    far = key[:-8] + ((1 << BOOT_SHIFT) * 99).to_bytes(8, "big")
    assert event_shelf.last_life({far: value}, other) == 0, "the check is of the key too"
