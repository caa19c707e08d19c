"""Frames over ZeroMQ CURVE: one listening ROUTER, and one dialling ROUTER a path for all peers.

    dialler (path "s", 10.0.0.1:7946) --tcp--> listener of 10.0.0.2:7946      one connection a path and direction
    routing id, one a connection: b"s|10.0.0.1:7946|<16 random digits>"       what the listener learns of the sender

What both ends share; `zmq_listener.py` and `zmq_dialler.py` are the ends. Rules they keep:

- Frames of a path never wait behind another path's: each path dials its own connections, all to the same port.
- A frame is handed to ZeroMQ only while its connection stands; until then it waits here, in a bounded queue, under its
  deadline. What a standing connection has swallowed is discarded, where it is lost, at the first deadline of what may
  still be held: ZeroMQ would deliver it after the heal, however old.
- ZeroMQ's descriptor is edge-triggered: after every call on a socket its events are looked at again.
- A routing id is never used twice on a socket: libzmq aborts the process.
- What a sender says of its address is a claim. Whoever acts on a frame opens its seal first.
"""

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass

import zmq

from swarmd.transports.address import parse_ways
from swarmd_protocols.ids import Address

ROUTING_ID_MAX_BYTES = 96
"""Bytes of a routing id: path, the longest address and 16 digits."""


@dataclass(frozen=True, slots=True)
class Path:
    """One kind of traffic with connections of its own."""

    mark: bytes
    """One byte that starts the routing id."""
    name: str
    """Prefix of its counters."""
    queue_frames: int
    queue_bytes: int
    """Bounds of what waits for one peer."""
    idle_s: float
    """A connection that carried nothing for so long is closed: TCP's probes cost air time."""


DATAGRAM_PATH = Path(b"d", "datagram", queue_frames=32, queue_bytes=64 * 1024, idle_s=60.0)
STREAM_PATH = Path(b"s", "stream", queue_frames=256, queue_bytes=16 * 1024 * 1024, idle_s=10.0)
BULK_PATH = Path(b"b", "bulk", queue_frames=64, queue_bytes=32 * 1024 * 1024, idle_s=10.0)
PATHS = {path.mark: path for path in (DATAGRAM_PATH, STREAM_PATH, BULK_PATH)}


def probe_dead_connections(sock: "zmq.Socket[bytes]") -> None:
    """Let TCP ask a silent peer once a second, and end the connection after three questions without an answer."""
    sock.setsockopt(zmq.TCP_KEEPALIVE, 1)
    sock.setsockopt(zmq.TCP_KEEPALIVE_IDLE, 1)
    sock.setsockopt(zmq.TCP_KEEPALIVE_INTVL, 1)
    sock.setsockopt(zmq.TCP_KEEPALIVE_CNT, 3)


class WatchedSocket:
    """A ZeroMQ socket whose descriptor wakes the event loop."""

    def __init__(self, sock: "zmq.Socket[bytes]", on_ready: Callable[[], None]) -> None:
        self.socket = sock
        self._on_ready = on_ready
        self._loop = asyncio.get_running_loop()
        self._descriptor = int(sock.getsockopt(zmq.FD))
        self._scheduled: asyncio.Handle | None = None
        self._loop.add_reader(self._descriptor, on_ready)
        self.look_again()  # The descriptor tells nothing before the socket has once been found empty.

    def look_again(self) -> None:
        """Come back on the next turn of the loop: the edge may have passed during our own call."""
        if self._scheduled is None:
            self._scheduled = self._loop.call_soon(self._run)

    def close(self, linger_ms: int) -> None:
        """Close it with what it still holds, at most `linger_ms` from now."""
        if self._scheduled is not None:
            self._scheduled.cancel()
        self._loop.remove_reader(self._descriptor)
        self.socket.close(linger=linger_ms)

    def _run(self) -> None:
        self._scheduled = None
        self._on_ready()


def routing_id_of(path: Path, address: Address) -> bytes:
    """What a dialler calls itself on one connection; random at the end, so that nobody else can call himself so."""
    return path.mark + b"|" + address.encode("ascii") + b"|" + secrets.token_hex(8).encode("ascii")


def parse_routing_id(routing_id: bytes) -> tuple[Path, Address] | None:
    """Path and claimed address of a sender, or None when the id is not of our making."""
    fields = routing_id.split(b"|")
    if len(routing_id) > ROUTING_ID_MAX_BYTES or len(fields) != 3 or fields[0] not in PATHS:
        return None
    try:
        return PATHS[fields[0]], parse_ways(fields[1].decode("ascii"))
    except ValueError:
        return None
