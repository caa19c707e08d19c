"""One trace of a borrowed request: its borrower's root and what hangs below it at each lender, no word on the wire."""

import time
from typing import Any

import pytest

from swarmd.api.bus import Bus, Feed
from swarmd.api.daemon import LendingSpan
from swarmd.brain.lending import LendingLink
from swarmd.bridges.trace import parse_traceparent, trace_of, trace_of_request
from swarmd.logs import Logger
from swarmd.worker import words
from swarmd.worker.borrowing import cause_of
from swarmd.worker.http_server import Call
from swarmd_protocols.offload import messages
from swarmd_protocols.offload.under_way import split_number
from tests.support.offload_swarm import DIGEST, MS, NODES, Swarm

CAUSE = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"


class Side:
    """The brain of one node, and a worker that says what it is told to."""

    def __init__(self, swarm: Swarm, node: Any) -> None:
        self.swarm, self.node, self.spans = swarm, node, list[LendingSpan]()
        self.link = LendingLink(
            swarm.nodes[node], lambda name, request: swarm.command(node, request), lambda: None, lambda one: one.hex()
        )
        self.link.tell = self.spans.append
        self.told: list[Any] = []
        self.link.bind(lambda word: self.told.append(word) is None)

    def carry_out(self) -> None:
        for order in list(self.swarm.orders[self.node]):
            self.swarm.orders[self.node].remove(order)
            self.link.carry_out(order)


def sides(count: int = 2) -> tuple[Swarm, list[Side]]:
    swarm = Swarm(count)
    swarm.keeps = set(swarm.nodes)
    swarm.now_ns = time.monotonic_ns()
    for node in swarm.nodes:
        swarm.meet(node)
    swarm.later(3_000)
    for node in list(swarm.nodes)[1:]:
        swarm.stock(node)
    swarm.later(1_500)
    return swarm, [Side(swarm, node) for node in swarm.nodes]


def borrow(swarm: Swarm, side: Side, number: int = 1) -> None:
    """A program asks; by the swarm's own clock, which runs ahead of the machine's."""
    left_ms = (swarm.now_ns - time.monotonic_ns()) // MS + 800
    side.link.take(words.Borrow(number, DIGEST.hex(), b"input", 1, left_ms, cause=CAUSE))
    swarm.turn()


def lend(swarm: Swarm, side: Side, data: bytes | None) -> None:
    """The worker of a lender answers what it was given."""
    side.carry_out()
    for word in [one for one in side.told if isinstance(one, words.Lend)]:
        side.told.remove(word)
        side.link.take(words.Ran(word.job, data))
    swarm.turn()


def test_both_sides_tell_of_one_request() -> None:
    swarm, (borrower, lender) = sides()
    borrow(swarm, borrower)
    lend(swarm, lender, b"answer")
    borrower.carry_out()
    (root,), (below,) = borrower.spans, lender.spans
    assert (root.name, below.name) == ("borrow", "lend")
    assert (root.borrower, root.request, root.attempt) == (below.borrower, below.request, below.attempt)
    assert root.cause == CAUSE
    assert below.cause == "", "what the program was doing stays on its device"
    assert root.attributes["swarmd.lender"] == lender.node.hex()
    assert root.attributes["swarmd.answered"] is below.attributes["swarmd.answered"] is True
    assert root.attributes["model_digest"] == below.attributes["model_digest"] == DIGEST.hex()
    assert root.began_ns <= below.began_ns <= below.ended_ns <= root.ended_ns
    # The number is all that both need, and it was on the wire before there were traces.
    (sent,) = [message for _, _, message in swarm.said if isinstance(message, messages.Request)]
    assert split_number(sent.id) == (below.request, below.attempt)
    assert borrower.link._begun == lender.link._jobs == {}


def test_each_lender_that_was_asked_has_a_span_of_its_own() -> None:
    swarm, (borrower, one, two) = sides(3)
    borrow(swarm, borrower)
    first, second = (one, two) if swarm.nodes[one.node].jobs else (two, one)
    lend(swarm, first, None)
    lend(swarm, second, b"answer")
    borrower.carry_out()
    assert [span.attempt for side in (first, second) for span in side.spans] == [0, 1]
    (root,) = borrower.spans
    assert root.attempt == 1
    assert [one.attributes["swarmd.answered"] for one in (*first.spans, *second.spans)] == [False, True]


def test_what_is_dropped_or_dies_with_the_worker_is_told() -> None:
    swarm, (borrower, lender) = sides()
    borrow(swarm, borrower)
    lender.carry_out()
    borrower.link.take(words.Abandon(1))
    swarm.turn()
    lender.carry_out()
    borrower.carry_out()
    assert [one.attributes["swarmd.answered"] for one in (*borrower.spans, *lender.spans)] == [False, False]
    assert lender.spans[0].attributes["swarmd.dropped"] is True
    borrow(swarm, borrower, 2)
    lender.carry_out()
    lender.link.on_worker_gone()
    assert len(lender.spans) == 2
    borrower.link.on_worker_gone()
    borrower.carry_out()
    assert len(borrower.spans) == 1, "whose program has gone with its worker has no end to tell"
    assert borrower.link._begun == {}


def test_two_lives_of_a_device_give_no_request_the_same_number() -> None:
    """Else a collector would join two requests that have nothing to do with each other."""
    swarm, (borrower, _) = sides()
    lives = {Side(swarm, borrower.node).link._numbers for _ in range(50)}
    assert len(lives) == 50
    assert all(number < 1 << 60 for number in lives)


def test_a_trace_is_named_by_what_borrower_and_lender_know() -> None:
    one = trace_of_request(NODES[0], 7)
    assert one == trace_of_request(NODES[0], 7)
    assert one.trace_id not in {trace_of_request(NODES[1], 7).trace_id, trace_of_request(NODES[0], 8).trace_id}
    assert one.trace_id != trace_of(NODES[0], "", 7).trace_id
    assert one.span_id("lend/0", NODES[1]) != one.span_id("lend/1", NODES[1])


@pytest.mark.parametrize(
    "text",
    ["", "00-0-0-01", CAUSE.upper(), CAUSE + "0", CAUSE[:36] + "0" * 16 + "-01", "01" + CAUSE[2:]],
)
def test_what_is_no_context_is_left_out(text: str) -> None:
    assert parse_traceparent(text) is None
    assert cause_of(Call("POST", "/", {"traceparent": "x" * 10_000}, bytearray())) == ""
    assert cause_of(Call("POST", "/", {"traceparent": CAUSE}, bytearray())) == CAUSE


def test_what_others_ask_pushes_nothing_out_of_a_feed() -> None:
    bus = Bus(Logger("node", "error", "json"))
    feed, heard = Feed(bus, limit=2), list[Any]()
    bus.subscribe(heard.append)
    span = LendingSpan("lend", NODES[0], 1, 0, 1, 2, {})
    for _ in range(5):
        bus.publish(span)
    assert heard == [span] * 5
    assert (feed.dropped, len(feed._notices)) == (0, 0)


def test_nobody_is_told_where_nobody_traces() -> None:
    swarm, (borrower, lender) = sides()
    borrower.link.tell = lender.link.tell = None
    borrow(swarm, borrower)
    lend(swarm, lender, b"answer")
    borrower.carry_out()
    assert [one.data for one in borrower.told if isinstance(one, words.Borrowed)] == [b"answer"]
