"""A datagram socket on the event loop that reports what the network says about each destination.

`asyncio`'s own datagram endpoint costs ten times the CPU of a reader that drains the socket, and it hides the ICMP
errors of an unconnected socket. With `IP_RECVERR` Linux queues every such error with the destination it is about: a
killed process is noticed after one round trip instead of a suspicion timeout.

The kernel also leaves the error pending on the socket, where it fails the *next* call, whatever that call's
destination; such a call is repeated once.
"""

import asyncio
import errno
import os
import socket
import struct
import sys
from collections import Counter
from collections.abc import Callable
from typing import TypeAlias

from swarmd.errors import TransportError
from swarmd.transports.address import format_address, is_ipv6
from swarmd.transports.base import FORBIDDEN, MAX_DATAGRAM_BYTES, REFUSED, TOO_LARGE, UNREACHABLE
from swarmd_protocols.ids import Address

_RECEIVE_BUFFER_BYTES = 4 * 1024 * 1024
"""Bytes asked of the kernel: 3,000 full datagrams, a third of a second under a flood."""
_DRAIN_MAX = 256
"""Datagrams read a wake-up before timers get their turn."""
_ADDRESS_CACHE_MAX = 4_096
"""Addresses whose text is kept, as many as a full view has members."""
_REPORT_INTERVAL_S = 0.05
"""Seconds between two reports about one unreachable peer: less than a probe waits before it is sent again."""
_REPORTS_MAX = 4_096
"""Peers whose last report is remembered."""

# linux/in.h, linux/in6.h, linux/errqueue.h: not in Python's socket module before 3.14.
_IP_RECVERR = 11
"""Socket option. Source: linux/in.h."""
_IPV6_RECVERR = 25
"""Socket option. Source: linux/in6.h."""
_SOCK_EXTENDED_ERR = struct.Struct("=IBBBBII")
_MSG_ERRQUEUE = getattr(socket, "MSG_ERRQUEUE", 0x2000)

_REASONS = {
    errno.ECONNREFUSED: REFUSED,
    errno.EPERM: FORBIDDEN,
    errno.EACCES: FORBIDDEN,
    errno.EMSGSIZE: TOO_LARGE,
}
BUSY = frozenset({errno.EAGAIN, errno.EWOULDBLOCK, errno.ENOBUFS, errno.ENOMEM})
"""The system has no room for a datagram just now: it is dropped, and nothing is wrong."""

EVERYWHERE = "::"
"""Listens on all interfaces, IPv6 and IPv4."""
_MAPPED = "::ffff:"
"""How a socket of IPv6 names an address of IPv4. Source: RFC 4291 section 2.5.5.2."""

SocketAddress: TypeAlias = tuple[str, int] | tuple[str, int, int, int]
"""The kernel's form of an address: of IPv4, or of IPv6 with flow label and scope."""


def reason_of(error_number: int) -> str:
    """The reason, in the words of `base`, behind an errno of a datagram that did not get through.

    >>> reason_of(errno.EHOSTUNREACH)
    'unreachable'
    """
    return _REASONS.get(error_number, UNREACHABLE)


class DatagramSocket:
    """One bound, non-blocking UDP socket. Everything is called on the event loop."""

    def __init__(
        self,
        received: Callable[[Address, bytes], None],
        failed: Callable[[Address, str], None],
        counts: "Counter[str]",
    ) -> None:
        """Prepare; nothing is opened before `bind`.

        Args:
            received: Called with source and payload of every datagram of acceptable size.
            failed: Called, never from within `send`, with a destination and one of the reasons of `base`.
            counts: Where frames, bytes and drops are counted.
        """
        self._received = received
        self._failed = failed
        self._counts = counts
        self._socket: socket.socket | None = None
        self._maps_ipv4 = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._names: dict[SocketAddress, Address] = {}
        self._reported_s: dict[tuple[Address, str], float] = {}

    def bind(self, host: str, port: int) -> tuple[str, int]:
        """Open and bind; "::" takes IPv4 too, and is "0.0.0.0" on a system without IPv6.

        Args:
            host: Numeric.
            port: 0 for any free one.

        Returns:
            Host and port that are now bound.

        Raises:
            TransportError: Names the address, the cause and the remedy.
        """
        host = usable_wildcard(host)
        family = socket.AF_INET6 if is_ipv6(host) else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            if host == EVERYWHERE:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            sock.bind(target_of(host, port))
        except OSError as error:
            sock.close()
            raise TransportError(_bind_message(host, port, error)) from error
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
        _want_errors(sock, family)
        self._socket = sock
        self._maps_ipv4 = host == EVERYWHERE
        return host, int(sock.getsockname()[1])

    def target_of(self, host: str, port: int) -> SocketAddress:
        """What this socket wants for a numeric host and a port; raises `OSError` where the zone names no interface."""
        if self._maps_ipv4 and not is_ipv6(host):
            return (_MAPPED + host, port, 0, 0)
        return target_of(host, port)

    def start(self) -> None:
        """Begin to deliver on the running event loop."""
        assert self._socket is not None, "bind comes first"
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket.fileno(), self._on_readable)

    def send(self, destination: Address, target: SocketAddress, data: bytes) -> None:
        """Send at once or never; what the system refuses is reported on the next turn of the loop."""
        assert self._loop is not None, "start comes first"
        if self._socket is None:
            self._counts["datagrams_dropped_closed"] += 1
            return
        number = self._try_send(target, data)
        if number == errno.ECONNREFUSED:  # Left by an earlier datagram, perhaps to somebody else.
            self._drain_errors()
            number = self._try_send(target, data)
        if number == 0:
            self._counts["datagrams_out"] += 1
            self._counts["datagram_bytes_out"] += len(data)
        elif number in BUSY:
            self._counts["datagrams_dropped_busy"] += 1
        else:
            self._counts["datagrams_refused"] += 1
            self._loop.call_soon(self._report, destination, reason_of(number))

    def close(self) -> None:
        """Stop delivering and release the socket; may be called twice."""
        if self._socket is None:
            return
        if self._loop is not None:
            self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        self._socket = None

    def _try_send(self, target: SocketAddress, data: bytes) -> int:
        assert self._socket is not None, "the caller has checked"
        try:
            self._socket.sendto(data, target)
        except OSError as error:
            return error.errno or errno.EIO
        return 0

    def _on_readable(self) -> None:
        for number in range(_DRAIN_MAX):
            sock = self._socket
            if sock is None:  # A handler closed the transport.
                return
            try:
                data, source = sock.recvfrom(MAX_DATAGRAM_BYTES + 1)
            except BlockingIOError:
                if number == 0:  # Woken for the error queue, which stays readable until it is empty.
                    self._drain_errors()
                return
            except OSError:
                self._drain_errors()  # The pending error is consumed by this very call; go on reading.
                continue
            self._deliver(data, source)

    def _deliver(self, data: bytes, source: SocketAddress) -> None:
        if len(data) > MAX_DATAGRAM_BYTES or not data:
            self._counts["datagrams_dropped_size"] += 1
            return
        self._counts["datagrams_in"] += 1
        self._counts["datagram_bytes_in"] += len(data)
        self._received(self._name_of(source), data)

    def _drain_errors(self) -> None:
        """Read the whole error queue: while it holds anything, the socket stays readable."""
        while self._socket is not None:
            try:
                _, control, _, destination = self._socket.recvmsg(0, 512, _MSG_ERRQUEUE)
            except OSError:
                return
            self._counts["datagram_errors_in"] += 1
            number = _error_number(control)
            if number and destination:
                self._report(self._name_of(destination), reason_of(number))

    def _report(self, destination: Address, reason: str) -> None:
        """Hand a failure on, at most once per destination, reason and interval."""
        assert self._loop is not None, "start comes first"
        now_s = self._loop.time()
        key = (destination, reason)
        if now_s - self._reported_s.get(key, -_REPORT_INTERVAL_S) < _REPORT_INTERVAL_S:
            return
        if len(self._reported_s) >= _REPORTS_MAX:
            self._reported_s.clear()
        self._reported_s[key] = now_s
        self._failed(destination, reason)

    def _name_of(self, source: SocketAddress) -> Address:
        name = self._names.get(source)
        if name is None:
            if len(self._names) >= _ADDRESS_CACHE_MAX:
                self._names.clear()
            scope = f"%{source[3]}" if len(source) == 4 and source[3] else ""
            host = source[0].removeprefix(_MAPPED) + scope
            name = self._names[source] = format_address(host, source[1])
        return name


def target_of(host: str, port: int) -> SocketAddress:
    """What the kernel wants for a numeric host and a port.

    Raises:
        OSError: The host's scope names no interface of this device.
    """
    if not is_ipv6(host):
        return (host, port)
    bare, _, scope = host.partition("%")
    index = int(scope) if scope.isdigit() else (socket.if_nametoindex(scope) if scope else 0)
    return (bare, port, 0, index)


def usable_wildcard(host: str) -> str:
    """The host, or the one of IPv4 for "::" on a system without IPv6."""
    if host != EVERYWHERE:
        return host
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind((EVERYWHERE, 0))
    except OSError:
        return "0.0.0.0"
    return host


def _want_errors(sock: socket.socket, family: socket.AddressFamily) -> None:
    if not sys.platform.startswith("linux"):
        return  # Elsewhere a dead peer is found by silence alone.
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_RECVERR, 1)
    sock.setsockopt(socket.IPPROTO_IP, _IP_RECVERR, 1)  # Also for IPv4 through a socket of IPv6.


def _error_number(control: list[tuple[int, int, bytes]]) -> int:
    for level, kind, data in control:
        wanted = (level, kind) in ((socket.IPPROTO_IP, _IP_RECVERR), (socket.IPPROTO_IPV6, _IPV6_RECVERR))
        if wanted and len(data) >= _SOCK_EXTENDED_ERR.size:
            return int(_SOCK_EXTENDED_ERR.unpack_from(data)[0])
    return 0


def _bind_message(host: str, port: int, error: OSError) -> str:
    address = format_address(host, port)
    if error.errno == errno.EADDRINUSE:
        return f"cannot listen on udp {address}: the port is in use; stop the other program or choose another --listen"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"cannot listen on udp {address}: no interface of this device has {host}; see `ip address`"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"cannot listen on udp {address}: not permitted; choose a port above 1023"
    return f"cannot listen on udp {address}: {os.strerror(error.errno or errno.EIO)}"
