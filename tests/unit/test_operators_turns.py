"""The door for operators and the loop: whoever never stops, let in or not, lets others have their turn."""

import asyncio
import io
import socket
import ssl

from swarmd.api.control import ControlServer
from swarmd.api.operators import OperatorDoor
from swarmd.api.tls_stream import TlsStream
from swarmd.config.sections import OperatorsSection
from swarmd.logs import Logger

TIMES = 200


async def _turns(loop, work):
    """Turns of the loop while something is done."""
    turns, is_over = 0, False

    def turn():
        nonlocal turns
        turns += 1
        if not is_over:
            loop.call_soon(turn)

    loop.call_soon(turn)
    await work
    is_over = True
    return turns


def test_connections_that_never_stop_coming_let_the_loop_turn(tmp_path, monkeypatch):
    async def story():
        loop, left = asyncio.get_running_loop(), TIMES

        async def accept(listener):
            """At once, as asyncio's does while any connection waits."""
            nonlocal left
            left -= 1
            if left < 0:
                raise EOFError
            ours, theirs = socket.socketpair()
            theirs.close()
            return ours, ("10.0.0.1", 1)

        monkeypatch.setattr(loop, "sock_accept", accept)
        log = Logger("n", stream=io.StringIO())
        control = ControlServer(tmp_path / "control", lambda verb, arguments: {}, lambda: None, log)
        door = OperatorDoor(OperatorsSection(), control, log, lambda text: None)

        async def serve(sock, *rest):
            sock.close()

        monkeypatch.setattr(door, "_serve", serve)
        accepting = asyncio.ensure_future(door._accept(None, None, OperatorsSection()))
        turns = await _turns(loop, asyncio.wait([accepting]))
        assert isinstance(accepting.exception(), EOFError)
        assert turns >= TIMES

    asyncio.run(story())


def test_an_operator_that_never_stops_talking_lets_the_loop_turn():
    async def story():
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with ours, theirs:
            stream = TlsStream(ours, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), 1 << 16)

            async def fill():
                for _ in range(TIMES):
                    theirs.send(b"x")
                    assert await stream._fill_or_end()

            assert await _turns(asyncio.get_running_loop(), fill()) >= TIMES

    asyncio.run(story())
