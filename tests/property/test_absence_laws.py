"""Law: who dies in an absence that it announced is known to be dead as soon after that is over as any other death.

Until then nobody asks: silence is what was announced. Peers count an absence from when they hear of it, in whole
seconds, and 2 s longer.
"""

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from swarmd_protocols.effects import GoAway, MemberState
from swarmd_protocols.swim.membership import Membership
from swarmd_sim.checkers.membership import ABSENCE_NS, MembershipChecker
from swarmd_sim.faults.faults import Fault
from swarmd_sim.run.mutants import mutated
from swarmd_sim.run.scenario import load_scenario
from swarmd_sim.run.simulation import Options, Simulation
from tests.support.swim_net import Net, S

COUNT = 6
DETECT_S = 8.0
"""The bound of `membership.undetected` on any death."""
VICTIM = 2
SHORT: dict[str, Any] = {"release": {}, "faults.kinds": [], "faults.attacks": [], "swarm.seconds": 45}


@settings(max_examples=8, deadline=None, derandomize=True)
@given(away_ms=st.integers(500, 20_000), share=st.floats(0.05, 0.95), restarted=st.booleans(), seed=st.integers(0, 99))
@example(away_ms=7_434, share=0.25, restarted=True, seed=1)
def test_a_death_in_an_announced_absence_is_known_once_that_is_over(away_ms, share, restarted, seed):
    """Nobody calls it failed before, and all know soon after; who has restarted meanwhile takes others' word."""
    net = Net(COUNT, seed)
    assert net.run_until(net.formed, 8) is not None
    net.run(3)
    left = [index for index in range(COUNT) if index != VICTIM]
    begun_ns = net.now
    net.feed(VICTIM, GoAway(away_ms * 1_000_000))
    assert net.run_until(lambda: net.all_see(MemberState.AWAY, VICTIM, left), 2) is not None
    net.hosts[VICTIM].dark = True
    if restarted:
        net.run(away_ms / 1000 * share)
        net.kill(left[0])
        net.run(0.2)
        net.restart(left[0])
    net.run((begun_ns + away_ms * 1_000_000 - net.now) / S)
    assert not net.changes(MemberState.FAILED, begun_ns) or restarted
    assert net.all_see(MemberState.AWAY, VICTIM, left[1:])
    bound_s = ABSENCE_NS / S + DETECT_S
    assert net.run_until(lambda: net.all_see(MemberState.FAILED, VICTIM, left), bound_s) is not None


def undetected(mutant: str, away: Fault, death: Fault, seed: int) -> list[str]:
    """What the checker says of a host that dies while it is away."""
    with mutated(mutant):
        result = Simulation(load_scenario("fuzz", SHORT), seed, Options(script=[away, death])).run()
    return [violation.text for violation in result.violations if violation.rule == "membership.undetected"]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_checker_counts_a_death_in_an_absence_from_its_end(seed: int) -> None:
    """Seed 50000427: away for 7.4 s, dead 1.8 s later; members look for it 0.4 s before the bound of other deaths."""
    away = Fault(14_637 * S // 1000, "away", (0,), 7_434 * S // 1000, 0)
    assert undetected("", away, Fault(16_482 * S // 1000, "power_loss", (0,), 20 * S, 0), seed) == []


def test_the_checker_sees_who_does_not_look_after_an_absence() -> None:
    away, death = Fault(14 * S, "away", (0,), 8 * S, 0), Fault(17 * S, "power_loss", (0,), 28 * S, 0)
    assert len(undetected("swim-no-suspicion", away, death, 1)) == 1


def test_the_checker_sees_an_absence_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Membership, "_absence_over", lambda self, node: None)
    away, death = Fault(10 * S, "away", (0,), 8 * S, 0), Fault(13 * S, "power_loss", (0,), 30 * S, 0)
    assert len(undetected("", away, death, 1)) == 1


def absences(script: list[Fault]) -> tuple[MembershipChecker, Simulation]:
    simulation = Simulation(load_scenario("fuzz", SHORT), 1, Options(script=script))
    simulation.schedule()
    simulation.engine.run_until(20 * S)
    return MembershipChecker(simulation.context), simulation


def test_an_absence_excuses_no_death_outside_it() -> None:
    checker, simulation = absences(
        [
            Fault(8 * S, "away", (0, 1, 2), 10 * S, 0),
            Fault(9 * S, "kill", (1,), 2 * S, 0),
            Fault(14 * S, "power_loss", (0, 1, 3), 20 * S, 0),
            Fault(19 * S, "power_loss", (2,), 20 * S, 0),
        ]
    )
    announced_ns, over_ns = checker._absence_ns(simulation.hosts[0])
    assert abs(announced_ns - 6 * S) < S // 100
    assert abs(over_ns - (4 * S + ABSENCE_NS)) < S // 100
    # One restarted in the meantime, one was back, one had announced nothing.
    assert [checker._absence_ns(simulation.hosts[index]) for index in (1, 2, 3)] == [(0, 0)] * 3
