"""The listening end of ZeroMQ: one ROUTER that takes the frames of all peers and paths; the rules: `zmq_link.py`."""

import asyncio
import errno
import os
from collections import Counter
from collections.abc import Callable

import zmq

from swarmd.errors import TransportError
from swarmd.transports.address import format_address, is_ipv6, parse_address
from swarmd.transports.base import MAX_STREAM_BYTES
from swarmd.transports.curve import CurveKeys
from swarmd.transports.zmq_link import (
    ROUTING_ID_MAX_BYTES,
    Path,
    WatchedSocket,
    parse_routing_id,
    probe_dead_connections,
)
from swarmd_protocols.ids import Address

_RECEIVE_HIGH_WATER = 50
"""Frames that ZeroMQ keeps for us; beyond, TCP slows the sender."""
_BACKLOG = 512
"""Connections that wait to be accepted: a swarm of 256 that starts at once, on two paths."""
_REBIND_TRIES, _REBIND_PAUSE_S = 100, 0.01
_CURVE_OVERHEAD_BYTES = 256
"""More than the command name, nonce and authenticator that an encrypted message carries."""
_DRAIN_MAX = 128
"""Frames read a wake-up before timers get their turn."""
_SENDERS_MAX = 1_024
"""Paths of addresses whose reading is remembered, 0.2 MB: of a swarm of 256 on each of its paths."""


class Listener:
    """Receives the frames of every path on one TCP port."""

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        keys: CurveKeys,
        received: Callable[[Path, Address, bytes], None],
        counts: "Counter[str]",
    ) -> None:
        """Prepare; nothing is opened before `bind`.

        Args:
            context: Shared by all sockets of the transport.
            keys: The group's pair is the one listened under.
            received: Called with the path, the address that the sender claims, and the frame.
            counts: Where frames, bytes and drops are counted.
        """
        self._keys = keys
        self._received = received
        self._counts = counts
        self._context = context
        self._watched: WatchedSocket | None = None
        self._socket: zmq.Socket[bytes] | None = None
        self._senders: dict[bytes, tuple[Path, Address] | None] = {}
        """By what a routing id begins with: its digits are others' on every connection, and a peer makes many."""

    def bind(self, host: str, port: int) -> int:
        """Open and bind.

        Args:
            host: Numeric.
            port: 0 for any free one.

        Returns:
            The port that is now bound.

        Raises:
            TransportError: Names the address, the cause and the remedy.
        """
        sock = self._context.socket(zmq.ROUTER)
        sock.ipv6 = is_ipv6(host)
        sock.curve_server = True
        self._set_keys(sock)
        sock.setsockopt(zmq.MAXMSGSIZE, MAX_STREAM_BYTES + _CURVE_OVERHEAD_BYTES)
        sock.setsockopt(zmq.RCVHWM, _RECEIVE_HIGH_WATER)
        sock.setsockopt(zmq.SNDHWM, 1)  # Nothing is ever sent from here.
        # After a cut a peer is back before its dead connection has timed out here; without this the new one would
        # stand and deliver nothing. Nobody can take over another's: ids are random and told to this node alone.
        sock.setsockopt(zmq.ROUTER_HANDOVER, 1)
        probe_dead_connections(sock)
        sock.setsockopt(zmq.BACKLOG, _BACKLOG)
        sock.setsockopt(zmq.HANDSHAKE_IVL, 5_000)
        try:
            sock.bind(f"tcp://{format_address(host, port)}")
        except zmq.ZMQError as error:
            sock.close(linger=0)
            raise TransportError(_bind_message(host, port, error)) from error
        self._socket = sock
        return int(str(sock.getsockopt_string(zmq.LAST_ENDPOINT)).rpartition(":")[2])

    def start(self) -> None:
        """Begin to deliver on the running event loop."""
        assert self._socket is not None, "bind comes first"
        self._watched = WatchedSocket(self._socket, self._on_ready)

    async def rekey(self, keys: CurveKeys) -> None:
        """Listen under another group key from now on; connections that stand are kept.

        Raises:
            TransportError: Another program took the port between the two.
        """
        self._keys = keys
        if self._socket is None:
            return
        endpoint = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self._socket.unbind(endpoint)
        self._set_keys(self._socket)
        for attempt in range(_REBIND_TRIES):
            try:
                self._socket.bind(endpoint)
                return
            except zmq.ZMQError as error:
                if error.errno != errno.EADDRINUSE or attempt == _REBIND_TRIES - 1:
                    host, port = parse_address(endpoint.removeprefix("tcp://"))
                    raise TransportError(_bind_message(host, port, error)) from error
            await asyncio.sleep(_REBIND_PAUSE_S)  # The I/O thread is still closing the old one.

    def close(self) -> None:
        """Stop delivering and release the socket; may be called twice."""
        if self._watched is not None:
            self._watched.close(linger_ms=0)
        elif self._socket is not None:
            self._socket.close(linger=0)
        self._watched = self._socket = None

    def _set_keys(self, sock: "zmq.Socket[bytes]") -> None:
        sock.curve_publickey, sock.curve_secretkey = self._keys.group_public, self._keys.group_secret

    def _on_ready(self) -> None:
        for _ in range(_DRAIN_MAX):
            if self._socket is None:  # A handler closed the transport.
                return
            try:
                parts = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            if self._watched is not None:
                self._watched.look_again()  # Also when the handler below raises.
            self._deliver(parts)

    def _deliver(self, parts: list[bytes]) -> None:
        sender = self._sender_of(parts[0])
        if sender is None or len(parts) != 2 or not parts[1]:
            self._counts["frames_dropped_malformed"] += 1
            return
        path, address = sender
        self._counts[f"{path.name}s_in"] += 1
        self._counts[f"{path.name}_bytes_in"] += len(parts[1])
        self._received(path, address, parts[1])

    def _sender_of(self, routing_id: bytes) -> tuple[Path, Address] | None:
        if len(routing_id) > ROUTING_ID_MAX_BYTES:
            return None
        begin = routing_id[: routing_id.rfind(b"|") + 1]
        if begin not in self._senders:
            if len(self._senders) >= _SENDERS_MAX:
                del self._senders[next(iter(self._senders))]
            self._senders[begin] = parse_routing_id(routing_id)
        return self._senders[begin]


def _bind_message(host: str, port: int, error: zmq.ZMQError) -> str:
    address = format_address(host, port)
    if error.errno == errno.EADDRINUSE:
        return f"cannot listen on tcp {address}: the port is in use; stop the other program or choose another --listen"
    if error.errno in (errno.EADDRNOTAVAIL, errno.ENODEV):
        return f"cannot listen on tcp {address}: no interface of this device has {host}; see `ip address`"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"cannot listen on tcp {address}: not permitted; choose a port above 1023"
    return f"cannot listen on tcp {address}: {os.strerror(error.errno or errno.EIO)}"
