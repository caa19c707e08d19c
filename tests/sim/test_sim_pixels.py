"""Pixels in the loop: rendered frames through the real eye, inside the simulator."""

import pytest

from swarmd_sim.errors import ScenarioError
from swarmd_sim.run.result import Result
from swarmd_sim.run.scenario import scenario_from_table
from swarmd_sim.run.simulation import Simulation
from swarmd_sim.world.pixels import PixelEye

_TABLE = {
    "swarm": {"nodes": 2, "seconds": 30, "seeds": 1},
    "site": {"tables": 4, "modules": 20, "faults": 0.1},
    "drones": {"tick_ms": 100},
    "detector": {"pixels": True},
    "checks": {"settle_s": 15.0, "cells_done": True},
}


def _run(seed: int) -> tuple[Result, list[PixelEye]]:
    simulation = Simulation(scenario_from_table(_TABLE, name="pixels"), seed)
    result = simulation.run()
    return result, [eye for eye in simulation.fleet.eyes() if isinstance(eye, PixelEye)]


def test_the_real_model_finds_the_faults_of_the_rendered_farm_and_repeats_itself() -> None:
    first, eyes = _run(3)
    assert not first.violations
    assert len(eyes) == 2
    assert sum(eye.frames for eye in eyes) > 40
    assert first.figures["truth"]["faults"] == 8
    assert first.figures["truth"]["found"] >= 6
    assert first.figures["truth"]["false"] <= 1
    again, _eyes = _run(3)
    assert again.figures["trace_digest"] == first.figures["trace_digest"]
    second = eyes[0]._eye.bundle.second  # What the clock limits would differ from run to run.
    assert second is None or second.budget_ms == 0.0


def test_what_cannot_be_rendered_is_refused_all_at_once() -> None:
    table = _TABLE | {"swarm": {"nodes": 21, "seconds": 30}, "drones": {"tick_ms": 500}, "site": {"kind": "none"}}
    with pytest.raises(ScenarioError) as caught:
        scenario_from_table(table, name="pixels")
    text = str(caught.value)
    assert "at most 20 drones" in text
    assert "200 ms" in text
    assert "generated farm" in text


def test_a_model_that_does_not_exist_is_named() -> None:
    table = _TABLE | {"detector": {"pixels": True, "model": "zoo:nothing"}}
    with pytest.raises(ScenarioError, match="zoo:nothing"):
        Simulation(scenario_from_table(table, name="pixels"), 1)
