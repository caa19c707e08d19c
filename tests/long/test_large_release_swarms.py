"""How fast a blob spreads in swarms of hundreds: minutes of CPU (`make test-long`); the rest of its laws stand in
`tests/sim/test_release_swarm.py`, of which this is the same bar at a size that a gate has no time for."""

import statistics

import pytest

from tests.support.release_swarm import SwarmWorld


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("nodes", "degree", "seeds", "bar"), [(200, 16, 5, 1.20), (1_000, 16, 1, 1.30)])
def test_large_swarms_reach_the_bar(nodes: int, degree: int, seeds: int, bar: float) -> None:
    lasts = [SwarmWorld(nodes, 64, degree, seed).run().last for seed in range(1, 1 + seeds)]
    assert statistics.median(lasts) <= bar, lasts
