"""The heads of the inference API's HTTP: what h11 reads of them, and what would be two answers is none."""

import h11
import pytest

from swarmd.worker.http_head import Head, HeadError, read_head, write_head

ASKED = "POST /v2/models/m/infer?x HTTP/1.1\r\nHost: localhost\r\n"


def test_what_is_right_is_read() -> None:
    said = {"host": "localhost", "content-length": "5", "x": "a"}
    assert read_head(f"{ASKED}Content-Length: 5\r\nX: a\r\n".encode()) == Head(
        "POST", "/v2/models/m/infer", said, 5, is_kept=True, wants_go_on=False
    )
    assert read_head(b"GET / HTTP/1.1\nHost: localhost\n").path == "/", "lines may end without a carriage return"


@pytest.mark.parametrize(
    ("lines", "is_kept"),
    [("Connection: close", False), ("Connection: x, Close", False), ("Connection: x\r\nConnection: close", False),
     ("Connection: close\r\nConnection: x", False), ("Connection: keep-alive", True)],
)  # fmt: skip
def test_a_connection_ends_where_any_of_its_headers_says_so(lines: str, is_kept: bool) -> None:
    assert read_head(f"{ASKED}{lines}\r\n".encode()).is_kept is is_kept


def test_a_client_of_1_0_is_answered_and_let_go() -> None:
    assert not read_head(b"GET /v2 HTTP/1.0\r\nConnection: keep-alive\r\n").is_kept


def test_who_waits_before_its_body_is_told_to_go_on() -> None:
    assert read_head(f"{ASKED}Content-Length: 5\r\nExpect: 100-continue\r\n".encode()).wants_go_on
    assert not read_head(f"{ASKED}Content-Length: 5\r\nExpect: x\r\n".encode()).wants_go_on


@pytest.mark.parametrize(
    "text",
    [
        f"{ASKED}Host: evil.example\r\n", f"{ASKED}Content-Length: 5\r\nContent-Length: 6\r\n",
        f"{ASKED}Content-Length : 5\r\n", "GET / HTTP/1.1\r\nX: y\r\n", f"{ASKED}X: a\x00b\r\n",
        f"{ASKED}X: a\rContent-Length: 5\r\n", f"{ASKED}Content-Length: +5\r\n", f"{ASKED}Content-Length: \u0665\r\n",
        f"{ASKED}Content-Length: {'1' * 5_000}\r\n",
        "GET / HTTP/2.0\r\nHost: localhost\r\n", "GET  / HTTP/1.1\r\nHost: localhost\r\n", "\r\n", "",
    ],
)  # fmt: skip
def test_what_can_be_read_in_two_ways_is_refused(text: str) -> None:
    with pytest.raises(HeadError):
        read_head(text.encode())


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
