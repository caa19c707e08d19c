"""Law: who is killed beside a member that is frozen is known to have failed as soon as anywhere else in a mesh."""

import pytest

from swarmd_protocols.swim.mesh.frozen import Frozen
from swarmd_sim.faults.faults import Fault
from swarmd_sim.run.scenario import load_scenario
from swarmd_sim.run.simulation import Options, Simulation

S = 1_000_000_000
GRID = {"swarm.nodes": 9, "swarm.seconds": 55, "checks.settle_s": 15.0, "fault": []}
VICTIMS = {"before": 1, "beside": 3}


def broken(victim: int, seed: int, loss: float = 0.02) -> list[str]:
    """In the middle of a grid of nine one is frozen for 9 s; one of its four neighbours is killed a second later."""
    script = [Fault(25 * S, "freeze", (4,), 9 * S, 0), Fault(26 * S, "kill", (victim,), 12 * S, 0)]
    scenario = load_scenario("mesh-grid", {**GRID, "radio.loss": loss})
    return [one.rule for one in Simulation(scenario, seed, Options(script=script)).run().violations]


@pytest.mark.parametrize("where", VICTIMS)
def test_a_death_beside_a_frozen_one_is_known_in_time(where: str) -> None:
    assert [broken(VICTIMS[where], seed) for seed in (1, 2, 3)] == [[], [], []]


def test_so_it_is_where_one_frame_in_ten_is_lost() -> None:
    assert [broken(3, seed, 0.1) for seed in (1, 2, 3)] == [[], [], []]


def test_what_a_frozen_one_said_and_stands_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Frozen, "weigh", lambda self, own, links: links)
    assert broken(1, 1) == ["membership.undetected"]
