"""What can be read of the replicated state: objects, detections, cells, counters, notes, status, digests, figures."""

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.clock import Clock
from swarmd_protocols.state.crdt.batch import Batch
from swarmd_protocols.state.crdt.store import Store
from swarmd_protocols.state.observations import CellView, DetectionView, ObjectView
from swarmd_protocols.state.projection import Projection


class ReplicaViews:
    """The reading half of `Replica`; it changes nothing."""

    clock: Clock
    _node: NodeId
    _store: Store
    _projection: Projection
    _counters: dict[str, int]
    _deferred: dict[bytes, Batch]
    _waiting: dict[bytes, tuple[NodeId, Batch]]
    _incarnation: int
    _reads: dict[str, int]

    def objects(self) -> list[ObjectView]:
        """Things in the world as the swarm agrees on them, by id."""
        return self._projection.objects()

    def detections(self) -> list[DetectionView]:
        """Every node's own sightings, before deduplication."""
        return self._projection.detections()

    def own_sighting(self, track_id: int) -> DetectionView | None:
        """What a living track of this node became in the shared state; None for a track that feeds nothing."""
        return self._projection.own_sighting(track_id)

    def superseded_by(self, object_id: str) -> str:
        """The object that an object of this id has become part of, or ""."""
        return self._projection.superseded_by(object_id)

    def cells(self) -> list[CellView]:
        """The survey area, in the order of its definition."""
        return self._projection.cells()

    def counters(self) -> dict[str, dict[NodeId, int]]:
        """Counter to node to value; own counts are current, others' as they last said."""
        shown = self._projection.counters()
        for name, value in self._counters.items():
            by = shown.setdefault(name, {})
            by[self._node] = max(value, by.get(self._node, 0))
        return shown

    def counter_sums(self) -> dict[str, int]:
        """Counter to its sum over the swarm."""
        return {name: sum(by.values()) for name, by in self.counters().items()}

    def notes(self) -> dict[str, bytes]:
        """Operator notes, by key."""
        return self._projection.notes.values()

    def status(self, node: NodeId) -> bytes | None:
        """A node's latest status record."""
        return self._projection.status(node)

    def digest(self) -> bytes:
        """16 bytes over everything that lasts: equal exactly where two nodes know the same facts.

        Covers detections, done cells, notes and quarantines. Status, counters and leases tick for ever and have
        `vitals_digest`. What has been set aside because its stamp lies in the future does not count until its time.
        """
        held = int.from_bytes(self._store.lasting_digest(), "little")
        for digest in self._deferred:
            held -= int.from_bytes(digest, "little")
        return (held & ((1 << 128) - 1)).to_bytes(16, "little")

    def vitals_digest(self) -> bytes:
        """16 bytes over status, counters and leases."""
        return self._store.vitals_digest()

    def health(self) -> dict[str, int]:
        """Figures for metrics and `doctor`."""
        logs = self._store.logs.values()
        return {
            "origins": len(self._store.logs),
            "batches_held": sum(len(log.facts) + len(log.records) for log in logs),
            "bytes_held": sum(log.size_bytes for log in logs),
            "sightings": self._projection.view.count,
            "quarantined": len(self._store.quarantined),
            "waiting_for_keys": len(self._waiting),
            "deferred": len(self._deferred),
            "clock_synced": int(self.clock.synced),
            "clock_offset_ns": self.clock.offset_ns,
            "incarnation": self._incarnation,
            **self._reads,
        }
