"""Each rule of a gateway's waiting taken out once: the tests in virtual time must see it."""

from collections.abc import Callable, Sequence

import pytest

from swarmd_protocols.federation import flow
from swarmd_protocols.federation.flow import Flow
from tests.unit import test_federation_flow as laws

Patch = pytest.MonkeyPatch


def waits_are_kept(patch: Patch) -> None:
    """A region that comes back is sent what waits when its own wait is over."""
    patch.setattr(Flow, "_return", lambda self, silent_ns, now_ns: None)


def asked_rarely(patch: Patch) -> None:
    """While nobody answers it is asked as rarely as where all is well."""
    patch.setattr(flow, "POLL_NS", 30_000_000_000)
    patch.setattr(flow, "ANSWER_NS", 3_000_000_000)


def all_at_once(patch: Patch) -> None:
    """Every gateway has the same moment."""
    patch.setattr(flow, "RETURN_NS", 0)


def patience_stays(patch: Patch) -> None:
    """An answer may take a second, whatever it is seen to take."""
    patch.setattr(Flow, "_measure", lambda self, took_ns: None)
    patch.setattr(flow, "PATIENCE_MAX_NS", flow.ANSWER_NS)


def patience_for_ever(patch: Patch) -> None:
    """What was slow once counts as slow from then on."""
    patch.setattr(Flow, "_measure", lambda self, took_ns: None)


def window_stays(patch: Patch) -> None:
    """What is missed changes nothing of how much is on its way."""
    patch.setattr(Flow, "_miss", lambda self, now_ns: None)


def never_quiet(patch: Patch) -> None:
    """What nobody answers leaves for ever."""
    patch.setattr(flow, "QUIET_NS", 1 << 62)


def asked_together(patch: Patch) -> None:
    """The question has the same moment at every gateway."""
    question = Flow._question

    def all_alike(self: Flow, asked_ns: int, connected: Sequence[bool], now_ns: int) -> list[flow.Plan]:
        place, self.place = self.place, 0.0
        plans = question(self, asked_ns, connected, now_ns)
        self.place = place
        return plans

    patch.setattr(Flow, "_question", all_alike)


def asked_each_second(patch: Patch) -> None:
    """However long its answers take, a silent region is asked each second."""
    question = Flow._question

    def impatient(self: Flow, asked_ns: int, connected: Sequence[bool], now_ns: int) -> list[flow.Plan]:
        mean_ns, doubled, self._mean_ns, self._doubled = self._mean_ns, self._doubled, 0, 0
        spread_ns, self._spread_ns = self._spread_ns, 0
        plans = question(self, asked_ns, connected, now_ns)
        self._mean_ns, self._spread_ns, self._doubled = mean_ns, spread_ns, doubled
        return plans

    patch.setattr(Flow, "_question", impatient)


def new_rows_at_once(patch: Patch) -> None:
    """What was said in a silence leaves at the first answer, all of it."""
    kept = Flow._return
    patch.setattr(Flow, "_return", lambda self, silent_ns, now_ns: kept(self, 0, now_ns))


def broken_is_waited_for(patch: Patch) -> None:
    """What left by a path that is gone waits as long as where an answer may come."""
    patch.setattr(Flow, "_is_broken", lambda self, one, connected: False)


def broken_each_time(patch: Patch) -> None:
    """Each time that a path goes what has left by it leaves again."""
    patch.setattr(Flow, "_is_broken", lambda self, one, connected: not connected[one.path])


@pytest.mark.parametrize(
    ("mutant", "law"),
    [
        (waits_are_kept, laws.test_a_region_that_comes_back_is_sent_what_it_missed_within_two_seconds),
        (asked_rarely, laws.test_a_region_that_comes_back_is_sent_what_it_missed_within_two_seconds),
        (all_at_once, laws.test_a_thousand_gateways_do_not_return_at_once),
        (patience_stays, laws.test_a_region_that_is_only_slow_is_not_sent_everything_twice),
        (patience_for_ever, laws.test_a_region_that_is_only_slow_is_not_sent_everything_twice),
        (never_quiet, laws.test_while_nobody_answers_only_the_question_is_left),
        (asked_each_second, laws.test_a_slow_region_is_asked_no_more_often_than_it_answers),
        (asked_together, laws.test_gateways_that_were_cut_off_together_do_not_ask_together),
        (new_rows_at_once, laws.test_what_was_only_said_in_a_silence_returns_with_the_rest),
        (broken_is_waited_for, laws.test_what_is_on_its_way_by_a_path_that_breaks_leaves_by_the_other_at_once),
        (broken_each_time, laws.test_what_is_on_its_way_by_a_path_that_breaks_leaves_by_the_other_at_once),
        (window_stays, laws.test_what_is_missed_halves_the_window_and_answers_open_it),
    ],
)
def test_the_law_sees_it(mutant: Callable[[Patch], None], law: Callable[[], None], monkeypatch: Patch) -> None:
    law()
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        law()
