"""Mutants of candidates: each makes a fault of what nobody is sure of, hides one, or costs what it should not."""

from dataclasses import replace

import pytest

from swarmd.api.daemon import BusEvent
from swarmd.api.faults import FaultGate
from swarmd_models import tracker
from swarmd_models.geo import sightings
from swarmd_protocols.effects import StateChanged
from swarmd_protocols.state.dedup.entry import Entry
from swarmd_protocols.state.dedup.own import OwnSightings
from swarmd_protocols.state.observations import DetectionLearned, ObjectView
from tests.property import test_tier_laws as laws
from tests.support.mutants import assert_found, each_mutant
from tests.unit import test_eye_candidates as eye


def a_join_of_a_candidate_is_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Entry, "is_unsure", property(lambda self: False))


def everything_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FaultGate, "pass_on", lambda self, event: event)


def what_ceases_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = FaultGate._kind

    def mutated(self: FaultGate, name: str, is_fault: bool, said: str, last: str) -> str:
        return kind(self, name, is_fault, said, "") if said == "update" else kind(self, name, is_fault, said, last)

    monkeypatch.setattr(FaultGate, "_kind", mutated)


def what_was_never_told_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    class Everything:
        def __contains__(self, name: object) -> bool:
            return True

    begin = FaultGate.__init__
    monkeypatch.setattr(FaultGate, "__init__", lambda self, listed=(): begin(self, Everything()))


def a_sighting_that_ceases_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    pass_on = FaultGate.pass_on

    def mutated(self: FaultGate, event: BusEvent) -> BusEvent | None:
        passed = pass_on(self, event)
        match passed:
            case StateChanged(detail=DetectionLearned() as learned) if learned.view.is_candidate:
                return None
        return passed

    monkeypatch.setattr(FaultGate, "pass_on", mutated)


def what_nobody_is_sure_of_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ObjectView, "is_fault", property(lambda self: True))


def candidates_are_said_as_often(monkeypatch: pytest.MonkeyPatch) -> None:
    worth = OwnSightings._worth_saying
    monkeypatch.setattr(
        OwnSightings,
        "_worth_saying",
        lambda self, said, row, ending: worth(self, said._replace(need_milli=0), row._replace(need_milli=0), ending),
    )


def candidates_are_leant_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Entry, "is_unsure", property(lambda self: False))


def one_sure_look_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    event = tracker._event
    monkeypatch.setattr(
        tracker, "_event", lambda kind, track: replace(event(kind, track), need=0.0 if track.sure_hits else track.need)
    )


def to_become_sure_waits_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sightings, "_is_news", lambda old, new: False)


LAWS = (
    (eye.test_a_track_is_sure_when_as_many_looks_are_as_are_needed_to_be_told, one_sure_look_is_enough),
    (eye.test_to_become_sure_is_news, to_become_sure_waits_its_turn),
    (laws.test_law_candidates_of_one_author_never_make_a_fault, a_join_of_a_candidate_is_sure),
    (laws.test_law_candidates_of_one_author_never_make_a_fault, what_nobody_is_sure_of_is_a_fault),
    (laws.test_law_the_outside_holds_no_candidate, everything_is_told),
    (laws.test_law_the_outside_holds_no_candidate, what_ceases_stays),
    (laws.test_law_the_outside_holds_no_sighting_of_which_its_author_is_not_sure, a_sighting_that_ceases_stays),
    (laws.test_law_the_outside_holds_no_sighting_of_which_its_author_is_not_sure, everything_is_told),
    (laws.test_law_who_comes_late_is_told_of_candidates_only_what_it_knew, what_was_never_told_is_taken_back),
    (
        laws.test_a_candidate_is_said_once_until_it_is_surer_and_a_sure_look_is_said_beside_it,
        candidates_are_said_as_often,
    ),
    (laws.test_who_joined_what_became_a_candidate_says_its_own, candidates_are_leant_on),
)


@each_mutant(LAWS)
def test_a_mutant_is_found(law, mutant, monkeypatch):
    assert_found(mutant, law, monkeypatch)
