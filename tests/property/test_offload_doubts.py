"""Laws of a lender whose connection breaks: another works at once, nothing is lost, and nobody doubles work by it."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_protocols.ids import NodeId
from swarmd_protocols.offload import dispatcher
from swarmd_protocols.offload.decisions import (
    Answered,
    Asked,
    Attempt,
    Begin,
    Cancel,
    Check,
    Deliver,
    Doubted,
    OfferHeard,
    SetTimer,
    TimerFired,
)
from swarmd_protocols.offload.dispatcher import Dispatcher, DispatcherConfig
from swarmd_protocols.offload.ledger import LINES_MAX, NOBODY, Ledger
from swarmd_protocols.offload.placement import Need, Offer, Offered
from tests.support.mutants import assert_found

MS = 1_000_000
DIGEST = bytes([7]) * 32
LENDERS = [NodeId(bytes([index]) * 16) for index in range(1, 5)]


def borrower(lenders: int, seed: int = 1, **config: Any) -> Dispatcher:
    one = Dispatcher(DispatcherConfig(**config), random.Random(seed))
    for lender in LENDERS[:lenders]:
        hear(one, lender, 0)
    return one


def hear(one: Dispatcher, lender: NodeId, now_ns: int) -> None:
    assert one.handle(OfferHeard(Offer(lender, (Offered(DIGEST, 10 * MS, 0),), 1_000, now_ns)), now_ns) == []


def ask(one: Dispatcher, number: int, now_ns: int, local_ms: int = 0, copies: int = 1) -> list[Attempt]:
    need = Need(number, DIGEST, 1, 10, now_ns + 10_000 * MS, True, local_ms * MS, 0, copies=copies)
    return [effect for effect in one.handle(Asked(need), now_ns) if isinstance(effect, Attempt)]


@given(
    lenders=st.integers(1, 4),
    requests=st.lists(st.tuples(st.sampled_from([0, 5_000]), st.integers(1, 2)), min_size=1, max_size=12),
    seed=st.integers(0, 1 << 16),
)
@settings(max_examples=80, deadline=None, report_multiple_bugs=False)
def test_what_a_doubted_lender_alone_works_on_is_asked_of_another_at_once(
    lenders: int, requests: list[tuple[int, int]], seed: int
) -> None:
    one = borrower(lenders, seed)
    asked = {
        number: ask(one, number, 0, local_ms, copies) for number, (local_ms, copies) in enumerate(requests, start=1)
    }
    doubted = LENDERS[0]
    effects = one.handle(Doubted(doubted), 5 * MS)
    assert not [effect for effect in effects if isinstance(effect, Deliver | Cancel)], "a doubt ends nothing"
    again = {effect.number: effect for effect in effects if isinstance(effect, Attempt)}
    begun = {effect.number for effect in effects if isinstance(effect, Begin)}
    for number, attempts in asked.items():
        local_ms, _ = requests[number - 1]
        is_alone = {attempt.lender for attempt in attempts if attempt.held_until_ns <= 5 * MS} == {doubted}
        is_held = len(attempts) > 1
        assert (number in again) == (is_alone and not is_held), "it is asked once more, where nobody else has it"
        assert (number in begun) == (is_alone and is_held), "who holds it begins"
        if number in again:
            other = {None} if local_ms else {doubted}
            assert again[number].lender in (set(LENDERS[1:lenders]) or other), "another's turn; else the own; else it"
    for number, attempts in asked.items():
        effects = one.handle(Answered(number, attempts[0].attempt), 9 * MS)
        told = [effect.attempt for effect in effects if isinstance(effect, Deliver)]
        assert told == [attempts[0].attempt], "the answer of a lender that lives counts all the same"
    assert one.open_requests == 0


@given(seed=st.integers(0, 1 << 16), ways=st.sampled_from(["heard", "answers", "late", "silent"]))
@settings(max_examples=60, deadline=None, report_multiple_bugs=False)
def test_a_doubted_lender_is_asked_again_when_it_is_heard_or_where_there_is_no_other(seed: int, ways: str) -> None:
    one = borrower(2, seed)
    first = ask(one, 1, 0)[0]
    doubted, other = first.lender, next(lender for lender in LENDERS[:2] if lender != first.lender)
    assert doubted is not None
    one.handle(Doubted(doubted), 1 * MS)
    now_ns = 2 * MS
    assert {attempt.lender for number in range(10, 30) for attempt in ask(one, number, now_ns)} == {other}
    if ways == "heard":
        hear(one, doubted, now_ns)
    elif ways == "answers":
        one.handle(Answered(1, 0), now_ns)
    elif ways == "late":
        now_ns += 2_000 * MS
        for lender in LENDERS[:2]:  # Offers are fresh for two seconds.
            hear(one, lender, now_ns)
    else:
        one.handle(OfferHeard(Offer(other, (), 0, now_ns, is_reachable=False)), now_ns)
    asked = {attempt.lender for number in range(40, 60) for attempt in ask(one, number, now_ns)}
    assert doubted in asked, "it is asked again"


def test_who_hangs_up_all_the_time_doubles_one_request_a_second() -> None:
    """A lender answers, and breaks its connection after each request: the others do its work once a second."""
    one = borrower(2)
    extra = now_ns = 0
    for number in range(1, 400):
        now_ns += 10 * MS
        for lender in LENDERS[:2]:
            hear(one, lender, now_ns)
        (first,) = ask(one, number, now_ns)
        if first.lender == LENDERS[0]:
            effects = one.handle(Doubted(LENDERS[0]), now_ns)
            extra += sum(isinstance(effect, Attempt) for effect in effects)
        one.handle(Answered(number, 0), now_ns + 1 * MS)
    assert 0 < extra <= 1 + now_ns // (1_000 * MS)


def test_the_only_lender_is_asked_again_three_times_at_most_and_each_answer_counts() -> None:
    one = borrower(1)
    (first,) = ask(one, 1, 0)
    again: list[Attempt] = []
    for second in range(1, 8):
        now_ns = second * 1_000 * MS
        hear(one, LENDERS[0], now_ns)
        again += [effect for effect in one.handle(Doubted(LENDERS[0]), now_ns) if isinstance(effect, Attempt)]
    assert [attempt.lender for attempt in again] == [LENDERS[0]] * 2, "a connection that breaks on makes no more work"
    assert len({first.attempt, *(attempt.attempt for attempt in again)}) == 3
    effects = one.handle(Answered(1, again[-1].attempt), 9_000 * MS)
    assert [effect.attempt for effect in effects if isinstance(effect, Deliver)] == [again[-1].attempt]
    assert one.open_requests == 0


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 400), st.binary(max_size=4)), max_size=900))
@settings(max_examples=30, deadline=None, report_multiple_bugs=False)
def test_the_ledger_is_bounded_and_counts_everything(rows: list[tuple[str, int, bytes]]) -> None:
    ledger = Ledger()
    for what, member, answer in rows:
        ledger.note(what, NodeId(member.to_bytes(16, "big")), b"", len(answer), answer)
        assert len(ledger) <= LINES_MAX
    lines = ledger.take()
    assert sum(line.count for line in lines) == len(rows)
    assert sum(line.size_bytes for line in lines) == sum(len(answer) for _, _, answer in rows)
    assert {line.member for line in lines if line.what == "more"} <= {NOBODY}
    assert ledger.take() == []


def test_a_proof_covers_the_answers_and_their_order() -> None:
    def proof(*answers: bytes) -> bytes:
        ledger = Ledger()
        for answer in answers:
            ledger.note("lent", LENDERS[0], DIGEST, 1, answer)
        return ledger.take()[0].proof

    assert proof(b"a", b"b") == proof(b"a", b"b")
    assert len({proof(b"a", b"b"), proof(b"b", b"a"), proof(b"a"), proof(b"ab")}) == 4


# --- Faults on purpose ----------------------------------------------------------------------------------------------


def _doubts_are_not_heard(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Dispatcher, "_on_doubted", lambda self, lender, now_ns: [])


def _a_doubt_is_a_failure(patch: pytest.MonkeyPatch) -> None:
    def fail(self: Dispatcher, lender: NodeId, now_ns: int) -> Any:
        return self._on_offer(Offer(lender, (), 0, now_ns, is_reachable=False), now_ns)

    patch.setattr(Dispatcher, "_on_doubted", fail)


def _the_only_one_is_not_asked_again(patch: pytest.MonkeyPatch) -> None:
    choose = Dispatcher._choose
    patch.setattr(Dispatcher, "_choose", lambda self, one, now_ns, again=None, shunned=None: choose(self, one, now_ns))


def _never_believed_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Dispatcher, "_believe", lambda self, lender: None)


def _every_doubt_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(dispatcher, "_DOUBT_GAP_NS", 0)


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        (_doubts_are_not_heard, test_what_a_doubted_lender_alone_works_on_is_asked_of_another_at_once),
        (_a_doubt_is_a_failure, test_what_a_doubted_lender_alone_works_on_is_asked_of_another_at_once),
        (_the_only_one_is_not_asked_again, test_what_a_doubted_lender_alone_works_on_is_asked_of_another_at_once),
        (_never_believed_again, test_a_doubted_lender_is_asked_again_when_it_is_heard_or_where_there_is_no_other),
        (_every_doubt_counts, test_who_hangs_up_all_the_time_doubles_one_request_a_second),
    ],
)
def test_mutants(fault: Callable[[pytest.MonkeyPatch], None], law: Callable[[], Any], monkeypatch: Any) -> None:
    assert_found(fault, law, monkeypatch)


def law_a_placed_request_goes_to_its_lender_or_nobody() -> None:
    """Whoever placed it knows what else to do: it is never moved nor doubled, and ends when its lender is doubted."""
    for at, placed in enumerate(LENDERS):
        one = borrower(len(LENDERS), at)
        need = Need(1, DIGEST, 1, 10, 10_000 * MS, only=placed)
        effects = one.handle(Asked(need), 0)
        assert [effect.lender for effect in effects if isinstance(effect, Attempt)] == [placed]
        for effect in [effect for effect in effects if isinstance(effect, SetTimer)]:
            if effect.what != "deadline":
                later = one.handle(TimerFired(1, effect.what), effect.due_ns)
                assert not [again for again in later if isinstance(again, Attempt)], "it was sent to another too"
        assert Deliver(1, None) in one.handle(Doubted(placed), 50 * MS), "its lender's connection has broken"
        assert Deliver(2, None) in one.handle(
            Asked(Need(2, DIGEST, 1, 10, 9_999 * MS, only=NodeId(bytes(16)))), 60 * MS
        )


def test_a_placed_request_goes_to_its_lender_or_nobody() -> None:
    law_a_placed_request_goes_to_its_lender_or_nobody()


def test_the_law_finds_a_dispatcher_that_places_it_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    def places_anew(patch: pytest.MonkeyPatch) -> None:
        feasible = dispatcher.feasible
        patch.setattr(
            dispatcher, "feasible",
            lambda need, *rest: feasible(Need(need.number, need.digest, 1, 10, need.deadline_ns), *rest),
        )  # fmt: skip

    assert_found(places_anew, law_a_placed_request_goes_to_its_lender_or_nobody, monkeypatch)


def test_placed_answers_are_checked_where_an_own_model_could_say() -> None:
    for may_check in (True, False):
        one = borrower(1, check_first=8)
        checks = 0
        for number in range(1, 6):
            need = Need(number, DIGEST, 1, 10, 10_000 * MS, only=LENDERS[0], may_check=may_check)
            one.handle(Asked(need), 0)
            checks += sum(isinstance(effect, Check) for effect in one.handle(Answered(number, 0), MS))
        assert checks == (5 if may_check else 0)
