"""Mutants of standing: each lets accusations weigh what they should not, and a law finds it."""

from collections.abc import Callable

import pytest

from swarmd_protocols.swim import allowance
from swarmd_protocols.swim import own_record as own_record_module
from swarmd_protocols.swim import standing as standing_module
from swarmd_protocols.swim.accusations import Accusations
from swarmd_protocols.swim.standing import Standing
from tests.property import test_accuser_laws as laws
from tests.support.mutants import Mutant, assert_found
from tests.support.swim_net import S


def doubts_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Standing, "refuted", lambda self, node, now_ns: None)


def doubted_words_convince(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Standing, "doubted", lambda self, node, now_ns: False)
    monkeypatch.setattr(standing_module, "FREE_DOUBTS", 1e9)


def doubts_never_fade(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing_module, "_HALF_LIFE_NS", 10**18)


def health_counts_every_refutation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Standing, "counts_for_health", lambda self, node, now_ns: True)
    monkeypatch.setattr(standing_module, "FREE_DOUBTS", 1e9)


def late_evidence_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swarmd_protocols.swim.accusations.SOON_NS", 10**18)
    monkeypatch.setattr(standing_module, "FREE_DOUBTS", 0.0)


def forgeries_spend_the_named_ones_allowance(monkeypatch: pytest.MonkeyPatch) -> None:
    def verified(self, accuser, message, via):
        self.standing.spend(accuser.node)
        return self.core.signed_by(accuser.public_key, "accuse", message.body, message.signature)

    monkeypatch.setattr(Accusations, "_verified", verified)


def verdicts_stand_until_they_are_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Accusations, "withdraw", lambda self, member: False)


def a_frame_of_accusations_has_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(allowance._RATES, allowance._ACCUSED, (10**9, 10**9))


def who_passes_on_the_past_is_told_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Standing, "may_tell", lambda self, node, now_ns: True)


def large_swarms_are_accused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing_module, "_BURST_MAX", 1e9)


def the_doubted_are_refuted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing_module, "_REFUTED_GAP_MAX_NS", 0)


def refutations_have_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing_module, "_REFUTED_GAP_MAX_NS", 0)
    monkeypatch.setattr(own_record_module.TokenBucket, "take", lambda self, now_ns: True)


def a_refutation_waits_for_who_is_not_doubted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_record_module, "_REFUTE_GAP_NS", 2 * S)


def many_accusers() -> None:
    laws.check_refutations(6, 6)


def one_accuser() -> None:
    laws.check_refutations(1, 1)


def frame_of_the_past() -> None:
    laws.test_a_frame_of_accusations_costs_so_many_looks_and_hardly_an_answer("about the receiver, past, of others")


@pytest.mark.parametrize(
    ("mutant", "law"),
    [
        (doubts_are_not_kept, laws.test_one_accuser_gone_mad_puts_hardly_anybody_in_doubt),
        (doubted_words_convince, laws.test_one_accuser_gone_mad_puts_hardly_anybody_in_doubt),
        (doubts_are_not_kept, laws.test_one_accuser_gone_mad_costs_no_more_than_the_budget),
        (doubts_never_fade, laws.test_who_stops_is_heard_in_full_again),
        (health_counts_every_refutation, laws.test_one_accuser_gone_mad_puts_hardly_anybody_in_doubt),
        (late_evidence_counts, laws.test_after_a_partition_nobody_is_doubted_for_what_was_true),
        (forgeries_spend_the_named_ones_allowance, laws.test_forged_accusations_silence_nobody_but_who_passes_them_on),
        (a_frame_of_accusations_has_no_end, frame_of_the_past),
        (who_passes_on_the_past_is_told_each_time, frame_of_the_past),
        (the_doubted_are_refuted_at_once, one_accuser),
        (refutations_have_no_bound, many_accusers),
        (refutations_have_no_bound, laws.check_cost_of_two),
        (a_refutation_waits_for_who_is_not_doubted_too, laws.check_refuted_in_time),
        (large_swarms_are_accused_at_once, laws.test_however_large_the_swarm_one_accuser_has_so_many_verified_at_once),
        (
            verdicts_stand_until_they_are_refuted,
            laws.test_whose_word_counts_for_nothing_still_learns_that_it_was_wrong,
        ),
    ],
)
def test_the_law_finds_the_mutant(mutant: Mutant, law: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
