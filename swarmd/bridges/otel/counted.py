"""An exporter whose successes and failures show up in the metrics, for spans and for logs."""

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
Sent = TypeVar("Sent", contravariant=True)
Answer = TypeVar("Answer", covariant=True)

QUEUE_MAX = 2048
"""Items that wait for an exporter: OpenTelemetry's own default."""
BATCH_MS = 1000
"""Milliseconds between two exports: people read them, and a request a second is little."""
EXPORT_TIMEOUT_S = 2.0
"""Seconds for one export; a collector on the same network answers in milliseconds."""


class Exporter(Protocol[Sent, Answer]):
    """What OpenTelemetry's exporters have in common."""

    def export(self, batch: Sequence[Sent], /) -> Answer:
        """Send a batch."""

    def shutdown(self) -> None:
        """Close the connection."""


class Counted(Generic[Item, Result]):
    """A `SpanExporter` or `LogRecordExporter` that counts; runs in the batch processor's thread."""

    def __init__(self, inner: Exporter[Item, Result], success: Result, failure: Result) -> None:
        """Wrap one.

        Args:
            inner: Who sends.
            success: What it answers when a batch was taken.
            failure: What it answers otherwise.
        """
        self._inner = inner
        self._success = success
        self._failure = failure
        self.exported = self.failed = 0

    def export(self, batch: Sequence[Item]) -> Result:
        """Send, and count."""
        try:
            result = self._inner.export(batch)
        except Exception:  # A collector's nonsense must not end the thread.
            result = self._failure
        if result == self._success:
            self.exported += len(batch)
        else:
            self.failed += len(batch)
        return result

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Nothing waits here."""
        return True

    def shutdown(self) -> None:
        """Close the connection."""
        self._inner.shutdown()
