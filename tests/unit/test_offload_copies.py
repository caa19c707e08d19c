"""Two copies of a request: one lender works on it, the other holds it, and begins where the first is late or dead.

Each rule has a mutant (`tests/mutants/test_offload_mutants.py`).
"""

from collections import deque
from collections.abc import Callable

import pytest

from swarmd_protocols.errors import StateError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.offload import lending, messages, requests
from swarmd_protocols.offload.decisions import Left
from swarmd_protocols.offload.tickets import open_ticket
from tests.support.offload_swarm import CRYPTO, DIGEST, MS, NODES, SEEDS, Swarm
from tests.unit.test_offload import LENDER, ME, THIRD, reasons, said


def two_copies(lenders: int, left_ms: int = 500) -> tuple[Swarm, NodeId, NodeId]:
    """A request of which two lenders know, and nobody runs anything: the swarm, who works on it, and who holds it."""
    swarm = Swarm(1 + lenders)
    swarm.turn()
    swarm.keeps = set(NODES)
    swarm.command(ME, requests.Borrow(1, DIGEST, b"input", 1, swarm.now_ns + left_ms * MS, copies=2))
    swarm.turn()
    taken = [node for node in NODES[1 : 1 + lenders] if swarm.nodes[node].jobs]
    working = [node for node in taken if infers(swarm, node)]
    assert (len(taken), len(working)) == (2, 1), "two have it, and one works on it"
    return swarm, working[0], next(node for node in taken if node not in working)


def infers(swarm: Swarm, node: NodeId) -> list[requests.Infer]:
    return [one for one in swarm.orders[node] if isinstance(one, requests.Infer)]


def test_the_second_of_two_copies_costs_no_work_where_the_first_is_in_time() -> None:
    swarm, working, holding = two_copies(2)
    (request,) = [one for _, to, one in swarm.said if isinstance(one, messages.Request) and to == holding]
    assert 0 < request.held_ms < request.left_ms
    assert swarm.nodes[holding].jobs_by_borrower() == {ME: 1}, "it takes a place"
    assert swarm.nodes[holding].held_for(ME) == [request.id]
    swarm.later(request.held_ms - 1)
    swarm.keeps = {*NODES} - {working}
    swarm.turn()
    (settle,) = swarm.settles()
    assert settle.lender == working
    swarm.keeps = {holding}
    swarm.later(500)
    assert not swarm.nodes[holding].jobs, "nobody waits for it any more"
    assert not any(isinstance(one, requests.Infer | requests.Drop) for one in swarm.orders[holding]), "nor has it begun"
    assert swarm.nodes[ME].counts()["borrow_copied"] == 1


def test_two_copies_and_a_death_in_the_middle() -> None:
    """The lender that works dies with the request in its hands, and nobody knows: the other begins, and answers."""
    swarm, working, holding = two_copies(2)
    swarm.keeps = {working}
    swarm.later(200)
    assert [settle.lender for settle in swarm.settles()] == [holding]
    assert [type(one) for one in swarm.orders[working]] == [requests.Infer, requests.Drop], "it works for nobody"
    deadline_ns = swarm.now_ns + 500 * MS
    with pytest.raises(StateError, match="3 copies"):
        swarm.command(NODES[0], requests.Borrow(2, DIGEST, b"input", 1, deadline_ns, copies=3))


def test_a_held_copy_begins_in_time_for_a_short_deadline() -> None:
    """Whatever the first usually takes: the second has its own time and half of it."""
    swarm, working, holding = two_copies(2, left_ms=60)
    swarm.keeps = {working}
    swarm.later(29)
    assert not infers(swarm, holding)
    assert not swarm.settles()
    swarm.later(2)
    assert [settle.lender for settle in swarm.settles()] == [holding]
    swarm = Swarm(3)
    swarm.turn()
    swarm.keeps = set(NODES)
    swarm.command(ME, requests.Borrow(1, DIGEST, b"input", 1, swarm.now_ns + 25 * MS, copies=2))
    swarm.turn()
    assert infers(swarm, LENDER), "with less than that both begin at once"
    assert infers(swarm, THIRD)


def is_refused(swarm: Swarm, working: NodeId) -> None:
    (request,) = [one for _, to, one in swarm.said if isinstance(one, messages.Request) and to == working]
    swarm.hear(ME, working, messages.Refusal(request.id, messages.REASONS.index("busy")))


@pytest.mark.parametrize("lenders", [2, 3])
@pytest.mark.parametrize(
    "fails",
    [
        is_refused,
        lambda swarm, working: swarm.command(ME, requests.Doubt(working)),
        lambda swarm, working: swarm.meet(ME, without=(working,)),
    ],
    ids=["refused", "broken", "gone"],
)
def test_who_holds_it_begins_when_nobody_else_works_on_it(fails: Callable[[Swarm, NodeId], None], lenders: int) -> None:
    """At once, and not when its time comes; a third one holds it then, where there is one."""
    swarm, working, holding = two_copies(lenders)
    swarm.keeps = {working}
    fails(swarm, working)
    swarm.turn()
    assert [settle.lender for settle in swarm.settles()] == [holding]
    third = [node for node in NODES[1 : 1 + lenders] if node not in (working, holding)]
    assert not any(infers(swarm, node) for node in third)
    assert [one.digest for _, to, one in swarm.said if isinstance(one, messages.Ask) and to == holding] == [DIGEST]
    spent = swarm.nodes[holding]._lender._grants._left
    assert [left.count for left in spent.values()] == [255], "its ticket is spent once"


@pytest.mark.parametrize("denies", [1, 2])
def test_who_is_to_hold_it_begins_at_once_where_the_first_cannot_even_be_asked(denies: int) -> None:
    """Both are decided on together, and the first fails before the second is sent: no peer makes a borrower raise."""
    swarm = Swarm(3)
    swarm.turn()
    if denies == 1:  # Who is much quicker is asked first, and for a ticket alone.
        swarm.command(LENDER, requests.Stock((requests.Held(DIGEST, MS),), 0, None))
        swarm.later(1_100)
    swarm.command(ME, requests.Stock((), 0, None, asks=(DIGEST,)))
    for lender in (LENDER, THIRD)[:denies]:
        swarm.wire = deque(word for word in swarm.wire if word[1] != lender)
        swarm.hear(ME, lender, messages.Deny(DIGEST, messages.REASONS.index("spent")))
    swarm.command(ME, requests.Borrow(1, DIGEST, b"input", 1, swarm.now_ns + 500 * MS, copies=2))
    swarm.turn()
    asked = [(to, one.held_ms) for _, to, one in swarm.said if isinstance(one, messages.Request)]
    assert asked == [(THIRD, 0)][: 2 - denies]
    assert [one.lender for one in swarm.settles()] == [THIRD, None][denies - 1 : denies]


def test_a_lender_that_has_started_anew_takes_it_for_a_new_request() -> None:
    """It knows no such ticket, and says so; nobody signs for another input."""
    swarm, working, holding = two_copies(2)
    swarm.nodes[holding]._lender._jobs.clear()
    swarm.nodes[holding]._lender._grants._left.clear()
    is_refused(swarm, working)
    swarm.turn()
    assert reasons(swarm) == ["unknown"]
    assert not infers(swarm, holding)


def test_what_was_to_be_held_and_comes_sooner_is_no_measure() -> None:
    """An older lender begins at once, and so may one that wants to look quick."""
    swarm, working, holding = two_copies(2)
    (request,) = [one for _, to, one in swarm.said if isinstance(one, messages.Request) and to == holding]
    swarm.later(request.held_ms + 1)
    swarm.keeps = {working}
    swarm.turn()
    assert [settle.lender for settle in swarm.settles()] == [holding]
    assert not swarm.nodes[ME]._borrower._dispatcher.times_of(holding)._samples
    (line,) = [line for line in swarm.nodes[ME].ledger.take() if line.what == "borrowed"]
    assert line.took_ns == MS, "and the time in which it was held is not what it took"


def test_a_ticket_for_who_is_to_hold_it_changes_nothing_of_when_the_first_is_late() -> None:
    swarm = Swarm(3)
    swarm.turn()
    swarm.keeps = set(NODES)
    swarm.command(ME, requests.Borrow(1, DIGEST, b"input", 1, swarm.now_ns + 500 * MS, copies=2))
    one = swarm.nodes[ME]._borrower._dispatcher._open[1]
    swarm.now_ns += 30 * MS
    swarm.turn()
    assert len(one.held(swarm.now_ns)) == 1
    assert one.begun_ns[0] == swarm.now_ns
    assert one.late_ns > one.begun_ns[0], "the first had to wait for its ticket too"
    late_ns = one.late_ns
    swarm.nodes[ME]._borrower._dispatcher.handle(Left(1, 1), swarm.now_ns + MS)
    assert one.late_ns == late_ns


def test_what_is_held_keeps_no_work_out() -> None:
    """Three who have all they may held leave a lender that does nothing: whoever has work for it has a place."""
    swarm = Swarm(6)
    swarm.turn()
    swarm.keeps = {LENDER}
    tickets = {}
    for node in (node for node in NODES[:6] if node != LENDER):
        before = len(swarm.said)
        swarm.hear(LENDER, node, messages.Ask(DIGEST))
        (grant,) = [one for _, to, one in swarm.said[before:] if isinstance(one, messages.Grant) and to == node]
        tickets[node] = open_ticket(grant.ticket, CRYPTO.public_key(SEEDS[1]), CRYPTO).number
    swarm.wire.clear()
    honest, *others = tickets
    for turn, node in enumerate(others[:3]):
        for at in range(4):
            request = messages.Request(100 + 4 * turn + at, tickets[node], DIGEST, 1, 60_000, b"input", held_ms=10_000)
            swarm.hear(LENDER, node, request)
    assert swarm.nodes[LENDER].jobs == 12
    for at in range(4):
        swarm.hear(LENDER, honest, messages.Request(200 + at, tickets[honest], DIGEST, 1, 500, b"input"))
    assert len(infers(swarm, LENDER)) == 4
    assert swarm.nodes[LENDER].jobs <= 16
    refused = [to for _, to, one in swarm.said if isinstance(one, messages.Refusal)]
    assert honest not in refused
    assert len(refused) == 3, "one place was free for who has none; of each of the others one is dropped"


def test_what_is_held_makes_nobody_wait_and_is_refused_where_its_time_has_passed() -> None:
    for battery, queue_ns, reason in ((None, 10_000 * MS, "late"), (100, 0, "not-lending")):
        swarm, _, holding = two_copies(2)
        swarm.stock(holding, battery=battery, queue_ns=queue_ns)
        swarm.later(300)
        assert reasons(swarm) == [reason], "it says so, and begins nothing"
        assert not infers(swarm, holding)
        assert not swarm.nodes[holding].jobs
    swarm, _, holding = two_copies(2)
    offer = messages.decode_descriptor(swarm.nodes[holding]._lender.offer(3_000).body)
    assert [row.queue_us for row in offer.rows] == [0], "what is held is no queue"


def test_who_asks_for_much_to_be_held_has_no_more_places_than_others() -> None:
    """Nor does anything stay held: it begins, or its borrower goes."""
    swarm = Swarm()
    swarm.turn()
    swarm.borrow()
    swarm.turn()
    number = said(swarm, messages.Request)[0].ticket
    swarm.keeps = {LENDER}
    for request in range(100, 120):
        left_ms, held_ms = messages.DEADLINE_MAX_MS, messages.HELD_MAX_MS
        swarm.hear(LENDER, ME, messages.Request(request, number, DIGEST, 1, left_ms, b"input", held_ms=held_ms))
    assert swarm.nodes[LENDER].jobs_by_borrower() == {ME: lending.LendingConfig().jobs_each}
    assert reasons(swarm) == ["busy"] * 16
    swarm.later(messages.HELD_MAX_MS - 1)
    assert not infers(swarm, LENDER)
    swarm.later(1)
    assert len(infers(swarm, LENDER)) == lending.LendingConfig().jobs_each
    for request in range(200, 204):
        swarm.hear(LENDER, ME, messages.Cancel(request - 100))
        swarm.hear(LENDER, ME, messages.Request(request, number, DIGEST, 1, left_ms, b"input", held_ms=held_ms))
    assert len(swarm.nodes[LENDER].held_for(ME)) == lending.LendingConfig().jobs_each
    swarm.meet(LENDER, without=(ME,))
    assert not swarm.nodes[LENDER].jobs
    swarm.later(messages.HELD_MAX_MS)
    assert len(infers(swarm, LENDER)) == lending.LendingConfig().jobs_each, "nothing of who is gone begins"
