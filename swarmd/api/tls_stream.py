"""One accepted TLS connection on the loop, over memory buffers.

asyncio's own TLS is not there: the brain imports asyncio without OpenSSL, which is 7 MB that only a device with an open
door spends (`swarmd/cli/run.py`). `ssl.MemoryBIO` is the standard library's way to do TLS over any carrier.
"""

import asyncio
import contextlib
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ssl

_PIECE_BYTES = 1 << 16
"""Bytes that are read, or sealed and sent, at a time."""


class TlsStream:
    """Lines in, bytes out."""

    def __init__(self, sock: socket.socket, context: "ssl.SSLContext", line_max_bytes: int) -> None:
        """Take over a socket that does not block.

        Args:
            sock: Accepted; closed by `close`.
            context: What is shown and asked for.
            line_max_bytes: A longer line is refused.
        """
        import ssl

        self._want_read = ssl.SSLWantReadError
        self._error = ssl.SSLError
        self._sock = sock
        self._line_max_bytes = line_max_bytes
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._sealed = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._loop = asyncio.get_running_loop()
        self._flushing = asyncio.Lock()
        self._lines = bytearray()
        self._waiting = bytearray()

    async def handshake(self) -> None:
        """Agree on keys; raises `OSError`, of which `ssl.SSLError` is one, where the other side does not do."""
        while True:
            try:
                self._sealed.do_handshake()
            except self._want_read:
                await self._flush()
                await self._fill()
            except self._error:
                with contextlib.suppress(OSError):
                    await self._flush()  # The alert that says why.
                raise
            else:
                await self._flush()
                return

    def peer(self) -> tuple[Mapping[str, Any], bytes]:
        """The certificate that the other side showed: its fields, and as it is."""
        return self._sealed.getpeercert() or {}, self._sealed.getpeercert(binary_form=True) or b""

    async def readline(self) -> bytes:
        """One line with its end, or less where the other side hung up; raises `ValueError` for a longer one."""
        while True:
            line, end, rest = self._lines.partition(b"\n")
            if end:
                self._lines = rest
                return bytes(line + end)
            if len(self._lines) > self._line_max_bytes:
                raise ValueError(f"a line above {self._line_max_bytes} bytes")
            piece = await self._read_piece()
            if not piece:
                return bytes(self._lines)
            self._lines += piece

    async def read(self) -> bytes:
        """Wait until the other side hangs up; what it still says is forgotten."""
        while await self._read_piece():
            pass
        return b""

    def write(self, data: bytes) -> None:
        """Take bytes for `drain`."""
        self._waiting += data

    async def drain(self) -> None:
        """Seal and send what waits."""
        while self._waiting:
            piece = bytes(self._waiting[:_PIECE_BYTES])
            del self._waiting[:_PIECE_BYTES]
            self._sealed.write(piece)
            await self._flush()

    def close(self) -> None:
        """Say that nothing more comes, as far as the socket takes it at once, and hang up."""
        with contextlib.suppress(OSError):
            self._sealed.unwrap()
        with contextlib.suppress(OSError):
            self._sock.send(self._outgoing.read())
        self._sock.close()

    async def _read_piece(self) -> bytes:
        while True:
            try:
                piece = self._sealed.read(_PIECE_BYTES)
            except self._want_read:
                if not await self._fill_or_end():
                    return b""
            else:
                await self._flush()
                return piece

    async def _fill(self) -> None:
        if not await self._fill_or_end():
            raise ConnectionResetError("it hung up")

    async def _fill_or_end(self) -> bool:
        await asyncio.sleep(0)  # `sock_recv` answers at once while anything is there: nobody may keep the loop.
        data = await self._loop.sock_recv(self._sock, _PIECE_BYTES)
        self._incoming.write(data)
        return bool(data)

    async def _flush(self) -> None:
        """One at a time: what is read may want to answer while something is being sent."""
        async with self._flushing:
            while data := self._outgoing.read():
                await self._loop.sock_sendall(self._sock, data)
