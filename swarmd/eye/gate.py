"""Where the eye shows that it works, so that whoever lends this device's inference keeps out of its way.

Sixteen bytes of memory that both processes map: no call and no message a frame. A reader may see one field of one
frame and the other of the next; it then waits once for nothing, or not at all.

```
 0               8              16
 ├───────────────┼───────────────┤
 │ busy_since_ns │ due_ns        │   monotonic, native byte order; 0: not busy, not known
 └───────────────┴───────────────┘
```
"""

import mmap
import os
import struct

_FIELD = struct.Struct("=Q")
GATE_BYTES = 16
PAUSE_MAX_NS = 100_000_000
"""Longest that a lender waits for the eye before one inference: an eye that is always busy leaves it ten a second."""
_STUCK_NS = 2_000_000_000
"""An eye that has been busy for so long hangs (`supervisor.STALL_MIN_S`), and nobody waits for it."""


def pause_ns(now_ns: int, busy_since_ns: int, due_ns: int, job_ns: int) -> int:
    """How long to wait before the next look at the gate; 0: go.

    Args:
        now_ns: Monotonic.
        busy_since_ns: Since when the eye works on a frame; 0: it does not.
        due_ns: When its next frame is expected; 0: unknown.
        job_ns: What one inference of the lender takes.

    >>> pause_ns(1_000, 0, 1_900, 500), pause_ns(1_000, 0, 1_400, 500)
    (0, 400)
    """
    if busy_since_ns:
        return 0 if now_ns - busy_since_ns > _STUCK_NS else min(max(job_ns // 4, 250_000), 2_000_000)
    # A frame that is late is waited for no longer than one job would take.
    return max(due_ns - now_ns, job_ns // 8) if due_ns - job_ns < now_ns < due_ns + job_ns // 4 else 0


class EyeGate:
    """The shared memory: the eye writes, a lender reads."""

    def __init__(self, descriptor: int) -> None:
        """Map an open file of `GATE_BYTES`; the descriptor stays the caller's. Raises `OSError`, `ValueError`."""
        self._memory = mmap.mmap(descriptor, GATE_BYTES)
        self._started_ns = 0
        self._interval_ns = 0.0

    @staticmethod
    def make() -> int:
        """The descriptor of new, anonymous memory, not inherited unless passed on; raises `OSError`."""
        descriptor = os.memfd_create("swarmd-eye-gate", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, GATE_BYTES)
        return descriptor

    def begin(self, now_ns: int) -> None:
        """The eye has a frame."""
        if self._started_ns:
            interval = now_ns - self._started_ns
            self._interval_ns += (interval - self._interval_ns) * (0.2 if self._interval_ns else 1.0)
        self._started_ns = now_ns
        _FIELD.pack_into(self._memory, 0, now_ns)

    def end(self) -> None:
        """It has done with it; the next one is expected an interval after the last one's beginning."""
        due_ns = self._started_ns + round(self._interval_ns) if self._interval_ns else 0
        _FIELD.pack_into(self._memory, 8, due_ns)
        _FIELD.pack_into(self._memory, 0, 0)

    def look(self) -> tuple[int, int]:
        """(busy since, due), monotonic nanoseconds."""
        return _FIELD.unpack_from(self._memory, 0)[0], _FIELD.unpack_from(self._memory, 8)[0]
