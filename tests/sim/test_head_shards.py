"""Many clients in lockstep: their merge stands liars that an average does not, and noise says its epsilon."""

import pytest

from tests.bench.bench_learning import Plan, run

SMALL = Plan(clients=10, rounds=4, scenes=24, alpha=1.0)


def test_a_fifth_that_lies_moves_the_average_and_not_the_merge() -> None:
    told = run(Plan(clients=10, rounds=6, scenes=24, alpha=1.0, bad=0.2), None)
    assert told["bad"] == 2
    assert told["ours"] > told["base"], told
    assert told["federated"] < told["ours"] - 0.1, told


def test_noise_says_its_epsilon_and_costs() -> None:
    told = run(Plan(clients=10, rounds=4, scenes=24, alpha=1.0, noise=8.0), None)
    assert told["epsilon"] == pytest.approx(1.2, abs=0.05)
    assert told["federated"] < told["central"] - 0.05, told
