"""An adversary with a stolen node key: it can join, seal and sign as itself, and say whatever it likes."""

from collections.abc import Callable
from typing import Any

from swarmd_protocols.channel.channel import DATAGRAM, GROUP, Channel, Session, frame_kind
from swarmd_protocols.channel.codec import encode, join
from swarmd_protocols.crypto import Crypto
from swarmd_protocols.effects import DatagramReceived, Effect, SendDatagram
from swarmd_protocols.ids import NodeId
from swarmd_protocols.node import Node
from swarmd_protocols.swim.messages import (
    Accusation,
    AccusationBody,
    AliveBody,
    Hello,
    Message,
    Record,
    Statement,
    decode_messages,
)
from swarmd_protocols.trust.envelopes import signed_bytes
from swarmd_protocols.trust.identity import make_dev_identity
from tests.support.swim_net import Net

ADDRESS = "10.9.9.9:1"
SWARM = "test"


class Thief:
    """Talks to one node at a time."""

    def __init__(self, secret: bytes, crypto: Crypto, name: str = "thief", boot: int = 1) -> None:
        self.crypto = crypto
        self.identity = make_dev_identity(secret, SWARM, name, crypto)
        self.node = self.identity.node
        self.channel = Channel(self.identity.seed, b"thief boot %d" % boot, crypto)
        trust = self.identity.trust(crypto)
        self.channel.set_group_keys({counter: group.key for counter, group in trust.group_keys.items()})
        self.incarnation = boot << 20
        self.address = ADDRESS if name == "thief" else f"10.9.8.{sum(name.encode()) % 250}:1"
        self.sessions: dict[NodeId, Session] = {}

    def sign(self, kind: str, body: bytes) -> bytes:
        return self.crypto.sign(self.identity.seed, signed_bytes(kind, body))

    def record(self, **changes: object) -> Record:
        fields: dict[str, Any] = {
            "node": self.node,
            "incarnation": self.incarnation,
            "status": 0,
            "away_s": 0,
            "address": self.address,
            "session": self.channel.public,
            "version": "",
            "capability": "",
        }
        body = encode(AliveBody(**(fields | changes)))
        return Record(self.identity.certificate, body, self.sign("alive", body))

    def accusation(self, subject: bytes, incarnation: int, level: int = 2) -> Accusation:
        body = encode(AccusationBody(self.node, subject, incarnation, level))
        return Accusation(body, self.sign("accuse", body))

    def meet(self, target: Node, now_ns: int) -> list[Effect]:
        """Say hello, and learn the target's session from its answer."""
        hello = self.channel.seal_group(join([encode(self.record()), encode(Hello(True))]))
        effects = target.handle(DatagramReceived(self.address, hello), now_ns)
        for effect in effects:
            if isinstance(effect, SendDatagram) and frame_kind(effect.data) == GROUP:
                record = decode_messages(self.channel.open_group(effect.data)[1], 1200)[0]
                if isinstance(record, Statement):
                    continue  # Why it is not answered.
                assert isinstance(record, Record)
                self.know(target, record)
        return effects

    def know(self, target: Node, record: Record) -> None:
        import msgspec

        body = msgspec.msgpack.decode(record.body, type=AliveBody)
        certificate = self.identity.trust(self.crypto).certificate(record.certificate)
        self.sessions[target.node] = self.channel.session(target.node, certificate.public_key, body.session)

    def seal(self, target: Node, messages: list[Message]) -> bytes:
        return self.channel.seal(self.sessions[target.node], DATAGRAM, join([encode(message) for message in messages]))

    def say(self, target: Node, messages: list[Message], now_ns: int) -> list[Effect]:
        return target.handle(DatagramReceived(self.address, self.seal(target, messages)), now_ns)


def formed(count: int = 5, **options: Any) -> Net:
    """A swarm of so many that has formed and come to rest; `options` as `Net` takes them."""
    net = Net(count, **options)
    assert net.run_until(net.formed, 5) is not None
    net.run(2)
    return net


def meet_all(net: Net, thief: Thief) -> None:
    """The thief joins at every host."""
    for host in net.hosts:
        net.perform(host, thief.meet(host.node, net.now))


def victim_facts(net: Net, index: int) -> tuple[NodeId, int]:
    """Who a host is and in which incarnation."""
    core = net.hosts[index].node._core
    return core.own.node, core.own.incarnation


def signed(thief: Thief, message: Callable[[bytes, bytes], Any], kind: str, body: Any) -> Any:
    """A message of that kind whose body the thief has signed with the key it holds."""
    raw = encode(body)
    return message(raw, thief.sign(kind, raw))
