"""What a node tells of its addresses, for any set of interfaces; and where it never sends."""

import ipaddress

from hypothesis import given
from hypothesis import strategies as st

from swarmd.transports.address import MAX_ADDRESS_CHARS, parse_address, parse_ways
from swarmd.transports.interfaces import OwnAddress, choose_ways
from swarmd.transports.reach import Reach, is_loopback
from swarmd_protocols.ids import WAYS

hosts = st.one_of(
    st.ip_addresses(v=4).map(str),
    st.ip_addresses(v=6).map(str),
    st.integers(1, 2**64 - 1).map(lambda low: str(ipaddress.IPv6Address((0xFE80 << 112) + low))),
    st.integers(1, 2**16 - 1).map(lambda low: str(ipaddress.IPv4Address((169 << 24) + (254 << 16) + low))),
).filter(lambda host: not (ipaddress.ip_address(host).is_loopback or ipaddress.ip_address(host).is_unspecified))
owns = st.lists(
    st.builds(OwnAddress, st.sampled_from(["wlan0", "eth0", "mesh0", "usb0"]), st.integers(1, 9), hosts), max_size=9
)


@given(owns, st.integers(0, 9), st.integers(1, 65_535), st.booleans())
def test_peers_are_told_one_way_an_interface_and_loopback_only_where_there_is_none(
    addresses: list[OwnAddress], which: int, port: int, ipv6: bool
) -> None:
    default = addresses[which].host if which < len(addresses) else None
    told = choose_ways(addresses, default, port, ipv6=ipv6)
    assert parse_ways(told) == told
    assert len(told) <= MAX_ADDRESS_CHARS
    ways = [parse_address(way) for way in told.split(WAYS)]
    assert all(there == port for _, there in ways)
    usable = [own for own in addresses if ipv6 or ":" not in own.host]
    if not usable:
        assert ways == [("127.0.0.1", port)]
        return
    assert not any(is_loopback(host) for host, _ in ways)
    assert {host for host, _ in ways} <= {own.host for own in usable}
    assert len({host for host, _ in ways}) == len(ways) <= len({own.interface for own in usable})
    if any(own.host == default for own in usable):
        assert ways[0][0] == default
        if ":" in ways[0][0]:
            return  # It stands for its interface, and may leave no room for another's IPv4.
    if any(":" not in own.host for own in usable):
        assert any(":" not in host for host, _ in ways)


@given(st.lists(hosts, min_size=1, max_size=3, unique=True), st.lists(hosts, max_size=3), st.booleans())
def test_a_node_never_sends_to_itself_nor_to_a_peer_s_loopback(theirs: list[str], mine: list[str], dual: bool) -> None:
    reach = Reach("::" if dual else "0.0.0.0", 7946)
    reach.own = [OwnAddress("wlan0", 3, host) for host in mine]
    ways = [f"[{host}]:7946" if ":" in host else f"{host}:7946" for host in (*theirs, "127.0.0.1")]
    tried = reach.targets(WAYS.join(ways))
    assert not {host.partition("%")[0] for _, host, _ in tried} & {*mine, "127.0.0.1"}
    reachable = [host for host in theirs if host not in mine and (dual or ":" not in host)]
    zones = [host for host in mine if ipaddress.ip_address(host).is_link_local]
    for host in reachable:
        link_local = ":" in host and ipaddress.ip_address(host).is_link_local
        if not link_local or zones:
            assert any(name.partition("%")[0] == host for _, name, _ in tried)
