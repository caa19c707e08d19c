"""A verdict is judged by path: on a line everybody is a healthy member of one swarm, though each hears two others."""

from typing import Any

from swarmd_protocols.effects import MemberChanged, MemberState
from swarmd_sim.checkers.membership import MARGIN_NS, MembershipChecker
from swarmd_sim.faults.faults import Fault
from swarmd_sim.run.scenario import scenario_from_table
from swarmd_sim.run.simulation import Options, Simulation

S = 1_000_000_000
STEP_CM = 10_000


def line(count: int = 5, **sections: Any) -> Simulation:
    """Nodes 100 m apart that hear 150 m far, and run for a minute and not at all yet."""
    table = {
        "swarm": {"nodes": count, "seconds": 60},
        "site": {"kind": "none"},
        "drones": {"work": "none"},
        "radio": {"range_m": 150.0},
        **sections,
    }
    simulation = Simulation(scenario_from_table(table, name="line"), 1, Options(script=[]))
    for index in range(count):
        simulation.radio.place(index, (index * STEP_CM, 0))
    return simulation


def ran(simulation: Simulation, seconds: int = 20) -> MembershipChecker:
    """A checker that has watched a run so far; it stands for itself."""
    checker = MembershipChecker(simulation.context)
    simulation.checkers[:] = [checker]
    simulation.watch.checkers[:] = []
    simulation.schedule()
    simulation.engine.run_until(seconds * S)
    return checker


def calls_failed(simulation: Simulation, checker: MembershipChecker, host: int, subject: int) -> bool:
    """Whether a verdict counts as false."""
    before, seen = simulation.watch.false_positives, simulation.hosts[subject]
    change = MemberChanged(seen.node_id, seen.name, MemberState.SUSPECT, MemberState.FAILED, "a test says so")
    checker.on_member(simulation.hosts[host], change)
    return simulation.watch.false_positives > before


def test_no_distance_excuses_a_verdict_where_a_path_stands() -> None:
    simulation = line()
    checker = ran(simulation)
    assert all(calls_failed(simulation, checker, 0, subject) for subject in range(1, 5))


def test_who_is_cut_off_may_be_called_failed() -> None:
    simulation = line()
    checker = ran(simulation)
    simulation.hosts[2].crash("a test", power=True)
    assert calls_failed(simulation, checker, 0, 1)
    assert calls_failed(simulation, checker, 3, 4)
    assert not calls_failed(simulation, checker, 0, 3)
    assert not calls_failed(simulation, checker, 4, 1)


def test_nobody_is_unreachable_to_whom_a_path_stands() -> None:
    simulation = line()
    checker = ran(simulation)

    def says(host: int, subject: int) -> int:
        seen = simulation.hosts[subject]
        change = MemberChanged(seen.node_id, seen.name, MemberState.SUSPECT, MemberState.UNREACHABLE, "a test says so")
        checker.on_member(simulation.hosts[host], change)
        return len(simulation.watch.violations)

    assert says(0, 4) == 1
    simulation.hosts[2].crash("a test", power=True)
    assert says(0, 4) == 1
    assert {one.rule for one in simulation.watch.violations} == {"membership.false_unreachable"}


def test_a_path_counts_once_it_has_stood() -> None:
    simulation = line()
    simulation.radio.place(4, (90 * STEP_CM, 0))
    checker = ran(simulation)
    assert not calls_failed(simulation, checker, 0, 4)
    simulation.radio.place(4, (4 * STEP_CM, 0))
    assert not calls_failed(simulation, checker, 0, 4)
    assert not calls_failed(simulation, checker, 3, 4)
    simulation.engine.run_until(simulation.engine.now_ns + 6 * S)
    assert calls_failed(simulation, checker, 0, 4)


def test_a_frozen_process_is_no_path() -> None:
    simulation = line()
    checker = ran(simulation)
    simulation.hosts[2].stall(3 * S)
    simulation.engine.run_until(simulation.engine.now_ns + S)
    assert not calls_failed(simulation, checker, 0, 4)
    assert calls_failed(simulation, checker, 0, 1)


def test_faults_excuse_as_they_do_where_everybody_hears_everybody() -> None:
    for range_m in (150.0, 0.0):
        simulation = line(radio={"range_m": range_m})
        simulation.injector.schedule([Fault(5 * S, "freeze", (1,), S, 0)])
        checker = ran(simulation)
        assert not calls_failed(simulation, checker, 0, 1)
        assert calls_failed(simulation, checker, 0, 4)
        simulation.engine.run_until(6 * S + MARGIN_NS + S)
        assert calls_failed(simulation, checker, 0, 1)


def test_asking_who_hears_whom_changes_no_run() -> None:
    def digest(asks: bool) -> str:
        table = {
            "swarm": {"nodes": 6, "seconds": 20},
            "site": {"kind": "none"},
            "drones": {"work": "none"},
            "radio": {"model": "pathloss", "exponent": 3.4},
            "checks": {"settle_s": 5.0},
        }
        simulation = Simulation(scenario_from_table(table, name="hall"), 1, Options(script=[]))
        if asks:
            assert [simulation.radio.hears(a, b, 0) for a in range(5, -1, -1) for b in range(6) if a != b]
        return str(simulation.run().figures["trace_digest"])

    assert digest(True) == digest(False)
