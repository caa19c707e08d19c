"""Coverage-guided fuzz targets of everything that reads bytes from outside: frames, bodies, statements, journals.

`SWARMD_FUZZ_RUNS=1000000 pytest tests/fuzz/test_swim_fuzz.py` is the long run; the default is a smoke test. An input
that reaches lines of ours that no earlier one reached is kept and mutated further.
"""

import os
from pathlib import Path
from random import Random

import msgspec
import pytest

from swarmd_protocols.channel.codec import encode, join
from swarmd_protocols.crypto import ModelCrypto
from swarmd_protocols.effects import DatagramReceived, Started, StreamReceived
from swarmd_protocols.node import Node, NodeConfig
from swarmd_protocols.swim.messages import NEIGHBOR_PLEASE, ForwardJoin, Neighbor, Shuffle
from swarmd_protocols.trust.identity import make_dev_identity
from tests.fuzz.mutator import Fuzzer
from tests.fuzz.targets import bodies
from tests.support import swim_vectors
from tests.support.partial_net import bounded, partial_net
from tests.support.swim_net import SECRET, Net
from tests.support.swim_thief import Thief

RUNS = int(os.environ.get("SWARMD_FUZZ_RUNS", "2000"))
CRYPTO = ModelCrypto()


_IDENTITY = make_dev_identity(SECRET, "test", "n000", CRYPTO)


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
    fuzzer = Fuzzer(target, [*bodies(), *(join([item]) for item in own)], 5)
    fuzzer.run(RUNS)
    reached = {Path(file).name for file, _ in fuzzer.seen}
    assert {"membership.py", "accusations.py", "repair.py", "user_events.py"} <= reached
    net.run(3)
    assert all(net.states(1)[name].value == "alive" for name in ("n000", "n002"))


def test_sealed_bodies_at_a_node_with_a_partial_view():
    """The same where neighbours are few: ties, walks, shuffles, pulses, circles, events with certificates."""
    net = partial_net(count=16, seconds=10.0)
    thief = Thief(SECRET, CRYPTO)
    node = net.hosts[3].node
    thief.meet(node, net.now)
    session = thief.sessions[node.node]

    def target(data: bytes) -> None:
        net.now += 1_000_000
        sealed = thief.channel.seal(session, 1, data)
        if len(sealed) <= 1_200:
            node.handle(DatagramReceived(thief.address, sealed), net.now)
        bounded(net)

    record = thief.record()
    own = [
        encode(Shuffle(True, (record, record))),
        encode(ForwardJoin(3, record)),
        encode(Neighbor(NEIGHBOR_PLEASE, 40)),
    ]
    Fuzzer(target, [*bodies(), *(join([item]) for item in own)], 5).run(RUNS)
    assert all(member.node in node._core.table.by_node for member in node._core.table.reachable)


def test_journals():
    net = Net(3)
    net.run(4)
    journal = dict(net.hosts[0].journal)
    journal[b"swim/meta/k"] = b"\x93\x0f\xc4\x00"
    journal[b"swim/partial"] = b"\x00\x00\x00\x13\x88"

    def target(data: bytes) -> None:
        for key in journal:
            node = Node(_IDENTITY, NodeConfig(), CRYPTO, Random(1), {**journal, key: data}, [], "a:1")
            assert node.handle(Started(), 1), "whatever the disk says, it begins"

    Fuzzer(target, [value for value in journal.values() if value], 6).run(max(30, RUNS // 40))


def test_no_struct_outgrows_its_bounds():
    """Every bytes, str and tuple field that travels has a maximum."""
    for item in [*swim_vectors.messages(), *swim_vectors.bodies()]:
        for field in msgspec.inspect.type_info(type(item)).fields:
            kind = field.type
            if isinstance(kind, msgspec.inspect.BytesType | msgspec.inspect.StrType | msgspec.inspect.VarTupleType):
                assert kind.max_length is not None, (type(item).__name__, field.name)
