"""The door to the outside: bridges and plug-ins are told of faults, and never of candidates (`state/dedup/tiers.py`).

A candidate travels among members, who gather evidence and show it to operators. It becomes news to the outside when it
becomes a fault, as `new`, and is taken back, as `expired`, where it ceases to be one; a sighting that was told as sure
and whose author no longer is, as `end`. Verbs and the ground view, which name the tier, look past this door.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence

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
TOLD_MAX = 65_536
"""Faults that it was told of, remembered so that nothing else is taken back: a listener that comes late, or a crowd of
candidates, would else be told `expired` with all that nobody is sure of. The oldest go, and are not taken back."""


class FaultGate:
    """What one listener may be told.

    Args:
        listed: What it may have been shown besides, by name.
    """

    def __init__(self, listed: Container[str] = ()) -> None:
        self._listed = listed
        self._hidden: dict[str, None] = {}
        self._told: dict[str, None] = {}

    def pass_on(self, event: BusEvent) -> BusEvent | None:
        """The event as the outside may hear it; None: not at all."""
        match event:
            case StateChanged(detail=DetectionLearned() as learned):
                kind = self._kind(learned.view.detection_id, not learned.view.is_candidate, learned.kind, "end")
                if not kind:
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
        was_hidden = name in self._hidden
        was_told = name in self._told or (name in self._listed and not was_hidden)
        self._hidden.pop(name, None)
        self._told.pop(name, None)
        if kind in ("end", "expired", "superseded"):
            return kind if was_told or (is_fault and not was_hidden) else ""
        if is_fault:
            remember(self._told, name, TOLD_MAX)
            return "new" if was_hidden else kind
        remember(self._hidden, name, HIDDEN_MAX)
        return last if was_told else ""


def remember(names: dict[str, None], name: str, most: int) -> None:
    """Put a name last; the first goes where there are too many."""
    names.pop(name, None)
    names[name] = None
    if len(names) > most:
        del names[next(iter(names))]


class FaultsOnly:
    """A `DaemonView` without candidates.

    Args:
        daemon: Which is seen through it.
    """

    def __init__(self, daemon: DaemonView) -> None:
        self._daemon = daemon
        self._listed: dict[str, None] = {}

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
        return _faults_of(self._daemon.objects(), self._listed)

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
        return _FaultsInParts(self._daemon.in_parts, self._listed)

    def counters(self) -> Mapping[str, int]:
        """See `DaemonView`."""
        return self._daemon.counters()

    def subscribe(self, callback: Callable[[BusEvent], None]) -> Callable[[], None]:
        """See `DaemonView`; what is told of candidates is left out."""
        gate = FaultGate(self._listed)

        def hear(event: BusEvent) -> None:
            passed = gate.pass_on(event)
            if passed is not None:
                callback(passed)

        return self._daemon.subscribe(hear)

    def command(self, verb: str, arguments: Mapping[str, object], by: str = "a bridge") -> Mapping[str, object]:
        """See `DaemonView`."""
        return self._daemon.command(verb, arguments, by)


def _faults_of(views: Sequence[ObjectView], listed: dict[str, None]) -> list[ObjectView]:
    """Those that may be shown, and a note of them."""
    faults = [view for view in views if view.is_fault]
    for view in faults:
        remember(listed, view.object_id, TOLD_MAX)
    return faults


def _sure_of(views: Sequence[DetectionView], listed: dict[str, None]) -> list[DetectionView]:
    """Those that may be shown, and a note of them."""
    sure = [view for view in views if not view.is_candidate]
    for view in sure:
        remember(listed, view.detection_id, TOLD_MAX)
    return sure


class _FaultsInParts:
    """`InParts` without candidates."""

    def __init__(self, parts: InParts, listed: dict[str, None]) -> None:
        self._parts = parts
        self._listed = listed

    @property
    def is_partial(self) -> bool:
        """See `InParts`."""
        return self._parts.is_partial

    def names(self) -> Mapping[NodeId, str]:
        return self._parts.names()

    def members(self) -> Iterator[Sequence[MemberView]]:
        return self._parts.members()

    def objects(self) -> Iterator[Sequence[ObjectView]]:
        return (_faults_of(part, self._listed) for part in self._parts.objects())

    def review_subject(self, object_id: str) -> ReviewSubject | None:
        return self._parts.review_subject(object_id)

    def detections(self) -> Iterator[Sequence[DetectionView]]:
        return (_sure_of(part, self._listed) for part in self._parts.detections())

    def neighbours(self) -> Sequence[NeighbourView]:
        """See `InParts`."""
        return self._parts.neighbours()

    def cells(self) -> Iterator[Sequence[CellView]]:
        return self._parts.cells()

    def counters(self) -> Iterator[Mapping[str, Mapping[NodeId, int]]]:
        return self._parts.counters()
