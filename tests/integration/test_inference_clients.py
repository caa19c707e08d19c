"""Clients that hang up leave nothing behind, and clients that wait keep nothing urgent out."""

import asyncio
import contextlib
import gc
import json
from collections.abc import AsyncIterator, Callable
from functools import partialmethod
from typing import ClassVar

import pytest

from swarmd.worker import http_server
from swarmd.worker.http_server import CONNECTIONS_MAX, EXTRA_MAX, InferenceServer
from tests.support.mutants import assert_found
from tests.unit.test_inference_api_laws import World, law

PATIENCE_S = 60.0
_HALVES = (
    b"",
    b"GET / HTTP/1.1\r\n",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n1",
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
)
"""Of what a client does before it falls silent; the last one does not read its answer."""


@contextlib.asynccontextmanager
async def served(handle: http_server.Handler | None = None) -> AsyncIterator[tuple[World, InferenceServer, str]]:
    world = World(max_requests=256)
    server = InferenceServer(handle or world.api.handle, world.api.complain, 1 << 20)
    address = await server.start("127.0.0.1:0")
    try:
        yield world, server, address
    finally:
        for _ in range(1000):
            world.held.go.release()
        for one in Program.open:
            one.writer.close()
            with contextlib.suppress(OSError):
                await one.writer.wait_closed()
        Program.open.clear()
        await server.close()


class Program:
    """A connection that asks for one item."""

    open: ClassVar["list[Program]"] = []

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connects(cls, address: str) -> "Program":
        host, _, port = address.rpartition(":")
        one = cls(*await asyncio.open_connection(host, int(port)))
        cls.open.append(one)
        return one

    @classmethod
    async def asks(
        cls, address: str, item: float, priority: int = 2, times: int = 1, *, trickles: bool = False
    ) -> "Program":
        one = await cls.connects(address)
        body = json.dumps(
            {
                "inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [item]}],
                "parameters": {"priority": priority, "timeout": 60_000_000},
            }
        ).encode()
        head = f"POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        whole = (head.encode() + body) * times
        for piece in [whole[at : at + 1] for at in range(len(whole))] if trickles else [whole]:
            one.writer.write(piece)
            await asyncio.sleep(0)
        return one

    async def status(self) -> int:
        async with asyncio.timeout(PATIENCE_S):
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            await self.reader.readexactly(length)
        return int(head.split()[1])


@law
async def test_a_client_that_hangs_up_frees_its_request_at_once() -> None:
    async with served() as (world, server, address):
        first = await Program.asks(address, 1.0)
        await world.until(lambda: world.held.began, "the first to run")
        waiting = [await Program.asks(address, float(n)) for n in range(2, 10)]
        await world.until(lambda: world.batcher.waiting == 8, "eight to wait")
        for one in waiting:
            one.writer.close()
        await world.until(lambda: world.batcher.waiting == 0, "what they asked to be forgotten")
        await world.until(lambda: server.connections == 1, "their places to be free")
        world.held.go.release()
        assert await first.status() == 200
        assert world.held.began == [1.0], "something ran for who had gone"
        await world.settled()


@law
async def test_a_client_may_send_its_next_request_before_it_has_the_answer() -> None:
    async with served() as (world, _, address):
        one = await Program.asks(address, 1.0, times=3)
        for count in range(1, 4):
            await world.until(lambda count=count: len(world.held.began) == count, "the next to run")  # type: ignore[misc]
            world.held.go.release()
            assert await one.status() == 200


async def _echo(call: http_server.Call) -> http_server.Answer:
    return http_server.Answer(200, (f"{call.path} {len(call.body)}".encode(),))


@law
async def test_what_is_sent_far_ahead_waits_in_the_kernel_and_is_answered_in_order() -> None:
    """4 MiB from a client that reads its answers; among the requests, bodies that begin in what was read ahead."""
    most = 0
    updated = http_server._Client.buffer_updated

    def watched(self: http_server._Client, nbytes: int) -> None:
        nonlocal most
        updated(self, nbytes)
        most = max(most, len(self._ahead))

    sizes = [3 * http_server._AHEAD_BYTES if n % 400 == 200 else 0 for n in range(4000)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http_server._Client, "buffer_updated", watched)
        async with served(_echo) as (world, server, address), asyncio.timeout(PATIENCE_S):
            one = await Program.connects(address)
            for n, size in enumerate(sizes):
                head = f"POST /{n} HTTP/1.1\r\nHost: localhost\r\nX: {'x' * 500}\r\nContent-Length: {size}\r\n\r\n"
                one.writer.write(head.encode() + bytes(size))
            for n, size in enumerate(sizes):
                assert (await one.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
                said = f"/{n} {size}".encode()
                assert await one.reader.readexactly(len(said)) == said
            await world.until(lambda: not server.held_bytes, "its bodies to be forgotten")
    assert http_server._AHEAD_BYTES < most <= http_server._AHEAD_BYTES + http_server._READ_BYTES


@law
async def test_who_asks_no_more_while_its_answer_is_on_its_way_has_all_of_it() -> None:
    size = 20 << 20

    async def handle(call: http_server.Call) -> http_server.Answer:
        return http_server.Answer(200, (bytes(size),))

    for how in ("close", "keep-alive"):
        async with served(handle) as (world, server, address), asyncio.timeout(PATIENCE_S):
            one = await Program.connects(address)
            one.writer.write(f"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: {how}\r\n\r\n".encode())
            await one.reader.readuntil(b"\r\n\r\n")
            one.writer.write_eof()
            assert len(await one.reader.read()) == size
            await world.until(lambda: not server.connections, "its place to be free")


@law
async def test_a_handler_that_fails_is_told_to_its_client_and_to_the_loop() -> None:
    told: list[BaseException | None] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context.get("exception")))

    async def handle(call: http_server.Call) -> http_server.Answer:
        raise KeyError("a secret")

    async with served(handle) as (world, server, address), asyncio.timeout(PATIENCE_S):
        one = await Program.connects(address)
        one.writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = await one.reader.read()
        assert answer.startswith(b"HTTP/1.1 500 ")
        assert json.loads(answer.partition(b"\r\n\r\n")[2]) == {"error": "the worker failed at this request"}
        await world.until(lambda: not server.connections, "its place to be free")
        assert not server.held_bytes
    gc.collect()  # A task whose exception nobody takes is told when it goes.
    assert [type(error) for error in told] == [KeyError]


@law
async def test_a_request_may_come_byte_by_byte() -> None:
    async with served() as (world, server, address):
        world.held.go.release()
        one = await Program.asks(address, 1.0, trickles=True)
        assert await one.status() == 200
        await world.until(lambda: not server.held_bytes, "its body to be forgotten")


@law
async def test_who_keeps_us_waiting_for_too_long_is_hung_up_on() -> None:
    """One sends half a body, one does not read its answer, one says nothing."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("CLIENT_S", 0.3), ("IDLE_S", 0.3), ("_SWEEP_S", 0.05)):
            patch.setattr(http_server, name, value)

        async def handle(call: http_server.Call) -> http_server.Answer:
            return http_server.Answer(200, (bytes(32 << 20),))

        world = World()
        server = InferenceServer(handle, world.api.complain, 1 << 20)
        host, _, port = (await server.start("127.0.0.1:0")).rpartition(":")
        for said in _HALVES:
            _, writer = await asyncio.open_connection(host, int(port))
            try:
                writer.write(said)
                await world.until(lambda: server.connections == 1, "it to be heard")
                await world.until(lambda: server.connections == 0, "it to be hung up on")
                assert server.held_bytes == 0
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
                if server.connections:
                    await server.close()
        await server.close()


@law
async def test_clients_that_wait_keep_nothing_urgent_out() -> None:
    async with served() as (world, server, address):
        waiting = [await Program.asks(address, 1.0) for _ in range(CONNECTIONS_MAX)]
        await world.until(lambda: len(world.api._pending) == CONNECTIONS_MAX, "every place to be taken")
        refused = await Program.asks(address, 2.0)
        assert await refused.status() == 503
        urgent = await Program.asks(address, 3.0, priority=1)
        await world.until(lambda: len(world.api._pending) == CONNECTIONS_MAX + 1, "the urgent one to be taken")
        for _ in range(CONNECTIONS_MAX + 1):
            world.held.go.release()
        assert await urgent.status() == 200
        assert [await one.status() for one in waiting] == [200] * CONNECTIONS_MAX
        assert server.refused == 0


@law
async def test_the_places_of_the_urgent_are_bounded_too() -> None:
    async with served() as (world, server, address):
        taken = CONNECTIONS_MAX + EXTRA_MAX
        programs = [await Program.asks(address, 1.0, priority=1) for _ in range(taken)]
        await world.until(lambda: len(world.api._pending) == taken, "every place to be taken")
        programs.append(await Program.asks(address, 1.0, priority=1))
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(ConnectionError):
                assert await programs[-1].reader.read() == b""
        assert (server.refused, server.connections) == (1, taken)


def _hanging_up_is_not_seen(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(http_server._Client, "_leave", lambda self: None)
    patch.setattr(World, "until", partialmethod(World.until, tries=100))


def _nobody_is_swept_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(InferenceServer, "_sweep", lambda self: None)
    patch.setattr(World, "until", partialmethod(World.until, tries=200))


def _reading_always_goes_on(patch: pytest.MonkeyPatch) -> None:
    go_on = http_server._Client._next

    def next_(self: http_server._Client, is_kept: bool) -> None:
        go_on(self, is_kept)
        self._transport.resume_reading()

    patch.setattr(http_server._Client, "_next", next_)


MUTANTS: list[tuple[Callable[[pytest.MonkeyPatch], None], Callable[[], None]]] = [
    (_hanging_up_is_not_seen, test_a_client_that_hangs_up_frees_its_request_at_once),
    (_reading_always_goes_on, test_what_is_sent_far_ahead_waits_in_the_kernel_and_is_answered_in_order),
    (_nobody_is_swept_out, test_who_keeps_us_waiting_for_too_long_is_hung_up_on),
]


@pytest.mark.parametrize(("mutant", "broken"), MUTANTS, ids=lambda one: one.__name__)
def test_a_broken_rule_about_clients_is_found(
    mutant: Callable[[pytest.MonkeyPatch], None], broken: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_found(mutant, broken, monkeypatch)
