"""The simulator's catalogue follows the code: each entry breaks what is there, takes the same calls, and is undone."""

import inspect
from importlib import import_module
from typing import Any

import pytest

from swarmd_sim.run.fuzz import FuzzPlan
from swarmd_sim.run.mutants import catalogue, mutated
from swarmd_sim.run.mutation_score import DEFAULT_SCENARIO


def held(target: str) -> Any:
    """What stands under a name "module:Class.function" of the catalogue, as its owner holds it."""
    module, _, path = target.partition(":")
    owner: Any = import_module(f"swarmd_protocols.{module}")
    *outer, name = path.split(".")
    for part in outer:
        owner = getattr(owner, part)
    return vars(owner)[name]


def assert_callable_alike(sound: Any, broken: Any, target: str) -> None:
    """A broken function that cannot be called as the sound one would raise, and be found for that alone."""
    if isinstance(sound, property):
        sound, broken = sound.fget, broken.fget
    sound, broken = (getattr(one, "__func__", one) for one in (sound, broken))
    if not callable(sound):
        assert isinstance(broken, type(sound)), target
        return
    asked = inspect.signature(sound).parameters.values()
    placed = [one.name for one in asked if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    named = {one.name: one.name for one in asked if one.kind is one.KEYWORD_ONLY}
    inspect.signature(broken).bind(*placed, **named)


def test_there_are_mutants() -> None:
    assert len(catalogue()) > 60


@pytest.mark.parametrize("name", catalogue())
def test_the_entry_breaks_what_is_there_and_is_undone(name: str) -> None:
    mutant = catalogue()[name]
    targets = [mutant.target, *(target for target, _ in mutant.more)]
    sound = [held(target) for target in targets]
    with mutated(name):
        for target, was in zip(targets, sound, strict=True):
            now = held(target)
            assert now is not was, target
            assert_callable_alike(was, now, target)
    assert all(held(target) is was for target, was in zip(targets, sound, strict=True))


@pytest.mark.parametrize("name", catalogue())
def test_the_scenario_of_the_entry_loads(name: str) -> None:
    mutant = catalogue()[name]
    assert FuzzPlan(mutant.scenario or DEFAULT_SCENARIO, mutant.overrides, name).load().name


def test_a_target_that_has_gone_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("swarmd_protocols.swim.prober.Prober._period")
    with pytest.raises(KeyError, match="_period"), mutated("swim-one-probe"):
        pass


def test_an_entry_that_fails_half_way_leaves_nothing_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("swarmd_protocols.swim.prober.Prober.ping_once")
    sound = held("swim.swim:Swim._rejoin")
    with pytest.raises(KeyError, match="ping_once"), mutated("swim-no-rejoin"):
        pass
    assert held("swim.swim:Swim._rejoin") is sound
