"""Mutants of the loop that asks another judge: each repeats itself, hurries, asks two at a time or says what is old."""

import pytest

from swarmd.brain import judging
from swarmd.brain.judging import Judging, Question
from swarmd_protocols.state.observations import Judged, ObjectChanged
from tests.property import test_judging_laws as laws
from tests.support.mutants import assert_found, each_mutant


def every_picture_is_new(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Judging, "_want", lambda self, name, thing, sure, picture: self._put(name, sure, picture))


def it_asks_without_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(judging, "LOOKS_MAX", 1 << 30)


def it_does_not_rest(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(judging, "REST_S", 0.0)


def it_never_gives_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(judging, "TRIES_MAX", 1 << 30)


def what_waits_has_no_bound(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(judging, "WAITING_MAX", 1 << 30)


def old_answers_count(patch: pytest.MonkeyPatch) -> None:
    asked: dict[int, Question] = {}
    following = Judging.next

    def noted(self: Judging, now_s: float, digest: str) -> Question | None:
        question = following(self, now_s, digest)
        if question is not None:
            asked[question.number] = question
        return question

    def closed(self: Judging, number: int) -> Question | None:
        self.open = None
        return asked.get(number)

    patch.setattr(Judging, "next", noted)
    patch.setattr(Judging, "_close", closed)


def the_model_may_change_unnoticed(patch: pytest.MonkeyPatch) -> None:
    following = Judging.next
    patch.setattr(Judging, "next", lambda self, now_s, digest: following(self, now_s, ""))


def two_are_asked_at_once(patch: pytest.MonkeyPatch) -> None:
    following = Judging.next

    def hasty(self: Judging, now_s: float, digest: str) -> Question | None:
        self.open = None
        return following(self, now_s, digest)

    patch.setattr(Judging, "next", hasty)


def late_answers_take_back(patch: pytest.MonkeyPatch) -> None:
    answered = Judging.answered

    def hasty(self: Judging, number: int, score: float, digest: str) -> Judged | None:
        if self.open is not None:
            self._waiting.pop(self.open.object_id, None)
        return answered(self, number, score, digest)

    patch.setattr(Judging, "answered", hasty)


def what_may_be_a_neighbour_is_nothing(patch: pytest.MonkeyPatch) -> None:
    answered = Judging.answered
    patch.setattr(Judging, "answered", lambda self, number, score, digest: answered(self, number, score or 0.0, digest))


def a_thing_s_answer_goes_to_the_next_of_its_name(patch: pytest.MonkeyPatch) -> None:
    hear = Judging.hear

    def careless(self: Judging, change: ObjectChanged) -> None:
        hear(self, change)
        for thing in self._things.values():
            thing.since = 0

    patch.setattr(Judging, "hear", careless)


def what_is_settled_is_judged(patch: pytest.MonkeyPatch) -> None:
    hear = Judging.hear

    def careless(self: Judging, change: ObjectChanged) -> None:
        hear(self, change)
        for thing in self._things.values():
            thing.is_wanted = True

    patch.setattr(Judging, "hear", careless)


def what_was_forgotten_may_have_a_verdict(patch: pytest.MonkeyPatch) -> None:
    hear = Judging.hear

    def careless(self: Judging, change: ObjectChanged) -> None:
        hear(self, change)
        if self.counts["forgotten"]:
            for thing in self._things.values():
                thing.has_verdict = True

    patch.setattr(Judging, "hear", careless)


LAWS = (
    (
        laws.test_who_sees_what_may_be_a_neighbour_takes_nothing_back_and_is_not_asked_again,
        what_may_be_a_neighbour_is_nothing,
    ),
    (laws.test_a_late_answer_takes_no_verdict_back, late_answers_take_back),
    (laws.test_a_late_answer_takes_no_verdict_back, a_thing_s_answer_goes_to_the_next_of_its_name),
    (laws.test_an_answer_about_what_a_person_has_settled_says_nothing, what_is_settled_is_judged),
    (laws.test_nothing_is_taken_back_that_was_never_said, what_was_forgotten_may_have_a_verdict),
    (laws.test_a_candidate_is_asked_about_once_and_its_verdict_is_said, every_picture_is_new),
    (laws.test_a_thing_is_shown_to_one_model_so_often_and_no_more, it_asks_without_end),
    (laws.test_a_judge_that_dies_leaves_nothing_and_is_asked_again_a_few_times, it_does_not_rest),
    (laws.test_a_judge_that_dies_leaves_nothing_and_is_asked_again_a_few_times, it_never_gives_up),
    (laws.test_the_surest_go_first_and_the_rest_has_a_bound, what_waits_has_no_bound),
    (laws.test_one_question_is_open_and_late_answers_say_nothing, old_answers_count),
    (laws.test_a_better_picture_or_another_model_may_change_its_mind, the_model_may_change_unnoticed),
    (laws.test_one_question_is_open_and_late_answers_say_nothing, two_are_asked_at_once),
)


@each_mutant(LAWS)
def test_a_mutant_is_found(law, mutant, monkeypatch):
    assert_found(mutant, law, monkeypatch)
