"""Law: where one member is enough to deny what others said of an origin, it decides nothing that they can show.

In a mesh a node that starts believes whoever has heard less (`event_baseline.py`), so one stolen key could bring it
what was said long ago, as if it were new. Whoever says more has to show the event (`event_doubts.py`); so nobody who
says less brings anything old, and nobody who says more silences anybody.
"""

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from swarmd_protocols.channel.codec import encode
from swarmd_protocols.effects import UserEvent
from swarmd_protocols.swim import event_doubts, event_ledgers
from swarmd_protocols.swim.event_baseline import Baseline, Denial
from swarmd_protocols.swim.event_doubts import Doubts
from swarmd_protocols.swim.messages import VECTOR_ANSWER, EventVector
from swarmd_protocols.swim.rules import BOOT_SHIFT
from swarmd_protocols.swim.user_events import UserEvents
from tests.property.test_baseline_laws import news_crosses_to_a_leaf
from tests.support.mesh_net import MeshNet, Pairs
from tests.support.mutants import Law, Mutant, assert_found, each_law, each_mutant

MS = 1_000_000
LIAR, STARTS, SPEAKS = 0, 1, 2
AROUND: Pairs = {(LIAR, STARTS), (STARTS, 3), (STARTS, 4), (3, 4), (LIAR, 4), (3, SPEAKS), (4, SPEAKS)}
"""The node that starts hears the liar and two others; who speaks is a hop away."""
FOUR: Pairs = {(a, b) for a in range(4) for b in range(a)}
"""All hear all; the node that starts knows two of them when it begins."""
BEGUN_S, LATER_S = 7, 12
"""After the former it no longer helps that what one answer alone has may be news (`Answers.is_unsure`)."""


def begun_beside(liar: Callable[[MeshNet], None], links: Pairs, seed: int, said: int) -> MeshNet:
    """A node starts on an empty disk beside a liar, long after events were said."""
    net = MeshNet(1 + max(max(pair) for pair in links), links, seed)
    assert net.run_until(net.formed, 30) is not None
    for number in range(said):
        net.feed(SPEAKS, UserEvent(f"old-{number}", b""))
        net.run(0.3)
    net.run(6)
    liar(net)
    net.kill(STARTS)
    net.run(3)
    net.restart(STARTS, keep_journal=False)
    net.run(BEGUN_S)
    return net


def heard_of(net: MeshNet, name: str) -> list[str]:
    """What the node that started delivers of what is said from here on, and had delivered since it began."""
    since_ns = net.now - BEGUN_S * 1_000 * MS
    net.feed(SPEAKS, UserEvent(name, b""))
    net.run(LATER_S)
    return [one.name for at_ns, index, one in net.delivered() if index == STARTS and at_ns >= since_ns]


def says_again_and_again(net: MeshNet, pause_ms: int, words: Callable[[], list[bytes]]) -> None:
    """The liar tells the node that starts these, in one datagram, from when it knows it on."""
    core, starts = net.hosts[LIAR].node._swim.core, net.hosts[STARTS].node.node

    def say(_: object = None) -> None:
        core.scheduler.at(core.now_ns + pause_ms * MS, say)
        member = core.table.by_node.get(starts)
        if member is not None and member.where >= 0 and (said := words()):
            core.port.datagram(member, said)

    say()


def nothing_old_is_new(
    links: Pairs, seed: int, said: int, pause_ms: int, *, brings: bool, forgets: int | None = None
) -> None:
    """The liar says, asked and unasked, that nothing was said; it may bring what was. One may hold nothing any more."""

    def liar(net: MeshNet) -> None:
        swim = net.hosts[LIAR].node._swim
        if forgets is not None:
            net.hosts[forgets].node._swim.events.logs[net.hosts[SPEAKS].node.node].kept.clear()
        speaker = net.hosts[SPEAKS].node.node

        def words() -> list[bytes]:
            kept = [encoded for _, encoded in swim.events.logs[speaker].kept] if brings else []
            return [encode(EventVector((), VECTOR_ANSWER)), *kept]

        swim.events.vector = lambda: ()  # type: ignore[method-assign]
        says_again_and_again(net, pause_ms, words)

    net = begun_beside(liar, links, seed, said)
    assert heard_of(net, "new") == ["new"]


@settings(deadline=None, max_examples=12)
@given(
    st.sampled_from([AROUND, FOUR]),
    st.integers(0, 99),
    st.integers(1, 4),
    st.sampled_from([20, 90, 400]),
    st.booleans(),
)
@example(AROUND, 1, 2, 20, True)
@example(FOUR, 1, 2, 20, True)
def test_who_says_less_than_was_said_makes_nothing_old_new(
    links: Pairs, seed: int, said: int, pause_ms: int, brings: bool
) -> None:
    nothing_old_is_new(links, seed, said, pause_ms, brings=brings)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_who_said_it_need_not_hold_it_where_others_do(seed: int) -> None:
    nothing_old_is_new(AROUND, seed, 3, 5, brings=False, forgets=3)


def nothing_old_is_new_by_one_that_took_it_back(links: Pairs, seed: int, said: int, ahead: int, pause_ms: int) -> None:
    """The liar tells the node that starts of more than was said, so that nobody else told as much, and then of less."""

    def liar(net: MeshNet) -> None:
        swim = net.hosts[LIAR].node._swim
        speaker, honest = net.hosts[SPEAKS].node.node, swim.events.vector
        from_ns = net.now + 3_000 * MS

        def begun() -> bool:
            return net.now >= from_ns and net.hosts[STARTS].node._swim.events.has_baseline

        def vector() -> tuple[tuple[bytes, int], ...]:
            told = dict(honest())
            more = {} if begun() else {speaker: told.get(speaker, 0) + ahead}
            return tuple(sorted((told | more).items()))

        swim.events.vector = vector  # type: ignore[method-assign]
        says_again_and_again(net, pause_ms, lambda: [encode(EventVector((), VECTOR_ANSWER))] * 2 * begun())

    net = begun_beside(liar, links, seed, said)
    assert heard_of(net, "new") == ["new"]


@settings(deadline=None, max_examples=12)
@given(
    st.sampled_from([AROUND, FOUR]),
    st.integers(0, 99),
    st.integers(1, 4),
    st.sampled_from([1, 500]),
    st.sampled_from([2, 20]),
)
@example(AROUND, 5, 3, 1, 2)
@example(AROUND, 6, 3, 1, 2)
def test_who_takes_back_what_it_alone_told_makes_nothing_old_new(
    links: Pairs, seed: int, said: int, ahead: int, pause_ms: int
) -> None:
    nothing_old_is_new_by_one_that_took_it_back(links, seed, said, ahead, pause_ms)


def nothing_old_is_new_where_much_is_lost(links: Pairs, seed: int) -> None:
    """Nobody lies; a node that starts is told how far events went before it has the record of who said them."""
    net = begun_beside(lambda net: setattr(net, "loss", 0.3), links, seed, 3)
    net.loss = 0.0
    assert heard_of(net, "new") == ["new"]


@pytest.mark.parametrize("links", [AROUND, FOUR])
def test_who_is_no_member_yet_says_nothing_old_anew(links: Pairs) -> None:
    for seed in range(7, 12):
        nothing_old_is_new_where_much_is_lost(links, seed)


def nobody_is_silenced(links: Pairs, seed: int, said: int, ahead: int) -> None:
    """The liar says of everybody that so much more was said."""

    def liar(net: MeshNet) -> None:
        known = {host.node.node: host.node._core.own.boot << BOOT_SHIFT for host in net.hosts}
        far = tuple(sorted((node, first + said + ahead) for node, first in known.items()))
        net.hosts[LIAR].node._swim.events.vector = lambda: far  # type: ignore[method-assign]

    net = begun_beside(liar, links, seed, said)
    assert "new" in heard_of(net, "new")


@settings(deadline=None, max_examples=12)
@given(
    st.sampled_from([AROUND, FOUR]),
    st.integers(0, 99),
    st.integers(0, 4),
    st.sampled_from([1, 3, 500, 1 << BOOT_SHIFT]),
)
@example(AROUND, 1, 2, 500)
@example(FOUR, 1, 0, 1)
def test_who_says_more_than_was_said_silences_nobody(links: Pairs, seed: int, said: int, ahead: int) -> None:
    nobody_is_silenced(links, seed, said, ahead)


def old_stays_old() -> None:
    for links in (AROUND, FOUR):
        for seed in range(4):
            nothing_old_is_new(links, seed, 2, 20, brings=False)


def one_holds_nothing() -> None:
    for seed in range(4):
        nothing_old_is_new(AROUND, seed, 3, 5, brings=False, forgets=3)


def taken_back() -> None:
    for seed in (7, 8, 10):
        nothing_old_is_new_by_one_that_took_it_back(AROUND, seed, 3, 1, 2)


def silenced() -> None:
    for seed in range(4):
        nobody_is_silenced(AROUND, seed, 2, 500)


def crosses() -> None:
    news_crosses_to_a_leaf(1)


def much_is_lost() -> None:
    for seed in (1, 10, 14):
        nothing_old_is_new_where_much_is_lost(AROUND, seed)


def _strangers_are_dropped_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(event_ledgers, "_STRANGER_NS", 0)


def _only_who_said_it_is_asked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(event_doubts, "_OTHERS", 0)


def _nobody_is_asked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Doubts, "_ask", lambda self, origins: None)


def _what_is_shown_is_delivered(patch: pytest.MonkeyPatch) -> None:
    original = UserEvents._lower
    patch.setattr(UserEvents, "_lower", lambda self, denied, shown: original(self, denied, {}))


def _nothing_shown_crosses(patch: pytest.MonkeyPatch) -> None:
    original = UserEvents._lower
    patch.setattr(
        UserEvents,
        "_lower",
        lambda self, denied, shown: original(self, [one for one in denied if not shown.get(one.origin)], shown),
    )


def _who_told_less_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    original = Baseline.take

    def take(self: Baseline, teller: bytes, taken: Mapping[bytes, int], now_ns: int) -> None:
        original(self, teller, taken, now_ns)
        for less in self._less.values():
            less.clear()

    patch.setattr(Baseline, "take", take)


def _a_number_is_proof(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Doubts, "_end", lambda self, origins: None)


PAIRS: list[tuple[Law, Mutant]] = [
    (old_stays_old, _nobody_is_asked),
    (old_stays_old, _what_is_shown_is_delivered),
    (crosses, _nothing_shown_crosses),
    (silenced, _a_number_is_proof),
    (one_holds_nothing, _only_who_said_it_is_asked),
    (much_is_lost, _strangers_are_dropped_at_once),
    (taken_back, _who_told_less_is_forgotten),
]


@each_law(PAIRS)
def test_the_unbroken_protocol_holds(law: Law) -> None:
    law()


@each_mutant(PAIRS)
def test_the_mutant_is_found(law: Law, mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)


def test_who_denies_one_origin_after_the_other_makes_no_more_questions() -> None:
    asked: list[tuple[int, bytes]] = []
    timers: list[tuple[int, Callable[[Any], None], Any]] = []

    class Port:
        def datagram_or_stream(self, member: Any, parts: list[bytes]) -> None:
            asked.append((core.now_ns, member.node))

    def at(when_ns: int, call: Callable[[Any], None], argument: Any = None) -> None:
        timers.append((when_ns, call, argument))

    peers = [bytes([number]) * 16 for number in range(1, 25)]
    members = {peer: SimpleNamespace(node=peer, where=0) for peer in peers}
    core: Any = SimpleNamespace(
        now_ns=0,
        scheduler=SimpleNamespace(at=at),
        port=Port(),
        table=SimpleNamespace(by_node=members, sample=lambda rng, count: list(members.values())[:count]),
        rng=None,
    )
    lowered: list[bytes] = []
    doubts = Doubts(core, lambda: (), lambda denials, shown: lowered.extend(one.origin for one in denials))
    origins = [bytes([number]) * 16 for number in range(100, 164)]
    for number, origin in enumerate(origins):
        doubted = Denial(origin, 5, 0, tuple((peer, 5) for peer in peers))
        at(number * 20 * MS, lambda denial: doubts.take([denial]), doubted)
    while timers:
        timers.sort(key=lambda timer: timer[0])
        core.now_ns, call, argument = timers.pop(0)
        call(argument)
    last_ns = (len(origins) - 1) * 20 * MS + 1_000 * MS
    assert sorted(lowered) == origins
    assert len(doubts) == 0
    assert len(peers) * 3 <= len(asked) <= len(peers) * (1 + last_ns // (300 * MS))
