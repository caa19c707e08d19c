"""What the daemon asks of a bridge.

A bridge sees the daemon as a `DaemonView`, runs as one supervised task, and fails alone: a broker that is down or a
library that is missing is counted and said, and nothing else slows down.
"""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from swarmd.api.daemon import DaemonView
from swarmd.api.histogram import Histogram


class Bridge(Protocol):
    """One outside interface."""

    @property
    def name(self) -> str:
        """Short and fixed: its configuration section, task name and metrics label."""
        ...

    async def run(self, daemon: DaemonView) -> None:
        """Serve until cancelled; reconnects by itself; clean on cancellation."""
        ...

    def counters(self) -> dict[str, int]:
        """Monotonic counts for metrics: published, received, dropped_<reason>, reconnects."""
        ...


@runtime_checkable
class Measured(Protocol):
    """A bridge that also tells how full its queues are."""

    def gauges(self) -> dict[str, int]:
        """Messages by queue."""
        ...


@runtime_checkable
class Answered(Protocol):
    """A bridge to a server that acknowledges what it takes."""

    round_trips: Histogram
    """From sending to the server's word that it has it."""


@runtime_checkable
class Linked(Protocol):
    """A bridge to one vehicle, whose link people ask about."""

    def status(self) -> Mapping[str, object]:
        """What is known of the link and of the vehicle."""
        ...


@runtime_checkable
class Rowed(Protocol):
    """A plug-in, whose process people ask about."""

    def row(self) -> Mapping[str, object]:
        """Its package, its process, and what is wrong with it."""
        ...
