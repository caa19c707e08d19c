"""Mutants of the search of an architecture: each one's trials are no longer the seed's, or nobody says so."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("optuna", reason="Optuna is not installed; it is an extra (search)")

from swarmd_recipes import search as searching
from swarmd_recipes.latency import Cost, LatencyTable
from swarmd_recipes.space import Plan, Shape
from tests.unit import test_recipe_search as laws

Mutant = Callable[[pytest.MonkeyPatch], None]


def trials_are_drawn_without_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    import optuna

    sampler = optuna.samplers.TPESampler
    monkeypatch.setattr(optuna.samplers, "TPESampler", lambda seed=None, n_startup_trials=5: sampler())


def a_killed_trial_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    following = searching._next

    def mutant(study: Any, plan: Plan) -> tuple[int, Shape]:
        import optuna

        for left in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
            study.tell(left.number, state=optuna.trial.TrialState.FAIL)
        return following(study, plan)

    monkeypatch.setattr(searching, "_next", mutant)


def what_breaks_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    def mutant(number: int, shape: Shape, cost: Cost, judge: searching.Judge) -> searching.Trial:
        return searching.Trial(number, shape, cost, judge(shape))

    monkeypatch.setattr(searching, "_tried", mutant)


def breaking_for_ever_is_let_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "_stop_if_broken", lambda trials: None)


def a_table_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LatencyTable, "covers", lambda self, plan: None)


def every_study_is_gone_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plan, "fingerprint", property(lambda self: "any"))
    monkeypatch.setattr(LatencyTable, "fingerprint", property(lambda self: "any"))


def two_searches_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def mutant(work: Path) -> Iterator[None]:
        yield

    monkeypatch.setattr(searching, "_alone", mutant)


def killed(folder: Path) -> None:
    laws.test_a_search_that_was_killed_goes_on_to_the_trials_of_one_that_was_not(folder, 2)


CATALOGUE: list[tuple[Mutant, Callable[[Path], None]]] = [
    (trials_are_drawn_without_the_seed, laws.test_the_same_seed_gives_the_same_trials_and_no_shape_twice),
    (a_killed_trial_is_left_behind, killed),
    (what_breaks_ends_the_search, laws.test_a_trial_that_breaks_is_written_down_and_the_search_goes_on),
    (breaking_for_ever_is_let_go_on, laws.test_a_search_whose_every_trial_breaks_ends_and_says_the_last_reason),
    (a_table_is_taken_as_it_is, laws.test_a_table_that_lacks_a_size_is_refused_by_its_name),
    (every_study_is_gone_on_with, laws.test_a_study_of_something_else_is_refused),
    (two_searches_take_turns, laws.test_two_searches_do_not_share_a_work_directory),
]


@pytest.mark.parametrize(("mutant", "law"), CATALOGUE, ids=[mutant.__name__ for mutant, _ in CATALOGUE])
def test_a_law_finds_the_mutant(
    mutant: Mutant, law: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    law(tmp_path)
    (tmp_path / "mutant").mkdir()
    mutant(monkeypatch)
    with pytest.raises((AssertionError, RuntimeError, pytest.fail.Exception)):
        law(tmp_path / "mutant")
