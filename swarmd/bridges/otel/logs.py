"""Events as OpenTelemetry logs, OTLP over HTTP: one log record an event, with its kind as event name.

The exporter works in a thread of its own; a collector that is away costs nothing but a count.
"""

import time
from collections.abc import Sequence

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import LoggerProvider, ReadableLogRecord
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, LogRecordExportResult
from opentelemetry.sdk.resources import Resource

from swarmd.events.record import EventRecord

QUEUE_MAX = 2048
"""Records that wait for the exporter: OpenTelemetry's own default."""
BATCH_MS = 1000
"""Milliseconds between two exports, as for traces."""
EXPORT_TIMEOUT_S = 2.0
"""Seconds for one export; a collector on the same network answers in milliseconds."""
_SEVERITIES = {"info": SeverityNumber.INFO, "warning": SeverityNumber.WARN, "error": SeverityNumber.ERROR}


class _Counted:
    """A `LogRecordExporter` that counts for the metrics; runs in the batch processor's thread."""

    def __init__(self, inner: OTLPLogExporter) -> None:
        self._inner = inner
        self.exported = self.failed = 0

    def export(self, batch: Sequence[ReadableLogRecord]) -> LogRecordExportResult:
        """Send, and count."""
        try:
            result = self._inner.export(batch)
        except Exception:  # A collector's nonsense must not end the thread.
            result = LogRecordExportResult.FAILURE
        if result is LogRecordExportResult.SUCCESS:
            self.exported += len(batch)
        else:
            self.failed += len(batch)
        return result

    def shutdown(self) -> None:
        """Close the connection."""
        self._inner.shutdown()


class EventLogs:
    """One logger of events."""

    def __init__(self, endpoint: str, resource: Resource, version: str) -> None:
        """Open the exporter; its thread starts with the first event.

        Args:
            endpoint: Logs address of the collector.
            resource: Who tells.
            version: The software's.
        """
        self._exporter = _Counted(OTLPLogExporter(endpoint=endpoint, timeout=EXPORT_TIMEOUT_S))
        self._provider = LoggerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_log_record_processor(
            BatchLogRecordProcessor(self._exporter, schedule_delay_millis=BATCH_MS, max_queue_size=QUEUE_MAX)
        )
        self._logger = self._provider.get_logger("swarmd.events", version)

    def counters(self) -> dict[str, int]:
        """Monotonic counts."""
        return {"logs_exported": self._exporter.exported, "logs_failed": self._exporter.failed}

    def say(self, record: EventRecord) -> None:
        """Queue one event."""
        text = " ".join(part for part in (record.subject, record.reason) if part)
        self._logger.emit(
            LogRecord(
                timestamp=record.at_ms * 1_000_000,
                observed_timestamp=time.time_ns(),
                severity_text=record.level.upper(),
                severity_number=_SEVERITIES[record.level],
                body=f"{record.kind}: {text}" if text else record.kind,
                event_name=record.kind,
                attributes={
                    "swarmd.event.id": record.event_id,
                    "swarmd.event.origin": record.origin,
                    "swarmd.event.origin_id": record.origin_id,
                    "swarmd.event.subject": record.subject,
                    "swarmd.event.reason": record.reason,
                    "swarmd.event.evidence": record.evidence,
                },
            )
        )

    def close(self) -> None:
        """Send what waits and end the thread; blocks, so never on the loop."""
        self._provider.shutdown()


def logs_endpoint(endpoint: str, traces_endpoint: str) -> str:
    """Where logs go: as configured, else where the collector of the traces takes logs.

    >>> logs_endpoint("", "http://collector:4318/v1/traces")
    'http://collector:4318/v1/logs'
    """
    return endpoint or traces_endpoint.removesuffix("/v1/traces").rstrip("/") + "/v1/logs"
