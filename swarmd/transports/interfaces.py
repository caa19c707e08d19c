"""The device's own addresses: which a node tells its peers, and a bell that rings when they change.

A node that listens everywhere names one way for each network it is on, joined by `+`: the interface of the default
route first, then the others. Without a default route, as in an ad-hoc network of radios, that is simply what the
interfaces have. Bridges and cables of containers are left out: every device has the same addresses there.
"""

import array
import asyncio
import contextlib
import fcntl
import fnmatch
import ipaddress
import socket
import struct
import sys
from collections.abc import Callable, Sequence

import msgspec

from swarmd.transports import netlink
from swarmd.transports.address import MAX_ADDRESS_CHARS, format_address, is_ipv6
from swarmd_protocols.ids import WAYS, Address

CONTAINERS = ("docker*", "veth*", "virbr*", "br-????????????", "cni*", "podman*", "lxc*", "lxd*", "flannel*")
"""Interfaces whose addresses are told to nobody, unless `transport.interfaces` names them."""
_ROUTE_PROBES = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}  # Documentation prefixes: never sent to.
_SIOCGIFFLAGS = 0x8913
_IFF_UP, _IFF_RUNNING, _IFF_MULTICAST = 0x1, 0x40, 0x1000
"""Source: linux/sockios.h, linux/if.h."""
_CHANGES = 0x1 | 0x10 | 0x100
"""RTMGRP_LINK, RTMGRP_IPV4_IFADDR and RTMGRP_IPV6_IFADDR. Source: linux/rtnetlink.h."""
_SETTLE_S = 0.2
"""Seconds from the first change to the look: a new lease takes an address away and gives another."""


class OwnAddress(msgspec.Struct, frozen=True):
    """One address of one interface that is up."""

    interface: str
    index: int
    host: str
    """Numeric, without a zone."""


def interface_addresses() -> list[OwnAddress]:
    """Every address of every interface, loopback's and those that are down too."""
    if sys.platform.startswith("linux"):
        rows = []
        for index, host in netlink.addresses():
            with contextlib.suppress(OSError):  # The interface went while we looked.
                rows.append(OwnAddress(socket.if_indextoname(index), index, host))
        return rows
    import ifaddr

    return [
        OwnAddress(
            adapter.nice_name, adapter.index or 0, (ip.ip if isinstance(ip.ip, str) else ip.ip[0]).partition("%")[0]
        )
        for adapter in ifaddr.get_adapters()
        for ip in adapter.ips
    ]


def own_addresses(patterns: Sequence[str] = (), *, carrier: bool = True) -> list[OwnAddress]:
    """The addresses of the interfaces that are up, without loopback, in the system's order.

    Args:
        patterns: Names of interfaces, such as "wlan*"; none: all but those of containers.
        carrier: Leave out those without a carrier: a cable that is out, a radio that is in no cell.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        return [
            own
            for own in interface_addresses()
            if _is_wanted(own.interface, patterns)
            and _is_up(asker, own.interface, carrier=carrier)
            and not ipaddress.ip_address(own.host).is_loopback
        ]


def choose_ways(addresses: Sequence[OwnAddress], default: str | None, port: int, *, ipv6: bool) -> Address:
    """What peers are told: one way an interface, the best first, as many as an address has room for.

    Args:
        addresses: From `own_addresses`.
        default: The host that the default route leaves from; None where there is none.
        port: Of every way.
        ipv6: Whether the node also listens on IPv6; an interface that has IPv4 is told with that all the same,
            but for the one whose IPv6 host is the default.

    Returns:
        An address of at most `MAX_ADDRESS_CHARS`; loopback's where no interface has any.

    >>> choose_ways([OwnAddress("wlan0", 3, "10.0.0.5"), OwnAddress("mesh0", 4, "fe80::5")], None, 7946, ipv6=True)
    '10.0.0.5:7946+[fe80::5]:7946'
    """
    best: dict[str, OwnAddress] = {}
    for own in addresses:
        if is_ipv6(own.host) and not ipv6:
            continue
        held = best.get(own.interface)
        if held is None or _rank(own.host, default) < _rank(held.host, default):
            best[own.interface] = own
    told: list[str] = []
    chars = 0
    for own in sorted(best.values(), key=lambda own: _rank(own.host, default)):
        way = format_address(own.host, port)
        if way not in told and chars + len(way) + bool(told) <= MAX_ADDRESS_CHARS:
            chars += len(way) + bool(told)
            told.append(way)
    return WAYS.join(told) or format_address("127.0.0.1", port)


def _rank(host: str, default: str | None) -> tuple[bool, bool, bool]:
    return host != default, is_ipv6(host), ipaddress.ip_address(host).is_link_local


def default_host(*, ipv6: bool) -> str | None:
    """The host that the default route leaves from, or None where there is no such route."""
    for family in (socket.AF_INET, socket.AF_INET6) if ipv6 else (socket.AF_INET,):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((_ROUTE_PROBES[family], 9))  # Chooses a route; no packet leaves.
                return str(probe.getsockname()[0]).partition("%")[0]
        except OSError:
            continue
    return None


def _is_wanted(name: str, patterns: Sequence[str]) -> bool:
    if patterns:
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    return not any(fnmatch.fnmatchcase(name, pattern) for pattern in CONTAINERS)


def is_up(name: str) -> bool:
    """Whether an interface is up and has its carrier."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        return _is_up(asker, name, carrier=True)


def can_multicast(name: str) -> bool:
    """Whether an interface carries multicast; a tunnel between two ends seldom does."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        return bool(_flags(asker, name) & _IFF_MULTICAST)


def _is_up(asker: socket.socket, name: str, *, carrier: bool) -> bool:
    if not sys.platform.startswith("linux"):
        return True
    wanted = _IFF_UP | (_IFF_RUNNING if carrier else 0)
    return _flags(asker, name) & wanted == wanted


def _flags(asker: socket.socket, name: str) -> int:
    request = array.array("b", struct.pack("16sh14x", name.encode()[:15], 0))
    try:
        fcntl.ioctl(asker, _SIOCGIFFLAGS, request)
    except OSError:
        return 0  # It went while we looked.
    return int(struct.unpack_from("H", request, 16)[0])


class AddressBell:
    """Calls back, on the event loop, a moment after an interface or an address of this device changed.

    The kernel's messages are only counted as rings: what there is then is read anew.
    """

    def __init__(self, rung: Callable[[], None]) -> None:
        """Prepare; `start` opens it."""
        self._rung = rung
        self._socket: socket.socket | None = None
        self._due: asyncio.TimerHandle | None = None

    def start(self) -> bool:
        """Begin to listen; False where this system has no such messages."""
        if not sys.platform.startswith("linux"):
            return False
        try:
            sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE)
            sock.bind((0, _CHANGES))
        except OSError:
            return False
        self._socket = sock
        asyncio.get_running_loop().add_reader(sock.fileno(), self._on_readable)
        return True

    def close(self) -> None:
        """Stop; may be called twice."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def _on_readable(self) -> None:
        while self._socket is not None:
            try:
                self._socket.recv(65_536)
            except BlockingIOError:
                break
            except OSError:  # ENOBUFS: some were lost, and all the more there is to look at.
                continue
        if self._due is None:
            self._due = asyncio.get_running_loop().call_later(_SETTLE_S, self._ring)

    def _ring(self) -> None:
        self._due = None
        self._rung()
