"""Where the state's bytes go: every payload is booked under one kind, and the books are open."""

import random
from typing import get_args

import pytest

from swarmd_protocols.state.claims.claims import cell_hash
from swarmd_protocols.state.crdt import messages
from swarmd_protocols.state.crdt.facts import Done, Facts
from swarmd_protocols.state.observations import Count, DefineCells, SetNote, StatusReport, WantCell
from swarmd_protocols.state.sent import Kind
from swarmd_sim.run.scenario import load_scenario
from swarmd_sim.run.simulation import Simulation
from tests.support.state_mesh import Mesh, detection
from tests.support.tiers import few_fast
from tests.unit.test_state_attacks import Pen

CELLS = tuple((f"c{i}", i * 1_000, 0) for i in range(6))


@pytest.mark.parametrize(("nodes", "loss"), few_fast([(4, 0.0), (12, 0.2), (30, 0.1)], 2))
def test_every_payload_is_booked_once(nodes: int, loss: float) -> None:
    mesh = Mesh(nodes, seed=nodes, loss=loss)
    rng = random.Random(nodes)
    for step in range(30):
        who = rng.randrange(nodes)
        now_ns = mesh.members[who].local_ns(mesh.now_ns)
        mesh.see(who, detection(now_ns, step, rng.randrange(9) * 5_000, 0))
        mesh.command(who, StatusReport(rng.randbytes(40)))
        mesh.command(who, Count((("frames", step),)))
        mesh.command(who, SetNote(f"k{step % 4}", b"here"))
        if step % 7 == 0:
            mesh.command(who, DefineCells(CELLS))
            mesh.command(who, WantCell(0, 0, 900))
        mesh.run(0.5)
    mesh.newcomer(99)
    liar = Pen(mesh.members[1].identity.seed)
    for label in (b"a", b"b"):
        liar.n, liar.previous = 0, bytes(16)
        batch = liar.write(Facts([], [], [Done(cell_hash(label.decode()), 1_000)]))
        payload = messages.encode(messages.Batches((batch.raw,)))
        victim = mesh.members[0]
        assert victim.replica is not None
        mesh.perform(victim, victim.replica.on_message(mesh.members[1].node, payload, victim.local_ns(mesh.now_ns)))
    mesh.run(10)
    totals: dict[str, int] = {}
    for replica in mesh.replicas:
        for name, count in replica.views.sent().items():
            totals[name] = totals.get(name, 0) + count
    assert sum(count for name, count in totals.items() if name.endswith("_bytes")) == mesh.bytes_sent
    assert sum(count for name, count in totals.items() if name.endswith("_messages")) == mesh.messages
    unused = {kind for kind in get_args(Kind) if not totals[f"{kind}_messages"]}
    assert unused <= {"keys"}, "nothing in this run made the node send these"


@pytest.mark.slow
def test_a_simulated_run_says_where_its_bytes_went() -> None:
    figures = Simulation(load_scenario("partition-heal", {}), 3).run().figures
    kinds = figures["by_kind"]
    assert isinstance(kinds, dict)
    assert {*get_args(Kind), "other"} == set(kinds)
    assert sum(one["bytes"] for one in kinds.values()) == pytest.approx(figures["bytes_per_node_s"], abs=0.2)
    assert kinds["other"]["bytes"] > 0
    assert all(one["bytes"] >= 0 for one in kinds.values())
