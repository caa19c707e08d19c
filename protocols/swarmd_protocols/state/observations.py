"""What the daemon tells the replicated state, and what it reads back: values in integers, so that every node and
every CPU computes the same views.

Positions are centimetres in the east-north plane about the mission origin (configuration `node.origin`), scores are
thousandths. The daemon converts at the edge; inside, there are no floats.
"""

from dataclasses import dataclass
from hashlib import blake2b

import msgspec

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.records import EventRow


@dataclass(frozen=True, slots=True)
class LocalDetection:
    """One event of one track of this node's own eye (or of a detector that feeds us)."""

    kind: str
    """"new", "update" or "end"."""
    track_id: int
    label: str
    score_milli: int
    """0..1000."""
    east_cm: int | None
    north_cm: int | None
    covariance_cm2: tuple[int, int, int] | None
    """(east-east, east-north, north-north); None with the position."""
    asset: str
    """Identity from the site map, or "" where none is known."""
    moving: bool
    """A thing that moves is the same thing only by its track, never by its place."""
    captured_ns: int
    """This node's monotonic clock."""
    model_digest: bytes
    """First 8 bytes of the model's SHA-256."""
    thumb: bytes = b""
    """Name of the picture that this node keeps of it (`thumbs/form.py`); b"": it keeps none."""
    features: bytes = b""
    """How it looks to the model, 17 bytes (`dedup/looks.py`); b"": not said."""
    need_milli: int = 0
    """Score from which the detector would be sure; above `score_milli` it is a candidate (`dedup/tiers.py`)."""
    alike_milli: tuple[int, int] = (0, 0)
    """How alike two looks of its model are, in a pass and on two days, thousandths; 0: the bundle does not say."""


class DetectionView(msgspec.Struct, frozen=True, gc=False):
    """One node's own sighting of one thing, before deduplication."""

    origin: NodeId
    object_id: str
    """The object that it belongs to."""
    label: str
    score_milli: int
    east_cm: int | None
    north_cm: int | None
    covariance_cm2: tuple[int, int, int] | None
    asset: str
    moving: bool
    first_hlc: int
    last_hlc: int
    reports: int
    model_digest: bytes
    sighting: str = ""
    """Names the register at its origin; the same on every node, and for as long as the sighting lives."""
    thumb: bytes = b""
    """Name of the picture that its origin keeps of it (`thumbs/form.py`); b"": it keeps none."""
    need_milli: int = 0
    """Score from which its origin would be sure."""

    @property
    def is_candidate(self) -> bool:
        """Whether its origin is not sure of it."""
        return self.score_milli < self.need_milli

    @property
    def detection_id(self) -> str:
        """The one public id of this sighting: the same on every node, in every outlet, for as long as it lives.

        Origin and register make it, so that nothing has to carry it and no time or track number shows in it.
        """
        name = blake2b(self.sighting.encode(), digest_size=8, person=b"swarmd-sighting").hexdigest()
        return f"{self.origin.hex()[:16]}-{name}"


class ReviewView(msgspec.Struct, frozen=True, gc=False):
    """What one operator says of one thing: the newest verdict, or the newest note."""

    operator: str
    """The name that the operator goes by; whose it is, the key says."""
    key: str
    """First eight hexadecimal digits of the id of the operator's key."""
    verdict: str
    """"confirm", "reject", "relabel", "withdraw" or "note"."""
    text: str
    """The right label, or the words of the note."""
    seen: str
    """The label that the operator saw."""
    made_ms: int
    """Milliseconds since 1970, by the clock of the operator's machine."""
    revision: int
    digest: bytes
    """Names the statement."""
    statement: bytes
    """As the operator signed it: who keeps it can prove it."""


class ObjectView(msgspec.Struct, frozen=True, gc=False):
    """One thing in the world as the swarm agrees on it: the deduplicated view that users see."""

    object_id: str
    label: str
    score_milli: int
    east_cm: int | None
    north_cm: int | None
    covariance_cm2: tuple[int, int, int] | None
    asset: str
    observers: tuple[NodeId, ...]
    first_hlc: int
    last_hlc: int
    confirmed: bool
    """At least `dedup.confirm_observers` distinct nodes are sure of it, or sure together (`dedup/tiers.py`)."""
    reports: int
    review: str = ""
    """What operators agree on: "confirmed", "relabelled", "rejected"; "disputed"; "" where nobody has a verdict."""
    detected: str = ""
    """The label that the detectors give it, where operators have corrected `label`; else ""."""
    reviews: tuple[ReviewView, ...] = ()
    """What each operator says, by key."""
    thumb: bytes = b""
    """Name of the picture of the surest sighting that has one (`thumbs/form.py`); b"": none has."""
    evidence_milli: int = 1000
    """What its sightings are worth together, thousandths of what makes one sure; 1000 where anybody is."""

    @property
    def is_fault(self) -> bool:
        """Whether it may be called one to the outside: somebody is sure, or all are together, or operators say so."""
        return self.evidence_milli >= 1000 or self.review in ("confirmed", "relabelled")

    @property
    def tier(self) -> str:
        """ "reviewed" (operators agree), "confirmed" (enough members are sure), or "candidate"."""
        if self.review not in ("", "disputed"):
            return "reviewed"
        return "confirmed" if self.confirmed else "candidate"


class ReviewSubject(msgspec.Struct, frozen=True, gc=False):
    """What a review of an object has to name."""

    swarm: str
    origin: bytes
    label: str
    kind: int
    place: tuple[int, int] | str
    seen: str
    """The label that the object bears."""
    basis: bytes
    revision: int
    """Of the next review."""


class CellView(msgspec.Struct, frozen=True, gc=False):
    """One piece of the survey area and who works on it."""

    cell_id: str
    centre_east_cm: int
    centre_north_cm: int
    state: str
    """"open", "claimed" or "done"."""
    holder: NodeId | None
    done_by: tuple[NodeId, ...]


# --- Requests to the sub-protocol "state", wrapped in `effects.Command` ---------------------------------------------


class Observed(msgspec.Struct, frozen=True, gc=False):
    """Own detections of one frame."""

    detections: tuple[LocalDetection, ...]


class Judged(msgspec.Struct, frozen=True, gc=False):
    """What another judge, asked again, says of an object; what it says next replaces this."""

    object_id: str
    score_milli: int
    """0 to 1000; 0 withdraws what was said."""
    need_milli: int
    """Score from which it would be sure, 1 to 1000."""
    model_digest: bytes
    """First 8 bytes of the model's SHA-256."""
    alike_milli: tuple[int, int] = (0, 0)
    """As in `LocalDetection`."""


class StatusReport(msgspec.Struct, frozen=True, gc=False):
    """This node's status record (capability, battery, temperature, queue, model digest), at most 1 KiB, opaque here."""

    payload: bytes


class Count(msgspec.Struct, frozen=True, gc=False):
    """Add to this node's own grow-only counters, such as ("frames_inferred", 30)."""

    increments: tuple[tuple[str, int], ...]


class DefineCells(msgspec.Struct, frozen=True, gc=False):
    """The survey area, the same on every node (from the configuration): (cell id, centre east cm, centre north cm)."""

    cells: tuple[tuple[str, int, int], ...]


class WantCell(msgspec.Struct, frozen=True, gc=False):
    """This node is free for work and here; answered by `CellAssigned` now or later, two cells deep."""

    east_cm: int
    north_cm: int
    battery_milli: int


class CellProgress(msgspec.Struct, frozen=True, gc=False):
    """The work on this cell goes on; a holder that never says so is taken for a squatter after a while."""

    cell_id: str


class CellDone(msgspec.Struct, frozen=True, gc=False):
    """This node has finished the cell; durable before anybody hears of it."""

    cell_id: str
    quality_milli: int


class SetNote(msgspec.Struct, frozen=True, gc=False):
    """Set (or with b"" remove) one operator note or zone in the shared add-wins map."""

    key: str
    value: bytes


class SayReview(msgspec.Struct, frozen=True, gc=False):
    """Put a statement of an operator before everybody; it holds whoever hands it over."""

    statement: bytes


class SayEvent(msgspec.Struct, frozen=True, gc=False):
    """Put one event of importance before everybody; the oldest of more than `records.EVENTS_MAX` goes."""

    row: EventRow


# --- Details of `effects.StateChanged("state", …)`: notifications -----------------------------------------------------


class ObjectChanged(msgspec.Struct, frozen=True, gc=False):
    """An object appeared, changed, merged into another, or expired."""

    kind: str
    """"new", "update", "superseded" or "expired"."""
    view: ObjectView
    superseded_by: str


class DetectionLearned(msgspec.Struct, frozen=True, gc=False):
    """A sighting became known here, or changed: this node's own, at once, and every other node's, when it arrives."""

    view: DetectionView
    kind: str = "new"
    """"new" or "update"; of this node's own track also "end"."""
    track_id: int | None = None
    """The track of this node's detector that feeds it; None for other nodes' sightings."""
    captured_ns: int = 0
    """When the frame was taken, on this node's monotonic clock; 0 for other nodes' sightings."""


class EventsLearned(msgspec.Struct, frozen=True, gc=False):
    """Another node's events became known here: signed by it, each told once; after a restart those since."""

    origin: NodeId
    rows: tuple[EventRow, ...]


class CellChanged(msgspec.Struct, frozen=True, gc=False):
    """A cell's shared state changed."""

    view: CellView


# --- Requests of `effects.Order("state", …)`: what the driver shall do ------------------------------------------------


class CellAssigned(msgspec.Struct, frozen=True, gc=False):
    """Work on this cell now (settled, lease held)."""

    cell_id: str


class CellLost(msgspec.Struct, frozen=True, gc=False):
    """Stop working on this cell: another node's claim won, or the own lease ran out."""

    cell_id: str
