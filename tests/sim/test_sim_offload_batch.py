"""A batch over a simulated fleet, through tickets, offers and the radio: near the bound, each job answered once."""

from typing import Any

import pytest

from swarmd_protocols.offload import stealing
from swarmd_sim.run.scenario import load_scenario
from swarmd_sim.run.simulation import Simulation

SHORT: dict[str, Any] = {"swarm.seconds": 26, "checks.settle_s": 3.0, "offload.jobs": 1_500}


def figures(**overrides: Any) -> dict[str, Any]:
    result = Simulation(load_scenario("offload-batch", {**SHORT, **overrides}), 1).run()
    assert result.violations == []
    found: Any = result.figures["offload"]
    assert (found["batch_answered"], found["batch_twice"], found["batch_wrong"]) == (1_500, 0, 0)
    return dict(found)


def test_a_batch_takes_hardly_longer_than_all_work_at_the_speed_of_all() -> None:
    """Goal: makespan ≤ 1.10 × max(Σ work / Σ speed, longest job + transfer)."""
    found = figures()
    assert found["batch_of_bound"] <= 1.10
    assert len(found["batch_by"]) == 6, "nobody is idle"
    assert found["batch_counts"]["leases"] <= 1.02 * 1_500


def test_what_a_killed_device_held_is_done_by_others() -> None:
    """The quickest dies in the middle: every job is answered, and the batch is as long as the others need for it."""
    found = figures(fault=[{"kind": "kill", "at_s": 16.0, "duration_s": 6.5, "nodes": [0]}])
    # Of 375 jobs a second 275 are left after the first: 1 s of all and 1,125 jobs of the others, and nothing else.
    assert found["batch_of_bound"] <= 1.10 * (1.0 + 1_125 / 275) / 4.0
    assert 1 <= found["batch_counts"]["failed"] <= 40


def test_without_a_second_job_on_its_way_devices_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stealing, "WINDOW_MAX", 1)
    assert figures()["batch_of_bound"] > 1.10
