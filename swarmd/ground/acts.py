"""What operators do over HTTP: small JSON by POST, from this server's own page or from a program on this machine.

A request is refused with 403 where it has no `Origin` of this very server (`guard.py`) or, beyond signing in, no token
of a login; with 409 where others have said something meanwhile; with 400 where something else is wrong.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from swarmd.errors import DaemonError
from swarmd.ground.guard import ACTS_PATH
from swarmd.ground.operators import Desk, NotAllowed, Stale
from swarmd.ground.rows import (
    Act,
    AuditLog,
    Challenge,
    Done,
    Draft,
    Login,
    Nothing,
    Problem,
    Session,
    SignedDraft,
    Wish,
)
from swarmd.ground.view import Ground
from swarmd_protocols.errors import ProtocolError

BODY_MAX_BYTES = 8_192
"""Bytes of a request: five times the largest review in hexadecimal digits."""
LINES_MAX = 500
"""Lines of the audit in one answer."""
_Body = TypeVar("_Body", bound=msgspec.Struct)
_encode = msgspec.json.encode


def routes(ground: Ground) -> list[Route]:
    """The addresses, for a server that shows this."""

    def route(name: str, kind: type[_Body], act: Callable[[Desk, Request, _Body], Awaitable[msgspec.Struct]]) -> Route:
        async def answer(request: Request) -> Response:
            if ground.desk is None:
                return _problem(403, "a recording has no swarm to act on")
            try:
                body = msgspec.json.decode(await _body(request), type=kind)
                return Response(_encode(await act(ground.desk, request, body)), media_type="application/json")
            except NotAllowed as error:
                return _problem(403, str(error))
            except Stale as error:
                return _problem(409, str(error))
            except (DaemonError, ProtocolError, msgspec.MsgspecError, ValueError) as error:
                return _problem(400, str(error))

        return Route(f"{ACTS_PATH}{name}", answer, methods=["POST"])

    async def on_audit(request: Request) -> Response:
        if ground.desk is None:
            return Response(_encode(AuditLog([], 0, "", "")), media_type="application/json")
        text = request.query_params.get("limit", "100")
        if not text.isdecimal() or not 0 < int(text) <= LINES_MAX:
            return _problem(400, f"limit is a number from 1 to {LINES_MAX}")
        lines = await ground.desk.audit.lines(int(text))
        sound, newest, problem = await ground.desk.audit.verify()
        told = AuditLog([dict(line) for line in lines], sound, newest, problem or "")  # type: ignore[arg-type]
        return Response(_encode(told), media_type="application/json")

    return [
        route("challenge", Nothing, _on_challenge),
        route("login", Login, _on_login),
        route("logout", Nothing, _on_logout),
        route("draft", Wish, _on_draft),
        route("review", SignedDraft, _on_review),
        route("act", Act, _on_act),
        Route("/api/v1/audit", on_audit),
    ]


async def _on_challenge(desk: Desk, request: Request, body: Nothing) -> Challenge:
    return desk.challenge(request.headers["origin"])


async def _on_login(desk: Desk, request: Request, body: Login) -> Session:
    public, signature = _bytes(body.public_key, 32), _bytes(body.signature, 64)
    return await desk.login(request.headers["origin"], public, body.challenge, signature, body.name)


async def _on_logout(desk: Desk, request: Request, body: Nothing) -> Done:
    desk.logout(_token(request))
    return Done("signed out")


async def _on_draft(desk: Desk, request: Request, body: Wish) -> Draft:
    return desk.draft(_token(request), body.object, body.verdict, body.text, body.shown)


async def _on_review(desk: Desk, request: Request, body: SignedDraft) -> Done:
    return await desk.review(_token(request), body.object, bytes.fromhex(body.payload), _bytes(body.signature, 64))


async def _on_act(desk: Desk, request: Request, body: Act) -> Done:
    return await desk.act(_token(request), body.what, body.member, body.seconds)


def _token(request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token if scheme == "Bearer" else ""


def _bytes(text: str, size: int) -> bytes:
    value = bytes.fromhex(text)
    if len(value) != size:
        raise DaemonError(f"{len(value)} bytes where {size} belong")
    return value


async def _body(request: Request) -> bytes:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > BODY_MAX_BYTES:
            raise DaemonError(f"a request has at most {BODY_MAX_BYTES} bytes")
    return body


def _problem(status: int, reason: str) -> Response:
    return Response(_encode(Problem(reason)), status, media_type="application/json")
