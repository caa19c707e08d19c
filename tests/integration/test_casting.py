"""Casts by UDP multicast over real sockets: on loopback, and on interfaces of namespaces that come, go and refuse."""

import asyncio
import ctypes
import errno
import os
import shutil
import socket
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from swarmd.errors import TransportError
from swarmd.transports import casting
from swarmd.transports.casting import Casting, CastOptions
from swarmd.transports.factory import make_transport
from swarmd.transports.reach import Reach
from swarmd_protocols.channel.channel import CAST
from swarmd_protocols.ids import Address
from tests.support import namespaces
from tests.support.namespaces import Networks
from tests.support.transport_endpoints import Endpoint, KeyRing, run, until, until_sent

FRAME = bytes([0x10 | CAST]) + bytes(60)
BIG = bytes([0x10 | CAST]) + bytes(1_199)


def ends_on_loopback(*swarms: str, kind: str = "udp") -> list[Endpoint]:
    """Nodes of one device, told to cast on loopback."""
    keys = KeyRing()
    options = [CastOptions(swarm, "lo", free_port) for free_port in [_free_port()] for swarm in swarms]
    return [Endpoint(make_transport(kind, "127.0.0.1:0", keys.member(), casts=one)) for one in options]


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def on(ends: list[Endpoint], body: Callable[[list[Endpoint]], Awaitable[None]]) -> None:
    """Start them, run, close them."""

    async def test() -> None:
        try:
            for end in ends:
                await end.start()
            await body(ends)
        finally:
            for end in ends:
                await end.transport.close()

    run(test)


@pytest.mark.parametrize("kind", ["udp", "zmq"])
def test_a_cast_reaches_the_others_of_its_device_and_not_itself(kind: str) -> None:
    async def body(ends: list[Endpoint]) -> None:
        a, *others = ends
        assert a.transport.casts
        await until_sent(
            lambda: a.transport.send_cast(FRAME), lambda: all((a.address, FRAME) in end.datagrams for end in others)
        )
        await until(lambda: a.transport.counters()["casts_own"] > 0)
        assert not a.datagrams, "nobody hears itself"
        await until_sent(lambda: a.transport.send_cast(BIG), lambda: (a.address, BIG) in others[0].datagrams)
        refused = a.transport.counters().get("casts_refused", 0)
        a.transport.send_cast(BIG + b"x")
        assert a.transport.counters()["casts_refused"] == refused + 1

    on(ends_on_loopback("farm", "farm", "farm", kind=kind), body)


def test_another_swarms_casts_are_dropped_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two swarms whose groups are the same by chance: the tag in the head tells them apart."""
    monkeypatch.setattr(casting, "cast_group", lambda swarm, ipv6: "239.192.7.7")

    async def body(ends: list[Endpoint]) -> None:
        farm, orchard = ends
        await until_sent(
            lambda: orchard.transport.send_cast(FRAME),
            lambda: farm.transport.counters().get("casts_dropped_foreign", 0) > 0,
        )
        assert not farm.datagrams

    on(ends_on_loopback("farm", "orchard"), body)


def test_other_groups_on_the_same_port_are_not_even_heard() -> None:
    async def body(ends: list[Endpoint]) -> None:
        farm, orchard, other = ends
        await until_sent(lambda: orchard.transport.send_cast(FRAME), lambda: other.datagrams)
        counts = farm.transport.counters()
        assert not any(name.startswith(("casts_in", "casts_dropped")) for name in counts), counts

    on(ends_on_loopback("farm", "orchard", "orchard"), body)


def test_a_start_that_fails_leaves_nothing_open() -> None:
    async def test() -> None:
        (first,) = ends_on_loopback("farm")
        await first.start()
        try:
            opened = _sockets()
            second = make_transport(
                "udp", first.address, KeyRing().member(), casts=CastOptions("farm", "lo", _free_port())
            )
            with pytest.raises(TransportError):
                await Endpoint(second).start()
            assert not second.casts
            second.send_cast(FRAME)
            await until(lambda: _sockets() == opened, what="the sockets of the failed start closed")
        finally:
            await first.transport.close()

    run(test)


def test_closing_leaves_the_group() -> None:
    async def test() -> None:
        before = _sockets()
        (one,) = ends_on_loopback("farm")
        await one.start()
        await one.transport.close()
        one.transport.send_cast(FRAME)
        one.transport.look_around()
        assert one.transport.counters()["casts_refused"] == 1
        await until(lambda: _sockets() == before, what="all sockets closed")

    run(test)


@pytest.mark.parametrize(
    ("number", "counter", "is_told"),
    [
        (errno.EAGAIN, "casts_dropped_busy", False),
        (errno.ENOBUFS, "casts_dropped_busy", False),
        (errno.EPERM, "casts_refused", True),
        (errno.ENETDOWN, "casts_refused", True),
    ],
)
def test_a_full_or_failing_socket_is_counted_and_told_with_its_remedy(number: int, counter: str, is_told: bool) -> None:
    async def body(ends: list[Endpoint]) -> None:
        one, other = ends
        held = one.transport._casting  # type: ignore[attr-defined]
        (group,) = held._sockets.values()
        group.send = lambda packet: number
        one.transport.send_cast(FRAME)
        assert one.transport.counters()[counter] == 1
        assert bool(one.transport.cast_problem) == is_told
        if is_told:
            assert "no casts on lo" in one.transport.cast_problem
            assert "transport.casts" in one.transport.cast_problem
        del group.send
        one.transport.look_around()  # Opens again what had gone.
        assert one.transport.cast_problem == ""
        await until_sent(lambda: one.transport.send_cast(FRAME), lambda: other.datagrams)

    on(ends_on_loopback("farm", "farm"), body)


def test_an_address_that_is_not_ready_yet_is_told_the_second_time() -> None:
    async def body(ends: list[Endpoint]) -> None:
        one, other = ends
        held = one.transport._casting  # type: ignore[attr-defined]
        for is_told in (False, True):
            (group,) = held._sockets.values()
            group.send = lambda packet: errno.EADDRNOTAVAIL
            one.transport.send_cast(FRAME)
            assert bool(one.transport.cast_problem) == is_told
            one.transport.look_around()
        await until_sent(lambda: one.transport.send_cast(FRAME), lambda: other.datagrams)
        assert not held._unready

    on(ends_on_loopback("farm", "farm"), body)


def test_a_port_that_another_program_holds_is_told_and_nothing_else() -> None:
    async def test() -> None:
        (one,) = ends_on_loopback("farm")
        options = one.transport._cast_options  # type: ignore[attr-defined]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as holder:
            holder.bind(("", options.port))
            await one.start()
            try:
                one.transport.send_cast(FRAME)
                assert "transport.cast_port" in one.transport.cast_problem
            finally:
                await one.transport.close()

    run(test)


def test_off_and_on_loopback_nothing_is_cast() -> None:
    async def test() -> None:
        for options in (None, CastOptions("farm")):
            one = await Endpoint(make_transport("udp", "127.0.0.1:0", KeyRing().member(), casts=options)).start()
            try:
                assert not one.transport.casts
                one.transport.send_cast(FRAME)
                assert one.transport.counters()["casts_refused"] == 1
                assert one.transport.cast_problem == ""
            finally:
                await one.transport.close()

    run(test)


def _sockets() -> int:
    """Sockets that this process holds open."""
    folder = Path("/proc/self/fd")
    links = [os.readlink(entry) for entry in folder.iterdir() if entry.is_symlink() and os.path.lexists(entry)]
    return sum(link.startswith("socket:") for link in links)


# --- interfaces, in namespaces ---------------------------------------------------------------------------------------


class Ear:
    """The casts of one device, for as long as a test runs inside its namespace."""

    def __init__(self, listen: str = "0.0.0.0", interface: str = "", port: int = 7946) -> None:
        self.heard: list[tuple[Address, bytes]] = []
        self.counts: Counter[str] = Counter()
        self.reach = Reach(listen, port)
        self.casting = Casting(
            CastOptions("farm", interface), self.reach, lambda *what: self.heard.append(what), self.counts
        )
        self.look()

    def look(self) -> None:
        """As when the kernel says that addresses changed."""
        self.reach.refresh()
        self.casting.look_around()

    @property
    def interfaces(self) -> list[str]:
        return sorted(own.interface for own in self.casting._sockets)


class Inside:
    """A device, in whose namespace a coroutine runs, in a thread of its own."""

    def __init__(self, networks: Networks, index: int) -> None:
        self._path = f"/var/run/netns/{networks.device(index)}"

    def run(self, body: Callable[[], Awaitable[None]]) -> None:
        failed: list[BaseException] = []

        def enter() -> None:
            try:
                with open(self._path) as handle:
                    libc = ctypes.CDLL(None, use_errno=True)
                    assert libc.setns(handle.fileno(), 0x4000_0000) == 0, os.strerror(ctypes.get_errno())
                asyncio.run(asyncio.wait_for(_ran(body), 60))
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        if failed:
            raise failed[0]


async def _ran(body: Callable[[], Awaitable[None]]) -> None:
    await body()


@pytest.fixture
def networks() -> Iterator[Networks]:
    """Networks and devices that go with the test."""
    with Networks() as made:
        yield made


def in_namespaces(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that needs network namespaces."""
    for mark in namespaces.marks(120):
        test = mark(test)
    return test


def _two_networks(networks: Networks) -> None:
    for number, name in ((7, "air"), (8, "sea")):
        networks.network(name)
        for index in (1, 2):
            networks.plug(index, name, f"{name}0", f"10.{number}.0.{index}/24")


def _cast_from(networks: Networks, index: int, interface: str, frame: bytes = FRAME) -> None:
    """One cast of another device, on one of its interfaces."""

    async def send() -> None:
        ear = Ear(interface=interface)
        try:
            ear.casting.send(frame)
            assert ear.counts["casts_out"] == 1, ear.casting.problem
        finally:
            ear.casting.close()

    Inside(networks, index).run(send)


@in_namespaces
def test_casts_go_and_come_by_the_interface_that_is_meant(networks: Networks) -> None:
    """Two networks, one group and port on both: what is named, or listened on, is the only one that counts."""
    _two_networks(networks)

    async def body() -> None:
        everywhere, named = Ear(), Ear(interface="sea0")
        bound = Ear("10.7.0.1")
        try:
            assert everywhere.interfaces == ["air0", "sea0"]
            assert (named.interfaces, bound.interfaces) == (["sea0"], ["air0"])
            await asyncio.to_thread(_cast_from, networks, 2, "air0")
            await until(lambda: everywhere.heard and bound.heard)
            assert everywhere.heard == bound.heard == [("10.7.0.2:7946", FRAME)]
            await asyncio.to_thread(_cast_from, networks, 2, "sea0")
            await until(lambda: named.heard)
            assert named.heard == [("10.8.0.2:7946", FRAME)]
            await until(lambda: len(everywhere.heard) == 2)
            assert len(bound.heard) == 1
        finally:
            for ear in (everywhere, named, bound):
                ear.casting.close()

    Inside(networks, 1).run(body)


@in_namespaces
def test_the_group_is_joined_again_when_the_interface_comes_back(networks: Networks) -> None:
    """Gone and back, down and up, and an address taken away and given again before anybody looks."""
    networks.network("air")
    for index in (1, 2):
        networks.plug(index, "air", "wlan0", f"10.7.0.{index}/24")
    device = networks.device(1)

    async def heard_again(ear: Ear) -> None:
        ear.heard.clear()
        for _ in range(50):  # The link may not be up yet, and the bridge still be learning who is where.
            ear.look()
            await asyncio.to_thread(_cast_from, networks, 2, "wlan0")
            await asyncio.sleep(0.1)
            if ear.heard:
                assert ear.interfaces == ["wlan0"]
                return
        raise AssertionError(f"nothing is heard any more on {ear.interfaces}")

    async def body() -> None:
        ear = Ear()
        try:
            await heard_again(ear)
            await asyncio.to_thread(networks.ip, device, "address", "delete", "10.7.0.1/24", "dev", "wlan0")
            await asyncio.to_thread(networks.ip, device, "address", "add", "10.7.0.1/24", "dev", "wlan0")
            await heard_again(ear)
            await asyncio.to_thread(networks.ip, device, "link", "set", "wlan0", "down")
            ear.look()
            assert ear.interfaces == []
            ear.casting.send(FRAME)
            assert ear.counts["casts_refused"] == 1
            await asyncio.to_thread(networks.ip, device, "link", "set", "wlan0", "up")
            await heard_again(ear)
            await asyncio.to_thread(networks.ip, device, "link", "delete", "wlan0")
            ear.look()
            await asyncio.to_thread(networks.plug, 1, "air", "wlan0", "10.7.0.1/24")
            await heard_again(ear)
        finally:
            ear.casting.close()

    Inside(networks, 1).run(body)


@in_namespaces
def test_a_cast_beyond_the_mtu_arrives_whole(networks: Networks) -> None:
    networks.network("air")
    for index in (1, 2):
        networks.plug(index, "air", "wlan0", f"10.7.0.{index}/24")
        networks.ip(networks.device(index), "link", "set", "wlan0", "mtu", "600")

    async def body() -> None:
        ear = Ear()
        try:
            await asyncio.to_thread(_cast_from, networks, 2, "wlan0", BIG)
            await until(lambda: ear.heard)
            assert ear.heard == [("10.7.0.2:7946", BIG)]
        finally:
            ear.casting.close()

    Inside(networks, 1).run(body)


@in_namespaces
def test_a_network_of_ipv6_alone_is_cast_on_by_link_local_addresses(networks: Networks) -> None:
    networks.network("air")
    for index in (1, 2):
        networks.plug(index, "air", "wlan0", ipv6=True)
        networks.exec(networks.device(index), "sysctl", "-qw", "net.ipv6.conf.wlan0.accept_dad=0")
        networks.ip(networks.device(index), "address", "add", f"fe80::{index}/64", "dev", "wlan0", "nodad")

    async def send() -> None:
        there = Ear("::")
        try:
            there.casting.send(FRAME)
            assert there.counts["casts_out"] == 1, there.casting.problem
        finally:
            there.casting.close()

    async def body() -> None:
        ear = Ear("::")
        try:
            for _ in range(50):
                await asyncio.to_thread(Inside(networks, 2).run, send)
                await asyncio.sleep(0.1)
                if ear.heard:
                    break
            source, frame = ear.heard[0]
            assert source.startswith("[fe80::")
            assert "%" in source
            assert frame == FRAME
        finally:
            ear.casting.close()

    Inside(networks, 1).run(body)


@in_namespaces
@pytest.mark.skipif(shutil.which("nft") is None, reason="nftables is not installed (apt install nftables)")
def test_what_the_firewall_forbids_is_told(networks: Networks) -> None:
    networks.network("air")
    networks.plug(1, "air", "wlan0", "10.7.0.1/24")
    networks.exec(networks.device(1), "nft", DROP_MULTICAST)

    async def body() -> None:
        ear = Ear()
        try:
            ear.casting.send(FRAME)
            assert ear.casting.problem.startswith("no casts on wlan0: Operation not permitted")
            assert "port 17946" in ear.casting.problem
        finally:
            ear.casting.close()

    Inside(networks, 1).run(body)


DROP_MULTICAST = """
table ip quiet {
    chain out {
        type filter hook output priority 0
        ip daddr 224.0.0.0/4 udp dport 17946 drop
    }
}
"""
"""An access point that lets no multicast through, as seen from the device."""
