"""What every request passes before anything answers it, and what every answer carries.

- `Host` must be a loopback name: a page elsewhere must not read the swarm through this browser (DNS rebinding).
- `Origin`, where a browser sends one, must be this very server: a page of another port is a stranger.
- `Sec-Fetch-Site: cross-site` reads nothing of the API.
- Only GET and HEAD, which change nothing; what operators do comes by POST, as JSON, from this server's own origin: a
  browser always says where a POST comes from, and a form cannot send JSON.
- The answer's policy lets the page run its own script and nothing else, and no other page frame it.
"""

from collections.abc import Mapping

from swarmd.api.loopback import is_local_host

ACTS_PATH = "/api/v1/operator/"
"""Where operators act."""
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
    if not is_local_host(host):
        return 403, "only loopback names are served; from elsewhere: ssh -L"
    origin = headers.get("origin", "")
    if origin and origin != f"http://{host}":
        return 403, "another page's script asks; only this server's own page may"
    if path.startswith(ACTS_PATH):
        if method != "POST":
            return 405, "what operators do comes by POST"
        if not origin:
            return 403, "who acts must say from where: Origin is missing"
        if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return 415, "what operators do is JSON"
    elif method not in ("GET", "HEAD"):
        return 405, "only GET is served"
    if headers.get("sec-fetch-site", "") in ("cross-site", "same-site") and path.startswith("/api/"):
        return 403, "another site asks; only this server's own page may"
    return 0, ""
