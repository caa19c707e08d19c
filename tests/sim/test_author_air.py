"""Law: what one author writes at length costs the others twice the traffic budget at most, in any ten seconds."""

from collections.abc import Callable

import pytest

from swarmd_protocols.state import quota
from swarmd_sim.faults.faults import Fault
from swarmd_sim.run.scenario import load_scenario
from swarmd_sim.run.simulation import Options, Simulation

S = 1_000_000_000
FROM_S, WINDOW_S = 14, 10
TWICE_THE_BUDGET_BYTES_S = 20_000
QUIET = {"release.chance": 0.0, "swarm.seconds": 60, "checks.settle_s": 20}
"""Without models: they have a rate of their own."""


def busiest(seed: int, strokes_per_s: int) -> int:
    """What the busiest of six sends in ten seconds, bytes a second, while the seventh fills disks, or not."""
    most = 0

    def look(run: Simulation) -> Callable[[int], None]:
        past: list[list[int]] = []

        def looks(now_ns: int) -> None:
            nonlocal most
            past.append(run.network.sent_bytes[:6])
            if now_ns >= FROM_S * S:
                now, before = past[-1], past[-1 - WINDOW_S]
                most = max(most, *(later - earlier for later, earlier in zip(now, before, strict=True)))

        return looks

    script = [Fault(FROM_S * S, "fill_disk", (6,), 14 * S, strokes_per_s)] * bool(strokes_per_s)
    Simulation(load_scenario("fuzz", QUIET), seed, Options(look=look, script=script)).run()
    return most // WINDOW_S


@pytest.mark.parametrize("seed", [2, 4, 6])
@pytest.mark.parametrize("strokes_per_s", [2, 10])
def test_one_who_writes_at_length_costs_the_others_twice_the_budget(seed: int, strokes_per_s: int) -> None:
    assert busiest(seed, strokes_per_s) - busiest(seed, 0) <= TWICE_THE_BUDGET_BYTES_S


def test_with_a_third_more_at_once_it_would_cost_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota, "AUTHOR_BURST_BYTES", 131_072)
    assert max(busiest(seed, 2) - busiest(seed, 0) for seed in (2, 4)) > TWICE_THE_BUDGET_BYTES_S
