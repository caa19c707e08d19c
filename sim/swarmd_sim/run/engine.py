"""Virtual time: one queue of calls, and a digest of everything that happened.

Rules that this file keeps:

- Time is an integer number of nanoseconds since the run began. Two calls due at the same time run in the order in
  which they were scheduled.
- Only what is due within the present 17 ms stands in a heap; the rest waits in lists by their time, so that a call
  costs the same among a million as among a hundred.
- The digest depends only on integers and bytes fed to `trace`, so a seed gives the same digest under any
  PYTHONHASHSEED and on any CPU.
"""

from collections.abc import Callable
from hashlib import blake2b
from heapq import heapify, heappop, heappush
from typing import Any, TypeAlias

Call: TypeAlias = Callable[[Any], None]

_FLUSH_BYTES = 1 << 16
_SPAN_BITS = 24
"""A list of what is due later spans 2**24 ns, 17 ms."""
_Entry: TypeAlias = tuple[int, int, Call, Any]


class StopRun(Exception):
    """Raised by a scheduled call to end the run at this very event (a replay up to event N)."""


class Storm(Exception):
    """So many calls in so little virtual time that the run would never end: a finding, not a slow machine."""


class Engine:
    """Calls in the order of their time, and a trace digest.

    Args:
        calls_max: Calls after which a run is a storm.
    """

    __slots__ = (
        "_buffer",
        "_calls_left",
        "_later",
        "_near",
        "_near_ns",
        "_order",
        "_pending",
        "_spans",
        "events",
        "now_ns",
    )

    def __init__(self, calls_max: int = 1 << 62) -> None:
        self._calls_left = calls_max
        self._near: list[_Entry] = []
        """A heap of all that is due before `_near_ns`."""
        self._near_ns = 0
        self._later: dict[int, list[_Entry]] = {}
        self._spans: list[int] = []
        """A heap of the keys of `_later`."""
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
        order = self._order = self._order + 1
        if due_ns < self.now_ns:
            due_ns = self.now_ns
        if due_ns < self._near_ns:
            heappush(self._near, (due_ns, order, call, argument))
            return
        span = due_ns >> _SPAN_BITS
        waiting = self._later.get(span)
        if waiting is None:
            self._later[span] = [(due_ns, order, call, argument)]
            heappush(self._spans, span)
        else:
            waiting.append((due_ns, order, call, argument))

    def _refill(self, end_ns: int) -> bool:
        """Take the next list into the empty heap; False when nothing is due up to `end_ns`."""
        if not self._spans or self._spans[0] << _SPAN_BITS > end_ns:
            return False
        span = heappop(self._spans)
        # In place: whoever runs the calls holds the list.
        self._near[:] = self._later.pop(span)
        heapify(self._near)
        self._near_ns = (span + 1) << _SPAN_BITS
        return True

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
        near, left = self._near, self._calls_left
        while near or self._refill(end_ns):
            if near[0][0] > end_ns:
                break
            self.now_ns, _order, call, argument = heappop(near)
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
        near = self._near
        while (near or self._refill(end_ns)) and near[0][0] <= end_ns and self.events < events:
            self.now_ns, _order, call, argument = heappop(near)
            call(argument)

    def digest(self) -> str:
        """The trace's digest so far: 32 hex digits."""
        self._pending.update(self._buffer)
        self._buffer.clear()
        return self._pending.hexdigest()

    @property
    def scheduled(self) -> int:
        """Calls that wait, including cancelled timers that have not been swept yet."""
        return len(self._near) + sum(map(len, self._later.values()))

    def sweep(self, is_dead: Callable[[Call, Any], bool]) -> None:
        """Drop scheduled calls that would do nothing, so that re-armed timers do not fill memory.

        Args:
            is_dead: Tells whether a call with its argument would do nothing.
        """
        self._near[:] = [entry for entry in self._near if not is_dead(entry[2], entry[3])]
        heapify(self._near)
        for span, waiting in self._later.items():
            self._later[span] = [entry for entry in waiting if not is_dead(entry[2], entry[3])]
