"""The page and `/api/v1` on loopback: starlette answers, uvicorn speaks HTTP.

Rules this file keeps: nothing takes the loop for more than a piece of an answer; a client that does not read costs one
connection and misses changes, which it is told; nothing that a client sends can change anything, but for what an
operator does who has proved to be one (`acts.py`).
"""

import asyncio
import contextlib
import errno
import hashlib
import math
import socket
import time
from collections.abc import AsyncIterator, Generator, Iterable
from pathlib import Path
from typing import Any

import msgspec

from swarmd.api.loopback import is_loopback
from swarmd.errors import DaemonError, TransportError
from swarmd.ground import openapi
from swarmd.ground.exports import EXPORTS, kml, objects_of
from swarmd.ground.guard import HEADERS, refusal
from swarmd.ground.reports import Reports
from swarmd.ground.rows import KINDS, Changes, Problem
from swarmd.ground.thumbs import PICTURES_MAX, WAIT_S, gathered, kmz
from swarmd.ground.view import Ground

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response, StreamingResponse
    from starlette.routing import Route

    from swarmd.ground import acts
    from swarmd.ground.connection import CLIENTS_MAX, Connection
except ImportError as problem:
    raise DaemonError(
        f"`swarmd ground` needs starlette and uvicorn ({problem}); pip install 'swarmd[ground]'"
    ) from problem

DEFAULT_LISTEN = "127.0.0.1:7982"
"""Beside the daemon's own page (7980) and the operators' door (7981)."""
STREAM_S = 0.2
"""Seconds between two looks for changes; an eye takes that for at once."""
BEAT_S = 0.8
"""Seconds after which a stream says that it lives: a page that hears nothing for two says so."""
BATCH = 400
"""Changes of one line, some 100 kB; between two the loop turns."""
STATIC = Path(__file__).with_name("static")
_TYPES = {
    "index.html": "text/html; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "app.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
_encode = msgspec.json.encode


def bound_socket(listen: str) -> socket.socket:
    """A listening socket on loopback.

    Raises:
        TransportError: It is no loopback address, or taken.
    """
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    if not is_loopback(host) or not port.isdecimal() or int(port) > 65535:
        raise TransportError(f"--page {listen}: write a loopback address and a port, such as {DEFAULT_LISTEN}")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, int(port)), family=family, backlog=64)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise TransportError(f"--page {listen}: another program listens there; choose another port") from error
        raise TransportError(f"--page {listen}: {error.strerror or error}; choose another port") from error


class GroundServer:
    """Serves one `Ground`.

    Args:
        ground: What is shown.
        listening: A socket that `bound_socket` made; closed at the end.
    """

    def __init__(self, ground: Ground, listening: socket.socket) -> None:
        self._ground = ground
        self._socket = listening
        self._site = _encode(ground.site)
        self._openapi = _encode(openapi.document())
        self._reports = Reports()
        self._files = {name: (STATIC / name).read_bytes() for name in _TYPES}
        host, port = listening.getsockname()[:2]
        self.address = f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"

    async def run(self) -> None:
        """Serve until cancelled."""
        config = uvicorn.Config(
            self.app(), log_level="critical", access_log=False, lifespan="off", ws="none", loop="none", http=Connection,
            server_header=False, limit_concurrency=CLIENTS_MAX, timeout_keep_alive=30,
        )  # fmt: skip
        server = _Server(config)
        try:
            await server.serve(sockets=[self._socket])
        finally:
            if server.started:
                # Streams have no end of their own: whoever reads one is hung up on, and comes again.
                for task in list(server.server_state.tasks):
                    task.cancel()
                for connection in list(server.server_state.connections):
                    connection.transport.abort()
                server.force_exit = True
                await server.shutdown(sockets=[self._socket])
            self._socket.close()

    def app(self) -> Any:
        """The ASGI application."""
        routes = [
            Route("/", self._file),
            Route("/app.js", self._file),
            Route("/app.css", self._file),
            Route("/icon.svg", self._file),
            Route("/api/v1/site", self._on_site),
            Route("/api/v1/snapshot", self._on_snapshot),
            Route("/api/v1/changes", self._on_changes),
            Route("/api/v1/history", self._on_history),
            Route("/api/v1/timeline", self._on_timeline),
            Route("/api/v1/objects/{id}/evidence", self._on_evidence),
            Route("/api/v1/thumb/{name}", self._on_thumb),
            Route("/api/v1/releases/prepared", self._on_prepared),
            *(Route(f"/api/v1/export/{name}", self._on_export) for name in EXPORTS),
            Route("/api/v1/export/findings.kmz", self._on_kmz),
            Route("/api/v1/export/findings.pdf", self._on_report),
            *acts.routes(self._ground),
            Route("/api/v1/openapi.json", self._on_openapi),
        ]
        handlers: dict[Any, Any] = {404: _not_found, DaemonError: _refused}
        return _Guard(Starlette(routes=routes, exception_handlers=handlers))

    # --- answers ----------------------------------------------------------------------------------------------------

    async def _file(self, request: Request) -> Response:
        name = request.url.path[1:] or "index.html"
        return _cached(request, self._files[name], _TYPES[name])

    async def _on_site(self, request: Request) -> Response:
        return _cached(request, self._site, "application/json")

    async def _on_openapi(self, request: Request) -> Response:
        return _cached(request, self._openapi, "application/json")

    async def _on_snapshot(self, request: Request) -> Response:
        if "at_s" in request.query_params:
            pieces: Iterable[bytes] = await self._ground.story.at(_number(request, "at_s", 0.0))
        else:
            pieces = self._ground.picture.snapshot(self._ground.now_s)
        return StreamingResponse(_turning(pieces), media_type="application/json")

    async def _on_changes(self, request: Request) -> Response:
        epoch, after = request.query_params.get("epoch", ""), int(_number(request, "after", 0))
        return StreamingResponse(self._stream(epoch, after), media_type="text/event-stream")

    async def _stream(self, epoch: str, after: int) -> AsyncIterator[bytes]:
        picture, said_s = self._ground.picture, float("-inf")
        while True:
            changes = picture.since(epoch, after)
            if changes is None:
                yield _line(Changes(self._ground.now_s, picture.seq, [], reset=True))
                return
            waiting = list(changes)
            for start in range(0, len(waiting), BATCH):
                part = waiting[start : start + BATCH]
                after = part[-1].seq
                yield _line(Changes(self._ground.now_s, after, part))
                await asyncio.sleep(0)
            now_s = time.monotonic()
            if waiting or now_s - said_s >= BEAT_S:
                if not waiting:
                    yield _line(Changes(self._ground.now_s, after, []))
                said_s = now_s
            await asyncio.sleep(STREAM_S)

    async def _on_history(self, request: Request) -> Response:
        kinds = [kind for kind in request.query_params.get("kind", "").split(",") if kind]
        unknown = sorted(set(kinds) - set(KINDS))
        if unknown:
            raise DaemonError(f"no kind {unknown[0][:40]!r}; there are {', '.join(KINDS)}")
        page = await self._ground.story.history(
            _number(request, "from_s", 0.0),
            _number(request, "to_s", self._ground.now_s),
            kinds,
            request.query_params.get("cursor", ""),
            int(_number(request, "limit", 1000)),
        )
        return Response(await asyncio.to_thread(_encode, page), media_type="application/json")

    async def _on_timeline(self, request: Request) -> Response:
        now_s = self._ground.now_s
        line = await self._ground.story.timeline(_number(request, "from_s", 0.0), _number(request, "to_s", now_s))
        return Response(_encode(line), media_type="application/json")

    async def _on_evidence(self, request: Request) -> Response:
        return Response(_encode(await self._ground.evidence(request.path_params["id"])), media_type="application/json")

    async def _on_thumb(self, request: Request) -> Response:
        try:
            jpeg = await self._ground.thumb(request.path_params["name"], WAIT_S)
        except DaemonError as error:
            return _problem(404, str(error))
        return Response(jpeg, media_type="image/jpeg")

    async def _on_prepared(self, request: Request) -> Response:
        query: dict[str, object] = {name: request.query_params.get(name, "") for name in ("what", "model", "release")}
        query |= {"reason": request.query_params.get("reason", ""), "stage": _number(request, "stage", 0)}
        return Response(_encode(await self._ground.prepare(query)), media_type="application/json")

    # --- exports ----------------------------------------------------------------------------------------------------

    async def _on_export(self, request: Request) -> Response:
        name = request.url.path.rpartition("/")[2]
        media, made_by = EXPORTS[name]
        pieces = made_by(self._ground.site, self._ground.picture.frozen())
        if name.startswith("findings"):
            pieces = await asyncio.to_thread(list, pieces)
        return _download(_turning(pieces), media, name)

    async def _on_kmz(self, request: Request) -> Response:
        held = self._ground.picture.frozen()
        pictures = await gathered(self._ground.thumb, [one.thumb for one in objects_of(held)][:PICTURES_MAX])
        globe = await asyncio.to_thread(lambda: kmz(kml(self._ground.site, held, pictures), pictures.items()))
        return Response(globe, media_type="application/vnd.google-earth.kmz", headers=_as_file("findings.kmz"))

    async def _on_report(self, request: Request) -> Response:
        ground = self._ground
        report = await self._reports.pdf(ground.site, ground.picture.frozen(), ground.now_s, ground.thumb)
        return Response(report, media_type="application/pdf", headers=_as_file("findings.pdf"))


class _Server(uvicorn.Server):
    """Uvicorn, without its own hands on the process's signals: the command that runs it ends it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave them."""
        yield


class _Guard:
    """Asks `refusal` before anything answers, and puts `HEADERS` on every answer."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        status, reason = refusal(scope["method"], scope["path"], headers)
        extra = [(name.encode(), value.encode()) for name, value in HEADERS]

        async def guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                names = {name.lower() for name, _ in message["headers"]}
                kept = [] if b"cache-control" in names else [(b"cache-control", b"no-store")]
                message = {**message, "headers": [*message["headers"], *extra, *kept]}
            await send(message)

        if status:
            await _problem(status, reason)(scope, receive, guarded)
        else:
            await self._app(scope, receive, guarded)


def _problem(status: int, reason: str) -> Response:
    return Response(_encode(Problem(reason)), status, media_type="application/json")


async def _not_found(request: Request, error: Exception) -> Response:
    return _problem(404, "no such page")


async def _refused(request: Request, error: Exception) -> Response:
    return _problem(400, str(error))


def _cached(request: Request, body: bytes, media: str) -> Response:
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"etag": tag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=media, headers=headers)


def _download(pieces: AsyncIterator[bytes], media: str, name: str) -> Response:
    return StreamingResponse(pieces, media_type=media, headers=_as_file(name))


def _as_file(name: str) -> dict[str, str]:
    return {"content-disposition": f'attachment; filename="{name}"'}


async def _turning(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    """Pieces, between which the loop turns."""
    for piece in pieces:
        yield piece
        await asyncio.sleep(0)


def _line(changes: Changes) -> bytes:
    return b"data: " + _encode(changes) + b"\n\n"


def _number(request: Request, name: str, default: float) -> float:
    text = request.query_params.get(name, "")
    try:
        value = float(text) if text else default
    except ValueError:
        value = math.nan
    if not abs(value) < 1e15:
        raise DaemonError(f"{name} is no number")
    return value
