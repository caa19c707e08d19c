"""A small network of whole members: membership with the sub-protocols of a daemon, and a member that fills frames."""

from collections.abc import Sequence
from random import Random

from swarmd_protocols.channel.codec import STREAM_MAX_BYTES, encode
from swarmd_protocols.effects import Alarm, Effect, Event, SendDatagram, SendStream, StreamReceived, TimerFired
from swarmd_protocols.node import Node, NodeConfig
from swarmd_protocols.offload.offload import Offload, OffloadConfig
from swarmd_protocols.reader import NEXT_NS
from swarmd_protocols.releases.releases import Releases, ReleasesConfig
from swarmd_protocols.state.config import ReplicaConfig
from swarmd_protocols.state.crdt.batch import NodeSigner
from swarmd_protocols.state.positions import Positions, PositionsConfig
from swarmd_protocols.state.replica import Replica
from swarmd_protocols.subprotocol import SubProtocol
from swarmd_protocols.swim.messages import Message
from swarmd_protocols.trust.identity import make_dev_identity, open_trust
from tests.support.swim_net import SECRET, TICK, Net, S

FILLER, READER = 7, 0
"""Who fills frames, and who reads them."""
MODEL = "thermal"


class WholeNet(Net):
    """As `Net`; each node has all sub-protocols."""

    def make(self, index: int, journal: dict[bytes, bytes]) -> Node:
        identity = make_dev_identity(SECRET, "test", f"n{index:03d}", self.crypto)
        trust = open_trust(identity, journal, self.crypto)
        signer = NodeSigner(self.crypto, identity.seed)
        public_key = self.crypto.public_key(identity.seed)
        replica = Replica(
            node=identity.node,
            signer=signer,
            trust=trust,
            config=ReplicaConfig(),
            rng=Random(index),
            restored={},
            life=1,
            wall_offset_ns=1_700_000_000 * S,
            public_key=public_key,
        )
        releases = Releases(
            public_key,
            lambda message: self.crypto.sign(identity.seed, message),
            trust,
            ReleasesConfig(models=(MODEL,)),
            Random(index),
            {},
        )
        physical_ms = replica.clock.physical_ms
        lends = OffloadConfig(lends=True, borrows=True)
        offload = Offload(
            identity.node, identity.seed, self.crypto, lends, 1, Random(index), physical_ms, lambda digest, data: True
        )
        where = Positions(identity.node, signer, PositionsConfig(), 1, physical_ms)
        seeds = () if index == 0 else (self.address(0),)
        config = NodeConfig(seeds=seeds, version="1", capability="eye", swim=self.swim)
        subs: list[SubProtocol] = [replica, releases, where, offload]
        return Node(identity, config, self.crypto, Random(index), journal, subs, self.address(index), trust)

    def ids(self) -> list[bytes]:
        return [host.node.node for host in self.hosts]

    def public_ms(self) -> int:
        """Swarm time as the reader knows it."""
        where = self.hosts[READER].node._subs["where"]
        assert isinstance(where, Positions)
        return where._physical_ms(self.now)


class Paid:
    """What one frame cost its reader."""

    def __init__(self) -> None:
        self.events = 0
        self.most_checks = 0
        """Signatures checked in one event."""
        self.most_effects = 0
        """Effects of one event."""
        self.checks = 0
        self.sent_bytes = 0
        self.effects: list[Effect] = []

    @property
    def names(self) -> list[str]:
        """Alarms about the sender."""
        return [effect.text for effect in self.effects if isinstance(effect, Alarm)]


def sealed(net: WholeNet, messages: Sequence[Message], by: int = FILLER) -> StreamReceived:
    """As many of the messages as one frame holds.

    Args:
        net: The network, formed.
        messages: What is said.
        by: Who says it.
    """
    parts, room = [], STREAM_MAX_BYTES - 64
    for encoded in map(encode, messages):
        room -= len(encoded)
        if room < 0:
            break
        parts.append(encoded)
    node, reader = net.hosts[by].node, net.hosts[READER].node
    core, wire = node._core, node._wire
    core.now_ns, wire.effects = net.now, []
    wire.stream(core.table.by_node[reader.node], parts)
    (frame,) = [effect.data for effect in wire.effects if isinstance(effect, SendStream)]
    return StreamReceived(core.own.address, frame)


def paid(net: WholeNet, messages: Sequence[Message]) -> Paid:
    """What it costs the reader to read a frame of the filler to its end.

    Args:
        net: The network, formed.
        messages: What the filler says.
    """
    reader = net.hosts[READER].node
    found, now_ns = Paid(), net.now
    event: Event = sealed(net, messages)
    while True:
        checks = net.crypto.checks
        effects = reader.handle(event, now_ns)
        found.events += 1
        found.checks += net.crypto.checks - checks
        found.most_checks = max(found.most_checks, net.crypto.checks - checks)
        found.most_effects = max(found.most_effects, len(effects))
        found.sent_bytes += sum(len(one.data) for one in effects if isinstance(one, SendDatagram | SendStream))
        found.effects += effects
        if not reader._reader.waiting_bytes:
            return found
        now_ns += NEXT_NS
        event = TimerFired(TICK)
