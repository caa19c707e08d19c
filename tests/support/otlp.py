"""An OTLP/HTTP receiver that decodes with OpenTelemetry's own protobuf, and a collector that others have written."""

import gzip
import http.server
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="the extra `otel` is not installed")

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.exclusive import own_port


class Span:
    """What a collector knows of one span."""

    def __init__(self, service: str, raw: object) -> None:
        self.node = service
        self.name: str = raw.name  # type: ignore[attr-defined]
        self.trace: bytes = raw.trace_id  # type: ignore[attr-defined]
        self.id: bytes = raw.span_id  # type: ignore[attr-defined]
        self.parent: bytes = raw.parent_span_id  # type: ignore[attr-defined]
        self.links: list[bytes] = [link.span_id for link in raw.links]  # type: ignore[attr-defined]
        self.took_ns: int = raw.end_time_unix_nano - raw.start_time_unix_nano  # type: ignore[attr-defined]


class Collector(http.server.ThreadingHTTPServer):
    """An OTLP/HTTP receiver that decodes with OpenTelemetry's own protobuf."""

    daemon_threads = True

    def __init__(self, status: int = 200) -> None:
        self.spans: list[Span] = []
        self.logs: list[Any] = []
        self.status = status
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1/traces"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        if self.path == "/v1/logs":
            for told in ExportLogsServiceRequest.FromString(body).resource_logs:
                self.server.logs += [one for scope in told.scope_logs for one in scope.log_records]
            body = b""
        request = ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            names = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.server.spans += [Span(names["service.instance.id"], raw) for raw in scope.spans]
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def collector(status: int = 200) -> Iterator[Collector]:
    server = Collector(status)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def rotel(folder: Path, onward: str) -> Iterator[str]:
    """Rotel, a collector on PyPI: what it is sent at the address goes on as OTLP over HTTP, logs likewise.

    Args:
        folder: For its log.
        onward: Where it exports to.
    """
    spec = find_spec("rotel")
    if spec is None or spec.origin is None:
        pytest.skip("rotel is not installed (make setup-extras)")
    port = own_port()
    command = [
        str(Path(spec.origin).parent / "rotel-agent"), "start",
        "--otlp-http-endpoint", f"127.0.0.1:{port}", "--otlp-grpc-endpoint", f"127.0.0.1:{own_port()}",
        "--exporter", "otlp", "--otlp-exporter-protocol", "http", "--otlp-exporter-endpoint", onward,
    ]  # fmt: skip
    with (folder / "rotel.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{port}/v1/traces"
        assert process.poll() is None, (folder / "rotel.log").read_text()
    finally:
        process.terminate()
        process.wait(60)
