"""The door to the outside: bridges and plug-ins are told of faults, and never of candidates (`state/dedup/tiers.py`).

A candidate travels among members, who gather evidence and show it to operators. It becomes news to the outside when it
becomes a fault, as `new`, and is taken back, as `expired`, where it ceases to be one. Verbs and the ground view, which
name the tier, look past this door.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from swarmd.api.daemon import BusEvent, DaemonView, InParts, Look, NodeInfo, NodePosition, PictureSeen
from swarmd_protocols.effects import StateChanged
from swarmd_protocols.ids import NodeId
from swarmd_protocols.neighbours.requests import NeighbourView
from swarmd_protocols.state.observations import (
    CellView,
    DetectionLearned,
    DetectionView,
    ObjectChanged,
    ObjectView,
    ReviewSubject,
)
from swarmd_protocols.summary import MemberView

HIDDEN_MAX = 65_536
"""Candidates that a listener is not told of, remembered so that the first word of a fault is `new`; the oldest go, and
such a one's first word is `update`."""


class FaultGate:
    """What one listener may be told."""

    def __init__(self) -> None:
        """Nothing is hidden yet."""
        self._hidden: dict[str, None] = {}

    def pass_on(self, event: BusEvent) -> BusEvent | None:
        """The event as the outside may hear it; None: not at all."""
        match event:
            case StateChanged(detail=DetectionLearned() as learned):
                kind = self._kind(learned.view.detection_id, not learned.view.is_candidate, learned.kind, "end")
                if learned.view.is_candidate or not kind:
                    return None
                return event if kind == learned.kind else StateChanged(event.subprotocol, replace(learned, kind=kind))
            case StateChanged(detail=ObjectChanged() as change):
                kind = self._kind(change.view.object_id, change.view.is_fault, change.kind, "expired")
                if not kind:
                    return None
                return event if kind == change.kind else StateChanged(event.subprotocol, replace(change, kind=kind))
        return event

    def _kind(self, name: str, is_fault: bool, kind: str, last: str) -> str:
        """What to call the change; "" to say nothing."""
        if kind in ("end", "expired", "superseded"):
            return "" if self._was_hidden(name) else kind
        if is_fault:
            return "new" if self._was_hidden(name) else kind
        was_told = kind == "update" and name not in self._hidden
        self._hidden[name] = None
        if len(self._hidden) > HIDDEN_MAX:
            del self._hidden[next(iter(self._hidden))]
        return last if was_told else ""

    def _was_hidden(self, name: str) -> bool:
        return name in self._hidden and self._hidden.pop(name) is None


class FaultsOnly:
    """A `DaemonView` without candidates.

    Args:
        daemon: Which is seen through it.
    """

    def __init__(self, daemon: DaemonView) -> None:
        self._daemon = daemon

    def info(self) -> NodeInfo:
        """See `DaemonView`."""
        return self._daemon.info()

    def members(self) -> Sequence[MemberView]:
        """See `DaemonView`."""
        return self._daemon.members()

    def name_of(self, node: NodeId) -> str:
        """See `DaemonView`."""
        return self._daemon.name_of(node)

    def objects(self) -> Sequence[ObjectView]:
        """The deduplicated view, faults alone."""
        return [view for view in self._daemon.objects() if view.is_fault]

    def cells(self) -> Sequence[CellView]:
        """See `DaemonView`."""
        return self._daemon.cells()

    def positions(self) -> Mapping[NodeId, NodePosition]:
        """See `DaemonView`."""
        return self._daemon.positions()

    def watch_pictures(
        self, callback: Callable[[PictureSeen], None], interval_ms: int, width: int, quality: int
    ) -> Callable[[], None]:
        """See `DaemonView`."""
        return self._daemon.watch_pictures(callback, interval_ms, width, quality)

    def fetch_thumb(self, name: bytes) -> bool:
        """See `DaemonView`."""
        return self._daemon.fetch_thumb(name)

    def look(self, track_id: int) -> Look | None:
        """See `DaemonView`."""
        return self._daemon.look(track_id)

    @property
    def in_parts(self) -> InParts:
        """See `DaemonView`."""
        return _FaultsInParts(self._daemon.in_parts)

    def counters(self) -> Mapping[str, int]:
        """See `DaemonView`."""
        return self._daemon.counters()

    def subscribe(self, callback: Callable[[BusEvent], None]) -> Callable[[], None]:
        """See `DaemonView`; what is told of candidates is left out."""
        gate = FaultGate()

        def hear(event: BusEvent) -> None:
            passed = gate.pass_on(event)
            if passed is not None:
                callback(passed)

        return self._daemon.subscribe(hear)

    def command(self, verb: str, arguments: Mapping[str, object], by: str = "a bridge") -> Mapping[str, object]:
        """See `DaemonView`."""
        return self._daemon.command(verb, arguments, by)


class _FaultsInParts:
    """`InParts` without candidates."""

    def __init__(self, parts: InParts) -> None:
        self._parts = parts

    def names(self) -> Mapping[NodeId, str]:
        return self._parts.names()

    def members(self) -> Iterator[Sequence[MemberView]]:
        return self._parts.members()

    def objects(self) -> Iterator[Sequence[ObjectView]]:
        return ([view for view in part if view.is_fault] for part in self._parts.objects())

    def review_subject(self, object_id: str) -> ReviewSubject | None:
        return self._parts.review_subject(object_id)

    def detections(self) -> Iterator[Sequence[DetectionView]]:
        return ([view for view in part if not view.is_candidate] for part in self._parts.detections())

    def neighbours(self) -> Sequence[NeighbourView]:
        """See `InParts`."""
        return self._parts.neighbours()

    def cells(self) -> Iterator[Sequence[CellView]]:
        return self._parts.cells()

    def counters(self) -> Iterator[Mapping[str, Mapping[NodeId, int]]]:
        return self._parts.counters()
