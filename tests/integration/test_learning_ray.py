"""Clients in Ray's actors learn what the same clients learn in one process, bit for bit."""

import dataclasses

import numpy as np
import pytest

from swarmd_models.head_rows import Rows
from swarmd_sim.world.learning_rows import base_head
from tests.bench.bench_learning import Plan, begin, run

SMALL = Plan(clients=10, rounds=5, alpha=1.0, bad=0.2)
_PLACE = ("workers", "swarm_s", "federated_s")


def drawn(count: int, seed: int) -> Rows:
    """Rows without a picture: each class lies about a point of its own."""
    rng, (classes, inputs) = np.random.default_rng(seed), base_head().shape
    labels = rng.integers(0, classes, count)
    middles = np.random.default_rng(0).normal(0, 0.3, (classes, inputs))
    return Rows(middles[labels] + rng.normal(0, 0.3, (count, inputs)), labels)


@pytest.mark.timeout(
    900
)  # Ray starts six processes, each of which imports NumPy: a minute on a machine with other work.
def test_a_pool_of_rays_actors_learns_the_same_head() -> None:
    ray = pytest.importorskip("ray", reason="Ray is not installed (extra ray)")
    rows = drawn(300, 1), drawn(200, 2), drawn(60, 3)
    begin(ray, "", 2)
    try:
        pooled = run(SMALL, ray, rows)
    finally:
        ray.shutdown()
    alone = run(SMALL, None, rows)
    assert pooled["workers"] == 2
    assert pooled["digest"] == alone["digest"], "not one weight differs"
    assert pooled["digest"] == run(dataclasses.replace(SMALL, workers=3), None, rows)["digest"]
    assert {key: value for key, value in pooled.items() if key not in _PLACE} == {
        key: value for key, value in alone.items() if key not in _PLACE
    }
    assert pooled["ours"] > pooled["base"] + 0.02
    assert pooled["ours"] > pooled["federated"], "a fifth of them lies"
