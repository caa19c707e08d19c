"""Asks a peer's kernel whether its reliable port is open: one TCP connect, closed at once.

A stopped process still accepts (its kernel does), a killed one refuses, and a cut or unpowered host says nothing.
"""

import asyncio
import errno
import socket
from collections import Counter
from collections.abc import Callable

from swarmd.transports.address import is_ipv6, parse_address
from swarmd.transports.udp_socket import target_of
from swarmd_protocols.effects import HostAnswer
from swarmd_protocols.ids import Address

_OPEN_PROBES_MAX = 64
"""Connections to unknown hosts at once: more members are never suspected together but in a cut."""


class HostProber:
    """Any number of probes at once, within a bound; each costs one descriptor while it is open."""

    def __init__(self, answered: Callable[[Address, HostAnswer], None], counts: "Counter[str]") -> None:
        """Prepare.

        Args:
            answered: Called, never from within `probe`, with the destination and what its kernel said.
            counts: Where probes are counted.
        """
        self._answered = answered
        self._counts = counts
        self._open: dict[Address, tuple[socket.socket, asyncio.TimerHandle]] = {}

    def probe(self, destination: Address, timeout_ns: int) -> None:
        """Begin one probe; a second one to the same destination joins the first."""
        if destination in self._open:
            return
        loop = asyncio.get_running_loop()
        if len(self._open) >= _OPEN_PROBES_MAX:
            self._counts["host_probes_dropped"] += 1
            return
        self._counts["host_probes_out"] += 1
        try:
            host, port = parse_address(destination)
            family = socket.AF_INET6 if is_ipv6(host) else socket.AF_INET
            sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        except (ValueError, OSError):
            loop.call_soon(self._answered, destination, HostAnswer.SILENT)
            return
        number = _connect(sock, host, port)
        if number not in (0, errno.EINPROGRESS):
            sock.close()
            loop.call_soon(self._answered, destination, _answer_of(number))
            return
        timer = loop.call_later(timeout_ns / 1e9, self._finish, destination, HostAnswer.SILENT)
        self._open[destination] = (sock, timer)
        loop.add_writer(sock.fileno(), self._on_connected, destination)

    def close(self) -> None:
        """Give up all probes; may be called twice."""
        for destination in list(self._open):
            self._release(destination)

    def _on_connected(self, destination: Address) -> None:
        sock, _ = self._open[destination]
        self._finish(destination, _answer_of(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)))

    def _finish(self, destination: Address, answer: HostAnswer) -> None:
        self._release(destination)
        self._answered(destination, answer)

    def _release(self, destination: Address) -> None:
        sock, timer = self._open.pop(destination)
        timer.cancel()
        asyncio.get_running_loop().remove_writer(sock.fileno())
        sock.close()


def _connect(sock: socket.socket, host: str, port: int) -> int:
    try:
        return sock.connect_ex(target_of(host, port))
    except OSError as error:
        return error.errno or errno.EIO


def _answer_of(number: int) -> HostAnswer:
    if number == 0:
        return HostAnswer.OPEN
    return HostAnswer.REFUSED if number == errno.ECONNREFUSED else HostAnswer.SILENT
