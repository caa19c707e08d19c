"""The replicated state in small swarms: what the demo stands on."""

import pytest

from swarmd_protocols.state.observations import (
    CellAssigned,
    CellDone,
    Count,
    DefineCells,
    ObjectChanged,
    SetNote,
    StatusReport,
    WantCell,
)
from swarmd_protocols.state.replica import ReplicaConfig
from tests.support.state_mesh import MS, Mesh, S, detection


def seen(mesh, index, track, east, north, **more):
    member = mesh.members[index]
    mesh.see(index, detection(member.local_ns(mesh.now_ns), track, east, north, **more))


def test_a_detection_reaches_everybody_at_once():
    mesh = Mesh(4)
    seen(mesh, 0, 1, 1000, 2000)
    mesh.run(0.02)
    for replica in mesh.replicas:
        (thing,) = replica.views.objects()
        assert (thing.east_cm, thing.north_cm, thing.label) == (1000, 2000, "hot-spot")
        assert thing.observers == (mesh.members[0].node,)
    assert mesh.agree()


def test_two_drones_and_two_passes_make_one_object_with_both_observers():
    mesh = Mesh(4)
    seen(mesh, 0, 1, 1000, 2000)
    mesh.run(1)
    seen(mesh, 1, 1, 1012, 1994)
    mesh.run(1)
    seen(mesh, 0, 2, 993, 2010)
    mesh.run(2)
    assert mesh.agree()
    for replica in mesh.replicas:
        (thing,) = replica.views.objects()
        assert set(thing.observers) == {mesh.members[0].node, mesh.members[1].node}
        assert thing.confirmed


def test_neighbours_one_metre_apart_stay_distinct():
    mesh = Mesh(3)
    seen(mesh, 0, 1, 1000, 2000)
    seen(mesh, 1, 1, 1000, 2099)
    seen(mesh, 2, 1, 1005, 2003)
    seen(mesh, 2, 2, 1004, 2101)
    mesh.run(2)
    assert mesh.agree()
    assert [len(replica.views.objects()) for replica in mesh.replicas] == [2, 2, 2]


def test_the_position_gets_better_with_every_observer_and_many_are_suppressed():
    mesh = Mesh(8)
    errors = [(-8, 6), (9, 2), (-3, -9), (5, 5), (-6, 4), (2, -7), (7, 1), (-4, -2)]
    for index, (dx, dy) in enumerate(errors):
        seen(mesh, index, 1, 1000 + dx, 2000 + dy)
        mesh.run(0.5)
    mesh.run(2)
    (thing,) = mesh.replicas[3].views.objects()
    assert len(thing.observers) == 8
    assert thing.covariance_cm2[0] < 40
    assert abs(thing.east_cm - 1000) + abs(thing.north_cm - 2000) <= 6
    assert mesh.agree()
    # The later ones only added themselves.
    assert len(mesh.replicas[0].views.detections()) < 8


def test_loss_and_reordering_end_in_equal_digests():
    mesh = Mesh(6, seed=3, loss=0.3, duplicate=0.1, delay_ms=(1, 200))
    for step in range(40):
        index = step % 6
        seen(mesh, index, step, (step * 37 % 11) * 1000, (step * 53 % 7) * 1000)
        mesh.run(0.1)
    took = mesh.run_until(mesh.agree, 10)
    views = [replica.views.objects() for replica in mesh.replicas]
    assert all(view == views[0] for view in views)
    assert took < 10


def test_counters_status_and_notes_are_shared():
    mesh = Mesh(4)
    for index in range(4):
        mesh.command(index, Count((("frames", 10 + index), ("bytes", 5))))
        mesh.command(index, StatusReport(b"status %d" % index))
    mesh.command(2, SetNote("zone", b"closed"))
    mesh.run(12)
    for replica in mesh.replicas:
        assert replica.views.counter_sums() == {"bytes": 20, "frames": 46}
        assert replica.views.notes() == {"zone": b"closed"}
        assert replica.views.status(mesh.members[3].node) == b"status 3"
    mesh.command(1, SetNote("zone", b""))
    mesh.run(2)
    assert [replica.views.notes() for replica in mesh.replicas] == [{}] * 4
    assert mesh.agree_on_all()


def test_cells_are_all_done_once_in_a_connected_swarm():
    mesh = Mesh(4, loss=0.1)
    cells = tuple((f"c{i}", (i % 6) * 2000, (i // 6) * 2000) for i in range(24))
    done = []
    working = {}
    for index in range(4):
        mesh.command(index, DefineCells(cells))
        mesh.command(index, WantCell(index * 3000, 0, 1000))
    for _ in range(600):
        mesh.run(0.25)
        for index, member in enumerate(mesh.members):
            for detail in member.details:
                if isinstance(detail, CellAssigned):
                    working[index] = (detail.cell_id, mesh.now_ns + 3 * S)
            member.details.clear()
            if index in working and working[index][1] <= mesh.now_ns:
                cell, _ = working.pop(index)
                done.append(cell)
                mesh.command(index, CellDone(cell, 900))
                mesh.command(index, WantCell(0, 0, 1000))
        if len(set(done)) == 24:
            break
    mesh.run(3)
    assert sorted(set(done)) == sorted(cell for cell, _, _ in cells)
    assert len(done) == 24
    assert mesh.now_ns < 40 * S
    for replica in mesh.replicas:
        assert [cell.state for cell in replica.views.cells()] == ["done"] * 24
    assert mesh.agree()


def test_a_restart_keeps_own_facts_and_goes_on():
    mesh = Mesh(3)
    seen(mesh, 0, 1, 1000, 2000)
    mesh.crash(0)
    mesh.run(1)
    seen(mesh, 1, 7, 9000, 2000)
    mesh.boot(0)
    mesh.run(3)
    seen(mesh, 0, 1, 5000, 2000)
    mesh.run(2)
    assert mesh.agree()
    assert [len(replica.views.objects()) for replica in mesh.replicas] == [3, 3, 3]


def test_what_nobody_else_heard_outlives_a_restart():
    mesh = Mesh(3)
    mesh.partition(lambda index: index)
    seen(mesh, 0, 1, 1000, 2000)
    mesh.run(1)
    mesh.crash(0)
    mesh.boot(0)
    mesh.partition(lambda index: 0)
    mesh.run(3)
    assert [len(replica.views.objects()) for replica in mesh.replicas] == [1, 1, 1]


def test_a_lost_disk_is_filled_again_by_peers():
    mesh = Mesh(3)
    seen(mesh, 0, 1, 1000, 2000)
    mesh.command(0, Count((("frames", 7),)))
    mesh.run(6)
    mesh.crash(0, lose_disk=True)
    mesh.boot(0)
    mesh.command(0, Count((("frames", 5),)))
    mesh.run(8)
    assert mesh.agree_on_all()
    assert [replica.views.counter_sums() for replica in mesh.replicas] == [{"frames": 12}] * 3
    assert [len(replica.views.objects()) for replica in mesh.replicas] == [1, 1, 1]


def test_a_damaged_author_cleans_up_once_the_facts_agree_though_records_tick():
    mesh = Mesh(2)
    seen(mesh, 0, 1, 1000, 2000)
    mesh.run(3)
    mesh.crash(0)
    (torn,) = [key for key in mesh.members[0].disk if key.startswith(b"state/f/")]
    mesh.members[0].disk[torn] = mesh.members[0].disk[torn][:-3]
    mesh.boot(0)
    replica, peer = mesh.replicas
    facts = peer.summary()[:8]
    assert replica.summary()[:8] != facts
    assert not replica._author.log.may_clean
    mesh.run_until(lambda: replica.summary()[:8] == facts, 10)
    replica._author.log.may_clean = False
    replica.on_summary(mesh.members[1].node, facts + b"a ticker", mesh.members[0].local_ns(mesh.now_ns))
    assert replica._author.log.may_clean


@pytest.mark.parametrize("count", [2, 5, 20])
def test_partition_heals(count):
    mesh = Mesh(count, loss=0.1)
    mesh.partition(lambda index: index % 2)
    for step in range(20):
        seen(mesh, step % count, step, step * 700, 0)
        mesh.run(0.1)
    assert not mesh.agree()
    mesh.partition(lambda index: 0)
    mesh.run_until(mesh.agree, 10)
    assert {len(replica.views.objects()) for replica in mesh.replicas} == {20}


def test_changes_are_told():
    mesh = Mesh(2)
    seen(mesh, 0, 1, 1000, 2000)
    mesh.run(0.05)
    kinds = [detail.kind for detail in mesh.members[1].details if isinstance(detail, ObjectChanged)]
    assert kinds == ["new"]
    assert MS < S


def test_a_hundred_reboots_do_not_grow_the_state():
    mesh = Mesh(3, config=ReplicaConfig(slack_rows=8))
    for boot in range(100):
        seen(mesh, 0, boot, 1000 * (boot % 5), 2000)
        mesh.command(0, Count((("frames", 1),)))
        mesh.run(2)
        mesh.crash(0)
        mesh.boot(0)
    mesh.run(10)
    assert mesh.agree_on_all()
    for replica in mesh.replicas:
        assert len(replica.views.objects()) == 5
        assert replica.views.counter_sums()["frames"] == 100
        # A log of at most about twice what lives, over a few lives, and three records.
        assert replica.views.health()["batches_held"] <= 30
        assert len(replica._holdings.store.logs[mesh.members[0].node].frontier) <= 6
    assert len(mesh.members[0].disk) <= 40


def test_clocks_that_start_anywhere_come_together():
    mesh = Mesh(4)
    for index, member in enumerate(mesh.members):
        mesh.crash(index)
        member.clock_zero_ns = index * 5_000 * S
        mesh.boot(index)
    for index in range(4):
        seen(mesh, index, 1, index * 1000, 0)
    mesh.run(15)
    times = [m.replica.clock.physical_ns(m.local_ns(mesh.now_ns)) for m in mesh.members]
    assert max(times) - min(times) < 200 * MS
    assert [len(replica.views.objects()) for replica in mesh.replicas] == [4, 4, 4, 4]
    assert mesh.agree()
