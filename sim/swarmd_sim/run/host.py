"""One device of the simulated swarm: a node with its clock, disk, CPU and timers.

The host does what the daemon's driver does, in the same order: it hands events to `handle` and performs the effects
one by one. Between any two effects it can crash. A host contains no protocol decision.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias
from zlib import crc32

from swarmd_protocols.effects import (
    CancelTimer,
    Command,
    DatagramReceived,
    Effect,
    Event,
    HostAnswer,
    HostProbed,
    Persist,
    ProbeHost,
    SendCast,
    SendDatagram,
    SendFailed,
    SendStream,
    SetTimer,
    Started,
    StreamReceived,
    TimerFired,
    TimerKey,
)
from swarmd_protocols.errors import StateError
from swarmd_sim.faults.clocks import NodeClock
from swarmd_sim.faults.disk import ModelledDisk
from swarmd_sim.radio.network import Network
from swarmd_sim.run.engine import Engine

Then: TypeAlias = Callable[[str], None]
"""Told "" when a local request is through, or why it was refused."""

BACKLOG_MAX = 512
"""Frames that a socket buffer keeps while the process does not run."""


_ASLEEP_NS = 10_000_000
"""A process that has not run for so long finds its caches cold."""


class NodeLike(Protocol):
    """What the host drives: `swarmd_protocols.node.Node`, or a small test node."""

    def handle(self, event: Event, now_ns: int) -> list[Effect]:
        """One event in, effects out."""
        ...


class Observer(Protocol):
    """Who is told what happens: checkers, figures and the timeline."""

    def on_effect(self, host: "Host", effect: Effect) -> None:
        """A notification effect was given."""

    def on_event(self, host: "Host", event: Event) -> None:
        """A host is about to handle an event (only called while somebody watches)."""

    def on_crash(self, host: "Host", reason: str) -> None:
        """A host's process has gone."""

    def on_boot(self, host: "Host") -> None:
        """A host's process begins a life."""


class Cores:
    """Processor cores that several hosts share, as the daemons of one machine do; first come, first served.

    Args:
        count: How many.
    """

    __slots__ = ("_free_ns",)

    def __init__(self, count: int) -> None:
        self._free_ns = [0] * count

    def free_ns(self) -> int:
        """When the first of them is free."""
        return min(self._free_ns)

    def take(self, now_ns: int, cost_ns: int) -> None:
        """Keep the core that has been free for longest busy."""
        free_ns = self._free_ns
        free_ns[free_ns.index(min(free_ns))] = now_ns + cost_ns


class Host:
    """One device.

    Args:
        index: Its number.
        name: The node's name.
        address: Where the network finds it.
        engine: Virtual time.
        network: Where its frames go.
        observer: Who is told.
        fsync_ns: How long a durable write takes.
        cpu_ns: What handling one event costs at full speed.
        wake_ns: What the first one after a sleep costs on top.
        teardown_ns: How long a killed process keeps its ports before the kernel refuses for it.
        cores: Shared with other hosts; None where each has its own.
    """

    __slots__ = (
        "_backlog",
        "_busy_until_ns",
        "_cores",
        "_crash_in_effects",
        "_crash_reason",
        "_network",
        "_observer",
        "_resuming",
        "_teardown_ns",
        "_timers",
        "_token",
        "_wake_ns",
        "_wake_set",
        "address",
        "base_cpu_ns",
        "base_drift_ppb",
        "base_fsync_ns",
        "boots",
        "clock",
        "cpu_ns",
        "cpu_used_ns",
        "crashed_ns",
        "disk",
        "engine",
        "events_handled",
        "first_heard_ns",
        "forbidden",
        "forked",
        "hostile",
        "index",
        "known_ns",
        "left",
        "machine_up",
        "name",
        "node",
        "node_id",
        "process_up",
        "slowdown_milli",
        "stalled_from_ns",
        "stalled_until_ns",
        "started_ns",
        "wall_step_ns",
        "watched",
    )

    def __init__(
        self,
        index: int,
        name: str,
        address: str,
        engine: Engine,
        network: Network,
        observer: Observer,
        fsync_ns: int,
        cpu_ns: int,
        wake_ns: int,
        teardown_ns: int = 0,
        cores: Cores | None = None,
    ) -> None:
        self.index = index
        self.name = name
        self.address = address
        self.engine = engine
        self._network = network
        self._observer = observer
        self.disk = ModelledDisk(fsync_ns)
        self.clock = NodeClock(0, 0, 0, 0)
        self.cpu_ns = self.base_cpu_ns = cpu_ns
        self._wake_ns = wake_ns
        self.base_fsync_ns = fsync_ns
        self.base_drift_ppb = 0
        self.wall_step_ns = 0
        self.slowdown_milli = 1_000
        self.node: Any = None
        self.node_id = b""
        self.process_up = False
        self.machine_up = False
        self.forbidden = False
        self.forked = False
        self.hostile = False
        self.left = False
        self.watched = False
        self.boots = 0
        self.first_heard_ns = self.known_ns = -1
        self.stalled_from_ns = self.stalled_until_ns = -1
        self.started_ns = 0
        self.crashed_ns = 0
        self.events_handled = 0
        self.cpu_used_ns = 0
        self._timers: dict[TimerKey, int] = {}
        self._token = 0
        self._busy_until_ns = 0
        self._teardown_ns = teardown_ns
        self._cores = cores
        self._backlog: deque[Event | tuple[Event, Then | None]] = deque()
        self._wake_set = False
        self._resuming: tuple[list[Effect], int, Then | None] | None = None
        self._crash_in_effects = 0
        self._crash_reason = ""

    # --- Life -------------------------------------------------------------------------------------------------------

    def boot(self, make_node: Callable[["Host"], NodeLike], clock: NodeClock) -> None:
        """Begin a life: a new node on what the disk holds.

        Args:
            make_node: Builds the node from `self.disk.records()`.
            clock: This life's clock.
        """
        assert not self.process_up
        self.clock = clock
        self.boots += 1
        self.machine_up = self.process_up = True
        self.left = False
        self.started_ns = self.engine.now_ns
        self.first_heard_ns = self.known_ns = -1
        self.stalled_from_ns = self.stalled_until_ns = -1
        self._timers.clear()
        self._backlog.clear()
        self._busy_until_ns = 0
        self._wake_set = False
        self._resuming = None
        self._crash_in_effects = 0
        self.node = make_node(self)
        self._observer.on_boot(self)
        self.handle(Started())

    def crash(self, reason: str, *, power: bool) -> None:
        """The process is gone at once.

        Args:
            reason: For the timeline.
            power: The machine is off too, so that nothing answers for it.
        """
        if not self.process_up:
            return
        self.process_up = False
        self.machine_up = not power and not self._teardown_ns
        if not power and self._teardown_ns:
            self.engine.at(self.engine.now_ns + self._teardown_ns, self._torn_down, self.boots)
        self.crashed_ns = self.engine.now_ns
        self.disk.crash()
        self._timers.clear()
        self._backlog.clear()
        self._resuming = None
        self._trace(b"X", reason.encode())
        self._observer.on_crash(self, reason)

    def _torn_down(self, boot: int) -> None:
        if boot == self.boots:
            self.machine_up = True

    def crash_within(self, effects: int, reason: str) -> None:
        """Crash at an effect boundary.

        Args:
            effects: Effects performed before it happens; 0 calls it off.
            reason: For the timeline.
        """
        self._crash_in_effects = effects
        self._crash_reason = reason

    def stall(self, duration_ns: int) -> None:
        """The process does not run for a while: SIGSTOP, a GC pause, a busy CPU."""
        if self.process_up:
            now_ns = self.engine.now_ns
            if self.stalled_until_ns <= now_ns:
                self.stalled_from_ns = now_ns
            self.stalled_until_ns = max(self.stalled_until_ns, now_ns + duration_ns)
            self._busy_until_ns = max(self._busy_until_ns, now_ns + duration_ns)
            self._arm_wake()

    @property
    def stalled(self) -> bool:
        """Whether the process does not run just now."""
        return self._busy_until_ns > self.engine.now_ns

    @property
    def last_ran_ns(self) -> int:
        """When the process ran last: now, or when the stall that goes on began."""
        now_ns = self.engine.now_ns
        return self.stalled_from_ns if self.stalled_until_ns > now_ns else now_ns

    def wall_offset_ns(self) -> int:
        """Wall clock minus monotonic clock, as the daemon reads it at its start."""
        now_ns = self.engine.now_ns
        return self.clock.wall_ns(now_ns) - self.clock.local_ns(now_ns)

    # --- Events in --------------------------------------------------------------------------------------------------

    def receive_datagram(self, source: str, data: bytes) -> None:
        """A datagram arrived."""
        self.handle(DatagramReceived(source, data))

    def receive_stream(self, source: str, data: bytes) -> None:
        """A stream frame arrived."""
        self.handle(StreamReceived(source, data))

    def send_failed(self, destination: str, reason: str) -> None:
        """The transport refused to send; told on the next turn, as an event loop does."""
        self.engine.at(self.engine.now_ns, self._send_failed, SendFailed(destination, reason))

    def host_probed(self, destination: str, answer: HostAnswer) -> None:
        """The answer to a `ProbeHost`."""
        self.handle(HostProbed(destination, answer))

    def _send_failed(self, event: SendFailed) -> None:
        if self.process_up:
            self.handle(event)

    def command(self, subprotocol: str, request: object, then: Then | None = None) -> None:
        """A local request, as the daemon makes it; waits while the process does not run.

        Args:
            subprotocol: Whose vocabulary the request is in.
            request: The request.
            then: Called with "" once every effect of the request was performed, or with the reason of a refusal;
                never, when the process dies before.
        """
        self.ask(Command(subprotocol, request), then)

    def ask(self, event: Event, then: Then | None = None) -> None:
        """Hand over a local event that may be refused; see `command`."""
        if not self.process_up:
            return
        if self._busy_until_ns > self.engine.now_ns or self._waits_for_core():
            self._backlog.append((event, then))
            self._arm_wake()
            return
        self._ask_now(event, then)

    def _ask_now(self, event: Event, then: Then | None) -> None:
        try:
            self._handle_now(event, then)
        except StateError as error:
            if then is not None:
                then(str(error))

    def handle(self, event: Event) -> None:
        """Hand one event to the node, now or as soon as the process runs again."""
        if not self.process_up:
            return
        if self._busy_until_ns > self.engine.now_ns or (self._cores is not None and self._waits_for_core()):
            if len(self._backlog) < BACKLOG_MAX or not isinstance(event, DatagramReceived):
                self._backlog.append(event)
            self._arm_wake()
            return
        self._handle_now(event)

    def _handle_now(self, event: Event, then: Then | None = None) -> None:
        engine = self.engine
        now_ns = engine.now_ns
        self.events_handled += 1
        engine.events += 1
        kind = type(event)
        if kind is DatagramReceived:
            if self.first_heard_ns < 0:
                self.first_heard_ns = now_ns
            engine.trace(b"D%x,%x,%x;" % (now_ns, self.index, crc32(event.data)))  # type: ignore[union-attr]
        elif kind is StreamReceived:
            engine.trace(b"S%x,%x,%x;" % (now_ns, self.index, crc32(event.data)))  # type: ignore[union-attr]
        else:
            engine.trace(b"E%x,%x,0;" % (now_ns, self.index))
        if self.watched:
            self._observer.on_event(self, event)
        effects = self.node.handle(event, self.clock.local_ns(now_ns))
        if self.cpu_ns:
            cost_ns = self.cpu_ns * self.slowdown_milli // 1_000
            if now_ns - self._busy_until_ns >= _ASLEEP_NS:
                cost_ns += self._wake_ns
            self.cpu_used_ns += cost_ns
            self._busy_until_ns = now_ns + cost_ns
            if self._cores is not None:
                self._cores.take(now_ns, cost_ns)
        if effects or then is not None:
            self._perform(effects, 0, then)

    def _trace(self, code: bytes, data: bytes) -> None:
        self.engine.trace(b"%b%x,%x,%x;" % (code, self.engine.now_ns, self.index, crc32(data)))

    def _waits_for_core(self) -> bool:
        """Whether others use all cores now; then this process runs when one is free."""
        if self._cores is None:
            return False
        free_ns = self._cores.free_ns()
        if free_ns <= self.engine.now_ns:
            return False
        self._busy_until_ns = free_ns
        return True

    def _arm_wake(self) -> None:
        if not self._wake_set:
            self._wake_set = True
            self.engine.at(self._busy_until_ns, self._wake, self.boots)

    def _wake(self, boot: int) -> None:
        if boot != self.boots:
            return
        self._wake_set = False
        if not self.process_up:
            return
        if self._busy_until_ns > self.engine.now_ns or self._waits_for_core():
            self._arm_wake()
            return
        if self._resuming is not None:
            effects, start, then = self._resuming
            self._resuming = None
            self._perform(effects, start, then)
        while (
            self._backlog
            and self.process_up
            and self._busy_until_ns <= self.engine.now_ns
            and not self._waits_for_core()
        ):
            waiting = self._backlog.popleft()
            if isinstance(waiting, tuple):
                self._ask_now(*waiting)
            else:
                self._handle_now(waiting)
        if self.process_up and (self._backlog or self._resuming is not None):
            self._arm_wake()

    # --- Effects out ------------------------------------------------------------------------------------------------

    def _perform(self, effects: list[Effect], start: int, then: Then | None) -> None:
        """Perform effects in order; a write that takes time holds back all that follow it."""
        for position in range(start, len(effects)):
            effect = effects[position]
            kind = type(effect)
            if kind is SendDatagram:
                self._network.datagram(self, effect)  # type: ignore[arg-type]
            elif kind is SetTimer:
                self._set_timer(effect)  # type: ignore[arg-type]
            elif kind is CancelTimer:
                self._timers.pop(effect.key, None)  # type: ignore[union-attr,arg-type]
            elif kind is SendStream:
                deadline_ns = self.clock.virtual_ns(effect.deadline_ns)  # type: ignore[union-attr]
                self._network.stream(self, effect, deadline_ns)  # type: ignore[arg-type]
            elif kind is SendCast:
                self._network.cast(self, effect)  # type: ignore[arg-type]
            elif kind is ProbeHost:
                self._network.probe(self, effect)  # type: ignore[arg-type]
            elif kind is Persist:
                if self._persist(effects, position, then):
                    return
            else:
                self._observer.on_effect(self, effect)
            if self._crash_in_effects:
                self._crash_in_effects -= 1
                if not self._crash_in_effects:
                    self.crash(self._crash_reason, power=False)
                    return
        if then is not None:
            then("")

    def _persist(self, effects: list[Effect], position: int, then: Then | None) -> bool:
        """Write one record; True when the effects after it have to wait for the disk."""
        effect = effects[position]
        assert isinstance(effect, Persist)
        previous = self.disk.get(effect.key)
        self.disk.write(effect.key, effect.value)
        if self._crash_in_effects == 1 and self._crash_reason == "torn":
            self.disk.tear(effect.key, previous)
        # A run of writes is one transaction: only the last of them waits for the disk.
        is_last = position + 1 == len(effects) or type(effects[position + 1]) is not Persist
        if not self.disk.fsync_ns or not is_last or self._crash_in_effects == 1:
            return False
        if self._crash_in_effects:
            self._crash_in_effects -= 1
        self._busy_until_ns = max(self._busy_until_ns, self.engine.now_ns) + self.disk.fsync_ns
        self._resuming = (effects, position + 1, then)
        self._arm_wake()
        return True

    def _set_timer(self, effect: SetTimer) -> None:
        token = self._token = self._token + 1
        key, at_ns = effect.key, effect.at_ns
        self._timers[key] = token
        self.engine.at(self.clock.virtual_ns(at_ns), self._timer_due, (key, token, at_ns))

    def _timer_due(self, due: tuple[TimerKey, int, int]) -> None:
        key, token, at_ns = due
        if self._timers.get(key) == token:
            if self.clock.local_ns(self.engine.now_ns) < at_ns:
                # The oscillator has slowed down since the timer was set.
                self.engine.at(self.clock.virtual_ns(at_ns), self._timer_due, due)
                return
            del self._timers[key]
            self.handle(TimerFired(key))

    def timer_is_dead(self, due: tuple[TimerKey, int, int]) -> bool:
        """Whether a scheduled firing would do nothing (for `Engine.sweep`)."""
        return self._timers.get(due[0]) != due[1]
