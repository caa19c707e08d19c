"""`run --events json`: what happens, one JSON object a line on standard output, and requests on standard input.

    {"event": "up|join|suspect|degraded|failed|leave|user|object|release", "subject": …, "t_ns": …}      out
    {"cmd": "event", "name": …}                                                                              in

`t_ns` is `time.monotonic_ns`, which processes of one host share. A reader that does not read slows nothing: the pipe is
written without blocking and lines that do not fit are counted and dropped.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from swarmd.api.bus import Bus, Feed, Notice
from swarmd.events.record import Happened
from swarmd.logs import Logger
from swarmd_protocols.effects import MemberChanged, MemberState, StateChanged, UserEventDelivered
from swarmd_protocols.state.observations import ObjectChanged

LINE_MAX_BYTES = 64 << 10
"""Bytes of one command line on standard input: 64 times the longest user event."""
BACKLOG_MAX_BYTES = 4 << 20
"""Bytes of event lines that wait for a slow reader: some 20,000 lines; then new ones are dropped and counted."""

_MEMBER_EVENTS = {
    MemberState.ALIVE: "join",
    MemberState.SUSPECT: "suspect",
    MemberState.DEGRADED: "degraded",
    MemberState.FAILED: "failed",
    MemberState.LEFT: "leave",
    MemberState.AWAY: "away",
    MemberState.UNREACHABLE: "unreachable",
}


def event_of(notice: Notice) -> dict[str, Any] | None:
    """The line of a notice, without its time; None where the contract has none."""
    match notice:
        case MemberChanged(node, name, old, new, reason):
            if new is old:
                return None
            return {"event": _MEMBER_EVENTS[new], "subject": name, "node": node.hex(), "reason": reason}
        case UserEventDelivered(_, origin_name, name, payload):
            return {
                "event": "user",
                "subject": name,
                "origin": origin_name,
                "payload": payload.decode("utf-8", "replace"),
            }
        case StateChanged(_, ObjectChanged("update")):
            return None
        case StateChanged(_, ObjectChanged(kind, view, superseded_by)):
            line = {
                "event": "object",
                "subject": view.object_id,
                "kind": kind,
                "label": view.label,
                "asset": view.asset,
            }
            return {**line, "superseded_by": superseded_by} if superseded_by else line
        case _:
            return None


class EventLines:
    """Writes event lines to a pipe or file without ever blocking the loop."""

    def __init__(self, bus: Bus, log: Logger, descriptor: int) -> None:
        """Begin to write notices to `descriptor`."""
        self._log = log
        self._descriptor = descriptor
        self._backlog = bytearray()
        self._waiting = False
        self.dropped = 0
        os.set_blocking(descriptor, False)
        bus.subscribe(self._on_notice)

    def say(self, event: str, subject: str, **fields: object) -> None:
        """Write one line."""
        self._write({"event": event, "subject": subject, "t_ns": time.monotonic_ns(), **fields})

    def _on_notice(self, notice: Notice) -> None:
        line = event_of(notice)
        if line is not None:
            self._write({**line, "t_ns": time.monotonic_ns()})

    def _write(self, line: dict[str, Any]) -> None:
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        if len(self._backlog) + len(data) > BACKLOG_MAX_BYTES:
            self.dropped += 1
            return
        self._backlog += data
        if not self._waiting:
            self._flush()

    def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._backlog:
                sent = os.write(self._descriptor, self._backlog[: 64 << 10])
                del self._backlog[:sent]
        except BlockingIOError:
            if not self._waiting:
                self._waiting = True
                loop.add_writer(self._descriptor, self._flush)
            return
        except OSError:
            self._backlog.clear()  # The reader has gone; the daemon has not.
        if self._waiting:
            self._waiting = False
            loop.remove_writer(self._descriptor)


def read_commands(on_event: Callable[[str], None], log: Logger) -> None:
    """Read command lines from standard input on the loop until it ends."""
    descriptor = sys.stdin.fileno()
    loop = asyncio.get_running_loop()
    buffer = bytearray()

    def on_readable() -> None:
        try:
            part = os.read(descriptor, 64 << 10)
        except BlockingIOError:
            return
        except OSError:
            part = b""
        if not part:
            loop.remove_reader(descriptor)
            return
        buffer.extend(part)
        while b"\n" in buffer:
            line, _, rest = bytes(buffer).partition(b"\n")
            buffer[:] = rest
            _take(line, on_event, log)
        if len(buffer) > LINE_MAX_BYTES:
            buffer.clear()
            log.warning("stdin_line_too_long", most_bytes=LINE_MAX_BYTES)

    try:
        os.set_blocking(descriptor, False)
        loop.add_reader(descriptor, on_readable)
    except (OSError, PermissionError):
        log.debug("stdin_not_readable")  # A regular file or /dev/null cannot be watched; there is nothing to read.


def _take(line: bytes, on_event: Callable[[str], None], log: Logger) -> None:
    try:
        request = json.loads(line)
        command, name = request["cmd"], request["name"]
        if command != "event" or not isinstance(name, str):
            raise ValueError
    except (ValueError, KeyError, TypeError, RecursionError):
        log.warning("stdin_line_refused", line=line[:200].decode("utf-8", "replace"))
        return
    on_event(name)


async def follow_events(bus: Bus) -> AsyncIterator[Mapping[str, Any]]:
    """Rows of what happens, from now on."""
    feed = Feed(bus)
    try:
        while True:
            if isinstance(notice := await feed.next(), Happened):
                yield notice.record.row()
    finally:
        feed.close()
