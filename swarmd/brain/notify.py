"""What systemd hears: READY, STATUS, WATCHDOG, RELOADING, STOPPING (sd_notify(3)); nothing happens without systemd."""

import os
import socket
import time
from collections.abc import Mapping


class Notifier:
    """Sends lines to `$NOTIFY_SOCKET`, a path or an abstract socket whose name starts with `@`."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        """Read `NOTIFY_SOCKET` and `WATCHDOG_USEC` from the environment."""
        variables = os.environ if environment is None else environment
        path = variables.get("NOTIFY_SOCKET", "")
        self._address = "\0" + path[1:] if path.startswith("@") else path
        self._watchdog_usec = _number(variables.get("WATCHDOG_USEC", ""))
        if _number(variables.get("WATCHDOG_PID", "")) not in (0, os.getpid()):
            self._watchdog_usec = 0

    @property
    def watchdog_interval_s(self) -> float | None:
        """Half of what systemd asks for, so that one late turn of the loop is no death; None without a watchdog."""
        return self._watchdog_usec / 2e6 if self._watchdog_usec and self._address else None

    @property
    def is_heard(self) -> bool:
        """Whether anybody listens, so that a status line is worth composing."""
        return bool(self._address)

    def ready(self, status: str) -> None:
        """The sockets are bound and the configuration holds; peers need not be found."""
        self._send(f"READY=1\nSTATUS={status}")

    def status(self, text: str) -> None:
        """One line that `systemctl status` shows."""
        self._send(f"STATUS={text}")

    def watchdog(self) -> None:
        """The loop turns."""
        self._send("WATCHDOG=1")

    def reloading(self) -> None:
        """SIGHUP came; `ready` ends it."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """The daemon leaves the swarm."""
        self._send("STOPPING=1")

    def _send(self, text: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
                channel.setblocking(False)
                channel.sendto(text.encode(), self._address)
        except OSError:
            return  # A manager that is gone or slow must not stop the daemon.


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0
