"""Law: where one member is enough to deny what others said of an origin, it decides nothing that they can show.

In a mesh a node that starts believes whoever has heard less (`event_baseline.py`), so one stolen key could bring it
what was said long ago, as if it were new. Whoever says more has to show the event (`event_doubts.py`); so nobody who
says less brings anything old, and nobody who says more silences anybody.
"""

from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from swarmd_protocols.channel.codec import encode
from swarmd_protocols.effects import UserEvent
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


def nothing_old_is_new(links: Pairs, seed: int, said: int, pause_ms: int, *, brings: bool) -> None:
    """The liar says, asked and unasked, that nothing was said; it may bring what was."""

    def liar(net: MeshNet) -> None:
        swim = net.hosts[LIAR].node._swim
        starts, speaker = (net.hosts[index].node.node for index in (STARTS, SPEAKS))

        def say(_: object = None) -> None:
            swim.core.scheduler.at(swim.core.now_ns + pause_ms * MS, say)
            member = swim.core.table.by_node.get(starts)
            if member is None or member.where < 0:
                return
            kept = [encoded for _, encoded in swim.events.logs[speaker].kept] if brings else []
            swim.core.port.datagram(member, [encode(EventVector((), VECTOR_ANSWER)), *kept])

        swim.events.vector = lambda: ()  # type: ignore[method-assign]
        say()

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


def silenced() -> None:
    for seed in range(4):
        nobody_is_silenced(AROUND, seed, 2, 500)


def crosses() -> None:
    news_crosses_to_a_leaf(1)


def _nobody_is_asked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Doubts, "_ask", lambda self, origins: None)


def _what_is_shown_is_delivered(patch: pytest.MonkeyPatch) -> None:
    original = UserEvents._lower
    patch.setattr(UserEvents, "_lower", lambda self, denied, is_shown=False: original(self, denied, False))


def _nothing_shown_crosses(patch: pytest.MonkeyPatch) -> None:
    original = UserEvents._lower
    patch.setattr(
        UserEvents, "_lower", lambda self, denied, is_shown=False: None if is_shown else original(self, denied)
    )


def _a_number_is_proof(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Doubts, "_end", lambda self, origins: None)


PAIRS: list[tuple[Law, Mutant]] = [
    (old_stays_old, _nobody_is_asked),
    (old_stays_old, _what_is_shown_is_delivered),
    (crosses, _nothing_shown_crosses),
    (silenced, _a_number_is_proof),
]


@each_law(PAIRS)
def test_the_unbroken_protocol_holds(law: Law) -> None:
    law()


@each_mutant(PAIRS)
def test_the_mutant_is_found(law: Law, mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
