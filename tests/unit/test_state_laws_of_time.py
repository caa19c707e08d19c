"""What fuzzing found, as laws: wrong clocks take nothing away, and what was accepted is on disk."""

import random

import pytest

from swarmd_protocols.effects import Persist
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.clock import Clock, ClockConfig
from swarmd_protocols.state.crdt import messages
from swarmd_protocols.state.crdt.facts import LATTICE, Sighting
from swarmd_protocols.state.observations import CellDone, Count, DefineCells
from swarmd_protocols.state.projection import Projection
from swarmd_protocols.state.replica import Replica, ReplicaConfig
from tests.support.mutants import assert_found
from tests.support.state_mesh import MS, Mesh, S, detection
from tests.support.tiers import few_fast

HOUR = 3_600 * S
HALF_HOUR = HOUR // 2
SOON_OLD_NS = 50 * S - HOUR
"""So wrong a clock that what it stamped is old a little after the next life's clock is confirmed."""


def see(mesh, index, track, east, north, **more):
    member = mesh.members[index]
    mesh.see(index, detection(member.local_ns(mesh.now_ns), track, east, north, **more))


def test_a_clock_an_hour_ahead_lets_go_of_nothing_that_others_were_told():
    mesh = Mesh(5, wall=True, config=ReplicaConfig(slack_rows=0))
    see(mesh, 0, 1, 1000, 2000)
    mesh.run(30)
    assert all(len(replica.views.objects()) == 1 for replica in mesh.replicas)
    mesh.crash(0)
    mesh.wrong_wall_ns[0] = HOUR + 120 * S
    mesh.partition(lambda index: int(index == 0))
    mesh.boot(0)
    mesh.run(20)
    # Its own log goes on meanwhile, and is cleaned as often as it likes.
    for track in range(2, 40):
        see(mesh, 0, track, 100_000 + track * 1000, 0)
        mesh.run(0.2)
    mesh.wrong_wall_ns[0] = 0
    mesh.partition(lambda index: 0)
    mesh.run(60)
    assert mesh.agree()
    for replica in mesh.replicas:
        assert any((thing.east_cm, thing.north_cm) == (1000, 2000) for thing in replica.views.objects())


def test_what_is_old_by_a_clock_that_is_sure_is_let_go():
    mesh = Mesh(5, wall=True)
    see(mesh, 0, 1, 1000, 2000)
    mesh.run(3_700)
    assert not mesh.replicas[0].views.objects()
    assert not mesh.replicas[0]._projection.own.registers


def test_a_count_that_was_accepted_is_on_disk_with_the_same_list_of_effects():
    mesh = Mesh(3)
    total = 0
    for step in range(12):
        mesh.command(0, Count((("frames", step + 1),)))
        total += step + 1
        mesh.run(0.7)
        if step % 4 == 3:
            mesh.crash(0)
            mesh.boot(0)
            assert mesh.members[0].replica.views.counters()["frames"][mesh.members[0].node] == total
    mesh.run(30)
    assert mesh.agree_on_all()
    assert all(replica.views.counter_sums() == {"frames": total} for replica in mesh.replicas)


def test_a_count_is_journalled_under_a_number_that_nobody_else_will_see():
    """Two batches under one number would convict the node itself."""
    mesh = Mesh(3)
    raws = []
    member = mesh.members[0]
    for step in range(6):
        effects = member.replica.on_command(Count((("frames", 1),)), member.local_ns(mesh.now_ns))
        raws += [effect.value for effect in effects if isinstance(effect, Persist)]
        mesh.perform(member, effects)
        mesh.run(0.5 if step % 2 else 6)
    assert len(raws) == 6
    assert not any(replica.views.health()["quarantined"] for replica in mesh.replicas)


def wrong_half_hour(lose_disk):
    """One node lives with a clock half an hour ahead, cut off, says things, and is then put right by the others."""
    mesh = Mesh(5, wall=True)
    see(mesh, 1, 1, 500, 500)
    mesh.command(1, DefineCells([("a", 0, 0), ("b", 100, 0)]))
    mesh.run(5)
    mesh.crash(1, lose_disk=lose_disk)
    mesh.wrong_wall_ns[1] = HALF_HOUR
    mesh.partition(lambda index: int(index == 1))
    mesh.boot(1)
    mesh.command(1, DefineCells([("a", 0, 0), ("b", 100, 0)]))
    for track in range(1, 12):
        see(mesh, 1, track, 50_000 + track * 1000, 0)
        mesh.run(1)
    mesh.command(1, CellDone("a", 900))
    mesh.run(1)
    return mesh


def test_what_was_stamped_in_the_future_counts_for_nobody_and_is_said_again():
    for lose_disk in (False, True):
        mesh = wrong_half_hour(lose_disk)
        mesh.partition(lambda index: 0)
        mesh.run(40)
        assert mesh.agree(), lose_disk
        for replica in mesh.replicas:
            assert len(replica.views.objects()) == 12
        for index, replica in enumerate(mesh.replicas):
            mesh.command(index, DefineCells([("a", 0, 0), ("b", 100, 0)]))
            assert [cell.state for cell in replica.views.cells()] == ["done", "open"]


def test_a_journal_from_the_future_counts_no_more_than_what_peers_say():
    """The reader of future batches restarts with the right clock: it must set them aside as everybody else does."""
    mesh = wrong_half_hour(lose_disk=False)
    # Nodes 1 and 2 live together with the wrong time; 2 has all of it in its journal.
    mesh.crash(2)
    mesh.wrong_wall_ns[2] = HALF_HOUR
    mesh.partition(lambda index: int(index in (1, 2)))
    mesh.boot(2)
    mesh.run(20)
    assert len(mesh.members[2].replica.views.objects()) == 12
    mesh.crash(1)
    mesh.crash(2)
    mesh.wrong_wall_ns[2] = 0
    mesh.boot(2)
    mesh.partition(lambda index: 0)
    mesh.run(30)
    assert mesh.agree()
    mesh.wrong_wall_ns[1] = 0
    mesh.boot(1)
    mesh.run(40)
    assert mesh.agree()
    assert all(len(replica.views.objects()) == 12 for replica in mesh.replicas)


def test_what_is_shown_depends_on_what_is_held_and_not_on_what_was_said_before():
    """An author that sets its clock back by an hour says its row again with an earlier time: then it is old for all."""
    hour_ms, early = 3_600_000, 10_000_000
    row = Sighting("a", LATTICE, (1, 0), False, True, 0, 0, (1, 0, 1), 1, 0, 0, 1, b"", ())
    nodes = [bytes([n]) * 16 for n in range(2)]
    shown = []
    for history in ((early + hour_ms, early), (early,)):
        view = Projection(NodeId(nodes[0]), ReplicaConfig())
        for n, last_ms in enumerate(history):
            said = row._replace(first=early << 16, last=last_ms << 16)
            view.view.put(NodeId(nodes[1]), said, (1, n + 1))
            view.work()
            view.finish(0, early + hour_ms - 1_000)
        view.expire(early + hour_ms + 70_000, is_sure=False)
        view.finish(0, early + hour_ms + 70_000)
        shown.append([thing.object_id for thing in view.shown.objects()])
    assert shown == [[], []]


def set_clocks(mesh, rng, indices):
    for index in indices:
        mesh.crash(index)
        mesh.wrong_wall_ns[index] = rng.randrange(-2_000, 2_001) * MS
    for index in indices:
        mesh.boot(index)
        mesh.run(0.25)


def clocks_settle(seed):
    """Devices that are seconds apart, some of them restarted: half a minute later nobody's news waits anywhere."""
    rng = random.Random(seed)
    mesh = Mesh(7, seed=seed, wall=True)
    set_clocks(mesh, rng, range(7))
    mesh.run(20)
    set_clocks(mesh, rng, rng.sample(range(7), 3))
    mesh.run(30)
    times = [member.replica.clock.physical_ns(member.local_ns(mesh.now_ns)) for member in mesh.members]
    assert max(times) - min(times) <= ReplicaConfig().clock.drift_bound_ms * MS
    for index in range(7):
        see(mesh, index, 1, 1_000 * index, 50_000)
        mesh.run(0.2)
        assert not any(replica._holdings.deferred for replica in mesh.replicas)
    assert mesh.agree()


@pytest.mark.parametrize("seed", range(8))
def test_the_clocks_of_a_swarm_that_hears_each_other_settle_within_half_a_minute(seed):
    clocks_settle(seed)


def test_a_clock_that_the_median_contradicts_asks_often_until_it_is_set():
    """What peers answered a minute ago says nothing of those that have been set since."""
    now = 10**12
    clock = Clock(ClockConfig(), 0)
    nodes = [NodeId(bytes([n]) * 16) for n in range(5)]
    for node in nodes:
        clock.vote(node, now, now, now)
    now += 30 * S
    assert clock.is_sure(now)
    for node in nodes[:3]:
        clock.vote(node, now, now + 2 * S, now)
    assert not clock.is_sure(now)
    for later in (S, 6 * S):
        for node in nodes[3:]:
            clock.vote(node, now + later, now + later + 2 * S, now + later)
    assert clock.offset_ns == 2 * S
    # Whoever set it is compared with others first.
    assert not clock.is_sure(now + 7 * S)
    assert clock.is_sure(now + 30 * S)


def a_life_with_a_wrong_clock(wrong_ns):
    """Three peers whose clocks are wrong set that of a fourth, which crashes before anybody can put it right."""
    mesh = Mesh(7, wall=True)
    for index in range(7):
        mesh.crash(index)
    mesh.wrong_wall_ns = {1: wrong_ns, 2: wrong_ns, 3: wrong_ns}
    mesh.partition(lambda index: int(index > 3))
    for index in range(1, 4):
        mesh.boot(index)
    mesh.run(2)
    for index in (0, 4, 5, 6):
        mesh.boot(index)
    see(mesh, 0, 1, 1000, 2000)
    mesh.run(10)
    assert mesh.replicas[0].clock.synced
    for index in range(4):
        mesh.crash(index)
    mesh.wrong_wall_ns = {}
    mesh.partition(lambda index: 0)
    for index in (1, 2, 3, 0):
        mesh.boot(index)
    mesh.run(60)
    assert mesh.agree()
    return mesh


@pytest.mark.parametrize(
    "wrong_ns", few_fast([HOUR, -HOUR, SOON_OLD_NS, -2 * HOUR, -HALF_HOUR, HALF_HOUR, 2 * HOUR], 2)
)
def test_a_life_whose_clock_was_never_confirmed_makes_nothing_old(wrong_ns):
    mesh = a_life_with_a_wrong_clock(wrong_ns)
    assert all(len(replica.views.objects()) == 1 for replica in mesh.replicas)
    # It lasts as long as other things, and no longer.
    mesh.run(3_700)
    assert not any(replica.views.objects() for replica in mesh.replicas)


def test_what_a_life_with_a_wrong_clock_said_is_not_lost():
    mesh = a_life_with_a_wrong_clock(-HOUR)
    assert all(len(replica.views.objects()) == 1 for replica in mesh.replicas)


def law_of_unasked_times():
    """Whatever time a member tells that nobody asked it for, or tells again, the clock of the others is as without."""
    mesh = Mesh(5)
    mesh.run(20)
    victim, thief = mesh.members[0], mesh.members[4]
    clock = victim.replica.clock
    held, asked = dict(clock._votes), victim.replica._anti_entropy.time.asked
    others = [sent_ns for node, sent_ns in asked.items() if node != thief.node]
    for ahead_s in range(-50, 50):
        now_ns = victim.local_ns(mesh.now_ns)
        for sent_ns in (now_ns, now_ns - 1_000_000, *others):
            told = messages.encode(messages.ClockTell(sent_ns, clock.physical_ns(now_ns) + ahead_s * S))
            victim.replica.on_message(thief.node, told, now_ns)
    assert dict(clock._votes) == held, "a vote that nobody asked for"


def test_law_an_unasked_time_is_no_vote():
    law_of_unasked_times()


def test_a_clock_that_believes_whoever_speaks_is_found(monkeypatch):
    class Anybody(dict):
        """Whatever was told was asked for."""

        def get(self, node, default=None):
            return self.said

        def __delitem__(self, node):
            pass

    def unasked(patch):
        dispatch = Replica._dispatch

        def believing(self, sender, message, effects, now_ns):
            if isinstance(message, messages.ClockTell):
                anybody = self._anti_entropy.time.asked = Anybody()
                anybody.said = message.sent_ns
            dispatch(self, sender, message, effects, now_ns)

        patch.setattr(Replica, "_dispatch", believing)

    assert_found(unasked, law_of_unasked_times, monkeypatch)
