"""Laws of the checker of deaths: who is late, and since when it could know.

Where radios reach few that is judged by path, from when that stands; where they reach everybody, by who hears anybody.
"""

from collections.abc import Sequence
from typing import Any

import pytest

from swarmd_protocols.effects import MemberChanged, MemberState
from swarmd_protocols.ids import NodeId
from swarmd_protocols.swim.mesh.reports import NearReports
from swarmd_sim.checkers.membership import CALM_NS, MembershipChecker
from swarmd_sim.faults.faults import Fault
from swarmd_sim.run.scenario import load_scenario, scenario_from_table
from swarmd_sim.run.simulation import Options, Simulation

S = 1_000_000_000
STEP_CM = 10_000
FAR_CM = 100 * STEP_CM
DIED_S = 20
LIMIT_S = 8
"""`checks.detect_s` of the line."""
SHORT: dict[str, Any] = {"swarm.nodes": 6, "swarm.seconds": 40, "checks.settle_s": 5.0, "fault": []}


class Line:
    """Nodes 100 m apart that hear 150 m far, of whom nobody ever learns of a death.

    Args:
        away: Those that begin 10 km away, on a line of their own.
        count: Of how many.
        range_m: How far each hears; 0 is everywhere.
        script: What befalls them.
    """

    def __init__(self, away: range, count: int = 6, range_m: float = 150.0, script: Sequence[Fault] = ()) -> None:
        table = {
            "swarm": {"nodes": count, "seconds": 90, "seeds": 2},
            "site": {"kind": "none"},
            "drones": {"work": "none"},
            "radio": {"range_m": range_m},
            "checks": {"detect_s": float(LIMIT_S)},
        }
        self.run = Simulation(scenario_from_table(table, name="line"), 1, Options(script=list(script)))
        for index in range(count):
            self.run.radio.place(index, (index * STEP_CM + FAR_CM * (index in away), 0))
        self.checker = MembershipChecker(self.run.context)
        self.checker._holds_for = lambda host, subject, states: True  # type: ignore[method-assign]
        self.run.checkers[:], self.run.watch.checkers[:] = [self.checker], []
        self.run.schedule()
        self.run.engine.run_until(DIED_S * S - CALM_NS // 5)

    def kill(self, victim: int) -> None:
        """Its battery falls out, at `DIED_S`."""
        self.run.engine.run_until(DIED_S * S)
        self.run.hosts[victim].crash("a law", power=True)
        self.checker._late_reported.add(victim)  # It is asked here, and not once for all.

    def place(self, *hosts: int, far: bool) -> None:
        """Where they are from now on: in their places of the line, or far away."""
        for index in hosts:
            self.run.radio.place(index, (index * STEP_CM + FAR_CM * far, 0))

    def late(self, victim: int, at_s: float) -> list[int]:
        """Who is late at a time."""
        self.run.engine.run_until(int(at_s * S))
        self.run.watch.failed_seen[victim] = {}
        crashed_ns = self.run.watch.crashes[victim]
        return [host.index for host in self.checker._late(victim, crashed_ns, self.run.engine.now_ns)]


def a_death_is_owed_by_path() -> None:
    """Of five in a line behind the dead one, one heard it and all can know."""
    line = Line(away=range(0))
    line.kill(0)
    assert line.late(0, DIED_S + LIMIT_S - 1) == []
    assert line.late(0, DIED_S + LIMIT_S + 1.5) == [1, 2, 3, 4, 5]


def nobody_owes_what_no_path_leads_to() -> None:
    line = Line(away=range(3, 6))
    line.kill(1)
    assert line.late(1, DIED_S + LIMIT_S + 1.5) == []
    two = Line(away=range(3, 6))
    two.kill(5)
    assert two.late(5, DIED_S + LIMIT_S + 1.5) == [3, 4], "it died among those: the larger part cannot know"


def a_path_counts_from_its_start() -> None:
    line = Line(away=range(3, 6))
    line.kill(1)
    line.run.engine.run_until((DIED_S + 20) * S)
    line.place(2, far=True)
    joined_s = DIED_S + 20
    assert line.late(1, joined_s + LIMIT_S - 1) == []
    assert line.late(1, joined_s + LIMIT_S + 1.5) == [2, 3, 4, 5]


def a_path_that_breaks_counts_anew() -> None:
    line = Line(away=range(0))
    line.kill(0)
    line.run.engine.run_until((DIED_S + 4) * S)
    line.place(3, 4, 5, far=True)
    line.run.engine.run_until((DIED_S + 7) * S)
    line.place(3, 4, 5, far=False)
    assert line.late(0, DIED_S + LIMIT_S + 1.5) == [1, 2]
    assert line.late(0, DIED_S + 7 + LIMIT_S + 1.5)[-3:] == [3, 4, 5]


def who_takes_back_that_it_is_cut_off_owes_it_from_then() -> None:
    """Two parts that a dead one held together meet: it lives again for both until each has the other's last word."""
    line = Line(away=range(0))
    line.kill(0)
    subject, back_s = line.run.hosts[0], DIED_S + LIMIT_S - 1
    line.run.engine.run_until(back_s * S)
    told = MemberChanged(NodeId(subject.node_id), subject.name, MemberState.UNREACHABLE, MemberState.ALIVE, "a law")
    line.checker.on_member(line.run.hosts[3], told)
    assert line.late(0, DIED_S + LIMIT_S + 1.5) == [1, 2, 4, 5]
    assert line.late(0, back_s + LIMIT_S - 1) == [1, 2, 4, 5]
    assert 3 in line.late(0, back_s + LIMIT_S + 0.5), "nobody is excused for good"


def who_could_hear_it_and_is_alone_owes_nothing() -> None:
    line = Line(away=range(4, 6))
    line.kill(5)
    assert line.late(5, DIED_S + LIMIT_S + 1.5) == []


def in_one_room(*others: Fault) -> Line:
    """Three that all hear each other, of whom the last dies; and what befalls the second as well."""
    room = Line(away=range(0), count=3, range_m=0.0, script=others)
    room.kill(2)
    return room


def gives_nobody_up(room: Line) -> None:
    """A daemon that never learns of a death misses all others."""
    room.checker._deaths._missed = lambda host: len(room.run.hosts) - 1  # type: ignore[method-assign]


def in_one_room_all_owe_a_death() -> None:
    room = in_one_room()
    gives_nobody_up(room)
    assert room.late(2, DIED_S + LIMIT_S - 1) == []
    assert room.late(2, DIED_S + LIMIT_S + 1.5) == [0, 1]


def who_hears_nobody_owes_nothing() -> None:
    """What is left of a swarm cannot tell that all others died from that its own radio did."""
    for kind in ("power_loss", "mute", "freeze"):
        room = in_one_room(Fault(DIED_S * S, kind, (1,), 40 * S, 0))
        assert room.late(2, DIED_S + LIMIT_S + 1.5) == [], kind
        assert room.late(2, DIED_S + 2 * LIMIT_S + 1.5) == [], kind


def who_misses_one_owes_its_death() -> None:
    pair = Line(away=range(0), count=2, range_m=0.0)
    pair.kill(1)
    assert pair.late(1, DIED_S + LIMIT_S + 0.5) == [0], "it was to look at once"


def who_hears_somebody_again_owes_from_then() -> None:
    silent_s = 11
    room = in_one_room(Fault(DIED_S * S, "power_loss", (1,), silent_s * S, 0))
    assert room.late(2, DIED_S + silent_s + LIMIT_S - 1) == []
    assert room.late(2, DIED_S + silent_s + LIMIT_S + 1.5) == [0]


def who_hears_one_that_hears_nobody_owes_a_death() -> None:
    room = in_one_room(Fault(DIED_S * S, "deaf", (1,), 40 * S, 0))
    gives_nobody_up(room)
    assert room.late(2, DIED_S + LIMIT_S + 1.5) == [0]


def neighbours_that_know_excuse_nobody_else() -> None:
    """Where nobody reports a lost link, those beside the dead one see it, and all behind them never do."""
    assert "membership.undetected" in broken(reports_until_s=15)
    assert broken(reports_until_s=SHORT["swarm.seconds"]) == set()


def broken(reports_until_s: int) -> set[str]:
    """Which rules a line of six breaks whose last one dies, where nobody reports links after a time."""
    script = [Fault(20 * S, "power_loss", (5,), 30 * S, 0)]
    run = Simulation(load_scenario("mesh-line", SHORT), 1, Options(script=script))
    say = NearReports._say

    def says(self: NearReports, due_ns: int) -> None:
        if run.engine.now_ns < reports_until_s * S:
            say(self, due_ns)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NearReports, "_say", says)
        return {violation.rule for violation in run.run().violations}
