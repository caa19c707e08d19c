"""What a transport is: a dumb pipe of sealed frames with a best-effort and a reliable path.

Frames arrive sealed from the node (`swarmd_protocols.channel.channel`), so a transport neither authenticates nor reads
them. It never blocks the loop, bounds every queue, and drops what has passed its deadline.
"""

from collections.abc import Callable
from typing import Protocol

import msgspec

from swarmd.transports.curve import CurveKeys
from swarmd.transports.reach import Reach
from swarmd_protocols.effects import REFUSED, HostAnswer
from swarmd_protocols.ids import Address

__all__ = [
    "EXPIRED",
    "FORBIDDEN",
    "FULL",
    "MAX_DATAGRAM_BYTES",
    "MAX_STREAM_BYTES",
    "REFUSED",
    "REJECTED",
    "TOO_LARGE",
    "UNREACHABLE",
    "Transport",
    "TransportHandlers",
]

MAX_DATAGRAM_BYTES = 1_200
"""Largest frame of the best-effort path: one packet on every link, so that no fragment can be lost alone."""
MAX_STREAM_BYTES = 4 * 1024 * 1024 + 64 * 1024
"""Largest frame of the reliable path: a 4 MiB payload with its seal."""

# Reasons given to `TransportHandlers.send_failed`, beside `REFUSED`, the one that speaks about the peer.
UNREACHABLE = "unreachable"
"""No route, or the host does not answer: evidence about the path, perhaps about one's own link."""
FORBIDDEN = "forbidden"
"""The operating system does not let this node send (EPERM): evidence about oneself."""
REJECTED = "rejected"
"""The peer's port answered and refused the handshake: another swarm, or another group key."""
TOO_LARGE = "too large"
"""The frame exceeds what the path takes."""
EXPIRED = "expired"
"""A reliable frame's deadline passed before it could be handed over."""
FULL = "full"
"""The queue towards that peer is full."""


class TransportHandlers(msgspec.Struct, frozen=True):
    """Where a transport delivers; all of them are called on the event loop and must not block."""

    datagram: Callable[[Address, bytes], None]
    stream: Callable[[Address, bytes], None]
    send_failed: Callable[[Address, str], None]
    host_probed: Callable[[Address, HostAnswer], None] = msgspec.field(default=lambda destination, answer: None)
    lost: Callable[[Address], None] = msgspec.field(default=lambda destination: None)
    """A connection to a peer that stood was ended, not by this node: the peer may have died. Evidence of nothing more;
    a transport without connections never says it."""


class Transport(Protocol):
    """One way to reach peers: `udp`, `zmq` or `dds`."""

    @property
    def local_address(self) -> Address:
        """The address that peers should use, known after `start` (port 0 has become a real port)."""
        ...

    @property
    def reach(self) -> Reach:
        """Where this node is reached; known after `start`."""
        ...

    def look_around(self) -> bool:
        """Look at the device's addresses again; True where peers are to be told another one (`local_address`)."""
        ...

    async def start(self, handlers: TransportHandlers) -> None:
        """Bind and begin to deliver. Raises `TransportError` that names the address, the cause and the remedy."""
        ...

    def send_datagram(self, destination: Address, data: bytes) -> None:
        """Send at once or never; a refusal of the operating system becomes `send_failed`."""
        ...

    def send_stream(self, destination: Address, data: bytes, deadline_ns: int, bulk: bool) -> None:
        """Queue for the reliable path; dropped and counted after `deadline_ns` (`time.monotonic_ns`)."""
        ...

    @property
    def casts(self) -> bool:
        """Whether one frame can reach all nodes at the cost of one."""
        ...

    def send_cast(self, data: bytes) -> None:
        """Send one frame, as long as a datagram, to every node, best effort; dropped and counted where not `casts`.

        It arrives as a datagram at everybody but the sender.
        """
        ...

    def cast_opened(self, source: Address, nonce: bytes) -> None:
        """A cast that came from there has opened: a member sealed it. Who is known so has a rate of its own."""
        ...

    @property
    def cast_problem(self) -> str:
        """Why casts do not go out on some interface where they should, with the remedy; "" where nothing is known."""
        ...

    def probe_host(self, destination: Address, timeout_ns: int) -> None:
        """Ask the destination's kernel whether the port of its reliable path is open; the answer is `host_probed`.

        A transport without such a port gives no answer, and the node waits for none.
        """
        ...

    async def rekey(self, keys: CurveKeys) -> None:
        """Use another group key from now on (rotation); connections that stand are kept. Raises `TransportError`."""
        ...

    def counters(self) -> dict[str, int]:
        """Monotonic counts: bytes and frames in and out per path, drops by reason."""
        ...

    async def close(self) -> None:
        """Flush for at most a second and release everything; may be called twice."""
        ...
