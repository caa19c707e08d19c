"""Golden bytes of the replicated state's wire formats, checked both ways; a changed vector means a new wire version.

`SWARMD_WRITE_VECTORS=1 pytest tests/unit/test_state_vectors.py` writes them anew.
"""

import json
import os
from pathlib import Path

import pytest

from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.errors import WireError
from swarmd_protocols.ids import NodeId, node_id_of
from swarmd_protocols.state.crdt import messages
from swarmd_protocols.state.crdt.batch import HEAD_BYTES, SIGNATURE_BYTES, NodeSigner, Stream, open_batch, seal_batch
from swarmd_protocols.state.crdt.facts import (
    ASSET,
    LATTICE,
    TRACK,
    Done,
    Facts,
    Join,
    NotePut,
    NoteRemoval,
    Sighting,
    decode_facts,
    encode_facts,
)
from swarmd_protocols.state.crdt.records import Lease, decode_counters, decode_leases, encode_counters, encode_leases

FILE = Path(__file__).resolve().parents[2] / "protocols" / "vectors" / "state.json"
WRITE = "SWARMD_WRITE_VECTORS" in os.environ
CRYPTO = NaClCrypto()
SEED = bytes(range(32))
NODE = node_id_of(CRYPTO.public_key(SEED))
SIGNER = NodeSigner(CRYPTO, SEED)
OTHER = NodeId(bytes(range(16)))
MINUTE = 60_000 << 16


def rows(*kinds):
    place = {LATTICE: (-3, 41), ASSET: "t03-m17", TRACK: (7, 12)}
    return [
        Sighting(
            "hot-spot", kind, place[kind], kind == TRACK, kind != TRACK or n > 1, -120 - n, 2_061, (100, -7, 121), 870,
            MINUTE + (n << 16), 2 * MINUTE, 3 + n, b"modelsha", ((1, -2),) if kind == LATTICE else (),
        )
        for n, kind in enumerate(kinds)
    ]  # fmt: skip


def facts():
    return Facts(
        rows(LATTICE, ASSET, TRACK),
        [Join(OTHER, ("hot-spot", LATTICE, (5, 6)), MINUTE, 2 * MINUTE)],
        [Done(b"cell42", 900)],
        [NotePut(7, 1, MINUTE, "zone", b"closed", ((OTHER, 3, 1),))],
        [NoteRemoval("old", ((NODE, 6, 2),))],
    )


def batch(stream, body, n=1, previous=bytes(16)):
    return seal_batch(stream, NODE, (7, n), (0, 0), previous, 3 * MINUTE, body, SIGNER).raw


def samples():
    leases = (Lease(b"cell42", 5, 2, True, 70_000, 4), Lease(b"cell43", 6, 0, False, 90_000, 0))
    one = batch(Stream.FACTS, encode_facts(Facts(rows(LATTICE))))
    two = batch(Stream.FACTS, encode_facts(facts()))
    row = (bytes(NODE), ((0, 7, 3, b"\1\2\3\4"), (1, 7, 9, b"\5\6\7\x08")))
    return {
        "facts body, every kind": encode_facts(facts()),
        "facts body, lattice only": encode_facts(Facts(rows(LATTICE))),
        "lease body": encode_leases(leases),
        "counter body": encode_counters({"frames": 12_345, "detections": 17}),
        "batch of facts": two,
        "batch of leases": batch(Stream.LEASES, encode_leases(leases)),
        "batch of status": batch(Stream.STATUS, b"opaque"),
        "message Batches": messages.encode(messages.Batches((one,))),
        "message Have": messages.encode(messages.Have((row,), 3, True, 0xFFFF_FFFF)),
        "message Buckets": messages.encode(messages.Buckets(bytes(range(128)), bytes(128))),
        "message Proof": messages.encode(messages.Proof(one, two)),
        "message ClockAsk": messages.encode(messages.ClockAsk(123_456_789)),
        "message ClockTell": messages.encode(messages.ClockTell(123_456_789, 987_654_321)),
        "message KeyAsk": messages.encode(messages.KeyAsk((bytes(NODE),))),
        "message KeyTell": messages.encode(messages.KeyTell((CRYPTO.public_key(SEED),))),
    }


def read_again(name, data):
    if name.startswith("facts"):
        return encode_facts(decode_facts(data))
    if name.startswith("lease"):
        return encode_leases(decode_leases(data))
    if name.startswith("counter"):
        return encode_counters(decode_counters(data))
    if name.startswith("batch"):
        opened = open_batch(data)
        sealed = seal_batch(
            opened.stream, opened.origin, opened.dot, opened.base, opened.previous, opened.stamp, opened.body, SIGNER
        )
        return sealed.raw
    return messages.encode(messages.decode(data))


def test_vectors_both_ways():
    found = samples()
    if WRITE:
        FILE.parent.mkdir(exist_ok=True)
        table = [{"name": name, "hex": data.hex()} for name, data in found.items()]
        FILE.write_text(json.dumps(table, indent=1) + "\n")
    stored = {entry["name"]: bytes.fromhex(entry["hex"]) for entry in json.loads(FILE.read_text())}
    assert stored == found
    for name, data in stored.items():
        assert read_again(name, data) == data, name


@pytest.mark.parametrize("name", list(samples()))
def test_every_truncation_and_flip_reads_or_is_refused(name):
    data = samples()[name]
    broken = [data[:end] for end in range(len(data))]
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        broken.append(bytes(flipped))
    for mutant in broken:
        try:
            read_again(name, mutant)
            if name == "batch of facts":
                decode_facts(mutant[HEAD_BYTES:-SIGNATURE_BYTES])
        except WireError:
            continue
