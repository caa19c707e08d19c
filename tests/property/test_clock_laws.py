"""What wrong clocks must not do: an accepted detection stays in every view, whatever the clocks of its swarm said."""

import random

import pytest

from swarmd_protocols.state.dedup.config import DedupConfig
from swarmd_protocols.state.replica import ReplicaConfig
from tests.support.state_mesh import Mesh, S, detection
from tests.support.tiers import few_fast

HOUR = 3_600 * S
NODES = 7
SWARMS = (
    (0, 0, 0, -60 * S, 60 * S, -HOUR, -HOUR, HOUR),
    (0, -60 * S, -HOUR, -HOUR, -2 * HOUR),
    (0, 0, 0, 0, -HOUR),
)
"""How wrong a clock is at a boot, in swarms where few are, where most are slow, where one in five is an hour slow."""
FAST_MOST = 2
"""Clocks that run ahead at the same time. Three of them that live together long enough confirm each other, and what
they then call old is: nobody can know better."""


def wrong_clocks(seed):
    """Restarts with wrong clocks, partitions and detections in between; then everybody hears everybody for a minute.

    Returns:
        The mesh, and what was accepted where: node, east and north in centimetres.
    """
    rng = random.Random(seed)
    config = ReplicaConfig(slack_rows=rng.choice([0, 4, 128]), dedup=DedupConfig(refresh_ms=rng.choice([500, 10_000])))
    mesh = Mesh(NODES, seed, wall=True, config=config)
    wrong_ns = rng.choice(SWARMS)
    places: list[tuple[int, int]] = []
    accepted: set[tuple[int, int, int]] = set()
    mesh.run(rng.choice([2, 30]))
    for _ in range(rng.randint(6, 24)):
        action = rng.choice(["see"] * 4 + ["restart", "restart", "cut", "heal"])
        if action == "see":
            index = rng.randrange(NODES)
            if not places or rng.random() < 0.7:
                places.append((1_000 * len(places), rng.randrange(3) * 50_000))
            track = rng.choice([len(places) - 1, rng.randrange(len(places))])
            # The less certain one only joins what another node has said.
            look(mesh, index, track, *places[track], sigma_cm=rng.choice([10, 10, 40]))
            accepted.add((index, *places[track]))
        elif action == "restart":
            restart(mesh, rng, rng.sample(range(NODES), rng.choice([1, 1, 2, 3])), wrong_ns)
        elif action == "cut":
            side = frozenset(rng.sample(range(NODES), rng.randint(1, 4)))
            mesh.partition(lambda index, side=side: int(index in side))
        else:
            mesh.partition(lambda index: 0)
        mesh.run(rng.choice([0.3, 1, 3, 10, 30]))
    mesh.partition(lambda index: 0)
    mesh.run(60)
    return mesh, accepted


def look(mesh, index, track, east, north, sigma_cm=10):
    mesh.see(index, detection(mesh.members[index].local_ns(mesh.now_ns), track, east, north, sigma_cm))
    mesh.run(0.1)


def restart(mesh, rng, down, wrong_ns):
    for index in down:
        mesh.crash(index)
    mesh.run(rng.choice([0.2, 2]))
    for index in down:
        wrong = rng.choice(wrong_ns)
        mesh.wrong_wall_ns[index] = 0
        if wrong < 0 or sum(ns > 0 for ns in mesh.wrong_wall_ns.values()) < FAST_MOST:
            mesh.wrong_wall_ns[index] = wrong
        mesh.boot(index)
        mesh.run(rng.choice([0, 0.5]))


def shown_by_all(mesh):
    """What every node shows: who has seen what where."""
    return set.intersection(
        *(
            {
                (mesh.by_node[observer].index, thing.east_cm, thing.north_cm)
                for thing in replica.views.objects()
                for observer in thing.observers
            }
            for replica in mesh.replicas
        )
    )


def most_clocks_agree(mesh):
    """Two halves that meet with different times keep them, slewing: of that nothing follows here."""
    times = sorted(member.replica.clock.physical_ns(member.local_ns(mesh.now_ns)) for member in mesh.members)
    most = len(times) // 2 + 1
    spans = [times[first + most - 1] - times[first] for first in range(len(times) - most + 1)]
    return min(spans) <= mesh.config.clock.drift_bound_ms * 1_000_000


def check(seed):
    mesh, accepted = wrong_clocks(seed)
    if not most_clocks_agree(mesh):
        return
    assert not accepted - shown_by_all(mesh)
    assert mesh.agree()


@pytest.mark.parametrize("seed", few_fast(range(24), 4))
def test_no_accepted_detection_goes_because_a_clock_was_wrong(seed):
    check(seed)


def test_one_slow_peer_makes_no_starting_node_say_its_log_again():
    """Whoever answers first, honest or not, says what time it is until others have; that must not cost a whole log."""
    mesh = Mesh(NODES, wall=True)
    for track in range(40):
        look(mesh, 0, track, 1_000 * track, 0)
    mesh.run(30)
    mesh.crash(0)
    mesh.crash(1)
    mesh.wrong_wall_ns[1] = -HOUR
    mesh.partition(lambda index: int(index < 2))
    mesh.boot(1)
    mesh.boot(0)
    mesh.run(15)
    assert mesh.members[0].replica.clock.physical_ns(0) < mesh.members[2].replica.clock.physical_ns(0) - HOUR // 2
    mesh.partition(lambda index: 0)
    mesh.run(30)
    assert mesh.members[0].replica._author.log.written == 0
    assert mesh.agree()


def test_three_slow_peers_that_set_a_starting_clock_make_nothing_old():
    """Its log is said again with their time, and with the right one when the others are heard."""
    mesh = Mesh(9, wall=True)
    look(mesh, 0, 1, 1_000, 2_000)
    mesh.run(30)
    mesh.partition(lambda index: int(index < 4))
    for index in range(4):
        mesh.crash(index)
    mesh.wrong_wall_ns = {1: -HOUR, 2: -HOUR, 3: -HOUR}
    for index in (1, 2, 3, 0):
        mesh.boot(index)
    mesh.run(15)
    assert mesh.members[0].replica._author.log.written
    mesh.partition(lambda index: 0)
    mesh.run(60)
    assert (0, 1_000, 2_000) in shown_by_all(mesh)


def test_a_confirmed_clock_that_is_set_wrong_afterwards_is_not_believed_in_the_next_life():
    mesh = Mesh(NODES, wall=True)
    look(mesh, 0, 1, 1_000, 2_000)
    mesh.run(40)
    assert mesh.members[0].replica._author.sure_life
    mesh.partition(lambda index: int(index < 6))
    for index in range(1, 6):
        mesh.crash(index)
        mesh.wrong_wall_ns[index] = -HOUR
    for index in range(1, 6):
        mesh.boot(index)
    zero = mesh.members[0]
    mesh.run_until(lambda: zero.replica.clock.physical_ns(0) < mesh.members[6].replica.clock.physical_ns(0) - S, 60)
    for index in range(6):
        mesh.crash(index)
    mesh.wrong_wall_ns = {}
    mesh.partition(lambda index: 0)
    for index in (1, 2, 3, 4, 5, 0):
        mesh.boot(index)
    mesh.run(60)
    assert (0, 1_000, 2_000) in shown_by_all(mesh)


@pytest.mark.parametrize("dies", [False, True])
def test_who_joined_by_a_slow_clock_keeps_the_thing_in_view(dies):
    """Seen first 50 minutes ago and again just now, by a node that thought it was an hour earlier."""
    mesh = Mesh(5, wall=True)
    look(mesh, 1, 1, 1_000, 2_000)
    mesh.run(3_000)
    mesh.crash(0)
    mesh.wrong_wall_ns[0] = -HOUR
    mesh.partition(lambda index: int(index == 0))
    mesh.boot(0)
    look(mesh, 0, 1, 1_000, 2_000, sigma_cm=40)
    if dies:
        mesh.crash(0)
        mesh.wrong_wall_ns[0] = 0
        mesh.boot(0)
    mesh.partition(lambda index: 0)
    mesh.run(900)
    assert shown_by_all(mesh) == {(0, 1_000, 2_000), (1, 1_000, 2_000)}


def test_a_thing_that_is_seen_all_the_time_is_shown_all_the_time():
    """An earlier life stamped it two hours ahead: what it is seen at now is less, and is said all the same."""
    mesh = Mesh(4, wall=True)
    mesh.crash(0)
    mesh.wrong_wall_ns[0] = 2 * HOUR
    mesh.partition(lambda index: int(index == 0))
    mesh.boot(0)
    look(mesh, 0, 1, 1_000, 2_000)
    mesh.crash(0)
    mesh.wrong_wall_ns[0] = 0
    mesh.partition(lambda index: 0)
    mesh.boot(0)
    for _ in range(65):
        mesh.run(60)
        assert (0, 1_000, 2_000) in shown_by_all(mesh)
        look(mesh, 0, 1, 1_000, 2_000)


def test_a_small_step_of_the_clock_makes_nothing_seen_anew():
    """An earlier life stamped it two hours ahead: it was seen before this life said so, and not at each later step."""
    mesh = Mesh(4, wall=True)
    mesh.crash(0)
    mesh.wrong_wall_ns[0] = 2 * HOUR
    mesh.partition(lambda index: int(index == 0))
    mesh.boot(0)
    look(mesh, 0, 1, 1_000, 2_000)
    mesh.run(5)
    mesh.crash(0)
    mesh.wrong_wall_ns[0] = 0
    mesh.boot(0)
    mesh.partition(lambda index: 0)
    mesh.run(60)
    (before,) = [thing.last_hlc for thing in mesh.replicas[1].views.objects()]
    mesh.run(120)
    mesh.members[0].replica.clock._stepped_ms = 60
    look(mesh, 0, 2, 90_000, 90_000)
    mesh.run(20)
    first = min(thing.last_hlc for thing in mesh.replicas[1].views.objects())
    assert first - before <= 60 << 16
