"""What a stream's server says, read from bytes."""

from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_models.stream_probe import Answer, authorisation, parse_answer, request, target_of, user_of, why_refused


def test_digest_answers_as_rfc_2617_section_3_5_does() -> None:
    challenge = (
        'Digest realm="testrealm@host.com", qop="auth,auth-int", nonce="dcd98b7102dd2f0e8b11d0f600bfb0c093", '
        'opaque="5ccc069c403ebaf9f0171e9517f40e41"'
    )
    said = authorisation((challenge,), "GET", "/dir/index.html", "Mufasa", "Circle Of Life")
    assert 'response="6629fae49393a05397450978507c4ef1"' in said
    assert 'opaque="5ccc069c403ebaf9f0171e9517f40e41"' in said


def test_the_first_challenge_that_can_be_answered_is() -> None:
    unknown = ('Digest realm="x", nonce="y", algorithm=SHA-512-256',)
    assert authorisation(unknown, "GET", "/", "u", "p") == ""
    assert authorisation(("Negotiate",), "GET", "/", "u", "p") == ""
    assert authorisation(("Negotiate", 'Basic realm="x"'), "GET", "/", "u", "p") == "Basic dTpw"


@pytest.mark.parametrize(
    ("url", "target", "user"),
    [
        ("rtsp://me:p%40ss@10.0.0.9:8554/a/b?c=d", "rtsp://10.0.0.9:8554/a/b?c=d", ("me", "p@ss")),
        ("rtsp://[fe80::1]/", "rtsp://[fe80::1]/", ("", "")),
        ("http://cam/stream?x=1", "/stream?x=1", ("", "")),
        ("http://cam", "/", ("", "")),
    ],
)
def test_a_request_names_the_stream_and_never_the_password(url: str, target: str, user: tuple[str, str]) -> None:
    parts = urlsplit(url)
    assert (target_of(parts), user_of(parts)) == (target, user)
    assert b"p%40ss" not in request(parts, "")
    assert request(parts, "").startswith(f"{'DESCRIBE' if url.startswith('rtsp') else 'GET'} {target} ".encode())


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_hostile_answers_never_raise(noise: bytes) -> None:
    for head in (noise, b"RTSP/1.0 401 x\r\nWWW-Authenticate: Digest " + noise + b"\r\n\r\n"):
        answer = parse_answer(head)
        assert answer is None or isinstance(answer, Answer)
        if answer is not None:
            authorisation(answer.challenges, "DESCRIBE", "rtsp://x/", "u", "p")


@pytest.mark.parametrize("url", ["rtsps://127.0.0.1/x", "udp://127.0.0.1:1", "rtsp://127.0.0.1:99999/", "rtsp:///x"])
def test_urls_that_are_not_asked(url: str) -> None:
    assert why_refused(url) is None
