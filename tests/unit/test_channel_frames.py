"""Sealed frames: who can open what, once, and never after a restart."""

from random import Random

import pytest

from swarmd_protocols.channel.channel import (
    BULK,
    CAST,
    DATAGRAM,
    GROUP,
    GROUP_OVERHEAD_BYTES,
    PAIR_OVERHEAD_BYTES,
    STREAM,
    WIRE_VERSION,
    Channel,
    ReplayWindow,
    Session,
    frame_kind,
)
from swarmd_protocols.crypto import ModelCrypto, NaClCrypto
from swarmd_protocols.errors import IdentityError, WireError
from swarmd_protocols.ids import NodeId, node_id_of

CRYPTOS = [NaClCrypto(), ModelCrypto()]
SEED_A, SEED_B, SEED_C = (bytes((index,)) * 32 for index in (1, 2, 3))


def pair(crypto, boot_a=b"a" * 16, boot_b=b"b" * 16):
    a, b = Channel(SEED_A, boot_a, crypto), Channel(SEED_B, boot_b, crypto)
    return a, b, towards(a, SEED_B, b, crypto), towards(b, SEED_A, a, crypto)


def towards(mine, seed, peer, crypto):
    public = crypto.public_key(seed)
    return mine.session(node_id_of(public), public, peer.public)


@pytest.mark.parametrize("crypto", CRYPTOS, ids=["nacl", "model"])
@pytest.mark.parametrize("kind", [DATAGRAM, STREAM, BULK])
def test_a_frame_opens_once_at_its_addressee(crypto, kind):
    a, b, to_b, from_a = pair(crypto)
    frame = a.seal(to_b, kind, b"hello")
    assert len(frame) == 5 + PAIR_OVERHEAD_BYTES
    assert frame_kind(frame) == kind
    assert b.open(from_a, frame) == b"hello"
    assert b.open(from_a, frame) is None


@pytest.mark.parametrize("crypto", CRYPTOS, ids=["nacl", "model"])
def test_a_frame_opens_nowhere_else(crypto):
    a, b, to_b, from_a = pair(crypto)
    c = Channel(SEED_C, b"c" * 16, crypto)
    frame = a.seal(to_b, DATAGRAM, b"hello")
    assert c.open(towards(c, SEED_A, a, crypto), frame) is None
    assert a.open(to_b, frame) is None, "reflected to its sender"
    assert b.open(from_a, bytes((frame[0] & 0xF0 | STREAM,)) + frame[1:]) is None, "moved to another path"
    for restarted in (pair(crypto, boot_b=b"B" * 16), pair(crypto, boot_a=b"A" * 16)):
        assert restarted[1].open(restarted[3], frame) is None, "replayed to another boot"


@pytest.mark.parametrize("crypto", CRYPTOS, ids=["nacl", "model"])
def test_every_changed_byte_and_every_stump_is_refused(crypto):
    a, b, to_b, from_a = pair(crypto)
    frame = a.seal(to_b, DATAGRAM, b"some message body")
    for at in range(5, len(frame)):
        changed = bytearray(frame)
        changed[at] ^= 1 << at % 8
        assert b.open(from_a, bytes(changed)) is None
    for size in range(len(frame)):
        stump = frame[:size]
        if size < PAIR_OVERHEAD_BYTES:
            with pytest.raises(WireError):
                frame_kind(stump)
        else:
            assert b.open(from_a, stump) is None
    assert b.open(from_a, frame) == b"some message body", "refused frames change nothing"


def test_replay_window_is_64_wide():
    window = ReplayWindow()
    for counter in (1, 100, 64, 37):
        assert window.fresh(counter)
        window.accept(counter)
    assert not window.fresh(100)
    assert not window.fresh(64)
    assert not window.fresh(36), "beyond the window counts as seen"
    assert window.fresh(38)


def test_replay_window_against_a_set():
    rng, window, seen, top = Random(3), ReplayWindow(), set(), 0
    for _ in range(5_000):
        counter = max(1, top + rng.randrange(-80, 90) if rng.random() < 0.9 else top + rng.randrange(500))
        expected = counter not in seen and counter > top - 64
        assert window.fresh(counter) == expected
        if expected:
            window.accept(counter)
            seen.add(counter)
            top = max(top, counter)


@pytest.mark.parametrize("crypto", CRYPTOS, ids=["nacl", "model"])
def test_group_frames_open_under_every_known_key_and_seal_under_the_newest(crypto):
    a, b, *_ = pair(crypto)
    a.set_group_keys({1: b"k" * 32, 2: b"K" * 32})
    b.set_group_keys({1: b"k" * 32})
    newest = a.seal_group(b"record")
    assert len(newest) == 6 + GROUP_OVERHEAD_BYTES
    with pytest.raises(WireError, match="does not hold"):
        b.open_group(newest)
    assert b.open_group(a.seal_group(b"record", 1)) == (1, b"record")
    assert a.open_group(b.seal_group(b"older")) == (1, b"older")
    b.set_group_keys({1: b"x" * 32})
    with pytest.raises(WireError, match="does not open"):
        b.open_group(a.seal_group(b"record", 1))
    assert a.seal_group(b"same") != a.seal_group(b"same"), "nonces never repeat"


def test_counters_that_are_used_up_end_the_boot_and_never_wrap():
    a, _, to_b, _ = pair(ModelCrypto())
    to_b._datagrams = 2**32 - 1
    with pytest.raises(WireError, match="restart the node"):
        a.seal(to_b, DATAGRAM, b"")


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        bytes([WIRE_VERSION << 4 | DATAGRAM]),
        bytes([WIRE_VERSION + 1 << 4 | DATAGRAM]) + bytes(40),
        bytes([WIRE_VERSION << 4 | 9]) + bytes(40),
        bytes([WIRE_VERSION << 4 | GROUP]) + bytes(30),
    ],
    ids=["nothing", "one byte", "another version", "unknown kind", "a stump of a group frame"],
)
def test_other_versions_kinds_and_stumps_are_refused(frame):
    with pytest.raises(WireError):
        frame_kind(frame)


def test_bad_points_are_refused():
    crypto = NaClCrypto()
    channel = Channel(SEED_A, b"a" * 16, crypto)
    with pytest.raises(IdentityError):
        channel.session(node_id_of(bytes(32)), b"\xff" * 32, bytes(32))
    with pytest.raises(IdentityError):
        channel.session(node_id_of(bytes(32)), crypto.public_key(SEED_B), bytes(32))


@pytest.mark.parametrize("crypto", CRYPTOS, ids=["nacl", "model"])
def test_a_cast_opens_at_every_holder_of_the_group_key_and_is_no_first_contact(crypto):
    a, b, c = (Channel(seed, seed[:16], crypto) for seed in (SEED_A, SEED_B, SEED_C))
    for channel, key in ((a, b"g" * 32), (b, b"g" * 32), (c, b"o" * 32)):
        channel.set_group_keys({1: key})
    frame = a.seal_cast(b"piece")
    assert frame_kind(frame) == CAST
    assert len(frame) == 5 + GROUP_OVERHEAD_BYTES
    assert b.open_cast(frame) == b"piece"
    with pytest.raises(WireError):
        c.open_cast(frame)
    with pytest.raises(WireError):
        b.open_group(frame)
    with pytest.raises(WireError):
        b.open_cast(a.seal_group(b"hello"))
    for at in range(1, len(frame)):
        with pytest.raises(WireError):
            b.open_cast(frame[:at] + bytes((frame[at] ^ 1,)) + frame[at + 1 :])
    with pytest.raises(WireError):
        frame_kind(frame[: GROUP_OVERHEAD_BYTES - 1])


def test_what_outlives_a_session_is_all_paths_counters() -> None:
    session = Session(NodeId(bytes(16)), b"tagg", bytes(32), bytes(32))
    for kind, count in ((DATAGRAM, 3), (STREAM, 2), (BULK, 1)):
        for counter in range(1, count + 1):
            assert session.next_counter(kind) == counter
            session.window(kind).accept(counter)
    again = Session(NodeId(bytes(16)), b"tagg", bytes(32), bytes(32))
    again.resume(session.past())
    assert again.past() == session.past()
    assert [again.next_counter(kind) for kind in (DATAGRAM, STREAM, BULK)] == [4, 3, 2]
    assert not any(again.window(kind).fresh(1) for kind in (DATAGRAM, STREAM, BULK))
    assert all(again.window(kind).fresh(4) for kind in (DATAGRAM, STREAM, BULK))


def test_simulated_nodes_keep_one_copy_of_equal_records() -> None:
    first, second = bytes([1, 2, 3]) * 20, bytes([1, 2, 3]) * 20
    assert first is not second
    model = ModelCrypto()
    assert model.share(first) is first
    assert model.share(second) is first
    assert NaClCrypto().share(second) is second
