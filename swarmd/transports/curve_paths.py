"""What the transports over ZeroMQ CURVE share: their life, and the paths that dial connections of their own."""

import asyncio
from collections import Counter
from collections.abc import Sequence

import zmq

from swarmd.errors import TransportError
from swarmd.transports.address import is_ipv6, parse_address
from swarmd.transports.base import MAX_STREAM_BYTES, TOO_LARGE, TransportHandlers
from swarmd.transports.casting import Casting, CastOptions
from swarmd.transports.curve import CurveKeys
from swarmd.transports.host_probe import HostProber
from swarmd.transports.reach import Reach
from swarmd.transports.zmq_dialler import Dialler
from swarmd.transports.zmq_link import BULK_PATH, STREAM_PATH, Path
from swarmd.transports.zmq_listener import Listener
from swarmd_protocols.ids import Address

_FLUSH_S = 1.0
"""Seconds that a stop waits for what is on its way."""


class CurvePaths:
    """See the module; one object for one life. A subclass binds, says which paths dial, and sends datagrams."""

    DIALS: Sequence[Path] = (STREAM_PATH, BULK_PATH)

    def __init__(
        self,
        listen: str,
        keys: CurveKeys,
        advertise: str = "",
        interfaces: Sequence[str] = (),
        casts: CastOptions | None = None,
    ) -> None:
        """Remember where to listen; nothing is opened before `start`.

        Args:
            listen: "ip:port"; port 0 for any free one; "[::]:port" is IPv4 and IPv6.
            keys: CURVE keys of every connection.
            advertise: What peers should use instead, "" for what the interfaces have.
            interfaces: Patterns of the interfaces whose addresses peers are told; none: all.
            casts: How to cast; None: not.
        """
        self._listen = listen
        self._keys = keys
        self._advertise = advertise
        self._interfaces = interfaces
        self._cast_options = casts
        self._casting: Casting | None = None
        self._reach: Reach | None = None
        self._counts: Counter[str] = Counter()
        self._handlers: TransportHandlers | None = None
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._diallers: dict[Path, Dialler] = {}
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
        if self._casting is not None:
            self._casting.look_around()
        return changed

    async def start(self, handlers: TransportHandlers) -> None:
        """Bind and begin to deliver.

        Raises:
            TransportError: Names the address, the cause and the remedy.
        """
        host, port = parse_listen(self._listen)
        self._handlers = handlers
        self._context = zmq.Context(io_threads=1)
        self._listener = Listener(self._context, self._keys, self._on_frame, self._counts)
        try:
            host, port = self._bind(host, port)
            reach = self._reach = Reach(host, port, self._advertise, self._interfaces)
        except BaseException:
            self._release()
            self._listener.close()
            self._context.term()
            self._closed = True
            raise
        self._prober = HostProber(reach, handlers.host_probed, self._counts)
        self._diallers = {
            path: Dialler(self._context, self._keys, path, reach, handlers.send_failed, self._counts, handlers.lost)
            for path in self.DIALS
        }
        self._listener.start()
        for dialler in self._diallers.values():
            dialler.start(reach.address, is_ipv6(host))
        if self._cast_options is not None:
            self._casting = Casting(self._cast_options, reach, handlers.datagram, self._counts)
            self._casting.look_around()

    def send_stream(self, destination: Address, data: bytes, deadline_ns: int, bulk: bool) -> None:
        """Queue for the reliable path."""
        if len(data) > MAX_STREAM_BYTES:
            self._refuse(destination, TOO_LARGE, "streams_refused")
            return
        self._diallers[BULK_PATH if bulk else STREAM_PATH].send(destination, data, deadline_ns)

    @property
    def casts(self) -> bool:
        """Whether UDP multicast is on, and this node listens where others are."""
        return self._casting is not None and self._casting.wanted

    def send_cast(self, data: bytes) -> None:
        """One multicast packet on each interface; counted where there is none."""
        if self._casting is None:
            self._counts["casts_refused"] += 1
        else:
            self._casting.send(data)

    def cast_opened(self, source: Address, nonce: bytes) -> None:
        """Whoever casts from there is known from here on."""
        if self._casting is not None:
            self._casting.opened(source, nonce)

    @property
    def cast_problem(self) -> str:
        """Why casts do not go out on some interface where they should, with the remedy."""
        return "" if self._casting is None else self._casting.problem

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
        if self._casting is not None:
            self._casting.close()
        await self._close_links(self._context)
        self._release()

    async def _close_links(self, context: "zmq.Context[zmq.Socket[bytes]]") -> None:
        """Let what is queued leave for at most a second, then release sockets without stopping the loop."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + _FLUSH_S
        diallers = self._diallers.values()
        while any(dialler.pending for dialler in diallers) and loop.time() < until_s:
            await asyncio.sleep(0.01)
        self._listener.close()
        for dialler in diallers:
            dialler.close(linger_ms=max(0, int((until_s - loop.time()) * 1_000)))
        await asyncio.to_thread(context.term)

    def _refuse(self, destination: Address, reason: str, counter: str) -> None:
        assert self._handlers is not None, "start comes first"
        self._counts[counter] += 1
        asyncio.get_running_loop().call_soon(self._handlers.send_failed, destination, reason)

    def _bind(self, host: str, port: int) -> tuple[str, int]:
        """Open what listens; host and port as they are then."""
        raise NotImplementedError

    def _release(self) -> None:
        """Close what the subclass has opened; also where `_bind` has raised."""

    def _on_frame(self, path: Path, source: Address, data: bytes) -> None:
        """Deliver a frame that the listener has taken."""
        raise NotImplementedError


def parse_listen(listen: str) -> tuple[str, int]:
    """Host and port of a listening address.

    Raises:
        TransportError: The text is no numeric address with a port.
    """
    try:
        return parse_address(listen)
    except ValueError as error:
        raise TransportError(f"cannot listen on {listen!r}: {error}") from error
