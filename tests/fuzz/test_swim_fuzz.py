"""Coverage-guided fuzz targets of everything that reads bytes from outside: frames, bodies, statements, journals.

`SWARMD_FUZZ_RUNS=1000000 pytest tests/fuzz/test_swim_fuzz.py` is the long run; the default is a smoke test. An input
that reaches lines of ours that no earlier one reached is kept and mutated further.
"""

import contextlib
import os
import sys
from collections.abc import Callable
from random import Random

import msgspec
import pytest

from swarmd_protocols.channel import frame_kind
from swarmd_protocols.codec import decode_messages, encode, join
from swarmd_protocols.crypto import ModelCrypto
from swarmd_protocols.effects import DatagramReceived, Started, StreamReceived
from swarmd_protocols.errors import IdentityError, WireError
from swarmd_protocols.identity import Identity, decode_envelope, make_dev_identity
from swarmd_protocols.node import Node, NodeConfig
from tests.unit import swim_vectors
from tests.unit.swim_net import SECRET, Net
from tests.unit.swim_thief import Thief

RUNS = int(os.environ.get("SWARMD_FUZZ_RUNS", "2000"))
CRYPTO = ModelCrypto()


class Fuzzer:
    """Mutates a corpus, keeps what reaches new lines of `swarmd_protocols`."""

    def __init__(self, target: Callable[[bytes], None], corpus: list[bytes], seed: int) -> None:
        self.target = target
        self.corpus = list(corpus)
        self.rng = Random(seed)
        self.seen: set[tuple[str, int]] = set()

    def run(self, count: int) -> None:
        for item in list(self.corpus):
            self.reaches_more(item)
        for step in range(count):
            data = self.mutate(self.rng.choice(self.corpus))
            # Tracing costs fivefold: every eighth input pays it.
            if step % 8 == 0:
                if self.reaches_more(data) and len(self.corpus) < 2_000:
                    self.corpus.append(data)
            else:
                self.target(data)

    def reaches_more(self, data: bytes) -> bool:
        before = len(self.seen)

        def trace(frame, event, _):
            if "swarmd_protocols" not in frame.f_code.co_filename:
                return None
            if event == "line":
                self.seen.add((frame.f_code.co_filename, frame.f_lineno))
            return trace

        earlier = sys.gettrace()
        sys.settrace(trace)
        try:
            self.target(data)
        finally:
            sys.settrace(earlier)
        return len(self.seen) > before

    def mutate(self, data: bytes) -> bytes:
        rng, out = self.rng, bytearray(data)
        for _ in range(1 + int(rng.random() * 4)):
            at = int(rng.random() * (len(out) + 1))
            action = int(rng.random() * 7)
            if action == 0 and at < len(out):
                out[at] ^= 1 << int(rng.random() * 8)
            elif action == 1 and at < len(out):
                out[at] = rng.choice((0, 1, 0x7F, 0x80, 0x90, 0x9F, 0xC0, 0xC4, 0xCF, 0xD9, 0xDD, 0xFF))
            elif action == 2:
                del out[at : at + int(rng.random() * 16)]
            elif action == 3:
                out[at:at] = rng.randbytes(int(rng.random() * 16))
            elif action == 4:
                out = out[:at]
            elif action == 5:
                other = rng.choice(self.corpus)
                out[at:] = other[int(rng.random() * (len(other) + 1)) :]
            else:
                out[at:at] = out[at : at + int(rng.random() * 64)]
        return bytes(out[:70_000])


def bodies() -> list[bytes]:
    return [join([encode(item)]) for item in swim_vectors.messages()]


def decode(data: bytes) -> None:
    with contextlib.suppress(WireError):
        assert decode_messages(data, 65_536)


def frame(data: bytes) -> None:
    with contextlib.suppress(WireError):
        frame_kind(data)


def statement(data: bytes) -> None:
    for read in (decode_envelope, Identity.from_bytes, _TRUST.certificate):
        with contextlib.suppress(IdentityError):
            read(data)
    for kind in ("root", "revoke", "group"):
        with contextlib.suppress(IdentityError):
            _TRUST.add(kind, data)


_IDENTITY = make_dev_identity(SECRET, "test", "n000", CRYPTO)
_TRUST = _IDENTITY.trust(CRYPTO)


def test_bodies():
    Fuzzer(decode, bodies(), 1).run(RUNS)


def test_frames():
    Fuzzer(frame, [bytes.fromhex("11" + "00" * 40)], 2).run(RUNS)


def test_statements():
    corpus = [_IDENTITY.certificate, _IDENTITY.roots[0], _IDENTITY.group_keys[0], _IDENTITY.to_bytes()]
    Fuzzer(statement, corpus, 3).run(RUNS // 2)


@pytest.mark.parametrize("path", [DatagramReceived, StreamReceived])
def test_frames_at_a_node(path):
    net = Net(2)
    net.run(1)
    net.keep_frames = True
    net.run(1)
    node = net.hosts[0].node
    Fuzzer(lambda data: node.handle(path("1.1.1.1:1", data), net.now), [data for *_, data in net.frames][:20], 4).run(
        RUNS
    )
    assert net.formed()


def test_sealed_bodies_of_a_member_at_a_node():
    """Behind the seal and in front of the handlers: the decoders of every signed body are reached."""
    net = Net(3)
    net.run(2)
    thief = Thief(SECRET, CRYPTO)
    node = net.hosts[0].node
    thief.meet(node, net.now)
    session = thief.sessions[node.node]

    def target(data: bytes) -> None:
        net.now += 1_000
        sealed = thief.channel.seal(session, 1, data)
        if len(sealed) <= 1_200:
            node.handle(DatagramReceived(thief.address, sealed), net.now)

    own = [encode(thief.record()), encode(thief.accusation(net.hosts[1].node.node, 1 << 20))]
    Fuzzer(target, [*bodies(), *(join([item]) for item in own)], 5).run(RUNS)
    net.run(3)
    assert all(net.states(1)[name].value == "alive" for name in ("n000", "n002"))


def test_journals():
    net = Net(3)
    net.run(4)
    journal = dict(net.hosts[0].journal)
    journal[b"swim/meta/k"] = b"\x93\x0f\xc4\x00"

    def target(data: bytes) -> None:
        for key in journal:
            node = Node(_IDENTITY, NodeConfig(), CRYPTO, Random(1), {**journal, key: data}, [], "a:1")
            node.handle(Started(), 1)

    Fuzzer(target, [value for value in journal.values() if value], 6).run(max(30, RUNS // 40))


def test_no_struct_outgrows_its_bounds():
    """Every bytes, str and tuple field that travels has a maximum."""
    for item in [*swim_vectors.messages(), *swim_vectors.bodies()]:
        for field in msgspec.inspect.type_info(type(item)).fields:
            kind = field.type
            if isinstance(kind, msgspec.inspect.BytesType | msgspec.inspect.StrType | msgspec.inspect.VarTupleType):
                assert kind.max_length is not None, (type(item).__name__, field.name)
