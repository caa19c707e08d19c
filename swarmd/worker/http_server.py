"""HTTP/1.1 for the inference API, on loopback only (h11 on the worker's loop).

A `Host` or `Origin` that is not a loopback name is refused: no web page elsewhere may use this device through a
browser on it. What one client can hold is bounded: connections, the head, the body (its length is judged before a byte
of it is read), the bodies of all clients together, and the time in which a request must have come.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

import h11

from swarmd.api.loopback import is_local_host, is_loopback
from swarmd.errors import TransportError
from swarmd.worker.oip import OipError

CONNECTIONS_MAX = 64
"""Clients at once. A new one takes the place of the one that has kept us waiting longest, if any does."""
EXTRA_MAX = 16
"""Clients beyond these, while all of them wait for us: they are heard, and answered if their request is urgent."""
HEAD_MAX_BYTES = 16 << 10
BODIES_MAX_BYTES = 64 << 20
"""Of all requests that are being read or answered."""
IDLE_S = 60.0
"""Seconds in which a request must begin."""
CLIENT_S = 10.0
"""Seconds in which the rest of it must have come, and in which its answer must be read: loopback moves gigabytes."""
STALL_S = 1.0
"""Seconds after which a client that has announced a body and not sent it gives way to another's body."""
_AHEAD_BYTES = 1 << 16
"""Read of what a client sends before it has its answer."""
_READ_BYTES = 1 << 18
"""Bytes read at a time: a raw frame of the zoo's default in one."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request: method, path without query, headers (names in lower case) and body."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytearray
    is_extra: bool = False
    """All places are taken by clients that wait for an answer; only what is urgent is begun."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back."""

    status: int
    pieces: Sequence[bytes] = ()
    headers: tuple[tuple[str, str], ...] = ()
    stream: AsyncIterator[bytes] | None = None
    """What follows the pieces, as it comes: the answer is sent in chunks, and the iterator closed in any case."""


Handler = Callable[[Call], Awaitable[Answer]]


class InferenceServer:
    """Reads requests, hands them to a handler and writes what it answers."""

    def __init__(self, handle: Handler, complain: Callable[[int, str], Answer], max_body_bytes: int) -> None:
        """Prepare.

        Args:
            handle: Answers a request; may raise `OipError`.
            complain: Makes an error's answer of a status and a sentence.
            max_body_bytes: Of one request.
        """
        self._handle = handle
        self._complain = complain
        self._max_body_bytes = max_body_bytes
        self._bodies: dict[asyncio.Task[None], int] = {}
        """Bytes of the requests that are being read or answered, by connection."""
        self._server: asyncio.Server | None = None
        self._idle: dict[asyncio.Task[None], float] = {}
        """Connections that wait for their client: to ask, to send the rest, to read; the longest first, and since when,
        seconds of the loop."""
        self._open: set[asyncio.Task[None]] = set()
        self.refused = 0
        """Connections that found no place."""

    @property
    def connections(self) -> int:
        """Open now."""
        return len(self._open)

    @property
    def held_bytes(self) -> int:
        """Of requests that are being read or answered."""
        return sum(self._bodies.values())

    async def start(self, listen: str) -> str:
        """Bind to a loopback HOST:PORT; the address. Raises `TransportError`."""
        host, _, port = listen.rpartition(":")
        host = host.strip("[]")
        if not is_loopback(host) or not port.isdigit():
            raise TransportError(f"inference.listen is {listen}: a loopback address and port, such as 127.0.0.1:7983")
        try:
            self._server = await asyncio.start_server(self._serve, host, int(port), limit=_READ_BYTES)
        except OSError as error:
            reason = error.strerror or error
            raise TransportError(f"inference.listen {listen}: {reason}; choose another port") from error
        bound = self._server.sockets[0].getsockname()
        return f"[{bound[0]}]:{bound[1]}" if ":" in bound[0] else f"{bound[0]}:{bound[1]}"

    async def close(self) -> None:
        """Stop listening and hang up."""
        if self._server is None:
            return
        self._server.close()
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._open) >= CONNECTIONS_MAX:
            if self._idle:
                self._hang_up(next(iter(self._idle)))
            elif len(self._open) >= CONNECTIONS_MAX + EXTRA_MAX:
                self.refused += 1
                writer.transport.abort()
                return
        self._open.add(task)
        wire = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_MAX_BYTES)
        try:
            while await self._exchange(wire, reader, writer, task):
                wire.start_next_cycle()
        except (OSError, asyncio.CancelledError, TimeoutError, h11.RemoteProtocolError, h11.LocalProtocolError):
            return
        finally:
            self._open.discard(task)
            self._idle.pop(task, None)
            writer.transport.abort() if writer.transport.get_write_buffer_size() else writer.close()

    async def _exchange(
        self, wire: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, task: asyncio.Task[None]
    ) -> bool:
        """One request and its answer; False when the connection is to be closed."""
        self._wait_for(task)
        try:
            async with asyncio.timeout(IDLE_S):
                event = await _next(wire, reader)
        except h11.RemoteProtocolError as error:
            with contextlib.suppress(h11.LocalProtocolError):
                await self._send(wire, writer, self._complain(error.error_status_hint, str(error)), is_head=False)
            return False
        if not isinstance(event, h11.Request):
            return False
        try:
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
            answer: Answer
            try:
                self._judge(headers)
                self._bodies[task] = length = self._length(headers)
                call = await self._read(wire, reader, writer, event, headers, length)
                self._idle.pop(task, None)
                answer = await self._answer(call, wire, reader)
            except OipError as error:
                answer = self._complain(error.status, str(error))
            self._wait_for(task)
            if answer.stream is not None:
                return await self._flow(wire, reader, writer, task, answer, answer.stream)
            may_go_on = await self._send(wire, writer, answer, is_head=event.method == b"HEAD")
            if wire.their_state is h11.SEND_BODY:
                await _drain(reader, writer)
            return may_go_on
        finally:
            self._bodies.pop(task, None)

    async def _answer(self, call: Call, wire: h11.Connection, reader: asyncio.StreamReader) -> Answer:
        """What the handler says, as long as the client is there: one that hangs up leaves nothing behind.

        Raises:
            ConnectionAbortedError: It has hung up.
        """
        work = asyncio.ensure_future(self._handle(call))
        gone = asyncio.ensure_future(reader.read(_AHEAD_BYTES))
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                if not gone.result() and not work.done():
                    raise ConnectionAbortedError
                wire.receive_data(gone.result())  # Its next request; who sends ahead is no longer watched.
            return await work
        finally:
            for task in (gone, work):
                task.cancel()
            await asyncio.gather(gone, work, return_exceptions=True)

    def _wait_for(self, task: asyncio.Task[None]) -> None:
        self._idle.pop(task, None)
        self._idle[task] = asyncio.get_running_loop().time()

    def _hang_up(self, task: asyncio.Task[None]) -> None:
        """End a connection; what it held is free at once."""
        self._idle.pop(task, None)
        self._bodies.pop(task, None)
        task.cancel()

    def _make_room(self, length: int) -> bool:
        """Whether a body has room, after those have given way whose clients do not send or read."""
        stalled_s = asyncio.get_running_loop().time() - STALL_S
        for task in [one for one, since_s in self._idle.items() if since_s < stalled_s and one in self._bodies]:
            if sum(self._bodies.values()) + length <= BODIES_MAX_BYTES:
                break
            self._hang_up(task)
        return sum(self._bodies.values()) + length <= BODIES_MAX_BYTES

    def _judge(self, headers: dict[str, str]) -> None:
        """Who may ask, and how; raises `OipError`."""
        if not is_local_host(headers.get("host", "")):
            raise OipError(403, "only loopback names are served")
        origin = headers.get("origin", "")
        if origin and not is_local_host(origin.partition("://")[2]):
            raise OipError(403, "pages from elsewhere are not served")
        if headers.get("content-encoding", "identity") != "identity":
            raise OipError(415, "compressed requests are not read; send the tensors as they are")

    def _length(self, headers: dict[str, str]) -> int:
        """The body's bytes, which fit; raises `OipError`."""
        if "transfer-encoding" in headers:
            raise OipError(411, "the body's length must be said (Content-Length)")
        length = int(headers.get("content-length", "0"))  # h11 has judged it.
        if length > self._max_body_bytes:
            raise OipError(413, f"the request has {length} bytes; at most {self._max_body_bytes} are taken")
        if not self._make_room(length):
            raise OipError(503, "too many large requests at once; ask again in a moment")
        return length

    async def _read(
        self,
        wire: h11.Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        request: h11.Request,
        headers: dict[str, str],
        length: int,
    ) -> Call:
        if wire.they_are_waiting_for_100_continue:
            go_on = h11.InformationalResponse(status_code=100, headers=[])
            writer.write(wire.send(go_on) or b"")
        body = bytearray()
        async with asyncio.timeout(CLIENT_S):
            while not isinstance(event := await _next(wire, reader), h11.EndOfMessage):
                if not isinstance(event, h11.Data):
                    raise ConnectionAbortedError
                body += event.data
        assert len(body) == length
        path = request.target.partition(b"?")[0].decode("latin-1")
        # Connections that wait for their client count as places; this one does not wait any more.
        is_extra = len(self._open) - len(self._idle) >= CONNECTIONS_MAX
        return Call(request.method.decode("latin-1"), path, headers, body, is_extra)

    async def _flow(
        self,
        wire: h11.Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        task: asyncio.Task[None],
        answer: Answer,
        stream: AsyncIterator[bytes],
    ) -> bool:
        """Write an answer that comes bit by bit, as long as the client is there and reads; the connection ends with it.

        Raises:
            ConnectionAbortedError: It has hung up.
        """
        gone = asyncio.ensure_future(reader.read(_AHEAD_BYTES))
        coming: asyncio.Future[bytes] | None = None
        try:
            headers = [("Cache-Control", "no-store"), *answer.headers, ("Connection", "close")]
            writer.write(wire.send(h11.Response(status_code=answer.status, headers=headers)) or b"")
            for piece in answer.pieces:
                await self._give(wire, writer, h11.Data(data=piece))
            while True:
                self._idle.pop(task, None)
                coming = asyncio.ensure_future(anext(stream))
                await asyncio.wait((coming, gone), return_when=asyncio.FIRST_COMPLETED)
                if gone.done() and not gone.result():
                    raise ConnectionAbortedError
                try:
                    piece = await coming
                except StopAsyncIteration:
                    break
                self._wait_for(task)
                await self._give(wire, writer, h11.Data(data=piece))
            await self._give(wire, writer, h11.EndOfMessage())
            return False
        finally:
            waiting = [one for one in (gone, coming) if one is not None]
            for one in waiting:
                one.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            if isinstance(stream, AsyncGenerator):
                await stream.aclose()

    async def _give(self, wire: h11.Connection, writer: asyncio.StreamWriter, event: h11.Event) -> None:
        writer.write(wire.send(event) or b"")
        async with asyncio.timeout(CLIENT_S):
            await writer.drain()

    async def _send(self, wire: h11.Connection, writer: asyncio.StreamWriter, answer: Answer, *, is_head: bool) -> bool:
        """Write an answer; whether another request may follow."""
        is_whole = wire.their_state in (h11.DONE, h11.MUST_CLOSE)
        headers = [
            ("Content-Length", str(sum(map(len, answer.pieces)))),
            ("Cache-Control", "no-store"),
            *answer.headers,
            *(() if is_whole else (("Connection", "close"),)),
        ]
        parts = [wire.send(h11.Response(status_code=answer.status, headers=headers)) or b""]
        parts += [wire.send(h11.Data(data=piece)) or b"" for piece in (() if is_head else answer.pieces)]
        parts.append(wire.send(h11.EndOfMessage()) or b"")
        writer.writelines(parts)
        async with asyncio.timeout(CLIENT_S):
            await writer.drain()
        return is_whole and wire.our_state is h11.DONE and wire.their_state is h11.DONE


async def _drain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read what a refused client still sends: closing over it would take the answer along (RFC 9112, 9.6)."""
    if writer.can_write_eof():
        writer.write_eof()
    async with asyncio.timeout(CLIENT_S):
        while await reader.read(_READ_BYTES):
            pass


async def _next(wire: h11.Connection, reader: asyncio.StreamReader) -> h11.Event:
    while True:
        event = wire.next_event()
        if event is h11.NEED_DATA:
            wire.receive_data(await reader.read(_READ_BYTES))
        elif event is h11.PAUSED:
            raise ConnectionAbortedError
        else:
            assert isinstance(event, h11.Event)
            return event
