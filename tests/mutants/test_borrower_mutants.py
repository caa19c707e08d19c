"""A mutant for each law of a borrower: break the rule, and the law must fail."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from swarmd_protocols.offload import dispatcher, placement, tickets
from swarmd_protocols.offload.decisions import Deliver, Effect
from swarmd_protocols.offload.dispatcher import Dispatcher
from swarmd_protocols.offload.placement import Offer
from swarmd_protocols.offload.reputation import Reputation
from swarmd_protocols.offload.tickets import Grants, HeldTicket
from tests.property import test_offload_laws as laws
from tests.support.mutants import assert_found

# --- Faults on purpose ----------------------------------------------------------------------------------------------


def _two_answers(patch: pytest.MonkeyPatch) -> None:
    whole = Dispatcher._on_answer

    def twice(self: Dispatcher, number: int, attempt: int, now_ns: int) -> list[Effect]:
        effects = whole(self, number, attempt, now_ns)
        return [*effects, *(one for one in effects if isinstance(one, Deliver))]

    patch.setattr(Dispatcher, "_on_answer", twice)


def _no_deadline(patch: pytest.MonkeyPatch) -> None:
    whole = Dispatcher._on_timer
    patch.setattr(
        Dispatcher, "_on_timer", lambda s, number, what, now: [] if what == "deadline" else whole(s, number, what, now)
    )


def _no_last_moment(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Dispatcher, "_last_moment_ns", lambda self, need: need.deadline_ns)


def _old_offers_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Offer, "is_fresh", lambda self, now_ns: True)


def _any_bundle_will_do(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Offer, "of", lambda self, need: self.bundles[0] if self.bundles else None)


def _the_outrun_are_not_measured(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Dispatcher, "_outrun", lambda self, one, attempt, now_ns: None)


def _one_copy_is_enough(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Dispatcher, "_copy", lambda self, one, now_ns: [])


def _any_grade_will_do(patch: pytest.MonkeyPatch) -> None:
    whole = Offer.of
    patch.setattr(Offer, "of", lambda self, need: whole(self, replace(need, grade_min_milli=0)))


def _all_may_leave(patch: pytest.MonkeyPatch) -> None:
    whole = placement.feasible
    patch.setattr(dispatcher, "feasible", lambda need, *rest: whole(replace(need, may_leave=True), *rest))


def _everybody_is_trusted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Reputation, "is_ejected", lambda self, lender, now_ns: False)


def _nobody_is_cancelled_by_a_withdrawal(patch: pytest.MonkeyPatch) -> None:
    whole = Dispatcher._on_offer
    patch.setattr(Dispatcher, "_on_offer", lambda s, offer, now: whole(s, offer, now) if offer.is_reachable else [])


def _hedges_cost_nothing(patch: pytest.MonkeyPatch) -> None:
    whole = Dispatcher._on_timer

    def free(self: Dispatcher, number: int, what: str, now_ns: int) -> list[Effect]:
        self._hedges = 5.0
        return whole(self, number, what, now_ns)

    patch.setattr(Dispatcher, "_on_timer", free)


def _tickets_never_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Grants, "spend", lambda self, *rest: "")


def _what_was_lost_counts_as_given(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tickets._Left, "is_whole", False)


def _a_ticket_given_again_is_full(patch: pytest.MonkeyPatch) -> None:
    new = HeldTicket.new
    patch.setattr(HeldTicket, "new", lambda ticket, before=None: new(ticket))


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        (_two_answers, laws.found_at_all),
        (_no_deadline, laws.found_at_all),
        (_old_offers_count, laws.found_at_all),
        (_all_may_leave, laws.found_at_all),
        (_nobody_is_cancelled_by_a_withdrawal, laws.found_at_all),
        (_hedges_cost_nothing, laws.test_hedges_stay_within_their_budget_when_every_lender_is_slow),
        (_any_bundle_will_do, laws.found_at_all),
        (_any_grade_will_do, laws.found_at_all),
        (_any_grade_will_do, laws.test_the_quickest_able_bundle_is_asked_for),
        (_the_outrun_are_not_measured, laws.test_a_silent_lender_that_a_hedge_makes_good_is_left),
        (_one_copy_is_enough, laws.test_two_copies_outlive_any_single_lender),
        (_no_last_moment, laws.test_a_silent_swarm_is_never_worse_than_thinking_alone),
        (_everybody_is_trusted, laws.test_a_liar_is_ejected_within_twenty_checks_and_an_honest_lender_is_not),
        (_everybody_is_trusted, laws.test_an_ejected_lender_is_not_asked),
        (_tickets_never_end, laws.test_no_ticket_is_overdrawn),
        (_what_was_lost_counts_as_given, laws.test_a_ticket_that_was_not_used_is_given_again_with_a_new_end),
        (_a_ticket_given_again_is_full, laws.test_what_is_left_of_a_ticket_that_is_given_again_is_what_was_left),
    ],
)
def test_mutants(fault: Callable[[pytest.MonkeyPatch], None], law: Callable[[], Any], monkeypatch: Any) -> None:
    assert_found(fault, law, monkeypatch)
