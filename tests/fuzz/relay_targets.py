"""Fuzz targets of what members of a mesh hand on for others."""

from collections.abc import Callable

from swarmd_protocols.channel.codec import encode
from swarmd_protocols.swim.mesh.relay import HELD_SHARE
from swarmd_protocols.swim.mesh.relay_words import Onward
from tests.support.mesh_net import MeshNet, line
from tests.support.relay_vectors import vectors


def corpus() -> list[bytes]:
    """One of each kind."""
    return [encode(message) for message in vectors().values()]


def at_a_node() -> Callable[[bytes], None]:
    """Whatever a near member hands on, in a mesh of four; what is well formed names a member of it."""
    net = MeshNet(4, line(4), 1)
    net.run(12)
    node, near, far = (net.hosts[index].node for index in (1, 0, 3))
    whole = encode(Onward(far.node, 9, 65_535, True, bytes(8), 0, 1, b"data"))

    def read(data: bytes) -> None:
        for payload in (data, data[:20] + whole[20:] if data[:1] == whole[:1] else whole[:-4] + data[:4]):
            node._core.now_ns = net.now
            node._relay.on_message(near.node, payload, net.now)
        assert len(node._relay._held) <= HELD_SHARE

    return read
