"""Where this node is reached, and by which ways it can try to reach others.

An address may name several ways (`swarmd_protocols.ids.WAYS`). Which of them is used is membership's choice, by what
answers; a destination that still names several is tried on all of them. A way without a zone in a link-local network
is tried on every interface that has such an address.
"""

import ipaddress
from collections.abc import Sequence

from swarmd.transports.address import format_address, is_ipv6, parse_address
from swarmd.transports.interfaces import OwnAddress, choose_ways, default_host, own_addresses
from swarmd_protocols.ids import WAYS, Address

_TARGETS_MAX = 4_096
"""Addresses whose ways are kept, as many as a full view has members."""
_WAYS_MAX = 8
"""Ways tried for one address: what its characters have room for, times a few interfaces with link-local addresses."""

Way = tuple[Address, str, int]
"""The name of one way, with its zone; its host and its port."""


class Reach:
    """One node's own address and the ways to others; no sockets are opened here."""

    def __init__(self, host: str, port: int, advertise: str = "", interfaces: Sequence[str] = ()) -> None:
        """Look at the device once.

        Args:
            host: What the node listens on, numeric; "0.0.0.0" or "::" is everywhere.
            port: What is bound.
            advertise: What peers are told instead, "" for what is found.
            interfaces: Patterns of the interfaces whose addresses are told.
        """
        self.host = host
        self.port = port
        self.address: Address = ""
        """What peers are told."""
        self.own: list[OwnAddress] = []
        self.problem = ""
        """Why peers on other devices could not reach this node at the last look, with the remedy; "" where nothing is
        known of that."""
        self._advertise = advertise
        self._interfaces = tuple(interfaces)
        self._targets: dict[Address, tuple[Way, ...]] = {}
        self.refresh()

    @property
    def everywhere(self) -> bool:
        """Whether the node listens on whatever interfaces there are."""
        return ipaddress.ip_address(self.host).is_unspecified

    def _problem(self) -> str:
        told = [parse_address(way)[0] for way in self.address.split(WAYS)]
        if not self.everywhere:
            host = self.host.partition("%")[0]
            if not is_loopback(self.host) and host not in {own.host for own in own_addresses(("*",))}:
                return f"no interface has {self.host} any more, the address listened on: give it back, or listen on ::"
            return ""
        if all(map(is_loopback, told)):
            return (
                f"no interface has an address: peers are told {self.address}, which leads them to themselves. Give the "
                "radio's interface an address, or set transport.advertise or transport.interfaces"
            )
        return ""

    def refresh(self) -> bool:
        """Look at the device again; True where peers are to be told something else."""
        self._targets.clear()
        ipv6 = is_ipv6(self.host)
        # A node that listens on one IPv4 address has no other way, and no zones to try.
        self.own = own_addresses(self._interfaces) if self.everywhere or ipv6 else []
        if self._advertise:
            address = self._advertise
        elif self.everywhere:
            address = choose_ways(self.own, default_host(ipv6=ipv6), self.port, ipv6=ipv6)
        else:
            address = format_address(self.host, self.port)
        changed = bool(self.address) and address != self.address
        self.address = address
        self.problem = self._problem()
        return changed

    def targets(self, destination: Address) -> tuple[Way, ...]:
        """The ways to try for a destination, the best first; none where it is this node itself.

        Raises:
            ValueError: It is no address.
        """
        found = self._targets.get(destination)
        if found is None:
            if len(self._targets) >= _TARGETS_MAX:
                self._targets.clear()
            ways = [way for part in destination.split(WAYS) for way in self._ways(part)]
            found = self._targets[destination] = tuple(dict.fromkeys(ways))[:_WAYS_MAX]
        return found

    def _ways(self, part: Address) -> list[Way]:
        host, port = parse_address(part)
        if self.everywhere and port == self.port and (is_loopback(host) or any(own.host == host for own in self.own)):
            return []  # This node, or a peer on another network that happens to use the same address.
        if is_ipv6(host) and not is_ipv6(self.host):
            return []
        if is_ipv6(host) and "%" not in host and ipaddress.ip_address(host).is_link_local:
            zones = dict.fromkeys(own.index for own in self.own if ipaddress.ip_address(own.host).is_link_local)
            return [(format_address(f"{host}%{zone}", port), f"{host}%{zone}", port) for zone in zones]
        return [(part, host, port)]


def is_loopback(host: str) -> bool:
    """Whether a numeric host, with or without a zone, is this device itself."""
    return ipaddress.ip_address(host.partition("%")[0]).is_loopback
