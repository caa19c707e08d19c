"""One frame for everybody in radio range at the cost of one: UDP multicast, one hop, beside the transports over CURVE.

    magic (4) | swarm (8) | origin (8) | port (2) | sealed frame (at most 1,200)

    swarm    a hash of its name: another swarm's cast is dropped before anything is opened
    origin   drawn at each start: a node's own casts come back, and those of another node of the same device are not its
    port     where the sender listens; with the address that the cast came from it is whom a stranger is greeted at

Nothing of the head is proven: what a cast says counts as far as its sealed frame does. There is one socket for each
interface, bound to the swarm's group there, so that the casts of other groups and of other interfaces do not come up.
Whatever the system refuses is counted and told once; the node hears no beacons then, and sends to each neighbour.
"""

import asyncio
import contextlib
import errno
import os
import secrets
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

import msgspec

from swarmd.transports.address import format_address, is_ipv6
from swarmd.transports.base import MAX_DATAGRAM_BYTES
from swarmd.transports.interfaces import OwnAddress, can_multicast, interface_addresses, is_up, own_addresses
from swarmd.transports.reach import Reach, is_loopback
from swarmd.transports.udp_socket import BUSY, SocketAddress
from swarmd_protocols.channel.bucket import TokenBucket
from swarmd_protocols.channel.channel import CAST
from swarmd_protocols.ids import Address

CAST_PORT = 17_946
_MAGIC = b"swC1"
_HEAD = struct.Struct(">4s8s8sH")
MAX_CAST_BYTES = _HEAD.size + MAX_DATAGRAM_BYTES
"""1,222: with the heads of UDP and IPv6 less than 1,280, which every link of IPv6 takes whole (RFC 8200 section 5)."""
_KIND_MASK = 0x0F
"""Of a sealed frame's first byte; the rest is the version of the wire."""
_INTERFACES_MAX = 8
_DRAIN_MAX = 64
"""Casts read a wake-up before timers get their turn."""
_KNOWN_MAX = 256
"""Sources that are known by a frame of theirs that has opened."""
_KNOWN_NS = 30 * 1_000_000_000
"""A known source keeps its place at least so long after the last such frame, nanoseconds: of three beacons of a member
that hears all (one in 10 s) one comes through."""
_OPENED_MAX = 1_024
"""Opened frames that are remembered: one that is played again from elsewhere makes no source known."""
_HOST_SLOTS = 64
"""Hosts that are not known share so many rates, drawn at each start."""
_SOURCE_PER_S, _HOST_PER_S, _NEW_PER_S, _ALL_PER_S = 100, 10, 50, 1_000
"""Casts that are handed on: of one known source, of one host that is not known, of all sources that are not known, of
all known ones. A node casts a few a second, where it moves at 15 m/s some twenty, and fifty of them share the air of a
dense hall."""

# linux/in.h, linux/in6.h: not in Python's socket module.
_IP_MULTICAST_ALL, _IPV6_MULTICAST_ALL = 49, 29
_MREQN = struct.Struct("=4s4si")
"""`struct ip_mreqn`: group, own address, index of the interface. Source: ip(7)."""
_GONE = frozenset({errno.ENODEV, errno.ENXIO, errno.EADDRNOTAVAIL, errno.ENETDOWN, errno.ENETUNREACH, errno.EBADF})
"""The socket's interface or address has gone: it is opened again at the next look."""


class CastOptions(msgspec.Struct, frozen=True):
    """What an operator can choose about casts, and whose they are."""

    swarm: str
    """The swarm's name."""
    interface: str = ""
    """The one interface to cast on; "" for those whose addresses peers are told."""
    port: int = CAST_PORT


def cast_tag(swarm: str) -> bytes:
    """What stands for a swarm's name in its casts."""
    return blake2b(swarm.encode(), digest_size=8, person=b"swarmd-casts").digest()


def cast_group(swarm: str, *, ipv6: bool) -> str:
    """The multicast group of a swarm: transient and link-local (RFC 4291), or of the organization (RFC 2365).

    >>> cast_group("farm", ipv6=False), cast_group("farm", ipv6=True)
    ('239.193.198.177', 'ff12::15c6:b115')
    """
    tag = cast_tag(swarm)
    if ipv6:
        return f"ff12::{tag[:2].hex().lstrip('0') or '0'}:{tag[2:4].hex().lstrip('0') or '0'}"
    return f"239.{192 + tag[0] % 4}.{tag[1]}.{tag[2]}"


class CastFrame(msgspec.Struct, frozen=True):
    """A cast as it came in."""

    swarm: bytes
    origin: bytes
    port: int
    frame: bytes


def decode_cast(data: bytes) -> CastFrame | None:
    """What a packet of the group holds, or None where it is no cast: its head, size or port is wrong, or what it holds.

    Of sealed frames only those that were sealed as casts are taken: one packet must not make many nodes answer.
    """
    if not _HEAD.size < len(data) <= MAX_CAST_BYTES:
        return None
    magic, swarm, origin, port = _HEAD.unpack_from(data)
    frame = data[_HEAD.size :]
    is_cast = magic == _MAGIC and port and frame[0] & _KIND_MASK == CAST
    return CastFrame(swarm, origin, port, frame) if is_cast else None


class _Source:
    """Who has sealed casts, as a member does."""

    __slots__ = ("bucket", "opened_ns")

    def __init__(self) -> None:
        self.bucket = TokenBucket(_SOURCE_PER_S, _SOURCE_PER_S)
        self.opened_ns = 0


class Casting:
    """The sockets of one node, one for each interface. Everything is called on the event loop, nothing raises."""

    def __init__(
        self,
        options: CastOptions,
        reach: Reach,
        received: Callable[[Address, bytes], None],
        counts: "Counter[str]",
    ) -> None:
        """Prepare; nothing is opened before the first `look_around`.

        Args:
            options: Whose casts, and where.
            reach: Where this node is reached; its port is in each cast.
            received: Called with the sender's address and the sealed frame of each cast of others of this swarm.
            counts: Where casts, bytes and drops are counted.
        """
        self._options, self._reach, self._received, self._counts = options, reach, received, counts
        self._tag, self._origin = cast_tag(options.swarm), secrets.token_bytes(8)
        self._head = _HEAD.pack(_MAGIC, self._tag, self._origin, reach.port)
        self._sockets: dict[OwnAddress, _GroupSocket] = {}
        self._known: dict[Address, _Source] = {}
        """By when a frame of theirs opened last."""
        self._opened: dict[bytes, None] = {}
        """The nonces of frames that have opened, oldest first."""
        self._salt = secrets.token_bytes(16)
        self._hosts = [TokenBucket(_HOST_PER_S, 2 * _HOST_PER_S) for _ in range(_HOST_SLOTS)]
        self._new = TokenBucket(_NEW_PER_S, 2 * _NEW_PER_S)
        self._all = TokenBucket(_ALL_PER_S, _ALL_PER_S)
        self._unready: set[OwnAddress] = set()
        """Whose last cast did not go. One of IPv6 that has just come is not ready for a second (RFC 4862 section 5)."""
        self._closed = False
        self.problem = ""
        """Why this node does not cast on some interface, with the remedy; "" where it does on all that it should."""

    @property
    def wanted(self) -> bool:
        """Whether this node casts at all: not where it listens on loopback alone, unless told to."""
        return sys.platform.startswith("linux") and bool(self._options.interface or not is_loopback(self._reach.host))

    def look_around(self) -> None:
        """Look at the device's interfaces again: open, close, and join the group where it was lost."""
        if self._closed or not self.wanted:
            return
        self.problem = ""
        wanted = self._choose()
        self._unready.intersection_update(wanted)
        for own in [own for own in self._sockets if own not in wanted or not self._sockets[own].joined()]:
            self._sockets.pop(own).close()
        for own in wanted:
            if own not in self._sockets:
                self._open(own)
        if not wanted and self._options.interface:
            self.problem = (
                f"no casts on {self._options.interface}: it is not there, is down or has no address; see `ip address`, "
                "or name another in transport.casts"
            )

    def send(self, data: bytes) -> None:
        """Send one frame on every interface, at once or never; what becomes of it is counted."""
        if len(data) > MAX_DATAGRAM_BYTES or not self._sockets:
            self._counts["casts_refused"] += 1
            return
        went = False
        for own, group in list(self._sockets.items()):
            number = group.send(self._head + data)
            if number in BUSY:
                self._counts["casts_dropped_busy"] += 1
            elif number:
                self._counts["casts_refused"] += 1
                if number != errno.EADDRNOTAVAIL or own in self._unready:
                    self._tell(own, number)
                self._unready.add(own)
                if number in _GONE:
                    self._sockets.pop(own).close()
            else:
                went = True
                self._unready.discard(own)
                self._counts["cast_bytes_out"] += len(data)
        self._counts["casts_out"] += went

    def opened(self, sender: Address, nonce: bytes) -> None:
        """A cast of this source has opened, so that some member sealed it: the source is known from here on.

        Not where that very frame has opened before, since anybody can play it again; nor where all places are held by
        sources of which one has opened within `_KNOWN_NS`.
        """
        if nonce in self._opened:
            return
        if len(self._opened) >= _OPENED_MAX:
            del self._opened[next(iter(self._opened))]
        self._opened[nonce] = None
        now_ns = time.monotonic_ns()
        known = self._known.pop(sender, None)
        if known is None:
            if len(self._known) >= _KNOWN_MAX:
                oldest = next(iter(self._known))
                if now_ns - self._known[oldest].opened_ns < _KNOWN_NS:
                    return
                del self._known[oldest]
            known = _Source()
            self._counts["casts_sources_known"] += 1
        known.opened_ns = now_ns
        self._known[sender] = known

    def close(self) -> None:
        """Leave the groups and release the sockets; may be called twice."""
        self._closed = True
        for group in self._sockets.values():
            group.close()
        self._sockets.clear()

    def _choose(self) -> list[OwnAddress]:
        """The address of each interface to cast on: that which peers are told, IPv4 where there is one."""
        named, reach = self._options.interface, self._reach
        if named:
            found = [own for own in interface_addresses() if own.interface == named and is_up(named)]
        elif reach.everywhere:
            found = [own for own in reach.own if can_multicast(own.interface)]
        else:
            host = reach.host.partition("%")[0]
            found = [own for own in own_addresses(("*",)) if own.host == host and can_multicast(own.interface)]
        ipv6 = is_ipv6(reach.host)
        best: dict[int, OwnAddress] = {}
        for own in found:
            if is_ipv6(own.host) and not ipv6:
                continue
            held = best.get(own.index)
            if held is None or (own.host != reach.host, is_ipv6(own.host)) < (
                held.host != reach.host,
                is_ipv6(held.host),
            ):
                best[own.index] = own
        return list(best.values())[:_INTERFACES_MAX]

    def _open(self, own: OwnAddress) -> None:
        group = cast_group(self._options.swarm, ipv6=is_ipv6(own.host))
        try:
            opened = _GroupSocket(own, group, self._options.port, self._on_packet)
        except OSError as error:
            self._counts["casts_refused"] += 1
            self._tell(own, error.errno or errno.EIO)
        else:
            self._sockets[own] = opened

    def _tell(self, own: OwnAddress, number: int) -> None:
        remedy = f"ip link set {own.interface} multicast on"
        if number in (errno.EPERM, errno.EACCES):
            remedy = f"let multicast to UDP port {self._options.port} through on {own.interface}"
        elif number == errno.EADDRINUSE:
            remedy = f"free UDP port {self._options.port}, or choose another transport.cast_port on all nodes"
        why = os.strerror(number)
        self.problem = f"no casts on {own.interface}: {why}; {remedy}, or transport.casts = off. Each is sent its own"

    def _on_packet(self, data: bytes, source: SocketAddress) -> None:
        counts = self._counts
        cast = decode_cast(data)
        if cast is None:
            counts["casts_dropped_malformed"] += 1
        elif cast.swarm != self._tag:
            counts["casts_dropped_foreign"] += 1
        elif cast.origin == self._origin:
            counts["casts_own"] += 1
        else:
            scope = f"%{source[3]}" if len(source) == 4 and source[3] else ""
            sender = format_address(source[0].partition("%")[0] + scope, cast.port)
            if not self._may_come(sender, source[0], time.monotonic_ns()):
                counts["casts_dropped_over_rate"] += 1
                return
            counts["casts_in"] += 1
            counts["cast_bytes_in"] += len(cast.frame)
            self._received(sender, cast.frame)

    def _may_come(self, sender: Address, host: str, now_ns: int) -> bool:
        """Whether one more cast of this source is handed on. Anybody can invent sources: they cost only each other."""
        known = self._known.get(sender)
        if known is not None:
            return known.bucket.take(now_ns) and self._all.take(now_ns)
        slot = int.from_bytes(blake2b(host.encode(), digest_size=2, key=self._salt).digest()) % _HOST_SLOTS
        return self._hosts[slot].take(now_ns) and self._new.take(now_ns)


class _GroupSocket:
    """One socket, in one group on one interface."""

    def __init__(
        self, own: OwnAddress, group: str, port: int, received: Callable[[bytes, SocketAddress], None]
    ) -> None:
        """Open, join and begin to deliver. Raises `OSError`, and leaves nothing open then."""
        self._own, self._group, self._received = own, group, received
        ipv6 = is_ipv6(own.host)
        self._target: SocketAddress = (group, port, 0, own.index) if ipv6 else (group, port)
        family = socket.AF_INET6 if ipv6 else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        self._loop = asyncio.get_running_loop()
        try:
            # Other nodes of this device listen on the same; each of them is given every cast.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind(self._target)
            (self._join_ipv6 if ipv6 else self._join_ipv4)()
            self._loop.add_reader(self._socket.fileno(), self._on_readable)
        except BaseException:
            self._socket.close()
            raise

    def joined(self) -> bool:
        """Whether the kernel still holds the membership: it goes with the last address, and comes back by itself never.

        Where the kernel does not say, it counts as lost.
        """
        ipv6 = is_ipv6(self._own.host)
        wanted = socket.inet_pton(socket.AF_INET6 if ipv6 else socket.AF_INET, self._group)
        try:
            text = Path("/proc/thread-self/net/igmp6" if ipv6 else "/proc/thread-self/net/igmp").read_text()
        except OSError:
            return False
        return _is_listed(text, self._own.index, wanted)

    def send(self, packet: bytes) -> int:
        """0, or the errno with which the system refused."""
        try:
            self._socket.sendto(packet, self._target)
        except OSError as error:
            return error.errno or errno.EIO
        return 0

    def close(self) -> None:
        """Leave the group."""
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()

    def _join_ipv4(self) -> None:
        sock, own = self._socket, self._own
        request = _MREQN.pack(socket.inet_aton(self._group), socket.inet_aton(own.host), own.index)
        sock.setsockopt(socket.IPPROTO_IP, _IP_MULTICAST_ALL, 0)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, request)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)

    def _join_ipv6(self) -> None:
        sock, index = self._socket, self._own.index
        request = socket.inet_pton(socket.AF_INET6, self._group) + struct.pack("@I", index)
        with contextlib.suppress(OSError):  # Linux before 4.20; the scope of the bound address rules there alone.
            sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_MULTICAST_ALL, 0)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, request)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 1)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 1)

    def _on_readable(self) -> None:
        for _ in range(_DRAIN_MAX):
            if self._socket.fileno() < 0:  # A handler closed it.
                return
            try:
                data, source = self._socket.recvfrom(MAX_CAST_BYTES + 1)
            except OSError:  # Nothing more; an error of the network is found when the next cast is sent.
                return
            self._received(data, source)


def _is_listed(text: str, index: int, group: bytes) -> bool:
    """Whether `/proc/net/igmp` or `/proc/net/igmp6` lists a group at an interface."""
    at = -1
    for line in text.splitlines():
        words = line.split()
        if not words:
            continue
        if len(group) == 16:  # index name group users flags timer
            if words[0] == str(index) and len(words) > 2 and words[2].lower() == group.hex():
                return True
        elif not line[0].isspace():  # index name : count querier
            at = int(words[0]) if words[0].isdigit() else -1
        elif at == index and words[0].lower() == group[::-1].hex():  # As the device's bytes lie in memory.
            return True
    return False
