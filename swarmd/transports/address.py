"""Addresses of the transports: "10.0.0.5:7946" and "[fe80::1%wlan0]:7946", numeric, at most 64 characters.

A node on several networks has one of several ways, joined by `+` (`reach.py`).

A peer may claim any address, so `parse_address` is strict; names are resolved once, before they become addresses.
"""

import asyncio
import ipaddress
import socket

from swarmd.errors import TransportError
from swarmd_protocols.ids import WAYS, Address

DEFAULT_PORT = 7946
"""Port where none is written: the one that Serf and memberlist use, which operators know."""
MAX_ADDRESS_CHARS = 64
"""Characters of an address: a bracketed IPv6 address with a scope and a port fits."""


def format_address(host: str, port: int) -> Address:
    """The address of a numeric host and a port.

    >>> format_address("::1", 7946)
    '[::1]:7946'
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_address(text: str) -> tuple[str, int]:
    """Split an address into its numeric host and its port.

    Args:
        text: "ip:port" or "[ipv6]:port"; the port is 0..65535.

    Returns:
        Host without brackets, and port.

    Raises:
        ValueError: The text is no such address; the message says what is wrong with it.

    >>> parse_address("[::1]:7946")
    ('::1', 7946)
    """
    if len(text) > MAX_ADDRESS_CHARS:
        raise ValueError(f"address of {len(text)} characters; at most {MAX_ADDRESS_CHARS} are allowed")
    host, colon, port_text = text.rpartition(":")
    if not colon or not (port_text.isascii() and port_text.isdigit()) or int(port_text) > 65_535:
        raise ValueError(f"{text!r} has no port; write it as ip:port, such as 10.0.0.5:{DEFAULT_PORT}")
    bracketed = host.startswith("[") and host.endswith("]")
    version = ipaddress.ip_address(host[1:-1] if bracketed else host).version
    if (version == 6) != bracketed:
        raise ValueError(f"{text!r}: an IPv6 address, and only that, stands in brackets, such as [::1]:{port_text}")
    return (host[1:-1] if bracketed else host), int(port_text)


def is_ipv6(host: str) -> bool:
    """Whether a numeric host is of IPv6."""
    return ":" in host


async def resolve(text: str, default_port: int = DEFAULT_PORT) -> Address:
    """Turn what a person wrote ("drone3", "drone3:7946", "10.0.0.3", "[::1]:7946") into an address.

    Args:
        text: Host name or numeric address, with or without a port.
        default_port: Port where the text names none.

    Returns:
        The first address that the resolver gives.

    Raises:
        TransportError: The name is unknown or the port is no number.
    """
    host, port = _split_host_port(text, default_port)
    # As bytes, where it can be: of text Python asks a codec whose tables of Unicode take half a megabyte.
    asked = host.encode("ascii") if host.isascii() else host
    try:
        found = await asyncio.get_running_loop().getaddrinfo(asked, port, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError) as error:
        raise TransportError(
            f"cannot resolve {host!r}: {error}; give a numeric address or repair the name's resolution"
        ) from error
    return format_address(str(found[0][4][0]), port)


def _split_host_port(text: str, default_port: int) -> tuple[str, int]:
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port_text = rest.removeprefix(":")
    elif text.count(":") > 1:
        host, port_text = text, ""  # A bare IPv6 address.
    else:
        host, _, port_text = text.partition(":")
    if port_text and not (port_text.isascii() and port_text.isdigit() and 0 < int(port_text) <= 65_535):
        raise TransportError(f"{text!r} names port {port_text!r}; a port is a number from 1 to 65535")
    if not host:
        raise TransportError(f"{text!r} names no host; write host or host:port")
    return host, int(port_text) if port_text else default_port


def parse_ways(text: str) -> Address:
    """What a peer says of its address, when every way of it holds.

    Raises:
        ValueError: A way is no address, has no port, or the text is too long.

    >>> parse_ways("10.0.0.5:7946+[fe80::5]:7946")
    '10.0.0.5:7946+[fe80::5]:7946'
    """
    if len(text) > MAX_ADDRESS_CHARS:
        raise ValueError(f"address of {len(text)} characters; at most {MAX_ADDRESS_CHARS} are allowed")
    ways = [parse_address(way) for way in text.split(WAYS)]
    if not all(port for _, port in ways):
        raise ValueError(f"{text!r} names port 0; a port is a number from 1 to 65535")
    return WAYS.join(format_address(host, port) for host, port in ways)
