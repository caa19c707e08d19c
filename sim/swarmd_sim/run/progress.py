"""A progress bar on standard error, only where somebody looks."""

import sys
import time
from types import TracebackType

_WIDTH = 30
_EVERY_S = 0.1


class Progress:
    """A bar that is drawn at most ten times a second, and only on a terminal.

    Args:
        total: When it is full.
        unit: What is counted.
        quiet: Draw nothing.
    """

    def __init__(self, total: int, unit: str, *, quiet: bool = False) -> None:
        self._total = max(1, total)
        self._unit = unit
        self._show = not quiet and sys.stderr.isatty()
        self._done = 0
        self._drawn_s = 0.0
        self._started_s = time.monotonic()

    def step(self) -> None:
        """One more is done."""
        self.to(self._done + 1)

    def to(self, done: int) -> None:
        """So many are done."""
        self._done = done
        now_s = time.monotonic()
        if self._show and now_s - self._drawn_s >= _EVERY_S:
            self._drawn_s = now_s
            self._draw(now_s)

    def _draw(self, now_s: float) -> None:
        filled = min(_WIDTH, _WIDTH * self._done // self._total)
        elapsed = now_s - self._started_s
        left = elapsed * (self._total - self._done) / self._done if self._done else 0.0
        bar = "#" * filled + "." * (_WIDTH - filled)
        sys.stderr.write(f"\r[{bar}] {self._done}/{self._total} {self._unit}, {elapsed:.0f} s, {left:.0f} s left ")
        sys.stderr.flush()

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._show:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
