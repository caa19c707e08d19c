"""The heads of the inference API's HTTP: whatever is read of one, h11 reads alike; all else is refused."""

import re

import h11
import pytest
from h11._connection import _keep_alive
from h11._headers import has_expect_100_continue
from hypothesis import given, note, settings
from hypothesis import strategies as st

from swarmd.worker import http_head
from swarmd.worker.http_head import Head, HeadError, read_head, write_head
from tests.support.mutants import Mutant, assert_found

_RIGHT = (
    "Content-Length: 5", "Content-Length: 05", "Connection: close", "Connection: keep-alive, Close", "Connection: x",
    "Expect: 100-continue", "Expect: x", "Origin: http://localhost", "Swarmd-Borrow: yes", "X:", "X: a b", "X:a\tb ",
    "X: \xe9\xa0", "Connection:\tclose",
)  # fmt: skip
_NEARLY = (
    "Content-Length : 5", "Content-Length: 6", "Content-Length: +5", "Content-Length: 5, 5", "Content-Length:",
    "Content-Length: " + "1" * 21, "Host: evil.example", "X: a\x00b", "X: a\x0bb", "X: a\rb", " X: a", "X", ": a",
    "X\xe9: a", "X: a\x85b", "Transfer-Encoding: chunked",
)  # fmt: skip
_FIRST = ("POST /v2/models/m/infer HTTP/1.1", "GET /v2?a=b HTTP/1.0", "GET /v2?a?b HTTP/1.1")
_FIRST_NEARLY = ("GET  /v2 HTTP/1.1", "GET /v2 HTTP/2.0", "GET /\x80 HTTP/1.1", "G@T / HTTP/1.1", "GET /", "")


@st.composite
def heads(draw: st.DrawFn) -> bytes:
    """A head that is right, or nearly."""
    fields = ["Host: localhost", *draw(st.lists(st.sampled_from(_RIGHT), max_size=4))]
    first, between = draw(st.sampled_from(_FIRST)), "\r\n"
    match draw(st.sampled_from(("", "", "field", "field", "field", "first", "host", "break"))):
        case "field":
            fields.insert(draw(st.integers(0, len(fields))), draw(st.sampled_from(_NEARLY)))
        case "first":
            first = draw(st.sampled_from(_FIRST_NEARLY))
        case "host":
            fields.remove("Host: localhost")
        case "break":
            between = draw(st.sampled_from(("\n", "\r", "\r\n ", "\r\r\n")))
    return (between.join((first, *fields)) + "\r\n").encode("latin-1")


def by_h11(data: bytes) -> h11.Request | None:
    """What h11 reads; None: it refuses."""
    wire = h11.Connection(h11.SERVER, max_incomplete_event_size=http_head.HEAD_MAX_BYTES)
    wire.receive_data(data + b"\r\n")
    try:
        event = wire.next_event()
    except h11.RemoteProtocolError:
        return None
    return event if isinstance(event, h11.Request) else None


def read(data: bytes) -> Head | None:
    """What is read here; None: it is refused."""
    try:
        return read_head(data)
    except HeadError:
        return None


@settings(max_examples=600)  # A head takes a tenth of a millisecond, and each fault is one of forty.
@given(heads())
def law_h11_reads_alike(data: bytes) -> None:
    head = read(data)
    if head is None or "transfer-encoding" in head.headers:  # The server refuses all of those, h11 some of them.
        return
    event = by_h11(data)
    note(f"{data!r} {head}")
    assert event is not None, "h11 refuses what is taken here"
    assert head.method.encode() == event.method
    assert head.path.encode() == event.target.partition(b"?")[0]
    said: dict[str, str] = {}
    for name, value in event.headers:
        key, text = name.decode(), value.decode("latin-1")
        said[key] = f"{said[key]},{text}" if key in said and key in ("connection", "expect") else text
    assert head.headers == said
    assert head.length == int(said.get("content-length", "0"))
    assert head.is_kept == _keep_alive(event)
    assert head.wants_go_on == has_expect_100_continue(event)


def law_what_is_right_is_taken() -> None:
    head = read_head(b"POST /v2/models/m/infer?x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nX: a\r\n")
    said = {"host": "localhost", "content-length": "5", "x": "a"}
    assert head == Head("POST", "/v2/models/m/infer", said, 5, is_kept=True, wants_go_on=False)
    assert read(b"GET / HTTP/1.1\nHost: localhost\n") is not None, "lines may end without a carriage return"


@pytest.mark.parametrize(
    "lines",
    [
        "Host: localhost\r\nHost: evil.example", "Host: localhost\r\nContent-Length: 5\r\nContent-Length: 6",
        "Host: localhost\r\nContent-Length : 5", "Host: localhost\r\n Content-Length: 5", "X: y",
        "Host: localhost\r\nX: a\x00b", "Host: localhost\r\nX: a\rContent-Length: 5",
        "Host: localhost\r\nContent-Length: 5, 5", "Host: localhost\r\nContent-Length: \u0665",
    ],
)  # fmt: skip
def test_what_can_be_read_in_two_ways_is_refused(lines: str) -> None:
    text = f"POST /v2/models/m/infer HTTP/1.1\r\n{lines}\r\n".encode(errors="replace")
    assert read(text) is None


@pytest.mark.parametrize("value", ["a\r\nSet-Cookie: b", "a\nb", "a\x00", "", " a", "a ", "\u0665"])
def test_an_answer_s_header_cannot_be_two(value: str) -> None:
    with pytest.raises(ValueError, match="Swarmd-Lender cannot be written"):
        write_head(200, [("Swarmd-Lender", value)])


def test_h11_reads_the_answer_s_head() -> None:
    wire = h11.Connection(h11.CLIENT)
    wire.send(h11.Request(method="GET", target="/", headers=[("Host", "localhost")]))
    wire.send(h11.EndOfMessage())
    wire.receive_data(write_head(404, [("Content-Length", "3"), ("Swarmd-Lender", "drone 4")]) + b"abc")
    event = wire.next_event()
    assert isinstance(event, h11.Response)
    assert (event.status_code, dict(event.headers)) == (404, {b"content-length": b"3", b"swarmd-lender": b"drone 4"})


def _a_gap_before_the_colon(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(http_head, "_FIELD", re.compile(http_head._FIELD.pattern.replace(":", "[ ]*:", 1)))


def _any_byte_in_a_value(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(http_head, "_FIELD", re.compile(rf"({http_head._TOKEN}):[ \t]*(.*?)[ \t]*\r?"))


def _signs_in_a_length(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(http_head, "_LENGTH", re.compile("[-+0-9]+"))


def _the_last_connection_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(http_head, "_LISTS", ())


def _a_gap_in_the_first_line(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(http_head, "_ASKED", re.compile(http_head._ASKED.pattern.replace(" ", " +", 1)))


def test_heads_are_read_as_h11_reads_them() -> None:
    law_h11_reads_alike()


def test_heads_that_are_right_are_taken() -> None:
    law_what_is_right_is_taken()


@pytest.mark.parametrize(
    "mutant",
    [
        _a_gap_before_the_colon, _any_byte_in_a_value, _signs_in_a_length, _the_last_connection_counts,
        _a_gap_in_the_first_line,
    ],
    ids=lambda one: one.__name__,
)  # fmt: skip
def test_a_reader_that_is_lenient_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law_h11_reads_alike, monkeypatch)
