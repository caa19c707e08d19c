"""A mutant for each rule of whose borrowed work runs first: break it, and the law must fail."""

from collections.abc import Callable, Sequence

import pytest

from swarmd.worker.batcher import Request
from swarmd_protocols.ids import NodeId
from swarmd_protocols.offload import turns
from swarmd_protocols.offload.lending import Lender
from swarmd_protocols.offload.turns import PATIENCE_NS, Turn, Turns, Waiting
from tests.property import test_offload_turns as laws
from tests.support.mutants import assert_found


def _urgent_work_always_goes_first(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(turns, "PATIENCE_NS", {1: 0, 2: 1 << 60, 3: 1 << 61})
    patch.setattr(turns, "NORMAL", 1)  # Beyond its share, too.


def _nobody_has_a_share(patch: pytest.MonkeyPatch) -> None:
    def take(
        self: Turns, borrower: NodeId, priority: int, time_ns: int, sharing: int, waiting: Sequence[Waiting],
        now_ns: int,
    ) -> Turn:  # fmt: skip
        return Turn(now_ns + PATIENCE_NS[priority], True)

    patch.setattr(Turns, "take", take)


def _what_was_used_is_never_forgiven(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(turns, "AHEAD_MAX_NS", 1 << 60)


def _first_come_first_served(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(turns, "PATIENCE_NS", {1: 0, 2: 0, 3: 0})


def _promises_are_broken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(turns, "breaks_promise", lambda turn_ns, time_ns, waiting, now_ns: False)


def _a_turn_may_lie_before_the_arrival(patch: pytest.MonkeyPatch) -> None:
    whole = Turns.take

    def take(
        self: Turns, borrower: NodeId, priority: int, time_ns: int, sharing: int, waiting: Sequence[Waiting],
        now_ns: int,
    ) -> Turn:  # fmt: skip
        found = whole(self, borrower, priority, time_ns, sharing, waiting, now_ns)
        return Turn(found.at_ns - 300_000_000, found.is_in_share) if priority == 1 else found

    patch.setattr(Turns, "take", take)


def _no_place_is_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        Lender, "_has_room", lambda self, has: len(self._jobs) < self._config.jobs_max and has < self._config.jobs_each
    )


def _the_worker_goes_by_deadlines(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Request, "rank", property(lambda self: (self.priority, self.deadline_ns, self.number)))


MUTANTS: list[tuple[Callable[[pytest.MonkeyPatch], None], Callable[[], None]]] = [
    (
        _urgent_work_always_goes_first,
        lambda: laws.test_a_request_waits_no_longer_than_its_patience_and_what_was_there(2),
    ),
    (_nobody_has_a_share, lambda: laws.test_a_request_waits_no_longer_than_its_patience_and_what_was_there(1)),
    (_nobody_has_a_share, laws.test_who_calls_everything_urgent_has_no_more_than_its_share),
    (_what_was_used_is_never_forgiven, laws.test_who_used_what_nobody_wanted_is_not_last_when_others_come),
    (_first_come_first_served, laws.test_among_those_in_their_share_the_urgent_goes_first),
    (_promises_are_broken, laws.test_what_was_promised_is_kept),
    (_a_turn_may_lie_before_the_arrival, laws.test_what_comes_after_a_turn_does_not_pass_it),
    (_no_place_is_kept, laws.test_those_who_take_all_they_may_leave_room_for_who_has_none),
    (_the_worker_goes_by_deadlines, laws.test_the_worker_runs_own_work_first_and_others_by_their_turn),
]


@pytest.mark.parametrize(("mutant", "law"), MUTANTS)
def test_a_broken_rule_is_found(
    mutant: Callable[[pytest.MonkeyPatch], None], law: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_found(mutant, law, monkeypatch)
