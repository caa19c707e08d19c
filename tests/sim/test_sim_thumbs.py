"""Thumbnails in the simulated swarm, with the daemon's own protocol: deaths, cuts, losses, and no wrong picture."""

from typing import Any

import pytest

from swarmd_sim.run.result import Result
from swarmd_sim.run.scenario import load_scenario
from swarmd_sim.run.simulation import Simulation

LOOKING: dict[str, Any] = {
    "swarm.nodes": 6,
    "swarm.seconds": 50,
    "checks.settle_s": 15.0,
    "workload.detections_per_min": 60.0,
    "workload.looks_per_min": 120.0,
    "faults.kinds": [],
    "fault": [
        {"kind": "kill", "at_s": 15.0, "duration_s": 6.0, "nodes": [0]},
        {"kind": "partition", "at_s": 20.0, "duration_s": 6.0, "nodes": [1, 2]},
    ],
}


def run(seed: int, **overrides: Any) -> Result:
    return Simulation(load_scenario("partition-heal", {**LOOKING, **overrides}), seed).run()


@pytest.mark.parametrize("seed", [1, 2])
def test_pictures_come_where_their_authors_are_and_never_wrong_ones(seed: int) -> None:
    result = run(seed)
    assert result.violations == []
    counts: Any = result.figures["thumbs"]
    assert counts["looked"] > 40
    assert counts["shown"] > 0.6 * counts["looked"]


def test_nobody_looks_and_nothing_is_there() -> None:
    result = run(1, **{"workload.looks_per_min": 0.0, "swarm.seconds": 20, "checks.settle_s": 5.0, "fault": []})
    assert "thumbs" not in result.figures
