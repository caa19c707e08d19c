"""Law: a hall of robots whose air is full while it forms has air again some seconds later, and calls nobody failed."""

import pytest

from swarmd_protocols.swim.mesh import relay
from swarmd_protocols.swim.mesh.mesh_view import MeshView
from swarmd_sim.run.scenario import load_scenario
from swarmd_sim.run.simulation import Options, Simulation

S = 1_000_000_000
HALL = {
    "radio.exponent": 2.9,
    "radio.rate_mbit_s": 10.0,
    "swarm.nodes": 30,
    "swarm.start_within_s": 8.0,
    "swarm.seconds": 24,
    "checks.settle_s": 8.0,
    "faults.per_minute": 0.0,
    "workload.user_events_per_min": 0,
}


def _later(seed: int = 1) -> tuple[float, list[str]]:
    """Bytes a node and second from the fourteenth to the nineteenth second, and the rules that were broken."""
    run = Simulation(load_scenario("warehouse-robots-50", HALL), seed, Options())
    run.run()
    late = [one for one in run.milestones.samples if 14 * S <= one.at_ns <= 19 * S]
    sent, took_s = late[-1].sent_bytes - late[0].sent_bytes, (late[-1].at_ns - late[0].at_ns) / S
    return sent / took_s / len(run.hosts), [one.rule for one in run.watch.violations]


def test_air_that_was_full_is_free_again() -> None:
    sent, broken = _later()
    assert sent < 3_000, "the last robot was switched on six seconds before"
    assert broken == []


def test_a_hall_that_relays_what_is_in_reach_and_asks_at_once_stays_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MeshView, "is_heard", lambda self, member: False)
    monkeypatch.setattr(relay, "ACK_MAX_NS", relay.ACK_NS)
    monkeypatch.setattr("swarmd_protocols.swim.repair._TRIPS", 0)
    assert _later()[0] > 4_500
