"""A rolling upgrade in the simulator: twenty nodes, half of an older revision, rolled one by one while detections flow.

The older program is that of `make test-upgrade` (`FROM=v0.1.0`): its own protocols, built by its own factory, beside
this tree's in one run, on the disks that it leaves behind. All checkers of the simulator judge.
"""

import functools

import pytest

from swarmd_sim.faults.faults import Fault
from swarmd_sim.run.scenario import NS_PER_S, scenario_from_table
from swarmd_sim.run.sections import Scenario
from swarmd_sim.run.simulation import Options, Simulation
from tests.support import older
from tests.support.two_programs import Program, Rolling

pytestmark = pytest.mark.slow
NODES, OLD = 20, range(0, 20, 2)
"""Every other one is old, the first seed among them."""
FROM_S, EVERY_S, AWAY_S, SETTLE_S = 15, 5, 3, 30
SECONDS = FROM_S + EVERY_S * len(OLD) + SETTLE_S + 10


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """The older one."""
    revision = older.to_roll_from()
    if older.wire_of(revision) != older.wire_of("HEAD"):
        pytest.fail(f"{revision[:12]} speaks another wire: there is no rolling upgrade from it (docs/upgrades.md)")
    return Program(older.lay_out(revision, tmp_path_factory.mktemp("older") / "tree"))


@functools.cache
def scenario() -> Scenario:
    table = {
        "swarm": {"nodes": NODES, "seconds": SECONDS},
        "site": {"kind": "none"},
        "drones": {"work": "none"},
        "radio": {"model": "disc", "loss": 0.02},
        "workload": {"detections_per_min": 240, "user_events_per_min": 20, "notes_per_min": 20, "counters_s": 5.0},
        "checks": {"settle_s": float(SETTLE_S)},
    }
    return scenario_from_table(table, name="rolling-upgrade")


def rolled(rolling: Rolling, seed: int) -> Simulation:
    """Each old node says good-bye, is away for three seconds, and comes back as the new program on its own disk."""
    script = [
        Fault((FROM_S + EVERY_S * turn) * NS_PER_S, "leave", (index,), AWAY_S * NS_PER_S, 0)
        for turn, index in enumerate(OLD)
    ]
    run = Simulation(scenario(), seed, Options(script=script, maker=rolling))
    run.run()
    return run


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_lost_and_nobody_is_called_failed(program: Program, seed: int) -> None:
    rolling = Rolling(program, OLD)
    run = rolled(rolling, seed)
    assert run.watch.violations == []
    assert rolling.lives == {index: ["older", "this"] if index in OLD else ["this"] for index in range(NODES)}
    assert not [change for change in run.watch.transitions if change.endswith(("->failed", "->unreachable"))]
    # A node that was old has said something that all others know, and so has a new one while others were old.
    taken = {(fact.host, fact.life) for fact in run.ledger.detections}
    assert {host for host, life in taken if life == 1} == set(range(NODES)), "each said something in its first life"
    assert {host for host, life in taken if life == 2} == set(OLD), "and each old one as the new program"


def test_a_new_program_that_does_not_read_the_old_ones_frames_is_found(program: Program) -> None:
    run = rolled(Rolling(program, OLD, deaf=True), 1)
    assert run.watch.violations
