"""Objects as they were at a moment of which no picture was written down: what this node knows of each now, without what
came after.

Rules this file keeps: an object is there from its first sighting on; who had not seen it yet is not among its
observers, and what nobody had said of it yet is not among its reviews. Score, place and asset are the ones known now:
nothing tells what they were.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from swarmd.api.views import unix_s
from swarmd.ground.facts import Names, object_of
from swarmd.ground.rows import Object
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.observations import DetectionView, ObjectView
from swarmd_protocols.state.reviews import settled


class Grown:
    """One object and when it came to be what it is.

    Args:
        view: As it is now.
        sightings: Those that it is made of.
    """

    def __init__(self, view: ObjectView, sightings: Iterable[DetectionView]) -> None:
        self._view = view
        self._since: dict[NodeId, float] = {}
        for one in sightings:
            first_s = unix_s(one.first_hlc)
            self._since[one.origin] = min(first_s, self._since.get(one.origin, first_s))
        self._first_s = min([unix_s(view.first_hlc), *self._since.values()])

    @property
    def moments(self) -> list[float]:
        """When it became another one, UTC seconds since 1970: sightings by others, and reviews."""
        said = (one.made_ms / 1000 for one in self._view.reviews)
        return sorted({self._first_s, *(max(self._first_s, at_s) for at_s in (*self._since.values(), *said))})

    def at(self, at_s: float, names: Names) -> Object | None:
        """Its row at a moment; None: nobody had seen it."""
        view = self._view
        if at_s < self._first_s:
            return None
        reviews = tuple(one for one in view.reviews if one.made_ms / 1000 <= at_s)
        observers = tuple(node for node in view.observers if self._since.get(node, self._first_s) <= at_s)
        if len(reviews) != len(view.reviews):
            review, label = settled(reviews)
            detected = view.detected or view.label
            label = label or detected
            view = replace(
                view, reviews=reviews, review=review, label=label, detected=detected if label != detected else ""
            )
        row = object_of(replace(view, observers=observers), names)
        if len(observers) != len(self._view.observers) and row.tier == "confirmed":
            row = replace(row, tier="candidate")
        return replace(row, first_seen_s=self._first_s, last_seen_s=max(self._first_s, min(row.last_seen_s, at_s)))
