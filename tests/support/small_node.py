"""A small node of our own, so that the engine can be tested apart from the daemon's protocols."""

import random
from types import SimpleNamespace

from swarmd_protocols.effects import (
    Command,
    DatagramReceived,
    Effect,
    Event,
    Persist,
    SendDatagram,
    SendStream,
    SetTimer,
    Started,
    StreamReceived,
    TimerFired,
)
from swarmd_protocols.swim.messages import STATUS_ALIVE
from swarmd_sim.run.choices import Choices
from swarmd_sim.run.host import Host
from swarmd_sim.run.sections import Scenario

PERIOD_NS = 200_000_000


class SmallNode:
    """Pings a random peer each period, answers pings, keeps a counter on its disk."""

    def __init__(self, host: Host, peers: list[str], rng: random.Random) -> None:
        self.me = host.address
        self.peers = [peer for peer in peers if peer != host.address]
        self.rng = rng
        self.count = int.from_bytes(host.disk.records().get(b"small/count", b""), "big")
        self.acks = 0
        self.heard: list[bytes] = []
        self.requests: list[object] = []
        self._core = SimpleNamespace(own=SimpleNamespace(status=STATUS_ALIVE, boot=1))
        """It never says that it will be away."""

    def members(self) -> list[object]:
        return []

    def summary(self) -> SimpleNamespace:
        return SimpleNamespace(partial=False)

    def handle(self, event: Event, now_ns: int) -> list[Effect]:
        match event:
            case Started():
                return [SetTimer(("small", "tick"), now_ns + self.rng.randrange(PERIOD_NS))]
            case TimerFired(_):
                self.count += 1
                peer = self.rng.choice(self.peers)
                return [
                    Persist(b"small/count", self.count.to_bytes(4, "big")),
                    SendDatagram(peer, b"ping%d" % self.count),
                    SetTimer(("small", "tick"), now_ns + PERIOD_NS),
                ]
            case DatagramReceived(source, data) if data.startswith(b"ping"):
                return [SendDatagram(source, b"ack" + data)]
            case DatagramReceived(_, data):
                self.acks += data.startswith(b"ack")
                return []
            case StreamReceived(_, data):
                self.heard.append(data)
                return []
            case Command("send", (peer, data)):
                assert isinstance(data, bytes)
                return [SendStream(peer, data, now_ns + 10_000_000_000)]
            case Command(_, request):
                self.requests.append(request)
                return []
            case _:
                return []


class SmallMaker:
    """Makes small nodes for a simulation."""

    def __init__(self, scenario: Scenario, choices: Choices, addresses: list[str]) -> None:
        self.replicas: dict[int, object] = {}
        self.choices = choices
        self.addresses = addresses

    def make(self, host: Host) -> SmallNode:
        host.node_id = host.name.encode()
        return SmallNode(host, self.addresses, self.choices.rng("node.small"))
