"""Origins are members: whatever happens to who belongs to the fleet, all who know the same trust have one state.

The rule (docs/protocols/state.md, "Who counts"): the state is that of the origins which the trust in force certifies.
Random histories of sightings, restarts, partitions, newcomers, revocations, names enrolled anew and replaced enrol
keys; then quiet, then the laws.
"""

import random

import pytest

from swarmd_protocols.state.crdt.records import EventRow
from swarmd_protocols.state.observations import CellDone, Count, DefineCells, SayEvent, SetNote
from tests.support.state_mesh import Mesh, detection
from tests.support.tiers import few_fast

CELLS = [(f"c{n}", n * 1000, 0) for n in range(12)]


def see(mesh, index, track, east, north=0, sigma_cm=10):
    member = mesh.members[index]
    mesh.see(index, detection(member.local_ns(mesh.now_ns), track, east, north, sigma_cm))


def facts_of(replica, node):
    """Everything that a replica shows of one node."""
    views = replica.views
    return {
        "sightings": [view for view in views.detections() if view.origin == node],
        "observer": [thing for thing in views.objects() if node in thing.observers],
        "done": [cell.cell_id for cell in views.cells() if node in cell.done_by],
        "held": [cell.cell_id for cell in views.cells() if cell.holder == node],
        "counters": [name for name, by in views.counters().items() if node in by],
        "status": views.status(node),
        "events": views.events().get(node, ()),
    }


def shows_nothing_of(replica, node):
    return not any(facts_of(replica, node).values())


def others(mesh, node):
    return [member.replica for member in mesh.members if member.replica is not None and member.node != node]


def history(mesh, index):
    """One member says something of every kind."""
    mesh.command(index, DefineCells(CELLS))
    see(mesh, index, 1, 1000 * index, 500)
    mesh.command(index, CellDone(f"c{index}", 900))
    mesh.command(index, Count((("frames", 5),)))
    mesh.command(index, SetNote(f"note{index}", b"x"))
    mesh.command(index, SayEvent(EventRow(1, 1, 0, "failed", f"drone-{index}", "", "")))


def test_revoking_a_node_takes_its_facts_out_of_every_view_and_keeps_them_out():
    mesh = Mesh(5, seed=1)
    for index in range(5):
        history(mesh, index)
    mesh.run(8)
    thief = mesh.members[4]
    assert all(facts_of(replica, thief.node)["sightings"] for replica in mesh.replicas)
    mesh.revoke(thief, told=mesh.members[:4])
    mesh.tell_peers()
    mesh.run(5)
    for _ in range(2):
        for replica in others(mesh, thief.node):
            assert shows_nothing_of(replica, thief.node)
            assert "note4" not in replica.views.notes()
        assert len({replica.views.digest() for replica in others(mesh, thief.node)}) == 1
        for member in mesh.members[:4]:
            rows = [key for key in member.disk if key.startswith(b"state/o/") and key[8:24] == thief.node]
            assert not rows
        # Rolling reboots, and the thief goes on talking.
        for index in range(4):
            mesh.crash(index)
            mesh.run(1)
            mesh.boot(index)
            mesh.command(index, DefineCells(CELLS))
            mesh.run(2)
        see(mesh, 4, 7, 77_000)
        mesh.run(5)


def test_what_others_saw_too_stays_when_the_first_to_say_it_is_revoked():
    """A node that only said "I see it too" says its own sighting when that of the revoked node goes."""
    for move in (False, True):
        mesh = Mesh(4, seed=2)
        see(mesh, 3, 1, 5_000, sigma_cm=5)
        mesh.run(2)
        see(mesh, 0, 1, 5_003, sigma_cm=30)
        mesh.run(2)
        assert not facts_of(mesh.replicas[1], mesh.members[0].node)["sightings"], "it only joined"
        if move:
            # The liar's thing is elsewhere now, and 0's is where it was.
            liar = mesh.members[3].replica
            row = next(iter(liar._projection.own.registers.values())).row
            liar._author.pending.append(row._replace(east_cm=900_000))
            mesh.see(3)
        else:
            mesh.revoke(mesh.members[3], told=mesh.members[:3])
        mesh.run(5)
        for replica in mesh.replicas[:3]:
            assert any(thing.east_cm == 5_003 for thing in replica.views.objects())


def test_a_proof_against_a_node_goes_with_it():
    from swarmd_protocols.state.crdt import messages
    from tests.unit.test_state_attacks import Done, Facts, pen_of

    mesh = Mesh(4, seed=3)
    mesh.run(2)
    first, second = (pen_of(3).write(Facts([], [], [Done(bytes([n]) * 6, 1)])) for n in (1, 2))
    mesh.crash(3)
    payload = messages.encode(messages.Batches((first.raw, second.raw)))
    mesh.perform(mesh.members[0], mesh.members[0].replica.on_message(mesh.members[1].node, payload, mesh.now_ns))
    mesh.run(5)
    assert all(replica.views.health()["quarantined"] == 1 for replica in mesh.replicas)
    mesh.revoke(mesh.members[3], told=mesh.members[:2])
    mesh.run(1)
    assert not mesh.agree(), "who knows of the revocation has another state"
    mesh.revoke(mesh.members[3], told=mesh.members[2:3])
    mesh.run(5)
    assert mesh.agree()
    assert all(replica.views.health()["quarantined"] == 0 for replica in mesh.replicas)
    mesh.crash(0)
    mesh.boot(0)
    mesh.run(3)
    assert mesh.agree()


def test_a_name_enrolled_again_drops_the_facts_of_the_old_key():
    mesh = Mesh(4, seed=4)
    history(mesh, 3)
    mesh.run(5)
    old = mesh.members[3]
    mesh.crash(3)
    mesh.enrol_again(3, counter=2)
    mesh.run(3)
    history(mesh, 3)
    mesh.run(8)
    assert mesh.agree()
    assert mesh.members[3].node != old.node
    for replica in mesh.replicas:
        assert shows_nothing_of(replica, old.node)
        assert facts_of(replica, mesh.members[3].node)["sightings"]


def test_facts_outlive_the_replacement_of_the_enrol_keys_their_author_away():
    """Certificates are signed anew while their subject is away, and reach the nodes before or after the new root."""
    for certificates_first in (False, True):
        mesh = Mesh(4, seed=5)
        for index in range(4):
            history(mesh, index)
        mesh.run(6)
        away = mesh.members[3]
        mesh.crash(3)
        mesh.rotate_enrol(re_sign=False)
        if not certificates_first:
            mesh.run(3)
            for replica in mesh.replicas:
                assert shows_nothing_of(replica, away.node)
            mesh.crash(0)
            mesh.boot(0)
            mesh.run(2)
        mesh.re_sign()
        mesh.run(10)
        assert mesh.agree()
        for replica in mesh.replicas:
            assert facts_of(replica, away.node)["sightings"], certificates_first


def test_a_newcomer_reads_the_facts_of_an_author_whom_it_never_met():
    """Membership does not bring the certificate of who is gone: it comes with the facts."""
    mesh = Mesh(3, seed=6)
    history(mesh, 2)
    mesh.run(5)
    gone = mesh.members[2]
    mesh.crash(2)
    mesh.newcomer(103)
    newcomer = mesh.members[-1].replica
    assert newcomer._intake.key_of(gone.node) is None
    mesh.run(5)
    assert mesh.agree()
    assert facts_of(newcomer, gone.node)["sightings"]


def play(seed, steps=45):
    """A random history; who is out for good, and what members have seen."""
    rng = random.Random(seed)
    mesh = Mesh(rng.randint(3, 5), seed=seed, loss=rng.choice((0.0, 0.0, 0.2)), wall=True)
    out, seen, enrolled, track = set(), {}, 0, 0
    for _ in range(steps):
        index = rng.randrange(len(mesh.members))
        member = mesh.members[index]
        alive = member.replica is not None and member.node not in out
        action = rng.choice(
            ["see"] * 6 + ["reboot", "cut", "heal", "newcomer", "revoke", "again", "rotate", "run", "run"]
        )
        honest = [one for one in mesh.members if one.node not in out]
        if action == "see" and alive:
            track += 1
            see(mesh, index, track, 3_000 * track)
            seen.setdefault(member.node, []).append(3_000 * track)
            mesh.command(index, SetNote(f"k{rng.randrange(3)}", b"%d" % track))
        elif action == "reboot" and alive:
            mesh.run(0.5)
            mesh.crash(index)
            mesh.run(rng.random() * 2)
            mesh.boot(index)
        elif action == "cut":
            side = {one.index: rng.randrange(2) for one in mesh.members}
            mesh.partition(lambda index, side=side: side.get(index, 0))
        elif action == "heal":
            mesh.partition(lambda index: 0)
        elif action == "newcomer" and len(mesh.members) < 7:
            mesh.newcomer(100 + len(mesh.members))
        elif action == "revoke" and len(honest) > 3 and alive:
            out.add(member.node)
            told = [one for one in mesh.members if rng.random() < 0.7]
            mesh.revoke(member, told=told or mesh.members)
            mesh.tell_peers()
        elif action == "again" and alive and enrolled < 2:
            enrolled += 1
            out.add(member.node)
            mesh.crash(index)
            mesh.enrol_again(index, counter=mesh.certificates[member.identity.name] + 1)
        elif action == "rotate":
            mesh.rotate_enrol(re_sign=rng.random() < 0.5)
        mesh.run(rng.random() * 1.5)
    mesh.partition(lambda index: 0)
    mesh.re_sign()
    mesh.spread_trust()
    mesh.tell_peers()
    return mesh, out, seen


@pytest.mark.parametrize("seed", few_fast(range(14), 3))
def test_all_who_know_the_same_trust_have_one_state(seed):
    mesh, out, seen = play(seed)
    mesh.loss = 0.0
    mesh.run(30)
    members = [member for member in mesh.members if member.replica is not None and member.node not in out]
    for member in members:
        for node in out:
            assert shows_nothing_of(member.replica, node), f"{member.index} shows what {node.hex()[:6]} said"
    assert len({member.replica.views.digest() for member in members}) == 1
    assert len({repr(member.replica.views.objects()) for member in members}) == 1
    assert len({repr(member.replica.views.notes()) for member in members}) == 1
    for member in members:
        own = {view.east_cm for view in member.replica.views.detections() if view.origin == member.node}
        assert own >= set(seen.get(member.node, ())), "an own fact was lost on the way"
