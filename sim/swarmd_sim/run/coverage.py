"""Which fault met which protocol state: the hit matrix that says what a fuzz run has not tried yet."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from swarmd_sim.faults.faults import FAULT_KINDS, FAULTS
from swarmd_sim.run.host import Host
from swarmd_sim.run.watch import Watch

JOINING_NS = 2_000_000_000


class ProtocolState(StrEnum):
    """What a node was busy with when a fault met it; one node can be in several at once."""

    JOINING = "joining"
    STEADY = "steady"
    SUSPECTING = "suspecting"
    SUSPECTED = "suspected"
    MISSING_PEER = "missing-peer"
    CUT_OFF = "cut-off"
    STALLED = "stalled"
    DOWN = "down"
    LEAVING = "leaving"
    WORKING = "working"
    UPDATING = "updating"
    """Fetches or tries a release."""


def _nothing_runs() -> dict[tuple[str, str], str]:
    reasons = {
        "kill": "there is no process to kill",
        "torn_disk": "nobody writes, so no write is torn",
        "crash_at_effect": "nobody performs effects",
        "oom_kill": "there is no process to kill",
        "freeze": "there is no process to stop",
        "gc_pause": "there is no process to stop",
        "leave": "nobody is there to say good-bye",
        "away": "nobody is there to announce an absence",
    }
    hostile = {kind: "nobody misbehaves where nothing runs" for kind in FAULT_KINDS if FAULTS[kind].family == "hostile"}
    return {(kind, ProtocolState.DOWN.value): reason for kind, reason in {**reasons, **hostile}.items()}


UNREACHABLE: dict[tuple[str, str], str] = _nothing_runs()
"""(fault kind, protocol state) pairs that cannot be, and why. A disk can be lost, a clock be set and an address change
while nothing runs, so those pairs stay."""


def states_of(host: Host, watch: Watch, partitioned: bool) -> list[ProtocolState]:
    """What a host is busy with now.

    Args:
        host: The host.
        watch: Knows who suspects whom.
        partitioned: Whether a partition goes on.

    Returns:
        At least one state.
    """
    if not host.process_up:
        return [ProtocolState.DOWN]
    found = []
    if host.engine.now_ns - host.life.started_ns < JOINING_NS:
        found.append(ProtocolState.JOINING)
    if watch.suspects.get(host.index):
        found.append(ProtocolState.SUSPECTING)
    if watch.suspected_by.get(host.index):
        found.append(ProtocolState.SUSPECTED)
    if watch.crashes:
        found.append(ProtocolState.MISSING_PEER)
    if partitioned:
        found.append(ProtocolState.CUT_OFF)
    if host.stalled:
        found.append(ProtocolState.STALLED)
    if host.life.left:
        found.append(ProtocolState.LEAVING)
    drone = watch.fleet.drones.get(host.index) if watch.fleet is not None else None
    if drone is not None and drone.queue:
        found.append(ProtocolState.WORKING)
    if watch.releases is not None and watch.releases.is_updating(host.index):
        found.append(ProtocolState.UPDATING)
    return found or [ProtocolState.STEADY]


def reachable_pairs(kinds: Iterable[str] = FAULT_KINDS) -> list[tuple[str, str]]:
    """The (fault kind, protocol state) pairs that a run can hit; `UNREACHABLE` says why the others cannot be.

    Args:
        kinds: Fault kinds.

    Returns:
        The pairs, sorted.
    """
    return sorted(
        (kind, state.value) for kind in kinds for state in ProtocolState if (kind, state.value) not in UNREACHABLE
    )


@dataclass(slots=True)
class Coverage:
    """Counts of hits by (fault kind, protocol state)."""

    hits: dict[tuple[str, str], int] = field(default_factory=dict)

    def hit(self, kind: str, host: Host, watch: Watch, partitioned: bool) -> None:
        """A fault begins at a host."""
        for state in states_of(host, watch, partitioned):
            pair = (kind, state.value)
            self.hits[pair] = self.hits.get(pair, 0) + 1

    def merge(self, other: "Coverage") -> None:
        """Add another run's hits."""
        for pair, count in other.hits.items():
            self.hits[pair] = self.hits.get(pair, 0) + count

    def share(self, kinds: Iterable[str] = FAULT_KINDS) -> float:
        """The share of reachable pairs that were hit, 0.0 to 1.0."""
        pairs = reachable_pairs(kinds)
        return sum(1 for pair in pairs if self.hits.get(pair)) / max(1, len(pairs))

    def to_rows(self) -> list[list[object]]:
        """[kind, state, hits], sorted."""
        return [[kind, state, count] for (kind, state), count in sorted(self.hits.items())]

    def lines(self, kinds: Iterable[str] = FAULT_KINDS) -> list[str]:
        """The matrix as Markdown: hits, 0 for a reachable pair that was not hit, empty for one that cannot be.

        Args:
            kinds: Fault kinds, one a row.
        """
        states = [state.value for state in ProtocolState]
        reachable = set(reachable_pairs(kinds))
        out = ["| fault | " + " | ".join(states) + " |", "|---|" + "---:|" * len(states)]
        for kind in kinds:
            cells = [str(self.hits.get((kind, state), 0)) if (kind, state) in reachable else "" for state in states]
            out.append(f"| {kind} | " + " | ".join(cells) + " |")
        return out
