"""The kernel's list of addresses is getifaddrs's; what it never says is dropped, not believed."""

import socket
import struct
import sys

import pytest

from swarmd.transports import netlink
from swarmd.transports.interfaces import interface_addresses

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="rtnetlink is Linux's")


def test_it_lists_what_getifaddrs_lists() -> None:
    ifaddr = pytest.importorskip("ifaddr")
    theirs = {
        (adapter.index, ip.ip if isinstance(ip.ip, str) else ip.ip[0].partition("%")[0])
        for adapter in ifaddr.get_adapters()
        for ip in adapter.ips
    }
    ours = netlink.addresses()
    assert set(ours) == theirs
    assert len(ours) == len(theirs)
    assert (socket.if_nametoindex("lo"), "127.0.0.1") in ours


def test_each_address_has_its_interface() -> None:
    for own in interface_addresses():
        assert socket.if_nametoindex(own.interface) == own.index


def test_the_own_end_of_a_link_between_two_points() -> None:
    body = struct.pack("=BBBBI", socket.AF_INET, 32, 0, 0, 7)
    body += struct.pack("=HH4s", 8, 1, bytes([10, 0, 0, 2])) + struct.pack("=HH4s", 8, 2, bytes([10, 0, 0, 1]))
    assert list(netlink._row(body)) == [(7, socket.AF_INET, "10.0.0.1")]


@pytest.mark.parametrize(
    "body",
    [
        struct.pack("=BBBBI", socket.AF_PACKET, 0, 0, 0, 7),
        struct.pack("=BBBBI", socket.AF_INET, 32, 0, 0, 7) + struct.pack("=HH", 0, 1),
        struct.pack("=BBBBI", socket.AF_INET6, 64, 0, 0, 7) + struct.pack("=HH4s", 8, 1, bytes(4)),
    ],
    ids=["another family", "an attribute of no length", "an address cut short"],
)
def test_what_is_no_address_is_passed_over(body: bytes) -> None:
    assert list(netlink._row(body)) == []


def test_parts_that_lie_about_their_length_end() -> None:
    assert list(netlink._messages(struct.pack("=IHHII", 0, 20, 0, 1, 0) * 3)) == []
