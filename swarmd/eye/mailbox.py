"""One frame between the thread that captures and the loop that infers.

`newest`: a frame that was not taken in time is replaced and counted; what is inferred is never older than the last
capture. Lossless: the capturing thread waits until the frame has been taken (files that are read as fast as possible).
"""

import threading

from swarmd_models.types import Frame


class Mailbox:
    """A slot for one frame."""

    def __init__(self, newest: bool) -> None:
        """Drop (`newest`) or wait when the slot is full."""
        self._newest = newest
        self._changed = threading.Condition()
        self._frame: Frame | None = None
        self._is_closed = False
        self.dropped = 0
        """Frames that a newer one replaced."""

    def put(self, frame: Frame) -> bool:
        """Leave a frame; False once the mailbox is closed."""
        with self._changed:
            if not self._newest:
                self._changed.wait_for(lambda: self._frame is None or self._is_closed)
            if self._is_closed:
                return False
            if self._frame is not None:
                self.dropped += 1
            self._frame = frame
            self._changed.notify_all()
            return True

    def take(self, timeout_s: float) -> Frame | None:
        """The frame, or None after the time or when the mailbox is closed and empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._frame is not None or self._is_closed, timeout_s)
            frame, self._frame = self._frame, None
            self._changed.notify_all()
            return frame

    def holds(self, frame: Frame) -> bool:
        """Whether a frame waits: neither taken nor replaced."""
        with self._changed:
            return self._frame is frame

    def close(self) -> None:
        """No more frames; the one inside can still be taken."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    @property
    def is_drained(self) -> bool:
        """Closed, and nothing left inside."""
        with self._changed:
            return self._is_closed and self._frame is None
