"""A mutant for each rule of what borrowing may cost: break the rule, and the check that stands for it must fail."""

from collections.abc import Callable

import pytest

from swarmd_protocols.offload.placement import Offer
from swarmd_protocols.offload.purse import HOUR_NS, Cost, CostRule, Purse
from tests.property import test_offload_prices as laws
from tests.support.mutants import assert_found


def _any_price_is_within(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Cost, "is_within", lambda self, rule: True)


def _waiting_is_worth_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Cost, "worth_ns", lambda self, rule: 0)


def _the_hour_has_no_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Purse, "pay", lambda self, price, size_bytes, now_ns: price.is_within(self.rule))


def _old_prices_count(patch: pytest.MonkeyPatch) -> None:
    def pay(self: Purse, price: Cost, size_bytes: int, now_ns: int) -> bool:
        self._micro_ns -= price.price_micro * HOUR_NS
        return True

    patch.setattr(Purse, "pay", pay)


def _nothing_comes_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Purse, "give_back", lambda self, price: None)


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
    (_offers_are_free, laws.test_what_was_paid_stands_in_both_books),
    (_all_is_allowed, laws.test_the_owners_units),
]


@pytest.mark.parametrize(("mutant", "law"), MUTANTS, ids=lambda one: one.__name__)
def test_a_broken_rule_is_found(
    mutant: Callable[[pytest.MonkeyPatch], None], law: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    law()
    assert_found(mutant, law, monkeypatch)
