"""A fleet that runs one model in parts: as quick as the best of an exhaustive search, through kills and lies."""

from typing import Any

import pytest

from swarmd_protocols.offload.shards import Shards
from swarmd_sim.run.scenario import load_scenario
from swarmd_sim.run.simulation import Simulation

SHORT: dict[str, Any] = {"swarm.seconds": 50, "checks.settle_s": 5.0, "fault": []}
KILLS = [
    {"kind": "kill", "at_s": 24.0, "duration_s": 12.0, "nodes": [0]},
    {"kind": "kill", "at_s": 28.0, "duration_s": 8.0, "nodes": [1]},
]


def figures(**overrides: Any) -> dict[str, Any]:
    result = Simulation(load_scenario("offload-split", {**SHORT, **overrides}), 1).run()
    assert result.violations == []
    return dict(result.figures["offload"])  # type: ignore[call-overload]


def test_the_ways_taken_are_as_quick_as_the_best_of_an_exhaustive_search() -> None:
    """Goal: at most 1.10 times as long, where the air is slow enough that the best way differs between devices."""
    found = figures(**{"radio.rate_mbit_s": 3.0})
    assert (found["splits_answered_share"], found["splits_wrong"], found["splits_late"]) == (1.0, 0, 0)
    assert found["split_of_best"] <= 1.10
    assert found["split_of_alone"] < 1.0
    assert found["split_ways"]["0-1 (1-3)"] > 50, "a slow device runs the head itself"
    assert found["split_ways"]["(0-3)"] > 20, "a camera has no head"


def test_parts_whose_lenders_die_are_run_by_others_and_every_frame_is_answered() -> None:
    """Nobody has all parts for a while: chains over two lenders, and own parts, stand in."""
    found = figures(fault=KILLS)
    assert (found["splits_answered_share"], found["splits_wrong"], found["splits_late"]) == (1.0, 0, 0)
    assert found["splits_rescued"] > 3, "some walks have seen a part fail and gone on"
    assert found["split_ways"]["(0-2) (2-3)"] > 5
    assert found["split_of_best"] <= 1.15, "deaths included"


def test_who_takes_bytes_for_free_is_slower_than_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    cost_ns = Shards.cost_ns
    monkeypatch.setattr(
        Shards, "cost_ns", lambda self, part, own_ns: cost_ns(self, part, own_ns) if own_ns is not None else 1.0
    )
    assert figures(**{"radio.rate_mbit_s": 3.0})["split_of_best"] > 1.10
