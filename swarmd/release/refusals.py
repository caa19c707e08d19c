"""What others sent and this node refused: a log that nobody can use to wear out the disk or to push out history.

A refusal costs the one who causes it nothing, so it must cost this node next to nothing:

- Noting one is counting: no file, no queue that can grow. Each source has a bucket of lines; what is over is added to
  the `more` of its next line.
- Lines wait in a queue of `PENDING_MAX`, apart from everything that acts, and are written together, with one sync, at
  most once in `FLUSH_S`, by a thread of their own.
- In each file a source has a share of `SHARE_BYTES`; when it is used up its refusals only count. A file that 32 sources
  have filled is continued in a new one and the one before stays, so whatever one member sends, what the others did
  stays readable.
- A source whose bucket runs empty is named in an alarm, at most once in `ALARM_PAUSE_NS`.
"""

import asyncio
import json
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import msgspec

from swarmd.rates import TokenBucket
from swarmd.release.audit import MAX_FIELD, AuditLog

FILE_NAME = "refused.jsonl"
FILE_BYTES = 1 << 20
"""Bytes of one file; with the one before it, 2 MiB: what a memory card does not notice."""
SHARE_BYTES = FILE_BYTES // 32
"""Bytes of one source in one file: about 80 lines, enough to see what it tries."""
LINES_BURST = 8
"""Lines of one source at once: a stale peer's statements after a long absence."""
LINES_PER_S = 1 / 60
"""Lines a second of one source: with `more` they say as much as thousands would."""
PENDING_MAX = 64
"""Lines that wait to be written: eight sources that begin at once."""
SOURCES_MAX = 512
"""Sources that are remembered; the one that has been quiet for longest is forgotten first."""
FLUSH_S = 1.0
"""Seconds between two writes, so that a burst is one sync."""
ALARM_PAUSE_NS = 3_600_000_000_000
"""Nanoseconds between two alarms about one source: it is there to be acted on, not to be counted."""

_AROUND_BYTES = 300
"""Bytes of a line around its fields: number, time, two hashes, names."""

Clock = Callable[[], int]


class _Source(msgspec.Struct):
    bucket: TokenBucket = msgspec.field(default_factory=lambda: TokenBucket(LINES_PER_S, LINES_BURST))
    total: int = 0
    more: int = 0
    file_bytes: int = 0
    alarm_at_ns: int | None = None


class RefusalLog:
    """Notes refusals on the loop, writes them beside it.

    Args:
        folder: Where `refused.jsonl` lies.
        alarm: Told of a source that floods: (source, how many of its statements were refused so far).
        clock_ns: Monotonic clock.

    Raises:
        ReleaseError: The folder cannot be used.
    """

    def __init__(self, folder: Path, alarm: Callable[[str, int], None], clock_ns: Clock = time.monotonic_ns) -> None:
        self._log = AuditLog(folder, FILE_BYTES, FILE_NAME, kept_files=1)
        self._alarm = alarm
        self._clock_ns = clock_ns
        self._sources: OrderedDict[str, _Source] = OrderedDict()
        self._pending: list[dict[str, str | int | bool]] = []
        self._wake = asyncio.Event()
        self.counts = {"refused": 0, "lines": 0, "coalesced": 0}
        for source, size in _shares(self._log.path).items():
            self._of(source).file_bytes = size

    @property
    def pending_count(self) -> int:
        """Lines that wait to be written."""
        return len(self._pending)

    def note(self, kind: str, digest: str, source: str, reason: str) -> None:
        """One refusal; returns at once.

        Args:
            kind: What the statement claimed to be.
            digest: Its hash, hexadecimal digits.
            source: Who sent it, as the channel proved it.
            reason: Why it was refused.
        """
        self.counts["refused"] += 1
        now_ns, one = self._clock_ns(), self._of(source)
        one.total += 1
        size = _AROUND_BYTES + sum(len(text[:MAX_FIELD].encode()) for text in (kind, digest, source, reason))
        has_turn = one.bucket.take(now_ns)
        if not has_turn or one.file_bytes + size > SHARE_BYTES or len(self._pending) >= PENDING_MAX:
            one.more += 1
            self.counts["coalesced"] += 1
            if not has_turn and (one.alarm_at_ns is None or now_ns - one.alarm_at_ns >= ALARM_PAUSE_NS):
                one.alarm_at_ns = now_ns
                self._alarm(source, one.total)
            return
        line: dict[str, str | int | bool] = {
            "what": "refused",
            "t_s": int(time.time()),
            "kind": kind,
            "digest": digest,
            "source": source,
            "reason": reason,
        }
        if one.more:
            line["more"] = one.more
            one.more = 0
        one.file_bytes += size
        self._pending.append(line)
        self._wake.set()

    async def run(self) -> None:
        """Write what waits, together, until cancelled.

        Raises:
            ReleaseError: The disk does not take a line; what waited is dropped and counted.
        """
        while True:
            await self._wake.wait()
            self._wake.clear()
            lines = self._take()
            if await asyncio.to_thread(self._log.add_all, lines):
                self._begin_file()
            self.counts["lines"] += len(lines)
            await asyncio.sleep(FLUSH_S)

    def close(self) -> None:
        """Write what still waits."""
        lines = self._take()
        if lines:
            self._log.add_all(lines)

    def _take(self) -> list[dict[str, str | int | bool]]:
        lines, self._pending = self._pending, []
        return lines

    def _begin_file(self) -> None:
        for one in self._sources.values():
            one.file_bytes = 0

    def _of(self, source: str) -> _Source:
        one = self._sources.get(source)
        if one is None:
            one = self._sources[source] = _Source()
            if len(self._sources) > SOURCES_MAX:
                self._sources.popitem(last=False)
        self._sources.move_to_end(source)
        return one


def _shares(path: Path) -> dict[str, int]:
    """How much of a file is whose: a source does not get a new share with each restart."""
    shares: dict[str, int] = {}
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except OSError:
        return shares
    for line in lines:
        try:
            source = str(json.loads(line)["source"])
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        shares[source] = shares.get(source, 0) + len(line)
    return shares
