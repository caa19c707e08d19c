"""Which names mean this device alone: what is served here is served to no other, whatever a browser is talked into."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether a host, by name or number, is this device alone.

    >>> [is_loopback(name) for name in ("localhost", "127.0.0.1", "::1", "10.0.0.1", "localhost.evil.example")]
    [True, True, True, False, False]
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_local_host(host: str) -> bool:
    """Whether a `Host` header, with a port or without, names this device alone.

    >>> [is_local_host(host) for host in ("localhost:80", "[::1]:7982", "127.0.0.1", "127.0.0.1:x", "[::1]x", "")]
    [True, True, True, False, False, False]
    """
    if host.startswith("["):
        name, bracket, rest = host[1:].partition("]")
        is_whole = bool(bracket) and (not rest or (rest.startswith(":") and _is_port(rest[1:])))
    else:
        name, colon, port = host.partition(":")
        is_whole = not colon or _is_port(port)
    return is_whole and is_loopback(name)


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 5
