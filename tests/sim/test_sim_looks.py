"""Looks in the simulated swarm: neighbours that places cannot tell apart stay two things, and hardly any is doubled."""

import random
from functools import cache
from typing import Any

import pytest

from swarmd_protocols.state.dedup import looks
from swarmd_protocols.state.dedup.looks import LIKE_MIN_MILLI, likeness_milli, look_of
from swarmd_sim.run.choices import Choices
from swarmd_sim.run.looks_rules import compared, is_worth_comparing
from swarmd_sim.run.scenario import load_scenario
from swarmd_sim.run.simulation import Options, Simulation
from swarmd_sim.world.detector import DetectorConfig, DetectorModel
from swarmd_sim.world.site import empty_site
from tests.support.mutants import assert_found

SEEDS = (1, 2)


def of_seed(seed: int) -> tuple[list[str], dict[str, Any]]:
    """Broken rules, and the rows with looks, by places alone, and of who knows what is what."""
    scenario = load_scenario("offload-looks")
    assert is_worth_comparing(scenario)
    result = Simulation(scenario, seed, Options()).run()
    return [one.rule for one in result.violations], compared(scenario, seed, result.figures)


_of_seed = cache(of_seed)


def test_law_looks_keep_neighbours_apart_that_places_join() -> None:
    """Of four faults that places alone lose in their neighbours, looks lose two at most, and double few."""
    lost, lost_without, doubled, seen = 0, 0, 0, 0
    for seed in SEEDS:
        broken, rows = _of_seed(seed)
        assert broken == []
        lost += rows["looks"]["distinct_lost"]
        lost_without += rows["places alone"]["distinct_lost"]
        doubled += rows["looks"]["duplicates"] - rows["places alone"]["duplicates"]
        seen += rows["oracle"]["found"]
    assert lost_without >= 8, "the world is too easy to show anything"
    assert 2 * lost <= lost_without
    assert lost <= 0.04 * seen
    assert doubled <= 0.08 * seen


def _nothing_is_unlike(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(looks, "LIKE_MIN_MILLI", -1001)
    patch.setattr(looks, "WEIGHT", 0)


def test_a_swarm_that_heeds_no_looks_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "_of_seed", of_seed)
    assert_found(_nothing_is_unlike, test_law_looks_keep_neighbours_apart_that_places_join, monkeypatch)


def test_looks_are_as_alike_as_those_of_real_modules() -> None:
    """Measured there: 1.0 to 1.8 % of the pairs of one module under the bar, 81 to 82 % of the pairs of two."""
    eye = DetectorModel(DetectorConfig(looks=True), empty_site((1_000, 1_000)), False, Choices(3))
    seen = [[look_of(b"model--1", eye._look_at(f"m{number}")) for _ in range(2)] for number in range(400)]
    rng = random.Random(5)
    one = [likeness_milli(*pair) or 0 for pair in seen]
    two = [likeness_milli(seen[at][0], seen[rng.randrange(at)][1]) or 0 for at in range(1, 400)]
    assert sum(likeness < LIKE_MIN_MILLI for likeness in one) <= 0.035 * len(one)
    assert 0.75 <= sum(likeness < LIKE_MIN_MILLI for likeness in two) / len(two) <= 0.87


def test_an_eye_without_looks_draws_as_it_did() -> None:
    """Digests of traces stay what they were."""
    rows = []
    for config in (DetectorConfig(), DetectorConfig(looks=False, drift_cm=0)):
        choices = Choices(7)
        eye = DetectorModel(config, empty_site((1_000, 1_000)), False, choices)
        eye._begin("a module")
        rows.append((eye.drift_cm, choices.choose("probe", 1 << 30)))
    assert rows[0] == rows[1] == ((0, 0), Choices(7).choose("probe", 1 << 30))
