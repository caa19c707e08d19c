"""What only the udp and zmq transports do: errors of the network, strangers at the port, keys, idle connections."""

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time

import pytest

from swarmd.transports import base, udp_socket, zmq_dialler, zmq_link
from swarmd.transports.curve import CurveKeys
from swarmd.transports.factory import make_transport
from tests.support.exclusive import own_port
from tests.support.paths import ROOT
from tests.support.transport_endpoints import Endpoint, KeyRing, curve_pair, run, until, until_sent


def endpoint(keys: CurveKeys, kind: str = "udp", listen: str = "127.0.0.1:0") -> Endpoint:
    return Endpoint(make_transport(kind, listen, keys))


def test_a_killed_peer_is_reported_within_one_round_trip_and_for_it_alone() -> None:
    async def test() -> None:
        keys = KeyRing()
        a, c = [await endpoint(keys.member()).start() for _ in range(2)]
        b = await endpoint(keys.member(), listen=f"127.0.0.1:{own_port()}").start()
        dead = b.address
        await b.transport.close()
        a.transport.send_datagram(dead, b"ping")
        a.transport.send_datagram(c.address, b"ping")  # The pending error must not swallow this one.
        await until(lambda: a.failures)
        await until(lambda: c.datagrams)
        assert a.failures == [(dead, base.REFUSED)]
        began_s = time.monotonic()
        for _ in range(20):  # Reports about one destination are limited, not lost.
            a.transport.send_datagram(dead, b"ping")
            a.transport.send_datagram(c.address, b"ping")
            await asyncio.sleep(0.005)
        await until(lambda: len(c.datagrams) == 21)
        assert 2 <= len(a.failures) <= 2 + (time.monotonic() - began_s) / udp_socket._REPORT_INTERVAL_S
        assert set(a.failures) == {(dead, base.REFUSED)}
        await asyncio.gather(a.transport.close(), c.transport.close())

    run(test)


def test_no_route_is_told_from_a_dead_peer() -> None:
    async def test() -> None:
        a = await endpoint(KeyRing().member()).start()
        a.transport.send_datagram("203.0.113.9:7946", b"x")  # Out of a socket bound to loopback: no way there.
        await until(lambda: a.failures)
        assert a.failures == [("203.0.113.9:7946", base.UNREACHABLE)]
        await a.transport.close()

    run(test)


@pytest.mark.parametrize("kind", ["udp", "zmq"])
def test_a_refused_stream_is_reported_while_it_waits(kind: str) -> None:
    async def test() -> None:
        keys = KeyRing()
        a = await endpoint(keys.member(), kind).start()
        b = await endpoint(keys.member(), kind, f"127.0.0.1:{own_port()}").start()
        dead = b.address
        await b.transport.close()
        a.stream(dead, b"x", seconds=60)
        await until(lambda: (dead, base.REFUSED) in a.failures)
        assert set(a.failures) == {(dead, base.REFUSED)}, "it has not expired yet"
        assert b.streams == []
        await a.transport.close()

    run(test)


def test_a_stranger_without_the_groups_key_delivers_nothing_and_is_told_so() -> None:
    async def test() -> None:
        ours, theirs = KeyRing(), KeyRing()
        a, stranger = await endpoint(ours.member()).start(), await endpoint(theirs.member()).start()
        rejected = (a.address, base.REJECTED)
        for _ in range(30):  # A frame that waits makes it dial; a busy machine may not shake hands within its second.
            stranger.stream(a.address, b"let me in", seconds=1)
            with contextlib.suppress(AssertionError):
                await until(lambda: rejected in stranger.failures, 3)
                break
        assert rejected in stranger.failures
        await until(lambda: (a.address, base.EXPIRED) in stranger.failures)
        assert a.streams == []
        await asyncio.gather(a.transport.close(), stranger.transport.close())

    run(test)


@pytest.mark.parametrize("kind", ["udp", "zmq"])
def test_garbage_at_the_port_changes_nothing(kind: str) -> None:
    async def test() -> None:
        keys = KeyRing()
        a, b = await endpoint(keys.member(), kind).start(), await endpoint(keys.member(), kind).start()
        host, port = a.address.rsplit(":", 1)
        sockets = []
        for garbage in (
            b"GET / HTTP/1.1\r\n\r\n",
            b"\xff" * 5_000,
            b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\0CURVE" + bytes(60),
        ):
            sock = socket.create_connection((host, int(port)), timeout=30)
            sock.sendall(garbage)
            sockets.append(sock)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            for size in (0, 1, 1_201, 9_000):
                sock.sendto(bytes(size), (host, int(port)))
        b.stream(a.address, b"still here")
        await until(lambda: a.streams)
        if kind == "udp":
            await until(lambda: a.transport.counters().get("datagrams_dropped_size") == 3)
            assert [len(data) for _, data in a.datagrams] == [1]
        for sock in sockets:
            sock.close()
        await asyncio.gather(a.transport.close(), b.transport.close())

    run(test)


def test_a_connection_that_carries_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heartbeats of connections that nobody uses would eat the byte budget."""
    quick = zmq_link.Path(b"s", "stream", queue_frames=4, queue_bytes=4_096, idle_s=0.05)
    monkeypatch.setattr("swarmd.transports.udp.STREAM_PATH", quick)
    monkeypatch.setattr(zmq_dialler, "_IDLE_TICK_S", 0.05)
    monkeypatch.setitem(zmq_link.PATHS, b"s", quick)

    async def test() -> None:
        keys = KeyRing()
        a, b = await endpoint(keys.member()).start(), await endpoint(keys.member()).start()
        a.stream(b.address, b"one")
        await until(lambda: b.streams)
        port = int(b.address.rsplit(":", 1)[1])
        await until(lambda: _connections_to(port) == 0)
        a.stream(b.address, b"two")
        await until(lambda: len(b.streams) == 2)
        assert [data for _, data in b.streams] == [b"one", b"two"], "what follows makes a new one"
        assert a.failures == []
        await asyncio.gather(a.transport.close(), b.transport.close())

    run(test)


def _connections_to(port: int) -> int:
    wanted = f":{port:04X}"
    with open("/proc/net/tcp", encoding="ascii") as table:
        rows = [line.split() for line in table.readlines()[1:]]
    return sum(row[2].endswith(wanted) and row[3] == "01" for row in rows)


@pytest.mark.parametrize("kind", ["udp", "zmq"])
def test_ipv6(kind: str) -> None:
    async def test() -> None:
        keys = KeyRing()
        try:
            a = await endpoint(keys.member(), kind, "[::1]:0").start()
        except base.TransportError as error:
            pytest.skip(f"no IPv6 loopback here: {error}")
        b = await endpoint(keys.member(), kind, "[::1]:0").start()
        assert a.address.startswith("[::1]:")
        await until_sent(lambda: a.transport.send_datagram(b.address, b"six"), lambda: b.datagrams)
        a.stream(b.address, b"six too")
        await until(lambda: b.streams)
        assert (b.datagrams[0][0], b.streams[0][0]) == (a.address, a.address)
        await asyncio.gather(a.transport.close(), b.transport.close())
        if kind == "udp":
            c = await endpoint(keys.member(), kind, "[::1]:0").start()
            c.transport.send_datagram(a.address, b"ping")
            await until(lambda: (a.address, base.REFUSED) in c.failures)
            await c.transport.close()

    run(test)


def test_the_wildcard_advertises_an_address_that_peers_can_use() -> None:
    async def test() -> None:
        keys = KeyRing()
        a = await endpoint(keys.member(), listen="0.0.0.0:0").start()
        assert not a.address.startswith("0.0.0.0")
        told = Endpoint(make_transport("udp", "0.0.0.0:0", keys.member(), advertise="192.0.2.7:7946"))
        await told.start()
        assert told.address == "192.0.2.7:7946"
        await asyncio.gather(a.transport.close(), told.transport.close())

    run(test)


def test_a_claimed_source_that_is_no_address_is_dropped() -> None:
    good = zmq_link.routing_id_of(zmq_link.STREAM_PATH, "10.0.0.1:7946")
    assert zmq_link.parse_routing_id(good) == (zmq_link.STREAM_PATH, "10.0.0.1:7946")
    for bad in (
        b"",
        b"\x00\x01\x02\x03\x04",
        b"s|10.0.0.1:7946",
        b"x|10.0.0.1:7946|00",
        b"s|drone:1|00",
        b"s|10.0.0.1:0|00",
        b"s|10.0.0.1:7946|00|00",
        b"s|\xff:1|00",
        b"s|10.0.0.1:7946|" + b"0" * 200,
    ):
        assert zmq_link.parse_routing_id(bad) is None, bad


def test_keys_of_the_wrong_length_are_refused() -> None:
    public, secret = curve_pair()
    with pytest.raises(ValueError, match="own_secret has 31 bytes"):
        CurveKeys(public, secret, public, secret[:31])


@pytest.mark.parametrize("kind", ["udp", "zmq"])
def test_a_connection_that_is_given_up_takes_what_it_holds_with_it(kind: str) -> None:
    """Its peer is away and stays away: nobody dials for what is older than its deadline, and the transport ends."""

    async def test() -> None:
        keys = KeyRing()
        a = await endpoint(keys.member(), kind).start()
        for _ in range(20):  # Whether ZeroMQ takes frames after the loss, before it tells of it, is chance.
            b = await endpoint(keys.member(), kind, f"127.0.0.1:{own_port()}").start()
            a.stream(b.address, b"it stands")
            await until(lambda b=b: b.streams)
            before = a.transport.counters()["streams_out"]
            await b.transport.close()
            for _ in range(50):
                a.stream(b.address, b"nobody takes it", seconds=0.1)
            if a.transport.counters()["streams_out"] > before:
                break
        await until_sent(
            lambda: a.stream(b.address, b"late", seconds=0.1),
            lambda: a.transport.counters().get("streams_dropped_expired"),
        )
        await asyncio.wait_for(a.transport.close(), 60)

    run(test)


@pytest.mark.netns
def test_a_connection_that_was_cut_delivers_again_at_once_after_the_cut() -> None:
    """The peer's end of the dead connection is still there when the new one arrives, and must not shadow it."""
    if os.geteuid() != 0:
        pytest.skip("not root here: no network namespace of its own")
    if shutil.which("nft") is None:
        pytest.skip("nft is not installed (apt install nftables)")
    done = subprocess.run(
        ["unshare", "--net", "--", sys.executable, "-m", "tests.support.transport_cut"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 3.0, f"{done.stdout} s after the cut was lifted"
