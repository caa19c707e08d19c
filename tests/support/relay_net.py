"""A mesh that has formed, what its nodes send far ones, and what comes."""

from collections import Counter

from swarmd_protocols.effects import Command
from swarmd_protocols.subprotocol import Priority, Send
from swarmd_protocols.swim.mesh.relay import Relay
from tests.support.mesh_net import Echo, MeshNet, line


def formed(count: int, links: set[tuple[int, int]] | None = None, seed: int = 1) -> MeshNet:
    """A mesh that has formed, every node of which says what it hears."""
    net = MeshNet(count, links or line(count), seed, echo=True)
    assert net.run_until(net.formed, 20) is not None
    net.run(6)
    return net


def say(net: MeshNet, source: int, target: int, payload: bytes, *, sure: bool = True) -> None:
    """One node sends another something."""
    to = net.hosts[target].node.node
    net.feed(source, Command("echo", Send(to, payload, sure, Priority.SYNC)))


def heard(net: MeshNet, index: int) -> Counter[bytes]:
    """What came to a node, and how often."""
    echo: Echo = net.hosts[index].node._subs["echo"]  # type: ignore[assignment]
    return Counter(payload for _, payload in echo.heard)


def count_of(net: MeshNet, what: str) -> int:
    """A counter of all nodes."""
    return sum(host.node._core.counters[what] for host in net.hosts)


def relay_of(net: MeshNet, index: int) -> Relay:
    """Of one node."""
    return net.hosts[index].node._relay
