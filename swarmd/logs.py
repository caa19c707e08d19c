"""Structured logs on standard error: one JSON object a line, or text for people.

A record is a short fixed `event` plus fields: `log.info("peer_failed", peer="drone-2")`. Fields never hold keys or
frames. The same message (of the same bridge) is written at most `BURST` times in `WINDOW_S`; what was held back is
counted in the next line that passes, so that a flood from outside cannot fill a disk.

Where standard error is the journal's own stream, each line begins with its syslog priority, `<4>` for a warning, so
that `journalctl -p warning` finds it. Source: sd-daemon(3), `JOURNAL_STREAM` in systemd.exec(5).
"""

import json
import os
import sys
import time
from typing import Any, TextIO

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
PRIORITIES = {"debug": 7, "info": 6, "warning": 4, "error": 3}
"""Level to syslog severity. Source: RFC 5424, table 2."""
BURST = 10
WINDOW_S = 10.0
FIELD_MAX_CHARS = 2000


class Logger:
    """The daemon's one log; cheap when a level is off."""

    def __init__(
        self, node: str = "", level: str = "info", format_: str = "json", stream: TextIO | None = None
    ) -> None:
        """Write to `stream` (standard error by default) in the name of `node`."""
        self._node = node
        self._stream = stream
        self._has_priorities = stream is None and is_journal(os.environ.get("JOURNAL_STREAM", ""), sys.stderr)
        self._seen: dict[str, tuple[float, int]] = {}
        self.lines = dict.fromkeys(LEVELS, 0)
        """Lines asked for by level, also those held back."""
        self.configure(level, format_)

    def configure(self, level: str, format_: str) -> None:
        """Change level and format while running."""
        self._threshold = LEVELS[level]
        self._json = format_ == "json"

    def bind(self, node: str) -> None:
        """Set the node's name once it is known."""
        self._node = node

    def debug(self, event: str, **fields: Any) -> None:
        """For a developer who looks."""
        self._write("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        """Normal life."""
        self._write("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """The daemon recovered or goes on with less."""
        self._write("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        """A person has to do something."""
        self._write("error", event, fields)

    def _write(self, level: str, event: str, fields: dict[str, Any]) -> None:
        self.lines[level] += 1
        if LEVELS[level] < self._threshold:
            return
        held_back = self._admit(f"{level} {event} {fields.get('where', '')}")
        if held_back is None:
            return
        if held_back:
            fields["held_back"] = held_back
        stream = self._stream if self._stream is not None else sys.stderr
        try:
            priority = f"<{PRIORITIES[level]}>" if self._has_priorities else ""
            stream.write(f"{priority}{self._line(level, event, fields)}\n")
            stream.flush()
        except (OSError, ValueError):
            return  # Nobody reads standard error any more; the daemon's work does not depend on it.

    def _admit(self, key: str) -> int | None:
        """How many lines like this were held back before this one, or None when this one is held back too."""
        now = time.monotonic()
        since, count = self._seen.get(key, (now, 0))
        if now - since > WINDOW_S:
            self._seen[key] = (now, 1)
            return max(0, count - BURST)
        self._seen[key] = (since, count + 1)
        return 0 if count < BURST else None

    def _line(self, level: str, event: str, fields: dict[str, Any]) -> str:
        clean = {name: _short(value) for name, value in fields.items()}
        if self._json:
            stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + f".{time.time_ns() // 1_000_000 % 1000:03d}Z"
            return json.dumps(
                {"t": stamp, "level": level, "device_id": self._node, "event": event, **clean}, default=str
            )
        tail = " ".join(f"{name}={value}" for name, value in clean.items())
        return f"{time.strftime('%H:%M:%S')} {level.upper():7} {self._node} {event} {tail}".rstrip()


def is_journal(told: str, stream: TextIO) -> bool:
    """Whether a stream is the one that systemd named: `device:inode` of its connection to the journal."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError, AttributeError):
        return False
    return told == f"{status.st_dev}:{status.st_ino}"


def _short(value: Any) -> Any:
    if isinstance(value, bytes):
        value = value.hex()
    if isinstance(value, BaseException):
        value = f"{type(value).__name__}: {value}"
    if isinstance(value, str) and len(value) > FIELD_MAX_CHARS:
        return value[:FIELD_MAX_CHARS] + "…"
    return value
