"""A mutant for each rule of tensors that go from lender to lender: break it, and the test that stands for it fails."""

from collections.abc import Callable

import pytest

from swarmd.worker import for_others, lane, outbox, splitting
from swarmd.worker.borrowing import Borrowing
from swarmd.worker.elsewhere import Elsewhere
from swarmd.worker.keeps import Keeps
from swarmd.worker.splitting import _Walker
from swarmd_protocols.offload.offload import Offload
from swarmd_protocols.offload.shards import Shards
from tests.integration import test_lending_handing as laws
from tests.property import test_outbox as boxes
from tests.support.mutants import assert_found


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No law fails because a busy machine sends a chunk late."""
    monkeypatch.setattr(lane, "STALL_S", 60.0)
    monkeypatch.setattr(lane, "HANDED_STALL_S", 60.0)


def _places_need_no_signature(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Offload, "has_said", lambda self, bound, data, signature: True)
    # The place is nobody's. The tail gives it up well before the borrower gives the tail up: the law gets its answer.
    patch.setattr(lane, "HANDED_STALL_S", 2.0)


def _what_is_no_number_is_run(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(for_others, "_is_finite", lambda inputs: True)


def _nobody_is_named(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Elsewhere, "judge", lambda self, number, is_right: None)


def _it_is_tried_again_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Shards, "may_hand_on", lambda self, now_ns: True)


def _who_has_the_part_looks_away(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_Walker, "_has_none", lambda self, position: True)


def _a_place_may_say_any_size(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(splitting, "_most_bytes", lambda ports, units: 64 << 20)


def _who_owes_nothing_is_named_too(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Keeps, "is_owed", lambda self, far, now_ns: True)


def _the_silent_are_judged(patch: pytest.MonkeyPatch) -> None:
    judge = Borrowing.judge
    patch.setattr(Borrowing, "judge", lambda self, number, is_right, is_silent=False: judge(self, number, is_right))


def _whoever_answers_none_is_at_fault(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_Walker, "_is_lent", property(lambda self: False, lambda self, value: None), raising=False)


def _doubts_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    judge = Elsewhere.judge
    patch.setattr(
        Elsewhere, "judge", lambda self, number, is_right: None if not is_right else judge(self, number, True)
    )


def _all_that_was_read_makes_room(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(outbox, "SAFE_MAX", 0)
    patch.setattr(outbox, "SAFE_MAX_BYTES", 0)


def _who_comes_first_keeps_the_borrower_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(outbox, "BORROWER", b"somebody")


MUTANTS: list[tuple[Callable[[pytest.MonkeyPatch], None], Callable[[], None]]] = [
    (_places_need_no_signature, laws.test_a_borrower_sends_no_lender_where_another_has_not_said_that_it_listens),
    (_what_is_no_number_is_run, laws.test_what_is_no_number_is_the_heads_fault_and_not_the_tails),
    (_nobody_is_named, laws.test_a_lender_that_keeps_other_bytes_than_it_signed_for_is_named),
    (
        _a_place_may_say_any_size,
        laws.test_a_lender_that_says_to_keep_more_than_there_is_is_named_and_costs_no_ticket,
    ),
    (_it_is_tried_again_at_once, laws.test_a_head_that_gives_nobody_what_it_keeps_is_named_and_asked_again),
    (_nobody_is_named, laws.test_a_head_that_gives_nobody_what_it_keeps_is_named_and_asked_again),
    (_who_owes_nothing_is_named_too, laws.test_a_head_that_had_to_make_room_is_not_named),
    (_the_silent_are_judged, laws.test_a_head_that_is_silent_about_what_it_keeps_is_written_down_and_not_judged),
    (_whoever_answers_none_is_at_fault, laws.test_numbers_that_break_the_next_part_are_not_that_parts_fault),
    (_doubts_are_forgotten, laws.test_a_tail_whose_answer_is_none_where_anothers_is_some_is_named),
    (_all_that_was_read_makes_room, boxes.test_law_a_full_house_costs_nobody_what_is_owed_to_it),
    (_who_comes_first_keeps_the_borrower_out, boxes.test_law_a_full_house_costs_nobody_what_is_owed_to_it),
    (_who_has_the_part_looks_away, laws.test_a_device_that_has_a_part_sees_what_lies_at_its_ends),
]


@pytest.mark.parametrize(("mutant", "broken"), MUTANTS, ids=[mutant.__name__[1:] for mutant, _ in MUTANTS])
def test_a_broken_rule_is_found(
    mutant: Callable[[pytest.MonkeyPatch], None], broken: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_found(mutant, broken, monkeypatch)
