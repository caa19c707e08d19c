"""Two islands that have never met and a mule between them end with one digest, and nobody is called failed falsely."""

import pytest

from swarmd_protocols.swim.full_view import FullView
from swarmd_protocols.swim.mesh.mesh_view import MeshView
from swarmd_sim.run.scenario import load_scenario
from swarmd_sim.run.simulation import Options, Simulation


def rules_broken(seed: int) -> tuple[set[str], dict[str, object]]:
    """Of a run with two nodes on each island, whose work ends before the last three crossings."""
    result = Simulation(load_scenario("mesh-mule", {"swarm.nodes": 5}), seed, Options(script=[])).run()
    return {violation.rule for violation in result.violations}, result.figures


def test_a_mule_carries_facts_and_events_between_islands_that_never_met() -> None:
    rules, figures = rules_broken(1)
    assert rules == set()
    assert figures["false_positives"] == 0
    assert figures["detections"]
    assert float(str(figures["bytes_per_node_s"])) <= 2_000


def test_where_no_stranger_is_greeted_the_islands_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    for view in (FullView, MeshView):
        monkeypatch.setattr(view, "on_beacon", lambda self, message, source: None)
    assert "state.detection_lost" in rules_broken(1)[0]
