"""Who watches a run: figures, timeline and checkers, all told the same things. Nothing here can change the run."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from swarmd_protocols.effects import (
    Alarm,
    Effect,
    Event,
    MemberChanged,
    MemberState,
    Order,
    Rejected,
    StateChanged,
    UserEventDelivered,
)
from swarmd_protocols.swim.rules import BOOT_SHIFT
from swarmd_sim.run.engine import Engine
from swarmd_sim.run.fleet import Fleet
from swarmd_sim.run.host import Host
from swarmd_sim.run.ledger import Ledger

if TYPE_CHECKING:
    from swarmd_sim.run.offload import OffloadWorld
    from swarmd_sim.run.releases import ReleaseWorld

TIMELINE_MAX = 20_000


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule."""

    rule: str
    """Checker and rule, such as "membership.false_failed"."""
    at_ns: int
    text: str

    def to_row(self) -> dict[str, object]:
        """The form in JSON."""
        return {"rule": self.rule, "at_s": round(self.at_ns / 1e9, 3), "text": self.text}


class Checker(Protocol):
    """A rule book that stands apart from the workload."""

    def on_member(self, host: Host, change: MemberChanged) -> None:
        """A node's opinion of a member changed."""

    def on_detail(self, host: Host, detail: object) -> None:
        """A node's replicated state told its driver something."""

    def on_user_event(self, host: Host, name: str) -> None:
        """A node delivered a user event."""

    def on_step(self, now_ns: int) -> None:
        """About once a virtual second: safety while faults go on."""

    def on_end(self, now_ns: int) -> None:
        """After the quiet time: liveness."""


@dataclass(slots=True)
class Watch:
    """The observer that hosts report to.

    Attributes:
        engine: Virtual time.
        ledger: Told of event deliveries.
        keep_timeline: Whether readable lines are kept.
    """

    engine: Engine
    ledger: Ledger
    keep_timeline: bool = False
    fleet: Fleet | None = None
    releases: "ReleaseWorld | None" = None
    offload: "OffloadWorld | None" = None
    hosts: list[Host] = field(default_factory=list)
    by_id: dict[bytes, Host] = field(default_factory=dict)
    checkers: list[Checker] = field(default_factory=list)
    hearers: list[Checker] = field(default_factory=list)
    """Those of them that look at what the state tells."""
    violations: list[Violation] = field(default_factory=list)
    timeline: deque[tuple[int, int, str]] = field(default_factory=lambda: deque(maxlen=TIMELINE_MAX))
    transitions: dict[str, int] = field(default_factory=dict)
    rejected: dict[str, int] = field(default_factory=dict)
    alarms: dict[str, int] = field(default_factory=dict)
    failed_seen: dict[int, dict[int, int]] = field(default_factory=dict)
    """Time at which each host called a host FAILED, by the latter, since its last crash."""
    crashes: dict[int, int] = field(default_factory=dict)
    detection_ns: list[int] = field(default_factory=list)
    false_positives: int = 0
    _events_seen: set[tuple[int, int, str]] = field(default_factory=set)
    joins: int = 0
    last_join_ns: int = -1
    untouched_since: Callable[[int, int], bool] = lambda _host, _since_ns: True
    """Whether faults leave a host alone since a time: only such hosts count in `detection_ns`."""
    suspects: dict[int, set[int]] = field(default_factory=dict)
    """Whom each host suspects now."""
    suspected_by: dict[int, set[int]] = field(default_factory=dict)

    def violate(self, rule: str, text: str) -> None:
        """Record a broken rule; the same rule is kept at most 20 times a run."""
        self.say(-1, f"VIOLATION {rule}: {text}")
        if sum(1 for violation in self.violations if violation.rule == rule) < 20:
            self.violations.append(Violation(rule, self.engine.now_ns, text))

    def say(self, host: int, text: str) -> None:
        """Add a line to the timeline."""
        if self.keep_timeline:
            self.timeline.append((self.engine.now_ns, host, text))

    def on_boot(self, host: Host) -> None:
        """A host's process begins a life."""
        self.by_id[host.node_id] = host
        self.crashes.pop(host.index, None)
        self.failed_seen.pop(host.index, None)
        self.say(host.index, f"starts (life {host.boots})")

    def on_crash(self, host: Host, reason: str) -> None:
        """A host's process has gone."""
        self.crashes[host.index] = self.engine.now_ns
        self.failed_seen[host.index] = {}
        self.ledger.crashed(host)
        if self.offload is not None:
            self.offload.on_crash(host)
        for subject in self.suspects.pop(host.index, ()):
            self.suspected_by.get(subject, set()).discard(host.index)
        self.say(host.index, f"process gone: {reason}")

    def on_event(self, host: Host, event: Event) -> None:
        """A watched host handles an event: one readable line."""
        text = repr(event)
        self.say(host.index, text if len(text) < 200 else f"{text[:200]}…")

    def on_effect(self, host: Host, effect: Effect) -> None:
        """A notification effect."""
        if isinstance(effect, MemberChanged):
            self._on_member(host, effect)
        elif isinstance(effect, Order):
            self._on_order(host, effect)
        elif isinstance(effect, StateChanged):
            if effect.subprotocol == "thumbs" or (self.fleet is not None and effect.subprotocol == "state"):
                for checker in self.hearers:
                    checker.on_detail(host, effect.detail)
            if self.releases is not None and effect.subprotocol == "releases":
                self.releases.on_detail(host, effect.detail)
        elif isinstance(effect, UserEventDelivered):
            self._on_user_event(host, effect.name)
        elif isinstance(effect, Rejected):
            self.rejected[effect.reason] = self.rejected.get(effect.reason, 0) + 1
        elif isinstance(effect, Alarm):
            self.alarms[effect.code] = self.alarms.get(effect.code, 0) + 1
            self.say(host.index, f"alarm {effect.code}: {effect.text}")

    def _on_order(self, host: Host, order: Order) -> None:
        if order.subprotocol == "state" and self.fleet is not None:
            for checker in self.hearers:
                checker.on_detail(host, order.request)
            self.fleet.on_detail(host, order.request)
        elif order.subprotocol == "releases" and self.releases is not None:
            self.releases.on_order(host, order.request)
        elif order.subprotocol == "offload" and self.offload is not None:
            self.offload.on_order(host, order.request)

    def _on_user_event(self, host: Host, name: str) -> None:
        self.engine.trace(b"U%x,%b;" % (host.index, name.encode()))
        key = (host.index, host.boots, name)
        if key in self._events_seen and not host.hostile:
            self.violate("state.event_doubled", f"{name} reached {host.name} twice in one life")
        self._events_seen.add(key)
        self.ledger.event_deliveries.setdefault(name, {}).setdefault(host.index, self.engine.now_ns)
        for checker in self.checkers:
            checker.on_user_event(host, name)

    def _on_member(self, host: Host, change: MemberChanged) -> None:
        old = change.old.value if change.old is not None else "unknown"
        key = f"{old}->{change.new.value}"
        self.transitions[key] = self.transitions.get(key, 0) + 1
        self.engine.trace(b"M%x,%b,%b;" % (host.index, change.node[:6], change.new.value.encode()))
        if self.keep_timeline:
            self.say(host.index, f"{change.name}: {old} -> {change.new.value} ({change.reason})")
        subject = self.by_id.get(change.node)
        if change.old is None:
            self.joins += 1
            self.last_join_ns = self.engine.now_ns
        if subject is not None:
            if change.new is MemberState.ALIVE and subject is not host and tells_life(host, subject):
                self._is_met(host, subject)
            self._note_suspicion(host.index, subject.index, change.new is MemberState.SUSPECT)
        if change.new is MemberState.FAILED and subject is not None and subject.index in self.crashes:
            self._detected(host, subject)
        for checker in self.checkers:
            checker.on_member(host, change)

    def _is_met(self, host: Host, subject: Host) -> None:
        life = subject.life
        if life.met_boot < 0:
            life.met_boot = subject.node._core.own.boot
        if life.known_ns < 0 and not host.hostile:  # A thief may keep to itself whom it has met.
            life.known_ns = self.engine.now_ns

    def _note_suspicion(self, observer: int, subject: int, suspected: bool) -> None:
        if suspected:
            self.suspects.setdefault(observer, set()).add(subject)
            self.suspected_by.setdefault(subject, set()).add(observer)
        elif observer in self.suspects:
            self.suspects[observer].discard(subject)
            self.suspected_by.get(subject, set()).discard(observer)

    def _detected(self, host: Host, subject: Host) -> None:
        seen = self.failed_seen.setdefault(subject.index, {})
        if host.index not in seen:
            seen[host.index] = self.engine.now_ns
            if self.untouched_since(host.index, self.crashes[subject.index]):
                self.detection_ns.append(self.engine.now_ns - self.crashes[subject.index])


def tells_life(host: Host, subject: Host) -> bool:
    """Whether a host knows another in its life: a record of the one before is news to who has just started.

    Without a journal a node gives its new life the boot number of an earlier one; the session is its own.
    """
    member, own = host.node._core.table.by_node.get(subject.node_id), subject.node._core.own
    tells = member is not None and member.session_public == own.session_public
    return tells and bool(member.incarnation >> BOOT_SHIFT == own.boot)
