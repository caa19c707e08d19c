"""The past from peers between whole nodes: sealed, over a network that loses datagrams and reliable frames alike."""

from random import Random
from typing import Any

from swarmd_protocols.effects import Command, Effect, Event, Order, Started, StreamReceived
from swarmd_protocols.node import Node, NodeConfig
from swarmd_protocols.past import requests
from swarmd_protocols.past.past import PastConfig, PastProtocol
from swarmd_protocols.state.crdt.batch import NodeSigner
from swarmd_protocols.trust.identity import make_dev_identity, open_trust
from tests.support.past_world import Shelf, minutes
from tests.support.swim_net import MS, SECRET, Host, Net, S

LATE, GONE = 3, 2
STREAM_LOSS = 0.1


class PastNet(Net):
    """Nodes with a past; the last comes late."""

    def __init__(self, count: int, seed: int, loss: float) -> None:
        self.protocols: dict[int, PastProtocol] = {}
        self.shelves = [Shelf() for _ in range(count)]
        self.kept_bytes = 0
        super().__init__(count, seed, loss=loss, start=False)

    def physical_ms(self, now_ns: int) -> int:
        return now_ns // MS

    def make(self, index: int, journal: dict[bytes, bytes]) -> Node:
        identity = make_dev_identity(SECRET, "test", f"n{index:03d}", self.crypto)
        trust = open_trust(identity, journal, self.crypto)
        signer = NodeSigner(self.crypto, identity.seed)
        past = self.protocols[index] = PastProtocol(identity.node, signer, trust, PastConfig(), self.physical_ms)
        config = NodeConfig(seeds=() if index == 0 else (self.address(0),), swim=self.swim)
        rng = Random(self.rng.getrandbits(64))
        return Node(identity, config, self.crypto, rng, journal, [past], self.address(index), trust)

    def perform(self, host: Host, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Order):
                self.at(self.now + MS, lambda order=effect: self.carry_out(host, order.request))  # type: ignore[misc]
        super().perform(host, effects)

    def carry_out(self, host: Host, request: Any) -> None:
        shelf = self.shelves[host.index]
        match request:
            case requests.FindRows(ticket):
                node = make_dev_identity(SECRET, "test", f"n{host.index:03d}", self.crypto).node
                self.feed(host.index, Command("past", requests.Rows(ticket, shelf.rows(node))))
            case requests.FindPages():
                self.feed(host.index, Command("past", shelf.find(request)))
            case requests.KeepPages(_, pages):
                self.kept_bytes += sum(map(len, pages))
                shelf.keep(pages)

    def carry(self, host: Host, destination: str, event: Event, loss: float) -> None:
        super().carry(host, destination, event, STREAM_LOSS if isinstance(event, StreamReceived) else loss)


def test_a_late_observer_hears_what_was_and_what_nobody_can_tell() -> None:
    """Three nodes live for half an hour; one is gone when the observer comes. It has all pages of the two others, and
    of the third it knows that it knows nothing.
    """
    net = PastNet(4, 7, loss=0.15)
    net.now = begin_ns = 2_000 * S
    identities = [make_dev_identity(SECRET, "test", f"n{index:03d}", net.crypto) for index in range(4)]
    begin_ms = net.physical_ms(begin_ns) - 1_800_000
    for index in range(3):
        net.shelves[index].keep(minutes(identities[index], 30, begin_ms, places=60))
        net.feed(index, Started())
    net.run(20)
    net.kill(GONE)
    net.run(20)
    net.feed(LATE, Started())
    net.run(10)
    end_ms = begin_ms + 1_800_000
    net.feed(LATE, Command("past", requests.Want(begin_ms, end_ms)))
    net.run(400)
    late = net.protocols[LATE]
    found = {index: [] for index in range(3)}  # type: dict[int, list[str]]
    for one in late.stretches(begin_ms, end_ms):
        for index in range(3):
            if one.author == identities[index].node:
                found[index].append(one.what)
    assert found[0] == found[1] == ["whole"]
    assert found[GONE] in ([], ["unreachable"]), "of who is gone nothing is claimed"
    for index in range(2):
        node = identities[index].node
        assert net.shelves[LATE].of(node) == net.shelves[index].of(node)
    assert not [effect for _, _, effect in net.log if type(effect).__name__ == "Alarm"]
    whole = sum(len(page) for index in range(2) for _, _, page in net.shelves[index].of(identities[index].node))
    assert net.kept_bytes < 3 * whole, "what was lost is not fetched over and over"
