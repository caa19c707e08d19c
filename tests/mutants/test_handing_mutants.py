"""A mutant for each rule of tensors that go from lender to lender: break it, and the test that stands for it fails."""

from collections.abc import Callable

import pytest

from swarmd.worker import for_others, lane, splitting
from swarmd.worker.elsewhere import Elsewhere
from swarmd.worker.splitting import _Walker
from swarmd_protocols.offload.offload import Offload
from swarmd_protocols.offload.shards import Shards
from tests.integration import test_lending_handing as laws
from tests.support.mutants import assert_found


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No law fails because a busy machine sends a chunk late."""
    monkeypatch.setattr(lane, "STALL_S", 60.0)
    monkeypatch.setattr(lane, "HANDED_STALL_S", 60.0)


def _places_need_no_signature(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Offload, "has_said", lambda self, bound, data, signature: True)


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


MUTANTS: list[tuple[Callable[[pytest.MonkeyPatch], None], Callable[[], None]]] = [
    (_places_need_no_signature, laws.test_a_borrower_sends_no_lender_where_another_has_not_said_that_it_listens),
    (_what_is_no_number_is_run, laws.test_what_is_no_number_is_the_heads_fault_and_not_the_tails),
    (_nobody_is_named, laws.test_a_lender_that_keeps_other_bytes_than_it_signed_for_is_named),
    (
        _a_place_may_say_any_size,
        laws.test_a_lender_that_says_to_keep_more_than_there_is_is_named_and_costs_no_ticket,
    ),
    (_it_is_tried_again_at_once, laws.test_where_it_is_gone_the_head_is_asked_again),
    (_who_has_the_part_looks_away, laws.test_a_device_that_has_a_part_sees_what_lies_at_its_ends),
]


@pytest.mark.parametrize(("mutant", "broken"), MUTANTS, ids=[mutant.__name__[1:] for mutant, _ in MUTANTS])
def test_a_broken_rule_is_found(
    mutant: Callable[[pytest.MonkeyPatch], None], broken: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_found(mutant, broken, monkeypatch)
