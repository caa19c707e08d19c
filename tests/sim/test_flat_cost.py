"""What a node sends follows news: a crowd's records, what rides on, comparisons that are not due, and silence.

Bytes are what nodes hand to the network: sealed frames, without IP and UDP headers (28 bytes each).
"""

from functools import partial
from typing import Any

import pytest

from swarmd_protocols.effects import Started
from swarmd_protocols.state import record_names
from swarmd_protocols.state.observations import Count
from swarmd_protocols.state.record_names import RecordNames
from swarmd_protocols.swim import pushes
from swarmd_protocols.swim.core import RECORD
from swarmd_sim.run.scenario import scenario_from_table
from swarmd_sim.run.simulation import Simulation
from tests.support.state_mesh import Mesh
from tests.support.swim_net import Net

S = 1_000_000_000
RECORD_BYTES = 300
"""A certificate, a signed record of oneself and what wraps them, on the model network."""
QUIET_BYTES_S = 500
"""A node's share of everything where nothing has happened for a minute (issue: no news, no cost)."""


def survey(nodes: int, seconds: int, **tables: Any) -> Simulation:
    """A small farm that is surveyed by claims within the first half minute, then nothing."""
    table = {
        "title": "A survey that ends",
        "swarm": {"nodes": nodes, "seconds": seconds},
        "site": {"kind": "farm", "tables": 12, "modules": 20, "faults": 0.05, "cell_m": 20.0, "site_map": True},
        "drones": {"work": "claims", "speed_m_s": 8.0},
        "radio": {"model": "disc", "loss": 0.05},
        "workload": {"user_events_per_min": 0, "detections_per_min": 0, "notes_per_min": 0, "until_s": 20},
        "checks": {"settle_s": 5.0},
        **tables,
    }
    return Simulation(scenario_from_table(table, name="survey"), 5)


def sent_by_48_at_once() -> float:
    """Bytes that each of 48 sends while they all meet, per record that each must learn."""
    net = Net(48)
    assert net.run_until(lambda: net.formed() and net.agreed(), 10) is not None
    net.run(1.0)
    return sum(host.bytes_out for host in net.hosts) / len(net.hosts) / (len(net.hosts) - 1) / RECORD_BYTES


def test_a_crowd_costs_each_record_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    cost = sent_by_48_at_once()
    assert cost <= 2.0
    monkeypatch.setattr(pushes, "_RECORDS_PUSHED", 1_000_000)
    assert sent_by_48_at_once() > 2 * cost


def sent_by_96_one_by_one() -> float:
    """The same where 96 start within two seconds and lose one datagram in twenty."""
    net = Net(96, loss=0.05, delay_ns=3_000_000, start=False)
    for index in range(96):
        net.at(net.now + index * S // 48, partial(net.feed, index, Started()))
    net.run(2.0)
    assert net.run_until(lambda: net.formed() and net.agreed(), 3) is not None
    net.run(1.0)
    return sum(host.bytes_out for host in net.hosts) / len(net.hosts) / (len(net.hosts) - 1) / RECORD_BYTES


def test_a_crowd_that_comes_one_by_one_costs_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    cost = sent_by_96_one_by_one()
    assert cost <= 2.0
    monkeypatch.setattr(pushes, "_MANY", 1_000)
    assert sent_by_96_one_by_one() > 1.3 * cost


@pytest.mark.slow
def test_new_members_stop_riding_although_facts_differ() -> None:
    run = survey(20, 20)
    riding: list[int] = []

    def look(_: object) -> None:
        queues = [host.node._core.queue for host in run.hosts]  # type: ignore[union-attr]
        riding.append(sum(len(queue._lanes[RECORD].order) for queue in queues if RECORD in queue._lanes))

    for at_s in (5, 7, 9):
        run.engine.at(at_s * S, look)
    assert run.run().violations == []
    assert riding == [0, 0, 0]


def sent_in_silence(nodes: int) -> float:
    """Bytes a second and node of everything, from two minutes after the last news on, for half a minute."""
    run = survey(nodes, 175)
    sent: list[int] = []
    for at_s in (142, 172):
        run.engine.at(at_s * S, lambda _: sent.append(sum(run.network.sent_bytes)))
    result = run.run()
    assert result.violations == []
    assert max(at_ns for at_ns, _host, _cell in run.ledger.cells_flown) < 20 * S
    return (sent[1] - sent[0]) / 30 / nodes


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [20, 50, 100])
def test_silence_costs_next_to_nothing(nodes: int) -> None:
    """In a swarm of 100 a node says its last counters a minute after they changed; a minute later all are told."""
    assert sent_in_silence(nodes) <= QUIET_BYTES_S


@pytest.mark.slow
def test_the_law_of_silence_sees_names_that_ride_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 50: of 20 the names are so few, as a status goes beside the counters, that they are just below the bound."""
    monkeypatch.setattr(record_names, "_RIDES", 1 << 30)
    assert sent_in_silence(50) > QUIET_BYTES_S


def counted_elsewhere() -> float:
    """The share of all pairs of 40 replicas of which one holds the other's counter 12 s after it was said."""
    mesh = Mesh(40, seed=5, loss=0.1)
    for index in range(40):
        mesh.command(index, Count((("frames", 1),)))
    mesh.run(12)
    return sum(len(replica.views.counters().get("frames", {})) for replica in mesh.replicas) / 40**2


def test_names_in_probes_bring_records_to_all_of_a_large_swarm(monkeypatch: pytest.MonkeyPatch) -> None:
    """What they miss, at most one in a hundred, is left to comparisons, which take a minute in such a swarm."""
    assert counted_elsewhere() >= 0.99
    monkeypatch.setattr(RecordNames, "riders", lambda *_: [])
    assert counted_elsewhere() < 0.9


def test_what_is_not_due_for_comparison_is_not_answered() -> None:
    """Records differ, and were compared a moment ago: the next probe says facts alone, and both nodes find it equal."""
    mesh = Mesh(12, seed=3)
    mesh.run(20)
    first, second = mesh.replicas[:2]
    assert second.summary()[:8] == first.summary()[:8]
    now_ns = mesh.members[0].local_ns(mesh.now_ns)
    first.on_summary(mesh.members[1].node, first.summary()[:8] + b"a ticker", now_ns)
    due = first.due(now_ns)
    assert due == first.summary()[:8]
    assert due in second.selections()
    assert first.due(now_ns + 60 * S) == first.summary()
