"""Why a stream cannot be opened: asks its server once, where the decoder says only that it could not.

RTSP (RFC 2326) and HTTP share the form of answers and of authentication (RFC 7617 Basic, RFC 7616 Digest with MD5,
which is what cameras speak). Sans I/O but for `why_refused`.
"""

import base64
import hashlib
import re
import socket
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit

TIMEOUT_S = 5.0
"""Seconds for each answer; who takes longer is not there for a stream either."""
MAX_ANSWER_BYTES = 16_384
"""Of an answer's head; cameras write a few hundred."""
_PORTS = {"rtsp": 554, "http": 80}
_UNAUTHORISED, _FORBIDDEN = 401, 403


@dataclass(frozen=True, slots=True)
class Answer:
    """The head of a server's answer."""

    status: int
    challenges: tuple[str, ...] = ()
    """Values of `WWW-Authenticate`."""


def why_refused(url: str) -> Answer | None:
    """What the server says to the URL, with the URL's user and password; None where nobody answers, or not so.

    Args:
        url: rtsp:// or http://; others are not asked.
    """
    try:
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or not parts.hostname:
            return None
        answer = _ask(parts, "")
        if answer is not None and answer.status == _UNAUTHORISED and parts.username is not None:
            given = authorisation(answer.challenges, method_of(parts.scheme), target_of(parts), *user_of(parts))
            answer = _ask(parts, given) if given else answer
        return answer
    except (OSError, ValueError):  # Of which a URL with a bad port, and text that is no address, are some.
        return None


def parse_answer(head: bytes) -> Answer | None:
    """An answer's head; None where the bytes begin no answer of RTSP or HTTP.

    >>> parse_answer(b'RTSP/1.0 401 Unauthorized\\r\\nWWW-Authenticate: Basic realm="x"\\r\\n\\r\\n')
    Answer(status=401, challenges=('Basic realm="x"',))
    """
    text = head.decode("latin-1")
    found = re.match(r"(?:RTSP|HTTP)/\d\.\d (\d{3})\b", text)
    if found is None:
        return None
    challenges = re.findall(r"(?im)^www-authenticate:[ \t]*([^\r\n]+)", text)
    return Answer(int(found[1]), tuple(challenges))


def authorisation(challenges: tuple[str, ...], method: str, target: str, user: str, password: str) -> str:
    """The value of `Authorization` that answers a challenge; "" where none of them can be.

    >>> authorisation(('Basic realm="x"',), "DESCRIBE", "/", "u", "p")
    'Basic dTpw'
    """
    for challenge in challenges:
        if challenge.lower().startswith("digest"):
            return _digest(challenge, method, target, user, password)
    if any(challenge.lower().startswith("basic") for challenge in challenges):
        return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
    return ""


def _digest(challenge: str, method: str, target: str, user: str, password: str) -> str:
    fields = {name.lower(): value for name, value in re.findall(r'(\w+)="?([^",]*)"?', challenge[6:])}
    if fields.get("algorithm", "MD5").upper() != "MD5":
        return ""

    def md5(text: str) -> str:
        return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()

    realm, nonce = fields.get("realm", ""), fields.get("nonce", "")
    ours, theirs = md5(f"{user}:{realm}:{password}"), md5(f"{method}:{target}")
    said = f'Digest username="{user}", realm="{realm}", nonce="{nonce}", uri="{target}"'
    if "auth" in [one.strip() for one in fields.get("qop", "").split(",")]:
        response = md5(f"{ours}:{nonce}:00000001:0a4f113b:auth:{theirs}")
        said += f', qop=auth, nc=00000001, cnonce="0a4f113b", response="{response}"'
    else:
        said += f', response="{md5(f"{ours}:{nonce}:{theirs}")}"'
    return said + (f', opaque="{fields["opaque"]}"' if "opaque" in fields else "")


def method_of(scheme: str) -> str:
    """What is asked: a description of the stream, or the stream's first bytes."""
    return "DESCRIBE" if scheme == "rtsp" else "GET"


def target_of(parts: SplitResult) -> str:
    """What a request names: the whole URL without user in RTSP, the path in HTTP."""
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    port = f":{parts.port}" if parts.port else ""
    return f"rtsp://{host}{port}{path}" if parts.scheme == "rtsp" else path


def user_of(parts: SplitResult) -> tuple[str, str]:
    """User and password of a URL."""
    return unquote(parts.username or ""), unquote(parts.password or "")


def request(parts: SplitResult, authorised: str) -> bytes:
    """One request for a stream."""
    version = "RTSP/1.0" if parts.scheme == "rtsp" else "HTTP/1.1"
    lines = [f"{method_of(parts.scheme)} {target_of(parts)} {version}"]
    lines += ["CSeq: 1", "Accept: application/sdp"] if parts.scheme == "rtsp" else [f"Host: {parts.hostname}"]
    lines += ["Connection: close", "User-Agent: swarmd", *([f"Authorization: {authorised}"] if authorised else [])]
    text = "\r\n".join(lines) + "\r\n\r\n"
    return text.encode("latin-1", "replace")


def _ask(parts: SplitResult, authorised: str) -> Answer | None:
    assert parts.hostname is not None
    port = parts.port or _PORTS[parts.scheme]
    head = b""
    with socket.create_connection((parts.hostname, port), timeout=TIMEOUT_S) as connection:
        connection.sendall(request(parts, authorised))
        while b"\r\n\r\n" not in head and len(head) < MAX_ANSWER_BYTES:
            more = connection.recv(4096)
            if not more:
                break
            head += more
    return parse_answer(head)


def is_about_user(answer: Answer) -> bool:
    """Whether a server wants another user or password."""
    return answer.status in (_UNAUTHORISED, _FORBIDDEN)
