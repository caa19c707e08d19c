"""Laws of inference borrowed from members out of the radio's reach: nodes of a mesh, tickets, signatures."""

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest

from swarmd_protocols.effects import Command, Order
from swarmd_protocols.offload import borrowing, dispatcher, offload, placement, requests
from swarmd_protocols.offload.dispatcher import Dispatcher
from swarmd_protocols.offload.offload import Offload, OffloadConfig
from swarmd_protocols.offload.tickets import Grants
from swarmd_protocols.swim.config import SwimConfig
from swarmd_protocols.trust.identity import make_dev_identity
from tests.support.mesh_net import MeshNet, line
from tests.support.mutants import Law, Mutant, assert_found, each_law, each_mutant
from tests.support.swim_net import SECRET, S

DIGEST = bytes(range(32))
BORROWER = 0
INPUT_BYTES, OUTPUT_BYTES = 30_000, 20_000


class LendingNet(MeshNet):
    """The first borrows, those of `lenders` lend, all others only hand on."""

    def __init__(self, count: int, lenders: tuple[int, ...], seed: int = 1, **options: Any) -> None:
        self.lenders = lenders
        self.read = 0
        self.dead: set[int] = set()
        super().__init__(count, line(count), seed, **{"subs": self._subs, **options})

    def _subs(self, index: int) -> list[Any]:
        if index != BORROWER and index not in self.lenders:
            return []
        crypto = self.crypto
        identity = make_dev_identity(SECRET, "test", f"n{index:03d}", crypto)
        config = OffloadConfig(lends=index in self.lenders, borrows=index == BORROWER)
        node, rng = identity.claims().node, random.Random(index)
        return [Offload(node, identity.seed, crypto, config, 1, rng, _physical_ms, _is_well_formed)]  # type: ignore[arg-type]

    def offer(self) -> None:
        for index in self.lenders:
            self.feed(index, Command("offload", requests.Stock((requests.Held(DIGEST, 10_000_000),), 0, None)))

    def borrow(self, number: int, left_s: float, size: int = INPUT_BYTES, **options: Any) -> None:
        data = random.Random(number).randbytes(size)
        ask = requests.Borrow(number, DIGEST, data, 1, self.now + int(left_s * S), **options)
        self.feed(BORROWER, Command("offload", ask))

    def work(self, seconds: float) -> None:
        """Lenders answer what they are asked to run."""
        until = self.now + int(seconds * S)
        while self.now < until:
            self.run(0.1)
            for _, index, effect in self.log[self.read :]:
                if isinstance(effect, Order) and isinstance(effect.request, requests.Infer) and index not in self.dead:
                    data = effect.request.data[:OUTPUT_BYTES]
                    self.feed(index, Command("offload", requests.Ran(effect.request.job, data)))
            self.read = len(self.log)

    def run_settled(self, number: int, seconds: float) -> bool:
        """Whether a request is answered by then."""
        until = self.now + int(seconds * S)
        while self.now < until and not any(one.number == number for one in self.settled()):
            self.work(0.2)
        return any(one.number == number and one.data is not None for one in self.settled())

    def settled(self) -> list[requests.Settle]:
        orders = [effect.request for _, at, effect in self.log if isinstance(effect, Order) and at == BORROWER]
        return [one for one in orders if isinstance(one, requests.Settle)]


class Sites(LendingNet):
    """The borrower and the lender, who meet and part, and one that both hear; nothing is cast."""

    FAR, NEAR = {(0, 1), (1, 2)}, {(0, 1), (1, 2), (0, 2)}

    def __init__(self, seed: int) -> None:
        self.pulsed_ns = 0
        super().__init__(3, (2,), seed, casts=False, swim=SwimConfig(mesh="auto", casts=False))
        assert self.run_until(lambda: self.formed() and all(map(self.is_mesh, range(3))), 30) is not None
        self.offer()
        self.until(lambda: self.asked_of(0).lenders() != {}, 20)

    def run(self, seconds: float) -> None:
        """As a worker does, the borrower's says once a second that it is there."""
        if self.now >= self.pulsed_ns + S:
            self.pulsed_ns = self.now
            self.feed(BORROWER, Command("offload", requests.Stock((), 0, None)))
        super().run(seconds)

    def asked_of(self, index: int) -> Offload:
        sub = self.hosts[index].node._subs["offload"]
        assert isinstance(sub, Offload)
        return sub

    def until(self, holds: Callable[[], bool], seconds: float) -> None:
        """Work until something holds."""
        until = self.now + int(seconds * S)
        while not holds():
            assert self.now < until, "it never holds"
            self.work(0.1)

    def is_near(self) -> bool:
        """Whether the borrower and the lender hear each other, as both see it."""
        ends = (0, self.hosts[2].node.node), (2, self.hosts[0].node.node)
        near = (
            any(member.node == other for member in self.hosts[index].node._core.table.reachable)
            for index, other in ends
        )
        return all(near)


def _physical_ms(now_ns: int) -> int:
    return now_ns // 1_000_000


def _is_well_formed(digest: bytes, data: bytes) -> bool:
    return len(data) > 0


def lending(count: int, *lenders: int) -> LendingNet:
    """A mesh that has formed, whose lenders have been heard."""
    net = LendingNet(count, lenders)
    assert net.run_until(net.formed, 20) is not None
    net.run(6)
    net.offer()
    net.work(4 + 2 * len(lenders))
    return net


def a_lender_three_hops_away_answers() -> None:
    """Tensors of 30 kB there and 20 kB back, through two that neither lend nor borrow; within ten seconds."""
    net = lending(4, 3)
    net.borrow(1, 15)
    net.work(15.5)
    settles = net.settled()
    assert [one.data and len(one.data) for one in settles] == [OUTPUT_BYTES], "it had no answer"
    assert settles[0].lender == net.hosts[3].node.node


def what_would_come_too_late_is_not_sent() -> None:
    """A hundred kilobytes within two seconds, over others: nobody is asked, so that the air is left alone."""
    net = lending(4, 3)
    before = net.hosts[1].node._core.counters["relay_bytes"]
    net.borrow(1, 2.0, 100_000)
    net.work(2.5)
    assert [one.data for one in net.settled()] == [None]
    assert net.hosts[1].node._core.counters["relay_bytes"] - before < 4_000, "it was sent all the same"


def what_a_lender_has_to_fetch_is_not_asked_of_a_far_one() -> None:
    """Its worker would need a connection to this one's."""
    net = lending(4, 3)
    net.borrow(1, 5.0, 500, lane_bytes=5_000)
    net.work(1)
    assert not any(isinstance(one.request, requests.Infer) for _, at, one in net.log if isinstance(one, Order))
    net.work(5)
    assert [one.data for one in net.settled()] == [None]


def offers_cost_who_hands_them_on_a_bound() -> None:
    """Of one lender an offer a second, whoever is told; nobody who is more than a few hops away."""
    net = lending(12, 11)
    start = [host.node._core.counters["relay_taken"] for host in net.hosts]
    net.work(20)
    taken = [host.node._core.counters["relay_taken"] - was for host, was in zip(net.hosts, start, strict=True)]
    assert max(taken) <= 25, f"{max(taken)} parts of one lender in 20 s"
    assert taken[:5] == [0] * 5, "it is told far beyond who would ask"


def what_took_long_to_be_sent_says_nothing_of_a_short_word() -> None:
    """As soon as one large input has been answered a short question is, and the next large one; by a ticket that ends
    while that is under way."""
    net = lending(3, 2)
    for number in (1, 3):
        net.borrow(number, 40, 43_000)
        assert net.run_settled(number, 40), f"no answer to the large input {number}"
        net.borrow(number + 1, 1.0, 300)
        assert net.run_settled(number + 1, 1.5), f"no answer to the short word after the large input {number}"


def a_ticket_is_good_until_what_it_is_for_has_come() -> None:
    """Whenever in the life of a ticket a large input leaves, and if it is under way for longer than any other ticket is
    good for: it is not refused."""
    for pause_s, size in ((20, 43_000), (80, 43_000), (0, 120_000)):
        net = lending(3, 2)
        net.borrow(1, 5, 300)
        assert net.run_settled(1, 5)
        net.work(pause_s)
        net.borrow(2, 60, size)
        assert net.run_settled(2, 60), f"{size} bytes refused {pause_s} s after the ticket was had"


def what_a_near_one_works_on_is_asked_of_it_over_others() -> None:
    """The direct path ends in silence while a request, a ticket or an answer is under way on it."""
    for seed, under_way_s in itertools.product((1, 2), (0.0, 0.02, 0.05)):
        net = Sites(seed)
        net.relink(net.NEAR)
        net.until(net.is_near, 10)
        net.work(3)
        net.borrow(1, 60, 43_000)
        net.run(under_way_s)
        net.relink(net.FAR)
        assert net.run_settled(1, 40), f"no answer, {under_way_s} s of it were under way"


def what_is_asked_when_a_full_view_becomes_a_mesh_is_answered() -> None:
    """Both have heard each other for so long that there was no mesh; then they part, and nobody knows a way yet."""
    for seed, later_s in itertools.product((1, 2), (0.0, 0.5)):
        net = Sites(seed)
        net.relink(net.NEAR)
        net.until(lambda net=net: not any(map(net.is_mesh, range(3))), 60)
        net.work(5)
        net.relink(net.FAR)
        net.until(lambda net=net: net.is_mesh(0), 20)
        net.work(later_s)
        net.borrow(1, 60, 43_000)
        assert net.run_settled(1, 50), "refused, or never answered"
        assert net.failures() == []


# --- mutants -------------------------------------------------------------------------------------------------------


def _only_near_ones_lend(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(offload, "_is_in_reach", lambda peer: not peer.far)


def _the_way_takes_no_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(placement, "FAR_BYTES_S", 10**12)


def _a_connection_is_handed_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(requests.Borrow, "not_asked", lambda self, far: self.but)


def _all_are_in_reach(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(offload, "FAR_COST_MAX", 10_000)


def _all_is_measured_as_one(patch: pytest.MonkeyPatch) -> None:
    for module in (placement, dispatcher):
        patch.setattr(module, "stream_ns", lambda offer, need: 0)


def _a_ticket_need_not_last(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(borrowing, "come_by_ns", lambda offer, size_bytes, now_ns: now_ns)


def _all_tickets_are_short(patch: pytest.MonkeyPatch) -> None:
    original = Grants.grant
    patch.setattr(
        Grants, "grant", lambda self, borrower, digest, now_ms, longer_ms=0: original(self, borrower, digest, now_ms)
    )


def _who_is_near_no_more_is_gone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Offload, "_is_adrift", lambda self, peer: False)


def _what_a_connection_held_is_waited_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Dispatcher, "_doubt", lambda self, lender, now_ns: [])


def _a_ticket_is_asked_for_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(borrowing, "still_waiting", lambda asking, requests_open: [])


LAWS: list[tuple[Law, Mutant]] = [
    (a_lender_three_hops_away_answers, _only_near_ones_lend),
    (what_would_come_too_late_is_not_sent, _the_way_takes_no_time),
    (what_a_lender_has_to_fetch_is_not_asked_of_a_far_one, _a_connection_is_handed_on),
    (offers_cost_who_hands_them_on_a_bound, _all_are_in_reach),
    (what_took_long_to_be_sent_says_nothing_of_a_short_word, _all_is_measured_as_one),
    (a_ticket_is_good_until_what_it_is_for_has_come, _a_ticket_need_not_last),
    (a_ticket_is_good_until_what_it_is_for_has_come, _all_tickets_are_short),
    (what_a_near_one_works_on_is_asked_of_it_over_others, _what_a_connection_held_is_waited_for),
    (what_a_near_one_works_on_is_asked_of_it_over_others, _a_ticket_is_asked_for_once),
    (what_is_asked_when_a_full_view_becomes_a_mesh_is_answered, _who_is_near_no_more_is_gone),
]


@each_law(LAWS)
def test_law(law: Law) -> None:
    law()


@each_mutant(LAWS)
def test_a_law_finds_its_mutant(law: Law, mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
