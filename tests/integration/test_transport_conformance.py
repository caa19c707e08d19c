"""One suite that every transport must pass: udp, zmq, dds, and the simulator's links behind the same interface."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from swarmd.errors import TransportError
from swarmd.transports import base, curve_paths, dds
from swarmd.transports.base import MAX_DATAGRAM_BYTES, MAX_STREAM_BYTES
from swarmd.transports.curve import CurveKeys
from swarmd.transports.dds_options import DdsOptions
from swarmd.transports.factory import make_transport
from swarmd_protocols.effects import HostAnswer
from tests.support.exclusive import own_port
from tests.support.transport_endpoints import STREAM_S, Endpoint, KeyRing, run, until, until_sent
from tests.support.transport_simulated import Ether, SimulatedTransport

pytestmark = pytest.mark.timeout(180)


class Net:
    """Makes endpoints of one kind that can reach each other."""

    def __init__(self, kind: str, dds_domain: int) -> None:
        self.kind = kind
        self.dds = DdsOptions(domain=dds_domain)
        self.keys = KeyRing()
        self.ether = Ether()

    def make(self, listen: str = "127.0.0.1:0", keys: CurveKeys | None = None) -> Endpoint:
        if self.kind == "simulated":
            return Endpoint(SimulatedTransport(self.ether, listen))
        return Endpoint(make_transport(self.kind, listen, keys or self.keys.member(), dds=self.dds))

    def mortal(self) -> Endpoint:
        """One that goes before the test does: nobody else gets its port meanwhile, as one from the kernel might be."""
        return self.make(f"127.0.0.1:{own_port()}")

    @asynccontextmanager
    async def endpoints(self, count: int) -> AsyncIterator[list[Endpoint]]:
        started = [await self.make().start() for _ in range(count)]
        try:
            yield started
        finally:
            await asyncio.gather(*(endpoint.transport.close() for endpoint in started))
            await self.ether.sleep()


@pytest.fixture(params=["udp", "zmq", "dds", "simulated"])
def net(request: pytest.FixtureRequest, dds_domain: int) -> Net:
    return Net(request.param, dds_domain)


def on(net: Net, count: int, body: Callable[[list[Endpoint]], object]) -> None:
    async def test() -> None:
        async with net.endpoints(count) as endpoints:
            await body(endpoints)  # type: ignore[misc]

    run(test)


def test_a_datagram_arrives_with_the_address_to_answer_to(net: Net) -> None:
    async def body(ends: list[Endpoint]) -> None:
        a, b = ends
        await until_sent(lambda: a.transport.send_datagram(b.address, b"ping"), lambda: b.datagrams)
        source, data = b.datagrams[0]
        assert data == b"ping"
        await until_sent(lambda: b.transport.send_datagram(source, b"ack"), lambda: a.datagrams)
        assert a.datagrams[0] == (b.address, b"ack")

    on(net, 2, body)


def test_datagrams_of_every_size_arrive_whole(net: Net) -> None:
    async def body(ends: list[Endpoint]) -> None:
        a, b = ends
        for size in (1, 2, 255, 256, 1_000, MAX_DATAGRAM_BYTES - 1, MAX_DATAGRAM_BYTES):
            data = bytes(i % 251 for i in range(size))
            await until_sent(
                lambda data=data: a.transport.send_datagram(b.address, data),
                lambda data=data: (a.address, data) in b.datagrams,
            )

    on(net, 2, body)


def test_an_oversized_frame_is_refused_and_counted(net: Net) -> None:
    async def body(ends: list[Endpoint]) -> None:
        a, b = ends
        a.transport.send_datagram(b.address, bytes(MAX_DATAGRAM_BYTES + 1))
        await until(lambda: (b.address, base.TOO_LARGE) in a.failures)
        a.failures.clear()
        a.stream(b.address, bytes(MAX_STREAM_BYTES + 1))
        await until(lambda: (b.address, base.TOO_LARGE) in a.failures)
        assert a.transport.counters()["datagrams_refused"] == 1
        assert a.transport.counters()["streams_refused"] == 1

    on(net, 2, body)


def test_streams_arrive_once_in_order_with_their_source(net: Net) -> None:
    async def body(ends: list[Endpoint]) -> None:
        a, b = ends
        frames = [b"%d " % i + bytes(i * 7 % 900) for i in range(200)]
        for frame in frames:
            a.stream(b.address, frame)
        await until(lambda: len(b.streams) >= len(frames))
        assert b.streams == [(a.address, frame) for frame in frames]

    on(net, 2, body)


@pytest.mark.parametrize("bulk", [False, True])
def test_the_largest_stream_frame_arrives_whole(net: Net, bulk: bool) -> None:
    async def body(ends: list[Endpoint]) -> None:
        a, b = ends
        data = bytes(range(256)) * (MAX_STREAM_BYTES // 256)
        a.stream(b.address, data, seconds=60, bulk=bulk)
        await until(lambda: b.streams)
        assert b.streams == [(a.address, data)]

    on(net, 2, body)


def test_small_frames_do_not_wait_behind_bulk(net: Net) -> None:
    """On a path that they shared the small one would come last each time; whom the machine runs first is chance."""

    async def body(ends: list[Endpoint]) -> None:
        a, b = ends
        a.stream(b.address, b"warm")
        a.stream(b.address, b"warm bulk", bulk=True)
        await until(lambda: len(b.streams) == 2)
        for _ in range(10):
            b.streams.clear()
            for _ in range(6):
                a.stream(b.address, bytes(4 * 1024 * 1024), seconds=60, bulk=True)
            a.stream(b.address, b"urgent")
            await until(lambda: len(b.streams) == 7)
            if b.streams[-1][1] != b"urgent":
                return
        raise AssertionError("ten times the small frame came after all of the bulk")

    on(net, 2, body)


def test_everybody_reaches_everybody(net: Net) -> None:
    async def body(ends: list[Endpoint]) -> None:
        for a in ends:
            for b in ends:
                if a is not b:
                    a.stream(b.address, a.address.encode())
        await until(lambda: all(len(end.streams) == len(ends) - 1 for end in ends))
        for end in ends:
            assert all(source.encode() == data for source, data in end.streams)
            assert len({source for source, _ in end.streams}) == len(ends) - 1

    on(net, 5, body)


def test_a_cast_reaches_all_others_at_the_cost_of_one_or_is_refused(net: Net) -> None:
    async def body(ends: list[Endpoint]) -> None:
        a, *others = ends
        if not a.transport.casts:
            a.transport.send_cast(b"all")
            assert a.transport.counters()["casts_refused"] == 1
            return
        await until_sent(
            lambda: a.transport.send_cast(b"all"),
            lambda: all((a.address, b"all") in end.datagrams for end in others),
        )
        assert not a.datagrams, "nobody hears itself"
        assert not any(end.streams for end in ends)

    on(net, 4, body)


def test_a_stream_to_nobody_expires_and_is_counted(net: Net) -> None:
    async def test() -> None:
        async with net.endpoints(1) as (a,):
            gone = await net.mortal().start()
            address = gone.address
            await gone.transport.close()
            a.stream(address, b"late", seconds=0.3)
            await until(lambda: (address, base.EXPIRED) in a.failures)
            assert a.transport.counters()["streams_dropped_expired"] == 1

    run(test)


def test_nothing_older_than_its_deadline_arrives_at_a_peer_that_comes_back(net: Net) -> None:
    async def test() -> None:
        async with net.endpoints(1) as (a,):
            first = await net.mortal().start()
            address = first.address
            a.stream(address, b"first")
            await until(lambda: first.streams)
            await first.transport.close()
            late_s = 0.0

            def say_what_will_be_stale() -> None:
                nonlocal late_s
                for i in range(50):
                    a.stream(address, b"stale %d" % i, seconds=0.4)
                late_s = time.monotonic() + 0.4

            # What goes while the loss has not been seen is lost on the way: neither here nor there.
            expired = lambda: a.transport.counters().get("streams_dropped_expired", 0)  # noqa: E731
            await until_sent(say_what_will_be_stale, expired)
            await until(lambda: time.monotonic() > late_s)
            second = await net.make(listen=address).start()
            a.stream(address, b"fresh")
            await until(lambda: second.streams)
            await second.transport.close()
            assert [data for _, data in second.streams] == [b"fresh"]

    run(test)


def test_the_queue_towards_one_dead_peer_is_bounded_and_hurts_no_other(net: Net) -> None:
    async def test() -> None:
        async with net.endpoints(2) as (a, b):
            gone = await net.mortal().start()
            dead = gone.address
            await gone.transport.close()
            for _ in range(2_000):
                a.stream(dead, bytes(1_000), seconds=2)
            assert a.transport.counters()["streams_dropped_full"] >= 1_000
            a.stream(b.address, b"alive")
            await until(lambda: b.streams)
            await until(lambda: (dead, base.FULL) in a.failures)

    run(test)


def test_a_restarted_peer_is_reached_again_at_its_old_address(net: Net) -> None:
    async def test() -> None:
        async with net.endpoints(1) as (a,):
            for life in range(3):
                if life == 0:
                    b = await net.mortal().start()
                    address = b.address
                else:
                    b = await net.make(listen=address).start()
                await until_sent(
                    lambda address=address: a.transport.send_datagram(address, b"hello"),
                    lambda b=b: b.datagrams,
                )
                a.stream(address, b"life %d" % life)
                await until(lambda b=b: b.streams)
                assert [data for _, data in b.streams] == [b"life %d" % life]
                b.stream(a.address, b"back %d" % life)
                await until(lambda life=life: len(a.streams) == life + 1)
                await b.transport.close()

    run(test)


def test_an_unusable_destination_is_reported_not_raised(net: Net) -> None:
    async def body(ends: list[Endpoint]) -> None:
        (a,) = ends
        for bad in ("", "nonsense", "10.0.0.1", "host.example:1", "1.2.3.4:99999", "[::1", "\x00:1"):
            a.failures.clear()
            a.transport.send_datagram(bad, b"x")
            a.stream(bad, b"x")
            await until(lambda bad=bad: len([f for f in a.failures if f[0] == bad]) >= 2, what=repr(bad))
            assert {reason for _, reason in a.failures} <= {base.UNREACHABLE}

    on(net, 1, body)


def test_a_peers_kernel_is_asked_whether_its_port_is_open(net: Net) -> None:
    async def test() -> None:
        async with net.endpoints(2) as (a, b):
            gone = await net.mortal().start()
            address = gone.address
            await gone.transport.close()
            a.transport.probe_host(b.address, 60_000_000_000)
            a.transport.probe_host(address, 60_000_000_000)
            a.transport.probe_host("nonsense", 60_000_000_000)
            if net.kind == "dds":  # Binds no port of that number: says nothing rather than something wrong.
                await asyncio.sleep(0.05)
                assert a.probes == []
                return
            await until(lambda: len(a.probes) == 3)
            assert set(a.probes) == {
                (b.address, HostAnswer.OPEN),
                (address, HostAnswer.REFUSED),
                ("nonsense", HostAnswer.SILENT),
            }

    run(test)


def test_members_with_the_old_and_the_new_group_key_reach_each_other_during_a_rotation(net: Net) -> None:
    async def test() -> None:
        old, new = KeyRing(), KeyRing()
        net.keys = old
        async with net.endpoints(3) as (a, b, absent):
            for end in (a, b):
                end.stream(absent.address, b"before")
            await until(lambda: len(absent.streams) == 2)
            for end in (a, b):
                await end.transport.rekey(new.member(older=old))
            fresh = net.make(keys=new.member(older=old))
            await fresh.start()
            for end in (a, b, fresh):
                end.stream(absent.address, b"to the one that was away")
            fresh.stream(a.address, b"to a")
            a.stream(b.address, b"to b")
            await until(lambda: len(absent.streams) == 5 and a.streams and b.streams)
            await absent.transport.rekey(new.member(older=old))
            absent.stream(fresh.address, b"from the one that was away")
            await until(lambda: fresh.streams)
            await fresh.transport.close()

    run(test)


def test_counters_tell_what_happened(net: Net) -> None:
    async def body(ends: list[Endpoint]) -> None:
        a, b = ends
        await until_sent(lambda: a.transport.send_datagram(b.address, b"12345"), lambda: b.datagrams)
        a.stream(b.address, b"123")
        a.stream(b.address, b"1234567", bulk=True)
        await until(lambda: len(b.streams) == 2)
        out, into = a.transport.counters(), b.transport.counters()
        assert out["datagrams_out"] * 5 == out["datagram_bytes_out"]
        assert into["datagrams_in"] * 5 == into["datagram_bytes_in"]
        assert (out["streams_out"], out["stream_bytes_out"]) == (1, 3) == (into["streams_in"], into["stream_bytes_in"])
        assert (out["bulks_out"], out["bulk_bytes_out"]) == (1, 7) == (into["bulks_in"], into["bulk_bytes_in"])

    on(net, 2, body)


def test_close_sends_what_was_queued_and_may_come_twice(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (curve_paths, dds):  # Longer than a busy machine stops this process.
        monkeypatch.setattr(module, "_FLUSH_S", STREAM_S / 3)

    async def test() -> None:
        async with net.endpoints(1) as (b,):
            a = await net.make().start()
            a.stream(b.address, b"warm")
            await until(lambda: b.streams)
            a.stream(b.address, b"last words")
            before = time.monotonic()
            await a.transport.close()
            await a.transport.close()
            assert time.monotonic() - before < STREAM_S / 2, "what cannot be sent is not waited for"
            await until(lambda: len(b.streams) == 2)
            a.transport.send_datagram(b.address, b"after")
            a.stream(b.address, b"after")
            assert a.transport.counters()["datagrams_dropped_closed"] == 1
            assert a.transport.counters()["streams_dropped_closed"] == 1

    run(test)


def test_an_address_in_use_is_an_error_that_says_so(net: Net) -> None:
    async def body(ends: list[Endpoint]) -> None:
        (a,) = ends
        with pytest.raises(TransportError, match=r"in use.*choose another") as error:
            await net.make(listen=a.address).start()
        assert a.address in str(error.value)

    on(net, 1, body)


@pytest.mark.parametrize("listen", ["nonsense", "127.0.0.1", "localhost:1", "127.0.0.1:70000", "::1:5"])
def test_a_listening_address_that_is_none_is_an_error(net: Net, listen: str) -> None:
    async def test() -> None:
        with pytest.raises(TransportError, match="cannot listen on"):
            await net.make(listen=listen).start()

    run(test)


def test_the_address_is_known_only_after_the_start(net: Net) -> None:
    with pytest.raises(TransportError, match="started"):
        _ = net.make().address


def test_a_handler_that_raises_does_not_stop_delivery(net: Net) -> None:
    async def test() -> None:
        async with net.endpoints(1) as (a,):
            complaints: list[dict[str, object]] = []
            asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
            b = net.make()
            seen: list[bytes] = []

            def hostile(source: str, data: bytes) -> None:
                seen.append(data)
                raise RuntimeError("a bug in a handler")

            await b.transport.start(base.TransportHandlers(hostile, hostile, lambda *_: None))
            for i in range(20):
                a.stream(b.address, b"%d" % i)
            await until(lambda: len(seen) == 20, what="all frames")
            await until_sent(lambda: a.transport.send_datagram(b.address, b"d"), lambda: b"d" in seen)
            assert complaints
            await b.transport.close()

    run(test)
