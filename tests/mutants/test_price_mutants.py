"""A mutant for each rule of what borrowing may cost: break the rule, and the check that stands for it must fail."""

from collections.abc import Callable
from typing import Any

import pytest

from swarmd_protocols.offload.borrowing import Borrower
from swarmd_protocols.offload.dispatcher import Dispatcher
from swarmd_protocols.offload.placement import Offer
from swarmd_protocols.offload.purse import HOUR_NS, Cost, CostRule, Purse
from tests.property import test_offload_prices as laws
from tests.support.mutants import assert_found


def _any_price_is_within(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Cost, "is_within", lambda self, rule: True)


def _waiting_is_worth_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Cost, "worth_ns", lambda self, rule: 0)


def _the_hour_has_no_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Purse, "set_aside", lambda self, price, size_bytes, now_ns: price.is_within(self.rule))
    patch.setattr(Purse, "allowed", lambda self, size_bytes, now_ns: self.rule)


def _old_prices_count(patch: pytest.MonkeyPatch) -> None:
    def set_aside(self: Purse, price: Cost, size_bytes: int, now_ns: int) -> bool:
        self._micro_ns -= price.price_micro * HOUR_NS
        return True

    patch.setattr(Purse, "set_aside", set_aside)


def _nothing_comes_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Purse, "give_back", lambda self, price: None)


def _what_is_aside_refills(patch: pytest.MonkeyPatch) -> None:
    def give_back(self: Purse, price: int) -> None:
        self._micro_ns = min(self.rule.hour_max_micro * HOUR_NS, self._micro_ns + price * HOUR_NS)

    def set_aside(self: Purse, price: Cost, size_bytes: int, now_ns: int, real: Any = Purse.set_aside) -> bool:
        is_paid = bool(real(self, price, size_bytes, now_ns))
        self._aside_ns = 0
        return is_paid

    patch.setattr(Purse, "give_back", give_back)
    patch.setattr(Purse, "set_aside", set_aside)


def _who_is_silent_keeps_it(patch: pytest.MonkeyPatch) -> None:
    def settle(self: Any, number: int, attempt: int | None, now_ns: int, *, is_check_wanted: bool) -> Any:
        self._open[number].prices.clear()
        return real(self, number, attempt, now_ns, is_check_wanted=is_check_wanted)

    real = Borrower._deliver
    patch.setattr(Borrower, "_deliver", settle)


def _garbage_is_paid(patch: pytest.MonkeyPatch) -> None:
    def fail(self: Any, number: int, attempt: int, lender: Any, now_ns: int, *, is_its_fault: bool = True) -> Any:
        self._open[number].prices.pop(attempt, None)
        return real(self, number, attempt, lender, now_ns, is_its_fault=is_its_fault)

    real = Borrower._fail
    patch.setattr(Borrower, "_fail", fail)


def _no_money_is_a_failure(patch: pytest.MonkeyPatch) -> None:
    def failed(self: Any, number: int, attempt: int, now_ns: int, is_its_fault: bool = True) -> Any:
        return real(self, number, attempt, now_ns)

    real = Dispatcher._on_failed
    patch.setattr(Dispatcher, "_on_failed", failed)


def _the_purse_is_looked_into_too_late(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Purse, "allowed", lambda self, size_bytes, now_ns: self.rule)


def _offers_are_free(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Offer, "cost", lambda self, digest, units: Cost())


def _all_is_allowed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(laws, "cost_rule", lambda settings: CostRule(10**9, 10**12))


MUTANTS: list[tuple[Callable[[pytest.MonkeyPatch], None], Callable[[], None]]] = [
    (_any_price_is_within, laws.test_who_asks_more_than_is_allowed_is_not_asked),
    (_waiting_is_worth_nothing, laws.test_waiting_is_held_against_money_and_charge),
    (_the_hour_has_no_end, laws.test_an_hour_that_is_spent_asks_nobody_who_wants_money),
    (_old_prices_count, laws.test_a_lender_that_raises_its_price_behind_the_ticket_is_not_paid_it),
    (_nothing_comes_back, laws.test_what_was_refused_is_given_back_and_no_more),
    (_what_is_aside_refills, laws.test_no_hour_costs_more_than_twice_its_sum),
    (_who_is_silent_keeps_it, laws.test_a_lender_that_says_nothing_is_paid_nothing),
    (_who_is_silent_keeps_it, laws.test_what_comes_second_and_garbage_are_paid_nothing),
    (_garbage_is_paid, laws.test_what_comes_second_and_garbage_are_paid_nothing),
    (_no_money_is_a_failure, laws.test_an_empty_purse_is_no_failure_of_the_lenders),
    (_the_purse_is_looked_into_too_late, laws.test_with_an_empty_purse_who_asks_nothing_is_asked),
    (_offers_are_free, laws.test_what_was_paid_stands_in_both_books),
    (_all_is_allowed, laws.test_the_owners_units),
]


@pytest.mark.parametrize(("mutant", "law"), MUTANTS, ids=lambda one: one.__name__)
def test_a_broken_rule_is_found(
    mutant: Callable[[pytest.MonkeyPatch], None], law: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    law()
    assert_found(mutant, law, monkeypatch)
