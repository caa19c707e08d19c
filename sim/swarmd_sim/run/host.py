"""One device of the simulated swarm: a node with its clock, disk, CPU and timers.

The host does what the daemon's driver does, in the same order: it hands events to `handle` and performs the effects
one by one. Between any two effects it can crash. A host contains no protocol decision.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
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
)
from swarmd_protocols.errors import StateError
from swarmd_sim.faults.clocks import NodeClock, Oscillator
from swarmd_sim.faults.disk import ModelledDisk
from swarmd_sim.radio.network import Network
from swarmd_sim.run.cpu import Cores, Cpu
from swarmd_sim.run.engine import Engine
from swarmd_sim.run.timers import Timers

Then: TypeAlias = Callable[[str], None]
"""Told "" when a local request is through, or why it was refused."""

BACKLOG_MAX = 512
"""Frames that a socket buffer keeps while the process does not run."""


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


@dataclass(slots=True)
class Life:
    """What is known of a process since its boot. All times are virtual; -1: not yet."""

    started_ns: int
    first_heard_ns: int = -1
    """When it heard its first datagram."""
    known_ns: int = -1
    """When another node, no hostile one, told of it in this life first."""
    met_boot: int = -1
    """Its boot number when any other node did."""
    left: bool = False
    """It has said good-bye."""


class _Waiting:
    """What a process has to do as soon as it runs again."""

    __slots__ = ("effects", "events", "is_wake_set")

    def __init__(self) -> None:
        self.events: deque[Event | tuple[Event, Then | None]] = deque()
        self.effects: tuple[list[Effect], int, Then | None] | None = None
        """Effects that wait for the disk, and from which of them on."""
        self.is_wake_set = False

    def clear(self) -> None:
        self.events.clear()
        self.effects = None

    def __bool__(self) -> bool:
        return bool(self.events) or self.effects is not None


class _Doom:
    """A crash at an effect boundary to come."""

    __slots__ = ("effects", "reason")

    def __init__(self) -> None:
        self.effects = 0
        """Effects performed before it happens; 0: none is to come."""
        self.reason = ""


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
        "_doom",
        "_network",
        "_observer",
        "_teardown_ns",
        "_waiting",
        "address",
        "boots",
        "clock",
        "cpu",
        "crashed_ns",
        "disk",
        "engine",
        "forbidden",
        "forked",
        "hostile",
        "index",
        "life",
        "machine_up",
        "name",
        "node",
        "node_id",
        "oscillator",
        "process_up",
        "timers",
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
        self.oscillator = Oscillator()
        self.cpu = Cpu(cpu_ns, wake_ns, cores)
        self.timers = Timers(engine, self.handle)
        self.life = Life(0)
        self.node: Any = None
        self.node_id = b""
        self.process_up = False
        self.machine_up = False
        self.forbidden = False
        self.forked = False
        self.hostile = False
        self.watched = False
        self.boots = 0
        self.crashed_ns = 0
        self._teardown_ns = teardown_ns
        self._waiting = _Waiting()
        self._doom = _Doom()

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
        self.life = Life(self.engine.now_ns)
        self.timers.boot(clock)
        self.cpu.boot()
        self._waiting = _Waiting()
        self._doom = _Doom()
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
        self.timers.clear()
        self._waiting.clear()
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
        self._doom.effects = effects
        self._doom.reason = reason

    def stall(self, duration_ns: int) -> None:
        """The process does not run for a while: SIGSTOP, a GC pause, a busy CPU."""
        if self.process_up:
            self.cpu.stall(self.engine.now_ns, duration_ns)
            self._arm_wake()

    @property
    def stalled(self) -> bool:
        """Whether the process does not run just now."""
        return self.cpu.busy_until_ns > self.engine.now_ns

    @property
    def last_ran_ns(self) -> int:
        """When the process ran last: now, or when the stall that goes on began."""
        return self.cpu.last_ran_ns(self.engine.now_ns)

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
        if self._must_wait():
            self._waiting.events.append((event, then))
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
        if self._must_wait():
            if len(self._waiting.events) < BACKLOG_MAX or not isinstance(event, DatagramReceived):
                self._waiting.events.append(event)
            self._arm_wake()
            return
        self._handle_now(event)

    def _must_wait(self) -> bool:
        """Whether an event has to wait: the process does not run, or has something to do first.

        At the very nanosecond at which a durable write ends the process runs again, but its held-back effects come
        first: an event that overtook them would arm timers that they then replace with older ones.
        """
        return self.cpu.is_held_up(self.engine.now_ns) or bool(self._waiting)

    @property
    def waits_for_disk(self) -> bool:
        """Whether effects of the last event are still to come, since a write before them takes its time."""
        return self._waiting.effects is not None

    def _handle_now(self, event: Event, then: Then | None = None) -> None:
        engine = self.engine
        now_ns = engine.now_ns
        engine.events += 1
        kind = type(event)
        if kind is DatagramReceived:
            if self.life.first_heard_ns < 0:
                self.life.first_heard_ns = now_ns
            engine.trace(b"D%x,%x,%x;" % (now_ns, self.index, crc32(event.data)))  # type: ignore[union-attr]
        elif kind is StreamReceived:
            engine.trace(b"S%x,%x,%x;" % (now_ns, self.index, crc32(event.data)))  # type: ignore[union-attr]
        else:
            engine.trace(b"E%x,%x,0;" % (now_ns, self.index))
        if self.watched:
            self._observer.on_event(self, event)
        effects = self.node.handle(event, self.clock.local_ns(now_ns))
        self.cpu.spend(now_ns)
        if effects or then is not None:
            self._perform(effects, 0, then)

    def _trace(self, code: bytes, data: bytes) -> None:
        self.engine.trace(b"%b%x,%x,%x;" % (code, self.engine.now_ns, self.index, crc32(data)))

    def _arm_wake(self) -> None:
        if not self._waiting.is_wake_set:
            self._waiting.is_wake_set = True
            self.engine.at(self.cpu.busy_until_ns, self._wake, self.boots)

    def _wake(self, boot: int) -> None:
        if boot != self.boots:
            return
        waiting = self._waiting
        waiting.is_wake_set = False
        if not self.process_up:
            return
        if self.cpu.is_held_up(self.engine.now_ns):
            self._arm_wake()
            return
        if waiting.effects is not None:
            effects, start, then = waiting.effects
            waiting.effects = None
            self._perform(effects, start, then)
        while waiting.events and self.process_up and not self.cpu.is_held_up(self.engine.now_ns):
            event = waiting.events.popleft()
            if isinstance(event, tuple):
                self._ask_now(*event)
            else:
                self._handle_now(event)
        if self.process_up and waiting:
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
                self.timers.set(effect)  # type: ignore[arg-type]
            elif kind is CancelTimer:
                self.timers.cancel(effect.key)  # type: ignore[union-attr,arg-type]
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
            if self._doom.effects:
                self._doom.effects -= 1
                if not self._doom.effects:
                    self.crash(self._doom.reason, power=False)
                    return
        if then is not None:
            then("")

    def _persist(self, effects: list[Effect], position: int, then: Then | None) -> bool:
        """Write one record; True when the effects after it have to wait for the disk."""
        effect = effects[position]
        assert isinstance(effect, Persist)
        previous = self.disk.get(effect.key)
        self.disk.write(effect.key, effect.value)
        if self._doom.effects == 1 and self._doom.reason == "torn":
            self.disk.tear(effect.key, previous)
        # A run of writes is one transaction: only the last of them waits for the disk.
        is_last = position + 1 == len(effects) or type(effects[position + 1]) is not Persist
        if not self.disk.fsync_ns or not is_last or self._doom.effects == 1:
            return False
        if self._doom.effects:
            self._doom.effects -= 1
        self.cpu.wait(self.engine.now_ns, self.disk.fsync_ns)
        self._waiting.effects = (effects, position + 1, then)
        self._arm_wake()
        return True
