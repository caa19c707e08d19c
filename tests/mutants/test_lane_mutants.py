"""Mutants of the tensor lane: each lets a hostile end gain something, and a law finds it."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from swarmd.worker import lane
from swarmd.worker.lane import Shelf
from swarmd.worker.lent import Place
from swarmd_protocols.offload import under_way
from tests.integration import test_lending_lane as laws
from tests.support.mutants import assert_found


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No law fails because a busy machine sends a chunk late."""
    monkeypatch.setattr(lane, "STALL_S", 60.0)


def _tokens_live_on(patch: pytest.MonkeyPatch) -> None:
    whole = Shelf.lay_out

    @contextlib.contextmanager
    def laid(self: Shelf, body: bytes, digest: bytes) -> Any:
        with whole(self, body, digest) as place:
            kept = self._laid[place.token]
            yield place
        self._laid[place.token] = kept

    patch.setattr(Shelf, "lay_out", laid)


def _what_was_left_is_believed(patch: pytest.MonkeyPatch) -> None:
    async def take(self: Shelf, place: Place, size_bytes: int, digest: bytes) -> bytes | None:
        return next((bytes(one.data) for one in self._laid[place.token].answers.values()), None)

    patch.setattr(Shelf, "take", take)


def _answers_have_no_bound(patch: pytest.MonkeyPatch) -> None:
    put = Shelf._put

    def every(self: Shelf, laid: Any, who: bytes, where: tuple[bytes, bytes], *rest: Any) -> bool:
        return put(self, laid, b"".join(where), where, *rest)

    patch.setattr(Shelf, "_put", every)


def _lenders_share_their_room(patch: pytest.MonkeyPatch) -> None:
    find = Shelf._find

    def anybodys(self: Shelf, token: bytes) -> Any:
        known = find(self, token)
        return None if known is None else (known[0], b"")

    patch.setattr(Shelf, "_find", anybodys)


def _one_lender_may_have_all_the_room(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Shelf, "held_bytes_of", lambda self, who: 0)


def _all_lenders_are_told_one_token(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(under_way, "data_for", lambda ask, lender: ask.data)


def _a_lost_port_ends_the_watch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(laws, "PATIENCE_S", 4.0)
    patch.setattr(Shelf, "_listen_again", lambda self: self._bind(*self._address))


MUTANTS: list[tuple[Callable[[pytest.MonkeyPatch], None], Callable[[], None]]] = [
    (_tokens_live_on, laws.test_a_connection_that_stands_is_worth_nothing_once_its_request_has_ended),
    (_what_was_left_is_believed, laws.test_a_lender_that_leaves_something_else_than_it_signed_is_asked_no_more),
    (_answers_have_no_bound, laws.test_answers_are_bounded),
    (_lenders_share_their_room, laws.test_law_what_one_lender_leaves_takes_no_room_of_anothers),
    (_one_lender_may_have_all_the_room, laws.test_law_what_one_lender_leaves_takes_no_room_of_anothers),
    (_all_lenders_are_told_one_token, laws.test_each_lender_is_told_a_token_of_its_own),
    (_a_lost_port_ends_the_watch, laws.test_a_port_that_is_lost_is_listened_at_again),
]


@pytest.mark.parametrize(("mutant", "broken"), MUTANTS, ids=lambda one: one.__name__)
def test_a_broken_rule_of_the_lane_is_found(
    mutant: Callable[[pytest.MonkeyPatch], None], broken: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_found(mutant, broken, monkeypatch)
