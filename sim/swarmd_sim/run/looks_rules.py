"""What looks are worth to deduplication: the same world without them, same seed, and who knows what is what."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from swarmd_sim.run.sections import Scenario

_ROWS = ("found", "duplicates", "distinct_lost", "false")


def is_worth_comparing(scenario: Scenario) -> bool:
    """Whether a run with looks has one without them beside it."""
    return scenario.detector.looks


def compared(scenario: Scenario, seed: int, ours: Mapping[str, Any]) -> dict[str, dict[str, object]]:
    """The rows of the table: objects of the swarm, of the same swarm without looks, and of an oracle.

    Args:
        scenario: What was run.
        seed: With which seed.
        ours: Its figures.
    """
    from swarmd_sim.run.simulation import Options, Simulation

    other = replace(scenario, detector=replace(scenario.detector, looks=False))
    # Without looks faults may be lost, whatever the scenario wants of them.
    other = replace(other, checks=replace(other.checks, distinct_lost=-1))
    theirs = Simulation(other, seed, Options()).run().figures
    seen = ours["truth"]["seen"]
    oracle = {"found": seen, "duplicates": 0, "distinct_lost": 0, "false": ours["truth"]["false"]}
    return {"looks": _row(ours), "places alone": _row(theirs), "oracle": oracle}


def _row(figures: Mapping[str, Any]) -> dict[str, object]:
    row: dict[str, object] = {name: figures["truth"][name] for name in _ROWS}
    return row | {"bytes_per_node_s": figures["bytes_per_node_s"]}
