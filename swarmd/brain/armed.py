"""Whether the vehicle is armed, as long as the autopilot says so: a word that has grown old is none."""

import time
from collections.abc import Callable

MAX_AGE_NS = 5_000_000_000
"""Nanoseconds; five heartbeats that did not come, as long as an autopilot may be silent without an alert."""


class ArmedWord:
    """What was said last."""

    def __init__(self, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        """Nobody has said anything.

        Args:
            clock_ns: Monotonic clock.
        """
        self._clock_ns = clock_ns
        self._said: bool | None = None
        self._said_ns = 0

    def say(self, is_armed: bool | None) -> None:
        """The autopilot says so now; None: it does not know."""
        self._said, self._said_ns = is_armed, self._clock_ns()

    def __call__(self) -> bool | None:
        """Whether it is armed; None where nobody has said so lately."""
        return self._said if self._clock_ns() - self._said_ns <= MAX_AGE_NS else None
