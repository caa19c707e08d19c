"""Borrowing between nodes: an honest exchange, and what hostile borrowers and lenders can and cannot do.

Each rule has a mutant (`tests/mutants/test_offload_mutants.py`).
"""

from dataclasses import replace
from typing import Any

import pytest

from swarmd.worker.lent import token_of
from swarmd_protocols.errors import StateError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.offload import borrowing, lending, messages, requests
from swarmd_protocols.offload.dispatcher import DispatcherConfig
from swarmd_protocols.offload.whom import Whom
from tests.support.offload_swarm import CRYPTO, DIGEST, MS, NODES, OTHER, SEEDS, Signed, Swarm

ME, LENDER, THIRD = NODES[:3]


def said(swarm: Swarm, kind: type) -> list[Any]:
    return [message for _, _, message in swarm.said if isinstance(message, kind)]


def reasons(swarm: Swarm) -> list[str]:
    return [messages.REASONS[refusal.reason] for refusal in said(swarm, messages.Refusal)]


def _one_of_two_asked() -> tuple[Swarm, NodeId, NodeId]:
    """A request lies with one of two lenders that answer nothing yet: the swarm, who was asked, and the other."""
    swarm = Swarm(3)
    swarm.keeps = {LENDER, THIRD}
    swarm.turn()
    swarm.borrow()
    swarm.turn()
    asked = next(to for _, to, message in swarm.said if isinstance(message, messages.Request))
    return swarm, asked, THIRD if asked == LENDER else LENDER


def test_a_request_gets_its_answer_under_a_ticket_and_the_ticket_serves_again() -> None:
    swarm = Swarm()
    swarm.turn()
    assert swarm.nodes[ME].lenders() == {LENDER: (DIGEST.hex(),)}
    for number in (1, 2, 3):
        swarm.borrow(number)
        swarm.turn()
    assert [(one.number, one.data, one.lender) for one in swarm.settles()] == [
        (number, b"answer to input", LENDER) for number in (1, 2, 3)
    ]
    assert len(said(swarm, messages.Ask)) == len(said(swarm, messages.Grant)) == 1
    assert swarm.nodes[ME].open_requests == swarm.nodes[LENDER].jobs == 0


def test_a_request_that_nobody_answers_ends_at_its_deadline() -> None:
    swarm = Swarm()
    swarm.keeps = {LENDER}
    swarm.turn()
    swarm.borrow(left_ms=500)
    swarm.turn()
    swarm.later(499)
    assert not swarm.settles()
    swarm.later(2)
    assert [one.data for one in swarm.settles()] == [None]
    assert swarm.nodes[ME].open_requests == swarm.nodes[LENDER].jobs == 0
    assert any(isinstance(order, requests.Drop) for order in swarm.orders[LENDER])


def test_the_own_model_answers_at_the_last_moment() -> None:
    swarm = Swarm()
    swarm.keeps = {LENDER}
    swarm.turn()
    swarm.borrow(left_ms=500, local_ns=100 * MS)
    swarm.turn()
    swarm.later(400)
    (settle,) = swarm.settles()
    assert (settle.data, settle.lender) == (b"answer to input", None)
    assert swarm.nodes[LENDER].jobs == 0, "the lender was told that nobody waits"


def test_who_is_gone_holds_no_job_and_no_ticket() -> None:
    swarm = Swarm()
    swarm.keeps = {LENDER}
    swarm.turn()
    swarm.borrow()
    swarm.turn()
    assert swarm.nodes[LENDER].jobs == 1
    swarm.meet(LENDER, without=(ME,))
    assert swarm.nodes[LENDER].jobs == 0
    swarm.meet(LENDER)
    request = messages.Request(99, said(swarm, messages.Request)[0].ticket, DIGEST, 1, 400, b"input")
    swarm.hear(LENDER, ME, request)
    assert reasons(swarm) == ["unknown"]


def test_a_lender_that_goes_is_replaced_at_once() -> None:
    swarm, first, other = _one_of_two_asked()
    swarm.keeps = set()
    swarm.orders[first].clear()
    swarm.meet(ME, without=(first,))
    swarm.turn()
    assert [one.lender for one in swarm.settles()] == [other]


def test_a_broken_connection_sends_the_request_to_another_and_the_ledger_says_who_did_what() -> None:
    swarm, first, other = _one_of_two_asked()
    swarm.command(ME, requests.Doubt(first))
    swarm.command(ME, requests.Doubt(ME))
    swarm.keeps = {first}
    swarm.turn()
    assert [one.lender for one in swarm.settles()] == [other]
    assert swarm.nodes[ME].counts()["borrow_rerouted"] == 1
    (line,) = swarm.nodes[ME].ledger.take()
    assert (line.what, line.member, line.digest, line.count, line.size_bytes) == ("borrowed", other, DIGEST, 1, 5)
    lent = {row.what: row for row in swarm.nodes[other].ledger.take()}
    assert {what: row.member for what, row in lent.items()} == {"granted": ME, "lent": ME}
    assert lent["lent"].proof == line.proof, "both speak of the same answers"
    swarm.hear(other, ME, messages.Request(77, 1, DIGEST, 1, 100, b""))
    assert [(row.what, row.member) for row in swarm.nodes[other].ledger.take()] == [("refused_unknown", ME)]
    for _ in range(8):
        swarm.command(ME, requests.Judged(other, False))
    assert [(row.what, row.count) for row in swarm.nodes[ME].ledger.take()] == [("found_wrong", 8), ("ejected", 1)]
    assert swarm.nodes[ME].counts()["borrow_ejected"] == 1


def test_only_who_may_borrows_or_lends() -> None:
    for lend_to, borrow_from, said, answered in (
        ({ME.hex()}, {LENDER.hex()}, True, True),
        ({THIRD.hex()}, set(), False, False),
        (set(), {THIRD.hex()}, True, False),
    ):
        swarm = Swarm(2)
        swarm.said.clear()
        for node, side in ((LENDER, "lend_to"), (ME, "borrow_from")):
            names = frozenset(lend_to if side == "lend_to" else borrow_from)
            swarm.nodes[node]._config = replace(swarm.nodes[node]._config, **{side: Whom(names)})
            swarm.meet(node)
        swarm.wire.clear()
        swarm.later(1_100)
        swarm.stock(LENDER)
        swarm.turn()
        assert any(to == ME for _, to, _ in swarm.said) == said, "who may not borrow is told nothing"
        swarm.borrow()
        swarm.turn()
        assert [one.data is not None for one in swarm.settles()] == [answered]
        if not lend_to or ME.hex() in lend_to:
            assert swarm.nodes[ME].left_out(swarm.now_ns) == ({} if answered else {LENDER: "name"})
            continue
        swarm.hear(LENDER, ME, messages.Ask(DIGEST))
        assert not any(isinstance(message, messages.Grant) for _, _, message in swarm.said), "nor given a ticket"


@pytest.mark.parametrize(
    ("rule", "whom", "roles"),
    [
        ("name", Whom(names=frozenset(["a"])), ()),
        ("role", Whom(roles=frozenset(["station", "gateway"])), ("stations", "operator")),
        ("attested", Whom(attested=True), ("attested-once", "owner:farm")),
        ("same-owner", Whom(same_owner=True), ("owner:port",)),
        ("same-owner", Whom(same_owner=True), ("owner:farm", "owner:port")),
        ("same-owner", Whom(same_owner=True), ()),
    ],
)
def test_a_refusal_names_the_rule(rule: str, whom: Whom, roles: tuple[str, ...]) -> None:
    swarm = Swarm(2, lend_to=whom)
    swarm.signed |= {ME: Signed("b", roles), LENDER: Signed("c", ("owner:farm",))}
    swarm.meet(LENDER)
    swarm.hear(LENDER, ME, messages.Ask(DIGEST))
    swarm.hear(LENDER, ME, messages.Request(9, 1, DIGEST, 1, 100, b"mine"))
    swarm.hear(LENDER, ME, messages.Cancel(9))
    assert [messages.REASONS[one.reason] for one in said(swarm, messages.Deny)] == [f"outside-{rule}"]
    assert reasons(swarm) == [f"outside-{rule}"]
    rows = {row.what: row for row in swarm.nodes[LENDER].ledger.take()}
    assert rows[f"refused_outside-{rule}"].count == 2
    assert swarm.nodes[LENDER].counts()[f"lent_refused_outside-{rule}"] == 2
    for _ in range(lending.WORDS_BURST):
        swarm.hear(LENDER, ME, messages.Ask(DIGEST))
    assert len(said(swarm, messages.Deny)) < lending.WORDS_BURST, "asking has nobody say without end"


# --- hostile lenders ------------------------------------------------------------------------------------------------


def test_an_answer_counts_only_for_what_was_asked() -> None:
    """Signed for another borrower, request, bundle or input, by another key, unsigned, or of no proper form."""
    good = messages.Bound(ME, LENDER, 1 << 3, DIGEST, borrowing.sha256(b"input").digest())
    for change in ({"borrower": THIRD}, {"id": 7}, {"digest": OTHER}, {"input_sha256": bytes(32)}, {"lender": THIRD}):
        _garbage(messages.answer_bytes(replace(good, **change), b"answer"), b"answer", SEEDS[1])
    _garbage(messages.answer_bytes(good, b"answer"), b"answer", SEEDS[2])
    _garbage(messages.answer_bytes(good, b"nonsense"), b"nonsense", SEEDS[1])
    _garbage(messages.answer_bytes(good, b"answer"), b"answer that was changed", SEEDS[1])


def test_each_lender_is_told_a_token_of_its_own_and_signs_for_it() -> None:
    """What a lender was told is worth nothing to another, and its signature covers what it alone was told."""
    swarm = Swarm(4)
    swarm.turn()
    swarm.keeps = set(NODES)
    key, data, size = bytes(range(32)), b"head" + bytes(messages.LANE_TOKEN_BYTES) + b"tail", 1 << 10
    ask = requests.Borrow(
        1, DIGEST, data, 1, swarm.now_ns + 500 * MS, lane_bytes=size, copies=2, lane_key=key, lane_at=4
    )
    swarm.command(ME, ask)
    swarm.turn()
    told = {to: one.data for _, to, one in swarm.said if isinstance(one, messages.Request)}
    assert len(told) == 2
    for lender, said in told.items():
        token = said[4:-4]
        assert said == b"head" + token + b"tail"
        assert token == messages.lane_token(key, lender) == token_of(key, lender[:8])
    first, second = told
    assert told[first] != told[second]
    swarm.keeps = {*NODES} - {second}
    swarm.later(200)
    (settle,) = swarm.settles()
    assert (settle.lender, settle.data) == (second, b"answer to " + told[second])


def _garbage(signed: bytes, data: bytes, seed: bytes) -> None:
    swarm = Swarm()
    swarm.keeps = {LENDER}
    swarm.turn()
    swarm.borrow()
    swarm.turn()
    swarm.hear(ME, LENDER, messages.Answer(1 << 3, data, CRYPTO.sign(seed, signed)))
    assert [one.data for one in swarm.settles()] == [None], "garbage was taken for an answer"
    assert swarm.nodes[ME].counts()["borrow_garbage"] == 1


def test_garbage_costs_a_lender_its_place() -> None:
    swarm = Swarm()
    swarm.keeps = {LENDER}
    swarm.turn()
    for number in range(1, 6):
        swarm.borrow(number)
        swarm.turn()
        swarm.hear(ME, LENDER, messages.Answer(number << 3, b"nonsense", bytes(64)))
        swarm.later(12_000)  # What a failure makes of its time is forgotten by then.
    assert swarm.nodes[ME].is_ejected(LENDER, swarm.now_ns)
    swarm.borrow(6)
    swarm.turn()
    assert len(swarm.settles()) == 6
    assert len(said(swarm, messages.Request)) <= 5


def test_a_lender_that_failed_once_is_tried_again() -> None:
    swarm = Swarm()
    swarm.keeps = {LENDER}
    swarm.turn()
    swarm.borrow(1, left_ms=100)
    swarm.turn()
    swarm.later(12_000)
    swarm.keeps = set()
    swarm.orders[LENDER].clear()
    swarm.borrow(2, left_ms=90)
    swarm.turn()
    assert [one.data for one in swarm.settles()] == [None, b"answer to input"]


def test_an_answer_that_nobody_asked_for_is_not_looked_at() -> None:
    swarm, _, other = _one_of_two_asked()
    bound = messages.Bound(ME, other, 1 << 3, DIGEST, borrowing.sha256(b"input").digest())
    signature = CRYPTO.sign(SEEDS[NODES.index(other)], messages.answer_bytes(bound, b"answer"))
    swarm.hear(ME, other, messages.Answer(1 << 3, b"answer", signature))
    assert not swarm.settles()
    assert not swarm.nodes[ME].is_ejected(other, swarm.now_ns)


def test_an_offer_counts_only_as_its_sender_signed_it_and_only_the_newest() -> None:
    rows = (messages.Row(DIGEST, 1_000, 0),)
    swarm = Swarm(3)
    swarm.wire.clear()
    _offer(swarm, 1 << 40, rows, seed=SEEDS[2])
    _offer(swarm, 1 << 40, rows, node=THIRD)
    assert swarm.nodes[ME].lenders() == {}
    _offer(swarm, 1 << 40, rows)
    assert set(swarm.nodes[ME].lenders()) == {LENDER}
    _offer(swarm, 1 << 39, (messages.Row(OTHER, 1_000, 0),))
    assert swarm.nodes[ME].lenders() == {LENDER: (DIGEST.hex(),)}
    _offer(swarm, 1 << 41, ())
    assert swarm.nodes[ME].lenders() == {}


def _offer(
    swarm: Swarm, number: int, rows: tuple[messages.Row, ...], node: bytes = LENDER, seed: bytes = SEEDS[1]
) -> None:
    swarm.now_ns += 200 * MS
    body = messages.encode_descriptor(messages.Descriptor(node, number, 30_000, 500, 1 << 18, rows))
    swarm.hear(ME, LENDER, messages.Offered(body, CRYPTO.sign(seed, messages.offer_bytes(body))))


def test_a_flood_of_offers_costs_ten_signature_checks_a_second() -> None:
    swarm = Swarm()
    swarm.wire.clear()
    before = CRYPTO.checks
    for number in range(1_000):
        swarm.now_ns += MS
        body = messages.encode_descriptor(messages.Descriptor(LENDER, 1 << 40 | number, 3_000, 500, 1 << 18, ()))
        swarm.hear(ME, LENDER, messages.Offered(body, CRYPTO.sign(SEEDS[1], messages.offer_bytes(body))))
    assert CRYPTO.checks - before <= 11


def test_tickets_that_nobody_asked_for_fill_no_table() -> None:
    swarm = Swarm()
    swarm.turn()
    before = CRYPTO.checks
    for number in range(300):
        ticket = messages.Grant(bytes([number & 255]) * lending.messages.TICKET_BYTES)
        swarm.hear(ME, LENDER, ticket)
    assert CRYPTO.checks == before


def test_a_lender_that_denies_is_left_alone_for_a_second() -> None:
    swarm = Swarm()
    swarm.turn()
    swarm.stock(LENDER, battery=100)
    for number in range(1, 20):
        swarm.borrow(number, left_ms=100 * number)
        swarm.turn()
    assert len(said(swarm, messages.Ask)) == 1
    assert [one.data for one in swarm.settles()] == [None] * 19


# --- hostile borrowers ----------------------------------------------------------------------------------------------


def test_nobody_is_served_without_a_ticket_of_his_own() -> None:
    swarm = Swarm(3)
    swarm.keeps = {LENDER, THIRD}
    swarm.turn()
    swarm.hear(LENDER, ME, messages.Ask(DIGEST))
    number = swarm.nodes[LENDER]._lender._grants._number
    for sender, ticket, digest in ((THIRD, number, DIGEST), (ME, number + 1, DIGEST), (ME, number, OTHER)):
        swarm.hear(LENDER, sender, messages.Request(1, ticket, digest, 1, 400, b"input"))
    assert swarm.nodes[LENDER].jobs == 0
    swarm.hear(LENDER, ME, messages.Request(1, number, DIGEST, 1, 400, b"input"))
    assert swarm.nodes[LENDER].jobs == 1


def test_a_flooding_borrower_has_its_few_jobs_and_tickets_and_no_more() -> None:
    swarm = Swarm()
    swarm.keeps = {LENDER}
    swarm.turn()
    for _ in range(50):
        swarm.hear(LENDER, ME, messages.Ask(DIGEST))
    assert len([one for one in swarm.said if isinstance(one[2], messages.Grant)]) == 4
    number = swarm.nodes[LENDER]._lender._grants._number
    for request in range(1_000):
        swarm.hear(LENDER, ME, messages.Request(request, number, DIGEST, 1, 60_000, b"input"))
    assert swarm.nodes[LENDER].jobs == 4
    swarm.later(61_000)
    assert swarm.nodes[LENDER].jobs == 0
    assert swarm.timers.keys() <= {(node, (lending.NAME, "say")) for node in swarm.nodes}


def test_many_items_in_one_request_take_no_longer_than_a_turn() -> None:
    swarm = Swarm()
    swarm.keeps = {LENDER}
    swarm.turn()
    swarm.hear(LENDER, ME, messages.Ask(DIGEST))
    number = swarm.nodes[LENDER]._lender._grants._number
    swarm.hear(LENDER, ME, messages.Request(1, number, DIGEST, 11, 60_000, b"input"))
    assert (swarm.nodes[LENDER].jobs, reasons(swarm)) == (0, ["too-large"])
    swarm.hear(LENDER, ME, messages.Request(2, number, DIGEST, 10, 60_000, b"input"))
    assert swarm.nodes[LENDER].jobs == 1


def test_a_ticket_ends() -> None:
    swarm = Swarm()
    swarm.turn()
    swarm.hear(LENDER, ME, messages.Ask(DIGEST))
    number = swarm.nodes[LENDER]._lender._grants._number
    swarm.now_ns += 31_000 * MS
    swarm.hear(LENDER, ME, messages.Request(1, number, DIGEST, 1, 400, b"input"))
    assert swarm.nodes[LENDER].jobs == 0


def test_own_work_and_a_low_battery_come_first() -> None:
    swarm = Swarm()
    swarm.keeps = {LENDER}
    swarm.turn()
    swarm.hear(LENDER, ME, messages.Ask(DIGEST))
    number = swarm.nodes[LENDER]._lender._grants._number
    swarm.stock(LENDER, queue_ns=1_000 * MS)
    swarm.hear(LENDER, ME, messages.Request(1, number, DIGEST, 1, 900, b"input"))
    assert reasons(swarm) == ["late"]
    swarm.stock(LENDER, battery=300)
    swarm.hear(LENDER, ME, messages.Request(2, number, DIGEST, 1, 900, b"input"))
    assert reasons(swarm) == ["late", "not-lending"]
    assert swarm.nodes[LENDER].jobs == 0


def test_who_does_not_lend_or_borrow_answers_nothing() -> None:
    swarm = Swarm()
    swarm.turn()
    count = len(swarm.said)
    swarm.hear(ME, LENDER, messages.Ask(DIGEST))
    swarm.hear(ME, LENDER, messages.Request(1, 1, DIGEST, 1, 400, b"input"))
    swarm.nodes[ME].on_message(NODES[5], messages.encode_message(messages.Ask(DIGEST)), swarm.now_ns)
    assert len(swarm.said) == count
    assert swarm.nodes[ME].jobs == 0


def test_a_program_cannot_ask_for_what_cannot_travel() -> None:
    swarm = Swarm()
    for request in (
        requests.Borrow(0, DIGEST, b"", 1, swarm.now_ns + MS),
        requests.Borrow(1, DIGEST[1:], b"", 1, swarm.now_ns + MS),
        requests.Borrow(1, DIGEST, bytes(messages.PAYLOAD_MAX_BYTES + 1), 1, swarm.now_ns + MS),
        requests.Borrow(1, DIGEST, b"", 65, swarm.now_ns + MS),
        "nothing of ours",
    ):
        with pytest.raises(StateError):
            swarm.command(ME, request)
    assert swarm.nodes[ME].open_requests == 0


def test_a_borrower_has_so_many_requests_open_and_no_more() -> None:
    swarm = Swarm(config=DispatcherConfig(requests_max=3))
    swarm.keeps = {LENDER}
    swarm.turn()
    for number in range(1, 10):
        swarm.borrow(number)
    assert swarm.nodes[ME].open_requests == 3
    assert [one.data for one in swarm.settles()] == [None] * 6


def test_any_able_bundle_answers_and_the_answer_says_which() -> None:
    swarm = Swarm(3)
    swarm.turn()
    for node, digest, grade in ((NODES[1], DIGEST, 600), (NODES[2], OTHER, 900)):
        swarm.command(node, requests.Stock((requests.Held(digest, 10 * MS, "detect/traffic", grade),), 0, None))
    swarm.later(1_100)
    for number, grade, digest in ((1, 700, OTHER), (2, 0, DIGEST), (3, 950, b"")):
        deadline_ns = swarm.now_ns + 500 * MS
        own = requests.Borrow(
            number, b"", b"input", 1, deadline_ns, ability="detect/traffic", grade_min_milli=grade
        )  # fmt: skip
        if number == 2:
            swarm.meet(NODES[0], without=(NODES[2],))
        swarm.command(NODES[0], own)
        swarm.turn()
        settle = swarm.settles()[-1]
        assert settle.number == number
        assert settle.digest == digest
        assert (settle.data is None) == (number == 3), "nobody is good enough for the third"


def _steady(seconds: int) -> tuple[int, int, int]:
    """Two equal lenders, a request each 200 ms: how many were asked for, how many had to wait, and tickets granted."""
    swarm = Swarm(3)
    swarm.turn()
    waited, asks = 0, seconds * 5
    for number in range(1, asks + 1):
        swarm.later(200)
        deadline_ns = swarm.now_ns + 150 * MS
        swarm.command(ME, requests.Borrow(number, DIGEST, b"input", 1, deadline_ns))
        waited += not any(isinstance(message, messages.Request) for _, _, message in swarm.said[-2:])
        swarm.turn()
    assert [settle.data is not None for settle in swarm.settles()] == [True] * asks
    return asks, waited, len(said(swarm, messages.Grant))


def test_a_ticket_is_renewed_before_it_ends_and_who_has_given_one_is_asked() -> None:
    """Over three lives of a ticket nobody waits for one but at the beginning."""
    asks, waited, grants = _steady(70)
    assert asks == 350
    assert waited <= 2, "requests wait for tickets"
    assert grants <= 8
