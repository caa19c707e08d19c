"""Events as OpenTelemetry logs, OTLP over HTTP: one log record an event, with its kind as event name.

The exporter works in a thread of its own; a collector that is away costs nothing but a count.
"""

import time

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, LogRecordExportResult
from opentelemetry.sdk.resources import Resource

from swarmd.bridges.otel.counted import BATCH_MS, EXPORT_TIMEOUT_S, QUEUE_MAX, Counted
from swarmd.events.record import EventRecord

_SEVERITIES = {"info": SeverityNumber.INFO, "warning": SeverityNumber.WARN, "error": SeverityNumber.ERROR}


class EventLogs:
    """One logger of events."""

    def __init__(self, endpoint: str, resource: Resource, version: str) -> None:
        """Open the exporter; its thread starts with the first event.

        Args:
            endpoint: Logs address of the collector.
            resource: Who tells.
            version: The software's.
        """
        inner = OTLPLogExporter(endpoint=endpoint, timeout=EXPORT_TIMEOUT_S)
        self._exporter = Counted(inner, LogRecordExportResult.SUCCESS, LogRecordExportResult.FAILURE)
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
