"""A network of Linux namespaces for real daemons: one a node, joined by a bridge in one more. Needs root and iproute2.

Deleting the namespaces undoes all of it. The names hold this process's id, so two runs do not meet.
"""

import os
import shutil
import subprocess
from types import TracebackType

from swarmd_sim.errors import SimError

_TIMEOUT_S = 60.0
"""Seconds for one command of iproute2; on a loaded machine some take ten."""


def unavailable() -> str:
    """Why namespaces cannot be made here; "" when they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need the command ip (iproute2)"
    probe = f"sw{os.getpid() % 100_000}-try"
    try:
        _ip("netns", "add", probe)
        _ip("netns", "delete", probe)
    except SimError as error:
        return str(error)
    return ""


def _ip(*arguments: str, lines: str = "") -> None:
    done = subprocess.run(
        ["ip", *arguments], input=lines, text=True, capture_output=True, timeout=_TIMEOUT_S, check=False
    )
    if done.returncode:
        raise SimError(f"ip {' '.join(arguments)} failed: {done.stderr.strip()[:200]}")


class Namespaces:
    """A context: `count` namespaces that reach each other.

    Args:
        count: How many; at most 250.
    """

    def __init__(self, count: int) -> None:
        self._prefix = f"sw{os.getpid() % 100_000}"
        self._count = count

    def __enter__(self) -> "Namespaces":
        """Make them.

        Raises:
            SimError: The kernel refuses.
        """
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Remove them."""
        self._remove()

    def _make(self) -> None:
        switch = f"{self._prefix}-sw"
        _ip("netns", "add", switch)
        lines = ["link add br0 type bridge forward_delay 0 stp_state 0", "link set br0 up"]
        for index in range(self._count):
            name = self.name(index)
            _ip("netns", "add", name)
            lines += [
                f"link add p{index} type veth peer name eth0 netns {name}",
                f"link set p{index} master br0",
                f"link set p{index} up",
            ]
        _ip("-n", switch, "-batch", "-", lines="\n".join(lines) + "\n")
        for index in range(self._count):
            inside = [f"addr add {self.address(index)}/24 dev eth0", "link set lo up", "link set eth0 up"]
            _ip("-n", self.name(index), "-batch", "-", lines="\n".join(inside) + "\n")

    def _remove(self) -> None:
        for name in [*(self.name(index) for index in range(self._count)), f"{self._prefix}-sw"]:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, timeout=_TIMEOUT_S, check=False)

    def name(self, index: int) -> str:
        """The namespace of a node."""
        return f"{self._prefix}-{index}"

    def address(self, index: int) -> str:
        """The address of a node, without port."""
        return f"10.93.0.{index + 1}"

    def command(self, index: int, command: list[str]) -> list[str]:
        """The command line that runs a command in a node's namespace; it becomes that process, no child of it."""
        return ["ip", "netns", "exec", self.name(index), *command]


class Loopback:
    """Stands in where namespaces cannot be made: everybody on 127.0.0.1, one port each."""

    def __enter__(self) -> "Loopback":
        """Nothing to make."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Nothing to remove."""

    def address(self, index: int) -> str:
        """The address of a node, without port."""
        return "127.0.0.1"

    def command(self, index: int, command: list[str]) -> list[str]:
        """The command line as it is."""
        return command
