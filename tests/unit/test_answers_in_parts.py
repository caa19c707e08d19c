"""A long answer leaves the loop to others: between two of its parts the loop turns, at the socket and over HTTP."""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmd.api.control import ControlClient, ControlServer
from swarmd.api.http import HttpServer, Reply
from swarmd.api.parts import Parts, encoded, whole
from swarmd.api.verbs import Verbs
from swarmd.errors import ControlError
from swarmd.logs import Logger
from tests.support.turning import Turns, turning

PARTS, ROWS = 200, 32
rows = st.lists(st.one_of(st.integers(), st.text(), st.none(), st.dictionaries(st.text(), st.integers())), max_size=5)


def quiet() -> Logger:
    return Logger("test", stream=io.StringIO())


class Loop(Turns):
    """Notes in which turn each part was made."""

    def __init__(self) -> None:
        super().__init__()
        self.made_in: list[int] = []

    def parts(self) -> Iterator[Sequence[int]]:
        for part in range(PARTS):
            self.made_in.append(self.turns)
            yield range(part * ROWS, (part + 1) * ROWS)

    def answer(self, _: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"rows": Parts.of(self.parts(), lambda n: {"n": n}), "more": 1}


def broken() -> Iterator[Sequence[int]]:
    yield [1]
    raise KeyError("bug")


def check(loop: Loop, result: Mapping[str, Any]) -> None:
    assert result == {"rows": [{"n": n} for n in range(PARTS * ROWS)], "more": 1}
    assert len(set(loop.made_in)) == PARTS, "no two parts in one turn of the loop"


async def silence() -> AsyncIterator[Mapping[str, Any]]:
    await asyncio.Event().wait()
    yield {}


def ask(path: Path, verb: str) -> dict[str, Any]:
    with ControlClient(path) as client:
        return client.call(verb)


async def test_the_socket_writes_a_long_answer_part_by_part(tmp_path: Path) -> None:
    async with turning(Loop()) as loop:
        verbs = Verbs()
        verbs.add("rows", loop.answer)
        verbs.add("broken", lambda _: {"rows": Parts(broken())})
        server = ControlServer(tmp_path / "c.sock", verbs.begin, silence, quiet())
        await server.start()
        try:
            check(loop, await asyncio.to_thread(ask, server.path, "rows"))
            with pytest.raises(ControlError, match="hung up"):
                await asyncio.to_thread(ask, server.path, "broken")
            loop.made_in.clear()
            check(loop, await asyncio.to_thread(ask, server.path, "rows"))
        finally:
            await server.close()


async def test_a_page_is_written_part_by_part() -> None:
    async with turning(Loop()) as loop:
        pages = {
            "/rows": lambda: Reply(200, "application/json", encoded(loop.answer({}))),
            "/broken": lambda: Reply(200, "application/json", encoded({"rows": Parts(broken())})),
        }
        server = HttpServer("127.0.0.1:0", pages, quiet())
        await server.start()
        try:
            for _ in range(2):
                loop.made_in.clear()
                check(loop, json.loads(await get(server.address, "/rows")))
            with pytest.raises(asyncio.IncompleteReadError):
                await get(server.address, "/broken")
        finally:
            await server.close()


async def get(address: str, path: str) -> bytes:
    """The body of a chunked answer; raises where its end is missing."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"Content-Length" not in head
        body = b""
        while size := int(await reader.readuntil(b"\r\n"), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        return body
    finally:
        writer.close()


@given(parts=st.lists(rows, max_size=6), rest=st.dictionaries(st.text(max_size=3), rows, max_size=3))
def test_an_answer_in_parts_is_the_answer(parts: list[list[Any]], rest: dict[str, Any]) -> None:
    flat = [row for part in parts for row in part]
    inside = {**rest, "rows": Parts(parts), "after": 0}
    told = {"ok": True, "result": inside}
    assert json.loads("".join(encoded(told))) == {"ok": True, "result": {**rest, "rows": flat, "after": 0}}
    assert whole({**rest, "rows": Parts(parts)}) == {**rest, "rows": flat}
    assert json.loads("".join(encoded(rest))) == rest
