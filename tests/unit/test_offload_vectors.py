"""Golden bytes of what borrowers and lenders say, checked both ways; truncations, flips and bounds are refused."""

import contextlib
import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_protocols.errors import WireError
from swarmd_protocols.offload import messages
from swarmd_protocols.offload.messages import decode_descriptor, decode_message, encode_descriptor, encode_message
from tests.support.offload_swarm import CRYPTO, DIGEST, NODES, PATH, SEEDS, document, vectors


def test_every_message_has_its_vector() -> None:
    assert json.loads(PATH.read_text()) == document()
    assert {type(message) for message in vectors().values()} == set(messages.Message.__args__)


@pytest.mark.parametrize("vector", json.loads(PATH.read_text())["vectors"])
def test_vectors_both_ways(vector: dict[str, str]) -> None:
    message = decode_message(bytes.fromhex(vector["hex"]))
    assert repr(message) == vector["message"]
    assert encode_message(message).hex() == vector["hex"]


@pytest.mark.parametrize("name", vectors())
def test_a_truncation_is_refused(name: str) -> None:
    data = encode_message(vectors()[name])
    for size in range(len(data)):
        with pytest.raises(WireError):
            decode_message(data[:size])


def test_a_flipped_bit_of_an_offer_breaks_its_signature() -> None:
    offer = vectors()["an offer"]
    assert isinstance(offer, messages.Offered)
    key = CRYPTO.public_key(SEEDS[1])
    assert CRYPTO.verify(key, messages.offer_bytes(offer.body), offer.signature)
    for at in range(len(offer.body)):
        body = offer.body[:at] + bytes([offer.body[at] ^ 4]) + offer.body[at + 1 :]
        assert not CRYPTO.verify(key, messages.offer_bytes(body), offer.signature)


REQUEST = messages.Request(9, 1, DIGEST, 1, 480, b"input")
OUT_OF_BOUNDS = [
    messages.Ask(DIGEST[:-1]),
    messages.Grant(b"ticket"),
    messages.Deny(DIGEST, len(messages.REASONS)),
    messages.Deny(DIGEST, -1),
    messages.Refusal(-1, 0),
    messages.Cancel(1 << 63),
    messages.Answer(1, b"", bytes(63)),
    messages.Answer(1, bytes(messages.PAYLOAD_MAX_BYTES + 1), bytes(64)),
    messages.Offered(b"", b""),
    *(
        msgspec.structs.replace(REQUEST, **change)
        for change in (
            {"id": -1},
            {"ticket": -1},
            {"digest": b""},
            {"units": 0},
            {"units": 65},
            {"left_ms": 0},
            {"left_ms": 60_001},
            {"data": bytes(messages.PAYLOAD_MAX_BYTES + 1)},
            {"lane_bytes": -1},
            {"priority": 0},
            {"priority": 4},
            {"held_ms": -1},
            {"held_ms": 481},
            {"left_ms": 60_000, "held_ms": messages.HELD_MAX_MS + 1},
            {"lane_bytes": messages.LANE_MAX_BYTES + 1},
        )
    ),
]


@pytest.mark.parametrize("message", OUT_OF_BOUNDS, ids=lambda message: repr(message)[:60])
def test_what_is_out_of_bounds_is_refused(message: messages.Message) -> None:
    with pytest.raises(WireError):
        decode_message(encode_message(message))


def test_an_older_lender_reads_an_urgent_request_as_any_other() -> None:
    urgent = msgspec.structs.replace(REQUEST, priority=1)
    assert decode_message(encode_message(urgent)) == urgent
    older = msgspec.msgpack.decode(encode_message(urgent), type=messages._Normal)
    assert msgspec.structs.astuple(older) == msgspec.structs.astuple(REQUEST)[:-2]


ROW = messages.Row(DIGEST, 1, 1)
GOOD = messages.Descriptor(NODES[0], 1, 1_000, 500, 100, (ROW,))


@pytest.mark.parametrize(
    "change",
    [
        {"node": b""},
        {"number": -1},
        {"good_ms": 30_001},
        {"battery_milli": 1_001},
        {"input_bytes_max": messages.LANE_MAX_BYTES + 1},
        {"rows": (ROW, ROW)},
        {"rows": tuple(messages.Row(bytes([index]) * 32, 1, 1) for index in range(17))},
        {"rows": (messages.Row(DIGEST, -1, 1),)},
        {"rows": (messages.Row(DIGEST, 1, 600_000_001),)},
        {"rows": (messages.Row(b"", 1, 1),)},
        {"rows": (messages.Row(DIGEST, 1, 1, -1),)},
        {"rows": (messages.Row(DIGEST, 1, 1, 1 << 32),)},
        {"rows": (messages.Row(DIGEST, 1, 1, 1, 1_001),)},
    ],
    ids=str,
)
def test_an_offer_out_of_bounds_is_refused(change: dict[str, object]) -> None:
    assert decode_descriptor(encode_descriptor(GOOD)) == GOOD
    with pytest.raises(WireError):
        decode_descriptor(encode_descriptor(msgspec.structs.replace(GOOD, **change)))


def test_the_largest_offer_fits_a_datagram() -> None:
    rows = tuple(
        messages.Row(bytes([index]) * 32, 600_000_000, 600_000_000, (1 << 32) - 1, 1_000) for index in range(16)
    )
    body = encode_descriptor(messages.Descriptor(NODES[0], (1 << 64) - 1, 30_000, 65_535, 256 << 10, rows))
    assert len(encode_message(messages.Offered(body, bytes(64)))) <= 1_000


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    for read in (decode_message, decode_descriptor):
        with contextlib.suppress(WireError):
            read(data)
