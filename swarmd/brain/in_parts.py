"""The long views of the brain, a few rows at a time (`swarmd.api.daemon.InParts`)."""

import time
from collections.abc import Iterator, Mapping, Sequence

from swarmd.brain.dismissals import dismissed
from swarmd_protocols.ids import NodeId
from swarmd_protocols.neighbours.neighbours import Neighbours
from swarmd_protocols.neighbours.requests import NeighbourView
from swarmd_protocols.node import Node
from swarmd_protocols.state.observations import CellView, DetectionView, ObjectView, ReviewSubject
from swarmd_protocols.state.replica_views import ReplicaViews
from swarmd_protocols.summary import MemberView


class PartsOfViews:
    """Reads a node and its replica.

    Args:
        node: Whose members.
        views: Of its replicated state.
        neighbours: What it knows of the swarms beside its own.
    """

    def __init__(self, node: Node, views: ReplicaViews, neighbours: Neighbours | None = None) -> None:
        self._node = node
        self._views = views
        self._neighbours = neighbours

    @property
    def is_partial(self) -> bool:
        """Whether this node knows its neighbours alone of the members."""
        return self._node.summary().partial

    def names(self) -> Mapping[NodeId, str]:
        """Node to name of all members."""
        return self._node.names()

    def members(self) -> Iterator[Sequence[MemberView]]:
        """All members, this node included; failed ones that an operator dismissed apart."""
        for part in self._node.member_parts():
            gone = dismissed(part, self._views.note)
            yield [member for member in part if member.node not in gone]

    def objects(self) -> Iterator[Sequence[ObjectView]]:
        """The deduplicated view."""
        return self._views.object_parts()

    def review_subject(self, object_id: str) -> ReviewSubject | None:
        """What a review of a shown object has to name."""
        return self._views.review_subject(object_id)

    def detections(self) -> Iterator[Sequence[DetectionView]]:
        """Every node's sightings, before deduplication."""
        return self._views.detection_parts()

    def counters(self) -> Iterator[Mapping[str, Mapping[NodeId, int]]]:
        """The swarm's counters, by name and node."""
        return self._views.counter_parts()

    def cells(self) -> Iterator[Sequence[CellView]]:
        """The survey area."""
        return self._views.cell_parts()

    def neighbours(self) -> Sequence[NeighbourView]:
        """The swarms beside this one."""
        return [] if self._neighbours is None else self._neighbours.views(time.monotonic_ns())
