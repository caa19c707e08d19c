"""What a user would write instead of borrowing as it is here, in the same world: each rule a run of its own, same seed.

- "local": nobody asks.
- "always": whatever comes is asked for elsewhere, and the own model answers nothing.
- "if": `confidence < 0.7 and bandwidth > 20 Mbit/s and 45 ms fit the budget`, with the score as the model says it; who
  asks waits for the answer.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from swarmd_sim.run.sections import Scenario

NAIVE = ("local", "always", "if")
_ROWS = (
    "answered_share", "in_time_share", "mean_ms", "p99_ms", "look_p99_ms", "accuracy", "mean_ap", "wrong", "bytes",
    "borrowed",
)  # fmt: skip
"""Of the figures, those that say how a rule did."""


def is_worth_comparing(scenario: Scenario) -> bool:
    """Whether there are other rules to run."""
    section = scenario.offload
    return bool(section.requests_per_s) and section.compare and section.rule == "ours" and section.lending


def compared(scenario: Scenario, seed: int, ours: Mapping[str, Any]) -> dict[str, dict[str, object]]:
    """The rows of the table: every rule, and what a clairvoyant would have done.

    Args:
        scenario: What was run.
        seed: With which seed.
        ours: Its figures about borrowing.
    """
    from swarmd_sim.run.simulation import Options, Simulation

    rows = {"ours": _row(ours)}
    for rule in NAIVE:
        other = replace(scenario, offload=replace(scenario.offload, rule=rule))
        result = Simulation(other, seed, Options()).run()
        figures: Any = result.figures["offload"]
        rows[rule] = _row(figures)
    oracle = {"answered_share": ours["oracle_could_share"], "mean_ms": ours["oracle_mean_ms"]}
    rows["oracle"] = oracle | {"p99_ms": ours["oracle_p99_ms"]}
    return rows


def _row(figures: Mapping[str, Any]) -> dict[str, object]:
    return {name: figures[name] for name in _ROWS if name in figures}
