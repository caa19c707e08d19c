"""Virtual time: one heap of calls, and a digest of everything that happened.

Rules that this file keeps:

- Time is an integer number of nanoseconds since the run began. Two calls due at the same time run in the order in
  which they were scheduled.
- The digest depends only on integers and bytes fed to `trace`, so a seed gives the same digest under any
  PYTHONHASHSEED and on any CPU.
"""

from collections.abc import Callable
from hashlib import blake2b
from heapq import heapify, heappop, heappush
from typing import Any, TypeAlias

Call: TypeAlias = Callable[[Any], None]

_FLUSH_BYTES = 1 << 16


class StopRun(Exception):
    """Raised by a scheduled call to end the run at this very event (a replay up to event N)."""


class Storm(Exception):
    """So many calls in so little virtual time that the run would never end: a finding, not a slow machine."""


class Engine:
    """A heap of due calls and a trace digest.

    Args:
        calls_max: Calls after which a run is a storm.
    """

    __slots__ = ("_buffer", "_calls_left", "_heap", "_order", "_pending", "events", "now_ns")

    def __init__(self, calls_max: int = 1 << 62) -> None:
        self._calls_left = calls_max
        self._heap: list[tuple[int, int, Call, Any]] = []
        self._order = 0
        self._pending = blake2b(digest_size=16, person=b"swarmd-sim-trace")
        self._buffer = bytearray()
        self.now_ns = 0
        self.events = 0

    def at(self, due_ns: int, call: Call, argument: Any = None) -> None:
        """Schedule `call(argument)`; a time in the past means now.

        Args:
            due_ns: Virtual time, nanoseconds.
            call: What to call.
            argument: Its only argument.
        """
        self._order += 1
        heappush(self._heap, (due_ns if due_ns > self.now_ns else self.now_ns, self._order, call, argument))

    def trace(self, record: bytes) -> None:
        """Feed the digest.

        Args:
            record: Bytes that are equal exactly when the same thing happened.
        """
        buffer = self._buffer
        buffer += record
        if len(buffer) >= _FLUSH_BYTES:
            self._pending.update(buffer)
            buffer.clear()

    def run_until(self, end_ns: int) -> None:
        """Perform every call that is due before or at `end_ns`, then set the time to it.

        Args:
            end_ns: Virtual time, nanoseconds.
        """
        heap, left = self._heap, self._calls_left
        while heap and heap[0][0] <= end_ns:
            self.now_ns, _order, call, argument = heappop(heap)
            call(argument)
            left -= 1
            if left < 0:
                raise Storm
        self._calls_left = left
        self.now_ns = max(self.now_ns, end_ns)

    def run_until_event(self, end_ns: int, events: int) -> None:
        """Like `run_until`, but end at this event already.

        Args:
            end_ns: Virtual time, nanoseconds.
            events: Value of `events` at which to stop.
        """
        heap = self._heap
        while heap and heap[0][0] <= end_ns and self.events < events:
            self.now_ns, _order, call, argument = heappop(heap)
            call(argument)

    def digest(self) -> str:
        """The trace's digest so far: 32 hex digits."""
        self._pending.update(self._buffer)
        self._buffer.clear()
        return self._pending.hexdigest()

    @property
    def scheduled(self) -> int:
        """Calls that wait, including cancelled timers that have not been swept yet."""
        return len(self._heap)

    def sweep(self, is_dead: Callable[[Call, Any], bool]) -> None:
        """Drop scheduled calls that would do nothing, so that re-armed timers do not fill memory.

        Args:
            is_dead: Tells whether a call with its argument would do nothing.
        """
        self._heap[:] = [entry for entry in self._heap if not is_dead(entry[2], entry[3])]
        heapify(self._heap)
