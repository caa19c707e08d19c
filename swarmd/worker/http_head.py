"""The heads of HTTP/1.1 as the inference API reads and writes them: one regular expression a line, nothing lenient.

h11 did this before, and still judges it (`tests/property/test_http_head.py`): whatever is read here, it reads alike.
With asyncio's streams it took a third of what a request costs beside its inference.

Source:
    RFC 9112, sections 2 to 6 and 9.3; RFC 9110, sections 5 and 8.6.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

HEAD_MAX_BYTES = 16 << 10
BLANK = re.compile(rb"\n\r?\n")
"""What ends a head."""
CONTINUE = b"HTTP/1.1 100 \r\n\r\n"
_TOKEN = r"[-!#$%&'*+.^_`|~0-9A-Za-z]+"
_ASKED = re.compile(rf"({_TOKEN}) ([!-~]+) HTTP/1\.([01])\r?")
_FIELD = re.compile(rf"({_TOKEN}):[ \t]*((?:[!-~\x80-\xff]+(?:[ \t]+[!-~\x80-\xff]+)*)?)[ \t]*\r?")
_VALUE = re.compile(r"[!-~\x80-\xff]+(?:[ \t]+[!-~\x80-\xff]+)*")
_LISTS = ("connection", "expect", "transfer-encoding")
_LENGTH = re.compile(r"[0-9]{1,20}")


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
    first, *lines = data.decode("latin-1").removesuffix("\n").split("\n")
    asked = _ASKED.fullmatch(first)
    if asked is None:
        raise HeadError(400, "the first line is no request of HTTP/1.1")
    headers: dict[str, str] = {}
    for line in lines:
        field = _FIELD.fullmatch(line)
        if field is None:
            raise HeadError(400, "a line of the head is no header")
        name = field[1].lower()
        if name in headers and (name == "host" or (name == "content-length" and headers[name] != field[2])):
            raise HeadError(400, f"two headers {name}")
        headers[name] = f"{headers[name]},{field[2]}" if name in headers and name in _LISTS else field[2]
    is_new = asked[3] == "1"
    if is_new and "host" not in headers:
        raise HeadError(400, "the header Host is missing")
    length = headers.get("content-length", "0")
    if not _LENGTH.fullmatch(length):
        raise HeadError(400, "Content-Length is no number")
    is_kept = is_new and not _says(headers, "connection", "close")
    wants_go_on = is_new and _says(headers, "expect", "100-continue")
    return Head(asked[1], asked[2].partition("?")[0], headers, int(length), is_kept, wants_go_on)


def _says(headers: Mapping[str, str], name: str, word: str) -> bool:
    """Whether a header that is a list has a word in it."""
    return word in [one.strip(" \t").lower() for one in headers.get(name, "").split(",")]


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
