"""Health, metrics and a small live page, on loopback only (h11 on the daemon's loop).

    /healthz   200 while the loop turns and the eye, where there is one, is not given up; else 503 with the reasons
    /readyz    200 once the sockets are bound and the eye has seen its first frame; else 503
    /metrics   Prometheus text
    /status    the control verb `status`, JSON
    /objects   GeoJSON
    /          the page that draws the two above

Everything is GET or HEAD. A `Host` that is not a loopback name is refused: a web page elsewhere must not read the
swarm through a browser on this device (DNS rebinding).

Health and metrics answer however many clients hang: a client that neither asks nor reads is hung up on after `IDLE_S`,
and when `CONNECTIONS_MAX` are open a new one takes the place of the one that was answered longest ago. The loop turns
between two requests, and between two parts of a body, however many came at once and on however many connections.

h11 reads and writes the protocol, asyncio the sockets. A whole server library costs the brain more memory than it may
(docs/decisions/0022-http-by-h11.md).
"""

import asyncio
import contextlib
import errno
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import h11

from swarmd.api.loopback import is_local_host, is_loopback
from swarmd.errors import TransportError
from swarmd.logs import Logger

DEFAULT_PORT = 7980
"""TCP port where nothing is configured; not registered for anything else at IANA."""
CONNECTIONS_MAX = 32
"""Clients at once: a few browsers with six connections each, and two collectors. Each costs some 40 kB."""
REQUEST_MAX_BYTES = 16 << 10
"""Bytes of one request's head: twice what browsers send with many cookies."""
IDLE_S = 30.0
"""Seconds in which a client must have asked, and read its answer: twice a collector's usual period."""
_READ_BYTES = 1 << 14
"""Bytes read at a time: the largest head fits in one."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer."""

    status: int
    content_type: str
    body: bytes | Iterator[str]
    """All of it; or its text in pieces, between which the loop turns (`parts.encoded`)."""


Page = Callable[[], Reply]


class HttpServer:
    """Serves fixed pages on 127.0.0.1 (or another loopback address)."""

    def __init__(self, listen: str, pages: Mapping[str, Page], log: Logger) -> None:
        """Prepare; `listen` is "auto" or a loopback HOST:PORT."""
        self._listen = listen
        self._pages = dict(pages)
        self._log = log
        self._server: asyncio.Server | None = None
        self._tasks: OrderedDict[asyncio.Task[None], None] = OrderedDict()
        """One for each connection; the one that was answered longest ago is first."""
        self._answering = asyncio.Lock()
        """Held for a turn of the loop by whoever has a page made."""
        self.address = ""

    async def start(self) -> None:
        """Bind.

        Raises:
            TransportError: The address is not loopback, or taken.
        """
        auto = self._listen == "auto"
        host, _, port = (f"127.0.0.1:{DEFAULT_PORT}" if auto else self._listen).rpartition(":")
        host = host.strip("[]")
        if not is_loopback(host):
            raise TransportError(f"http.listen is {self._listen}: only a loopback address is served, such as 127.0.0.1")
        try:
            self._server = await asyncio.start_server(self._serve, host, int(port))
        except OSError as error:
            if not (auto and error.errno == errno.EADDRINUSE):
                raise TransportError(
                    f"http.listen {host}:{port}: {error.strerror or error}; choose another port, or `off`"
                ) from error
            self._server = await asyncio.start_server(self._serve, host, 0)
        bound = self._server.sockets[0].getsockname()
        self.address = f"{bound[0]}:{bound[1]}"

    async def close(self) -> None:
        """Stop listening and hang up."""
        if self._server is None:
            return
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._tasks) >= CONNECTIONS_MAX:
            oldest, _ = self._tasks.popitem(last=False)
            oldest.cancel()
        self._tasks[task] = None
        try:
            await self._talk(reader, writer)
        except (OSError, asyncio.CancelledError, TimeoutError, h11.RemoteProtocolError):
            return
        finally:
            self._tasks.pop(task, None)
            # Not `close`: it would wait for a client that does not read to take what is left.
            writer.transport.abort() if writer.transport.get_write_buffer_size() else writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = h11.Connection(h11.SERVER, max_incomplete_event_size=REQUEST_MAX_BYTES)
        has_more = True
        while has_more:
            async with asyncio.timeout(IDLE_S):
                has_more = await self._exchange(wire, reader, writer)
            task = asyncio.current_task()
            if task is not None and task in self._tasks:
                self._tasks.move_to_end(task)

    async def _exchange(self, wire: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; False when nothing more comes."""
        while wire.our_state not in (h11.MUST_CLOSE, h11.CLOSED, h11.ERROR):
            try:
                event = wire.next_event()
            except h11.RemoteProtocolError as error:
                with contextlib.suppress(h11.LocalProtocolError):
                    reply = Reply(error.error_status_hint, "text/plain", b"bad request\n")
                    await self._send(wire, writer, reply, head=False)
                return False
            if event is h11.NEED_DATA:
                wire.receive_data(await reader.read(_READ_BYTES))
            elif isinstance(event, h11.Request):
                async with self._answering:
                    reply = self._answer(event)
                    await asyncio.sleep(0)
                await self._send(wire, writer, reply, head=event.method == b"HEAD")
            elif event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
                if wire.our_state is not h11.DONE or wire.their_state is not h11.DONE:
                    return False
                wire.start_next_cycle()
                return True
            else:
                await asyncio.sleep(0)  # A request body, which nothing here wants, is read and forgotten.
        return False

    def _answer(self, request: h11.Request) -> Reply:
        host = next((value.decode("latin-1") for name, value in request.headers if name == b"host"), "")
        if not is_local_host(host):
            return Reply(403, "text/plain", b"only loopback names are served\n")
        if request.method not in (b"GET", b"HEAD"):
            return Reply(405, "text/plain", b"only GET is served\n")
        page = self._pages.get(request.target.partition(b"?")[0].decode("latin-1"))
        if page is None:
            return Reply(404, "text/plain", b"no such page\n")
        try:
            return page()
        except Exception as error:  # A page's bug must not end the daemon.
            self._log.error("http_page_failed", page=request.target.decode("latin-1"), error=error)
            return Reply(500, "text/plain", b"the page failed; see the log\n")

    async def _send(self, wire: h11.Connection, writer: asyncio.StreamWriter, reply: Reply, *, head: bool) -> None:
        headers = [
            ("Content-Type", reply.content_type),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("Content-Security-Policy", "default-src 'self' 'unsafe-inline'; frame-ancestors 'none'"),
        ]
        body = reply.body
        if isinstance(body, bytes):
            headers.append(("Content-Length", str(len(body))))
        writer.write(wire.send(h11.Response(status_code=reply.status, headers=headers)) or b"")
        if isinstance(body, bytes):
            writer.write((wire.send(h11.Data(data=body)) or b"") if not head else b"")
        elif not head:
            await self._send_pieces(wire, writer, body)
        writer.write(wire.send(h11.EndOfMessage()) or b"")
        await writer.drain()

    async def _send_pieces(self, wire: h11.Connection, writer: asyncio.StreamWriter, pieces: Iterator[str]) -> None:
        """A body of unknown length, while it is made; where that fails the client is hung up on: it has half of it."""
        try:
            for piece in pieces:
                writer.write((wire.send(h11.Data(data=piece.encode())) or b"") if piece else b"")
                await writer.drain()
                await asyncio.sleep(0)
        except OSError:
            raise
        except Exception as error:  # As in `_answer`.
            self._log.error("http_page_failed", page="", error=error)
            raise ConnectionAbortedError from error


def live_page() -> Reply:
    """The page that draws members and objects, one self-contained file."""
    return Reply(200, "text/html; charset=utf-8", Path(__file__).with_name("live.html").read_bytes())
