"""Random schedules of loss, duplication, reordering, crash, lost disk and partition; the oracle stands apart.

`SWARMD_SCHEDULES` says how many (default 40; `make test-long` runs 1,000). A failure names its seed.
"""

import os
import random

import pytest

from swarmd_protocols.state.claims.config import ClaimConfig
from swarmd_protocols.state.crdt.records import EventRow
from swarmd_protocols.state.dedup.config import DedupConfig
from swarmd_protocols.state.observations import CellDone, Count, DefineCells, SayEvent, SetNote, StatusReport
from swarmd_protocols.state.replica import ReplicaConfig
from tests.support.state_mesh import Mesh, S, detection

COUNT = int(os.environ.get("SWARMD_SCHEDULES", "40"))
FIRST = int(os.environ.get("SWARMD_FIRST_SCHEDULE", "0"))
CELLS = tuple((f"c{i}", i * 1000, 0) for i in range(12))


class Oracle:
    """What was accepted where, and what may be lost: only what lay on a lost disk and nobody else held."""

    def __init__(self, mesh):
        self.mesh = mesh
        self.things = {}
        """(node index, east, north) to whether it may be lost."""
        self.done = {}
        self.counts = {}

    def crash(self, index, lose_disk):
        """Forget what may be lost: what only this node held, in memory, or on the disk that goes."""
        own = self.mesh.members[index].replica
        others = [m.replica for m in self.mesh.members if m.index != index and m.replica is not None]
        for thing in list(self.things):
            kept = thing[0] == index and not lose_disk and holds(self.mesh, own, thing)
            if not kept and not any(holds(self.mesh, replica, thing) for replica in others):
                del self.things[thing]
        for key in list(self.done):
            kept = key[0] == index and not lose_disk
            if not kept and not any(is_done(self.mesh, replica, key) for replica in others):
                del self.done[key]
        # Counts of the last seconds are in no journal yet.
        self.counts.pop(index, None)


def holds(mesh, replica, thing):
    index, east, north = thing
    return any(
        (o.east_cm - east) ** 2 + (o.north_cm - north) ** 2 <= 100**2 and mesh.members[index].node in o.observers
        for o in replica.views.objects()
    )


def is_done(mesh, replica, key):
    return any(c.cell_id == key[1] and mesh.members[key[0]].node in c.done_by for c in replica.views.cells())


def schedule(seed):
    rng = random.Random(seed)
    every = ("loss", "duplicate", "slow", "crash", "disk", "cut", "drift", "clocks")
    kinds = {kind for kind in every if rng.random() < 0.6}
    size = rng.randint(2, 6)
    config = ReplicaConfig(
        dedup=DedupConfig(refresh_ms=rng.choice([500, 10_000])),
        claims=ClaimConfig(lease_ns=6 * S, settle_ns=S // 2),
        journal_ns=rng.choice([S // 10, S]),
        direct_peers_max=rng.choice([0, 8]),
        slack_rows=rng.choice([2, 128]),
    )
    mesh = Mesh(
        size,
        seed,
        loss=rng.choice([0.1, 0.3, 0.5]) if "loss" in kinds else 0.0,
        duplicate=0.3 if "duplicate" in kinds else 0.0,
        delay_ms=(1, rng.choice([50, 800])) if "slow" in kinds else (1, 5),
        config=config,
    )
    if "clocks" in kinds:
        for member in mesh.members:
            mesh.crash(member.index)
            member.clock_zero_ns = rng.randrange(20) * S
            mesh.boot(member.index)
    if "drift" in kinds:
        for member in mesh.members:
            member.rate_ppm = rng.randint(-200, 200)
    oracle = Oracle(mesh)
    for member in mesh.members:
        mesh.command(member.index, DefineCells(CELLS))
    track = 0
    for _ in range(rng.randint(20, 80)):
        live = [member.index for member in mesh.members if member.replica is not None]
        action = rng.choice(["see"] * 6 + ["again", "count", "note", "done", "status", *sorted(kinds)])
        index = rng.choice(live)
        if action == "see":
            track += 1
            place = (rng.randrange(40) * 600, rng.randrange(3) * 600)
            now = mesh.members[index].local_ns(mesh.now_ns)
            mesh.see(index, detection(now, track, *place))
            oracle.things[index, *place] = True
        elif action == "again":
            now = mesh.members[index].local_ns(mesh.now_ns)
            mesh.see(
                index, detection(now, 9_999, 300, 300, score=rng.randrange(1000), kind=rng.choice(["update", "end"]))
            )
        elif action == "count":
            mesh.command(index, Count((("frames", 1),)))
            oracle.counts[index] = oracle.counts.get(index, 0) + 1
        elif action == "note":
            mesh.command(index, SetNote(f"k{rng.randrange(3)}", rng.choice([b"", b"x", b"y"])))
        elif action == "done":
            cell = rng.choice(CELLS)[0]
            mesh.command(index, CellDone(cell, 500))
            oracle.done[index, cell] = True
        elif action == "status":
            mesh.command(index, StatusReport(bytes([rng.randrange(256)]) * rng.randrange(1, 1000)))
            row = EventRow(1, 1 + mesh.now_ns // 1_000_000, 0, "failed", "x", "y" * 50, "")
            mesh.command(index, SayEvent(row))
        elif action in ("crash", "disk") and len(live) > 1:
            oracle.crash(index, action == "disk")
            mesh.crash(index, lose_disk=action == "disk")
            mesh.run(rng.random() * 2)
            mesh.boot(index)
            mesh.command(index, DefineCells(CELLS))
        elif action == "cut":
            parts = rng.randint(1, 3)
            mesh.partition(lambda i, parts=parts: i % parts)
        mesh.run(rng.random() * 0.5)
    mesh.partition(lambda index: 0)
    mesh.loss = min(mesh.loss, 0.3)
    # Counters are said every 5 s, and stamps of before a clock was set are cleaned away within two more such rounds.
    mesh.run(12)
    mesh.run_until(mesh.agree_on_all, 60)
    return mesh, oracle


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_schedule(seed):
    mesh, oracle = schedule(seed)
    first = mesh.replicas[0]
    for replica in mesh.replicas[1:]:
        assert replica.views.digest() == first.views.digest()
        assert replica.views.objects() == first.views.objects()
        assert replica.views.detections() == first.views.detections()
        assert [(c.cell_id, c.done_by) for c in replica.views.cells()] == [
            (c.cell_id, c.done_by) for c in first.views.cells()
        ]
        assert replica.views.notes() == first.views.notes()
        assert replica.views.counters() == first.views.counters()
        assert replica.views.events() == first.views.events()
        assert [replica.views.status(m.node) for m in mesh.members] == [
            first.views.status(m.node) for m in mesh.members
        ]
    for thing in oracle.things:
        assert holds(mesh, first, thing), f"the detection {thing} was lost"
    for key in oracle.done:
        assert is_done(mesh, first, key), f"the done cell {key} was lost"
    for index, amount in oracle.counts.items():
        assert first.views.counters().get("frames", {}).get(mesh.members[index].node, 0) >= amount
