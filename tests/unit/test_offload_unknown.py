"""Lenders that have answered nothing yet: the way to them is measured, and a ticket had, before a program waits."""

import random
from typing import Any

import pytest

from swarmd_protocols.ids import NodeId
from swarmd_protocols.offload import ahead, messages, placement, requests
from swarmd_protocols.offload.ahead import Ahead
from swarmd_protocols.offload.lending import LendingConfig
from swarmd_protocols.offload.placement import Need, Offer, Offered, Times, choose
from swarmd_protocols.offload.purse import FREE
from swarmd_protocols.offload.tickets import GrantsConfig
from tests.support.mutants import Law, Mutant, assert_found, each_law, each_mutant
from tests.support.offload_swarm import DIGEST, MS, NODES, OTHER, S, Swarm

KNOWN, UNKNOWN = NodeId(b"k" * 16), NodeId(b"u" * 16)
WANTS = requests.Stock((), 0, None, asks=(DIGEST,))


def offer(node: NodeId, unit_ms: int) -> Offer:
    return Offer(node, (Offered(DIGEST, unit_ms * MS, 0),), 1 << 20, 100 * S)


def chosen(offers: list[Offer], times: dict[NodeId, Times]) -> set[NodeId]:
    need = Need(1, DIGEST, 1, 4_000, 101 * S)
    drawn = (choose(need, offers, times, random.Random(seed), 100 * S + 9) for seed in range(20))
    return {found[0].node for found in drawn if found is not None}


def asks(swarm: Swarm, since: int = 0) -> list[NodeId]:
    return [to for sender, to, said in swarm.said[since:] if sender == NODES[0] and isinstance(said, messages.Ask)]


def swarm_ways(swarm: Swarm) -> dict[NodeId, int]:
    return {node: times.way_ns for node, times in swarm.nodes[NODES[0]]._borrower._dispatcher.times.items()}


def a_lender_whose_way_is_known_is_not_left_for_a_word() -> None:
    """It answers in 11 ms with its way; another says 2 ms, which may be a server 24 ms away."""
    known = Times()
    for number in range(4):
        known.note(11 * MS, 100 * S + number)
    assert chosen([offer(KNOWN, 5), offer(UNKNOWN, 2)], {KNOWN: known}) == {KNOWN}


def nobody_is_outrun_before_it_could_be_back() -> None:
    unknown = Times()
    assert unknown.mean_ns(2 * MS, 100 * S) == 12 * MS
    assert unknown.p95_ns(2 * MS, 100 * S) == 24 * MS
    # Nor after it was given up: what is long ago falls back to its word and a way.
    unknown.note(80 * MS, 100 * S, is_answer=False)
    assert unknown.mean_ns(2 * MS, 200 * S) == 12 * MS


def a_way_that_was_measured_stands_for_the_guess() -> None:
    near, far = Times(), Times()
    near.met(3 * MS)
    far.met(40 * MS)
    assert (near.mean_ns(2 * MS, 0), far.mean_ns(2 * MS, 0)) == (5 * MS, 42 * MS)
    assert chosen([offer(KNOWN, 12), offer(UNKNOWN, 2)], {KNOWN: near, UNKNOWN: far}) == {KNOWN}
    # A queue that its offer tells of comes on top of the way, whatever was measured without one.
    near.note(5 * MS, 0)
    need = Need(1, DIGEST, 1, 4_000, 101 * S)
    busy = Offer(KNOWN, (Offered(DIGEST, 2 * MS, 30 * MS),), 1 << 20, 100 * S)
    assert placement.time_ns(busy, need, {KNOWN: near}, 0) == 35 * MS


def one_lost_frame_is_no_way() -> None:
    times = Times()
    times.met(8 * MS)
    times.met(208 * MS)
    assert times.way_ns == 10 * MS
    times.met(8 * MS)
    assert times.way_ns == 8 * MS


def the_first_request_waits_for_no_ticket() -> None:
    swarm = Swarm(3)
    swarm.turn()
    swarm.command(NODES[0], WANTS)
    assert sorted(asks(swarm)) == sorted(NODES[1:3])
    swarm.now_ns += 4 * MS
    swarm.turn()
    begun = len(swarm.said)
    swarm.borrow()
    assert [type(said) for _, _, said in swarm.said[begun:]] == [messages.Request]
    assert swarm_ways(swarm) == {NODES[1]: 4 * MS, NODES[2]: 4 * MS}


def a_first_word_that_waited_for_a_connection_is_no_way() -> None:
    """The next request takes a word along that measures it, before its input; once, whatever comes of that."""
    swarm = Swarm(2)
    swarm.turn()
    swarm.command(NODES[0], WANTS)
    swarm.now_ns += 274 * MS
    swarm.turn()
    assert swarm_ways(swarm) == {NODES[1]: 274 * MS}
    for number, took_ms in ((1, 95), (2, 95), (3, 15)):
        begun = len(swarm.said)
        swarm.later(1_000)
        swarm.stock(NODES[1])
        swarm.turn()
        swarm.borrow(number)
        said = [type(said) for sender, _, said in swarm.said[begun:] if sender == NODES[0]]
        assert said == ([messages.Ask] if number == 2 else []) + [messages.Request]
        if number == 2:  # The word comes first, and its answer too.
            swarm.now_ns += 20 * MS
            _, to, ask = swarm.wire.popleft()
            swarm.perform(to, swarm.nodes[to].on_message(NODES[0], ask, swarm.now_ns))
            sender, to, grant = swarm.wire.pop()
            swarm.perform(to, swarm.nodes[to].on_message(sender, grant, swarm.now_ns))
        swarm.now_ns += took_ms * MS
        swarm.turn()
        assert swarm_ways(swarm) == {NODES[1]: (0, 20 * MS, 0)[number - 1]}
    begun = len(swarm.said)
    swarm.borrow(4)
    assert [type(said) for sender, _, said in swarm.said[begun:]] == [messages.Request]


def what_nobody_asks_for_costs_no_word() -> None:
    swarm = Swarm(3)
    swarm.turn()
    for asked in ((), (OTHER,)):
        swarm.command(NODES[0], requests.Stock((), 0, None, asks=asked))
    swarm.turn()
    assert asks(swarm) == []
    # One that was asked for once is left again after the life of a ticket.
    swarm.borrow()
    swarm.turn()
    begun = 0
    for second in range(70):
        begun = len(swarm.said) if second == 31 else begun
        swarm.later(1_000)
        for node in NODES[1:3]:
            swarm.stock(node)
        swarm.command(NODES[0], requests.Stock((), 0, None))
        swarm.turn()
    assert asks(swarm, begun) == []


def who_gives_no_ticket_is_left_for_a_while() -> None:
    swarm = Swarm(2, lending=LendingConfig(grants=GrantsConfig(borrowers_max=0)))
    for second in range(12):
        swarm.turn()
        swarm.command(NODES[0], WANTS)
        swarm.turn()
        swarm.later(1_000)
        swarm.stock(NODES[1])
        assert len(asks(swarm)) == 1 + (second >= 10)


def a_few_tickets_are_held_and_not_of_the_same_few() -> None:
    nodes = [NodeId(bytes([number]) * 16) for number in range(20)]
    offers = [offer(node, 5) for node in nodes] + [offer(UNKNOWN, 60)]
    drawn = set()
    for seed in range(30):
        wanting = Ahead(random.Random(seed), FREE)
        wanting.want(DIGEST, 100 * S)
        found = wanting.lenders(offers, {}, lambda node, digest, now_ns: False, 100 * S)
        assert len(found) == len(set(found)) == 4
        drawn |= {node for node, _ in found}
        # Who has given one is kept.
        had = {node for node, _ in found}
        again = wanting.lenders(offers, {}, lambda node, digest, now_ns, had=had: node in had, 100 * S)  # type: ignore[misc]
        assert {node for node, _ in again} == had
    assert drawn == set(nodes), "all that are near, and none that is far"


def many_wanted_bundles_are_bounded() -> None:
    wanting = Ahead(random.Random(1), FREE)
    digests = [number.to_bytes(32, "big") for number in range(40)]
    for digest in digests:
        wanting.want(digest, 100 * S)
    rows = tuple(Offered(digest, MS, 0) for digest in digests)
    found = wanting.lenders([Offer(KNOWN, rows, 1 << 20, 100 * S)], {}, lambda node, digest, now_ns: False, 100 * S)
    assert [digest for _, digest in found] == digests[-16:]


def _a_word_is_a_measure(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(placement, "WAY_NS", 0)


def _no_way_is_measured(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Times, "met", lambda self, took_ns: None)


def _the_last_way_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Times, "met", lambda self, took_ns: setattr(self, "way_ns", took_ns))


def _nobody_looks_ahead(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ahead, "lenders", lambda self, *about: [])


def _once_wanted_is_always_wanted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ahead, "WANTED_NS", 1 << 60)


def _whoever_refuses_is_asked_each_second(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("swarmd_protocols.offload.borrowing.LEFT_NS", 0)


def _everybody_is_asked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ahead, "LENDERS", 20)


def _the_first_are_always_asked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(random.Random, "sample", lambda self, those, count: list(those)[:count])


def _nothing_wanted_goes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ahead, "BUNDLES_MAX", 1_000)


def _a_way_is_never_wrong(patch: pytest.MonkeyPatch) -> None:
    whole = Times.note

    def note(self: Times, *about: Any, **more: Any) -> None:
        way_ns = self.way_ns
        whole(self, *about, **more)
        self.way_ns, self.wants_way = way_ns, False

    patch.setattr(Times, "note", note)


def _it_is_measured_each_time(patch: pytest.MonkeyPatch) -> None:
    whole = Times.note

    def note(self: Times, *about: Any, **more: Any) -> None:
        whole(self, *about, **more)
        self.wants_way = not self.way_ns

    patch.setattr(Times, "note", note)


PAIRS: list[tuple[Law, Mutant]] = [
    (a_lender_whose_way_is_known_is_not_left_for_a_word, _a_word_is_a_measure),
    (nobody_is_outrun_before_it_could_be_back, _a_word_is_a_measure),
    (a_way_that_was_measured_stands_for_the_guess, _no_way_is_measured),
    (one_lost_frame_is_no_way, _the_last_way_counts),
    (the_first_request_waits_for_no_ticket, _nobody_looks_ahead),
    (the_first_request_waits_for_no_ticket, _no_way_is_measured),
    (a_first_word_that_waited_for_a_connection_is_no_way, _a_way_is_never_wrong),
    (a_first_word_that_waited_for_a_connection_is_no_way, _it_is_measured_each_time),
    (what_nobody_asks_for_costs_no_word, _once_wanted_is_always_wanted),
    (who_gives_no_ticket_is_left_for_a_while, _whoever_refuses_is_asked_each_second),
    (a_few_tickets_are_held_and_not_of_the_same_few, _everybody_is_asked),
    (a_few_tickets_are_held_and_not_of_the_same_few, _the_first_are_always_asked),
    (many_wanted_bundles_are_bounded, _nothing_wanted_goes),
]


@each_law(PAIRS)
def test_law(law: Law) -> None:
    law()


@each_mutant(PAIRS)
def test_mutant_is_found(law: Law, mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
