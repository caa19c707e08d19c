"""Laws of a lender whose offer has lapsed: who is reached is waited for, within bounds, and nobody else is."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_protocols.ids import NodeId
from swarmd_protocols.offload import dispatcher, placement
from swarmd_protocols.offload.decisions import (
    Answered,
    Asked,
    Attempt,
    Deliver,
    Doubted,
    Effect,
    Failed,
    Moved,
    OfferHeard,
    SetTimer,
    TimerFired,
)
from swarmd_protocols.offload.dispatcher import Dispatcher, DispatcherConfig
from swarmd_protocols.offload.placement import AWAITED_NS, FRESH_NS, Need, Offer, Offered
from swarmd_protocols.offload.reputation import Reputation
from tests.support.mutants import assert_found

MS = 1_000_000
DIGEST, OTHER = bytes([7]) * 32, bytes([8]) * 32
A, B = (NodeId(bytes([index]) * 16) for index in (1, 2))


def offer(lender: NodeId, now_ns: int, digest: bytes = DIGEST, **options: Any) -> OfferHeard:
    return OfferHeard(Offer(lender, (Offered(digest, 10 * MS, 0),), 1_000, now_ns, **options))


class World:
    """A dispatcher and its timers."""

    def __init__(self, **config: Any) -> None:
        self.dispatcher = Dispatcher(DispatcherConfig(**config), random.Random(1))
        self.now_ns = 1_000 * MS
        self.timers: dict[tuple[int, str], int] = {}
        self.attempts: list[Attempt] = []
        self.ends: list[tuple[int, Deliver]] = []

    def handle(self, event: Any) -> None:
        self._perform(self.dispatcher.handle(event, self.now_ns))

    def hear(self, lender: NodeId, digest: bytes = DIGEST) -> None:
        self.handle(offer(lender, self.now_ns, digest))

    def ask(self, number: int = 1, left_ns: int = 60_000 * MS, **options: Any) -> None:
        self.handle(Asked(Need(number, DIGEST, 1, 10, self.now_ns + left_ns, **options)))

    def wait(self, ns: int) -> None:
        """Time passes, and timers fire."""
        until_ns = self.now_ns + ns
        while due := [(at_ns, key) for key, at_ns in self.timers.items() if at_ns <= until_ns]:
            at_ns, key = min(due)
            del self.timers[key]
            self.now_ns = max(self.now_ns, at_ns)
            self._perform(self.dispatcher.handle(TimerFired(*key), self.now_ns))
        self.now_ns = until_ns

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Attempt():
                    self.attempts.append(effect)
                case Deliver():
                    self.ends.append((self.now_ns, effect))
                case SetTimer(number, what, due_ns):
                    self.timers[number, what] = due_ns
                case _:
                    pass

    @property
    def is_over(self) -> bool:
        """Whether all that was asked has an end, exactly one."""
        assert len(self.ends) <= 1
        return bool(self.ends)


@given(silent_ms=st.integers(1, 9_900), later_ms=st.integers(0, 9_900), left_ms=st.sampled_from([5_000, 60_000]))
@settings(max_examples=60, deadline=None, report_multiple_bugs=False)
def test_a_lender_that_is_heard_again_is_asked_at_once(silent_ms: int, later_ms: int, left_ms: int) -> None:
    world = World()
    world.hear(A)
    world.wait(FRESH_NS + silent_ms * MS)
    world.ask(left_ns=left_ms * MS)
    assert not world.is_over, "its offer has lapsed, and it is reached: nobody has refused"
    assert world.attempts == []
    later_ms = min(later_ms, 9_900 - silent_ms, left_ms - 100)
    world.wait(max(0, later_ms) * MS)
    world.hear(A)
    assert [one.lender for one in world.attempts] == [A]
    world.handle(Answered(1, world.attempts[0].attempt))
    assert world.is_over
    assert world.ends[0][1].attempt == world.attempts[0].attempt


@given(silent_ms=st.integers(1, 12_000), left_ms=st.sampled_from([100, 5_000, 60_000]))
@settings(max_examples=60, deadline=None, report_multiple_bugs=False)
def test_a_lender_that_stays_silent_is_waited_for_no_longer_than_ten_seconds(silent_ms: int, left_ms: int) -> None:
    world = World()
    world.hear(A)
    heard_ns = world.now_ns
    world.wait(FRESH_NS + silent_ms * MS)
    world.ask(left_ns=left_ms * MS)
    asked_ns = world.now_ns
    world.wait(70_000 * MS)
    assert world.is_over
    assert world.dispatcher.open_requests == 0
    ended_ns = world.ends[0][0]
    assert ended_ns == max(asked_ns, min(heard_ns + FRESH_NS + AWAITED_NS, asked_ns + left_ms * MS))


def test_who_says_that_it_has_nothing_or_is_gone_is_not_waited_for() -> None:
    for gone in (
        lambda world: offer(A, world.now_ns, is_reachable=False),
        lambda world: offer(A, world.now_ns, OTHER),
    ):
        for is_before in (True, False):
            world = World()
            world.hear(A)
            world.wait(FRESH_NS + 1_000 * MS)
            if is_before:
                world.handle(gone(world))
                world.ask()
            else:
                world.ask()
                assert not world.is_over
                world.handle(gone(world))
            assert world.is_over, "the program waits for nobody"


def test_what_is_refused_or_was_placed_does_not_wait() -> None:
    refused, placed, others, tried = World(), World(), World(), World(attempts_max=1)
    refused.hear(A)
    refused.ask()
    refused.handle(Failed(1, 0))
    assert refused.is_over, "the only lender has been heard and has refused"
    for world, options in ((placed, {"only": A}), (others, {"but": (B,)})):
        world.hear(A)
        world.wait(FRESH_NS + 1_000 * MS)
        world.ask(**options)
        assert world.is_over, "who asks has something else in mind"
    tried.hear(A)
    tried.wait(FRESH_NS + 1_000 * MS)
    tried.hear(B)
    tried.ask()
    tried.handle(Failed(1, 0))
    assert tried.is_over, "as many as may be asked have been"


def test_what_would_come_too_late_does_not_wait() -> None:
    world = World()
    world.hear(A)
    world.wait(FRESH_NS + 1_000 * MS)
    world.ask(left_ns=9 * MS)
    assert world.is_over


def test_a_lender_that_is_silent_and_doubted_is_asked_once_more_when_it_is_heard() -> None:
    """Its connection broke, or it is near no more, and by then its offer had lapsed."""
    for what in (Doubted(A), Moved(A, True)):
        world = World()
        world.hear(A)
        world.ask()
        world.wait(FRESH_NS + 1_000 * MS)
        world.handle(what)
        assert [one.lender for one in world.attempts] == [A], "just now nobody can be asked"
        world.wait(1_000 * MS)
        world.hear(A)
        assert [one.lender for one in world.attempts] == [A, A]
        world.wait(1_000 * MS)
        world.hear(A)
        assert len(world.attempts) == 2, "once"
        world.handle(Answered(1, 0))
        assert world.is_over
        assert world.ends[0][1].attempt == 0, "its first answer counts, if it comes after all"


def test_who_moves_is_known_to_be_where_it_is() -> None:
    """What goes to a far lender as a stream takes as long as a stream does, from the moment at which it is far."""
    world = World()
    heard = offer(A, world.now_ns)
    world.handle(replace(heard, offer=replace(heard.offer, request_bytes_max=1 << 20)))
    world.handle(Moved(A, True))
    world.handle(Asked(Need(1, DIGEST, 1, 100_000, world.now_ns + 5_000 * MS)))
    assert world.attempts == []
    world.handle(Moved(A, False))
    world.handle(Asked(Need(2, DIGEST, 1, 100_000, world.now_ns + 5_000 * MS)))
    assert [one.number for one in world.attempts] == [2]


def test_an_offer_is_looked_at_for_those_whom_it_can_help() -> None:
    """Any member may make ten a second, and 64 requests may wait: all of them again for each cost 8 ms."""
    judged: list[NodeId] = []

    def is_ejected(self: Reputation, node: NodeId, now_ns: int) -> bool:
        judged.append(node)
        return False

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reputation, "is_ejected", is_ejected)
        world = World()
        world.hear(A)
        world.wait(FRESH_NS + 1_000 * MS)
        for number in range(1, 65):
            world.ask(number)
        assert world.dispatcher.open_requests == 64
        judged.clear()
        world.hear(B, OTHER)
        assert judged == [], "it has nothing that anybody waits for"
        world.handle(OfferHeard(Offer(B, (Offered(DIGEST, 10**15, 0),), 1_000, world.now_ns)))
        assert sorted(judged) == [A, B], "who is believed is found out once, not for each request"
        assert world.attempts == []
        world.hear(A)
        assert len(world.attempts) == 64


def test_who_falls_out_of_the_table_of_offers_is_waited_for_no_more() -> None:
    world = World(lenders_max=1)
    world.hear(A)
    world.wait(FRESH_NS + 1_000 * MS)
    world.ask()
    assert not world.is_over
    world.hear(B, OTHER)
    assert world.is_over


# --- Faults on purpose ----------------------------------------------------------------------------------------------


def _nobody_is_waited_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(dispatcher, "awaited_until_ns", lambda *about: 0)


def _who_waits_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Dispatcher, "_look_again", lambda self, *about: [])


def _all_are_waited_for_until_the_deadline(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(placement, "AWAITED_NS", 10**15)


def _nothing_is_too_late(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(dispatcher, "awaited_until_ns", lambda need, *about: need.deadline_ns)


def _all_are_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Offer, "of", lambda self, need: self.bundles[0])


def _it_is_where_it_was(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Dispatcher, "_on_moved", lambda self, lender, is_far, now_ns: [])


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        (_nobody_is_waited_for, test_a_lender_that_is_heard_again_is_asked_at_once),
        (_who_waits_is_forgotten, test_a_lender_that_is_heard_again_is_asked_at_once),
        (
            _all_are_waited_for_until_the_deadline,
            test_a_lender_that_stays_silent_is_waited_for_no_longer_than_ten_seconds,
        ),
        (_who_waits_is_forgotten, test_who_says_that_it_has_nothing_or_is_gone_is_not_waited_for),
        (_nothing_is_too_late, test_what_is_refused_or_was_placed_does_not_wait),
        (_nothing_is_too_late, test_what_would_come_too_late_does_not_wait),
        (_who_waits_is_forgotten, test_a_lender_that_is_silent_and_doubted_is_asked_once_more_when_it_is_heard),
        (_it_is_where_it_was, test_a_lender_that_is_silent_and_doubted_is_asked_once_more_when_it_is_heard),
        (_all_are_looked_at, test_an_offer_is_looked_at_for_those_whom_it_can_help),
        (_who_waits_is_forgotten, test_who_falls_out_of_the_table_of_offers_is_waited_for_no_more),
        (_it_is_where_it_was, test_who_moves_is_known_to_be_where_it_is),
    ],
)
def test_mutants(fault: Callable[[pytest.MonkeyPatch], None], law: Callable[[], Any], monkeypatch: Any) -> None:
    assert_found(fault, law, monkeypatch)
