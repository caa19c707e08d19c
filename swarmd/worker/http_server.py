"""HTTP/1.1 for the inference API, on loopback only, on the worker's loop.

A `Host` or `Origin` that is not a loopback name is refused: no web page elsewhere may use this device through a
browser on it. What one client can hold is bounded: connections, the head, the body (its length is judged before a byte
of it is read), the bodies of all clients together, and the time in which a request must have come.

A body is received where it stays: the kernel writes it into the very bytes that a model's input is a view of.

```
    ┌───────────────────── another request ──────────────────────┐
 HEAD ──▶ BODY ──▶ WORK (a task: handler, stream) ──▶ OUT (all is written) ──▶ closed
   └─ refused ──▶ DEAF (the answer is out, what still comes is thrown away) ──▶ closed
```
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from swarmd.api.loopback import is_local_host, is_loopback
from swarmd.errors import TransportError
from swarmd.worker.http_head import BLANK, CONTINUE, HEAD_MAX_BYTES, Head, HeadError, read_head, write_head
from swarmd.worker.oip import OipError

CONNECTIONS_MAX = 64
"""Clients at once. A new one takes the place of the one that has kept us waiting longest, if any does."""
EXTRA_MAX = 16
"""Clients beyond these, while all of them wait for us: they are heard, and answered if their request is urgent."""
BODIES_MAX_BYTES = 64 << 20
"""Of all requests that are being read or answered."""
IDLE_S = 60.0
"""Seconds in which a request's head must have come."""
CLIENT_S = 10.0
"""Seconds in which the rest of it must have come, and in which its answer must be read: loopback moves gigabytes."""
STALL_S = 1.0
"""Seconds after which a client that has announced a body and not sent it gives way to another's body."""
_SWEEP_S = 1.0
"""Seconds between two looks at who has kept us waiting for too long."""
_AHEAD_BYTES = 1 << 16
"""Read of what a client sends before it has its answer."""
_READ_BYTES = 1 << 16
"""Bytes read at a time, a body's apart."""
_KEPT_MAX, _KEPT_MAX_BYTES = 64, 1 << 10
"""Heads that are kept, and of how many bytes."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request: method, path without query, headers (names in lower case) and body."""

    method: str
    path: str
    headers: Mapping[str, str]
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
    """Knows its clients, and hands their requests to a handler."""

    def __init__(self, handle: Handler, complain: Callable[[int, str], Answer], max_body_bytes: int) -> None:
        """Prepare.

        Args:
            handle: Answers a request; may raise `OipError`.
            complain: Makes an error's answer of a status and a sentence.
            max_body_bytes: Of one request.
        """
        self.handle = handle
        self.complain = complain
        self._max_body_bytes = max_body_bytes
        self._bodies: dict[_Client, int] = {}
        """Bytes of the requests that are being read or answered, by connection."""
        self._server: asyncio.Server | None = None
        self._idle: dict[_Client, float] = {}
        """Connections that wait for their client: to ask, to send the rest, to read; the longest first, and since when,
        seconds of the loop."""
        self._open: dict[_Client, None] = {}
        self._heads: dict[bytes, Head] = {}
        self._sweeper: asyncio.TimerHandle | None = None
        self.scratch = memoryview(bytearray(_READ_BYTES))
        """Where all connections receive what is no body; taken out before another may write here."""
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
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: _Client(self), host, int(port))
        except OSError as error:
            reason = error.strerror or error
            raise TransportError(f"inference.listen {listen}: {reason}; choose another port") from error
        self._sweep()
        bound = self._server.sockets[0].getsockname()
        return f"[{bound[0]}]:{bound[1]}" if ":" in bound[0] else f"{bound[0]}:{bound[1]}"

    async def close(self) -> None:
        """Stop listening and hang up."""
        if self._server is None:
            return
        self._server.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        tasks = [one.task for one in self._open if one.task is not None]
        for one in list(self._open):
            self.hang_up(one)
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # Their sockets are closed by the loop's next turn.

    # --- For a connection ---------------------------------------------------------------------------------------

    def take(self, client: "_Client") -> bool:
        """Whether a new connection finds a place."""
        if len(self._open) >= CONNECTIONS_MAX:
            if self._idle:
                self.hang_up(next(iter(self._idle)))
            elif len(self._open) >= CONNECTIONS_MAX + EXTRA_MAX:
                self.refused += 1
                return False
        self._open[client] = None
        return True

    def forget(self, client: "_Client") -> None:
        """It has gone; what it held is free."""
        self._open.pop(client, None)
        self._idle.pop(client, None)
        self._bodies.pop(client, None)

    def hang_up(self, client: "_Client") -> None:
        """End a connection."""
        self.forget(client)
        client.end()

    def wait_for(self, client: "_Client", most_s: float) -> None:
        """It is the client's turn, for so long at most."""
        if client not in self._open:
            return
        now_s = asyncio.get_running_loop().time()
        client.until_s = now_s + most_s
        self._idle.pop(client, None)
        self._idle[client] = now_s

    def begin(self, client: "_Client") -> bool:
        """It is our turn; whether all places are taken by clients that wait for us."""
        client.until_s = float("inf")
        # Connections that wait for their client count as places; this one does not wait any more.
        is_extra = len(self._open) - len(self._idle) >= CONNECTIONS_MAX
        self._idle.pop(client, None)
        return is_extra

    def settle(self, client: "_Client") -> None:
        """Its request has been answered."""
        self._bodies.pop(client, None)

    def read_head(self, data: bytes) -> Head:
        """A head that may ask; raises `HeadError` or `OipError`.

        Programs say the same again and again: what the last heads were is kept, and read once.
        """
        head = self._heads.get(data)
        if head is None:
            head = read_head(data)
            self._judge(head.headers)
            if len(data) <= _KEPT_MAX_BYTES:
                if len(self._heads) >= _KEPT_MAX:
                    self._heads.clear()
                self._heads[data] = head
        return head

    def admit(self, client: "_Client", length: int) -> None:
        """Whether a body may come; raises `OipError`."""
        if length > self._max_body_bytes:
            raise OipError(413, f"the request has {length} bytes; at most {self._max_body_bytes} are taken")
        if not self._make_room(length):
            raise OipError(503, "too many large requests at once; ask again in a moment")
        self._bodies[client] = length

    # --- inside -------------------------------------------------------------------------------------------------

    def _judge(self, headers: Mapping[str, str]) -> None:
        """Who may ask, and how; raises `OipError`."""
        if not is_local_host(headers.get("host", "")):
            raise OipError(403, "only loopback names are served")
        origin = headers.get("origin", "")
        if origin and not is_local_host(origin.partition("://")[2]):
            raise OipError(403, "pages from elsewhere are not served")
        if headers.get("content-encoding", "identity") != "identity":
            raise OipError(415, "compressed requests are not read; send the tensors as they are")
        if "transfer-encoding" in headers:
            raise OipError(411, "the body's length must be said (Content-Length)")

    def _make_room(self, length: int) -> bool:
        """Whether a body has room, after those have given way whose clients do not send or read."""
        stalled_s = asyncio.get_running_loop().time() - STALL_S
        for client in [one for one, since_s in self._idle.items() if since_s < stalled_s and one in self._bodies]:
            if self.held_bytes + length <= BODIES_MAX_BYTES:
                break
            self.hang_up(client)
        return self.held_bytes + length <= BODIES_MAX_BYTES

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        for client in [one for one in self._idle if one.until_s < now_s]:
            self.hang_up(client)
        self._sweeper = loop.call_later(_SWEEP_S, self._sweep)


class _State(Enum):
    HEAD, BODY, WORK, OUT, DEAF = range(5)


class _Client(asyncio.BufferedProtocol):
    """One connection."""

    def __init__(self, server: InferenceServer) -> None:
        self._server = server
        self._state = _State.HEAD
        self._ahead = bytearray()
        """Read and not yet used: a part of a head, or what came before the answer was out."""
        self._head: Head | None = None
        self._body = bytearray()
        self._left: memoryview = memoryview(b"")
        """Of the body, what has not come."""
        self._transport: asyncio.Transport
        self._drained: asyncio.Future[None] | None = None
        """While the client reads more slowly than we write."""
        self.task: asyncio.Task[None] | None = None
        """What answers."""
        self.until_s = 0.0
        """When we have waited for the client for too long, seconds of the loop."""
        self._asks_no_more = False
        """It has closed its side while its answer was on its way."""

    # --- What asyncio tells -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if not self._server.take(self):
            transport.abort()
            return
        self._server.wait_for(self, IDLE_S)

    def connection_lost(self, error: Exception | None) -> None:
        self._server.forget(self)
        self._leave()

    def eof_received(self) -> bool:
        """A client that hangs up leaves nothing behind; one whose answer is written may still read all of it."""
        if self._state is _State.WORK:
            self._server.hang_up(self)
        self._asks_no_more = self._state is _State.OUT
        return self._asks_no_more

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._left if self._state is _State.BODY else self._server.scratch

    def buffer_updated(self, nbytes: int) -> None:
        if self._state is _State.BODY:
            self._left = self._left[nbytes:]
            if not self._left:
                self._begin()
            return
        if self._state is _State.DEAF:
            return
        self._ahead += self._server.scratch[:nbytes]
        if self._state is _State.HEAD:
            self._look()
        elif len(self._ahead) > _AHEAD_BYTES:
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        self._drained = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None

    # --- A request ----------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Hang up, whatever is under way."""
        self._leave()
        self._transport.abort()

    def _leave(self) -> None:
        if self.task is not None:
            self.task.cancel()

    def _look(self) -> None:
        """Whether a head has come."""
        self._head, blank = None, BLANK.search(self._ahead)
        try:
            if (len(self._ahead) if blank is None else blank.end()) > HEAD_MAX_BYTES:
                raise HeadError(431, f"the head has more than {HEAD_MAX_BYTES} bytes")
            if blank is None:
                return
            head = self._head = self._server.read_head(bytes(self._ahead[: blank.start() + 1]))
            self._server.admit(self, head.length)
        except (HeadError, OipError) as error:
            self._refuse(self._server.complain(error.status, str(error)))
            return
        came = self._ahead[blank.end() : blank.end() + head.length]
        del self._ahead[: blank.end() + head.length]
        self._body = bytearray(head.length) if len(came) < head.length else came
        self._left = memoryview(self._body)[len(came) :]
        if len(came) < head.length:
            self._body[: len(came)] = came
            self._state = _State.BODY
            self._server.wait_for(self, CLIENT_S)
            if head.wants_go_on:
                self._transport.write(CONTINUE)
        else:
            self._begin()

    def _begin(self) -> None:
        assert self._head is not None
        self._state = _State.WORK
        head, body = self._head, self._body
        self._body, self._left = bytearray(), memoryview(b"")
        call = Call(head.method, head.path, head.headers, body, self._server.begin(self))
        self.task = asyncio.get_running_loop().create_task(self._work(call, head))

    async def _work(self, call: Call, head: Head) -> None:
        """Answer; in a task of its own, which ends with the connection."""
        try:
            answer, is_kept = await self._ask(call, head)
            self._server.wait_for(self, CLIENT_S)
            if answer.stream is not None:
                await self._flow(answer, answer.stream)
            else:
                self._send(answer, is_kept=is_kept, is_head=head.method == "HEAD")
            self._state = _State.OUT
            if self._drained is not None:
                await self._drained
        except BaseException:  # Whatever it is, the client hears no more of this connection.
            self.task = None
            self._server.hang_up(self)
            raise
        self.task = None
        self._next(is_kept and answer.stream is None and not self._asks_no_more)

    async def _ask(self, call: Call, head: Head) -> tuple[Answer, bool]:
        """What the handler says, and whether another request may follow."""
        try:
            return await self._server.handle(call), head.is_kept
        except OipError as error:
            return self._server.complain(error.status, str(error)), head.is_kept
        except Exception as error:  # A bug that a client has found: it is told that, and asyncio tells what.
            loop = asyncio.get_running_loop()
            loop.call_exception_handler({"message": "a request's handler failed", "exception": error, "protocol": self})
            return self._server.complain(500, "the worker failed at this request"), False

    def _next(self, is_kept: bool) -> None:
        """Another request may come, or be here."""
        self._server.settle(self)
        if not is_kept:
            self._transport.close()
            return
        self._state = _State.HEAD
        self._server.wait_for(self, IDLE_S)
        if self._ahead:
            self._look()
        # Neither a part of a head nor a body's beginning keeps so much here: what they still need is read.
        if len(self._ahead) <= _AHEAD_BYTES:
            self._transport.resume_reading()

    def _refuse(self, answer: Answer) -> None:
        """Answer what was not read: closing over it would take the answer along (RFC 9112, 9.6), so it is read away."""
        self._state = _State.DEAF
        self._ahead.clear()
        self._server.settle(self)
        self._server.wait_for(self, CLIENT_S)
        self._send(answer, is_kept=False, is_head=self._head is not None and self._head.method == "HEAD")
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def _send(self, answer: Answer, *, is_kept: bool, is_head: bool) -> None:
        """Write an answer that is whole."""
        try:
            head = write_head(answer.status, self._said(answer, is_kept, sum(map(len, answer.pieces))))
        except ValueError as error:
            answer = self._server.complain(502, str(error))
            head = write_head(answer.status, self._said(answer, is_kept, sum(map(len, answer.pieces))))
        self._transport.write(head if is_head else b"".join((head, *answer.pieces)))

    @staticmethod
    def _said(answer: Answer, is_kept: bool, length: int | None) -> list[tuple[str, str]]:
        first = ("Transfer-Encoding", "chunked") if length is None else ("Content-Length", str(length))
        return [first, ("Cache-Control", "no-store"), *answer.headers, *(() if is_kept else (("Connection", "close"),))]

    async def _flow(self, answer: Answer, stream: AsyncIterator[bytes]) -> None:
        """Write an answer that comes bit by bit; the connection ends with it."""
        try:
            self._transport.write(write_head(answer.status, self._said(answer, False, None)))
            for piece in answer.pieces:
                await self._give(piece)
            self._server.begin(self)
            async for piece in stream:
                self._server.wait_for(self, CLIENT_S)
                await self._give(piece)
                self._server.begin(self)
            self._server.wait_for(self, CLIENT_S)
            self._transport.write(b"0\r\n\r\n")
        finally:
            if isinstance(stream, AsyncGenerator):
                await stream.aclose()

    async def _give(self, piece: bytes) -> None:
        """A chunk; an empty one would end the answer."""
        if piece:
            self._transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        if self._drained is not None:
            await self._drained
