"""Drives the node: events in, effects out, in order; no protocol decision is made here.

- One event at a time: what arrives while effects are performed waits in a queue, so `Node.handle` is never re-entered.
- The `Persist` effects of one `handle` call are committed together before its first other effect is performed.
- One timer of the event loop stands for all of the node's timers; it is set anew when an event is done, so that a
  cancelled one wakes nobody. A timer is handed over with `max(due_ns, now)`, since an event loop may fire a hair early.
"""

import asyncio
import heapq
import time
from collections import deque
from collections.abc import Callable

from swarmd.api.bus import Bus
from swarmd.api.metrics import Metrics
from swarmd.brain.journal import Journal
from swarmd.logs import Logger
from swarmd.transports.base import Transport, TransportHandlers
from swarmd_protocols.effects import (
    Alarm,
    CancelTimer,
    Command,
    DatagramReceived,
    Effect,
    Event,
    HostAnswer,
    HostProbed,
    Order,
    Persist,
    ProbeHost,
    Rejected,
    SendCast,
    SendDatagram,
    SendFailed,
    SendStream,
    SetTimer,
    StreamReceived,
    TimerFired,
    TimerKey,
)
from swarmd_protocols.ids import Address
from swarmd_protocols.node import Node

Clock = Callable[[], int]


class Driver:
    """Performs one node's effects on real sockets, timers and disk."""

    def __init__(
        self, journal: Journal, bus: Bus, log: Logger, metrics: Metrics, clock_ns: Clock = time.monotonic_ns
    ) -> None:
        """Prepare; `attach` gives it the node and the transport."""
        self._journal = journal
        self._bus = bus
        self._log = log
        self._clock_ns = clock_ns
        self._node: Node | None = None
        self._transport: Transport | None = None
        self._events: deque[Event] = deque()
        self._orders: dict[str, Callable[[object], None]] = {}
        self._busy = False
        self._due: dict[TimerKey, int] = {}
        self._heap: list[tuple[int, int, TimerKey]] = []
        self._sequence = 0
        self._wake: asyncio.TimerHandle | None = None
        self._wake_at_ns = 0
        self._handle_time = metrics.stage("handle")
        self._late_time = metrics.stage("timer_late")
        self._commit_time = metrics.stage("commit")
        self.on_lost: Callable[[Address], None] = lambda address: None
        """Told of each connection to a member that stood and was ended by the other side."""
        self.counts = {"events": 0, "effects": 0, "crashes": 0, "rejected": 0, "alarms": 0}

    def handlers(self) -> TransportHandlers:
        """What the transport is started with."""
        return TransportHandlers(
            datagram=lambda source, data: self.post(DatagramReceived(source, data)),
            stream=lambda source, data: self.post(StreamReceived(source, data)),
            send_failed=lambda destination, reason: self.post(SendFailed(destination, reason)),
            host_probed=self._on_host_probed,
            lost=lambda destination: self.on_lost(destination),
        )

    def attach(self, node: Node, transport: Transport) -> None:
        """Begin; what arrived before now is handled after `Started`."""
        self._node = node
        self._transport = transport

    def post(self, event: Event) -> None:
        """Take an event from the world; never raises."""
        self._events.append(event)
        if not self._busy and self._node is not None:
            self._pump()

    def request(self, event: Event) -> None:
        """Take a local request.

        Raises:
            StateError: The node refuses it; nothing has changed.
        """
        if self._busy:
            # A bus callback asks from inside an effect; it is answered by what follows, not by an exception.
            self._events.append(event)
            return
        assert self._node is not None
        self._busy = True
        try:
            self._perform(self._handle(event, self._clock_ns()))
        finally:
            self._busy = False
        self._pump()

    def on_order(self, subprotocol: str, carry_out: Callable[[object], None]) -> None:
        """Who carries out what a sub-protocol orders; returns at once, and answers by `command` later."""
        self._orders[subprotocol] = carry_out

    def command(self, subprotocol: str, request: object) -> None:
        """Give a sub-protocol a request; raises `StateError`."""
        self.request(Command(subprotocol, request))

    def close(self) -> None:
        """Stop timers and take no more events."""
        self._node = None
        self._events.clear()
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None

    # --- inside ---------------------------------------------------------------------------------------------------

    def _on_host_probed(self, destination: Address, answer: HostAnswer) -> None:
        self.post(HostProbed(destination, answer))

    def _pump(self) -> None:
        self._busy = True
        try:
            while self._events and self._node is not None:
                self._step(self._events.popleft(), self._clock_ns())
        finally:
            self._busy = False
        if self._node is not None:
            self._arm()

    def _step(self, event: Event, now_ns: int) -> None:
        try:
            self._perform(self._handle(event, now_ns))
        except Exception as error:  # A bug in one event's path must not end the daemon on every other device too.
            self.counts["crashes"] += 1
            self._log.error("node_crashed", cause=type(event).__name__, error=error, trace=_trace(error))

    def _handle(self, event: Event, now_ns: int) -> list[Effect]:
        assert self._node is not None
        began = time.perf_counter_ns()
        effects = self._node.handle(event, now_ns)
        self._handle_time.add(time.perf_counter_ns() - began)
        self.counts["events"] += 1
        return effects

    def _perform(self, effects: list[Effect]) -> None:
        records = [(effect.key, effect.value) for effect in effects if isinstance(effect, Persist)]
        if records:
            began = time.perf_counter_ns()
            self._journal.commit(records)
            self._commit_time.add(time.perf_counter_ns() - began)
        for effect in effects:
            self._perform_one(effect)
        self.counts["effects"] += len(effects)

    def _perform_one(self, effect: Effect) -> None:
        transport = self._transport
        assert transport is not None
        match effect:
            case SendDatagram(destination, data):
                transport.send_datagram(destination, data)
            case SendStream(destination, data, deadline_ns, bulk):
                transport.send_stream(destination, data, deadline_ns, bulk)
            case SendCast(data):
                transport.send_cast(data)
            case ProbeHost(destination, timeout_ns):
                transport.probe_host(destination, timeout_ns)
            case SetTimer(key, at_ns):
                self._set_timer(key, at_ns)
            case CancelTimer(key):
                self._due.pop(key, None)
            case Persist():
                pass  # Committed above, before anything else.
            case Rejected(source, reason):
                self.counts["rejected"] += 1
                self._log.debug("rejected", source=source, reason=reason)
                self._bus.publish(effect)
            case Alarm(code, text):
                self.counts["alarms"] += 1
                self._log.warning("alarm", code=code, text=text)
                self._bus.publish(effect)
            case Order(subprotocol, request):
                self._orders[subprotocol](request)
            case _:
                self._bus.publish(effect)

    # --- timers ---------------------------------------------------------------------------------------------------

    def _set_timer(self, key: TimerKey, at_ns: int) -> None:
        self._due[key] = at_ns
        self._sequence += 1
        heapq.heappush(self._heap, (at_ns, self._sequence, key))
        if len(self._heap) > 64 + 4 * len(self._due):
            self._heap = [(due, number, key) for number, (key, due) in enumerate(self._due.items())]
            heapq.heapify(self._heap)
            self._sequence = len(self._heap)

    def _arm(self) -> None:
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)  # Cancelled or replaced since.
        at_ns = self._heap[0][0] if self._heap else 0
        if self._wake is not None:
            if self._wake_at_ns == at_ns:
                return
            self._wake.cancel()
            self._wake = None
        if not self._heap:
            return
        self._wake_at_ns = at_ns
        loop = asyncio.get_running_loop()
        self._wake = loop.call_later(max(0, at_ns - self._clock_ns()) / 1e9, self._on_wake)

    def _on_wake(self) -> None:
        self._wake = None
        if self._busy:  # Never while effects are performed, but a nested loop turn would be our own bug.
            return
        self._busy = True
        try:
            self._fire_due()
        finally:
            self._busy = False
        if self._node is not None:
            self._pump()

    def _fire_due(self) -> None:
        now_ns = self._clock_ns() + 500_000  # The loop's clock is rounded; half a millisecond early is on time.
        while self._heap and self._heap[0][0] <= now_ns and self._node is not None:
            at_ns, _, key = heapq.heappop(self._heap)
            if self._due.get(key) != at_ns:
                continue
            del self._due[key]
            self._late_time.add(max(0, self._clock_ns() - at_ns))
            self._step(TimerFired(key), max(at_ns, self._clock_ns()))


def _trace(error: BaseException) -> str:
    import traceback

    return "".join(traceback.format_exception(error))[-1500:]
