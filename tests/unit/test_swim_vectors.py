"""Golden vectors of membership's wire, checked both ways; every stump and bit flip decodes or is a WireError."""

import contextlib
import json

import pytest

from swarmd_protocols.channel.channel import DATAGRAM, Channel, frame_kind
from swarmd_protocols.channel.codec import encode, join
from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.errors import WireError
from swarmd_protocols.ids import node_id_of
from swarmd_protocols.swim.messages import decode_messages
from swarmd_protocols.trust.envelopes import decode_envelope
from tests.support import swim_vectors

GOLDEN = json.loads(swim_vectors.PATH.read_text())["vectors"]


def test_the_wire_has_not_changed():
    assert swim_vectors.build() == GOLDEN


def test_every_message_decodes_to_itself():
    for message in swim_vectors.messages():
        assert decode_messages(join([encode(message)]), 4096) == [message]
    everything = swim_vectors.messages()
    assert decode_messages(join([encode(item) for item in everything]), 65_536) == everything


def test_the_golden_frame_opens_at_its_addressee():
    crypto = NaClCrypto()
    seeds = bytes(range(32)), bytes(range(32, 64))
    a, b = (Channel(seed, b"boot 1 of the vectors", crypto) for seed in seeds)
    public = crypto.public_key(seeds[0])
    session = b.session(node_id_of(public), public, a.public)
    frame = bytes.fromhex(next(item["hex"] for item in GOLDEN if item["name"] == "frame/datagram"))
    assert frame_kind(frame) == DATAGRAM
    assert decode_messages(b.open(session, frame), 1200) == [swim_vectors.wire.Ping(1, b"12345678")]


@pytest.mark.parametrize("item", swim_vectors.messages(), ids=lambda item: type(item).__name__)
def test_stumps_and_bit_flips_decode_or_are_wire_errors(item):
    body = join([encode(item)])
    step = max(1, len(body) // 200)
    for at in range(0, len(body), step):
        for broken in (body[:at], bytes((*body[:at], body[at] ^ 1 << at % 8, *body[at + 1 :]))):
            with contextlib.suppress(WireError):
                assert decode_messages(broken, 65_536)


def test_stumps_of_statements_are_wire_errors():
    for item in GOLDEN:
        if item["name"].startswith("statement/"):
            data = bytes.fromhex(item["hex"])
            for size in range(len(data)):
                with pytest.raises(WireError):
                    decode_envelope(data[:size])


@pytest.mark.parametrize(
    "body", [b"", b"\x90", b"\xc0", b"\x91\xc0", b"\x91\x91\x63", b"\xdd\xff\xff\xff\xff", b"\x91" * 5000]
)
def test_nonsense_is_a_wire_error(body):
    with pytest.raises(WireError):
        decode_messages(body, 65_536)


def test_limits_are_checked_before_decoding():
    with pytest.raises(WireError, match="at most 10"):
        decode_messages(join([encode(swim_vectors.messages()[0])] * 3), 10)
