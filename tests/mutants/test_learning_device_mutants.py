"""A mutant for each rule that a device keeps where it learns: when it trains, on what, and what may come of it."""

from functools import partial
from pathlib import Path

import pytest

from swarmd.brain.learning_link import LearningLink
from swarmd.learner import teaching
from swarmd_models import learned_head
from swarmd_models.bundle import load_bundle
from swarmd_protocols.learning.requests import NAME, Learn
from tests.support.label_sets import drawn_set
from tests.support.mutants import assert_found
from tests.unit import test_learned_head as head_laws
from tests.unit import test_learner as learner_laws
from tests.unit import test_learning_link as link_laws
from tests.unit.test_learned_head import moved
from tests.unit.test_learning_link import no_waiting

__all__ = ["moved", "no_waiting"]


def a_device_never_rests(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LearningLink, "_resting", property(lambda self: "", lambda self, why: None), raising=False)


def a_candidate_is_used_at_once(patch: pytest.MonkeyPatch) -> None:
    """What came out is said to somebody: here that the model is another one now."""
    hear = LearningLink.on_notice

    def also_act(self: LearningLink, notice: object) -> None:
        hear(self, notice)  # type: ignore[arg-type]
        self._command(NAME, Learn(None))

    patch.setattr(LearningLink, "on_notice", also_act)


def every_candidate_is_good(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(learned_head, "_refuse_worse", lambda before, after, is_judged: None)


def any_bundle_is_taught(patch: pytest.MonkeyPatch) -> None:
    """Whoever is asked for is said to be there."""

    class AnyDigest(str):
        __slots__ = ()

        def __ne__(self, other: object) -> bool:
            return False

        __hash__ = str.__hash__

    def load(model: str) -> object:
        bundle = load_bundle(model)
        object.__setattr__(bundle, "digest", AnyDigest(bundle.digest))
        return bundle

    patch.setattr(teaching, "load_bundle", load)


def each_set_holds_back_for_itself(patch: pytest.MonkeyPatch) -> None:
    def chosen(sets: object) -> object:
        return [(one, picture, picture.is_held) for one in sets for picture in one.pictures]  # type: ignore[attr-defined]

    patch.setattr(teaching, "_chosen", chosen)


@pytest.mark.parametrize(
    "law",
    [
        link_laws.law_nothing_is_trained_while_the_device_rests,
        link_laws.law_a_task_in_hand_ends_where_the_device_must_rest,
    ],
    ids=lambda law: str(law.__name__),
)
def test_resting_is_found(law: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_laws, "PATIENCE_S", 0.5)
    assert_found(a_device_never_rests, partial(law, tmp_path), monkeypatch)  # type: ignore[arg-type]


def test_a_candidate_that_acts_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    law = partial(link_laws.law_what_comes_out_is_kept_and_nothing_else, tmp_path)
    assert_found(a_candidate_is_used_at_once, law, monkeypatch)


def test_heads_that_are_no_better_are_found(moved: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned_head, "DRAWN_SCENES", 4)
    judge = drawn_set(tmp_path / "judge" / "set", 51, 4, held_share=1.0)
    (tmp_path / "a").mkdir()
    law = partial(head_laws.law_a_worse_head_leaves_nothing, judge, moved, tmp_path / "a")
    assert_found(every_candidate_is_good, law, monkeypatch)
    (tmp_path / "b").mkdir()
    law = partial(head_laws.law_a_head_that_forgot_is_refused, moved, tmp_path / "b")
    assert_found(every_candidate_is_good, law, monkeypatch)


def test_labels_of_the_wrong_kind_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn_set(tmp_path / "labels" / "a", 41, 4)
    monkeypatch.setattr(teaching, "DRAWN_SCENES", 2)
    law = partial(learner_laws.law_what_is_held_back_in_one_set_teaches_in_none, tmp_path / "labels", tmp_path)
    assert_found(each_set_holds_back_for_itself, law, monkeypatch)
    law = partial(learner_laws.law_another_bundle_is_not_taught, tmp_path / "labels", tmp_path)
    assert_found(any_bundle_is_taught, law, monkeypatch)
