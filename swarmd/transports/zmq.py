"""Everything over ZeroMQ CURVE: for networks that let no UDP through.

Probes, reliable frames and bulk dial connections of their own to one TCP port, so that none waits behind another. A
"datagram" here is a frame with a deadline of half a second.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence

import zmq

from swarmd.errors import TransportError
from swarmd.transports.address import is_ipv6
from swarmd.transports.base import MAX_DATAGRAM_BYTES, MAX_STREAM_BYTES, TOO_LARGE, TransportHandlers
from swarmd.transports.curve import CurveKeys
from swarmd.transports.host_probe import HostProber
from swarmd.transports.reach import Reach
from swarmd.transports.udp import close_links, parse_listen
from swarmd.transports.udp_socket import usable_wildcard
from swarmd.transports.zmq_dialler import Dialler
from swarmd.transports.zmq_link import BULK_PATH, DATAGRAM_PATH, STREAM_PATH, Path
from swarmd.transports.zmq_listener import Listener
from swarmd_protocols.ids import Address

_DATAGRAM_DEADLINE_NS = 500_000_000
"""Nanoseconds after which a probe or a piece of gossip that still waits is worthless: a probe's window."""
_FLUSH_S = 1.0
"""Seconds that a stop waits for what is on its way."""


class ZmqTransport:
    """See the module; one object for one life."""

    def __init__(self, listen: str, keys: CurveKeys, advertise: str = "", interfaces: Sequence[str] = ()) -> None:
        """Remember where to listen; nothing is opened before `start`.

        Args:
            listen: "ip:port"; port 0 for any free one; "[::]:port" is IPv4 and IPv6.
            keys: CURVE keys of every connection.
            advertise: What peers should use instead, "" for what the interfaces have.
            interfaces: Patterns of the interfaces whose addresses peers are told; none: all.
        """
        self._listen = listen
        self._keys = keys
        self._advertise = advertise
        self._interfaces = interfaces
        self._reach: Reach | None = None
        self._counts: Counter[str] = Counter()
        self._handlers: TransportHandlers | None = None
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._closed = False

    @property
    def local_address(self) -> Address:
        """The address that peers should use."""
        return self.reach.address

    @property
    def reach(self) -> Reach:
        """Where this node is reached."""
        if self._reach is None:
            raise TransportError("the transport has no address before it is started")
        return self._reach

    def look_around(self) -> bool:
        """Look at the device's addresses again; True where peers are to be told another one."""
        changed = self.reach.refresh()
        if changed:
            for dialler in self._diallers.values():
                dialler.move(self.reach.address)
        return changed

    async def start(self, handlers: TransportHandlers) -> None:
        """Bind TCP and begin to deliver.

        Raises:
            TransportError: Names the address, the cause and the remedy.
        """
        host, port = parse_listen(self._listen)
        self._handlers = handlers
        self._context = zmq.Context(io_threads=1)
        self._listener = Listener(self._context, self._keys, self._on_frame, self._counts)
        try:
            host = usable_wildcard(host)
            port = self._listener.bind(host, port)
        except BaseException:
            self._context.term()
            self._closed = True
            raise
        reach = self._reach = Reach(host, port, self._advertise, self._interfaces)
        self._prober = HostProber(reach, handlers.host_probed, self._counts)
        self._diallers = {
            path: Dialler(self._context, self._keys, path, reach, handlers.send_failed, self._counts, handlers.lost)
            for path in (DATAGRAM_PATH, STREAM_PATH, BULK_PATH)
        }
        self._listener.start()
        for dialler in self._diallers.values():
            dialler.start(reach.address, is_ipv6(host))

    def send_datagram(self, destination: Address, data: bytes) -> None:
        """Send within half a second or never."""
        if len(data) > MAX_DATAGRAM_BYTES:
            self._refuse(destination, "datagrams_refused")
            return
        self._diallers[DATAGRAM_PATH].send(destination, data, time.monotonic_ns() + _DATAGRAM_DEADLINE_NS)

    def send_stream(self, destination: Address, data: bytes, deadline_ns: int, bulk: bool) -> None:
        """Queue for the reliable path."""
        if len(data) > MAX_STREAM_BYTES:
            self._refuse(destination, "streams_refused")
            return
        self._diallers[BULK_PATH if bulk else STREAM_PATH].send(destination, data, deadline_ns)

    @property
    def casts(self) -> bool:
        """No: each peer has a path of its own."""
        return False

    def send_cast(self, data: bytes) -> None:
        """Nothing, and counted."""
        self._counts["casts_refused"] += 1

    def probe_host(self, destination: Address, timeout_ns: int) -> None:
        """Ask the destination's kernel whether its TCP port is open."""
        if not self._closed:
            self._prober.probe(destination, timeout_ns)

    async def rekey(self, keys: CurveKeys) -> None:
        """Use another group key from now on; connections that stand are kept."""
        self._keys = keys
        if self._context is not None and not self._closed:
            for dialler in self._diallers.values():
                dialler.rekey(keys)
            await self._listener.rekey(keys)

    def counters(self) -> dict[str, int]:
        """Monotonic counts: bytes and frames in and out per path, drops by reason."""
        return dict(self._counts)

    async def close(self) -> None:
        """Flush for at most a second and release everything; may be called twice."""
        if self._closed or self._context is None:
            return
        self._closed = True
        self._prober.close()
        await close_links(list(self._diallers.values()), self._listener, self._context, _FLUSH_S)

    def _on_frame(self, path: Path, source: Address, data: bytes) -> None:
        assert self._handlers is not None, "start has set them"
        if path is not DATAGRAM_PATH:
            self._handlers.stream(source, data)
        elif len(data) <= MAX_DATAGRAM_BYTES:
            self._handlers.datagram(source, data)
        else:
            self._counts["datagrams_dropped_size"] += 1

    def _refuse(self, destination: Address, counter: str) -> None:
        assert self._handlers is not None, "start comes first"
        self._counts[counter] += 1
        asyncio.get_running_loop().call_soon(self._handlers.send_failed, destination, TOO_LARGE)
