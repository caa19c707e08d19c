"""A mutant for each rule of borrowing between nodes: break the rule, and the check that stands for it must fail."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.effects import SetTimer
from swarmd_protocols.offload import borrowing, lending, messages, placement, requests
from swarmd_protocols.offload.attempts import Attempts
from swarmd_protocols.offload.borrowing import Borrower
from swarmd_protocols.offload.dispatcher import Dispatcher
from swarmd_protocols.offload.lending import Lender
from swarmd_protocols.offload.reputation import Reputation
from swarmd_protocols.offload.tickets import Grants
from swarmd_protocols.offload.under_way import Open
from tests.support.mutants import assert_found
from tests.support.offload_swarm import MS
from tests.unit import test_offload as rules
from tests.unit import test_offload_copies as copies
from tests.unit import test_offload_held as held

_SPEND, _VERIFY = Grants.spend, NaClCrypto.verify


def _answers_are_believed(patch: pytest.MonkeyPatch) -> None:
    def verify(self: Any, key: bytes, message: bytes, signature: bytes) -> bool:
        return message.startswith(b"swarmd/answer") or _VERIFY(self, key, message, signature)

    patch.setattr(NaClCrypto, "verify", verify)


def _offers_are_believed(patch: pytest.MonkeyPatch) -> None:
    def verify(self: Any, key: bytes, message: bytes, signature: bytes) -> bool:
        return message.startswith(b"swarmd/offer") or _VERIFY(self, key, message, signature)

    patch.setattr(NaClCrypto, "verify", verify)


def _form_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Borrower, "_is_well_formed", lambda *_: True, raising=False)
    whole = Borrower.on_answer

    def on_answer(self: Any, *arguments: Any) -> Any:
        self._is_well_formed = lambda *_: True
        return whole(self, *arguments)

    patch.setattr(Borrower, "on_answer", on_answer)


def _tickets_are_anybodys(patch: pytest.MonkeyPatch) -> None:
    def spend(self: Grants, number: int, borrower: Any, digest: bytes, size_bytes: int, now_ms: int) -> str:
        left = self._left.get(number)
        return _SPEND(self, number, left.ticket.borrower if left else borrower, digest, size_bytes, now_ms)

    patch.setattr(Grants, "spend", spend)


def _jobs_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lender, "on_due", lambda self, job: [])


def _the_gone_keep_jobs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lender, "on_gone", lambda self, borrower: [])


def _nobody_is_ejected(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Reputation, "is_ejected", lambda self, lender, now_ns: False)


def _every_offer_is_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(borrowing, "_GAP_NS", 0)


def _asks_without_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(borrowing, "_AGAIN_NS", 0)


def _own_work_waits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lender, "_queue_ns", lambda self: 0)


def _lends_its_last_charge(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lender, "is_willing", property(lambda self: True))


def _one_may_fill_it(patch: pytest.MonkeyPatch) -> None:
    whole = Lender.__init__

    def init(self: Any, node: Any, seed: Any, crypto: Any, config: Any, *rest: Any) -> None:
        whole(self, node, seed, crypto, replace(config, jobs_each=1 << 20, jobs_max=1 << 20), *rest)

    patch.setattr(Lender, "__init__", init)


def _one_may_hold_all(patch: pytest.MonkeyPatch) -> None:
    """Of what there is, so that others have fewer places."""
    patch.setattr(Lender, "_has_room", lambda self, has: len(self._jobs) < self._config.jobs_max)


def _deadlines_pass(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Dispatcher, "_on_timer", lambda self, number, what, now_ns: [])


def _cancels_are_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Borrower, "_cancel", lambda self, number, attempt: [])


def _tickets_last(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Grants, "spend", lambda self, n, b, d, size, now_ms: _SPEND(self, n, b, d, size, 0))


def _old_offers_win(patch: pytest.MonkeyPatch) -> None:
    whole = Borrower.on_offer

    def on_offer(self: Any, *arguments: Any) -> Any:
        self._heard.clear()
        return whole(self, *arguments)

    patch.setattr(Borrower, "on_offer", on_offer)


def _any_ticket_is_read(patch: pytest.MonkeyPatch) -> None:
    def on_grant(self: Any, sender: Any, message: Any, now_ns: int) -> Any:
        self._crypto.verify(bytes(32), message.ticket, bytes(64))
        return []

    patch.setattr(Borrower, "on_grant", on_grant)


def _failures_are_never_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(placement, "_FALL_NS", 1 << 60)


def _turns_have_no_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lender, "_unit_ns", lambda self, held: 1)


def _anybody_may(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("swarmd_protocols.offload.whom.Whom.broken_by", lambda self, member, own: "")


def _what_is_held_never_begins(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lender, "on_held", lambda self, job, now_ns: [])


def _both_work_from_the_start(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Attempts, "begins_ns", lambda self, takes_ns, now_ns: now_ns)


def _held_until_the_first_is_late(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Attempts, "begins_ns", lambda self, takes_ns, now_ns: now_ns + 40 * MS)


def _what_is_held_is_a_queue(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        Lender, "_queue_ns", lambda self: self._stock.queue_ns + sum(job.time_ns for job in self._jobs.values())
    )


def _what_is_held_begins_too_late(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lender, "on_held", lambda self, job, now_ns: self._begin(job, self._jobs[job], self._jobs[job].held,
                                                                          now_ns))  # fmt: skip


def _what_holds_it_counts_as_at_work(patch: pytest.MonkeyPatch) -> None:
    whole = Dispatcher._doubt

    def doubt(self: Any, lender: Any, now_ns: int) -> Any:
        return [] if any(len(one.live) > 1 for one in self._open.values()) else whole(self, lender, now_ns)

    patch.setattr(Dispatcher, "_doubt", doubt)


def _nobody_is_told_to_begin(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Dispatcher, "_begin_held", lambda self, one, now_ns, attempt: [])


def _what_is_held_has_its_place(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lender, "_make_room", lambda self, borrower, has: [])


def _what_was_told_to_begin_is_held(patch: pytest.MonkeyPatch) -> None:
    def asks(self: Any, attempt: int, lender: Any, digest: bytes, begins_ns: int) -> None:
        self.lenders[attempt], self.digests[attempt], self.held_until_ns[attempt] = lender, digest, begins_ns

    patch.setattr(Open, "asks", asks)


def _held_for_as_long_as_one_likes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(messages, "_check_request", lambda request: None)


def _a_second_word_holds_it_on(patch: pytest.MonkeyPatch) -> None:
    whole = Lender.on_request

    def on_request(self: Any, borrower: Any, request: Any, now_ns: int) -> Any:
        known = [job for job, one in self._jobs.items() if one.bound.id == request.id and one.held and request.held_ms]
        timers = [SetTimer(lending._held(job), now_ns + request.held_ms * MS) for job in known]
        return timers or whole(self, borrower, request, now_ns)

    patch.setattr(Lender, "on_request", on_request)


def _each_word_begins_it(patch: pytest.MonkeyPatch) -> None:
    whole = Lender.on_request

    def on_request(self: Any, borrower: Any, request: Any, now_ns: int) -> Any:
        known = [job for job, one in self._jobs.items() if one.bound.id == request.id and not request.held_ms]
        begun = [self._begin(job, self._jobs[job], request, now_ns) for job in known]
        return begun[0] if begun else whole(self, borrower, request, now_ns)

    patch.setattr(Lender, "on_request", on_request)


def _tickets_outlive_their_borrower(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Grants, "withdraw", lambda self, borrower: None)


def _words_have_no_rate(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lending, "WORDS_BURST", 1 << 30)
    whole = Lender.__init__

    def init(self: Any, *rest: Any) -> None:
        whole(self, *rest)
        self._words = lending.Allowance(1 << 30, 1 << 30)

    patch.setattr(Lender, "__init__", init)


def _all_is_measured(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Attempts, "has_not_waited", lambda self, attempt, stated_ns, now_ns: False)


def _nobody_is_doubted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Dispatcher, "_on_doubted", lambda self, lender, now_ns: [])


MUTANTS: list[tuple[Callable[[pytest.MonkeyPatch], None], Callable[[], None]]] = [
    (_answers_are_believed, rules.test_an_answer_counts_only_for_what_was_asked),
    (_form_is_not_looked_at, rules.test_an_answer_counts_only_for_what_was_asked),
    (_offers_are_believed, rules.test_an_offer_counts_only_as_its_sender_signed_it_and_only_the_newest),
    (_old_offers_win, rules.test_an_offer_counts_only_as_its_sender_signed_it_and_only_the_newest),
    (_every_offer_is_read, rules.test_a_flood_of_offers_costs_ten_signature_checks_a_second),
    (_any_ticket_is_read, rules.test_tickets_that_nobody_asked_for_fill_no_table),
    (_asks_without_end, rules.test_a_lender_that_denies_is_left_alone_for_a_second),
    (_tickets_are_anybodys, rules.test_nobody_is_served_without_a_ticket_of_his_own),
    (_tickets_last, rules.test_a_ticket_ends),
    (_jobs_stay, rules.test_a_flooding_borrower_has_its_few_jobs_and_tickets_and_no_more),
    (_one_may_fill_it, rules.test_a_flooding_borrower_has_its_few_jobs_and_tickets_and_no_more),
    (_the_gone_keep_jobs, rules.test_who_is_gone_holds_no_job_and_no_ticket),
    (_nobody_is_ejected, rules.test_garbage_costs_a_lender_its_place),
    (_own_work_waits, rules.test_own_work_and_a_low_battery_come_first),
    (_lends_its_last_charge, rules.test_own_work_and_a_low_battery_come_first),
    (_deadlines_pass, rules.test_a_request_that_nobody_answers_ends_at_its_deadline),
    (_failures_are_never_forgotten, rules.test_a_lender_that_failed_once_is_tried_again),
    (_turns_have_no_end, rules.test_many_items_in_one_request_take_no_longer_than_a_turn),
    (_anybody_may, rules.test_only_who_may_borrows_or_lends),
    (_nobody_is_doubted, rules.test_a_broken_connection_sends_the_request_to_another_and_the_ledger_says_who_did_what),
    (_what_is_held_never_begins, copies.test_two_copies_and_a_death_in_the_middle),
    (_both_work_from_the_start, copies.test_the_second_of_two_copies_costs_no_work_where_the_first_is_in_time),
    (_cancels_are_kept, copies.test_the_second_of_two_copies_costs_no_work_where_the_first_is_in_time),
    (_held_until_the_first_is_late, copies.test_a_held_copy_begins_in_time_for_a_short_deadline),
    (_what_is_held_is_a_queue, copies.test_what_is_held_makes_nobody_wait_and_is_refused_where_its_time_has_passed),
    (
        _what_is_held_begins_too_late,
        copies.test_what_is_held_makes_nobody_wait_and_is_refused_where_its_time_has_passed,
    ),
    (
        _what_holds_it_counts_as_at_work,
        lambda: copies.test_who_holds_it_begins_when_nobody_else_works_on_it(
            lambda swarm, working: swarm.command(rules.ME, requests.Doubt(working)), 2
        ),
    ),
    (
        _nobody_is_told_to_begin,
        lambda: copies.test_who_holds_it_begins_when_nobody_else_works_on_it(copies.is_refused, 2),
    ),
    (_what_is_held_has_its_place, copies.test_what_is_held_keeps_no_work_out),
    (_all_is_measured, copies.test_what_was_to_be_held_and_comes_sooner_is_no_measure),
    (_one_may_fill_it, copies.test_who_asks_for_much_to_be_held_has_no_more_places_than_others),
    (_the_gone_keep_jobs, copies.test_who_asks_for_much_to_be_held_has_no_more_places_than_others),
    (_cancels_are_kept, rules.test_the_own_model_answers_at_the_last_moment),
    (
        _what_was_told_to_begin_is_held,
        lambda: copies.test_who_is_to_hold_it_begins_at_once_where_the_first_cannot_even_be_asked(1),
    ),
    (_one_may_fill_it, held.test_one_takes_four_places_and_a_megabyte_and_no_work_of_others),
    (_what_is_held_is_a_queue, held.test_one_takes_four_places_and_a_megabyte_and_no_work_of_others),
    (_what_is_held_has_its_place, held.test_one_takes_four_places_and_a_megabyte_and_no_work_of_others),
    (_one_may_hold_all, held.test_one_takes_four_places_from_what_others_want_held_and_no_more),
    (_the_gone_keep_jobs, held.test_who_holds_for_ever_does_so_at_a_bounded_rate_is_named_and_ends_as_it_goes),
    (_words_have_no_rate, held.test_who_holds_for_ever_does_so_at_a_bounded_rate_is_named_and_ends_as_it_goes),
    (_held_for_as_long_as_one_likes, held.test_nothing_is_held_beyond_ten_seconds_or_its_own_deadline),
    (_a_second_word_holds_it_on, held.test_nothing_is_held_beyond_ten_seconds_or_its_own_deadline),
    (_each_word_begins_it, held.test_what_is_held_begins_once_and_under_a_ticket_that_was_good),
    (_tickets_outlive_their_borrower, held.test_what_is_held_begins_once_and_under_a_ticket_that_was_good),
]


@pytest.mark.parametrize(("mutant", "law"), MUTANTS, ids=lambda one: one.__name__)
def test_a_broken_rule_is_found(
    mutant: Callable[[pytest.MonkeyPatch], None], law: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    law()
    assert_found(mutant, law, monkeypatch)


def _no_renewal(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Borrower, "_renew", lambda self, held, where, now_ns: [])


def test_without_renewal_requests_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(_no_renewal, rules.test_a_ticket_is_renewed_before_it_ends_and_who_has_given_one_is_asked, monkeypatch)
