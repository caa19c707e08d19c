"""The dialling end of ZeroMQ: one ROUTER a path, which connects to every peer; the rules: `zmq_link.py`."""

import asyncio
import errno
import socket
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

import zmq
from zmq.utils.monitor import parse_monitor_message

from swarmd.transports.address import format_address, is_ipv6, parse_address
from swarmd.transports.base import EXPIRED, FULL, REFUSED, REJECTED, UNREACHABLE
from swarmd.transports.curve import CurveKeys
from swarmd.transports.reach import Reach
from swarmd.transports.udp_socket import target_of
from swarmd.transports.zmq_link import Path, WatchedSocket, probe_dead_connections, routing_id_of
from swarmd_protocols.ids import Address, without_zone

_DEAD_MS = 3_000
"""Milliseconds without an acknowledgement after which TCP holds a connection for dead: three of its probes."""
_CONNECT_TIMEOUT_MS = 1_000
"""Milliseconds for a TCP connection: three round trips of a bad radio, and the first retransmission."""
_RECONNECT_MS, _RECONNECT_MAX_MS = 100, 1_000
_SEND_HIGH_WATER = 50
"""Frames that ZeroMQ swallows for one connection; the rest waits here, under its deadline."""
_TICK_S, _IDLE_TICK_S = 0.1, 2.0
"""How often to look while frames wait, and while connections merely stand."""
_SILENCE_S = 3.5
"""Dialling without any event for so long means that an event was taken for another connection's: dial anew."""
_WAY_PATIENCE_S, _WAY_PATIENCE_MAX_S = 0.3, 3.0
"""How long one of several ways is dialled before the next; twice as long in each round, for links that are slow."""
_REDIAL_AFTER_REJECTION_S = 2.0
"""Seconds until a peer that refused our keys is dialled again: new keys spread in about that time."""
_EVENTS = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CONNECT_DELAYED
    | zmq.EVENT_CLOSED
)
_HANDSHAKE_FAILURES = frozenset(
    {
        zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
        zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL,
        zmq.EVENT_HANDSHAKE_FAILED_AUTH,
    }
)


@dataclass(slots=True)
class _Connection:
    """What the dialler knows of one peer."""

    address: Address
    endpoint: str = ""
    """What is dialled: one of the ways of the address."""
    turn: int = 0
    """How often another way was taken."""
    routing_id: bytes = b""
    used_s: float = 0.0
    queue: deque[tuple[bytes, int]] = field(default_factory=deque)
    """Frame and deadline, in the order in which they were given."""
    queued_bytes: int = 0
    standing: bool = False
    dialled: bool = False
    redial_s: float = 0.0
    swallowed: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=_SEND_HIGH_WATER))
    """When ZeroMQ took its last frames, and their deadlines; monotonic nanoseconds."""
    lost_ns: int = 0
    """When the connection ceased to stand, monotonic."""
    dialling_since_s: float = 0.0
    key_index: int = 0
    """Which of the keys the peer may listen under was tried last."""


def set_options(sock: "zmq.Socket[bytes]") -> None:
    """What each dialling socket keeps to.

    Dead connections are TCP's to find. ZeroMQ's own heartbeats end the process (an assertion of libzmq 4.3.5 in
    `stream_engine_base.cpp`) where a connection fails whose input had been stopped by a full pipe.
    """
    sock.setsockopt(zmq.ROUTER_MANDATORY, 1)  # Otherwise a full pipe drops in silence.
    # A connection that is hung up on goes with what it holds. Otherwise it dials on in secret, delivers what is older
    # than its deadline, and lets no context end while its peer is away.
    sock.setsockopt(zmq.LINGER, 0)
    sock.setsockopt(zmq.SNDHWM, _SEND_HIGH_WATER)
    sock.setsockopt(zmq.RCVHWM, 1)
    sock.setsockopt(zmq.MAXMSGSIZE, 1_024)  # Handshakes only: peers answer on connections of their own.
    sock.setsockopt(zmq.TCP_MAXRT, _DEAD_MS)
    probe_dead_connections(sock)
    sock.setsockopt(zmq.CONNECT_TIMEOUT, _CONNECT_TIMEOUT_MS)
    sock.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
    sock.setsockopt(zmq.RECONNECT_IVL_MAX, _RECONNECT_MAX_MS)


class Dialler:
    """Sends the frames of one path to any number of peers."""

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        keys: CurveKeys,
        path: Path,
        reach: Reach,
        failed: Callable[[Address, str], None],
        counts: "Counter[str]",
        lost: Callable[[Address], None] = lambda destination: None,
    ) -> None:
        """Prepare; nothing is opened before `start`.

        Args:
            context: Shared by all sockets of the transport.
            keys: Dials with the own pair and expects the group's.
            path: Which traffic this is, with its bounds.
            reach: Knows the ways to a destination.
            failed: Called, never from within `send`, with a destination and one of the reasons of `base`.
            counts: Where frames, bytes and drops are counted.
            lost: Called with the destination of a connection that stood and was ended by the other side.
        """
        self._lost = lost
        self._context = context
        self._keys = keys
        self._path = path
        self._reach = reach
        self._failed = failed
        self._counts = counts
        self._watched: WatchedSocket | None = None
        self._monitor: WatchedSocket | None = None
        self._connections: dict[Address, _Connection] = {}
        self._by_endpoint: dict[str, _Connection] = {}
        self._next_id = 0
        self._own_address: Address = ""
        self._tick: asyncio.TimerHandle | None = None

    def start(self, own_address: Address, ipv6: bool) -> None:
        """Open the socket on the running event loop.

        Args:
            own_address: What peers see as the source of our frames.
            ipv6: Whether peers are of IPv6.
        """
        sock = self._context.socket(zmq.ROUTER)
        sock.ipv6 = ipv6
        sock.curve_publickey, sock.curve_secretkey = self._keys.own_public, self._keys.own_secret
        self._own_address = own_address
        set_options(sock)
        monitor = sock.get_monitor_socket(_EVENTS)
        self._watched = WatchedSocket(sock, self._on_ready)
        self._monitor = WatchedSocket(monitor, self._on_monitor)

    def move(self, own_address: Address) -> None:
        """Peers see this as the source of our frames from here on, on new connections."""
        self._own_address = own_address

    def send(self, destination: Address, data: bytes, deadline_ns: int) -> None:
        """Queue a frame; it is dropped, counted and reported once `deadline_ns` of the monotonic clock has passed."""
        loop = asyncio.get_running_loop()
        if self._watched is None:
            self._counts[f"{self._path.name}s_dropped_closed"] += 1
            return
        connection = self._connections.get(destination)
        if connection is None:
            try:
                connection = self._new_connection(destination)
            except ValueError:
                self._counts[f"{self._path.name}s_refused"] += 1
                loop.call_soon(self._failed, destination, UNREACHABLE)
                return
        full = len(connection.queue) >= self._path.queue_frames
        if full or connection.queued_bytes + len(data) > self._path.queue_bytes:
            self._counts[f"{self._path.name}s_dropped_full"] += 1
            loop.call_soon(self._failed, destination, FULL)
            return
        connection.queue.append((data, deadline_ns))
        connection.queued_bytes += len(data)
        connection.used_s = loop.time()
        self._dial(connection)
        self._flush(connection)
        self._arm(_TICK_S if connection.queue else _IDLE_TICK_S)

    def rekey(self, keys: CurveKeys) -> None:
        """Expect other group keys from now on; connections that stand are kept."""
        self._keys = keys
        for connection in self._connections.values():
            connection.key_index = 0
            connection.redial_s = 0.0

    @property
    def pending(self) -> int:
        """Frames that wait in our own queues."""
        return sum(len(connection.queue) for connection in self._connections.values())

    def close(self, linger_ms: int) -> None:
        """Release the sockets; what ZeroMQ holds may leave within `linger_ms`. May be called twice."""
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None
        if self._watched is None or self._monitor is None:
            return
        self._watched.socket.disable_monitor()
        self._monitor.close(linger_ms=0)
        self._watched.close(linger_ms)
        self._watched = self._monitor = None
        self._counts[f"{self._path.name}s_dropped_closed"] += self.pending
        self._connections.clear()
        self._by_endpoint.clear()

    # --- connections -----------------------------------------------------------------------------------------------

    def _new_connection(self, destination: Address) -> _Connection:
        """A connection for a destination; one that another name of the same peer has opened serves both."""
        for _, host, port in self._reach.targets(destination):
            shared = self._by_endpoint.get(without_zone(f"tcp://{format_address(host, port)}"))
            if shared is not None and shared.dialled:
                return shared
        connection = self._connections[destination] = _Connection(destination)
        return connection

    def _dial(self, connection: _Connection) -> None:
        now_s = asyncio.get_running_loop().time()
        if connection.dialled or now_s < connection.redial_s:
            return
        assert self._watched is not None, "send has checked"
        ways = self._reach.targets(connection.address)
        if not ways:  # They lead back here: the frames wait for other news of the peer, until their deadline.
            return
        _, host, port = ways[connection.turn % len(ways)]
        endpoint = f"tcp://{format_address(host, port)}"
        other = self._by_endpoint.get(without_zone(endpoint), connection)
        if other is not connection and other.dialled:
            other.queue.extend(connection.queue)
            other.queued_bytes += connection.queued_bytes
            connection.queue.clear()
            connection.queued_bytes = 0
            self._flush(other)
            return
        self._forget_endpoint(connection)
        connection.endpoint = endpoint
        self._by_endpoint[without_zone(endpoint)] = connection
        self._next_id += 1
        connection.routing_id = self._next_id.to_bytes(8, "big")
        sock = self._watched.socket
        publics = self._keys.server_publics
        sock.curve_serverkey = publics[connection.key_index % len(publics)]
        sock.setsockopt(zmq.CONNECT_ROUTING_ID, connection.routing_id)
        sock.setsockopt(zmq.ROUTING_ID, routing_id_of(self._path, self._own_address))
        try:
            sock.connect(connection.endpoint)
        except zmq.ZMQError:  # Out of descriptors or of interfaces: the tick tries again until the deadline.
            connection.redial_s = now_s + _REDIAL_AFTER_REJECTION_S
            return
        connection.dialled, connection.standing = True, False
        connection.dialling_since_s = now_s
        self._watched.look_again()

    def _forget_endpoint(self, connection: _Connection) -> None:
        key = without_zone(connection.endpoint)
        if self._by_endpoint.get(key) is connection:
            del self._by_endpoint[key]

    def _next_way(self, connection: _Connection) -> bool:
        """Take the next way of an address that has several; False when this was the last of them."""
        ways = len(self._reach.targets(connection.address))
        if ways < 2:
            return False
        connection.turn += 1
        self._hang_up(connection)
        self._dial(connection)
        return connection.turn % ways != 0

    def _hang_up(self, connection: _Connection) -> None:
        """Close the connection with whatever ZeroMQ holds for it; our own queue stays."""
        if connection.dialled and self._watched is not None:
            try:
                self._watched.socket.disconnect(connection.endpoint)
            except zmq.ZMQError as error:
                if error.errno != errno.ENOENT:  # Gone already.
                    raise
            self._watched.look_again()
        connection.dialled = connection.standing = False
        connection.swallowed.clear()

    def _flush(self, connection: _Connection) -> None:
        now_ns = time.monotonic_ns()
        self._drop_expired(connection, now_ns)
        while connection.standing and connection.queue and self._watched is not None:
            data, deadline_ns = connection.queue[0]
            try:
                self._watched.socket.send_multipart([connection.routing_id, data], zmq.NOBLOCK)
            except zmq.ZMQError as error:
                if error.errno == zmq.EHOSTUNREACH:
                    self._hang_up(connection)  # The pipe is gone; the tick dials anew.
                break  # EAGAIN: the pipe is full; its descriptor tells when there is room.
            connection.queue.popleft()
            connection.queued_bytes -= len(data)
            connection.swallowed.append((now_ns, deadline_ns))
            self._counts[f"{self._path.name}s_out"] += 1
            self._counts[f"{self._path.name}_bytes_out"] += len(data)
            self._watched.look_again()

    def _drop_expired(self, connection: _Connection, now_ns: int) -> None:
        if all(deadline_ns > now_ns for _, deadline_ns in connection.queue):
            return
        kept = deque((data, deadline_ns) for data, deadline_ns in connection.queue if deadline_ns > now_ns)
        self._counts[f"{self._path.name}s_dropped_expired"] += len(connection.queue) - len(kept)
        connection.queue = kept
        connection.queued_bytes = sum(len(data) for data, _ in kept)
        asyncio.get_running_loop().call_soon(self._failed, connection.address, EXPIRED)

    # --- what wakes us ---------------------------------------------------------------------------------------------

    def _on_ready(self) -> None:
        if self._watched is None:
            return
        self._watched.socket.getsockopt(zmq.EVENTS)  # Lets ZeroMQ process its commands: room, closed pipes.
        for connection in self._connections.values():
            if connection.queue:
                self._flush(connection)

    def _on_monitor(self) -> None:
        while self._monitor is not None:
            try:
                parts = self._monitor.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._monitor.look_again()
            message = parse_monitor_message(parts)
            connection = self._by_endpoint.get(without_zone(message["endpoint"].decode("ascii", "replace")))
            if connection is not None and connection.dialled:
                self._on_connection_event(connection, int(message["event"]))

    def _on_connection_event(self, connection: _Connection, event: int) -> None:
        now_s = asyncio.get_running_loop().time()
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            connection.standing = True
            connection.turn %= max(1, len(self._reach.targets(connection.address)))
            self._flush(connection)
        elif event in _HANDSHAKE_FAILURES:
            self._on_rejected(connection, now_s)
        elif event == zmq.EVENT_CONNECT_DELAYED:
            connection.dialling_since_s = now_s
        elif event == zmq.EVENT_DISCONNECTED:
            has_stood = connection.standing
            self._on_lost(connection)
            if has_stood:
                self._lost(connection.address)
            self._next_way(connection)
        elif event == zmq.EVENT_CLOSED:
            self._on_lost(connection)
            if self._next_way(connection):
                return
            quick = now_s - connection.dialling_since_s < 0.8 * _CONNECT_TIMEOUT_MS / 1_000
            self._failed(connection.address, REFUSED if quick and _has_route(connection.endpoint) else UNREACHABLE)

    def _on_lost(self, connection: _Connection) -> None:
        """ZeroMQ dials again by itself and would then deliver what it holds, however old that is by then."""
        if connection.standing:
            connection.standing, connection.lost_ns = False, time.monotonic_ns()
            self._expire_swallowed(connection)

    def _expire_swallowed(self, connection: _Connection) -> None:
        """Give up a lost connection at the first deadline of what ZeroMQ may hold for it; none before it."""
        held = [deadline_ns for _, deadline_ns in _may_be_held(connection)]
        if self._watched is None or connection.standing or not connection.dialled or not held:
            return
        left_s = (min(held) - time.monotonic_ns()) / 1e9
        if left_s > 0:
            asyncio.get_running_loop().call_later(left_s, self._expire_swallowed, connection)
            return
        self._hang_up(connection)
        if connection.queue:
            self._dial(connection)

    def _on_rejected(self, connection: _Connection, now_s: float) -> None:
        """Try the next key under which the peer may listen; after the last one, say so and wait."""
        self._hang_up(connection)
        connection.key_index = (connection.key_index + 1) % len(self._keys.server_publics)
        if connection.key_index:
            self._dial(connection)
            return
        if self._next_way(connection):
            return
        connection.redial_s = now_s + _REDIAL_AFTER_REJECTION_S
        self._failed(connection.address, REJECTED)

    def _arm(self, delay_s: float) -> None:
        loop = asyncio.get_running_loop()
        if self._watched is None:
            return
        if self._tick is not None:
            if self._tick.when() <= loop.time() + delay_s:
                return
            self._tick.cancel()
        self._tick = loop.call_later(delay_s, self._on_tick)

    def _on_tick(self) -> None:
        """Deadlines, redials and idle connections: everything that only time brings."""
        self._tick = None
        now_s = asyncio.get_running_loop().time()
        for connection in list(self._connections.values()):
            self._flush(connection)
            if connection.dialled and not connection.standing and self._is_hopeless(connection, now_s):
                self._hang_up(connection)
            elif connection.dialled and not connection.standing and self._is_slow(connection, now_s):
                self._next_way(connection)
            if connection.queue:
                self._dial(connection)
            elif now_s - connection.used_s > self._path.idle_s:
                self._hang_up(connection)
                self._forget_endpoint(connection)
                del self._connections[connection.address]
        if self._connections:
            self._arm(_TICK_S if self.pending else _IDLE_TICK_S)

    def _is_slow(self, connection: _Connection, now_s: float) -> bool:
        """Whether another of several ways has its turn."""
        ways = len(self._reach.targets(connection.address))
        rounds = connection.turn // max(1, ways)
        patience_s = min(_WAY_PATIENCE_S * 2 ** min(rounds, 8), _WAY_PATIENCE_MAX_S)
        return ways > 1 and now_s - connection.dialling_since_s > patience_s

    @staticmethod
    def _is_hopeless(connection: _Connection, now_s: float) -> bool:
        """Whether a connection that does not stand holds nothing, or dials in silence."""
        unwanted = not connection.queue and not _may_be_held(connection)
        return unwanted or now_s - connection.dialling_since_s > _SILENCE_S


def _may_be_held(connection: _Connection) -> list[tuple[int, int]]:
    """What ZeroMQ took shortly before the loss; what it took earlier has left, or TCP would have ended before."""
    return [one for one in connection.swallowed if connection.lost_ns - one[0] < _DEAD_MS * 1_000_000]


def _has_route(endpoint: str) -> bool:
    host, port = parse_address(endpoint.removeprefix("tcp://"))
    family = socket.AF_INET6 if is_ipv6(host) else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(target_of(host, port))
        except OSError:
            return False
    return True
