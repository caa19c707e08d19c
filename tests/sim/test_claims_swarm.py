"""Claims in a virtual swarm: one worker a cell, at least once, under loss, crashes, cuts and drift."""

import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.claims.claims import Claims, cell_hash
from swarmd_protocols.state.claims.config import ClaimConfig
from swarmd_protocols.state.crdt.records import Lease
from swarmd_protocols.state.dedup.config import DedupConfig
from swarmd_protocols.state.observations import CellAssigned, CellDone, CellLost, DefineCells, ObjectChanged, WantCell
from swarmd_protocols.state.replica import ReplicaConfig
from tests.support.state_mesh import MS, Mesh, S, detection

SEEDS = int(os.environ.get("SWARMD_CLAIM_SEEDS", "3"))


class Survey:
    """Drones that fly cells: the way there and ten seconds of work, by the assignments of their replicas."""

    def __init__(self, drones, side, seed, work_s=10.0, speed_m_s=10.0, settle_ns=2 * S, loss=0.3, **more):
        config = ReplicaConfig(claims=ClaimConfig(settle_ns=settle_ns))
        self.mesh = Mesh(drones, seed, loss=loss, config=config, **more)
        self.work_s, self.speed = work_s, speed_m_s
        self.cells = {f"c{i:03d}": ((i % side) * 2000, (i // side) * 2000) for i in range(side * side)}
        rng = random.Random(seed)
        self.place = [(rng.randrange(side) * 2000, rng.randrange(side) * 2000) for _ in range(drones)]
        self.until = {}
        self.inspections = []
        self.both_s = 0.0
        for index in range(drones):
            self.start(index)

    def start(self, index):
        self.mesh.command(index, DefineCells(tuple((cell, *at) for cell, at in self.cells.items())))
        self.mesh.command(index, WantCell(*self.place[index], 900))

    def step(self, seconds=0.25):
        mesh = self.mesh
        mesh.run(seconds)
        for index, member in enumerate(mesh.members):
            if member.replica is None:
                self.until.pop(index, None)
                continue
            for detail in member.details:
                if isinstance(detail, CellAssigned):
                    (e, n), (a, b) = self.cells[detail.cell_id], self.place[index]
                    way_s = (abs(e - a) + abs(n - b)) / 100 / self.speed
                    self.until[index] = (detail.cell_id, mesh.now_ns + int((way_s + self.work_s) * S))
                elif isinstance(detail, CellLost) and self.until.get(index, ("",))[0] == detail.cell_id:
                    del self.until[index]
            member.details.clear()
            if index in self.until and self.until[index][1] <= mesh.now_ns:
                cell, _ = self.until.pop(index)
                self.place[index] = self.cells[cell]
                self.inspections.append(cell)
                mesh.command(index, CellDone(cell, 900))
                mesh.command(index, WantCell(*self.place[index], 900))
        working = [(cell, mesh.group(index)) for index, (cell, _) in self.until.items()]
        self.both_s += (len(working) - len(set(working))) * seconds

    def fly(self, limit_s, action=lambda now_s: None):
        begin = self.mesh.now_ns
        while len(set(self.inspections)) < len(self.cells):
            now_s = (self.mesh.now_ns - begin) / S
            assert now_s < limit_s, f"{len(self.cells) - len(set(self.inspections))} cells missing after {limit_s} s"
            action(now_s)
            self.step()
        return (self.mesh.now_ns - begin) / S

    @property
    def duplicates(self):
        return len(self.inspections) - len(set(self.inspections))


def check_one_worker_a_cell():
    survey = Survey(6, 6, seed=1, loss=0.2)
    survey.fly(400)
    assert survey.duplicates == 0
    assert survey.both_s <= 0.02 * len(survey.cells) * survey.work_s


def test_one_worker_a_cell():
    check_one_worker_a_cell()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_settling_costs_no_time(seed):
    eager = Survey(6, 6, seed, settle_ns=0)
    settled = Survey(6, 6, seed)
    fast, slow = eager.fly(600), settled.fly(600)
    assert slow <= 1.10 * fast + 2.5
    assert settled.duplicates == 0


@pytest.mark.parametrize("seed", range(SEEDS))
def test_crashes_leave_no_cell_behind(seed):
    survey = Survey(6, 6, seed)
    crashed = set()

    def crash(now_s):
        if now_s > 15 * (1 + len(crashed)) and len(crashed) < 3:
            index = max(survey.until, default=0)
            if survey.mesh.members[index].replica is not None:
                survey.mesh.crash(index)
                crashed.add(index)

    survey.fly(600, crash)
    assert len(crashed) == 3
    assert survey.duplicates <= 3


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_cut_doubles_little(seed):
    survey = Survey(6, 6, seed)

    def cut(now_s):
        if 10 < now_s < 10.5:
            survey.mesh.partition(lambda index: index % 2)
        elif 50 < now_s < 50.5:
            survey.mesh.partition(lambda index: 0)

    survey.fly(600, cut)
    # Each side has half the drones; owner-first keeps them on different cells while there are enough of these.
    assert survey.duplicates <= 0.2 * len(survey.cells)
    survey.mesh.run(5)
    assert survey.mesh.agree()


def check_no_scramble():
    """Drones that start at one place, twice as many as there are cells: few claims are made in vain."""
    survey = Survey(24, 4, seed=2, loss=0.05)
    cells = len(survey.cells)
    survey.fly(400)
    claims = sum(replica._projection.survey.claims._epoch for replica in survey.mesh.replicas)
    assert survey.duplicates == 0
    assert claims <= 2 * cells, f"{claims} claims to {cells} cells"


def test_free_nodes_do_not_scramble_for_cells():
    check_no_scramble()


def check_a_survey_is_near_its_bound():
    """Drones from anywhere: as long as a planner's rounds, a settle, and less than two cells more."""
    for seed in range(4):
        survey = Survey(20, 7, seed, loss=0.1, speed_m_s=4.0)
        rounds = -(-len(survey.cells) // 20)
        took_s = survey.fly(400)
        assert took_s <= 2 + (rounds + 1) * (survey.work_s + 20 / survey.speed) + survey.work_s, f"{took_s} s"
        assert survey.duplicates == 0


def test_a_survey_is_near_its_bound():
    check_a_survey_is_near_its_bound()


NEAR, FAR, LATER = NodeId(b"\x01" * 16), NodeId(b"\x02" * 16), 10 * S


def _beside_a_waiting_cell(way_cm, is_at_work):
    """One cell; who has this way to it hears the claim of another, who has 100 m."""
    near, far = Claims(NEAR, ClaimConfig()), Claims(FAR, ClaimConfig())
    for claims, at_cm in ((far, 10_000), (near, way_cm)):
        claims.define([("c", 0, 0)])
        claims.want(at_cm, 0, 1000)
    far.step(0)
    far.step(S)
    assert len(far.held) == 1
    if is_at_work:
        assert far.step(LATER)[0] == ["c"]
    near.hear(FAR, far.record(), LATER)
    for at in range(4):
        near.step(LATER + at * S // 2)
    far.hear(NEAR, near.record(), LATER + 2 * S)
    far.step(LATER + 2 * S)
    return bool(near.held), bool(far.held)


def check_a_waiting_cell_goes_to_who_is_near():
    assert _beside_a_waiting_cell(4_000, is_at_work=False) == (True, False)


def test_a_waiting_cell_goes_to_who_is_near_and_stays_where_the_way_is_like():
    check_a_waiting_cell_goes_to_who_is_near()
    assert _beside_a_waiting_cell(6_000, is_at_work=False) == (False, True), "not for a little"
    assert _beside_a_waiting_cell(100, is_at_work=True) == (False, True), "nobody is called back from work"


def check_the_last_cell_goes_to_who_saves_much_of_the_way():
    """Seed 11: the last cell is held by one who crosses the area to it, and free ones are within 10 s of it.

    Others have more than half of that way, counted over the cells that they still work on, and gain 100 m and more.
    """
    survey = Survey(20, 7, 11, loss=0.1, speed_m_s=4.0)
    took_s = survey.fly(400)
    assert took_s <= 2 + 4 * (survey.work_s + 20 / survey.speed) + survey.work_s, f"{took_s} s"
    assert survey.duplicates == 0


def test_the_last_cell_goes_to_who_saves_much_of_the_way():
    check_the_last_cell_goes_to_who_saves_much_of_the_way()


def _asks_for_a_waiting_cell(own_cm, other_cm):
    """A row of 30 cells, 20 m apart, one left: it waits for one with that way; whether another claims it."""
    near, far = Claims(NEAR, ClaimConfig()), Claims(FAR, ClaimConfig())
    cells = [(f"c{at:02d}", at * 2_000, 0) for at in range(30)]
    for claims, at_cm in ((far, other_cm), (near, own_cm)):
        claims.define(cells)
        for cell, *_ in cells[1:]:
            claims.done[cell_hash(cell)] = {NEAR: 1}
        claims.want(at_cm, 0, 1000)
    for at in range(4):
        far.step(at * S // 2)
    near.hear(FAR, far.record(), LATER)
    for at in range(4):
        near.step(LATER + at * S // 2)
    return bool(near.held)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 60_000), st.integers(0, 60_000))
def test_a_waiting_cell_is_asked_for_by_half_the_way_or_a_far_shorter_one(own_cm, other_cm):
    shorter_cm = 3 * 3_000
    if abs(2 * own_cm - other_cm) > 4 and abs(own_cm + shorter_cm - other_cm) > 4:
        expected = 2 * own_cm < other_cm or own_cm + shorter_cm < other_cm
        assert _asks_for_a_waiting_cell(own_cm, other_cm) == expected


def check_who_is_there_sooner_wins():
    """A cell next to one that somebody is on the way to, 90 m from there, and 40 m from one who is free."""
    busy, free = Claims(NEAR, ClaimConfig()), Claims(FAR, ClaimConfig())
    for claims, at_cm in ((busy, 10_000), (free, -4_000)):
        claims.define([("c", 0, 0), ("d", 1_000, 0)])
        claims.want(at_cm, 0, 1000)
    for at in range(12):
        busy.step(at * S // 2)
    free.hear(NEAR, tuple(lease for lease in busy.record() if lease.cell == cell_hash("d")), 5 * S)
    for at in range(10, 13):
        free.step(at * S // 2)
    (mine,) = free.record()
    (theirs,) = (lease for lease in busy.record() if lease.cell == cell_hash("c"))
    assert mine.cell == theirs.cell
    assert mine.bid < theirs.bid


def test_who_is_there_sooner_wins():
    check_who_is_there_sooner_wins()


def check_the_nearest_speaks_first():
    """Of two that are free together only the nearer claims; the other hears of it and takes the next cell."""
    cells = [("c", 0, 0), ("d", 2_000, 0), ("e", 4_000, 0)]
    near, far = Claims(NEAR, ClaimConfig()), Claims(FAR, ClaimConfig())
    for claims, at_cm in ((near, -100), (far, -20_000)):
        claims.define(cells)
        claims.want(at_cm, 0, 1000)
    now, said = 0, 0
    while not (near.held and far.held):
        for claims, other, node in ((far, near, FAR), (near, far, NEAR)):
            claims.step(now)
            if claims.dirty:
                claims.dirty, said = False, said + 1
                other.hear(node, claims.record(), now)
        now += 10 * MS
        assert now < 3 * S
    assert said == 2
    assert {*near.held} == {near.cells[key].key for key in near.cells if near.cells[key].cell_id == "c"}


def test_the_nearest_speaks_first():
    check_the_nearest_speaks_first()


def test_a_crashed_holder_is_replaced():
    survey = Survey(2, 1, seed=1, work_s=20)
    while not survey.until:
        survey.step()
    survey.mesh.crash(next(iter(survey.until)))
    survey.fly(90)
    assert survey.duplicates == 0


def test_a_squatter_is_ignored():
    config = ClaimConfig(squat_renewals=5)
    me, squatter = NodeId(b"\x01" * 16), NodeId(b"\x02" * 16)
    claims = Claims(me, config)
    claims.define([("c", 0, 0)])
    key = next(iter(claims.cells))
    now = S
    for renewal in range(20):
        claims.hear(squatter, (Lease(key, 1, renewal, True, 0, 0),), now)
        claims.want(0, 0, 1000)
        claims.step(now)
        now += config.renew_ns
    assert claims.holder(key, now) == me


def test_a_holder_that_makes_progress_is_no_squatter():
    config = ClaimConfig(squat_renewals=5)
    claims = Claims(NodeId(b"\x01" * 16), config)
    claims.define([("c", 0, 0)])
    key = next(iter(claims.cells))
    now = S
    for renewal in range(20):
        claims.hear(NodeId(b"\x02" * 16), (Lease(key, 1, renewal, True, 0, renewal),), now)
        claims.want(0, 0, 1000)
        claims.step(now)
        now += config.renew_ns
    assert claims.holder(key, now) == NodeId(b"\x02" * 16)


ALONE_S = 40
CELLS = tuple((f"c{number}", 2_000 * number, 0) for number in range(6))


def alone_at_work(loss=0.0, beside=0):
    """Node 3 lost its disk, works alone or beside a few and claimed its next cell; the others have done all of them."""
    mesh = Mesh(4 + beside + (beside and 1), seed=3)
    apart = {3, *range(4, 4 + beside)}
    mesh.partition(lambda index: int(index in apart))
    for index in sorted(apart):
        mesh.crash(index, lose_disk=True)
        mesh.boot(index)
    for index in range(len(mesh.members)):
        mesh.command(index, DefineCells(CELLS))
    for cell, _, _ in CELLS:
        mesh.command(0, CellDone(cell, 900))
    mesh.command(3, WantCell(0, 0, 900))
    mesh.run(ALONE_S)
    (cell,) = [detail.cell_id for detail in mesh.members[3].details if isinstance(detail, CellAssigned)]
    mesh.members[3].details.clear()
    mesh.loss = loss
    mesh.partition(lambda index: 0)
    mesh.command(3, CellDone(cell, 900))
    mesh.command(3, WantCell(0, 0, 900))
    return mesh


def assigned(mesh, index):
    return [detail.cell_id for detail in mesh.members[index].details if isinstance(detail, CellAssigned)]


def test_who_was_alone_begins_nothing_that_others_have_done():
    mesh = alone_at_work()
    mesh.run(20)
    assert mesh.agree()
    assert not assigned(mesh, 3)


@pytest.mark.parametrize("beside", [1, 2])
def test_the_smaller_part_begins_nothing_that_the_larger_has_done(beside):
    begun_by_the_smaller_part(beside)


def begun_by_the_smaller_part(beside=1):
    mesh = alone_at_work(beside=beside)
    mesh.run(20)
    assert mesh.agree()
    assert not assigned(mesh, 3)


def test_where_nobody_answers_work_goes_on_after_a_settle():
    mesh = alone_at_work(loss=1.0)
    mesh.run(ClaimConfig().settle_ns / S - 0.1)
    assert not assigned(mesh, 3)
    mesh.run(0.2)
    assert len(assigned(mesh, 3)) == 1


def test_a_peer_that_comes_and_goes_keeps_nobody_from_work():
    mesh = alone_at_work(loss=1.0)
    for second in range(40):
        mesh.partition(lambda index, apart=second % 2: int(index == 3) * apart)
        mesh.run(1)
    assert assigned(mesh, 3)


def check_leases_under_drift():
    """The holder, on a slow clock and stalled, stops before an observer on a fast clock starts; news is instant."""
    config, drift = ClaimConfig(settle_ns=0), 0.0199
    holder, observer = Claims(NodeId(b"\x01" * 16), config), Claims(NodeId(b"\x02" * 16), config)
    for claims in (holder, observer):
        claims.define([("c", 0, 0)])
    holder.want(0, 0, 1000)
    holder.step(0)
    assert holder.step(1)[0] == ["c"]
    renewed = holder.held[next(iter(holder.held))].renewed_ns
    observer.hear(NodeId(b"\x01" * 16), holder.record(), 0)
    observer.want(0, 0, 1000)
    real = renewed
    while not observer.step(int(real * (1 + drift)))[0]:
        real += 5 * MS
    assert holder.step(int(real * (1 - drift)))[1] == ["c"] or "c" not in holder.held
    assert any(int(t * (1 - drift)) >= config.holder_ns for t in range(0, int(real), 5 * MS)), "it stops before"


def test_leases_under_drift():
    check_leases_under_drift()


def test_a_stalled_holder_stops_by_its_own_timer():
    config = ClaimConfig()
    claims = Claims(NodeId(b"\x01" * 16), config)
    claims.define([("c", 0, 0), ("d", 100, 0)])
    claims.want(0, 0, 1000)
    claims.step(S)
    begun, _ = claims.step(S + config.settle_ns)
    assert begun == ["c"]
    _, lost = claims.step(S + config.settle_ns + config.lease_ns)
    assert lost == ["c"]


def check_expiry():
    """What nobody has seen for long is not shown, and no late packet shows it again."""
    config = ReplicaConfig(dedup=DedupConfig(ttl_ms=10_000))
    mesh = Mesh(3, config=config)
    mesh.crash(2)
    mesh.see(0, detection(mesh.members[0].local_ns(mesh.now_ns), 1, 1000))
    mesh.run(20)
    assert all(replica.views.objects() == [] for replica in mesh.replicas)
    mesh.boot(2)
    mesh.run(10)
    assert all(replica.views.objects() == [] for replica in mesh.replicas)
    told = [d for d in mesh.members[2].details if isinstance(d, ObjectChanged) and d.kind == "new"]
    assert told == []
    assert mesh.agree()


def test_expiry():
    check_expiry()
    assert MS
