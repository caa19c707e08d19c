"""Laws of a way that is slow and loses requests: a lender that counts less than its borrower is not lost to it."""

from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import pytest

from swarmd_protocols.ids import NodeId
from swarmd_protocols.offload import messages, requests, tickets
from swarmd_protocols.offload.dispatcher import Dispatcher
from swarmd_protocols.offload.lending import LendingConfig
from swarmd_protocols.offload.tickets import GrantsConfig, HeldTicket, Ticket, open_ticket
from tests.property.test_offload_laws import CRYPTO, DIGESTS, KEY, LENDERS, grants
from tests.support.mutants import assert_found
from tests.support.offload_swarm import MS, Swarm


class Slow(Swarm):
    """Each frame takes `way_ms`, and requests are lost while `loses`; one lender."""

    def __init__(self, way_ms: int, count_max: int) -> None:
        self.way_ms, self.loses = way_ms, False
        self.under_way: deque[tuple[int, NodeId, NodeId, bytes]] = deque()
        super().__init__(2, lending=LendingConfig(grants=GrantsConfig(count_max=count_max)))
        self.run(3_000)

    def turn(self) -> None:
        """What has arrived by now is read, and lenders answer at once."""
        self._leave()
        while self.under_way and self.under_way[0][0] <= self.now_ns:
            _, sender, to, payload = self.under_way.popleft()
            self.perform(to, self.nodes[to].on_message(sender, payload, self.now_ns))
            for node in self.nodes:
                for order in self._runnable(node):
                    self.orders[node].remove(order)
                    self.command(node, requests.Ran(order.job, b"answer to " + order.data))
            self._leave()

    def _leave(self) -> None:
        for sender, to, payload in self.wire:
            if not (self.loses and isinstance(messages.decode_message(payload), messages.Request)):
                self.under_way.append((self.now_ns + self.way_ms * MS, sender, to, payload))
        self.wire.clear()

    def run(self, ms: int) -> None:
        for _ in range(ms // 50):
            self.later(50)
            self.turn()

    def heard(self) -> Counter[str]:
        return Counter(type(message).__name__ for _, _, message in self.said)


def cut_off(way_ms: int) -> Slow:
    """Eight requests under a ticket for as many are lost."""
    swarm = Slow(way_ms, 8)
    swarm.borrow(1, left_ms=2_000)
    swarm.run(1_500)
    swarm.loses = True
    for number in range(2, 17):
        swarm.borrow(number, b"lost", left_ms=2_000)
        swarm.run(50)
    swarm.run(3_000)
    swarm.loses = False
    swarm.said.clear()
    return swarm


@pytest.mark.parametrize("way_ms", [20, 300, 600])
def test_a_lender_that_requests_were_lost_to_is_asked_again_within_seconds(way_ms: int) -> None:
    swarm = cut_off(way_ms)
    for number in range(100, 110):
        swarm.borrow(number, left_ms=4_000)
        swarm.run(2_000)
    swarm.run(4_000)
    answered = {settle.number for settle in swarm.settles() if settle.data is not None}
    assert answered >= {*range(106, 110)}, "the lender is lost for good"
    assert swarm.heard()["Ask"] <= 20


def test_who_is_given_a_used_up_ticket_asks_no_more_than_once_a_second() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tickets, "_AGAIN_MAX", 10**9)  # As a lender would that gives nothing else.
        swarm = cut_off(300)
        for number in range(100, 110):
            swarm.borrow(number, left_ms=4_000)
            swarm.run(2_000)
        assert swarm.heard()["Ask"] <= 11


def test_what_is_used_up_is_not_shown_again() -> None:
    """What was sent under it may still be on its way, and the lender would refuse what comes after."""
    swarm = cut_off(300)
    swarm.borrow(100, left_ms=4_000)
    swarm.run(1_000)
    assert swarm.heard()["Grant"] == 1
    assert swarm.heard()["Request"] == 0


def test_what_waits_for_a_ticket_has_not_left() -> None:
    """Nine wait for a ticket that is good for eight: the last one's time begins when it goes out."""
    swarm = Slow(300, 8)
    left: list[int] = []
    whole = Dispatcher._on_left

    def on_left(self: Dispatcher, number: int, attempt: int, now_ns: int) -> Any:
        left.append(number)
        return whole(self, number, attempt, now_ns)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Dispatcher, "_on_left", on_left)
        for number in range(1, 10):
            swarm.borrow(number, left_ms=5_000)
        swarm.run(650)
        assert swarm.heard()["Request"] == 8
        assert left == [*range(1, 9)]
        swarm.run(2_000)
        assert left == [*range(1, 10)]


def test_an_unused_ticket_is_given_again_a_few_times_and_then_another_one() -> None:
    """Never are more than two good, each for its count, and none of those that are not given lives longer for it."""
    book = grants(tickets_max=2, count_max=3, life_ms=30_000)
    given: list[Ticket] = []
    for now_ms in range(0, 60_000, 500):
        sealed = book.grant(LENDERS[0], DIGESTS[0], now_ms)
        assert sealed is not None, "who has lost all is refused"
        given.append(open_ticket(sealed, KEY, CRYPTO))
        assert len(book._left) <= 2
    assert max(Counter(ticket.number for ticket in given).values()) == 5
    taken = Counter(book.spend(ticket.number, LENDERS[0], DIGESTS[0], 1, 60_000) for ticket in given[-40:])
    assert taken[""] == 6, "there is more to spend"


# --- Faults on purpose ----------------------------------------------------------------------------------------------


def _the_same_for_good(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tickets, "_AGAIN_MAX", 10**9)


def _what_was_used_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    new = HeldTicket.new
    patch.setattr(HeldTicket, "new", lambda ticket, before=None: new(ticket))


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        (_the_same_for_good, lambda: test_a_lender_that_requests_were_lost_to_is_asked_again_within_seconds(300)),
        (_what_was_used_is_forgotten, test_what_is_used_up_is_not_shown_again),
        (_the_same_for_good, test_an_unused_ticket_is_given_again_a_few_times_and_then_another_one),
    ],
)
def test_mutants(fault: Callable[[pytest.MonkeyPatch], None], law: Callable[[], Any], monkeypatch: Any) -> None:
    assert_found(fault, law, monkeypatch)
