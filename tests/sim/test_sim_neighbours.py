"""Two swarms of different owners in the simulator: on the real protocol objects, with a cut and a hostile neighbour."""

from typing import Any

import pytest

from swarmd_protocols.state.claims.covers import Covers
from swarmd_sim.run.neighbours import TwoSwarms
from swarmd_sim.run.result import Result
from swarmd_sim.run.scenario import load_scenario
from swarmd_sim.run.simulation import Options


def run(seed: int, **overrides: Any) -> Result:
    named = {key.replace("__", "."): value for key, value in overrides.items()}
    return TwoSwarms(load_scenario("neighbours", named), seed, Options()).run()


def figures(result: Result) -> dict[str, Any]:
    found = result.figures["neighbours"]
    assert isinstance(found, dict)
    return found


def test_a_cut_and_a_hostile_neighbour_keep_no_survey_from_being_done() -> None:
    """Eight seconds: a survey by drones takes minutes of virtual time, of two swarms at once."""
    result = run(1)
    assert not result.violations
    told = figures(result)
    assert min(told["words"]) > 10
    assert told["spent_cells"] > 0, "the hostile neighbour was never in the way"
    assert told["states"] == ["agreed"] * 6
    alarms = result.figures["alarms"]
    assert isinstance(alarms, dict)
    assert alarms["neighbour-holds"], "nobody was told who was in the way"


def test_the_same_seed_is_the_same_run() -> None:
    short: dict[str, Any] = {"swarm__seconds": 36, "checks__cells_done": False, "neighbours__hostile_at_s": 0.0}
    one, other = run(2, **short), run(2, **short)
    assert one.figures["trace_digest"] == other.figures["trace_digest"]
    assert figures(one) == figures(other)


def test_a_swarm_that_keeps_clear_of_nobody_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Covers, "stands", lambda self, key, now_ns: False)
    monkeypatch.setattr(Covers, "forbids", lambda self, key, now_ns: False)
    short: dict[str, Any] = {"swarm__seconds": 70, "checks__cells_done": False, "neighbours__cut_at_s": 0.0}
    assert any(
        one.rule == "neighbours.clear"
        for seed in range(1, 4)
        for one in run(seed, **short, neighbours__hostile_at_s=0.0).violations
    )
