"""Bytes from outside: every truncation, flip and random string reads or is refused; nothing raises or grows.

`SWARMD_FUZZ` says how many random mutations (default 3,000).
"""

import os
import random

from swarmd_protocols.crypto import SIGNATURE_BYTES
from swarmd_protocols.errors import WireError
from swarmd_protocols.state.crdt import messages
from swarmd_protocols.state.crdt.batch import HEAD_BYTES, open_batch
from swarmd_protocols.state.crdt.facts import decode_facts
from swarmd_protocols.state.crdt.records import decode_counters, decode_events, decode_leases
from swarmd_protocols.state.observations import Count, SetNote, StatusReport
from tests.support.state_mesh import Mesh, detection

COUNT = int(os.environ.get("SWARMD_FUZZ", "3000"))


def corpus():
    """Real payloads of every kind, caught on the wire of a small lossy swarm."""
    mesh = Mesh(3, loss=0.3)
    caught = {}
    send = mesh.send

    def tap(member, effect):
        kind = effect.payload[1]
        caught.setdefault(kind, []).append(effect.payload)
        send(member, effect)

    mesh.send = tap
    for step in range(30):
        member = mesh.members[step % 3]
        mesh.see(step % 3, detection(member.local_ns(mesh.now_ns), step, step * 100, 0))
        mesh.command(step % 3, Count((("frames", 1),)))
        mesh.command(step % 3, SetNote(f"k{step % 4}", b"v" * step))
        mesh.command(step % 3, StatusReport(b"status"))
        mesh.run(0.2)
    return mesh, [payload for payloads in caught.values() for payload in payloads[:30]]


def mutate(rng, payload):
    data = bytearray(payload)
    for _ in range(rng.randint(1, 4)):
        how = rng.randrange(5)
        at = rng.randrange(len(data)) if data else 0
        if how == 0 and data:
            data[at] ^= 1 << rng.randrange(8)
        elif how == 1 and data:
            data[at] = rng.choice([0, 0x7F, 0x80, 0xC4, 0xDC, 0xFF])
        elif how == 2:
            del data[at:]
        elif how == 3:
            data[at:at] = rng.randbytes(rng.randrange(9))
        else:
            del data[at : at + rng.randrange(9)]
    return bytes(data)


def test_mutated_payloads_never_raise():
    mesh, payloads = corpus()
    rng = random.Random(1)
    victim, sender = mesh.members[0], mesh.members[1].node
    digest = None
    for count in range(COUNT):
        victim.replica.on_message(sender, mutate(rng, rng.choice(payloads)), victim.local_ns(mesh.now_ns) + count)
    digest = victim.replica.views.digest()
    assert len(digest) == 16
    assert victim.replica.views.health()["waiting_for_certificates"] <= 64
    assert victim.replica.views.health()["quarantined"] == 0


def test_mutated_bodies_read_or_are_refused():
    _, payloads = corpus()
    rng = random.Random(2)
    bodies = []
    for payload in payloads:
        message = messages.decode(payload)
        if isinstance(message, messages.Batches):
            bodies += [raw[HEAD_BYTES:-SIGNATURE_BYTES] for raw in message.raws]
    readers = (decode_facts, decode_counters, decode_events, decode_leases, messages.decode, open_batch)
    read, refused = set(), set()
    for _ in range(COUNT):
        body = mutate(rng, rng.choice(bodies))
        for reader in readers:
            try:
                reader(body)
                read.add(reader)
            except WireError:
                refused.add(reader)
    assert {decode_facts, decode_counters} <= read
    assert refused == set(readers)


def test_every_truncation_and_flip_of_one_payload():
    mesh, payloads = corpus()
    victim, sender = mesh.members[0], mesh.members[1].node
    payload = max((p for p in payloads if len(p) < 700), key=len)
    for end in range(len(payload)):
        victim.replica.on_message(sender, payload[:end], victim.local_ns(mesh.now_ns))
    for bit in range(len(payload) * 8):
        flipped = bytearray(payload)
        flipped[bit // 8] ^= 1 << bit % 8
        victim.replica.on_message(sender, bytes(flipped), victim.local_ns(mesh.now_ns))
    assert victim.replica.views.health()["quarantined"] == 0


def test_a_mutated_journal_never_raises():
    from swarmd_protocols.state.replica import Replica

    mesh, _ = corpus()
    rng = random.Random(3)
    member = mesh.members[0]
    held = set()
    for _ in range(max(20, COUNT // 100)):
        disk = {key: mutate(rng, value) if rng.random() < 0.3 else value for key, value in member.disk.items()}
        if rng.random() < 0.5:
            disk[b"state/" + rng.randbytes(6)] = rng.randbytes(20)
        replica = Replica(member.node, member.signer, member.trust, mesh.config, random.Random(1), disk, 99)
        replica.start(0)
        held.add(replica.views.health()["batches_held"])
    assert len(held) > 1, "some journals say less than others"
