"""Mutants of the accounts of own words: each lets a member cost more, or be silenced by another, and a law finds it."""

from collections.abc import Callable, Iterator

import pytest

from swarmd_protocols.reader import Reader
from swarmd_protocols.swim.allowance import Allowance
from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.event_claims import Claims
from swarmd_protocols.swim.event_log import EventLog, LargeRepairs
from swarmd_protocols.swim.membership import Membership
from swarmd_protocols.swim.relays import Relays
from swarmd_protocols.swim.user_events import UserEvents
from tests.property import test_own_word_laws as laws
from tests.support.mutants import Mutant, assert_found
from tests.support.swim_net import S
from tests.unit import test_event_claims as claims


def words_have_no_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Relays, "may_say", lambda self, node, members, now_ns, *, direct: True)


def what_others_bring_counts_as_said(monkeypatch: pytest.MonkeyPatch) -> None:
    may, said = Relays.may_say, Relays.said
    monkeypatch.setattr(
        Relays, "may_say", lambda self, node, members, now, *, direct: may(self, node, members, now, direct=True)
    )
    monkeypatch.setattr(
        Relays, "said", lambda self, node, members, now, *, direct: said(self, node, members, now, direct=True)
    )


def refutations_wait_too(monkeypatch: pytest.MonkeyPatch) -> None:
    holds = Core.holds_word
    monkeypatch.setattr(
        Core,
        "holds_word",
        lambda self, author, kind, message, via, what, *, owed=False: holds(self, author, kind, message, via, what),
    )


def a_log_is_bounded_by_number_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swarmd_protocols.swim.event_log._HELD_BYTES_MAX", 1 << 40)


def each_gap_is_awaited_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    due = EventLog.due

    def slow(self: EventLog, *, skip_gap: bool = False) -> Iterator[tuple[str, bytes]]:
        until_ns = self.next_until_ns() if self.pending else 0
        yield from due(self, skip_gap=skip_gap)
        if skip_gap and self.pending:
            self.pending[min(self.pending)].until_ns = until_ns + 5 * S

    monkeypatch.setattr(EventLog, "due", slow)


def large_repairs_are_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LargeRepairs, "reached", lambda self, peer, origin, now_ns: 0)


def refusals_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swarmd_protocols.swim.allowance._RATES", dict.fromkeys(range(5), (1e9, 1e9)))


def refusals_are_counted_by_message(monkeypatch: pytest.MonkeyPatch) -> None:
    spend = Allowance.spend
    monkeypatch.setattr(
        Allowance,
        "spend",
        lambda self, member, message, effects, checks, now_ns, *, brought: spend(
            self, member, message, effects, min(1, checks), now_ns, brought=brought
        ),
    )


def one_alarm_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    flooded = Allowance.flooded
    monkeypatch.setattr(
        Allowance,
        "flooded",
        lambda self, member, name, what, now: flooded(self, type(member)(bytes(16)), name, what, now),
    )


def whoever_floods_is_named_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swarmd_protocols.swim.allowance._NAMED_GAP_NS", 0)


def accounts_are_never_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swarmd_protocols.swim.allowance._MEMBERS_MAX", 10**9)


def each_absence_has_a_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    def each(self: Membership, member: object) -> None:
        self.core.scheduler.at(member.away_until_ns, self._absence_over, member.node)  # type: ignore[attr-defined]

    monkeypatch.setattr(Membership, "_await_return", each)


def an_author_is_sent_what_it_said(monkeypatch: pytest.MonkeyPatch) -> None:
    beyond = UserEvents.beyond
    monkeypatch.setattr(UserEvents, "beyond", lambda self, peer, vector: beyond(self, b"", vector))


def frames_are_read_to_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    dispatch = Reader._dispatch

    def whole(self: Reader, *arguments: object) -> bool:
        dispatch(self, *arguments)  # type: ignore[arg-type]
        return True

    monkeypatch.setattr(Reader, "_dispatch", whole)


def a_word_outlives_its_speaker(monkeypatch: pytest.MonkeyPatch) -> None:
    given_up = Claims.given_up

    def all_count(self: Claims, origin: bytes, here: int, needed: int, heard: object, now_ns: int) -> int:
        said = self._origins[origin].claims.keys() if origin in self._origins else ()
        return given_up(self, origin, here, needed, set(said), now_ns)

    monkeypatch.setattr(Claims, "given_up", all_count)


def any_sequence() -> None:
    laws.test_whatever_one_author_says_of_itself_costs_the_others_a_bounded_share()


def gaps_of_each() -> None:
    laws.test_gaps_that_were_heard_of_together_are_awaited_together("event", "one")


def statements() -> None:
    laws.test_a_frame_of_words_that_do_not_hold_costs_so_many_checks("statements")


def outdated_reports_are_repaired_as_others_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swarmd_protocols.swim.repair._REPLACED", 1)


def storm_of_links() -> None:
    laws.check_soon("links", "each other")


def links() -> None:
    laws.test_a_frame_of_words_that_do_not_hold_costs_so_many_checks("links")


@pytest.mark.parametrize(
    ("mutant", "law"),
    [
        (words_have_no_account, laws.test_an_author_is_never_looked_at_more_often_than_its_account_holds),
        (words_have_no_account, any_sequence),
        (outdated_reports_are_repaired_as_others_are, storm_of_links),
        (what_others_bring_counts_as_said, laws.test_old_words_that_another_repeats_silence_nobody_and_blame_nobody),
        (each_gap_is_awaited_anew, gaps_of_each),
        (large_repairs_are_repeated, claims.test_what_a_peer_was_sent_reliably_is_not_sent_again_at_once),
        (
            a_word_outlives_its_speaker,
            claims.test_of_whom_a_cut_leaves_the_last_lie_of_one_that_is_gone_does_not_decide,
        ),
        (refutations_wait_too, laws.test_a_refutation_is_never_beyond_the_account),
        (a_log_is_bounded_by_number_alone, laws.test_a_log_holds_so_many_bytes_of_one_origin),
        (refusals_are_free, links),
        (refusals_are_counted_by_message, statements),
        (one_alarm_for_all, laws.test_each_flooder_is_named_once_a_minute),
        (whoever_floods_is_named_each_time, laws.test_each_flooder_is_named_once_a_minute),
        (accounts_are_never_dropped, laws.test_accounts_of_who_asks_and_floods_are_bounded),
        (each_absence_has_a_timer, laws.test_absences_without_end_and_comings_and_goings_need_few_timers),
        (an_author_is_sent_what_it_said, laws.test_an_author_is_not_sent_what_it_said),
        (frames_are_read_to_their_end, laws.test_a_flood_ends_the_frame_it_stands_in),
    ],
)
def test_the_law_finds_the_mutant(mutant: Mutant, law: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
