"""The size of a swarm that nobody knows whole: draws, minima, epochs; and sessions that outlive being forgotten."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmd_protocols.channel.channel import DATAGRAM, PAST_MAX, Channel
from swarmd_protocols.crypto import ModelCrypto, NaClCrypto
from swarmd_protocols.ids import node_id_of
from swarmd_protocols.swim.sizing import EPOCHS, SLOTS, SizeSketch, estimated_size, quantize, value_of

S = 1_000_000_000
minima = st.binary(min_size=SLOTS, max_size=SLOTS)


@pytest.mark.parametrize("count", [1, 10, 300, 5_000])
def test_three_epochs_estimate_the_size_within_a_third(count):
    rng = Random(count)
    epochs = []
    for _ in range(3):
        best = bytes(SLOTS)
        for _ in range(count):
            sketch = SizeSketch(rng, 30 * S)
            sketch.begin(0, 0)
            best = bytes(map(max, best, sketch.minima))
        epochs.append(best)
    assert count * 2 / 3 - 1 <= estimated_size(epochs) <= count * 4 / 3 + 1


@given(st.floats(1e-9, 20))
def test_a_draw_as_a_byte_is_within_five_per_cent(draw):
    assert value_of(quantize(draw)) == pytest.approx(draw, rel=0.05) or draw > 15 or draw < 1e-8


@given(minima, minima, minima)
def test_merging_is_a_join(a, b, c):
    def merged(first, second):
        sketch = SizeSketch(Random(1), 30 * S)
        sketch.minima = first
        sketch.merge(0, second, 1)
        return sketch.minima

    assert merged(a, b) == merged(b, a)
    assert merged(merged(a, b), c) == merged(a, merged(b, c))
    assert merged(a, a) == a


def test_an_older_epoch_is_answered_and_a_newer_one_is_joined():
    sketch = SizeSketch(Random(1), 30 * S)
    sketch.begin(5, 0)
    before = sketch.minima
    assert sketch.merge(4, bytes([255] * SLOTS), S)
    assert sketch.minima == before
    sketch.merge(6, bytes([255] * SLOTS), 20 * S)
    assert sketch.epoch == 6
    assert sketch.minima == bytes([255] * SLOTS)
    assert sketch.estimate() is not None


def test_epochs_wrap_around():
    sketch = SizeSketch(Random(1), 30 * S)
    sketch.begin(EPOCHS - 1, 0)
    sketch.tick(30 * S)
    assert sketch.epoch == 0
    assert sketch.merge(EPOCHS - 1, bytes(SLOTS), 31 * S)


def test_who_runs_ahead_cannot_keep_others_from_finishing_an_epoch():
    sketch = SizeSketch(Random(1), 30 * S)
    sketch.begin(0, 0)
    sketch.tick(30 * S)
    for second in range(31, 44):
        sketch.merge((sketch.epoch + 100) % EPOCHS, bytes(SLOTS), second * S)
    assert sketch.epoch == 1


@pytest.mark.parametrize("crypto", [NaClCrypto(), ModelCrypto()])
def test_a_peer_that_is_met_again_gets_no_counter_twice_and_no_frame_opens_twice(crypto):
    seeds = bytes(range(32)), bytes(range(32, 64))
    a, b = (Channel(seed, b"boot 1 of this test", crypto) for seed in seeds)
    keys = [crypto.public_key(seed) for seed in seeds]

    def meet(channel, key, other):
        return channel.session(node_id_of(key), key, other.public)

    out, inwards = meet(a, keys[1], b), meet(b, keys[0], a)
    frames = [a.seal(out, DATAGRAM, b"%d" % at) for at in range(5)]
    assert all(b.open(inwards, frame) is not None for frame in frames)
    a.retire(out, b.public)
    b.retire(inwards, a.public)
    out, inwards = meet(a, keys[1], b), meet(b, keys[0], a)
    later = a.seal(out, DATAGRAM, b"later")
    assert later[5:9] not in {frame[5:9] for frame in frames}
    assert all(b.open(inwards, frame) is None for frame in frames)
    assert b.open(inwards, later) == b"later"
    assert b.open(inwards, later) is None


def test_a_session_forgotten_long_ago_still_gets_no_counter_twice():
    crypto = ModelCrypto()
    a = Channel(bytes(32), b"boot 1 of this test", crypto)
    peers = [Channel(at.to_bytes(32, "big"), b"boot of a peer", crypto) for at in range(PAST_MAX + 2)]
    keys = [crypto.public_key(at.to_bytes(32, "big")) for at in range(PAST_MAX + 2)]

    def meet(at):
        return a.session(node_id_of(keys[at]), keys[at], peers[at].public)

    first = meet(0)
    used = {a.seal(first, DATAGRAM, b"x")[5:9] for _ in range(9)}
    a.retire(first, peers[0].public)
    for at in range(1, PAST_MAX + 2):
        a.retire(meet(at), peers[at].public)
    assert len(a._past) <= PAST_MAX
    assert a.seal(meet(0), DATAGRAM, b"x")[5:9] not in used
