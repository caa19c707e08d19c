"""The heads of HTTP/1.1 as the inference API reads and writes them.

h11 reads them. It sees heads alone: a body goes from the socket into the bytes that a model sees (`http_server.py`).

Source:
    RFC 9112, sections 2 to 6 and 9.3; RFC 9110, sections 5 and 8.6.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import h11

HEAD_MAX_BYTES = 16 << 10
BLANK = re.compile(rb"\n\r?\n")
"""What ends a head."""
CONTINUE = b"HTTP/1.1 100 \r\n\r\n"
_VALUE = re.compile(r"[!-~\x80-\xff]+(?:[ \t]+[!-~\x80-\xff]+)*")
_LISTS = (b"connection", b"expect", b"transfer-encoding")
_DIGITS_MAX = 20
"""Of a length; the server's own bound is far below."""


class HeadError(Exception):
    """A head does not hold: a status and a sentence for its sender."""

    def __init__(self, status: int, text: str) -> None:
        """`status` as RFC 9110 means it."""
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Head:
    """What a request says before its body."""

    method: str
    path: str
    """Without query."""
    headers: Mapping[str, str]
    """Names in lower case."""
    length: int
    """Of the body; 0 where none is said."""
    is_kept: bool
    """Whether another request may follow on the connection."""
    wants_go_on: bool
    """Whether the client waits for a 100 before it sends the body."""


def read_head(data: bytes) -> Head:
    """Read a head.

    Args:
        data: All of it, up to its last line's end.

    Raises:
        HeadError: It is none.
    """
    wire = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_MAX_BYTES)
    try:
        wire.receive_data(data + b"\r\n")
        event = wire.next_event()
    except h11.RemoteProtocolError as error:
        raise HeadError(error.error_status_hint, str(error)) from error
    if not isinstance(event, h11.Request) or event.http_version not in (b"1.0", b"1.1"):
        raise HeadError(400, "the first line is no request of HTTP/1.1")
    said: dict[bytes, bytes] = {}
    for name, value in event.headers:
        said[name] = said[name] + b"," + value if name in said and name in _LISTS else value
    length = said.get(b"content-length", b"0")
    if len(length) > _DIGITS_MAX:
        raise HeadError(400, "Content-Length has too many digits")
    words = [word.strip(b" \t").lower() for word in said.get(b"connection", b"").split(b",")]
    return Head(
        method=event.method.decode("latin-1"),
        path=event.target.decode("latin-1").partition("?")[0],
        headers={name.decode("latin-1"): value.decode("latin-1") for name, value in said.items()},
        length=int(length),
        is_kept=event.http_version == b"1.1" and b"close" not in words,
        wants_go_on=wire.they_are_waiting_for_100_continue,
    )


def write_head(status: int, headers: Sequence[tuple[str, str]]) -> bytes:
    """The head of an answer.

    Raises:
        ValueError: A header's value would be read as something else.
    """
    for name, value in headers:
        if not _VALUE.fullmatch(value):
            raise ValueError(f"header {name} cannot be written")
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
    return f"HTTP/1.1 {status} \r\n{lines}\r\n".encode("latin-1")
