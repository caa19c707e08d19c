"""Who has the heights about the camera read: at once, or by a thread of its own before they are needed.

Rules of `ReadAhead`:

- Who asks never waits for a file: it is given the patch that is here, or none yet. One that is asked for at
  `AHEAD_M` from the middle of the last is here when rays begin to leave that, at less than 35 m/s for 3 s of reading.
- One patch is read at a time and one is held beside it, whatever poses say; what cannot be read is tried again after
  `RETRY_S`.
"""

import threading
import time
from collections.abc import Callable
from typing import Protocol

from swarmd_models.errors import SourceError
from swarmd_models.geo.geolocate import MAX_RANGE_M
from swarmd_models.geo.heights import PATCH_REACH_M, HeightReader, Patch, is_near_middle

AHEAD_M = 0.8 * (PATCH_REACH_M - MAX_RANGE_M)
"""Metres from a patch's middle at which the next one is asked for: 400 of 500, a quarter more reading than at 500."""
RETRY_S = 5.0
"""Seconds after which a file that could not be read is tried again: a card that was pulled out comes back."""
SLOW_S = 10.0
"""Seconds after which a patch that is still being read is something to be told: it takes one to three."""


class Patches(Protocol):
    """Gives the heights about a place."""

    def about(self, latitude_deg: float, longitude_deg: float) -> Patch | None:
        """The patch for a camera here, which may reach less far than its rays; None: it has not been read yet.

        Raises:
            SourceError: The file has gone or is broken.
        """
        ...

    @property
    def slow(self) -> str:
        """What people should know of a patch that does not come; "": nothing."""
        ...


class ReadNow:
    """Reads while the caller waits: what looks at files wants every frame placed."""

    slow = ""

    def __init__(self, reader: HeightReader) -> None:
        """Read nothing yet."""
        self._reader = reader
        self._patch: Patch | None = None

    def about(self, latitude_deg: float, longitude_deg: float) -> Patch:
        """The patch for a camera here."""
        if self._patch is None or not is_near_middle(self._patch, latitude_deg, longitude_deg):
            self._patch = None
            self._patch = self._reader.patch(latitude_deg, longitude_deg)
        return self._patch


class ReadAhead:
    """Reads in a thread that lives for one patch; what it has found is taken by whoever asks next.

    Args:
        reader: Reads; called by one thread at a time.
        clock_s: Seconds, monotonic.
    """

    def __init__(self, reader: HeightReader, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._reader = reader
        self._clock_s = clock_s
        self._patch: Patch | None = None
        self._error = ""
        self._thread: threading.Thread | None = None
        self._found: Patch | str = ""
        """Written by the thread, read when it has ended."""
        self._since_s = 0.0
        self._again_s = 0.0

    def about(self, latitude_deg: float, longitude_deg: float) -> Patch | None:
        """See `Patches`; at once, and has another one read where it will be needed."""
        where = latitude_deg, longitude_deg
        now_s = self._clock_s()
        if self._thread is not None and not self._thread.is_alive():
            self._thread = None
            if isinstance(self._found, Patch):
                self._patch, self._error = self._found, ""
            else:
                self._error, self._again_s = self._found, now_s + RETRY_S
            self._found = ""
        is_due = self._patch is None or not is_near_middle(self._patch, *where, AHEAD_M)
        if is_due and self._thread is None and now_s >= self._again_s:
            self._start(where, now_s)
        if self._error and (self._patch is None or not is_near_middle(self._patch, *where)):
            raise SourceError(self._error)
        return self._patch

    @property
    def slow(self) -> str:
        """See `Patches`."""
        is_slow = self._thread is not None and self._clock_s() - self._since_s > SLOW_S
        return f"is still being read after {SLOW_S:.0f} s" if is_slow else ""

    def _start(self, where: tuple[float, float], now_s: float) -> None:
        thread = threading.Thread(target=self._read, args=where, name="heights", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # No room for another thread.
            self._error, self._again_s = f"heights cannot be read ahead: {error}", now_s + RETRY_S
            return
        self._thread, self._since_s = thread, now_s

    def _read(self, latitude_deg: float, longitude_deg: float) -> None:
        try:
            self._found = self._reader.patch(latitude_deg, longitude_deg)
        except Exception as error:  # Whatever it is, the eye must hear of it: a thread that dies tells nobody.
            self._found = str(error) or type(error).__name__
