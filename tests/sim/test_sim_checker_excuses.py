"""What no node can know is asked of none: absences of a life before, and events of a time in which a newcomer is deaf.

Each excuse is narrow: the same run is found where it does not apply.
"""

import pytest

from swarmd_sim.checkers.membership import MembershipChecker
from swarmd_sim.checkers.state import StateChecker
from swarmd_sim.faults.faults import Fault
from swarmd_sim.run.scenario import load_scenario
from swarmd_sim.run.simulation import Options, Simulation

MS, S = 1_000_000, 1_000_000_000
BARE = {"release": {}, "faults.kinds": [], "faults.attacks": [], "workload.user_events_per_min": 60.0}
DIES_AWAY = [
    Fault(10 * S, "away", (0,), 29 * S, 0),
    Fault(21 * S, "power_loss", (0,), 3 * S, 0),
    Fault(33 * S, "power_loss", (0,), 17 * S, 0),
]
"""It begins a life that nobody hears while it is away, and dies in it before the absence is over."""
DEAF_FROM_ITS_BEGIN = [
    Fault(9_775 * MS, "readdress", (1,), 9_881 * MS, 0),
    Fault(18_478 * MS, "delay", (1, 6), 16_273 * MS, 150),
    Fault(19_880 * MS, "deaf", (1,), 10_019 * MS, 0),
]
"""It has met others, and hears none of their answers."""


def rules(script: list[Fault]) -> set[str]:
    scenario = load_scenario("fuzz", BARE)
    return {one.rule for one in Simulation(scenario, 3, Options(script=script)).run().violations}


def test_an_absence_outlasts_a_life_that_nobody_met(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rules(DIES_AWAY) == set()
    monkeypatch.setattr(MembershipChecker, "_note_absences", lambda self, now_ns: None)
    assert "membership.undetected" in rules(DIES_AWAY)


def test_what_is_said_while_a_newcomer_is_deaf_was_said_before_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rules(DEAF_FROM_ITS_BEGIN) == set()
    monkeypatch.setattr(StateChecker, "_begun_ns", lambda self, host: max(host.life.first_heard_ns, host.life.known_ns))
    assert "state.event_lost" in rules(DEAF_FROM_ITS_BEGIN)


def test_who_has_begun_is_owed_what_it_was_deaf_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """The excuse is for newcomers: a node that goes deaf later hears everything afterwards."""
    later = [Fault(20 * S, "deaf", (1,), 12 * S, 0)]
    begun: dict[str, int] = {}
    genuine = StateChecker._begun_ns

    def begun_ns(self: StateChecker, host: object) -> int:
        begun[host.name] = genuine(self, host)  # type: ignore[attr-defined, arg-type]
        return begun[host.name]

    monkeypatch.setattr(StateChecker, "_begun_ns", begun_ns)
    assert rules(later) == set()
    assert all(0 <= at_ns < 10 * S for at_ns in begun.values())
