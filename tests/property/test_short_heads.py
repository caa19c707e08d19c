"""Batches travel with a short head and arrive byte for byte, whatever stands beside them in the message."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmd_protocols.errors import WireError
from swarmd_protocols.state.crdt import messages, short
from swarmd_protocols.state.crdt.batch import BATCH_MIN_BYTES, HEAD_BYTES, Stream, open_batch, seal_batch
from swarmd_protocols.state.packing import grouped

ORIGINS = st.sampled_from([bytes(range(16)), bytes(range(1, 17)), bytes(16)])
LIVES = st.sampled_from([1, 2, 0xFFFF, 0x1_0000, (1 << 48) - 1])
NUMBERS = st.sampled_from([1, 2, 300, 0xFFFF, 0x1_0000, 0xFFFF_FFFF])
HASHES = st.sampled_from([bytes(16), bytes(15) + b"\1", bytes(range(16))])


class Unsigned:
    """Signs with zeros: what travels is not what is judged."""

    def sign(self, message: bytes) -> bytes:
        return bytes(64)

    def verify(self, public_key: bytes, message: bytes, signature: bytes) -> bool:
        return True


@st.composite
def batches(draw):
    life, n = draw(LIVES), draw(NUMBERS)
    base = draw(st.sampled_from([(0, 0), (life, 0), (life, 1), (life, n), (1, 0), (1, 7), (life - 1, 0xFFFF_FFFF)]))
    previous = bytes(16) if n == 1 else draw(HASHES)
    stream, stamp = draw(st.sampled_from(list(Stream))), draw(st.integers(0, (1 << 60)))
    body = draw(st.binary(min_size=1, max_size=40))
    return seal_batch(stream, draw(ORIGINS), (life, n), min(base, (life, n)), previous, stamp, body, Unsigned())


@given(st.lists(batches(), max_size=8))
def test_what_travels_short_arrives_whole(found):
    raws = tuple(one.raw for one in found)
    payload = messages.encode(messages.Batches(raws))
    assert messages.decode(payload) == messages.Batches(raws)
    assert len(payload) <= len(messages.encode_short(raws))
    for raw, travelled in zip(raws, short.shorten_all(raws), strict=True):
        assert 0 <= len(raw) - len(travelled) <= short.SAVED_MAX


@given(st.lists(batches(), max_size=12), st.integers(150, 1_000))
def test_groups_hold_each_batch_once_and_stand_alone(found, size_max):
    told = [messages.decode(payload) for payload, _ in grouped(found, size_max)]
    came = [raw for message in told for raw in message.raws]
    assert sorted(came) == sorted(one.raw for one in found)
    for origin in {one.origin for one in found}:
        assert [raw for raw in came if raw[2:18] == origin] == [one.raw for one in found if one.origin == origin]
    assert all(
        len(payload) <= size_max or len(message.raws) == 1
        for (payload, _), message in zip(grouped(found, size_max), told, strict=True)
    )


@given(st.lists(st.binary(max_size=200) | st.binary(max_size=120).map(lambda rest: b"\x8f" + rest), max_size=4))
def test_any_bytes_are_read_or_refused_and_grow_by_a_head_at_most(shorts):
    try:
        whole = short.expand_all(tuple(shorts))
    except WireError:
        return
    assert all(len(one) <= len(came) + short.SAVED_MAX for came, one in zip(shorts, whole, strict=True))


@given(batches())
def test_every_cut_of_a_head_is_refused(one):
    travelled = short.shorten(one.raw)
    if travelled == one.raw:
        return
    head = len(travelled) - (len(one.raw) - HEAD_BYTES)
    for end in range(1, head):
        with pytest.raises(WireError):
            short.expand(travelled[:end])


def test_nothing_before_it_is_refused():
    raw = seal_batch(Stream.STATUS, bytes(16), (1, 1), (1, 0), bytes(16), 5, b"well", Unsigned()).raw
    first, second = short.shorten_all((raw, raw))
    assert (len(raw) - len(first), len(raw) - len(second)) == (29, 51)
    with pytest.raises(WireError):
        short.expand(second)
    with pytest.raises(WireError):
        messages.decode(messages.encode_short((second,)))
    assert messages.decode(messages.encode_short((first, second))) == messages.Batches((raw, raw))
    assert open_batch(short.expand(second, raw)).raw == raw


@given(st.lists(st.binary(min_size=BATCH_MIN_BYTES, max_size=200).filter(lambda raw: raw[0] < short.MARK), max_size=4))
def test_what_is_no_batch_travels_as_it_is(raws):
    """Whoever reads it refuses it, and must see the same bytes."""
    assert messages.decode(messages.encode(messages.Batches(tuple(raws)))).raws == tuple(raws)
