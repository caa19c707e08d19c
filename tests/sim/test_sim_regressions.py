"""Seeds of `swarmd sim fuzz` that once broke a rule; each must stay whole."""

import pytest

from swarmd_sim.scenario import load_scenario
from swarmd_sim.simulation import Simulation


@pytest.mark.parametrize(
    "seed",
    [
        125,  # A stuck process was called failed: one lost answer of its host undid six that had come.
        581,  # A frozen process was called failed: the first answer of its host was lost, at 3 % loss.
        1006,  # As 125.
        12,  # A batch from the future counted in the digest before it was shown.
        658,  # Two faults of one kind shared one copy of a disk.
    ],
)
def test_a_seed_that_once_failed_holds(seed: int) -> None:
    assert Simulation(load_scenario("fuzz"), seed).run().violations == []
