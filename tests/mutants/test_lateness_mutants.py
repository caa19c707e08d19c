"""Mutants of late links and of who speaks for whom: each breaks one rule, and its law finds it."""

from collections.abc import Callable

import pytest

from swarmd_protocols.swim import lateness
from swarmd_protocols.swim.lateness import LateLinks
from swarmd_protocols.swim.links import LinkReports
from swarmd_protocols.swim.members import Member, Probe, Relay
from swarmd_protocols.swim.messages import LEVEL_FAILED, LEVEL_SUSPECT, LINK_LATE
from swarmd_protocols.swim.prober import Prober
from tests.property import test_lateness_laws as laws
from tests.property import test_link_report_laws as reports
from tests.support.mutants import Mutant, assert_found, each_law, each_mutant

WINDOW_NS = laws.WINDOW_NS


def one_answer_is_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lateness, "_WEIGHT_LATE", 1)


def late_links_weigh_as_good_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lateness, "_WEIGHT_LATE", 8)


def a_good_link_forgets_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lateness, "_WEIGHT_GOOD", 1)


def late_answers_weigh_an_eighth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only those in time weigh half: a link that is quick every second time is good again."""
    sound = lateness.smoothed

    def smoothed(rtt_ns: int, round_trip_ns: int, window_ns: int, *, late: bool) -> int:
        return sound(rtt_ns, round_trip_ns, window_ns, late=late and round_trip_ns < window_ns)

    monkeypatch.setattr(lateness, "smoothed", smoothed)


def one_threshold_for_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lateness, "is_late", lambda rtt_ns, window_ns, *, late: rtt_ns > window_ns)


def late_links_wait_for_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LateLinks, "whose", lambda self, turn: None)


def late_links_get_all_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeated pings, helpers and hosts, in place of one ping."""
    sound = Prober.send_ping

    def send_ping(self: Prober, member: Member, purpose: Probe | Relay | Member) -> None:
        if purpose is member and member.link.quality == LINK_LATE:
            self.verify(member)
        else:
            sound(self, member, purpose)

    monkeypatch.setattr(Prober, "send_ping", send_ping)


def lucky() -> None:
    laws.check_lucky([], [], 1)


def every_second() -> None:
    laws.check_every_second([(1, WINDOW_NS * 3 // 2 + 8)] * 30)


def quick() -> None:
    laws.check_quick([], [WINDOW_NS // 4] * 3)


def slow() -> None:
    laws.check_slow([WINDOW_NS // 4], 4 * WINDOW_NS)


def recovers() -> None:
    laws.check_recovers(1, 1)


def cost() -> None:
    laws.check_cost(pytest.MonkeyPatch())


def signers_speak_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Member, "is_failed_by", lambda self, accuser: False)


def suspicion_silences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Member, "is_failed_by", lambda self, accuser: accuser in (self.accusations or {}))


def verdicts_wait_for_the_next_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LinkReports, "weigh_of", lambda self, reporters: None)


def the_forgotten_keep_their_witnesses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LinkReports, "forget", lambda self, member: self.count(member, ()))


def the_new_have_no_witnesses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LinkReports, "meet", lambda self, member: None)


def met_again() -> None:
    reports.check_met_again(1)


def signed() -> None:
    reports.check_signers([LEVEL_FAILED] * 5, 1)


def signed_and_suspected() -> None:
    reports.check_signers([LEVEL_FAILED, LEVEL_SUSPECT, LEVEL_SUSPECT, LEVEL_SUSPECT, LEVEL_FAILED], 1)


PAIRS: list[tuple[Callable[[], None], Mutant]] = [
    (lucky, one_answer_is_all),
    (lucky, one_threshold_for_both),
    (every_second, late_answers_weigh_an_eighth),
    (quick, late_links_weigh_as_good_ones),
    (slow, a_good_link_forgets_at_once),
    (recovers, late_links_wait_for_their_turn),
    (cost, late_links_get_all_questions),
    (signed, signers_speak_on),
    (signed, verdicts_wait_for_the_next_report),
    (signed_and_suspected, suspicion_silences),
    (met_again, the_forgotten_keep_their_witnesses),
    (met_again, the_new_have_no_witnesses),
]


@each_law(PAIRS)
def test_the_unbroken_code_holds(law: Callable[[], None]) -> None:
    law()


@each_mutant(PAIRS)
def test_the_law_finds_the_mutant(law: Callable[[], None], mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
