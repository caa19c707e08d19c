"""Who ends beside a frozen member is known to have, and nobody who is heard by one that is awake is said to have.

A frozen member says nothing new: what it said last of others stands for 12 s, but not of one whose end another saw who
had heard it. That takes no word in time: who lives is reached by whoever is awake, however late and lossy words come.
"""

from unittest.mock import Mock

import pytest

from swarmd_protocols.effects import MemberState, TimerFired
from swarmd_protocols.swim.mesh import frozen, near
from swarmd_protocols.swim.mesh.frozen import Frozen
from swarmd_protocols.swim.mesh.graph import awake, without
from tests.property.test_mesh_hostile import formed, lie
from tests.support.mesh_net import MeshNet, everybody, line
from tests.support.mutants import Law, Mutant, assert_found, each_law, each_mutant

ALIVE, FAILED, UNREACHABLE = MemberState.ALIVE, MemberState.FAILED, MemberState.UNREACHABLE
RING = line(6) | {(0, 5)}
CLOSE = {(a, (a + step) % 8) for a in range(8) for step in (1, 2)}
"""In a ring of eight each hears four."""


def a_death_beside_a_frozen_one_is_told() -> None:
    """Of its two neighbours one sees it end; the other has said that it hears it, and says nothing more."""
    for casts in (True, False):
        for early_s in (0.0, 2.0, 6.0):
            net = formed(6, RING, casts=casts)
            since_ns = net.now
            net.freeze(2)
            net.run(early_s)
            net.kill(3)
            assert net.run_until(lambda net=net: net.all_see(FAILED, 3, [0, 1, 4, 5]), 4) is not None, (casts, early_s)
            assert {name for _, name in net.failures(since_ns)} == {"n003"}


def hall(seed: int) -> MeshNet:
    """Nine that hear each other; of two outside one is heard by the first, the other by the second and by that one."""
    return formed(11, everybody(9) | {(0, 9), (9, 10), (1, 10)}, seed)


OTHERS = [*range(1, 9), 10]


def a_death_beside_a_frozen_one_that_many_hear_is_told() -> None:
    """Each of eight asks one of its near ones a second: in turn the last of them would be late."""
    for seed in (1, 2, 3):
        net = hall(seed)
        net.freeze(0)
        net.kill(9)
        assert net.run_until(lambda net=net: net.all_see(FAILED, 9, OTHERS), 4) is not None
        assert net.all_see(ALIVE, 0, OTHERS)


def who_runs_again_makes_nobody_alive() -> None:
    """What was sent to it meanwhile is lost, and it has yet to find that one beside it has ended."""
    for seed in (2, 5, 12):
        net = hall(seed)
        since_ns = net.now
        net.freeze(0)
        net.run(1)
        net.kill(9)
        net.run(6)
        net.hosts[0].waiting = [event for event in net.hosts[0].waiting if isinstance(event, TimerFired)]
        net.thaw(0)
        net.run(8)
        assert sorted(index for index, name in net.failures(since_ns)) == [0, *OTHERS]
        assert net.changes(ALIVE, since_ns) == []
        assert not any(net.view(index)._frozen.marked() for index in OTHERS)


def a_death_beside_two_frozen_ones_is_told() -> None:
    """They hear each other, and have said so: neither speaks for the other."""
    net = formed(7, RING | {(2, 6), (3, 6), (0, 6)})
    net.freeze(2)
    net.freeze(6)
    net.run(1)
    net.kill(3)
    assert net.run_until(lambda: net.all_see(FAILED, 3, [0, 1, 4, 5]), 4) is not None
    assert net.all_see(ALIVE, 2, [0, 1, 4, 5])
    assert net.all_see(ALIVE, 6, [0, 1, 4, 5])


def who_is_heard_by_one_awake_is_failed_by_no_liar() -> None:
    """It hears all, says that one of them has ended and that all others are frozen; words get lost."""
    for loss, seed in ((0.0, 1), (0.3, 1), (0.3, 2), (0.3, 3)):
        net = formed(8, CLOSE | {(2, other) for other in (5, 6, 7)}, seed)
        net.loss = loss  # From here on: nobody knows yet how much is lost.
        since_ns = net.now
        for _ in range(60):
            lie(net, 2, [0, 1, 4, 5, 6, 7], [3], [0, 1, 4, 5, 6, 7])
            net.run(0.5)
        assert [name for index, name in net.failures(since_ns) if index != 2] == []


def who_is_frozen_beside_a_liar_is_not_failed() -> None:
    """For a few seconds, and with it all that hear it but the liar: its own host answers those that are awake."""
    net = formed(6, RING)
    since_ns = net.now
    net.freeze(4)
    for _ in range(10):
        lie(net, 3, [2, 4], [4], [4])
        net.run(0.5)
    net.thaw(4)
    net.run(3)
    assert net.failures(since_ns) == []


def who_says_so_again_and_again_makes_others_say_little() -> None:
    """That one has ended, and that it has not, while another neighbour of that one is frozen: whoever hears this one
    says so once.
    """
    said, sent = [], []
    for is_honest in (True, False):
        net = formed(6, RING)
        counters = [net.hosts[index].node._core.counters for index in (0, 1, 5)]
        net.freeze(4)
        net.run(2)
        before = [(counter["near_reports"], counter["datagrams_out"]) for counter in counters]
        for number in range(24):
            lie(net, 2, [1, 3], [] if is_honest or number % 2 else [3])
            net.run(0.25)
        said.append(sum(counter["near_reports"] - was[0] for counter, was in zip(counters, before, strict=True)))
        sent.append(sum(counter["datagrams_out"] - was[1] for counter, was in zip(counters, before, strict=True)))
    assert said[1] <= said[0] + 2, said
    assert sent[1] <= sent[0] + 10, sent


def nobody_is_asked_about_a_death_that_all_see() -> None:
    """Whoever hears the dead one looks for itself; the neighbours of those ask nobody."""
    for loss in (0.0, 0.1):
        net = formed(9, {(a, b) for a, b in everybody(9) if b - a <= 3})
        net.loss = loss
        asked = [Mock() for _ in net.hosts]
        for index, prober in enumerate(asked):
            net.view(index)._frozen._prober = prober
        net.kill(4)
        net.run(5)
        assert net.all_see(FAILED, 4, [0, 1, 2, 3, 5, 6, 7, 8])
        assert not any(prober.verify.called for prober in asked)


# --- mutants -------------------------------------------------------------------------------------------------------


def _what_a_frozen_one_said_stands(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Frozen, "weigh", lambda self, own, links: links)


def _who_runs_again_is_believed_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(near, "_FROZEN_NS", 1_050_000_000)


def _who_is_said_to_have_ended_has(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(frozen, "without", lambda ended, links, sure: without(ended, links, []))


def _one_word_freezes(patch: pytest.MonkeyPatch) -> None:
    def awake_to_all(own, near_ones, links, marks):  # type: ignore[no-untyped-def]
        every = {key for keys in marks.values() for key in keys}
        return awake(own, near_ones, links, dict.fromkeys([own, *links], every))

    patch.setattr(frozen, "awake", awake_to_all)


def _what_is_said_is_no_reason_to_ask(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Frozen, "_ask_hearers", lambda self, member: None)


def _all_are_asked_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(frozen, "_ASKED_NS", 1)


def _marks_follow_what_is_said(patch: pytest.MonkeyPatch) -> None:
    original = Frozen.weigh

    def weigh(self, own, links):  # type: ignore[no-untyped-def]
        if self._marked and not self._ended():
            self._marked.clear()
            self._reports.soon(lost=True)
        return original(self, own, links)

    patch.setattr(Frozen, "weigh", weigh)


LAWS: list[tuple[Law, Mutant]] = [
    (a_death_beside_a_frozen_one_is_told, _what_a_frozen_one_said_stands),
    (a_death_beside_two_frozen_ones_is_told, _what_a_frozen_one_said_stands),
    (a_death_beside_a_frozen_one_that_many_hear_is_told, _what_is_said_is_no_reason_to_ask),
    (who_runs_again_makes_nobody_alive, _who_runs_again_is_believed_at_once),
    (who_is_heard_by_one_awake_is_failed_by_no_liar, _one_word_freezes),
    (who_is_frozen_beside_a_liar_is_not_failed, _who_is_said_to_have_ended_has),
    (who_says_so_again_and_again_makes_others_say_little, _marks_follow_what_is_said),
    (nobody_is_asked_about_a_death_that_all_see, _all_are_asked_at_once),
]


@each_law(LAWS)
def test_law(law: Law) -> None:
    law()


@each_mutant(LAWS)
def test_a_law_finds_its_mutant(law: Law, mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
