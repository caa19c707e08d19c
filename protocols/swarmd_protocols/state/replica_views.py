"""What can be read of the replicated state: objects, detections, cells, counters, notes, status, digests, figures."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from heapq import nlargest

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.author import Author
from swarmd_protocols.state.crdt.batch import Batch, Stream
from swarmd_protocols.state.crdt.records import EventRow
from swarmd_protocols.state.evidence import Evidence, evidence
from swarmd_protocols.state.holdings import Holdings
from swarmd_protocols.state.intake import Intake
from swarmd_protocols.state.observations import CellView, DetectionView, ObjectView, ReviewSubject
from swarmd_protocols.state.survey import Survey

_LET_GO_NAMED = 16
"""Authors of whom `let_go_of` tells."""


class ReplicaViews:
    """The reading half of the replicated state; it changes nothing."""

    def __init__(self, node: NodeId, holdings: Holdings, author: Author, intake: Intake) -> None:
        """Over the parts of one replica."""
        self._node = node
        self._holdings = holdings
        self._projection = holdings.projection
        self._author = author
        self._intake = intake

    def objects(self) -> list[ObjectView]:
        """Things in the world as the swarm agrees on them, by id."""
        return self._projection.shown.objects()

    def detections(self) -> list[DetectionView]:
        """Every node's own sightings, before deduplication."""
        return self._projection.detections()

    def left_out(self) -> dict[str, int]:
        """Own new things for which there was no room, once for each frame that showed them."""
        return {"": self._projection.own.left_out.count}

    def let_go(self) -> dict[str, int]:
        """Batches of facts that were let go because their author's log had reached its bounds here."""
        return {"": self._holdings.store.cuts.batches}

    def let_go_of(self) -> dict[NodeId, int]:
        """The same by author, of those who lost most."""
        cuts = self._holdings.store.cuts.by_origin
        return {origin: cuts[origin].batches for origin in nlargest(_LET_GO_NAMED, cuts, lambda of: cuts[of].batches)}

    def object_parts(self) -> Iterator[Sequence[ObjectView]]:
        """The same, a few at a time, for who must not hold the event loop up for all of them."""
        return self._projection.shown.parts()

    def evidence_parts(self, wanted: Collection[str] | None = None) -> Iterator[Sequence[Evidence]]:
        """Objects (of these ids, or all) with the signed batches behind them, a few at a time."""
        return evidence(self._projection.shown, self._holdings.store.logs, wanted)

    def records(self, streams: Collection[Stream]) -> list[Batch]:
        """The latest records of every node that are held, as they were signed, by node."""
        logs = self._holdings.store.logs
        return [one for node in sorted(logs) for one in logs[node].records.values() if one.stream in streams]

    def object_count(self) -> int:
        """How many objects there are."""
        return self._projection.shown.count

    def detection_parts(self) -> Iterator[Sequence[DetectionView]]:
        """`detections`, a few at a time."""
        return self._projection.detection_parts()

    def cell_parts(self) -> Iterator[Sequence[CellView]]:
        """`cells`, a few at a time."""
        return self._projection.survey.parts()

    def pictures(self) -> frozenset[bytes]:
        """Names of the pictures that own sightings bear (`thumbs/form.py`), said or about to be."""
        rows = [row for one in self._projection.own.registers.values() for row in (one.row, one.said) if row]
        return frozenset(row.thumb for row in rows if row.thumb)

    def authors_of_picture(self, name: bytes) -> list[NodeId]:
        """Nodes a sighting of which names this picture."""
        return self._projection.pictures.authors_of(name)

    def superseded_by(self, object_id: str) -> str:
        """The object that an object of this id has become part of, or ""."""
        return self._projection.shown.superseded_by(object_id)

    def review_subject(self, object_id: str) -> ReviewSubject | None:
        """What a review of an object has to name; None where no object of that id is shown."""
        return self._projection.shown.subject(object_id)

    @property
    def survey(self) -> Survey:
        """The cells and who claims them."""
        return self._projection.survey

    def cells(self) -> list[CellView]:
        """The survey area, in the order of its definition."""
        return self._projection.survey.cells()

    def counters(self) -> dict[str, dict[NodeId, int]]:
        """Counter to node to value; own counts are current, others' as they last said."""
        return {name: by for part in self.counter_parts() for name, by in part.items()}

    def counter_parts(self) -> Iterator[dict[str, dict[NodeId, int]]]:
        """As `counters`, a few at a time."""
        own = self._author.counters
        for part in self._projection.vitals.counter_parts(own):
            for name, by in part.items():
                if name in own:
                    by[self._node] = max(own[name], by.get(self._node, 0))
            yield part

    def counter_sums(self) -> dict[str, int]:
        """Counter to its sum over the swarm."""
        return {name: sum(by.values()) for name, by in self.counters().items()}

    def notes(self) -> dict[str, bytes]:
        """Operator notes, by key."""
        return self._projection.notes.values()

    def note(self, key: str) -> tuple[bytes, NodeId] | None:
        """One operator note and who put it; None where there is none."""
        return self._projection.notes.newest(key)

    def status(self, node: NodeId) -> bytes | None:
        """A node's latest status record."""
        return self._projection.vitals.status(node)

    def events(self) -> dict[NodeId, tuple[EventRow, ...]]:
        """The latest events of importance of each node that has said any, by node."""
        return self._projection.vitals.events()

    def digest(self) -> bytes:
        """16 bytes over everything that lasts: equal exactly where two nodes know the same facts.

        Covers detections, done cells, notes and quarantines. Status, counters, leases and events come and go and have
        `vitals_digest`. What has been set aside because its stamp lies in the future does not count until its time.
        """
        return self._holdings.digest()

    def vitals_digest(self) -> bytes:
        """16 bytes over status, counters and leases."""
        return self._holdings.store.vitals_digest()

    @property
    def incarnation(self) -> int:
        """The number of this life: higher than every one before it that the journal or a peer knows."""
        return self._author.incarnation

    def sent(self) -> Mapping[str, int]:
        """Payload bytes and messages by kind (`sent.py`), since this life began."""
        return self._intake.sent.figures()

    def health(self) -> dict[str, int]:
        """Figures for metrics and `doctor`."""
        holdings, intake = self._holdings, self._intake
        logs, quotas = holdings.store.logs.values(), intake.quotas
        return {
            "origins": len(holdings.store.logs),
            "batches_held": sum(len(log.facts) + len(log.records) for log in logs),
            "bytes_held": holdings.store.size_bytes,
            "sightings": self._projection.view.count,
            "undecided": self._projection.view.undecided.waiting,
            "reviews_invalid": self._projection.reviews.invalid,
            "let_go": holdings.store.cuts.batches,
            "let_go_bytes": holdings.store.cuts.size_bytes,
            "refused": holdings.store.cuts.refused,
            "quarantined": len(holdings.store.quarantined),
            "aside": len(holdings.shelved),
            "waiting_for_certificates": intake.waiting,
            "in_debt": len(quotas.authors.debtors | quotas.volumes.debtors) + len(quotas.senders.debtors),
            "deferred": len(holdings.deferred),
            "clock_synced": int(holdings.clock.synced),
            "clock_offset_ns": holdings.clock.offset_ns,
            "incarnation": self.incarnation,
            "batches": holdings.batches_joined,
            "late": holdings.batches_late,
            **intake.counts,
        }
