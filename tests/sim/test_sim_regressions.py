"""Runs of `swarmd sim fuzz` that once broke a rule; each must stay whole.

They are kept with the fault scripts that their seeds drew then: a vocabulary that grows draws other scripts.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from swarmd_sim.faults.faults import fault_from_row
from swarmd_sim.run.scenario import scenario_from_table
from swarmd_sim.run.simulation import Options, Simulation

KEPT: dict[str, Any] = json.loads((Path(__file__).parent / "sim_regressions.json").read_text("utf-8"))


@pytest.mark.parametrize("kept", KEPT["runs"], ids=lambda kept: str(kept["seed"]))
def test_a_run_that_once_failed_holds(kept: dict[str, Any]) -> None:
    scenario = scenario_from_table(dict(KEPT["scenario"]), name="fuzz")
    if kept.get("open"):
        pytest.xfail(kept["why"])
    script = [fault_from_row(row) for row in kept["script"]]
    assert Simulation(scenario, kept["seed"], Options(script=script)).run().violations == [], kept["why"]
