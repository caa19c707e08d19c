"""Borrowing half way: what comes too late, whoever goes in the middle, and tickets and offers that are none."""

import pytest

from swarmd_protocols.errors import WireError
from swarmd_protocols.offload import messages, requests
from swarmd_protocols.offload.lending import LendingConfig
from swarmd_protocols.offload.purse import CostRule
from swarmd_protocols.offload.tickets import GrantsConfig
from swarmd_protocols.offload.whom import Whom
from tests.support.offload_swarm import DIGEST, MS, S, Signed, Swarm
from tests.unit.test_offload import LENDER, ME, THIRD, said

KEEP_NS = 60 * S


def test_an_answer_that_is_read_after_the_deadline_is_none_although_its_timer_is_late() -> None:
    """As where the process was frozen: what has come meanwhile is read before timers fire."""
    for local_ns, keeps in ((0, {LENDER}), (400 * MS, {LENDER, ME})):
        swarm = Swarm()
        swarm.keeps = keeps
        swarm.turn()
        swarm.borrow(left_ms=500, local_ns=local_ns)
        swarm.turn()
        swarm.now_ns += 501 * MS
        swarm.keeps = set()
        swarm.turn()
        assert [one.data for one in swarm.settles()] == [None]
        swarm.later(1_000)
        assert len(swarm.settles()) == 1
        assert swarm.nodes[ME].open_requests == 0


def test_an_answer_at_the_deadline_counts() -> None:
    swarm = Swarm()
    swarm.keeps = {LENDER}
    swarm.turn()
    swarm.borrow(left_ms=500)
    swarm.turn()
    swarm.now_ns += 500 * MS
    swarm.keeps = set()
    swarm.turn()
    assert [one.data for one in swarm.settles()] == [b"answer to input"]


def _kept(**rules: Whom) -> tuple[Swarm, requests.Borrow]:
    """An answer is kept that one of two lenders gave, and the question to it."""
    swarm = Swarm(3, **rules)  # type: ignore[arg-type]
    swarm.turn()
    ask = requests.Borrow(1, DIGEST, b"input", 1, swarm.now_ns + S, only=LENDER, keep_ns=KEEP_NS)
    swarm.command(ME, ask)
    swarm.turn()
    assert [one.lender for one in swarm.settles()] == [LENDER]
    return swarm, replace_ask(ask, number=2, only=None, deadline_ns=swarm.now_ns + S)


def replace_ask(ask: requests.Borrow, **changes: object) -> requests.Borrow:
    values = {name: getattr(ask, name) for name in ask.__struct_fields__}
    return requests.Borrow(**(values | changes))


@pytest.mark.parametrize("whom", [{"but": (LENDER,)}, {"only": THIRD}])
def test_an_answer_that_was_kept_serves_nobody_who_wants_none_of_its_lender(whom: dict[str, object]) -> None:
    swarm, ask = _kept()
    swarm.command(ME, replace_ask(ask, **whom))
    swarm.turn()
    assert [(one.lender, one.is_kept) for one in swarm.settles()[1:]] == [(THIRD, False)]
    swarm.command(ME, replace_ask(ask, number=3))
    assert swarm.settles()[2].is_kept, "for others it is good"


def test_an_answer_that_was_kept_goes_with_the_membership_of_who_gave_it() -> None:
    swarm, ask = _kept()
    swarm.meet(ME, without=(LENDER,))
    swarm.command(ME, ask)
    assert swarm.settles()[1].is_kept, "who cannot be reached is no liar"
    held = swarm.signed.pop(LENDER)
    swarm.perform(ME, swarm.nodes[ME].on_trust(swarm.now_ns))
    for number in (3, 4):
        swarm.command(ME, replace_ask(ask, number=number))
        swarm.turn()
        assert (swarm.settles()[-1].lender, swarm.settles()[-1].is_kept) == (THIRD, number == 4)
        swarm.signed[LENDER] = held  # A new certificate makes no old answer good.


def test_an_answer_that_was_kept_goes_when_a_rule_leaves_its_lender_out() -> None:
    swarm, ask = _kept(borrow_from=Whom(names=frozenset({LENDER.hex(), THIRD.hex()})))
    swarm.signed[LENDER] = Signed("another")
    swarm.perform(ME, swarm.nodes[ME].on_trust(swarm.now_ns))
    swarm.command(ME, ask)
    swarm.turn()
    assert [(one.lender, one.is_kept) for one in swarm.settles()[1:]] == [(THIRD, False)]


def test_a_lender_that_lends_no_more_need_not_go_on_and_is_paid_nothing() -> None:
    """A hot one says so, and its borrower goes elsewhere: what it would still run nobody waits for."""
    cost = CostRule(price_max_micro=10**6, hour_max_micro=10**6)
    swarm = Swarm(3, lending=LendingConfig(price_micro_s=1_000), cost=cost)
    swarm.keeps = {LENDER, THIRD}
    swarm.turn()
    swarm.borrow(left_ms=5_000)
    swarm.turn()
    (asked,) = [to for _, to, message in swarm.said if isinstance(message, messages.Request)]
    swarm.command(asked, requests.Stock((), 0, None))
    swarm.later(1_100)
    assert swarm.nodes[asked].jobs == 0
    assert any(isinstance(order, requests.Drop) for order in swarm.orders[asked])
    purse = swarm.nodes[ME]._borrower._purse
    assert sum(sum(one.prices.values()) for one in swarm.nodes[ME]._borrower._open.values()) == 10
    assert purse.left_micro(swarm.now_ns) == 10**6 - 10, "only what the other one costs is set aside"
    swarm.keeps = set()
    swarm.turn()
    assert [one.lender for one in swarm.settles()] == [THIRD if asked == LENDER else LENDER]


def test_who_has_gone_is_not_told_to_begin() -> None:
    """Two copies, and both lenders are revoked at once: the input is sent to none of them again."""
    swarm = Swarm(3)
    swarm.keeps = {LENDER, THIRD}
    swarm.turn()
    swarm.command(ME, requests.Borrow(1, DIGEST, b"input", 1, swarm.now_ns + 5 * S, copies=2))
    swarm.turn()
    assert len(said(swarm, messages.Request)) == 2
    swarm.meet(ME, without=(LENDER, THIRD))
    assert len(said(swarm, messages.Request)) == 2
    assert [one.data for one in swarm.settles()] == [None]


def test_an_offer_that_fits_no_datagram_is_not_read() -> None:
    rows = tuple(messages.Row(bytes([at]) * 32, 1 << 29, 1 << 29, (1 << 32) - 1, 1_000) for at in range(16))
    full = messages.Descriptor(LENDER, (1 << 64) - 1, 30_000, 1_000, 64 << 20, rows, 10**12, 10**9)
    largest = messages.Offered(messages.encode_descriptor(full), bytes(64))
    assert messages.decode_message(messages.encode_message(largest)) == largest
    assert len(messages.encode_message(largest)) <= 1_000
    with pytest.raises(WireError, match="1000 bytes"):
        messages.decode_message(messages.encode_message(messages.Offered(bytes(1_001), bytes(64))))


def test_a_ticket_for_no_byte_is_a_refusal() -> None:
    swarm = Swarm(lending=LendingConfig(grants=GrantsConfig(bytes_max=0)))
    swarm.turn()
    for number in range(1, 11):
        swarm.borrow(number, left_ms=100 << number)
        swarm.turn()
        swarm.now_ns += 20 * MS
    assert len(said(swarm, messages.Ask)) == 1
    assert not said(swarm, messages.Request)
