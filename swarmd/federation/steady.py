"""HTTP for releases: what comes too slowly is given up, its head as well as its body, and nothing is redirected."""

import http.client
import io
import socket
import time
import urllib.request
from collections.abc import Callable
from typing import Any

FETCH_S = 120.0
"""Seconds without a byte after which a source is given up."""
LEAST_BYTES_S = 512
"""Slower than this, after the first `FETCH_S`, a source is given up too: one that says a byte a minute would keep all
other bundles waiting for ever."""
HEAD_MAX_BYTES = 65_536
"""What may come before the body: a server may say "100 Continue" without end."""


class _Steady(io.RawIOBase):
    """What a server says, as long as it keeps on."""

    def __init__(self, raw: io.RawIOBase) -> None:
        super().__init__()
        self._raw = raw
        self._began_s, self._count = time.monotonic(), 0
        self.is_head = True

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        """See `io.RawIOBase.readinto`.

        Raises:
            OSError: It comes too slowly, or its head has no end.
        """
        count = self._raw.readinto(buffer)
        self._count += count or 0
        if time.monotonic() - self._began_s > FETCH_S + self._count / LEAST_BYTES_S:
            raise OSError(f"it comes at less than {LEAST_BYTES_S} bytes a second")
        if self.is_head and self._count > HEAD_MAX_BYTES + io.DEFAULT_BUFFER_SIZE:
            raise OSError(f"its head is larger than {HEAD_MAX_BYTES} bytes")
        return int(count or 0)

    def close(self) -> None:
        """See `io.IOBase.close`."""
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *rest: Any, **named: Any) -> None:
        super().__init__(sock, *rest, **named)
        self._steady = _Steady(self.fp.detach())
        self.fp = io.BufferedReader(self._steady)

    def begin(self) -> None:
        """See `http.client.HTTPResponse.begin`."""
        super().begin()
        self._steady.is_head = False


def _steady(make: Callable[..., http.client.HTTPConnection]) -> Callable[..., http.client.HTTPConnection]:
    def connect(*rest: Any, **named: Any) -> http.client.HTTPConnection:
        one = make(*rest, **named)
        one.response_class = _Response
        return one

    return connect


class _Http(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """See `urllib.request.HTTPHandler`."""
        return self.do_open(_steady(http.client.HTTPConnection), req)


class _Https(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """See `urllib.request.HTTPSHandler`."""
        return self.do_open(_steady(http.client.HTTPSConnection), req)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """An allowed address leads nowhere else."""

    def redirect_request(self, *_: object, **__: object) -> None:
        """None: the answer is an error."""
        return


OPENER = urllib.request.build_opener(_NoRedirect, _Http, _Https)
