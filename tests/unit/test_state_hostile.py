"""Liars, thieves and broken disks: what a peer, or the journal, may do to a replica, and what comes of it."""

import random
from unittest.mock import patch

import pytest

from swarmd_protocols.effects import Alarm, Persist, Rejected
from swarmd_protocols.errors import StateError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.author import Author
from swarmd_protocols.state.crdt import messages
from swarmd_protocols.state.crdt.batch import NodeSigner, Stream, seal_batch
from swarmd_protocols.state.crdt.facts import LATTICE, Facts, Sighting, encode_facts
from swarmd_protocols.state.crdt.journal_keys import fact_key
from swarmd_protocols.state.observations import Count, LocalDetection, Observed, SetNote, StatusReport
from swarmd_protocols.state.replica import Replica
from tests.support.mutants import assert_found
from tests.support.state_mesh import CRYPTO, Mesh, S, detection

LIFE = 77


def fact(east, stamp=1 << 16, label="hot-spot"):
    row = Sighting(label, LATTICE, (east // 50, 0), False, True, east, 0, (100, 0, 100), 500, stamp, stamp, 1, b"", ())
    return encode_facts(Facts([row]))


def forged(member, dot, body, signer=None, stamp=1 << 16, previous=bytes(16)):
    return seal_batch(Stream.FACTS, member.node, dot, (0, 0), previous, stamp, body, signer or member.signer)


def give(mesh, to, sender, *batches):
    payload = messages.encode(messages.Batches(tuple(batch.raw for batch in batches)))
    member = mesh.members[to]
    effects = member.replica.on_message(mesh.members[sender].node, payload, member.local_ns(mesh.now_ns))
    mesh.perform(member, effects)
    return effects


def test_a_batch_signed_by_another_key_is_refused_and_counted():
    mesh = Mesh(3)
    thief = NodeSigner(CRYPTO, bytes(32))
    effects = give(mesh, 0, 2, forged(mesh.members[1], (LIFE, 1), fact(100), thief))
    assert any(isinstance(effect, Rejected) for effect in effects)
    assert mesh.replicas[0].views.health()["invalid"] == 1
    assert mesh.replicas[0].views.objects() == []


def test_two_payloads_under_one_dot_quarantine_their_author_everywhere():
    mesh = Mesh(4)
    liar = mesh.members[1]
    mesh.crash(1)
    give(mesh, 0, 2, forged(liar, (LIFE, 1), fact(100)))
    give(mesh, 2, 0, forged(liar, (LIFE, 1), fact(900)))
    mesh.run(5)
    for replica in mesh.replicas:
        assert replica.views.health()["quarantined"] == 1
        assert replica.views.objects() == []
    assert mesh.agree_on_all()
    assert any(isinstance(effect, Alarm) for effect in mesh.members[0].effects)
    give(mesh, 3, 0, forged(liar, (LIFE, 2), fact(500)))
    assert mesh.members[3].replica.views.objects() == []


def test_a_quarantine_survives_a_restart():
    mesh = Mesh(3)
    liar = mesh.members[1]
    give(mesh, 0, 2, forged(liar, (LIFE, 1), fact(100)))
    give(mesh, 0, 2, forged(liar, (LIFE, 1), fact(900)))
    mesh.run(3)
    mesh.crash(0)
    mesh.boot(0)
    assert mesh.members[0].replica.views.health()["quarantined"] == 1


def law_of_the_convicted(seconds):
    """What it goes on to see, count and report takes no more of its own disk than one record of each kind."""
    mesh = Mesh(3)
    liar = mesh.members[1]
    give(mesh, 0, 2, forged(liar, (LIFE, 1), fact(100)))
    give(mesh, 2, 0, forged(liar, (LIFE, 1), fact(900)))
    mesh.run(5)
    assert liar.replica.views.health()["quarantined"] == 1
    sizes = []
    for second in range(seconds):
        local_ns = liar.local_ns(mesh.now_ns)
        mesh.see(1, detection(local_ns, second + 1, 1_000 * second, 0))
        mesh.perform(liar, liar.replica.on_command(SetNote(f"note {second}", b"x" * 500), local_ns))
        mesh.perform(liar, liar.replica.on_command(Count((("seen", 1),)), local_ns))
        mesh.run(1)
        sizes.append(sum(len(key) + len(value) for key, value in liar.disk.items()))
    assert max(sizes) <= sizes[1] + 100, f"its journal grows: {sizes[1]} to {max(sizes)} B"
    mesh.crash(1)
    mesh.boot(1)
    mesh.run(5)
    assert all(replica.views.health()["quarantined"] == 1 for replica in mesh.replicas)
    assert all(replica.views.objects() == [] for replica in mesh.replicas)
    assert mesh.agree_on_all()


def test_law_who_is_convicted_does_not_fill_its_own_disk():
    law_of_the_convicted(20)


def test_an_author_that_journals_what_nobody_takes_is_found(monkeypatch):
    def shameless(patch):
        flush = Author.flush

        def journalled(self, effects, now_ns):
            items = list(self.pending)
            flush(self, effects, now_ns)
            if items and self._node in self._holdings.store.quarantined:
                batches = self.log.append(items, lambda: self._clock.tick(now_ns))
                effects += [Persist(fact_key(batch), batch.raw) for batch in batches]

        patch.setattr(Author, "flush", journalled)

    assert_found(shameless, lambda: law_of_the_convicted(8), monkeypatch)


def test_a_false_proof_convicts_nobody():
    mesh = Mesh(3)
    one = forged(mesh.members[1], (LIFE, 1), fact(100))
    two = forged(mesh.members[1], (LIFE, 1), fact(900), NodeSigner(CRYPTO, bytes(32)))
    for first, second in (
        (one, two),
        (one, one),
        (one, forged(mesh.members[1], (LIFE, 2), fact(5), previous=b"x" * 16)),
    ):
        payload = messages.encode(messages.Proof(first.raw, second.raw))
        mesh.members[0].replica.on_message(mesh.members[2].node, payload, mesh.now_ns)
    assert mesh.replicas[0].views.health()["quarantined"] == 0


def test_a_clock_an_hour_ahead_shows_nothing_and_drags_nobody():
    mesh = Mesh(3)
    replica = mesh.members[0].replica
    future = (replica.clock.physical_ms(mesh.now_ns) + 3_600_000) << 16
    give(mesh, 0, 2, forged(mesh.members[1], (LIFE, 1), fact(100, future), stamp=future))
    assert replica.views.objects() == []
    assert replica.views.health()["deferred"] == 1
    assert (replica.clock.tick(mesh.now_ns) >> 16) <= replica.clock.physical_ms(mesh.now_ns) + 1
    mesh.run(1)
    assert mesh.agree()


def test_certificates_of_the_departed_are_learned_from_peers():
    mesh = Mesh(2)
    stranger = Mesh(5).members[4]
    body = forged(stranger, (LIFE, 1), fact(100))
    mesh.members[0].trust.admit_certificate(stranger.identity.certificate)
    give(mesh, 0, 1, body)
    mesh.run(5)
    assert mesh.agree()
    assert len(mesh.replicas[1].views.objects()) == 1


def test_news_of_an_author_never_met_is_read_before_any_comparison():
    """Whoever sends it is asked for the certificate."""
    mesh = Mesh(2)
    stranger = Mesh(5).members[4]
    mesh.members[1].trust.admit_certificate(stranger.identity.certificate)
    with patch.object(Replica, "on_summary", lambda *_: []):
        give(mesh, 0, 1, forged(stranger, (LIFE, 1), fact(100)))
        mesh.run(2)
    assert len(mesh.replicas[0].views.objects()) == 1


def test_a_torn_journal_is_recovered_and_named():
    mesh = Mesh(2)
    for track in range(6):
        mesh.see(0, detection(mesh.members[0].local_ns(mesh.now_ns), track, track * 1000))
        mesh.run(0.2)
    rng = random.Random(6)
    mesh.crash(0)
    disk = mesh.members[0].disk
    for key in sorted(disk):
        if rng.random() < 0.5:
            value = bytearray(disk[key])
            value[rng.randrange(len(value))] ^= 0x40
            disk[key] = bytes(value[: rng.randrange(1, len(value) + 1)])
    mesh.boot(0)
    assert any(isinstance(effect, Alarm) and "left out" in effect.text for effect in mesh.members[0].effects)
    mesh.see(0, detection(mesh.members[0].local_ns(mesh.now_ns), 99, 99_000))
    mesh.run(5)
    assert mesh.agree_on_all()
    assert len(mesh.replicas[0].views.objects()) == 7
    assert mesh.replicas[0].views.health()["quarantined"] == 0


def test_an_old_backup_of_the_journal_never_contradicts_what_was_said():
    mesh = Mesh(3)
    mesh.see(0, detection(mesh.members[0].local_ns(mesh.now_ns), 1, 1000))
    backup = dict(mesh.members[0].disk)
    mesh.run(1)
    mesh.see(0, detection(mesh.members[0].local_ns(mesh.now_ns), 2, 5000))
    mesh.run(1)
    mesh.crash(0)
    mesh.members[0].disk = backup
    mesh.members[0].boots = 0
    mesh.boot(0)
    mesh.see(0, detection(mesh.members[0].local_ns(mesh.now_ns), 3, 9000))
    mesh.run(5)
    assert mesh.agree_on_all()
    assert [len(replica.views.objects()) for replica in mesh.replicas] == [3, 3, 3]
    assert all(replica.views.health()["quarantined"] == 0 for replica in mesh.replicas)


def test_the_same_boot_number_twice_after_a_lost_disk_does_not_convict_an_honest_node():
    mesh = Mesh(3)
    mesh.see(0, detection(mesh.members[0].local_ns(mesh.now_ns), 1, 1000))
    mesh.run(2)
    mesh.crash(0, lose_disk=True)
    mesh.members[0].boots = 0
    mesh.boot(0)
    mesh.run(3)
    mesh.see(0, detection(mesh.members[0].local_ns(mesh.now_ns), 1, 9000))
    mesh.run(5)
    assert mesh.agree_on_all()
    assert all(replica.views.health()["quarantined"] == 0 for replica in mesh.replicas)
    assert [len(replica.views.objects()) for replica in mesh.replicas] == [2, 2, 2]


@pytest.mark.parametrize("spoke", [False, True])
def test_two_lives_in_one_second_on_a_lost_journal_do_not_convict_an_honest_node(spoke):
    """The second speaks before anybody could tell it what the first had said."""
    mesh = Mesh(3)
    mesh.see(0, detection(mesh.members[0].local_ns(mesh.now_ns), 1, 1000))
    mesh.run(2)
    for life in range(1, 6):
        mesh.crash(0, lose_disk=True)
        mesh.members[0].boots = 0  # A device without a clock of its own begins every life in the same second.
        if spoke:
            mesh.partition(lambda index: index == 0)
        mesh.boot(0)
        mesh.see(0, detection(mesh.members[0].local_ns(mesh.now_ns), life, 1000 + 8000 * life))
        mesh.run(1)
        mesh.partition(lambda index: 0)
        mesh.run(4)
        assert all(replica.views.health()["quarantined"] == 0 for replica in mesh.replicas)
    assert mesh.agree_on_all()
    assert [len(replica.views.objects()) for replica in mesh.replicas] == [6, 6, 6]


@pytest.mark.parametrize(
    "request_",
    [
        StatusReport(bytes(2000)),
        Count((("x" * 60, 1),)),
        Count((("x", -1),)),
        Observed((LocalDetection("new", 1, "", 500, None, None, None, "", False, 0, b""),)),
        Observed((LocalDetection("new", 1, "a", 1500, None, None, None, "", False, 0, b""),)),
        Observed((LocalDetection("new", 1, "a", 500, 5, None, None, "", False, 0, b""),)),
        Observed((LocalDetection("new", 1, "a", 500, 5, 5, (1, 9, 1), "", False, 0, b""),)),
        Observed((LocalDetection("new", 1, "a", 500, 10**9, 5, (1, 0, 1), "", False, 0, b""),)),
        "nonsense",
    ],
)
def test_a_local_request_that_makes_no_sense_changes_nothing(request_):
    mesh = Mesh(1)
    with pytest.raises(StateError):
        mesh.members[0].replica.on_command(request_, mesh.now_ns)
    assert mesh.replicas[0].views.objects() == []


def test_a_flood_of_sightings_is_bounded():
    from msgspec.structs import replace

    from swarmd_protocols.state.replica import ReplicaConfig

    config = replace(ReplicaConfig(), origin_cost_max=50_000)
    mesh = Mesh(2, config=config)
    mesh.crash(1)
    previous = bytes(16)
    for n in range(1, 200):
        batch = forged(mesh.members[1], (LIFE, n), fact(n * 1000), previous=previous)
        previous = batch.digest
        give(mesh, 0, 1, batch)
    mesh.run(2)
    assert mesh.replicas[0].views.health()["sightings"] <= 20
    assert mesh.replicas[0].views.health()["bytes_held"] <= 10_000
    assert sum(key.startswith(b"state/o/") for key in mesh.members[0].disk) <= 20


def test_an_unknown_author_is_held_back_within_bounds():
    mesh = Mesh(2)
    for n in range(1000):
        stranger = NodeSigner(CRYPTO, n.to_bytes(2, "big") * 16)
        node = NodeId(n.to_bytes(16, "big"))
        give(mesh, 0, 1, seal_batch(Stream.FACTS, node, (1, 1), (0, 0), bytes(16), 1, fact(1), stranger))
    assert mesh.replicas[0].views.health()["waiting_for_certificates"] <= 64
    assert S
