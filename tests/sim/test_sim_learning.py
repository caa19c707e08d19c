"""Learning in the swarm, simulated: six devices, one of which lies, on the daemon's own protocol object.

Half a minute of processor time in all: rows come of the real detector on drawn scenes, and a swarm is simulated twice.
The figures of docs/performance/learning.md are those of the whole scenario.
"""

from functools import lru_cache
from typing import Any

import pytest

from swarmd_sim.errors import ScenarioError
from swarmd_sim.run.learning import LearningSwarm
from swarmd_sim.run.result import Result
from swarmd_sim.run.scenario import load_scenario
from swarmd_sim.run.simulation import Options

SMALL: dict[str, Any] = {
    "swarm.nodes": 6,
    "swarm.seconds": 60,
    "learning.labelled": 5,
    "learning.bad": 1,
    "learning.lie": "scaled",
    "learning.rounds": 8,
    "learning.round_s": 3.0,
    "learning.scenes": 36,
    "learning.alpha": 1.0,
    "learning.judged": False,
    "checks.settle_s": 8.0,
}


def run(**overrides: Any) -> Result:
    named = {f"learning.{key}": value for key, value in overrides.items()}
    return LearningSwarm(load_scenario("learning-swarm-20", SMALL | named), 7, Options()).run()


@lru_cache(maxsize=1)
def usual() -> Result:
    return run()


def figures(result: Result) -> dict[str, Any]:
    found = result.figures["learning"]
    assert isinstance(found, dict)
    return found


def learns_like_one_place() -> None:
    """Without liars."""
    result = run(bad=0)
    assert not result.violations
    told = figures(result)
    assert told["ours_of_central"] >= 0.95, told
    assert told["ours"] > told["base"] + 0.03, told
    assert told["bytes_of_dense"] <= 0.10, told


def a_liar_moves_little(result: Result) -> None:
    told = figures(result)
    assert abs(told["moved_points"]) <= 4, told


def test_all_hold_one_head_that_is_nearly_that_of_one_place() -> None:
    result = usual()
    assert not result.violations
    told = figures(result)
    assert told["ours_of_central"] >= 0.95, told
    assert told["ours"] > told["base"] + 0.03, told
    assert told["bytes_of_dense"] <= 0.10, told


def test_a_loud_liar_moves_it_little_and_an_average_much() -> None:
    a_liar_moves_little(usual())
    told = figures(usual())
    assert told["federated_with_bad"] < told["ours_with_bad"] - 0.1, told


def test_more_learners_than_members_are_refused() -> None:
    with pytest.raises(ScenarioError, match=r"are 34 together; there are only 20 nodes"):
        load_scenario("learning-swarm-20", {"learning.labelled": 30})


def test_what_there_is_to_lie_about_is_named() -> None:
    with pytest.raises(ScenarioError, match=r"learning.lie is 'nicely'; it is one of sign, scaled"):
        load_scenario("learning-swarm-20", {"learning.lie": "nicely"})
