"""The eye's end of the socket pair: a sender for any thread, and a reader that ends the process with the brain."""

import ctypes
import os
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable

from swarmd.errors import EyeError
from swarmd.eye.ipc import FromEye, Splitter, ToEye, decode_to_eye, encode

_CHUNK_BYTES = 65_536
"""Bytes read at a time: a pipe's own buffer on Linux. Source: pipe(7)."""
BRAIN_GONE_STATUS = 0
"""Exit status when the brain has gone: nothing is wrong with the eye."""
THREAD_FAILED_STATUS = 5
"""Exit status when a thread beside the one that infers has ended on what nobody foresaw."""


class Link:
    """Messages to and from the brain."""

    def __init__(self, connection: socket.socket) -> None:
        """Talk over a connected stream socket."""
        self._socket = connection
        self._sending = threading.Lock()
        self._splitter = Splitter()
        self._ready: list[bytes] = []

    def send(self, message: FromEye) -> None:
        """Hand a message over; waits while the brain does not read. The end of the brain is the end of the eye."""
        data = encode(message)
        try:
            with self._sending:
                self._socket.sendall(data)
        except OSError:
            leave(BRAIN_GONE_STATUS)

    def receive(self) -> ToEye | None:
        """The next message, or None when the brain has gone."""
        while not self._ready:
            try:
                data = self._socket.recv(_CHUNK_BYTES)
            except OSError:
                return None
            if not data:
                return None
            self._ready += self._splitter.feed(data)
        return decode_to_eye(self._ready.pop(0))

    def listen(self, handle: Callable[[ToEye], None]) -> None:
        """Handle messages for ever; leaves the process when the brain goes or talks nonsense."""
        while True:
            try:
                message = self.receive()
            except EyeError:
                leave(BRAIN_GONE_STATUS)
            if message is None:
                leave(BRAIN_GONE_STATUS)
            else:
                handle(message)


def leave(status: int) -> None:
    """End the process now, whatever its other threads hang in."""
    os._exit(status)


def every(interval_s: float, work: Callable[[], None], stop: threading.Event) -> None:
    """Do `work` at an interval until `stop`."""
    due = time.monotonic()
    while not stop.is_set():
        work()
        due += interval_s
        stop.wait(max(0.0, due - time.monotonic()))
        due = max(due, time.monotonic() - interval_s)


def all_or_nothing(is_over: Callable[[], bool], work: Callable[..., None], *args: object) -> None:
    """Work in a thread; what nobody has foreseen ends the process: without its thread an eye looks well and is blind.

    Args:
        is_over: Whether the eye ends anyway; then its threads end as they may.
        work: What to do.
        args: For it.
    """
    try:
        work(*args)
    except Exception:
        if not is_over():
            traceback.print_exc()  # The supervisor tells it, and starts the next eye.
            leave(THREAD_FAILED_STATUS)


class WorkClock:
    """How long a frame has been worked on, told at every pulse of a thread beside the work.

    Time in which that thread did not come to its turn either is no work: the whole process was stopped, by a debugger,
    a freezer or the machine below a virtual one, and whoever takes it for a hang ends an eye that is well.
    """

    def __init__(self, pulse_ns: int) -> None:
        """Nothing is worked on.

        Args:
            pulse_ns: Between two pulses; one that comes ten times later comes after a stop.
        """
        self._late_ns = 10 * pulse_ns
        self._last_ns = 0
        self._since_ns = 0
        self._stopped_ns = 0

    def busy_ns(self, now_ns: int, since_ns: int) -> int:
        """Of the frame that was begun at `since_ns`, 0 where there is none; nanoseconds.

        >>> clock = WorkClock(50)
        >>> clock.busy_ns(1_000, 990), clock.busy_ns(1_050, 990), clock.busy_ns(3_050, 990), clock.busy_ns(3_100, 990)
        (10, 60, 60, 110)
        """
        if since_ns != self._since_ns:
            self._since_ns, self._stopped_ns = since_ns, 0
        passed_ns, self._last_ns = now_ns - max(self._last_ns, since_ns), now_ns
        if passed_ns > self._late_ns:
            self._stopped_ns += passed_ns
        return now_ns - since_ns - self._stopped_ns if since_ns else 0


def die_with_parent() -> None:
    """Ask Linux to kill this process when its parent dies, also while it is stopped or hangs."""
    pr_set_pdeathsig = 1
    try:
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    except (OSError, AttributeError):
        return  # Not Linux: the end of the socket does it, unless the process is stopped.
