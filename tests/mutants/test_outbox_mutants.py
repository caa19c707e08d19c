"""A mutant for each bound of what a lender keeps for the next, and for each way a token could open too much."""

from collections.abc import Callable
from typing import Any

import pytest

from swarmd.worker import outbox
from swarmd.worker.outbox import Outbox
from tests.property import test_outbox as laws
from tests.support.mutants import assert_found


def _shares_have_no_bound(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(outbox, "EACH_MAX_BYTES", 1 << 40)


def _all_together_have_no_bound(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(outbox, "TOTAL_MAX", 1 << 40)


def _small_ones_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(outbox, "EACH_MAX", 1 << 40)


def _they_outlive_their_deadline(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Outbox, "expire", lambda self, now_ns: None)


def _they_stay_as_long_as_the_borrower_says(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(outbox, "KEEP_MAX_NS", 1 << 60)


def _whoever_comes_last_displaces_anybody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Outbox, "_of", lambda self, borrower: list(self._kept.values()))


def _unread_ones_make_room(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(outbox._Kept, "was_read", True)


def _any_reader_may_show_it(patch: pytest.MonkeyPatch) -> None:
    def of_anybody(key: bytes, who: bytes) -> bytes:
        return who + outbox_token(key, bytes(8))[8:]

    outbox_token = outbox.token_of
    patch.setattr(outbox, "token_of", of_anybody)
    patch.setattr(laws, "token_of", of_anybody)


def _a_token_is_good_twice(patch: pytest.MonkeyPatch) -> None:
    read = Outbox.read

    def again(self: Outbox, token: bytes, connection: bytes, offset: int, now_ns: int) -> Any:
        for kept in self._kept.values():
            for reader in kept.readers.values():
                reader.next_offset, reader.connection = offset, connection
        return read(self, token, connection, offset, now_ns)

    patch.setattr(Outbox, "read", again)


def _anybody_may_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(outbox, "READERS_MAX", 1 << 40)


MUTANTS: list[tuple[Callable[[pytest.MonkeyPatch], None], Callable[[], None]]] = [
    (_shares_have_no_bound, laws.test_law_a_borrower_has_its_share_and_no_more),
    (_all_together_have_no_bound, laws.test_law_all_borrowers_together_are_bounded),
    (_small_ones_are_not_counted, laws.test_law_a_borrowers_small_tensors_are_counted_too),
    (_they_outlive_their_deadline, laws.test_law_a_token_opens_one_tensor_for_one_reader_once),
    (_they_stay_as_long_as_the_borrower_says, laws.test_law_the_bounds_hold_and_what_is_unread_stays_until_its_time),
    (_whoever_comes_last_displaces_anybody, laws.test_law_all_borrowers_together_are_bounded),
    (_unread_ones_make_room, laws.test_law_the_bounds_hold_and_what_is_unread_stays_until_its_time),
    (_any_reader_may_show_it, laws.test_law_a_token_opens_one_tensor_for_one_reader_once),
    (_a_token_is_good_twice, laws.test_law_a_token_opens_one_tensor_for_one_reader_once),
    (_anybody_may_read, laws.test_law_so_many_readers_and_no_more),
]


@pytest.mark.parametrize(("mutant", "law"), MUTANTS, ids=[mutant.__name__[1:] for mutant, _ in MUTANTS])
def test_a_law_finds_the_mutant(
    mutant: Callable[[pytest.MonkeyPatch], None], law: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_found(mutant, law, monkeypatch)
