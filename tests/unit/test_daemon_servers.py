"""Control socket and HTTP server over real sockets on this host."""

import asyncio
import contextlib
import io
import json
import socket
import stat
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from swarmd.api import control
from swarmd.api.control import REQUEST_MAX_BYTES, ControlClient, ControlServer, default_path, running_sockets
from swarmd.api.http import CONNECTIONS_MAX, HttpServer, Reply, live_page
from swarmd.api.verbs import Verbs
from swarmd.errors import ControlError, DaemonError, TransportError
from swarmd.logs import Logger
from tests.support.turning import Turns, turning


def quiet() -> Logger:
    return Logger("n", stream=io.StringIO())


def some_verbs() -> Verbs:
    verbs = Verbs()
    verbs.add("echo", lambda arguments: dict(arguments))

    def refuse(_: Mapping[str, Any]) -> Mapping[str, Any]:
        raise DaemonError("not today")

    def crash(_: Mapping[str, Any]) -> Mapping[str, Any]:
        raise KeyError("bug")

    verbs.add("refuse", refuse)
    verbs.add("crash", crash)
    return verbs


async def two_notices() -> AsyncIterator[Mapping[str, Any]]:
    yield {"event": "join", "subject": "a"}
    yield {"event": "leave", "subject": "a"}


@contextlib.asynccontextmanager
async def serving(path: Path) -> AsyncIterator[ControlServer]:
    server = ControlServer(path, some_verbs().answer, two_notices, quiet())
    await server.start()
    try:
        yield server
    finally:
        await server.close()


def call(path: Path, verb: str, **arguments: object) -> dict[str, Any]:
    with ControlClient(path) as client:
        return client.call(verb, **arguments)


async def test_verbs_answer_refuse_and_survive_bugs(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    async with serving(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert await asyncio.to_thread(call, path, "echo", a=[1, "ü"]) == {"a": [1, "ü"]}
        with pytest.raises(DaemonError, match="not today"):
            await asyncio.to_thread(call, path, "refuse")
        with pytest.raises(DaemonError, match="crash failed inside the daemon: KeyError"):
            await asyncio.to_thread(call, path, "crash")
        with pytest.raises(DaemonError, match="knows no verb 'x'"):
            await asyncio.to_thread(call, path, "x")
        assert await asyncio.to_thread(call, path, "echo") == {}
    assert not path.exists()


async def test_watchers_get_notices_until_the_end(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"

    def watch() -> list[str]:
        with ControlClient(path) as client:
            return [notice["event"] for notice in client.watch()]

    async with serving(path):
        assert await asyncio.to_thread(watch) == ["join", "leave"]


async def test_a_watcher_that_hangs_up_is_forgotten_though_nothing_happens(tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def silence() -> AsyncIterator[Mapping[str, Any]]:
        try:
            await asyncio.Event().wait()
            yield {}
        finally:
            ended.set()

    server = ControlServer(tmp_path / "c.sock", some_verbs().answer, silence, quiet())
    await server.start()
    reader, writer = await asyncio.open_unix_connection(server.path)
    writer.write(b'{"verb": "watch"}\n')
    assert json.loads(await reader.readline()) == {"ok": True, "result": {}}
    writer.close()
    await writer.wait_closed()
    await asyncio.wait_for(ended.wait(), 60)
    await server.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"\n",
        b"{}\n",
        b"[]\n",
        b"7\n",
        b'{"verb": 1}\n',
        b'{"verb": "echo", "arguments": []}\n',
        b"\xff\xfe\n",
        b"[" * 60_000 + b"\n",
    ],
)
async def test_garbage_is_answered_with_a_sentence(tmp_path: Path, sent: bytes) -> None:
    async with serving(tmp_path / "c.sock") as server:
        reader, writer = await asyncio.open_unix_connection(server.path)
        writer.write(sent)
        answer = json.loads(await reader.readline())
        assert answer["ok"] is False
        assert answer["error"].startswith("a request is")
        writer.close()
        await writer.wait_closed()


async def test_an_oversized_request_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path / "c.sock") as server:
        reader, writer = await asyncio.open_unix_connection(server.path)
        writer.write(b"x" * (REQUEST_MAX_BYTES + 100))
        assert "at most" in json.loads(await reader.readline())["error"]
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def test_who_is_cut_off_while_it_asks_is_told_why(tmp_path: Path) -> None:
    """A request that no socket buffer holds: the client still writes when the server has refused it and hung up."""
    async with serving(tmp_path / "c.sock") as server:

        def ask() -> None:
            with ControlClient(server.path) as client:
                client.call("note", value="x" * (1 << 23))

        with pytest.raises(DaemonError, match=f"at most {REQUEST_MAX_BYTES} bytes"):
            await asyncio.to_thread(ask)


async def test_an_oversized_request_is_refused_where_answers_wait_to_be_sealed(tmp_path: Path) -> None:
    """As at the operators' door: what is written leaves with `drain`."""

    class Sealed:
        def __init__(self) -> None:
            self.waiting, self.sent = b"", b""

        async def readline(self) -> bytes:
            raise ValueError("a line above the limit")

        async def read(self) -> bytes:
            return b""

        def write(self, data: bytes) -> None:
            self.waiting += data

        async def drain(self) -> None:
            self.sent, self.waiting = self.sent + self.waiting, b""

    sealed = Sealed()
    async with serving(tmp_path / "c.sock") as server:
        await server.talk(sealed, sealed, "somebody")
    assert "at most" in json.loads(sealed.sent)["error"]


async def test_a_dead_daemons_socket_is_replaced_and_a_living_ones_is_not(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    async with serving(path):
        with pytest.raises(ControlError, match="another daemon answers there"):
            await ControlServer(path, some_verbs().answer, two_notices, quiet()).start()
    long = tmp_path / ("x" * 120)
    with pytest.raises(ControlError, match="choose a shorter"):
        await ControlServer(long, some_verbs().answer, two_notices, quiet()).start()


async def test_several_daemons_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    one, two = default_path("a/b"), default_path("two")
    assert one.name == "a_b.sock"
    with pytest.raises(ControlError, match="no daemon runs here"):
        ControlClient()
    async with serving(one):
        with await asyncio.to_thread(ControlClient) as only:
            assert only.path == one
        async with serving(two):
            assert await asyncio.to_thread(running_sockets) == [one, two]
            with pytest.raises(ControlError, match="2 daemons run here") as caught:
                await asyncio.to_thread(ControlClient)
            assert f"--control {one}" in str(caught.value)
            # An identity lies in a folder that is called as its node is; it hides no socket.
            (tmp_path / "here" / "two").mkdir(parents=True)
            monkeypatch.chdir(tmp_path / "here")
            for name, path in (("a/b", Path("a/b")), ("a_b", one), ("two", two), ("three", Path("three"))):
                if path.is_absolute():
                    with await asyncio.to_thread(ControlClient, Path(name)) as named:
                        assert named.path == path
                else:
                    with pytest.raises(ControlError, match=f"no daemon answers on {name}"):
                        await asyncio.to_thread(ControlClient, Path(name))


async def test_the_default_folder_must_be_ones_own(tmp_path: Path) -> None:
    hostile = tmp_path / "swarmd"
    hostile.symlink_to("/")
    assert default_path("n", {"XDG_RUNTIME_DIR": str(tmp_path)}).parent == control.LAST_FOLDER


# --- HTTP -----------------------------------------------------------------------------------------------------------


async def fetch(address: str, request: bytes) -> bytes:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    answer = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    return answer


def get(path: str, host: str = "127.0.0.1", method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()


@contextlib.asynccontextmanager
async def http(listen: str = "127.0.0.1:0") -> AsyncIterator[HttpServer]:
    def crash() -> Reply:
        raise KeyError("bug")

    pages = {"/": live_page, "/ok": lambda: Reply(200, "text/plain", b"yes\n"), "/crash": crash}
    pages["/much"] = lambda: Reply(200, "text/plain", bytes(1 << 20))
    server = HttpServer(listen, pages, quiet())
    await server.start()
    try:
        yield server
    finally:
        await server.close()


@pytest.mark.parametrize(
    ("request_", "status", "body"),
    [
        (get("/ok"), b"200", b"yes\n"),
        (get("/ok?x=1", "localhost:99"), b"200", b"yes\n"),
        (get("/ok", "[::1]:99"), b"200", b"yes\n"),
        (get("/ok", method="HEAD"), b"200", b""),
        (get("/ok", "evil.example"), b"403", b"loopback"),
        (get("/none"), b"404", b"no such page"),
        (get("/ok", method="DELETE"), b"405", b"only GET"),
        (get("/crash"), b"500", b"see the log"),
        (b"nonsense\r\n\r\n", b"400", b"bad request"),
        (b"GET / HTTP/1.1\r\nHost: " + b"x" * 60_000 + b"\r\n\r\n", b"431", b"bad request"),
    ],
)
async def test_pages_and_refusals(request_: bytes, status: bytes, body: bytes) -> None:
    async with http() as server:
        answer = await fetch(server.address, request_)
    head, _, rest = answer.partition(b"\r\n\r\n")
    assert head.split(b" ")[1] == status
    assert body in rest
    assert body or not rest


async def test_a_connection_serves_several_requests() -> None:
    async with http() as server:
        answer = await fetch(server.address, b"GET /ok HTTP/1.1\r\nHost: localhost\r\n\r\n" + get("/"))
    assert answer.count(b"HTTP/1.1 200") == 2
    assert b"<svg" in answer


@pytest.mark.parametrize("connections", [1, 8])
async def test_however_many_requests_come_at_once_the_loop_turns_between_them(connections: int) -> None:
    loop, made = Turns(), []

    def page() -> Reply:
        made.append(loop.turns)
        return Reply(200, "text/plain", b"yes\n")

    async with http() as server, turning(loop):
        server._pages["/turn"] = page
        asked = b"GET /turn HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50 + get("/turn")
        answers = await asyncio.gather(*(fetch(server.address, asked) for _ in range(connections)))
    assert [answer.count(b"HTTP/1.1 200") for answer in answers] == [51] * connections
    assert len(set(made)) == len(made), "one page a turn: a timer waits for one, not for all that was asked for"


async def test_the_loop_turns_between_the_parts_of_a_body_that_nobody_wants() -> None:
    async with http() as server, turning(Turns()) as loop:
        head = b"POST /ok HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        answer = await fetch(server.address, head + b"1\r\nx\r\n" * 1_000 + b"0\r\n\r\n" + get("/ok"))
    assert b" 405 " in answer.split(b"\r\n")[0]
    assert loop.turns > 1_000


@pytest.mark.parametrize("how", ["silent", "half a request", pytest.param("never reads", marks=pytest.mark.slow)])
async def test_health_answers_however_many_clients_hang(how: str) -> None:
    """Five times as many as are served at once, and each holds on for as long as it is let."""
    async with http() as server:
        host, _, port = server.address.rpartition(":")
        hanging = []
        for _ in range(5 * CONNECTIONS_MAX):
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect((host, int(port)))
            sock.setblocking(False)
            if how == "half a request":
                sock.send(b"GET /ok HTTP/1.1\r\nHost: lo")
            elif how == "never reads":
                # Few answers fill what lies between: thousands would only be work for who answers.
                sock.send(b"GET /much HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)
            hanging.append(sock)
            await asyncio.sleep(0)
        for _ in range(5):
            async with asyncio.timeout(60):
                answer = await fetch(server.address, get("/ok"))
            assert b" 200 " in answer.split(b"\r\n")[0]
        assert len(server._tasks) <= CONNECTIONS_MAX
        for sock in hanging:
            sock.close()


async def test_a_collector_that_asks_now_and_then_keeps_its_connection() -> None:
    """Who was answered last is the last to go."""
    async with http() as server:
        host, _, port = server.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        hanging = []
        for _ in range(CONNECTIONS_MAX * 2):
            hanging.append(await asyncio.open_connection(host, int(port)))
            if len(hanging) % 10 == 0:
                writer.write(b"GET /ok HTTP/1.1\r\nHost: localhost\r\n\r\n")
                async with asyncio.timeout(60):
                    assert b" 200 " in await reader.readline()
                    while (await reader.readline()).strip():
                        pass
                    assert await reader.readexactly(4) == b"yes\n"
        writer.close()
        for _, other in hanging:
            other.close()


async def test_auto_takes_another_port_and_others_are_refused() -> None:
    async with http("auto") as one, http("auto") as two:
        assert one.address != two.address
        with pytest.raises(TransportError, match="choose another port"):
            await HttpServer(one.address, {}, quiet()).start()
    with pytest.raises(TransportError, match="only a loopback address"):
        await HttpServer("0.0.0.0:0", {}, quiet()).start()
