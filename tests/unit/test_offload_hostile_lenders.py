"""Lenders that take what they are asked for and give nothing: what they cost a borrower, and for how long."""

from collections import deque

from swarmd_protocols.offload import messages, requests
from swarmd_protocols.offload.decisions import Attempt
from swarmd_protocols.offload.dispatcher import Dispatcher, DispatcherConfig
from swarmd_protocols.offload.placement import Need, Offer, Offered
from swarmd_protocols.offload.tickets import Ticket, seal_ticket
from swarmd_protocols.subprotocol import Peer, Send
from tests.support.offload_swarm import CRYPTO, DIGEST, MS, NODES, SEEDS, S, Swarm

ME, THIEF, HONEST = NODES[:3]
THIEFS_SEED = SEEDS[1]


def offer(number: int, *, withdraws: bool = False, is_signed: bool = True) -> messages.Offered:
    rows = () if withdraws else (messages.Row(DIGEST, 0, 0),)
    body = messages.encode_descriptor(messages.Descriptor(THIEF, number, 30_000, 500, 1 << 18, rows))
    return messages.Offered(body, CRYPTO.sign(THIEFS_SEED, messages.offer_bytes(body)) if is_signed else bytes(64))


def lost_to_a_thief(*, withdraws: bool) -> int:
    """Of forty requests, those without an answer: the quickest lender by its own word never gives one."""
    swarm, number = Swarm(3), 1 << 40

    def arrive() -> None:
        while swarm.wire:
            swarm.wire = deque(word for word in swarm.wire if THIEF not in word[:2])
            swarm.turn()

    swarm.turn()
    swarm.later(1_500)
    for request in range(1, 41):
        number += 1
        swarm.hear(ME, THIEF, offer(number))
        swarm.borrow(request)
        for _ in range(12):
            arrive()
            swarm.later(50)
        if withdraws:
            number += 1
            swarm.hear(ME, THIEF, offer(number, withdraws=True))
        arrive()
        swarm.later(120)
    assert len(swarm.settles()) == 40
    return sum(one.data is None for one in swarm.settles())


def test_who_answers_nobody_is_not_as_good_as_new_for_having_withdrawn() -> None:
    assert lost_to_a_thief(withdraws=False) <= 4
    assert lost_to_a_thief(withdraws=True) <= 4


def test_who_withdraws_before_each_deadline_has_still_taken_the_time() -> None:
    config = DispatcherConfig(hedge_burst=0.0, hedge_share=0.0)
    borrower, asked = Dispatcher(config, Swarm(1).nodes[ME]._borrower._dispatcher._rng), []
    for number in range(1, 10):
        now_ns = number * S
        for node, unit_ns in ((THIEF, 0), (HONEST, 50 * MS)):
            bundle = (Offered(DIGEST, unit_ns, 0),)
            borrower._on_offer(Offer(node, bundle, 1 << 18, now_ns), now_ns)
        begun = borrower._on_asked(Need(number, DIGEST, 1, 5, now_ns + 500 * MS), now_ns)
        asked += [one.lender for one in begun if isinstance(one, Attempt)]
        if asked[-1] == HONEST:
            borrower._on_answer(number, 0, now_ns + 50 * MS)
        borrower._on_offer(Offer(THIEF, (), 0, now_ns, is_reachable=False), now_ns + 480 * MS)
        assert not borrower.open_requests
    assert asked.count(THIEF) == 1


def test_who_has_been_a_lender_once_fills_no_table() -> None:
    swarm = Swarm(1)
    borrower = swarm.nodes[ME]._borrower._dispatcher
    for number in range(1, 1_000):
        node = messages.NodeId(number.to_bytes(16, "big"))
        borrower._on_offer(Offer(node, (Offered(DIGEST, 0, 0),), 1 << 18, swarm.now_ns), swarm.now_ns)
        borrower._on_asked(Need(number, DIGEST, 1, 5, swarm.now_ns + 500 * MS), swarm.now_ns)
        borrower._on_offer(Offer(node, (), 0, swarm.now_ns, is_reachable=False), swarm.now_ns)
    assert len(borrower.times) <= borrower._config.reputation.lenders_max


def test_tickets_that_are_good_for_nothing_start_no_endless_exchange() -> None:
    """Empty, over, or too small for what waits: a lender that hands out such is asked once a second."""
    for count, size_bytes, until_ms in ((0, 1 << 20, 1 << 50), (9, 1 << 20, 0), (9, 4, 1 << 50)):
        swarm = Swarm()
        swarm.turn()
        swarm.borrow(left_ms=60_000)
        asked = 0
        for number in range(100):
            words, swarm.wire = swarm.wire, deque()
            asked += sum(isinstance(messages.decode_message(payload), messages.Ask) for _, _, payload in words)
            ticket = Ticket(THIEF, ME, DIGEST, number, size_bytes, count, 1 << 18, until_ms)
            swarm.hear(ME, THIEF, messages.Grant(seal_ticket(ticket, THIEFS_SEED, CRYPTO)))
        assert asked == 1
        assert [one.data for one in swarm.settles()] == [None], "who has no ticket to give is not waited for"


def test_offers_that_do_not_hold_cost_ten_checks_a_second_as_others_do() -> None:
    swarm = Swarm()
    swarm.turn()
    for number, is_signed in ((1 << 40, False), (1, True)):
        swarm.now_ns += S
        before = CRYPTO.checks
        for more in range(1_000):
            swarm.now_ns += MS
            swarm.hear(ME, THIEF, offer(number + more, is_signed=is_signed))
        assert 1 <= CRYPTO.checks - before <= 11


def test_nothing_is_said_to_who_is_out_of_this_radios_reach() -> None:
    lender = Swarm().nodes[THIEF]
    key = CRYPTO.public_key(SEEDS[0])
    stock = requests.Stock((requests.Held(DIGEST, 10 * MS),), 0, None)
    for far, said in ((True, 0), (False, 1)):
        lender.on_peers([Peer(ME, "me", key, True, 30, far)], 2_000 * S)
        effects = lender.on_command(stock, 3_000 * S + far)
        assert sum(isinstance(one, Send) for one in effects) == said
