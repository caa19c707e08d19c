"""Asks a peer's kernel whether its reliable port is open: one TCP connect, closed at once.

A stopped process still accepts (its kernel does), a killed one refuses, and a cut or unpowered host says nothing.
Where this process has no descriptor left to ask with, nobody was asked: there is no answer then, since silence would be
evidence about the peer.
"""

import asyncio
import errno
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from swarmd.transports.address import is_ipv6
from swarmd.transports.reach import Reach, Way
from swarmd.transports.udp_socket import target_of
from swarmd_protocols.effects import HostAnswer
from swarmd_protocols.ids import Address

_OWN_LACK = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""This process or its system has no room for a socket."""
_TRY_AGAIN_S = 0.02
"""Seconds until a socket is tried to be opened again, as long as the question may take."""
_OPEN_PROBES_MAX = 64
"""Connections to unknown hosts at once: more members are never suspected together but in a cut."""


class HostProber:
    """Any number of probes at once, within a bound; each way of one costs a descriptor while it is open."""

    def __init__(self, reach: Reach, answered: Callable[[Address, HostAnswer], None], counts: "Counter[str]") -> None:
        """Prepare.

        Args:
            reach: Knows the ways to a destination.
            answered: Called, never from within `probe`, with the destination and what its kernel said.
            counts: Where probes are counted.
        """
        self._reach = reach
        self._answered = answered
        self._counts = counts
        self._open: dict[Address, _Probe] = {}

    def probe(self, destination: Address, timeout_ns: int) -> None:
        """Begin one probe, on all ways at once; a second one to the same destination joins the first."""
        if destination in self._open:
            return
        loop = asyncio.get_running_loop()
        if sum(len(probe.sockets) + len(probe.unopened) for probe in self._open.values()) >= _OPEN_PROBES_MAX:
            self._counts["host_probes_dropped"] += 1
            return
        self._counts["host_probes_out"] += 1
        try:
            ways = self._reach.targets(destination)
        except ValueError:
            ways = ()
        probe = _Probe(loop.call_later(timeout_ns / 1e9, self._finish, destination, HostAnswer.SILENT))
        self._open[destination] = probe
        self._try(destination, probe, ways)

    def close(self) -> None:
        """Give up all probes; may be called twice."""
        for destination in list(self._open):
            self._release(destination)

    def _try(self, destination: Address, probe: "_Probe", ways: Sequence[Way]) -> None:
        if self._open.get(destination) is not probe:
            return
        probe.unopened = [way for way in ways if not self._begin(destination, probe, way)]
        loop = asyncio.get_running_loop()
        if probe.unopened:
            loop.call_later(_TRY_AGAIN_S, self._try, destination, probe, probe.unopened)
        elif not probe.sockets:
            self._release(destination)
            loop.call_soon(self._answered, destination, probe.answer or HostAnswer.SILENT)

    def _begin(self, destination: Address, probe: "_Probe", way: Way) -> bool:
        """Ask by one way; False where there is no room for a socket."""
        _, host, port = way
        try:
            family = socket.AF_INET6 if is_ipv6(host) else socket.AF_INET
            sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        except OSError as error:
            return error.errno not in _OWN_LACK
        number = _connect(sock, host, port)
        if number in (0, errno.EINPROGRESS):
            probe.sockets.append(sock)
            asyncio.get_running_loop().add_writer(sock.fileno(), self._on_connected, destination, sock)
            return True
        sock.close()
        if _answer_of(number) is not HostAnswer.SILENT:
            probe.answer = _answer_of(number)
        return True

    def _on_connected(self, destination: Address, sock: socket.socket) -> None:
        probe = self._open[destination]
        answer = _answer_of(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
        if answer is not HostAnswer.SILENT:
            probe.answer = answer
        probe.sockets.remove(sock)
        _close(sock)
        if answer is HostAnswer.OPEN or not (probe.sockets or probe.unopened):
            self._finish(destination, HostAnswer.SILENT)

    def _finish(self, destination: Address, otherwise: HostAnswer) -> None:
        probe = self._open[destination]
        self._release(destination)
        if probe.answer is None and probe.unopened:
            self._counts["host_probes_unasked"] += 1
            return
        self._answered(destination, probe.answer or otherwise)

    def _release(self, destination: Address) -> None:
        probe = self._open.pop(destination)
        probe.timer.cancel()
        for sock in probe.sockets:
            _close(sock)


@dataclass(slots=True)
class _Probe:
    """One destination that is being asked: the ways still open, and the best that any said so far."""

    timer: asyncio.TimerHandle
    sockets: list[socket.socket] = field(default_factory=list)
    answer: HostAnswer | None = None
    unopened: Sequence[Way] = ()
    """By which there was no room for a socket."""


def _close(sock: socket.socket) -> None:
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
