"""Law: what both sides say while the only member between them restarts crosses it when it is back.

It begins where both told it to, before it knows that it is in a mesh: an event that one side shows then is not new to
it, and has yet to be brought to the other side.
"""

from collections.abc import Mapping, Sequence

import pytest

from swarmd_protocols.swim.event_baseline import Denial
from swarmd_protocols.swim.user_events import UserEvents
from swarmd_sim.faults.faults import Fault
from swarmd_sim.run.scenario import load_scenario
from swarmd_sim.run.simulation import Options, Simulation

S = 1_000_000_000
TALK = {"swarm.seconds": 75, "checks.settle_s": 15.0, "workload.user_events_per_min": 20.0, "fault": []}
LINES = {
    "of three": (3, [Fault(25 * S, "kill", (1,), 12 * S, 0)]),
    "of five": (5, [Fault(25 * S, "kill", (2,), 12 * S, 0)]),
    "two beside each other": (6, [Fault(25 * S, "kill", (2, 3), 12 * S, 0)]),
    "twice": (5, [Fault(25 * S, "kill", (2,), 4 * S, 0), Fault(31 * S, "kill", (2,), 4 * S, 0)]),
    "without its disk": (4, [Fault(25 * S, "lost_disk", (1,), 6 * S, 0)]),
}


def broken(line: str, seed: int) -> list[str]:
    nodes, script = LINES[line]
    scenario = load_scenario("mesh-line", {"swarm.nodes": nodes, **TALK})
    return [one.rule for one in Simulation(scenario, seed, Options(script=script)).run().violations]


@pytest.mark.parametrize("line", LINES)
def test_what_two_sides_say_crosses_who_restarts_between_them(line: str) -> None:
    assert [broken(line, seed) for seed in (1, 2, 3)] == [[], [], []]


def test_what_is_shown_and_not_passed_on_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    lower = UserEvents._lower

    def is_done_with(self: UserEvents, denied: Sequence[Denial], shown: Mapping[bytes, int]) -> None:
        lower(self, [one._replace(delivered=max(one.delivered, shown.get(one.origin, 0))) for one in denied], {})

    monkeypatch.setattr(UserEvents, "_lower", is_done_with)
    assert {rule for seed in (1, 2, 3) for rule in broken("of three", seed)} == {"state.event_lost"}
