"""Law: no one member decides which events a node that starts is told: what it says alone is denied by the others.

One member answers first, and says of everybody, also to all others, that far more was delivered than there is.
"""

from functools import partial

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from swarmd_protocols.effects import UserEvent
from swarmd_protocols.swim.event_baseline import Answers, Baseline
from swarmd_protocols.swim.event_claims import Claims
from swarmd_protocols.swim.event_log import EventLog
from swarmd_protocols.swim.rules import BOOT_SHIFT
from tests.support.mesh_net import MeshNet
from tests.support.mutants import assert_found
from tests.support.swim_net import Host, Net

LIAR, STARTS = 0, 1
SOON_S = 4
"""Views that differ are compared several times in it."""
LATER_S = 12
"""Twice the patience for what is missing: what would be given up for a lie is given up by then."""


def lying(net: Net, ahead: int) -> None:
    """The first host says that everybody said so much more, and answers before all others."""
    events = net.hosts[LIAR].node._swim.events
    own = net.hosts[LIAR].node.node

    def vector() -> tuple[tuple[bytes, int], ...]:
        known = {host.node.node: host.node._core.own.boot << BOOT_SHIFT for host in net.hosts}
        return tuple(sorted((node, first + ahead) for node, first in known.items() if node != own))

    events.vector = vector  # type: ignore[method-assign]
    real, delay_ns = net.carry, net.delay_ns

    def carry(host: Host, destination: str, event: object, loss: float) -> None:
        net.delay_ns = delay_ns // 10 if LIAR in (host.index, net.index(destination)) else 5 * delay_ns
        real(host, destination, event, loss)

    net.carry = carry  # type: ignore[method-assign]


def nobody_is_silenced(count: int, seed: int, ahead: int, said: int) -> None:
    net = Net(count, seed=seed)
    net.run(10)
    for number in range(said):
        net.hosts[2].node._swim.events.say(f"old-{number}", b"")
        net.run(0.5)
    net.run(5)
    lying(net, ahead)
    net.restart(STARTS)
    net.run(SOON_S)
    for pause_s in (LATER_S, 1):
        before = len(net.delivered())
        sayers = [index for index in range(count) if index != LIAR]
        for index in sayers:
            net.hosts[index].node._swim.events.say(f"new-{pause_s}-{index}", b"")
        net.run(pause_s)
        for hearer in sayers:
            heard = [one.name for _, index, one in net.delivered()[before:] if index == hearer]
            assert {f"new-{pause_s}-{index}" for index in sayers if index != hearer} <= set(heard), (hearer, heard)


@settings(deadline=None, max_examples=12)
@given(
    st.integers(4, 7),
    st.integers(0, 99),
    st.sampled_from([1, 3, 500, 1 << BOOT_SHIFT, 1 << 40]),
    st.integers(0, 3),
)
@example(4, 1, 500, 0)
@example(6, 1, 1 << 40, 2)
def test_a_lie_about_what_was_said_silences_nobody(count: int, seed: int, ahead: int, said: int) -> None:
    nobody_is_silenced(count, seed, ahead, said)


def silenced() -> None:
    nobody_is_silenced(6, 1, 500, 2)


def test_mutants_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    silenced()

    def undeniable(patch: pytest.MonkeyPatch) -> None:
        # What only one has said counts as news in the first seconds, where two bring it: that alone undoes it too.
        patch.setattr(Baseline, "denied", lambda *_, **__: [])
        patch.setattr(Answers, "is_unsure", lambda *_: False)

    assert_found(undeniable, silenced, monkeypatch)


def news_crosses_to_a_leaf(seed: int, *, later: bool = False) -> None:
    """A node begins between a leaf and others who all have what was said meanwhile, and say so before the leaf does.

    To it that is old, and crosses all the same. With `later`, it has delivered what the same member said next by then.
    """
    others = [(one, other) for one in range(1, 6) for other in range(1, one)]
    net = MeshNet(6, [(0, 1), *others], seed)
    assert net.run_until(net.formed, 30) is not None
    net.kill(1)
    net.run(5)
    net.feed(3, UserEvent("said", b""))
    net.run(3)
    net.restart(1)
    if later:
        net.run(0.05)
        net.feed(3, UserEvent("later", b""))
    expected = {(name, index) for name in ("said", *["later"] * later) for index in range(6) if index != 1}
    assert net.run_until(lambda: {(one.name, index) for _, index, one in net.delivered()} >= expected, 12) is not None
    net.run(6)
    told = [(one.name, index) for _, index, one in net.delivered()]
    assert sorted(told) == sorted(set(told)), "once each"
    assert ("later", 1) in told or not later
    for hearer in range(6):
        heard = [name for name, index in told if index == hearer]
        assert heard in ([], ["later"]) if hearer == 1 else heard == ["said", "later"][: 1 + later], "in order"


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("seed", [1, 2, 5, 6])
def test_what_several_of_one_side_confirm_still_crosses_to_the_other(seed: int, later: bool) -> None:
    news_crosses_to_a_leaf(seed, later=later)


def test_a_mesh_in_which_what_came_since_ends_the_doubt_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    law = partial(news_crosses_to_a_leaf, 1, later=True)
    law()
    assert_found(lambda patch: patch.setattr(EventLog, "reopen", lambda *_: None), law, monkeypatch)


def test_a_mesh_in_which_the_first_confirmation_counts_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Baseline.denied

    def first_word_counts(self: Baseline, peer, told, members, now_ns, *, is_mesh):  # type: ignore[no-untyped-def]
        return original(self, peer, told, members, now_ns)

    law = partial(news_crosses_to_a_leaf, 2)
    assert_found(lambda patch: patch.setattr(Baseline, "denied", first_word_counts), law, monkeypatch)


def test_in_a_mesh_one_that_never_had_it_is_believed_after_others_and_one_that_restarts_is_not() -> None:
    first = Baseline()
    first.take(b"teller", {b"a": 5}, 0)
    assert first.denied(b"near", {b"a": 5}, 2, 1, is_mesh=True) == []
    assert first.denied(b"near", {}, 2, 2, is_mesh=True) == [], "it had it, and has begun another life"
    assert first.denied(b"leaf", {b"a": 3}, 2, 3, is_mesh=True) == [(b"a", 5, 3, ((b"teller", 5),))]
    assert first.denied(b"leaf", {}, 2, 4, is_mesh=True) == [], "once"


def test_who_denies_alone_changes_nothing_where_there_are_others() -> None:
    first = Baseline()
    first.take(b"teller", {b"a": 5, b"b": 7}, 0)
    assert first.denied(b"teller", {}, 6, 1) == [], "its own word is no other's"
    assert first.denied(b"liar", {b"b": 7}, 6, 1) == []
    assert first.denied(b"liar", {}, 6, 2) == [], "once each"
    assert first.denied(b"honest", {b"a": 5}, 6, 3) == []
    assert first.denied(b"other", {}, 6, 4) == [(b"b", 7, 0, ())], (
        "what an honest one confirms stays, a liar's does not"
    )


def a_teller_that_was_misled_leaves_its_liar_alone() -> None:
    """The liar says again and again what it told two that started: the second believed it and the first."""
    first = Baseline()
    first.take(b"misled", {b"a": 500}, 0)
    liar = {b"a": 500}
    assert first.denied(b"liar", liar, 6, 1) == []
    assert first.denied(b"one", {b"a": 1}, 6, 2) == []
    assert first.denied(b"two", {b"a": 2}, 6, 3) == [], "two say so still"
    assert first.denied(b"misled", {b"a": 1}, 6, 4) == []
    assert first.denied(b"liar", liar, 6, 5) == []
    assert first.denied(b"three", {b"a": 1}, 6, 6) == [(b"a", 500, 2, ())]


def test_a_teller_that_was_misled_leaves_its_liar_alone() -> None:
    a_teller_that_was_misled_leaves_its_liar_alone()


def test_a_liar_that_ends_all_doubt_by_repeating_itself_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Baseline.denied

    def denied(self: Baseline, peer, told, *args):  # type: ignore[no-untyped-def]
        for origin, taken in self._taken.items():
            if told.get(origin, 0) >= taken:
                self._words[origin].clear()
        return original(self, peer, told, *args)

    assert_found(
        lambda patch: patch.setattr(Baseline, "denied", denied),
        a_teller_that_was_misled_leaves_its_liar_alone,
        monkeypatch,
    )


def test_what_two_deny_is_lowered_to_the_higher_of_their_words() -> None:
    first = Baseline()
    first.take(b"teller", {b"a": 500, b"b": 600}, 0)
    assert first.denied(b"one", {b"a": 4}, 6, 1) == []
    assert first.denied(b"two", {b"a": 5, b"b": 1}, 6, 2) == [(b"a", 500, 5, ()), (b"b", 600, 1, ())]
    assert first.denied(b"three", {}, 6, 3) == []


def test_in_a_swarm_of_three_one_denial_is_enough_and_after_a_while_none_counts() -> None:
    first = Baseline()
    first.take(b"teller", {b"a": 500}, 0)
    assert first.denied(b"one", {b"a": 4}, 2, 1) == [(b"a", 500, 4, ((b"teller", 500),))]
    first.take(b"teller", {b"a": 500}, 0)
    assert first.denied(b"one", {b"a": 4}, 2, 31_000_000_000) == []


def test_a_claim_that_is_taken_back_gives_nothing_up() -> None:
    claims = Claims()
    for peer in (b"liar", b"fooled"):
        claims.note(b"origin", peer, 500, 4, 0)
    claims.revise(b"fooled", {b"origin": 4})
    assert claims.given_up(b"origin", 4, 2, {b"liar", b"fooled"}, 10_000_000_000) == 0


def test_who_told_less_than_was_invented_still_stands_for_it() -> None:
    first = Baseline()
    first.take(b"nothing", {b"a": 0}, 0)
    first.take(b"liar", {b"a": 9}, 0)
    first.take(b"honest", {b"a": 5}, 0)
    assert first.denied(b"liar", {}, 2, 1, is_mesh=True) == []
    assert first.denied(b"liar", {}, 2, 2, is_mesh=True) == [(b"a", 9, 0, ((b"honest", 5),))]
