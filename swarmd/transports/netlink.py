"""The addresses of this device's interfaces, asked of Linux's kernel over one rtnetlink socket.

`getifaddrs` by way of ctypes gives the same; but ctypes.util runs `ldconfig` when it looks for the C library, at every
start, and with it a brain holds 0.7 MB more.
"""

import socket
import struct
from collections.abc import Iterator

_HEADER = struct.Struct("=IHHII")
"""nlmsghdr: length with this header, type, flags, sequence number, port."""
_ADDRESS = struct.Struct("=BBBBI")
"""ifaddrmsg: family, prefix length, flags, scope, interface index."""
_ATTRIBUTE = struct.Struct("=HH")
"""rtattr: length with this header, type."""
_NUMBER = struct.Struct("=i")
_ERROR, _DONE, _NEWADDR, _GETADDR = 2, 3, 20, 22
_REQUEST_DUMP = 0x1 | 0x300
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_ANSWER_S = 1.0
"""Seconds for one part of the answer: the kernel writes it while it is asked."""
_PART_BYTES = 65_536
"""The kernel fills at most 32 KiB a part. Source: rtnetlink.c, netlink_dump."""


def addresses() -> list[tuple[int, str]]:
    """Every address of every interface, loopback's too.

    Returns:
        (interface index, numeric host without a zone), by index, IPv4 first.

    Raises:
        OSError: The kernel does not answer: no rtnetlink here, or a sandbox forbids it.

    Source:
        rtnetlink(7), netlink(7).
    """
    found: list[tuple[int, int, str]] = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as sock:
        sock.settimeout(_ANSWER_S)
        question = _ADDRESS.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
        sock.send(_HEADER.pack(_HEADER.size + len(question), _GETADDR, _REQUEST_DUMP, 1, 0) + question)
        is_done = False
        while not is_done:
            for kind, body in _messages(sock.recv(_PART_BYTES)):
                if kind == _ERROR:
                    raise OSError(-_NUMBER.unpack_from(body)[0], "rtnetlink refuses to list addresses")
                if kind == _NEWADDR:
                    found += _row(body)
                is_done |= kind == _DONE
    return [(index, host) for index, _, host in sorted(found)]


def _messages(part: bytes) -> Iterator[tuple[int, bytes]]:
    offset = 0
    while offset + _HEADER.size <= len(part):
        length, kind, _, _, _ = _HEADER.unpack_from(part, offset)
        if length < _HEADER.size:
            return
        yield kind, part[offset + _HEADER.size : offset + length]
        offset += (length + 3) & ~3


def _row(body: bytes) -> Iterator[tuple[int, int, str]]:
    """(index, family, host) of one address: its own end, where it is that of a link between two points."""
    family, _, _, _, index = _ADDRESS.unpack_from(body)
    size = {socket.AF_INET: 4, socket.AF_INET6: 16}.get(family)
    attributes: dict[int, bytes] = {}
    offset = _ADDRESS.size
    while offset + _ATTRIBUTE.size <= len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, offset)
        if length < _ATTRIBUTE.size:
            break
        attributes[kind] = body[offset + _ATTRIBUTE.size : offset + length]
        offset += (length + 3) & ~3
    packed = attributes.get(_IFA_LOCAL) or attributes.get(_IFA_ADDRESS, b"")
    if size is not None and len(packed) == size:
        yield index, family, socket.inet_ntop(family, packed)
