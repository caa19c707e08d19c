"""Golden bytes of the replicated state: every message, body and batch, with fixed keys."""

from pathlib import Path
from typing import Any

from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.ids import NodeId, node_id_of
from swarmd_protocols.state.crdt import messages
from swarmd_protocols.state.crdt.batch import NodeSigner, Stream, open_batch, seal_batch
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
from swarmd_protocols.state.crdt.records import (
    EventRow,
    Lease,
    decode_events,
    decode_leases,
    decode_vitals,
    encode_counters,
    encode_events,
    encode_leases,
)
from swarmd_protocols.state.crdt.reviews import Review, encode_review, join_review, message_of, open_review
from swarmd_protocols.trust.envelopes import KEY_BYTES, SIGNATURE_BYTES

PATH = Path(__file__).resolve().parents[2] / "protocols" / "vectors" / "state.json"
CRYPTO = NaClCrypto()
SEED = bytes(range(32))
NODE = node_id_of(CRYPTO.public_key(SEED))
SIGNER = NodeSigner(CRYPTO, SEED)
OTHER = NodeId(bytes(range(16)))
MINUTE = 60_000 << 16


def rows(*kinds: int) -> list[Sighting]:
    place: dict[int, Any] = {LATTICE: (-3, 41), ASSET: "t03-m17", TRACK: (7, 12)}
    return [
        Sighting(
            "hot-spot", kind, place[kind], kind == TRACK, kind != TRACK or n > 1, -120 - n, 2_061, (100, -7, 121), 870,
            MINUTE + (n << 16), 2 * MINUTE, 3 + n, b"modelsha", ((1, -2),) if kind == LATTICE else (),
        )
        for n, kind in enumerate(kinds)
    ]  # fmt: skip


def facts() -> Facts:
    return Facts(
        rows(LATTICE, ASSET, TRACK),
        [Join(OTHER, ("hot-spot", LATTICE, (5, 6)), MINUTE, 2 * MINUTE)],
        [Done(b"cell42", 900)],
        [NotePut(7, 1, MINUTE, "zone", b"closed", ((OTHER, 3, 1),))],
        [NoteRemoval("old", ((NODE, 6, 2),))],
    )


def _signed(*fields: Any) -> bytes:
    payload = encode_review(Review("farm", *fields))
    return join_review(CRYPTO.public_key(SEED), CRYPTO.sign(SEED, message_of(payload)), payload)


REVIEWS = (
    _signed(
        b"", "hot-spot", ASSET, "t03-m17", "relabel", "crack", "hot-spot", b"basis..1", 3, 1_790_000_000_000, "alice"
    ),
    _signed(bytes(OTHER), "hot-spot", LATTICE, (-3, 41), "note", "look again", "hot-spot", bytes(8), 1, 0, ""),
)
EVENTS = (
    EventRow(1_790_000_000, 3, 215_000_000_000, "failed", "drone-7", "no answer for 4.1 s", "incarnation 7/2"),
    EventRow(1_790_000_000, 9, 215_000_060_000, "release-halted", "leaks 12", "2 of 4 canaries failed", "drone-1"),
)


def batch(stream: Stream, body: bytes, n: int = 1, previous: bytes = bytes(16)) -> bytes:
    return seal_batch(stream, NODE, (7, n), (0, 0), previous, 3 * MINUTE, body, SIGNER).raw


def of_one_life() -> tuple[bytes, ...]:
    """Batches whose bases are said in each way, the last of a number that travels whole."""
    hashed = bytes(range(16))
    heads = (((7, 1), (7, 0), bytes(16)), ((7, 2), (7, 1), hashed), ((7, 3), (0, 0), hashed), ((7, 4), (6, 9), hashed),
             ((7, 70_000), (7, 4), hashed))  # fmt: skip
    return tuple(
        seal_batch(Stream.STATUS, NODE, dot, base, previous, 3 * MINUTE, b"well", SIGNER).raw
        for dot, base, previous in heads
    )


def pictured(reviews: tuple[bytes, ...]) -> Facts:
    """Three sightings, of one or all of which there is a picture."""
    names = [bytes(range(n, n + 16)) if n == 1 or reviews else b"" for n in range(3)]
    three = [row._replace(thumb=name) for row, name in zip(rows(LATTICE, ASSET, TRACK), names, strict=True)]
    return Facts(three, reviews=[open_review(one) for one in reviews])


def featured() -> Facts:
    """The same, one of which says how it looks, beside its picture."""
    first, *others = pictured(()).sightings
    return Facts([first, *(row._replace(features=bytes([1, *range(n, n + 16)])) for n, row in enumerate(others))])


def samples() -> dict[str, bytes]:
    leases = (Lease(b"cell42", 5, 2, True, 70_000, 4), Lease(b"cell43", 6, 0, False, 90_000, 0))
    one = batch(Stream.FACTS, encode_facts(Facts(rows(LATTICE))))
    two = batch(Stream.FACTS, encode_facts(facts()))
    row = (bytes(NODE), ((0, 7, 3, b"\1\2\3\4"), (1, 7, 9, b"\5\6\7\x08")))
    return {
        "facts body, every kind": encode_facts(facts()),
        "facts body, lattice only": encode_facts(Facts(rows(LATTICE))),
        "lease body": encode_leases(leases),
        "counter body": encode_counters({"frames": 12_345, "detections": 17}),
        "counter body with a status": encode_counters({"frames": 12_345, "detections": 17}, b"well"),
        "event body": encode_events(EVENTS),
        "batch of facts": two,
        "batch of leases": batch(Stream.LEASES, encode_leases(leases)),
        "batch of status": batch(Stream.STATUS, b"opaque"),
        "batch of events": batch(Stream.EVENTS, encode_events(EVENTS)),
        "message Batches": messages.encode(messages.Batches((one,))),
        "message Batches, five of one life": messages.encode(messages.Batches(of_one_life())),
        "message Have": messages.encode(messages.Have((row,), 3, True, 0xFFFF_FFFF)),
        "message Have with room": messages.encode(
            messages.Have(
                ((bytes(NODE), ((7, 0, 0, b""),)), (bytes(OTHER), ((7, 0, 4_096, b""), *row[1]))), 1, False, 0
            )
        ),
        "message Buckets": messages.encode(messages.Buckets(bytes(range(128)), bytes(128))),
        "message Proof": messages.encode(messages.Proof(one, two)),
        "message ClockAsk": messages.encode(messages.ClockAsk(123_456_789)),
        "message ClockTell": messages.encode(messages.ClockTell(123_456_789, 987_654_321)),
        "message CertificateAsk": messages.encode(messages.CertificateAsk((bytes(NODE),))),
        "message Recent": messages.encode(messages.Recent(bytes(range(12)))),
        "message Wanted": messages.encode(messages.Wanted(bytes(range(6)))),
        "facts body, reviews": encode_facts(Facts(reviews=[open_review(one) for one in REVIEWS])),
        "facts body, pictures": encode_facts(pictured(REVIEWS)),
        "facts body, a picture of one of three": encode_facts(pictured(())),
        "facts body, looks of two of three": encode_facts(featured()),
        "review of an asset": REVIEWS[0],
        "review of a place": REVIEWS[1],
        "message Certificates": messages.encode(messages.Certificates((b"as the enrol role signed it",))),
    }


def read_again(name: str, data: bytes) -> bytes:
    """Decode one sample and encode it again."""
    if name.startswith("review"):
        said = open_review(data)
        return join_review(said.public, data[KEY_BYTES : KEY_BYTES + SIGNATURE_BYTES], encode_review(said.review))
    if name.startswith("facts"):
        return encode_facts(decode_facts(data))
    if name.startswith("lease"):
        return encode_leases(decode_leases(data))
    if name.startswith("counter"):
        vitals = decode_vitals(data)
        return encode_counters(vitals.counters, vitals.status)
    if name.startswith("event"):
        return encode_events(decode_events(data))
    if name.startswith("batch"):
        opened = open_batch(data)
        sealed = seal_batch(
            opened.stream, opened.origin, opened.dot, opened.base, opened.previous, opened.stamp, opened.body, SIGNER
        )
        return sealed.raw
    return messages.encode(messages.decode(data))


def document() -> list[dict[str, str]]:
    """What the golden file holds."""
    return [{"name": name, "hex": data.hex()} for name, data in samples().items()]
