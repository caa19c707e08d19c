"""Laws of the queue of inference: each request once, in order, never two bundles in a batch, within its bounds."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from swarmd.worker import batcher
from swarmd.worker.batcher import HIGH, LOW, NORMAL, Batch, Batcher, BatcherConfig, Refusal, Request, Target
from tests.support.mutants import assert_found

MS = 1_000_000
TARGETS = [Target(digest, lane) for digest in ("aa", "bb") for lane in ("graph", "detect")]
CONFIG = BatcherConfig(max_requests=12, max_bytes=1000, max_units=8, batch_ns=20 * MS)


class Queue(RuleBasedStateMachine):
    """A queue beside a list of what must have become of every request."""

    def __init__(self) -> None:
        super().__init__()
        self.batcher = Batcher(CONFIG)
        self.now_ns = 0
        self.number = 0
        self.waiting: dict[int, Request] = {}
        self.running: Batch | None = None
        self.gone: set[int] = set()

    def leave(self, request: Request) -> None:
        assert request.number not in self.gone, "a request left twice"
        self.gone.add(request.number)

    @rule(
        target_=st.sampled_from(TARGETS),
        priority=st.sampled_from([HIGH, NORMAL, LOW]),
        units=st.integers(1, 10),
        size=st.integers(0, 400),
        allowed_ms=st.integers(0, 200),
    )
    def offer(self, target_: Target, priority: int, units: int, size: int, allowed_ms: int) -> None:
        self.number += 1
        request = Request(self.number, target_, priority, units, size, self.now_ns + allowed_ms * MS)
        before = dict(self.waiting)
        refusal, pushed = self.batcher.offer(request, self.now_ns)
        if refusal is not None:
            assert not pushed, "a refused request pushed others out"
            return
        assert request.deadline_ns > self.now_ns, "a request without time was taken"
        for victim in pushed:
            assert victim.number in before
            assert victim.priority > priority, "a request was pushed out by one that is no more urgent"
            del self.waiting[victim.number]
            self.leave(victim)
        if pushed:
            least = max(one.rank for one in before.values())
            assert least in {victim.rank for victim in pushed}, "the least urgent stayed"
        self.waiting[request.number] = request

    @rule()
    def take(self) -> None:
        for late in self.batcher.expire(self.now_ns):
            assert late.deadline_ns <= self.now_ns, "a request expired with time left"
            del self.waiting[late.number]
            self.leave(late)
        assert all(one.deadline_ns > self.now_ns for one in self.waiting.values()), "a late request waits on"
        batch = self.batcher.take(self.now_ns)
        if self.running is not None:
            assert batch is None, "two batches at once"
            return
        if batch is None:
            assert not self.waiting, "the device idles while requests wait"
            return
        assert {one.target for one in batch.requests} == {batch.target}, "two bundles or lanes in one batch"
        assert {one.priority for one in batch.requests} == {batch.priority}, "two priorities in one batch"
        assert batch.requests[0].rank == min(one.rank for one in self.waiting.values()), "the most urgent waits"
        limit = self.batcher.limit_of(batch.target)
        assert len(batch.requests) == 1 or batch.units <= limit <= CONFIG.max_units, "a batch beyond its limit"
        assert 0 < batch.budget_ns <= min(CONFIG.batch_ns, *(o.deadline_ns - self.now_ns for o in batch.requests))
        for one in batch.requests:
            assert self.waiting.pop(one.number) == one, "a request ran that did not wait"
        self.running = batch

    @precondition(lambda self: self.running is not None)
    @rule(took_ms=st.integers(1, 100), share=st.integers(0, 10))
    def finish(self, took_ms: int, share: int) -> None:
        batch = self.running
        assert batch is not None
        done = min(len(batch.requests), share)
        units = sum(one.units for one in batch.requests[:done])
        before = self.batcher.limit_of(batch.target)
        self.now_ns += took_ms * MS
        self.batcher.finish(done, units, took_ms * MS)
        after = self.batcher.limit_of(batch.target)
        if units and took_ms * MS > batch.budget_ns:
            assert after <= max(1, before // 2), "a batch that took too long did not make the next smaller"
        else:
            assert before <= after <= before + 1, "a batch grew by more than one unit"
        for one in batch.requests[:done]:
            self.leave(one)
        self.waiting |= {one.number: one for one in batch.requests[done:]}
        self.running = None

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.waiting)))
        assert self.batcher.withdraw(number)
        self.leave(self.waiting.pop(number))
        assert not self.batcher.withdraw(number), "a request was withdrawn twice"

    @rule(passed_ms=st.integers(0, 60))
    def wait(self, passed_ms: int) -> None:
        self.now_ns += passed_ms * MS

    @invariant()
    def books_agree(self) -> None:
        assert self.batcher.waiting == len(self.waiting)
        assert self.batcher.waiting_bytes == sum(one.size_bytes for one in self.waiting.values())

    @invariant()
    def bounds_hold(self) -> None:
        held = [*self.waiting.values(), *(self.running.requests if self.running else ())]
        assert len(held) <= CONFIG.max_requests, "too many requests are held"
        assert sum(one.size_bytes for one in held) <= CONFIG.max_bytes, "too many bytes are held"


def laws(phases: tuple[Phase, ...] = tuple(Phase), examples: int = 60) -> None:
    run_state_machine_as_test(
        Queue,
        settings=settings(
            max_examples=examples, stateful_step_count=50, deadline=None, report_multiple_bugs=False, phases=phases
        ),
    )


def test_laws_of_the_queue() -> None:
    laws()


def found_at_all() -> None:
    """The laws for a mutant: many examples, since it ends with the first that fails, which is not made small."""
    laws((Phase.generate,), 1_000)


# --- A device in virtual time ---------------------------------------------------------------------------------------


def request(number: int, deadline_ns: int, priority: int = NORMAL, target: Target = TARGETS[0]) -> Request:
    return Request(number, target, priority, 1, 0, deadline_ns)


@pytest.mark.parametrize("overhead", [0.0, 1.0, 5.0])
@pytest.mark.parametrize("unit_ms", [0.4, 1.0, 2.5])
def test_batches_find_the_size_that_keeps_to_its_time(overhead: float, unit_ms: float) -> None:
    """At least 0.90 of the throughput of the best fixed size that keeps to the time."""
    config = BatcherConfig(max_requests=4096, max_units=64, batch_ns=20 * MS)

    def cost_ms(units: int) -> float:
        return (overhead + units) * unit_ms

    best = max(units for units in range(1, 65) if cost_ms(units) <= 20.0 or units == 1)
    queue, now_ns, number, done, sizes = Batcher(config), 0, 0, 0, []
    while len(sizes) < 400:
        while queue.waiting < 128:
            number += 1
            assert queue.offer(request(number, now_ns + 3_600_000 * MS), now_ns) == (None, [])
        batch = queue.take(now_ns)
        assert batch is not None
        took_ns = round(cost_ms(batch.units) * MS)
        now_ns += took_ns
        done += batch.units
        sizes.append(batch.units)
        queue.finish(len(batch.requests), batch.units, took_ns)
    assert done / now_ns >= 0.90 * best / (cost_ms(best) * MS), "batches fall short of the best fixed size"
    late = sum(cost_ms(size) > 20.0 for size in sizes)
    assert late <= len(sizes) / min(best, 4) + 1, "too many batches overran their time"


def test_an_urgent_request_waits_for_one_inference_at_most_however_much_else_waits() -> None:
    """Twice as much low-priority work as the device can do; the runner leaves off when it is outranked."""
    rng, queue = random.Random(3), Batcher(BatcherConfig(max_requests=64))
    unit_ns, now_ns, number = 2 * MS, 0, 0
    arrivals = sorted(
        [(rng.randrange(4_000 * MS), LOW) for _ in range(4_000)] + [(at * MS + 7, HIGH) for at in range(50, 4_000, 50)]
    )
    waits: list[int] = []
    arrived: dict[int, int] = {}

    def admit() -> None:
        nonlocal number
        while arrivals and arrivals[0][0] <= now_ns:
            at_ns, priority = arrivals.pop(0)
            number += 1
            arrived[number] = at_ns
            refusal, _ = queue.offer(request(number, at_ns + 400 * MS, priority), now_ns)
            assert refusal is None or priority == LOW, "an urgent request was refused for others' sake"

    while arrivals or queue.waiting:
        admit()
        queue.expire(now_ns)
        batch = queue.take(now_ns)
        if batch is None:
            now_ns = max(now_ns, arrivals[0][0]) if arrivals else now_ns
            continue
        done, began_ns = 0, now_ns
        for one in batch.requests:
            admit()
            if done and queue.is_outranked():
                break
            now_ns += unit_ns
            done += 1
            if one.priority == HIGH:
                waits.append(now_ns - arrived[one.number])
        queue.finish(done, done, now_ns - began_ns)
    assert len(waits) == 79, "an urgent request has no answer"
    assert max(waits) <= 2 * unit_ns, "an urgent request waited for more than the inference that ran"


def test_what_cannot_be_answered_in_time_is_refused_at_once() -> None:
    queue = Batcher(CONFIG)
    assert queue.offer(request(1, 100 * MS), 0) == (None, [])
    assert queue.take(0) is not None
    queue.finish(1, 1, 10 * MS)
    for number in (2, 3):
        assert queue.offer(request(number, 35 * MS), 10 * MS) == (None, [])
    assert queue.offer(request(4, 39 * MS), 10 * MS) == (Refusal.LATE, []), "three of 10 ms do not fit in 29 ms"
    assert queue.offer(request(5, 41 * MS), 10 * MS) == (None, [])
    assert queue.offer(request(6, 25 * MS, HIGH), 10 * MS) == (None, []), "the urgent one waits for nobody"


def test_what_was_learnt_of_a_bundle_goes_with_it() -> None:
    queue = Batcher(CONFIG)
    queue.offer(request(1, 100 * MS), 0)
    queue.take(0)
    queue.finish(1, 1, 10 * MS)
    assert queue.limit_of(TARGETS[0]) == 2
    queue.forget("aa")
    assert queue.limit_of(TARGETS[0]) == 1
    assert queue.offer(request(2, 11 * MS), 10 * MS) == (None, [])


# --- Faults on purpose ----------------------------------------------------------------------------------------------


def _one_target_for_all(patch: pytest.MonkeyPatch) -> None:
    whole = Batcher.take

    def mixed(self: Batcher, now_ns: int) -> Batch | None:
        batch = whole(self, now_ns)
        if batch is not None and self._waiting:
            extra = next(iter(self._waiting.values()))
            self._drop(extra)
            batch = self._running = replace(batch, requests=(*batch.requests, extra))
        return batch

    patch.setattr(Batcher, "take", mixed)


def _arrival_is_the_order(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Request, "rank", property(lambda self: (0, 0, self.number)))


def _nobody_is_late(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Batcher, "expire", lambda self, now_ns: [])


def _no_bound(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Batcher, "_victims", lambda self, request: [])


def _anyone_pushes_anyone(patch: pytest.MonkeyPatch) -> None:
    whole = Batcher._victims
    patch.setattr(Batcher, "_victims", lambda self, request: whole(self, replace(request, priority=-1)))


def _never_smaller(patch: pytest.MonkeyPatch) -> None:
    whole = Batcher.finish

    def finish(self: Batcher, done: int, units: int, took_ns: int) -> None:
        whole(self, done, units, 0 if units else took_ns)

    patch.setattr(Batcher, "finish", finish)


def _never_larger(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Batcher, "limit_of", lambda self, target: 1)


def _what_did_not_run_is_lost(patch: pytest.MonkeyPatch) -> None:
    whole = Batcher.finish

    def finish(self: Batcher, done: int, units: int, took_ns: int) -> None:
        batch = self._running
        assert batch is not None
        whole(self, len(batch.requests), units, took_ns)

    patch.setattr(Batcher, "finish", finish)


def _no_one_leaves_off(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Batcher, "is_outranked", lambda self: False)


def _hope(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Batcher, "_ahead_ns", lambda self, request: 0.0)


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        (_one_target_for_all, found_at_all),
        (_arrival_is_the_order, test_an_urgent_request_waits_for_one_inference_at_most_however_much_else_waits),
        (_nobody_is_late, found_at_all),
        (_no_bound, found_at_all),
        (_anyone_pushes_anyone, found_at_all),
        (_never_smaller, found_at_all),
        (_never_larger, lambda: test_batches_find_the_size_that_keeps_to_its_time(5.0, 1.0)),
        (_what_did_not_run_is_lost, found_at_all),
        (_no_one_leaves_off, test_an_urgent_request_waits_for_one_inference_at_most_however_much_else_waits),
        (_hope, test_what_cannot_be_answered_in_time_is_refused_at_once),
    ],
)
def test_mutants(
    fault: Callable[[pytest.MonkeyPatch], None], law: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert batcher.Batcher is Batcher
    assert_found(fault, law, monkeypatch)
