"""What one who asks for much to be held can cost a lender that does nothing, and others: places, bytes, time, work.

Each rule has a mutant (`tests/mutants/test_offload_mutants.py`).
"""

from swarmd_protocols.ids import NodeId
from swarmd_protocols.offload import messages
from swarmd_protocols.offload.lending import WORDS_BURST, LendingConfig
from swarmd_protocols.offload.tickets import open_ticket
from tests.support.offload_swarm import CRYPTO, DIGEST, NODES, SEEDS, Swarm
from tests.unit.test_offload import LENDER, said
from tests.unit.test_offload_copies import infers

THIEF = NODES[5]
HONEST = [node for node in NODES[:5] if node != LENDER]
PLACES = LendingConfig().jobs_each
LARGEST = bytes(messages.PAYLOAD_MAX_BYTES)


class Bench:
    """One lender that runs nothing by itself, and a ticket of its for everybody else."""

    def __init__(self) -> None:
        self.swarm = Swarm(6)
        self.swarm.turn()
        self.swarm.keeps = {LENDER}
        self.tickets = {node: self._ticket(node) for node in [*HONEST, THIEF]}
        self.number = 0

    def _ticket(self, node: NodeId) -> int:
        before = len(self.swarm.said)
        self.swarm.hear(LENDER, node, messages.Ask(DIGEST))
        (grant,) = [one for _, to, one in self.swarm.said[before:] if isinstance(one, messages.Grant) and to == node]
        self.swarm.wire.clear()
        return open_ticket(grant.ticket, CRYPTO.public_key(SEEDS[1]), CRYPTO).number

    def ask(
        self, node: NodeId, held_ms: int = 0, data: bytes = b"input", number: int = 0, left_ms: int = 60_000
    ) -> int:
        """A request; its number."""
        self.number += 1
        number = number or self.number
        request = messages.Request(number, self.tickets[node], DIGEST, 1, left_ms, data, held_ms=held_ms)
        self.swarm.hear(LENDER, node, request)
        return number

    def taken(self, held_ms: int = 0) -> int:
        """Of as many as they may have, those of honest borrowers that a lender takes."""
        numbers = [(node, self.ask(node, held_ms)) for node in HONEST for _ in range(PLACES)]
        refused = [(to, one.id) for _, to, one in self.swarm.said if isinstance(one, messages.Refusal)]
        return sum(asked not in refused for asked in numbers)


def fill(bench: Bench) -> list[int]:
    return [bench.ask(THIEF, messages.HELD_MAX_MS, LARGEST) for _ in range(3 * PLACES)]


def test_one_takes_four_places_and_a_megabyte_and_no_work_of_others() -> None:
    alone, bench = Bench(), Bench()
    fill(bench)
    lender = bench.swarm.nodes[LENDER]
    assert lender.jobs_by_borrower() == {THIEF: PLACES}
    held = [one.held for one in lender._lender._jobs.values()]
    assert sum(len(one.data) for one in held if one is not None) <= 1 << 20
    assert not infers(bench.swarm, LENDER), "and what is held is no work"
    offer = messages.decode_descriptor(lender._lender.offer(3_000).body)
    assert [row.queue_us for row in offer.rows] == [0], "nor a queue, for which others would be sent elsewhere"
    assert bench.taken() >= alone.taken(), "work that begins at once has places as if nothing were held"


def test_one_takes_four_places_from_what_others_want_held_and_no_more() -> None:
    alone, bench = Bench(), Bench()
    fill(bench)
    assert bench.taken(held_ms=400) >= alone.taken(held_ms=400) - PLACES


def test_who_holds_for_ever_does_so_at_a_bounded_rate_is_named_and_ends_as_it_goes() -> None:
    """Ended before they begin and asked for anew: four places, no work; a word too many is not answered."""
    bench, ever = Bench(), 0
    for _ in range(WORDS_BURST):
        held = bench.swarm.nodes[LENDER].held_for(THIEF)
        if len(held) == PLACES:
            bench.swarm.hear(LENDER, THIEF, messages.Cancel(held[0]))
        bench.ask(THIEF, messages.HELD_MAX_MS)
        ever = max(ever, len(bench.swarm.nodes[LENDER].held_for(THIEF)))
    assert ever == PLACES
    assert not infers(bench.swarm, LENDER)
    for _ in range(8):
        bench.ask(THIEF, messages.HELD_MAX_MS)
    assert bench.swarm.rejected, "and its sender is named"
    lines = {(line.what, line.member) for line in bench.swarm.nodes[LENDER].ledger.take()}
    assert {("over_rate", THIEF), ("refused_spent", THIEF)} <= lines
    timers = [key for node, key in bench.swarm.timers if node == LENDER and key[1] in ("held", "job")]
    assert timers, "what it holds would begin"
    bench.swarm.meet(LENDER, without=(THIEF,))
    assert not bench.swarm.nodes[LENDER].jobs
    bench.swarm.later(messages.HELD_MAX_MS)
    assert not infers(bench.swarm, LENDER)


def test_nothing_is_held_beyond_ten_seconds_or_its_own_deadline() -> None:
    bench = Bench()
    bench.ask(THIEF, messages.HELD_MAX_MS + 1)
    bench.ask(THIEF, held_ms=2_000, left_ms=1_000)
    assert len(bench.swarm.rejected) == 2
    bench.ask(THIEF, held_ms=5_000, left_ms=5_000)
    assert [messages.REASONS[one.reason] for one in said(bench.swarm, messages.Refusal)] == ["late"]
    number = bench.ask(THIEF, messages.HELD_MAX_MS)
    bench.swarm.later(messages.HELD_MAX_MS - 1)
    bench.ask(THIEF, messages.HELD_MAX_MS, number=number)
    bench.swarm.later(1)
    assert [one.request for one in infers(bench.swarm, LENDER)] == [number], "a second word holds it no longer"


def test_what_is_held_begins_once_and_under_a_ticket_that_was_good() -> None:
    bench = Bench()
    number = bench.ask(THIEF, 1_000)
    left = bench.swarm.nodes[LENDER]._lender._grants._left
    counts = [one.count for one in left.values()]
    for held_ms in (0, 0, 500, 0):
        bench.ask(THIEF, held_ms, number=number)
    bench.swarm.later(1_000)
    assert [one.request for one in infers(bench.swarm, LENDER)] == [number]
    assert [one.count for one in left.values()] == counts, "and is paid for once"
    bench = Bench()
    number = bench.ask(THIEF, 1_000)
    bench.swarm.meet(LENDER, without=(THIEF,))
    bench.swarm.meet(LENDER)
    bench.ask(THIEF, number=number)
    assert not infers(bench.swarm, LENDER), "its ticket went with it"
    assert [messages.REASONS[one.reason] for one in said(bench.swarm, messages.Refusal)] == ["unknown"]
