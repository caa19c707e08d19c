"""Borrowing in a simulated mesh: one lender at the end of a line, and five that ask it over up to five hops."""

from typing import Any

import pytest

from swarmd_protocols.offload import offload
from swarmd_protocols.swim.mesh.mesh_view import MeshView
from swarmd_sim.run.result import Result
from swarmd_sim.run.scenario import load_scenario
from swarmd_sim.run.simulation import Simulation
from tests.support.mutants import Mutant, assert_found

LINE: dict[str, Any] = {
    "swarm.nodes": 6,
    "swarm.seconds": 90,
    "swarm.start_within_s": 2.0,
    "checks.settle_s": 10.0,
    "gossip.mesh": "on",
    "layout.kind": "line",
    "radio.range_m": 200.0,
    "offload.strong": 1,
    "offload.busy": 0,
    "offload.liars": [],
    "offload.deadline_ms": 12_000.0,
    "offload.input_bytes": 20_000,
    "offload.requests_per_s": 0.05,
    "fault": [],
}


def run() -> Result:
    return Simulation(load_scenario("offload-swarm-20", LINE), 1).run()


def the_lender_answers_all_that_have_no_model() -> None:
    """Without streams, offers to far ones and the costs of ways that change, eight of twelve."""
    result = run()
    figures: Any = result.figures["offload"]
    assert result.violations == []
    assert figures["asked"] == figures["answered"], f"{figures['answered']} of {figures['asked']} are answered"
    assert figures["borrowed"] > 4, "four of six were more than a hop away"


def test_the_lender_answers_all_that_have_no_model() -> None:
    the_lender_answers_all_that_have_no_model()


def _only_near_ones_lend(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(offload, "_is_in_reach", lambda peer: not peer.far)


def _changed_ways_are_not_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MeshView, "_tell_costs", lambda self, _: None)


@pytest.mark.parametrize("mutant", [_only_near_ones_lend, _changed_ways_are_not_told], ids=lambda one: one.__name__)
def test_it_finds_its_mutant(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, the_lender_answers_all_that_have_no_model, monkeypatch)
