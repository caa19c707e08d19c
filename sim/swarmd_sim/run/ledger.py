"""What nodes have acknowledged, written down apart from the nodes, so that checkers can ask for it later.

A fact counts from the moment its command returned on a node that was up with a disk that kept it. A fact is excused
when its only disk was lost or damaged before it can be expected anywhere else.
"""

from dataclasses import dataclass, field
from itertools import chain

from swarmd_protocols.state.observations import LocalDetection
from swarmd_sim.run.host import Host

EXCUSE_NS = 60_000_000_000
"""Facts younger than this are excused when their author's disk is lost: they may not have left it yet."""
FACTS_GRACE_NS = 100_000_000
"""A node gathers facts for up to 50 ms before it writes and tells them (`ReplicaConfig.flush_ns`); counts are written
at once."""


@dataclass(slots=True)
class Fact:
    """One acknowledged fact."""

    at_ns: int
    host: int
    excused: bool = False


@dataclass(slots=True)
class DetectionFact(Fact):
    """A detection that a node accepted."""

    detection: LocalDetection | None = None
    life: int = 0
    """Which life of the host; tracks are counted anew in each."""


@dataclass(slots=True)
class Ledger:
    """Everything that was acknowledged in a run."""

    detections: list[DetectionFact] = field(default_factory=list)
    counted: dict[int, list[tuple[int, str, int]]] = field(default_factory=dict)
    """(time, counter, increment) by host."""
    cells_done: dict[str, list[Fact]] = field(default_factory=dict)
    cells_flown: list[tuple[int, int, str]] = field(default_factory=list)
    """(time, host, cell) of each finished lane, acknowledged or not: the duplicate work."""
    notes: dict[str, list[tuple[int, int, bytes]]] = field(default_factory=dict)
    """(time, host, value) by key."""
    events: list[tuple[int, int, str]] = field(default_factory=list)
    """(time, host, name) of user events."""
    event_numbers: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """Host, time and its number among what its author said, by event name; of nodes that number them."""
    events_forgotten: dict[str, int] = field(default_factory=dict)
    """Of those whose author had lost its journal and said them under a boot number of an earlier life: the highest one
    of these lives."""
    event_deliveries: dict[str, dict[int, int]] = field(default_factory=dict)
    """Host and time of the first delivery, by event name."""
    disk_lost_ns: dict[int, int] = field(default_factory=dict)
    refusals: dict[str, int] = field(default_factory=dict)
    _boots: dict[int, int] = field(default_factory=dict)
    """The highest boot number of a host's lives that are over."""

    def _kept(self, host: Host, refused: str) -> bool:
        if refused:
            self.refusals[refused] = self.refusals.get(refused, 0) + 1
            return False
        return host.process_up and not host.hostile and not host.disk.full

    def observed(self, host: Host, found: tuple[LocalDetection, ...], refused: str) -> None:
        """Own detections were handed to the node."""
        if self._kept(host, refused):
            now_ns = host.engine.now_ns
            self.detections += [DetectionFact(now_ns, host.index, False, item, host.boots) for item in found]

    def count(self, host: Host, increments: tuple[tuple[str, int], ...], refused: str) -> None:
        """Counters were incremented."""
        if self._kept(host, refused):
            rows = self.counted.setdefault(host.index, [])
            rows += [(host.engine.now_ns, key, amount) for key, amount in increments]

    def flown(self, host: Host, cell_id: str) -> None:
        """A drone has finished a lane."""
        self.cells_flown.append((host.engine.now_ns, host.index, cell_id))

    def cell_done(self, host: Host, cell_id: str, refused: str) -> None:
        """A cell was reported done."""
        if self._kept(host, refused):
            self.cells_done.setdefault(cell_id, []).append(Fact(host.engine.now_ns, host.index))

    def note(self, host: Host, key: str, value: bytes, refused: str) -> None:
        """An operator note was set."""
        if self._kept(host, refused):
            self.notes.setdefault(key, []).append((host.engine.now_ns, host.index, value))

    def user_event(self, host: Host, name: str, refused: str) -> None:
        """A user event was broadcast."""
        if self._kept(host, refused):
            self.events.append((host.engine.now_ns, host.index, name))
            swim = getattr(host.node, "_swim", None)
            if swim is not None:
                self.event_numbers[name] = host.index, host.engine.now_ns, swim.events.own_event
            forgotten = self._boots.get(host.index, 0)
            if host.index in self.disk_lost_ns and host.node._core.own.boot <= forgotten:
                self.events_forgotten[name] = forgotten

    def event_delays_ns(self) -> list[int]:
        """From each user event to each of its deliveries at another node."""
        sent = {name: (at_ns, origin) for at_ns, origin, name in self.events}
        return [
            at_ns - sent[name][0]
            for name, deliveries in self.event_deliveries.items()
            if name in sent
            for host, at_ns in deliveries.items()
            if host != sent[name][1]
        ]

    def excuse(self, host: Host) -> None:
        """Nothing of this host counts: it has turned hostile."""
        for fact in self.detections:
            fact.excused = fact.excused or fact.host == host.index
        for facts in self.cells_done.values():
            for done in facts:
                done.excused = done.excused or done.host == host.index
        self.counted.pop(host.index, None)

    def crashed(self, host: Host) -> None:
        """The process died: what it had answered for but not yet written (see the grace times) counts no more."""
        self._boots[host.index] = max(self._boots.get(host.index, 0), host.node._core.own.boot)
        # A process that was stopped wrote nothing in the meantime.
        now_ns = host.last_ran_ns
        rows = self.counted.get(host.index, [])
        self.counted[host.index] = [row for row in rows if row[0] < now_ns - FACTS_GRACE_NS]
        for fact in chain(self.detections, *self.cells_done.values()):
            if fact.host == host.index and fact.at_ns >= now_ns - FACTS_GRACE_NS:
                fact.excused = True

    def disk_lost(self, host: Host) -> None:
        """The host's disk was lost or damaged: what may not have left it yet is excused."""
        now_ns = host.engine.now_ns
        self.disk_lost_ns[host.index] = now_ns
        recent = now_ns - EXCUSE_NS
        for fact in self.detections:
            if fact.host == host.index and fact.at_ns >= recent:
                fact.excused = True
        for facts in self.cells_done.values():
            for done in facts:
                if done.host == host.index and done.at_ns >= recent:
                    done.excused = True
        rows = self.counted.get(host.index, [])
        self.counted[host.index] = [row for row in rows if row[0] < recent]
