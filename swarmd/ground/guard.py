"""What every request passes before anything answers it, and what every answer carries.

- `Host` must be a loopback name: a page elsewhere must not read the swarm through this browser (DNS rebinding).
- `Origin`, where a browser sends one, must be this very server: a page of another port is a stranger.
- `Sec-Fetch-Site: cross-site` reads nothing of the API.
- Only GET and HEAD: nothing here changes anything.
- The answer's policy lets the page run its own script and nothing else, and no other page frame it.
"""

import ipaddress
from collections.abc import Mapping

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'"
)
"""Content Security Policy of every answer."""
HEADERS = (
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "geolocation=(), camera=(), microphone=()"),
)
"""Headers of every answer."""


def refusal(method: str, path: str, headers: Mapping[str, str]) -> tuple[int, str]:
    """(status, reason) where a request is not answered; (0, "") where it is.

    Args:
        method: Of the request.
        path: Of its address.
        headers: Its headers, names in small letters.

    >>> refusal("GET", "/", {"host": "127.0.0.1:7982"})
    (0, '')
    >>> refusal("GET", "/", {"host": "evil.example:7982"})[0]
    403
    """
    host = headers.get("host", "")
    if not is_loopback(_name_of(host)):
        return 403, "only loopback names are served; from elsewhere: ssh -L"
    origin = headers.get("origin", "")
    if origin and origin != f"http://{host}":
        return 403, "another page's script asks; only this server's own page may"
    if method not in ("GET", "HEAD"):
        return 405, "only GET is served"
    if headers.get("sec-fetch-site", "") in ("cross-site", "same-site") and path.startswith("/api/"):
        return 403, "another site asks; only this server's own page may"
    return 0, ""


def is_loopback(name: str) -> bool:
    """Whether a name or address is this machine's own.

    >>> [is_loopback(name) for name in ("localhost", "127.0.0.1", "::1", "10.0.0.1", "localhost.evil.example")]
    [True, True, True, False, False]
    """
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _name_of(host: str) -> str:
    if host.startswith("["):
        name, bracket, port = host[1:].partition("]")
        is_whole = bool(bracket) and (not port or (port.startswith(":") and _is_port(port[1:])))
        return name if is_whole else ""
    name, colon, port = host.partition(":")
    return name if not colon or _is_port(port) else ""


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 5
