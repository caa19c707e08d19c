"""Numbers that no other test on this machine uses at the same time: DDS domains, ports, names of networks.

A number is claimed by binding an abstract Unix socket named after it. The kernel keeps those apart for each network
namespace, as it does the ports and domains that they stand for, and frees them when their process ends, however that
comes about.
"""

import contextlib
import itertools
import os
import socket
from collections.abc import Iterator, Sequence

DOMAINS = tuple(number for number in range(1, 80) if number != 42)
"""DDS domains of tests. Domain d uses UDP ports 7400 + 250 d and on (DDSI-RTPS 2.5, 9.6.2.3): up to 27 399 here, below
the ports that the kernel gives out. 0 is that of ROS 2, 42 that of swarms."""
PORTS = tuple(range(27_500, 32_700, 2))
"""The first of two neighbouring ports; above those of DOMAINS, below Linux's ephemeral ones (32 768 and up)."""

_turns = itertools.count()


class Claim:
    """One number of one kind, held until closed or until the process ends."""

    def __init__(self, kind: str, numbers: Sequence[int]) -> None:
        """Claim a number, starting elsewhere in each process and at each turn.

        Args:
            kind: What the number is of.
            numbers: Those to choose from.

        Raises:
            RuntimeError: All of them are taken.
        """
        start = os.getpid() * 7 + next(_turns)
        for offset in range(len(numbers)):
            self.number = numbers[(start + offset) % len(numbers)]
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                self._socket.bind(f"\0swarmd-tests/{kind}/{self.number}")
                return
            except OSError:
                self._socket.close()
        raise RuntimeError(f"all {len(numbers)} numbers for a {kind} are in use by other tests")

    def close(self) -> None:
        """Let others have it."""
        self._socket.close()


@contextlib.contextmanager
def own_domain() -> Iterator[int]:
    """A DDS domain of one's own.

    Yields:
        Its number.
    """
    claim = Claim("dds-domain", DOMAINS)
    try:
        yield claim.number
    finally:
        claim.close()


_ports: list[Claim] = []


def own_port() -> int:
    """A TCP and UDP port of 127.0.0.1 that nobody listens on; it and the next one stay this process's own.

    Unlike a port from the kernel, it cannot be given to anyone else between now and the time it is listened on.
    """
    while True:
        claim = Claim("port", PORTS)
        _ports.append(claim)
        try:
            for port in (claim.number, claim.number + 1):
                for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                    with socket.socket(socket.AF_INET, kind) as tried:
                        tried.bind(("127.0.0.1", port))
            return claim.number
        except OSError:
            continue  # A program that is no test of ours has it.


def own_name(prefix: str) -> str:
    """A name for a network namespace or interface that no other test process uses; at most 9 characters longer."""
    return f"{prefix}{os.getpid():x}"
