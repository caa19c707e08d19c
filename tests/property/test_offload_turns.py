"""Whose borrowed work runs first, and that nobody who calls everything urgent has the others wait for ever."""

import random
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from swarmd.worker.batcher import LENT, NORMAL, Batcher, BatcherConfig, Request, Target
from swarmd_protocols.errors import StateError
from swarmd_protocols.offload import messages, requests
from swarmd_protocols.offload.lending import LendingConfig
from swarmd_protocols.offload.turns import AHEAD_MAX_NS, HIGH, LOW, PATIENCE_NS, Turns, Waiting, breaks_promise
from tests.support.offload_swarm import DIGEST, MS, NODES, Swarm

UNIT_NS = 20 * MS
FAR_NS = 1 << 50


@dataclass
class Taken:
    """One request at the lender."""

    borrower: int
    priority: int
    at_ns: int
    turn_ns: int
    time_ns: int = UNIT_NS
    until_ns: int = FAR_NS
    begun_ns: int = -1


class Processor:
    """One lender that runs one request at a time, the earliest turn first, and a crowd that always has the next."""

    def __init__(self, crowd: dict[int, int], each: int = 4) -> None:
        self.turns, self.now_ns, self.waiting, self.done = Turns(), 1, list[Taken](), list[Taken]()
        self.crowd, self.each = crowd, each
        """Priorities by borrower."""

    def take(self, borrower: int, priority: int) -> Taken:
        waiting = [Waiting(one.turn_ns, one.time_ns, one.until_ns) for one in self.waiting]
        sharing = len({one.borrower for one in self.waiting} | {borrower})
        turn = self.turns.take(NODES[borrower], priority, UNIT_NS, sharing, waiting, self.now_ns)
        one = Taken(borrower, priority, self.now_ns, turn.at_ns)
        self.waiting.append(one)
        return one

    def step(self) -> None:
        """One request runs; whoever of the crowd may asks for the next."""
        for borrower, priority in self.crowd.items():
            while sum(one.borrower == borrower for one in self.waiting) < self.each:
                self.take(borrower, priority)
        one = min(self.waiting, key=lambda one: (one.turn_ns, one.at_ns))
        self.waiting.remove(one)
        one.begun_ns, self.now_ns = self.now_ns, self.now_ns + one.time_ns
        self.done.append(one)


def test_who_calls_everything_urgent_has_no_more_than_its_share() -> None:
    """Three call everything urgent, one calls nothing so: all four have more than they can be given."""
    lender = Processor({0: HIGH, 1: HIGH, 2: HIGH, 3: NORMAL})
    for _ in range(2_000):
        lender.step()
    shares = [sum(one.borrower == borrower for one in lender.done) / 2_000 for borrower in range(4)]
    assert min(shares) >= 0.9 * 0.25, shares


@pytest.mark.parametrize("priority", [HIGH, NORMAL, LOW])
def test_a_request_waits_no_longer_than_its_patience_and_what_was_there(priority: int) -> None:
    lender, waits = Processor({0: HIGH, 1: HIGH, 2: HIGH}), list[int]()
    for _ in range(40):
        for _ in range(60):
            lender.step()
        mine = lender.take(3, priority)
        for _ in range(200):
            if mine.begun_ns < 0:
                lender.step()
        assert mine.begun_ns > 0, "it has starved"
        waits.append(mine.begun_ns - mine.at_ns)
    # Of each of the crowd two: the four that it has here are not all within its share.
    assert max(waits) <= PATIENCE_NS[priority] + 2 * 3 * UNIT_NS, max(waits) / MS


@given(st.integers(0, 1 << 30), st.integers(1, 4))
def test_what_comes_after_a_turn_does_not_pass_it(seed: int, crowd: int) -> None:
    rng = random.Random(seed)
    lender = Processor({index: rng.choice([HIGH, NORMAL, LOW]) for index in range(crowd)}, rng.randint(1, 4))
    for _ in range(150):
        if rng.random() < 0.2:
            lender.take(5, rng.choice([HIGH, NORMAL, LOW]))
        lender.step()
    for one in lender.done:
        assert one.turn_ns >= one.at_ns
        passed = [other for other in lender.done if one.turn_ns < other.at_ns and other.begun_ns < one.begun_ns]
        assert not passed


def test_who_used_what_nobody_wanted_is_not_last_when_others_come() -> None:
    """Jobs of three others stand there for a minute and run nothing, so that a share looks small; then one floods."""
    lender = Processor({})
    idle = [Taken(borrower, LOW, 1, FAR_NS) for borrower in (1, 2, 3)]
    for _ in range(2_400):
        lender.waiting += idle
        mine = lender.take(0, NORMAL)
        lender.waiting = [mine]
        lender.step()
        lender.now_ns += 5 * MS
    lender.crowd = {4: HIGH}
    for _ in range(20):
        mine = lender.take(0, NORMAL)
        for _ in range(200):
            if mine.begun_ns < 0:
                lender.step()
        assert 0 < mine.begun_ns <= mine.at_ns + AHEAD_MAX_NS + PATIENCE_NS[NORMAL] + 4 * UNIT_NS


def test_among_those_in_their_share_the_urgent_goes_first() -> None:
    lender = Processor({})
    for borrower, priority in ((0, LOW), (1, NORMAL), (2, HIGH)):
        lender.take(borrower, priority)
    for _ in range(3):
        lender.step()
    assert [one.priority for one in lender.done] == [HIGH, NORMAL, LOW]


@settings(max_examples=400)
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from([HIGH, NORMAL, LOW]), st.integers(1, 60), st.integers(1, 400)),
        max_size=16,
    )
)
@example([(0, 2, 3, 4), (1, 2, 2, 6), (0, 1, 2, 8)])  # Two of one turn: the first to come goes first.
def test_what_was_promised_is_kept(asked: list[tuple[int, int, int, int]]) -> None:
    """All come at once, and each that fits behind all before it is taken: in the order of turns each is in time."""
    turns, waiting = Turns(), list[Waiting]()
    for borrower, priority, time_ms, left_ms in asked:
        if sum(one.time_ns for one in waiting) + time_ms * MS >= left_ms * MS:
            continue  # "late": the lender takes none such.
        turn = turns.take(NODES[borrower], priority, time_ms * MS, 3, waiting, 0)
        waiting.append(Waiting(turn.at_ns, time_ms * MS, left_ms * MS))
    done_ns = 0
    for one in sorted(waiting, key=lambda one: one.turn_ns):
        done_ns += one.time_ns
        assert done_ns <= one.until_ns


def test_a_newcomer_that_breaks_no_promise_keeps_its_turn() -> None:
    relaxed = Waiting(PATIENCE_NS[NORMAL], 50 * MS, 500 * MS)
    assert not breaks_promise(0, 50 * MS, [relaxed], 0)
    assert Turns().take(NODES[0], HIGH, 50 * MS, 1, [relaxed], 0).at_ns == 0


# --- At a lender ------------------------------------------------------------------------------------------------------


def _orders(swarm: Swarm, node: Any) -> list[requests.Infer]:
    return [one for one in swarm.orders[node] if isinstance(one, requests.Infer)]


def _beg(swarm: Swarm, borrower: int, number: int, priority: int) -> None:
    """One request under a ticket that was just asked for."""
    lender, node = NODES[1], NODES[borrower]
    swarm.hear(lender, node, messages.Ask(DIGEST))
    tickets = swarm.nodes[lender]._lender._grants._left
    ticket = next(one for one, left in tickets.items() if left.ticket.borrower == node)
    swarm.hear(lender, node, messages.Request(number, ticket, DIGEST, 1, 5_000, b"input", 0, priority))


def test_a_request_carries_its_priority_to_the_lenders_processor() -> None:
    swarm = Swarm(5)
    lender = NODES[1]
    swarm.turn()
    swarm.keeps = {lender}
    for borrower, priority in ((0, LOW), (2, NORMAL), (3, HIGH)):
        _beg(swarm, borrower, 8, priority)
    by_turn = sorted(_orders(swarm, lender), key=lambda one: one.turn_ns)
    assert [one.borrower for one in by_turn] == [NODES[3], NODES[2], NODES[0]]
    counts = swarm.nodes[lender].counts()
    assert [counts[f"lent_taken_{name}"] for name in ("high", "normal", "low")] == [1, 1, 1]
    assert ("urgent", NODES[3]) in {(row.what, row.member) for row in swarm.nodes[lender].ledger.take()}


def test_a_program_says_how_urgent_it_is() -> None:
    swarm = Swarm(2)
    swarm.turn()
    ask = requests.Borrow(1, DIGEST, b"input", 1, swarm.now_ns + 500 * MS, priority=LOW)
    swarm.command(NODES[0], ask)
    swarm.turn()
    (sent,) = [message for _, _, message in swarm.said if isinstance(message, messages.Request)]
    assert sent.priority == LOW
    with pytest.raises(StateError, match="a priority of 4"):
        swarm.command(NODES[0], requests.Borrow(2, DIGEST, b"input", 1, swarm.now_ns + 500 * MS, priority=4))


def test_those_who_take_all_they_may_leave_room_for_who_has_none() -> None:
    swarm = Swarm(6, lending=LendingConfig(jobs_max=8, jobs_each=3))
    lender = NODES[1]
    swarm.turn()
    swarm.keeps = {lender}
    for borrower in (2, 3, 4):
        for number in range(4):
            _beg(swarm, borrower, number, HIGH)
    assert swarm.nodes[lender].jobs_by_borrower() == {NODES[2]: 3, NODES[3]: 3, NODES[4]: 1}
    _beg(swarm, 0, 1, NORMAL)
    assert swarm.nodes[lender].jobs_by_borrower()[NODES[0]] == 1
    rows = {(row.what, row.member): row.count for row in swarm.nodes[lender].ledger.take()}
    assert rows["over_share", NODES[2]] == 2, "who asks for more than its share is written down"
    assert rows["urgent", NODES[2]] == 3


# --- In the worker ----------------------------------------------------------------------------------------------------


def test_the_worker_runs_own_work_first_and_others_by_their_turn() -> None:
    batcher = Batcher(BatcherConfig())
    target = [Target(name, "graph") for name in ("a", "b", "c")]
    late = Request(1, target[0], LENT, 1, 10, 100 * MS, 90 * MS)
    for one in (late, replace(late, number=2, target=target[1], deadline_ns=900 * MS, turn_ns=5 * MS),
                Request(3, target[2], NORMAL, 1, 10, 999 * MS)):  # fmt: skip
        assert batcher.offer(one, 0) == (None, [])
    order = []
    while batch := batcher.take(0):
        order += [one.number for one in batch.requests]
        batcher.finish(1, 1, MS)
    assert order == [3, 2, 1]
