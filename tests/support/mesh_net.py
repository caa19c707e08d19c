"""A small network of radios that reach some of the others only, with casts or without."""

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

from swarmd_protocols.effects import DatagramReceived, Effect, MemberState, SendCast, Started, TimerKey
from swarmd_protocols.ids import NodeId
from swarmd_protocols.node import Node, NodeConfig
from swarmd_protocols.subprotocol import Peer, SubEffect
from swarmd_protocols.swim.config import SwimConfig
from swarmd_protocols.trust.identity import make_dev_identity
from tests.support.swim_net import SECRET, Host, Net

Pairs = set[tuple[int, int]]


def line(count: int) -> Pairs:
    """Each hears its neighbours."""
    return {(index, index + 1) for index in range(count - 1)}


def everybody(count: int) -> Pairs:
    """Each hears all."""
    return {(a, b) for a in range(count) for b in range(a + 1, count)}


class Echo:
    """A sub-protocol that sends what it is commanded to, and keeps what it hears."""

    name = "echo"

    def __init__(self) -> None:
        self.heard: list[tuple[NodeId, bytes]] = []

    def start(self, now_ns: int) -> list[SubEffect]:
        return []

    def on_message(self, sender: NodeId, payload: bytes, now_ns: int) -> list[SubEffect]:
        self.heard.append((sender, payload))
        return []

    def on_timer(self, key: TimerKey, now_ns: int) -> list[SubEffect]:
        return []

    def on_command(self, request: Any, now_ns: int) -> list[SubEffect]:
        return [request]

    def on_peers(self, peers: Sequence[Peer], now_ns: int) -> list[SubEffect]:
        return []

    def summary(self) -> bytes:
        return b""

    def on_summary(self, sender: NodeId, summary: bytes, now_ns: int) -> list[SubEffect]:
        return []

    def piggyback(self, budget_bytes: int, now_ns: int) -> list[bytes]:
        return []


class MeshNet(Net):
    """Nodes that start together and are told to join those in their reach."""

    def __init__(
        self, count: int, links: Pairs, seed: int = 1, *, casts: bool = True, echo: bool = False, **options: Any
    ) -> None:
        self.links = links
        self.casts = casts
        self.echo = echo
        super().__init__(count, seed, start=False, **{"swim": SwimConfig(mesh="on", casts=casts), **options})
        self.relink(links)
        for index in range(count):
            self.feed(index, Started())

    def relink(self, links: Iterable[tuple[int, int]]) -> None:
        """Radios reach these pairs from here on."""
        both = {pair for a, b in links for pair in ((a, b), (b, a))}
        count = len(self.hosts)
        self.blocked = {(a, b) for a in range(count) for b in range(count) if a != b} - both

    def make(self, index: int, journal: dict[bytes, bytes]) -> Node:
        identity = make_dev_identity(SECRET, "test", f"n{index:03d}", self.crypto)
        beside = sorted({b if a == index else a for a, b in self.links if index in (a, b)})
        seeds = tuple(self.address(other) for other in beside[:3])
        config = NodeConfig(seeds=seeds, version="1", capability="eye", swim=self.swim)
        rng, subs = Random(self.rng.getrandbits(64)), [Echo()] if self.echo else self.subs(index)
        return Node(identity, config, self.crypto, rng, journal, subs, self.address(index))

    def perform(self, host: Host, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, SendCast) and self.casts:
                for other in self.hosts:
                    if other is not host:
                        event = DatagramReceived(self.address(host.index), effect.data)
                        self.carry(host, self.address(other.index), event, self.loss)
        super().perform(host, [effect for effect in effects if not isinstance(effect, SendCast)])

    def hears(self, index: int, other: int) -> bool:
        """Whether a frame of another could reach a node."""
        return (other, index) not in self.blocked

    def view(self, index: int) -> Any:
        """How a node sees the swarm."""
        return self.hosts[index].node._core.view

    def is_mesh(self, index: int) -> bool:
        """Whether a node's view is a mesh."""
        return bool(self.view(index).weighs_links)

    def sees(self, index: int, subject: int) -> MemberState | None:
        """What a node believes of another."""
        return self.states(index).get(f"n{subject:03d}")

    def failures(self, since_ns: int = 0) -> list[tuple[int, str]]:
        """Verdicts of failure: by whom, about whom."""
        return [(index, change.name) for _, index, change in self.changes(MemberState.FAILED, since_ns)]
