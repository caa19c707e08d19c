"""What borrowing may cost: laws of the purse, offers that ask money or charge, and what is written down of it."""

import random

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from swarmd.brain.lending import charge_ppb_s
from swarmd.brain.spending import cost_rule, micro_s
from swarmd.config.lending import LendingSection
from swarmd_protocols.errors import WireError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.offload import messages, requests
from swarmd_protocols.offload.lending import LendingConfig
from swarmd_protocols.offload.messages import Descriptor, Row, decode_descriptor, encode_descriptor
from swarmd_protocols.offload.placement import Need, Offer, Offered, choose, feasible
from swarmd_protocols.offload.purse import HOUR_NS, Cost, CostRule, Purse, cost, price_micro
from tests.support.offload_swarm import CRYPTO, DIGEST, MS, NODES, SEEDS, S, Swarm

PAYS = CostRule(price_max_micro=100, hour_max_micro=250)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 400), st.integers(0, 1 << 20), st.integers(0, HOUR_NS), st.booleans(), st.integers(0, 5)
        ),
        max_size=60,
    ),
    st.integers(0, 1_000), st.integers(0, 1 << 21),
)  # fmt: skip
@example([(100, 0, 0, False, 1), (100, 0, HOUR_NS, True, 0), (100, 0, 0, True, 0), (100, 0, HOUR_NS, True, 0)], 100, 0)
def test_no_hour_costs_more_than_twice_its_sum(
    asked: list[tuple[int, int, int, bool, int]], hour_micro: int, hour_bytes: int
) -> None:
    purse, now_ns = Purse(CostRule(300, hour_micro, hour_bytes)), 7
    spent, left, aside = list[tuple[int, int]](), list[tuple[int, int]](), list[tuple[int, int, int, bool]]()
    for at, (price, size, past_ns, is_answered, later) in enumerate(asked):
        now_ns += past_ns
        if purse.set_aside(Cost(price), size, now_ns):
            assert price <= 300
            left.append((now_ns, size))
            aside.append((at + later, now_ns, price, is_answered))
        for one in [one for one in aside if one[0] <= at]:  # So many requests later its answer comes, or none.
            aside.remove(one)
            if one[3]:
                purse.spend(one[2])
                spent.append(one[1:3])
            else:
                purse.give_back(one[2])
        assert purse.left_micro(now_ns) + sum(price for _, _, price, _ in aside) <= hour_micro
    for at_ns, _ in left:
        hour = range(at_ns - HOUR_NS, at_ns + 1)
        assert sum(price for when_ns, price in spent if when_ns in hour) <= 2 * hour_micro
        assert not hour_bytes or sum(size for when_ns, size in left if when_ns in hour) <= 2 * hour_bytes


def test_what_was_refused_is_given_back_and_no_more() -> None:
    purse = Purse(PAYS)
    assert [purse.set_aside(Cost(100), 1, 0) for _ in range(3)] == [True, True, False]
    purse.give_back(100)
    assert purse.set_aside(Cost(100), 1, 0)
    purse.give_back(10_000)
    assert purse.left_micro(0) == 250
    assert not purse.set_aside(Cost(101), 1, 0), "more than one request may cost"
    assert purse.set_aside(Cost(100), 1, 0)
    purse.spend(100)
    purse.give_back(100)
    assert (purse.left_micro(0), purse.counts["price_micro"]) == (150, 100), "what is spent does not come back"


@given(st.integers(0, 10**12), st.integers(0, 600 * 10**9))
def test_what_asks_money_is_never_free(rate: int, time_ns: int) -> None:
    assert (price_micro(rate, time_ns) == 0) == (rate * time_ns == 0)
    assert price_micro(rate, time_ns) * 10**9 >= rate * time_ns


# --- Offers -----------------------------------------------------------------------------------------------------------

ROWS = (Row(DIGEST, 1, 1),)


def test_an_offer_that_costs_nothing_has_the_bytes_that_it_always_had() -> None:
    free = Descriptor(bytes(16), 1, 1_000, 500, 1 << 18, ROWS)
    assert msgspec.msgpack.decode(encode_descriptor(free)) == [
        bytes(16),
        1,
        1_000,
        500,
        1 << 18,
        [[DIGEST, 1, 1, 0, 0]],
    ]
    priced = msgspec.structs.replace(free, price_micro_s=7, charge_ppb_s=9)
    assert decode_descriptor(encode_descriptor(priced)) == priced
    assert msgspec.msgpack.decode(encode_descriptor(priced))[:6] == msgspec.msgpack.decode(encode_descriptor(free))


@pytest.mark.parametrize("change", [{"price_micro_s": -1}, {"price_micro_s": 10**12 + 1}, {"charge_ppb_s": 10**9 + 1}])
def test_a_price_out_of_bounds_is_no_offer(change: dict[str, int]) -> None:
    offer = msgspec.structs.replace(Descriptor(bytes(16), 1, 1_000, 500, 1 << 18, ROWS, 1), **change)
    with pytest.raises(WireError):
        decode_descriptor(encode_descriptor(offer))


def test_the_largest_offer_with_prices_fits_a_datagram() -> None:
    rows = tuple(Row(bytes([at]) * 32, 600_000_000, 600_000_000, 1 << 31, 1_000) for at in range(16))
    body = encode_descriptor(Descriptor(bytes(16), 1 << 60, 30_000, 1_000, 64 << 20, rows, 10**12, 10**9))
    assert len(messages.encode_message(messages.Offered(body, bytes(64)))) <= 1_000


# --- Who is asked -----------------------------------------------------------------------------------------------------


def lender(at: int, unit_ms: int, price_micro_s: int = 0, charge_ppb_s: int = 0) -> Offer:
    node = NodeId(bytes([at]) * 16)
    return Offer(node, (Offered(DIGEST, unit_ms * MS, 0),), 1 << 18, 0, True, 2 * S, price_micro_s, charge_ppb_s)


def chosen(rule: CostRule, *offers: Offer) -> Offer | None:
    need = Need(1, DIGEST, 1, 100, S, rule=rule)
    found = choose(need, feasible(need, offers, {}, [], 0), {}, random.Random(1), 0)
    return None if found is None else found[0]


QUICK, CHEAP = lender(1, 10, 10_000), lender(2, 40)  # 100 millionths a request, and nothing.


def test_who_asks_more_than_is_allowed_is_not_asked() -> None:
    assert chosen(CostRule(), QUICK) is None
    assert chosen(CostRule(), QUICK, CHEAP) is CHEAP
    assert chosen(CostRule(99, 10**6), QUICK, CHEAP) is CHEAP
    assert chosen(CostRule(100, 10**6), QUICK, CHEAP) is QUICK


def test_waiting_is_held_against_money_and_charge() -> None:
    assert chosen(CostRule(100, 10**6, ns_per_micro=MS // 5), QUICK, CHEAP) is QUICK  # 10 + 20 ms against 40.
    assert chosen(CostRule(100, 10**6, ns_per_micro=MS // 2), QUICK, CHEAP) is CHEAP  # 10 + 50.
    tired = lender(3, 10, 0, 1_000_000)  # A thousandth of the charge a second: 10 millionths a request.
    assert chosen(CostRule(ns_per_ppm=MS), tired, CHEAP) is tired
    assert chosen(CostRule(ns_per_ppm=10 * MS), tired, CHEAP) is CHEAP
    assert chosen(CostRule(charge_max_ppm=9), tired) is None


# --- Through the sub-protocol ----------------------------------------------------------------------------------------


def swarm_that_asks(rule: CostRule) -> Swarm:
    """Two lenders that ask 1,000 millionths a second, 10 a request, and a borrower with a rule."""
    from swarmd_protocols.offload.borrowing import Purse as Paid

    swarm = Swarm(3, lending=LendingConfig(price_micro_s=1_000))
    swarm.nodes[NODES[0]]._borrower._purse = Paid(rule)
    swarm.turn()
    return swarm


def settled(swarm: Swarm) -> list[requests.Settle]:
    return [order for order in swarm.orders[NODES[0]] if isinstance(order, requests.Settle)]


def test_what_was_paid_stands_in_both_books() -> None:
    swarm = swarm_that_asks(CostRule(10, 10**6))
    for number in range(1, 4):
        swarm.borrow(number)
        swarm.turn()
    assert [one.data is not None for one in settled(swarm)] == [True] * 3
    assert swarm.nodes[NODES[0]].counts()["borrow_price_micro"] == 30
    mine = [line for line in swarm.nodes[NODES[0]].ledger.take() if line.what == "borrowed"]
    theirs = [line for node in NODES[1:3] for line in swarm.nodes[node].ledger.take() if line.what == "lent"]
    assert sum(line.price_micro for line in mine) == sum(line.price_micro for line in theirs) == 30
    assert {line.proof for line in mine} == {line.proof for line in theirs}


def test_both_books_say_how_long_it_took() -> None:
    swarm = swarm_that_asks(CostRule(10, 10**6))
    swarm.keeps = {NODES[1], NODES[2]}
    swarm.borrow(1)
    swarm.turn()
    swarm.now_ns += 3 * MS  # At whoever got it; nobody else works on it by then.
    swarm.keeps.clear()
    swarm.turn()
    lines = [line for node in NODES[:3] for line in swarm.nodes[node].ledger.take()]
    assert [(line.what, line.took_ns) for line in lines if line.took_ns] == [("borrowed", 3 * MS), ("lent", 3 * MS)]


def test_an_hour_that_is_spent_asks_nobody_who_wants_money() -> None:
    swarm = swarm_that_asks(CostRule(10, 20))
    for number in range(1, 5):
        swarm.borrow(number)
        swarm.turn()
        swarm.later(600)
    assert [one.data is not None for one in settled(swarm)] == [True, True, False, False]
    assert swarm.nodes[NODES[0]].counts()["borrow_over_budget"] >= 2
    assert swarm.nodes[NODES[0]].counts()["borrow_price_micro"] == 20


def test_a_lender_that_raises_its_price_behind_the_ticket_is_not_paid_it() -> None:
    swarm = swarm_that_asks(CostRule(10, 10**6))
    swarm.now_ns += 200 * MS
    swarm.borrow(1)  # Chosen by the old price; its ticket is under way.
    for at in (1, 2):
        body = encode_descriptor(Descriptor(NODES[at], 1 << 50, 2_000, 500, 1 << 18, (Row(DIGEST, 10_000, 0),), 10**9))
        swarm.hear(NODES[0], NODES[at], messages.Offered(body, CRYPTO.sign(SEEDS[at], messages.offer_bytes(body))))
    swarm.turn()
    swarm.later(600)
    assert [one.data is not None for one in settled(swarm)] == [False]
    counts = swarm.nodes[NODES[0]].counts()
    assert (counts["borrow_over_budget"], counts["borrow_price_micro"]) == (1, 0)


def left_micro(swarm: Swarm) -> int:
    return swarm.nodes[NODES[0]]._borrower._purse.left_micro(swarm.now_ns)


def test_a_lender_that_says_nothing_is_paid_nothing() -> None:
    swarm = swarm_that_asks(CostRule(10, 20))
    swarm.keeps = {NODES[1], NODES[2]}
    swarm.borrow(1)
    swarm.turn()
    assert left_micro(swarm) <= 10, "set aside while it may still answer"
    swarm.later(600)
    assert [one.data for one in settled(swarm)] == [None]
    assert (left_micro(swarm), swarm.nodes[NODES[0]].counts()["borrow_price_micro"]) == (20, 0)
    assert not [line for line in swarm.nodes[NODES[0]].ledger.take() if line.what == "borrowed"]


def test_what_comes_second_and_garbage_are_paid_nothing() -> None:
    swarm = swarm_that_asks(CostRule(10, 20))
    swarm.keeps = {NODES[1], NODES[2]}
    swarm.command(NODES[0], requests.Borrow(1, DIGEST, b"input", 1, swarm.now_ns + 500 * MS, 0, copies=2))
    swarm.turn()
    assert left_micro(swarm) == 0
    swarm.later(100)  # The second begins too.
    jobs = [(node, one) for node in NODES[1:3] for one in swarm.orders[node] if isinstance(one, requests.Infer)]
    for (node, job), data in zip(jobs, (b"garbage", b"answer"), strict=True):
        swarm.orders[node].remove(job)
        swarm.command(node, requests.Ran(job.job, data))
        swarm.turn()
    assert [one.data for one in settled(swarm)] == [b"answer"]
    assert (left_micro(swarm), swarm.nodes[NODES[0]].counts()["borrow_price_micro"]) == (10, 10)
    swarm.command(NODES[0], requests.Borrow(2, DIGEST, b"input", 1, swarm.now_ns + 500 * MS, 0, copies=2))
    swarm.keeps.clear()
    swarm.turn()
    assert [one.data is not None for one in settled(swarm)] == [True, True]
    assert (left_micro(swarm), swarm.nodes[NODES[0]].counts()["borrow_price_micro"]) == (0, 20)


def test_an_empty_purse_is_no_failure_of_the_lenders() -> None:
    swarm = swarm_that_asks(CostRule(10, 10**6))
    swarm.now_ns += 200 * MS
    swarm.borrow(1)  # Chosen by a price that is within; when the ticket comes the hour's money is gone.
    swarm.nodes[NODES[0]]._borrower._purse.set_aside(Cost(10), 0, swarm.now_ns)
    swarm.nodes[NODES[0]]._borrower._purse._micro_ns = 0
    swarm.turn()
    assert [one.data for one in settled(swarm)] == [None], "nobody is asked for nothing"
    counts = swarm.nodes[NODES[0]].counts()
    assert (counts["borrow_unpaid"], counts["borrow_failed"], counts["borrow_over_budget"]) == (2, 0, 2)
    for node in NODES[1:3]:
        times = swarm.nodes[NODES[0]]._borrower._dispatcher.times_of(node)
        assert times.mean_ns(10 * MS, swarm.now_ns) < 50 * MS, "it is no slower for having asked for money"


def test_with_an_empty_purse_who_asks_nothing_is_asked() -> None:
    from swarmd_protocols.offload.borrowing import Purse as Paid

    swarm = Swarm(6)
    swarm.nodes[NODES[0]]._borrower._purse = Paid(CostRule(10, 5))
    swarm.turn()
    swarm.now_ns += 200 * MS
    for node in NODES[1:5]:
        body = encode_descriptor(Descriptor(node, 1 << 50, 2_000, 500, 1 << 18, (Row(DIGEST, 1_000, 0),), 10_000))
        offer = messages.Offered(body, CRYPTO.sign(SEEDS[NODES.index(node)], messages.offer_bytes(body)))
        swarm.hear(NODES[0], node, offer)
    swarm.borrow(1)
    swarm.turn()
    assert [one.lender for one in settled(swarm)] == [NODES[5]]
    assert swarm.nodes[NODES[0]].counts()["borrow_over_budget"] == 1


# --- The owner's units ------------------------------------------------------------------------------------------------


def test_the_owners_units() -> None:
    assert micro_s(3.6) == 1_000
    assert cost_rule(LendingSection()) == CostRule()
    said = LendingSection(
        price_max=0.5, price_hour_max=2.0, mib_hour_max=1.5, charge_max=0.1, money_s=1.0, charge_s=1.0
    )  # fmt: skip
    assert cost_rule(said) == CostRule(500_000, 2_000_000, 3 << 19, 100_000, 1_000, 100_000)
    assert cost(1_000, 16_667, 60 * S) == Cost(60_000, 1_000)
    assert charge_ppb_s(3.0, 50 * 3600.0) == 16_667
    assert charge_ppb_s(0.0, 50 * 3600.0) == charge_ppb_s(3.0, None) == 0
