"""Fuzz targets of each message of a mesh, at a node whose view is one: beacons, reports, parts, receipts, streams."""

from collections.abc import Callable

from swarmd_protocols.channel.codec import encode, join
from swarmd_protocols.effects import DatagramReceived
from swarmd_protocols.swim.mesh.relay import HELD_SHARE
from swarmd_protocols.swim.mesh.relay_words import Onward, Taken
from swarmd_protocols.swim.messages import Beacon, Near, NearBody
from tests.support import far_vectors
from tests.support.mesh_net import MeshNet, line

Target = Callable[[bytes], None]
_STEP, _STEP_S = 10, 0.1
"""After so many inputs the time goes on by so much, seconds: what is read at a bounded rate is read, timers run."""


class _Four:
    """A line of four that has formed; the second is fuzzed by the first, and hears the third."""

    def __init__(self) -> None:
        self.net = MeshNet(4, line(4), 1)
        assert self.net.run_until(self.net.formed, 20) is not None
        self.net.run(5)
        self.liar, self.node, self.other, self.far = (host.node for host in self.net.hosts)
        self.inputs = 0

    def cast(self, message: bytes) -> None:
        """In a frame that whoever holds the group key casts."""
        self._read(self.liar._wire.channel.seal_cast(join([message])))

    def tell(self, message: bytes) -> None:
        """In a frame that the pair has sealed."""
        member = self.liar._core.table.by_node[self.node.node]
        wire = self.liar._wire
        effects, wire.effects = wire.effects, []
        wire.push(member, [message])
        self.net.perform(self.net.hosts[0], wire.effects)
        wire.effects = effects

    def sign(self, body: bytes) -> bytes:
        return encode(Near(body, self.liar._core.sign("near", body)))

    def ticked(self) -> None:
        """One input has been read; nothing of what is kept grows with their number."""
        self.inputs += 1
        if self.inputs % _STEP:
            return
        self.net.run(_STEP_S)
        core, view = self.node._core, self.net.view(1)
        assert len(core.table) == 3
        assert len(view.near._strangers) <= 64
        assert max(len(view.reports.heard), len(view.reports._words), len(view.near._beacons)) <= 3
        assert len(self.node._relay._held) <= HELD_SHARE
        assert len(core.scheduler._heap) < 5_000

    def _read(self, sealed: bytes) -> None:
        if len(sealed) <= 1_200:
            self.net.feed(1, DatagramReceived(self.net.address(0), sealed))


def _padded(data: bytes, size: int) -> bytes:
    return data[:size].ljust(size, b"\0")


def beacons() -> tuple[list[bytes], Target]:
    """Bytes in place of one, and well-formed ones in names and of lives that they draw."""
    four = _Four()
    names = [four.liar.node, four.node.node, four.other.node, four.far.node]

    def read(data: bytes) -> None:
        four.cast(data)
        known = names[data[0] % 4] if data and data[0] < 128 else _padded(data, 16)
        four.cast(encode(Beacon(known, int.from_bytes(_padded(data[16:], 8)) >> 1)))
        four.ticked()

    lives = (0, 1 << 20, (1 << 20) + 5, 2**50)
    return [encode(Beacon(name, life)) for name in names for life in lives], read


def reports() -> tuple[list[bytes], Target]:
    """Bytes in place of one, of what is signed, of whom it names; cast, and in a frame of the pair."""
    four = _Four()
    sequence = [2 << 20]

    def read(data: bytes) -> None:
        sequence[0] += 1
        four.cast(data)
        four.tell(four.sign(data[:400]))
        entries, gone = data[1 : 1 + data[0] % 121] if data else b"", data[-96:]
        body = NearBody(four.liar.node, sequence[0], entries, gone, len(data) % 2 == 0)
        (four.cast if len(data) % 3 else four.tell)(four.sign(encode(body)))
        four.ticked()

    own = [host.node._core.table.by_node for host in four.net.hosts]
    held = [member.report.links_encoded for table in own for member in table.values() if member.report.links_encoded]
    keys = b"".join(host.node.node[:4] + b"\x04" for host in four.net.hosts)
    return [*held, encode(NearBody(four.liar.node, 1 << 20, keys, keys[:4], True)), bytes((20,)) + keys], read


def handed_on() -> tuple[list[bytes], Target]:
    """Bytes in place of a part, and well-formed parts for everybody, of every number."""
    four = _Four()
    targets = [four.liar.node, four.node.node, four.other.node, four.far.node]

    def read(data: bytes) -> None:
        head = _padded(data, 16)
        part = Onward(
            targets[head[0] % 4] if head[0] < 200 else head,
            1 + head[1] % 12,
            1 + int.from_bytes(head[2:4]) % 65_535,
            head[4] % 2 == 0,
            head[5:13],
            head[13] % 16,
            1 + head[14] % 16,
            data[16:1_000] or b"x",
        )
        for payload in (data, encode(part)):
            four.node._core.now_ns = four.net.now
            four.node._relay.on_message(four.liar.node, payload, four.net.now)
        four.ticked()

    return [encode(Onward(target, 9, 65_535, True, bytes(8), 0, 1, b"data")) for target in targets], read


def receipts() -> tuple[list[bytes], Target]:
    """Bytes in place of one, and well-formed ones, while parts of this node wait for theirs."""
    four = _Four()
    waits = Onward(four.far.node, 9, 65_535, True, bytes(8), 0, 1, b"data")

    def read(data: bytes) -> None:
        named = [*four.node._relay._held][:1] if data[:1] == b"\0" else []
        name = named[0] if named and isinstance(named[0], bytes) else _padded(data, 8)
        for payload in (data, encode(Taken(name[:8])), encode(waits)):
            four.node._core.now_ns = four.net.now
            four.node._relay.on_message(four.other.node if payload != encode(waits) else four.liar.node, payload, 0)
        four.ticked()

    return [encode(Taken(bytes(8))), encode(Taken(b"\xff" * 8)), bytes(9)], read


def streams() -> tuple[list[bytes], Target]:
    """Bytes in place of one, of a near member and a far one, while this node sends the far one something."""
    four = _Four()
    one, node = four.node._far, four.far.node

    def read(data: bytes) -> None:
        for sender in (four.liar.node, node):
            core = four.node._core
            core.now_ns, four.node._wire.effects = four.net.now, []
            if not one._out:
                four.node._perform(one, one.carry(node, "echo", bytes(40_000)))
            four.node._perform(one, one.on_message(sender, data, core.now_ns))
            four.net.perform(four.net.hosts[1], four.node._wire.effects)
        assert len(one._intake) <= 2
        assert len(one._out) <= 1
        four.ticked()

    return [encode(word) for word in far_vectors.vectors().values()], read


MAKERS = {
    "mesh-beacon": beacons,
    "mesh-near": reports,
    "mesh-onward": handed_on,
    "mesh-taken": receipts,
    "mesh-stream": streams,
}
"""By message, what makes a corpus and a target."""
