"""Notifications inside the brain: from the driver to bridges, CLI watchers and metrics.

Callbacks run on the loop, in order of subscription, and must not block. One that raises is counted, logged and dropped
for that event; the next ones still hear it. A slow consumer subscribes with a `Feed`, whose queue is bounded.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from swarmd.api.daemon import BusEvent, LendingSpan
from swarmd.logs import Logger
from swarmd_protocols.effects import Alarm, Rejected

Notice: TypeAlias = BusEvent | Rejected | Alarm
FEED_MAX = 1024
"""Notices that a slow consumer may lag behind: a minute of a busy swarm's; the oldest go first, and are counted."""


class Bus:
    """Who hears what."""

    def __init__(self, log: Logger) -> None:
        """Start with nobody listening."""
        self._log = log
        self._callbacks: dict[int, Callable[[Notice], None]] = {}
        self._next = 0
        self.failed_callbacks = 0

    def subscribe(self, callback: Callable[[Notice], None]) -> Callable[[], None]:
        """Call back for each notice from now on; the returned function ends it."""
        number = self._next
        self._next += 1
        self._callbacks[number] = callback
        return lambda: self._callbacks.pop(number, None) and None

    def publish(self, notice: Notice) -> None:
        """Tell everybody."""
        for callback in list(self._callbacks.values()):
            try:
                callback(notice)
            except Exception as error:  # A bridge's bug must not reach the protocols.
                self.failed_callbacks += 1
                self._log.error("bus_callback_failed", notice=type(notice).__name__, error=error)


class Feed:
    """A bounded queue of notices for a slow consumer; the oldest go first when it falls behind, and are counted."""

    def __init__(self, bus: Bus, limit: int = FEED_MAX) -> None:
        """Listen from now on, keeping at most `limit` notices."""
        self._notices: deque[Notice] = deque(maxlen=limit)
        self._wake = asyncio.Event()
        self._end = bus.subscribe(self._on_notice)
        self.dropped = 0

    def _on_notice(self, notice: Notice) -> None:
        if isinstance(notice, LendingSpan):
            return  # As many as others ask: they push nothing out.
        if len(self._notices) == self._notices.maxlen:
            self.dropped += 1
        self._notices.append(notice)
        self._wake.set()

    async def next(self) -> Notice:
        """The next notice, waiting for it."""
        while not self._notices:
            self._wake.clear()
            await self._wake.wait()
        return self._notices.popleft()

    def close(self) -> None:
        """Stop listening."""
        self._end()
