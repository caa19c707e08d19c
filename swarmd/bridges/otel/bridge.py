"""Traces of sightings: capture, infer and share at the origin; learn and object at each neighbour; one trace for all.
And of borrowed requests: borrow at who asked, lend at each lender.

Trace and span ids are derived from the sighting (`bridges/trace.py`), so that nothing has to travel. Only the first
report of a sighting is traced; what follows would fill a collector with the same story.
"""

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Mapping

from opentelemetry import trace as api
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased

from swarmd.api.daemon import BusEvent, DaemonView, LendingSpan, Look, NodeInfo
from swarmd.bridges.otel.counted import BATCH_MS, EXPORT_TIMEOUT_S, QUEUE_MAX, Counted
from swarmd.bridges.otel.logs import EventLogs, logs_endpoint
from swarmd.bridges.trace import SightingTrace, parse_traceparent, trace_of_request, trace_of_view
from swarmd.config.bridges import OtelConfig
from swarmd.errors import DaemonError
from swarmd.events.record import Happened
from swarmd_protocols.effects import StateChanged
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.clock import EPOCH_2020_NS, stamp_ms
from swarmd_protocols.state.observations import DetectionLearned, DetectionView, ObjectChanged

TRACED_MAX = 4096
"""Traces remembered, so that each is told once; the oldest go first."""
OF_OBJECT_MAX = 16
"""Of them, those that wait for the same object; others' sightings name it, without end where they like."""
CHECK_S = 5.0
"""Seconds between two looks whether exports fail, so at most one line in the log for that long."""

Attributes = Mapping[str, str | int | float | bool]


class _Ids:
    """An `IdGenerator` that gives the ids that were derived instead of random ones."""

    def __init__(self) -> None:
        self.trace_id = self.span_id = 1

    def generate_trace_id(self) -> int:
        """The trace at hand."""
        return self.trace_id

    def generate_span_id(self) -> int:
        """The span at hand."""
        return self.span_id

    def is_trace_id_random(self) -> bool:
        """W3C's random flag: a hash of what is known is none."""
        return False


class OtelBridge:
    """One connection to a collector; without a collector nothing waits."""

    name = "otel"

    def __init__(self, config: OtelConfig) -> None:
        """Prepare; the exporter's thread starts in `run`."""
        self._config = config
        self._ids = _Ids()
        self._counts: Counter[str] = Counter()
        self._traced: dict[int, None] = {}
        self._objects: dict[str, list[tuple[SightingTrace, int]]] = {}
        self._daemon: DaemonView | None = None
        self._tracer: api.Tracer | None = None
        self._exporter: Counted[ReadableSpan, SpanExportResult] | None = None
        self._logs: EventLogs | None = None

    def counters(self) -> dict[str, int]:
        """Monotonic counts: spans made, exported and failed."""
        exporter = self._exporter
        sent = {} if exporter is None else {"exported": exporter.exported, "failed": exporter.failed}
        return {**self._counts, **sent, **(self._logs.counters() if self._logs is not None else {})}

    def topics(self) -> list[tuple[str, str]]:
        """What `swarmd topics` shows."""
        logs = logs_endpoint(self._config.logs_endpoint, self._config.endpoint)
        return [(self._config.endpoint, "traces, OTLP over HTTP"), (logs, "events, OTLP over HTTP")]

    async def run(self, daemon: DaemonView) -> None:
        """Serve until cancelled; what is waiting then is still sent, if the collector answers."""
        self._daemon = daemon
        provider = self._open(daemon.info())
        unsubscribe = daemon.subscribe(self._on_event)
        try:
            await self._watch()
        finally:
            unsubscribe()
            self._tracer = None
            if self._logs is not None:
                await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, self._logs.close))
            # Joins the exporter's thread: never on the loop.
            await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, provider.shutdown))

    def _open(self, info: NodeInfo) -> TracerProvider:
        # The daemon says what is wrong in its own log; the library would write lines of another form beside it.
        library = logging.getLogger("opentelemetry")
        library.addHandler(logging.NullHandler())
        library.propagate = False
        resource = Resource.create(
            {
                "service.name": self._config.service_name,
                "service.namespace": info.swarm,
                "service.instance.id": info.name,
                "service.version": info.version,
                "swarmd.node_id": info.node.hex(),
            }
        )
        provider = TracerProvider(
            sampler=TraceIdRatioBased(self._config.sample_ratio),
            resource=resource,
            shutdown_on_exit=False,
            id_generator=self._ids,
        )
        inner = OTLPSpanExporter(endpoint=self._config.endpoint, timeout=EXPORT_TIMEOUT_S)
        self._exporter = Counted(inner, SpanExportResult.SUCCESS, SpanExportResult.FAILURE)
        provider.add_span_processor(
            BatchSpanProcessor(self._exporter, max_queue_size=QUEUE_MAX, schedule_delay_millis=BATCH_MS)
        )
        self._tracer = provider.get_tracer("swarmd", info.version)
        self._logs = EventLogs(logs_endpoint(self._config.logs_endpoint, self._config.endpoint), resource, info.version)
        return provider

    async def _watch(self) -> None:
        """Say when the collector does not take what it is given."""
        exporter, failed = self._exporter, 0
        assert exporter is not None
        while True:
            await asyncio.sleep(CHECK_S)
            if exporter.failed > failed and self._daemon is not None:
                text = (
                    f"{self._config.endpoint} did not take {exporter.failed - failed} spans; does a collector listen?"
                )
                with contextlib.suppress(DaemonError):
                    self._daemon.command("note_problem", {"where": "otel", "text": text})
            failed = exporter.failed

    # --- what happens -----------------------------------------------------------------------------------------------

    def _on_event(self, event: BusEvent) -> None:
        match event:
            case StateChanged(detail=DetectionLearned(view, kind, track_id) as learned):
                if track_id is None and kind != "end":
                    self._on_learned(view)
                elif track_id is not None and kind == "new":
                    self._on_own(learned, track_id)
            case StateChanged(detail=ObjectChanged(kind=kind, view=view)) if kind in ("new", "update"):
                for trace, learned_ns in self._objects.pop(view.object_id, ()):
                    attributes: Attributes = {
                        "swarmd.object": view.object_id,
                        "swarmd.change": kind,
                        "swarmd.label": view.label,
                    }
                    self._span(trace, "object", self._node(), "learn", self._node(), (learned_ns, _now()), attributes)
            case LendingSpan():
                self._on_lending(event)
            case Happened(record):
                if self._logs is not None:
                    self._logs.say(record)
            case _:
                pass

    def _on_own(self, learned: DetectionLearned, track_id: int) -> None:
        """The whole way of a frame at this node, told backwards from now: share has just ended."""
        assert self._daemon is not None
        one, node = learned.view, learned.view.origin
        trace = trace_of_view(one)
        if not self._is_new(trace):
            return
        look = self._daemon.look(track_id) or Look(None)
        now_ns = _now()
        captured_ns = min(now_ns, now_ns - (time.monotonic_ns() - learned.captured_ns))
        worked_ns = sum(look.stage_ns.values())
        attributes: dict[str, str | int | float | bool] = {
            "swarmd.label": one.label,
            "swarmd.score": one.score_milli / 1000,
            "swarmd.asset": one.asset,
            "swarmd.track": track_id,
            "model_digest": one.model_digest.hex(),
        }
        # The frame waits for the eye first: `infer` begins where the eye took it up.
        waited_ns = max(0, look.started_ns - learned.captured_ns) if look.started_ns else 0
        began_ns = min(now_ns, captured_ns + waited_ns)
        inferred_ns = min(now_ns, began_ns + worked_ns)
        self._span(trace, "capture", node, "", node, (captured_ns, now_ns), attributes)
        if look.stage_ns:
            stages = {f"swarmd.{stage}_ms": ns / 1e6 for stage, ns in look.stage_ns.items()}
            self._span(trace, "infer", node, "capture", node, (began_ns, inferred_ns), stages)
        self._span(trace, "share", node, "capture", node, (inferred_ns, now_ns), {})

    def _on_learned(self, view: DetectionView) -> None:
        trace = trace_of_view(view)
        if not self._is_new(trace):
            return
        now_ns = _now()
        first_ns = EPOCH_2020_NS + stamp_ms(view.first_hlc) * 1_000_000
        attributes: Attributes = {
            "swarmd.origin": view.origin.hex(),
            "swarmd.label": view.label,
            "swarmd.since_first_seen_ms": (now_ns - first_ns) / 1e6,
        }
        self._span(trace, "learn", self._node(), "share", view.origin, (now_ns, now_ns), attributes)
        if view.object_id:
            waiting = self._objects.setdefault(view.object_id, [])
            waiting.append((trace, now_ns))
            del waiting[:-OF_OBJECT_MAX]
            while len(self._objects) > TRACED_MAX:
                del self._objects[next(iter(self._objects))]

    def _on_lending(self, event: LendingSpan) -> None:
        """A borrowed request: at its borrower the root, at each lender what hangs below it."""
        trace, node = trace_of_request(event.borrower, event.request), self._node()
        now_ns, mono_ns = _now(), time.monotonic_ns()
        times_ns = (now_ns - (mono_ns - event.began_ns), now_ns - (mono_ns - event.ended_ns))
        is_root = event.name == "borrow"
        if is_root != (node == event.borrower):
            return  # Nobody's root is another's to tell.
        key = event.name if is_root else f"{event.name}/{event.attempt}"
        parent = "" if is_root else "borrow"
        attributes = {**event.attributes, "swarmd.attempt": event.attempt}
        self._span(trace, event.name, node, parent, event.borrower, times_ns, attributes, key, event.cause)

    # --- spans ------------------------------------------------------------------------------------------------------

    def _node(self) -> NodeId:
        assert self._daemon is not None
        return self._daemon.info().node

    def _is_new(self, trace: SightingTrace) -> bool:
        if trace.trace_id in self._traced:
            return False
        self._traced[trace.trace_id] = None
        while len(self._traced) > TRACED_MAX:
            del self._traced[next(iter(self._traced))]
        return True

    def _span(
        self,
        trace: SightingTrace,
        name: str,
        node: NodeId,
        parent: str,
        parent_node: NodeId,
        times_ns: tuple[int, int],
        attributes: Attributes,
        key: str = "",
        cause: str = "",
    ) -> None:
        """One span that is over already; `parent` "" makes the root.

        `key` names it where a node makes several of one name; `cause` is the `traceparent` that it is linked to.
        """
        if self._tracer is None:
            return
        context = api.set_span_in_context(api.INVALID_SPAN)
        if parent:
            flags = api.TraceFlags(api.TraceFlags.SAMPLED)
            above = api.SpanContext(trace.trace_id, trace.span_id(parent, parent_node), node != parent_node, flags)
            context = api.set_span_in_context(api.NonRecordingSpan(above))
        self._ids.trace_id, self._ids.span_id = trace.trace_id, trace.span_id(key or name, node)
        links = []
        if caused := parse_traceparent(cause):
            flags = api.TraceFlags(api.TraceFlags.SAMPLED if caused[2] else api.TraceFlags.DEFAULT)
            links = [api.Link(api.SpanContext(caused[0], caused[1], True, flags))]
        span = self._tracer.start_span(name, context, start_time=times_ns[0], attributes=dict(attributes), links=links)
        if span.is_recording():
            self._counts["spans"] += 1
        span.end(times_ns[1])


def _now() -> int:
    return time.time_ns()
