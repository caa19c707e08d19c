"""The daemon as its other rooms see it: who it is, what it knows, what happens in it, and how to ask it for something.

Bridges, verbs, pages, metrics and recordings take a `DaemonView` and never the brain: nothing here can change what the
protocols do except `command`. Every call is on the event loop and returns at once.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec

from swarmd.api.histogram import Histogram
from swarmd.events.alerts import Alert
from swarmd.events.pages import Fetched
from swarmd.events.record import EventRecord, Happened
from swarmd.events.store import Query
from swarmd_models.geo.sightings import SightingFilter
from swarmd_protocols.effects import Event, MemberChanged, StateChanged, UserEventDelivered
from swarmd_protocols.ids import NodeId
from swarmd_protocols.neighbours.requests import NeighbourView
from swarmd_protocols.past.fetching import Stretch
from swarmd_protocols.state.observations import CellView, DetectionView, LocalDetection, ObjectView, ReviewSubject
from swarmd_protocols.summary import MemberView, NodeSummary, TrustSummary


class Look(msgspec.Struct, frozen=True):
    """How this node's own eye saw a track last: what no other node needs to know, and so no message carries."""

    box: tuple[float, float, float, float] | None
    """(left, top, right, bottom) as shares of the frame, 0 to 1."""
    stage_ns: Mapping[str, int] = msgspec.field(default_factory=dict)
    """How long the eye worked on the frame, by stage."""
    started_ns: int = 0
    """When the eye began with the frame, monotonic."""
    extent_m: tuple[float, float] | None = None
    """How far the box reaches east and north on the level ground, metres; None where nobody knows."""


class PoseSeen(msgspec.Struct, frozen=True):
    """Where this node is now, from its pose source (eye, MAVLink or fixed)."""

    latitude_deg: float
    longitude_deg: float
    height_agl_m: float
    yaw_rad: float
    position_sigma_m: float
    has_fix: bool
    battery_milli: int | None
    captured_ns: int
    camera_to_ned: tuple[float, float, float, float] | None = None
    """Unit quaternion (w, x, y, z) from the camera's forward-right-down frame; None where nobody knows."""
    altitude_m: float | None = None
    """Above the WGS 84 ellipsoid; None where nobody knows."""


class NodePosition(msgspec.Struct, frozen=True):
    """Where a member is, as it told the swarm."""

    node: NodeId
    latitude_deg: float
    longitude_deg: float
    height_agl_m: float
    yaw_rad: float | None
    position_sigma_m: float
    battery_milli: int | None
    captured_ns: int
    """On this node's monotonic clock."""
    altitude_m: float | None = None
    """Above the WGS 84 ellipsoid; None where the member has not told how high its ground lies."""


class PositionSeen(msgspec.Struct, frozen=True):
    """Another member said where it is; `position` is None when it has lost its fix."""

    node: NodeId
    name: str
    position: NodePosition | None


class PictureSeen(msgspec.Struct, frozen=True):
    """One frame as a small JPEG; only whoever asked gets any (`DaemonView.watch_pictures`), the bus carries none."""

    jpeg: bytes
    width: int
    height: int
    captured_ns: int


class LendingSpan(msgspec.Struct, frozen=True, gc=False):
    """A request that was borrowed is through at its borrower, or at a lender; feeds of slow consumers leave it out."""

    name: str
    """`borrow` at the borrower, `lend` at a lender."""
    borrower: NodeId
    request: int
    """The borrower's number of it."""
    attempt: int
    """Which of its attempts the lender was; at the borrower, which one counted."""
    began_ns: int
    """On this node's monotonic clock, as `ended_ns`."""
    ended_ns: int
    attributes: dict[str, str | int | bool]
    cause: str = ""
    """W3C `traceparent` of what the borrower's program was doing; "": it did not say."""


TRUST_KEY = "trust"
"""Metadata key under which each daemon tells what it holds of the fleet's trust (`brain/trust_told.py`)."""
BusEvent: TypeAlias = (
    MemberChanged | UserEventDelivered | StateChanged | PoseSeen | PositionSeen | LendingSpan | Happened
)
"""What happens; a sighting, own or a peer's, is `StateChanged("state", DetectionLearned(…))`."""


class NodeInfo(msgspec.Struct, frozen=True):
    """Who this daemon is, as bridges announce it."""

    node: NodeId
    name: str
    swarm: str
    version: str
    origin_latitude_deg: float
    origin_longitude_deg: float
    model: str
    model_digest: str
    labels: tuple[str, ...]
    has_origin: bool = True
    """Without a mission origin nothing has a place on the plane, and the two numbers above mean nothing."""


class DaemonView(Protocol):
    """The daemon as a bridge sees it; every call is on the event loop and returns at once."""

    def info(self) -> NodeInfo:
        """Who we are."""
        ...

    def members(self) -> Sequence[MemberView]:
        """All members, this node included."""
        ...

    def name_of(self, node: NodeId) -> str:
        """A member's name; its id in hexadecimal digits where it is not known."""
        ...

    def objects(self) -> Sequence[ObjectView]:
        """The deduplicated view."""
        ...

    def cells(self) -> Sequence[CellView]:
        """The survey area."""
        ...

    def positions(self) -> Mapping[NodeId, NodePosition]:
        """The last known position of each member that has said one, this node included."""
        ...

    def watch_pictures(
        self, callback: Callable[[PictureSeen], None], interval_ms: int, width: int, quality: int
    ) -> Callable[[], None]:
        """Have the eye show small pictures, at most one in `interval_ms`; the returned function ends it."""
        ...

    def fetch_thumb(self, name: bytes) -> bool:
        """Ask for the thumbnail of this name, which the bus tells (`ThumbLearned`); False: this node keeps none."""
        ...

    def look(self, track_id: int) -> Look | None:
        """How the own eye saw a living track last; None for outside detectors and tracks that have ended."""
        ...

    @property
    def in_parts(self) -> "InParts":
        """What may be long, a few at a time."""
        ...

    def counters(self) -> Mapping[str, int]:
        """This daemon's monotonic counters, by metric name."""
        ...

    def subscribe(self, callback: Callable[[BusEvent], None]) -> Callable[[], None]:
        """Call back on the loop for each event from now on; the returned function ends it. Callbacks must not block."""
        ...

    def command(self, verb: str, arguments: Mapping[str, object], by: str = "a bridge") -> Mapping[str, object]:
        """Run a control verb as the CLI would; raises `DaemonError` with a sentence for people.

        Args:
            verb: Which.
            arguments: Of it.
            by: Who asks, for the history.
        """
        ...


class InParts(Protocol):
    """Long views, each a few at a time: who reads them lets the loop turn between two parts, and things may change."""

    @property
    def is_partial(self) -> bool:
        """Whether this node knows its neighbours alone of the members."""
        ...

    def names(self) -> Mapping[NodeId, str]:
        """Node to name of all members, those that an operator dismissed included."""
        ...

    def members(self) -> Iterator[Sequence[MemberView]]:
        """As `DaemonView.members`."""
        ...

    def objects(self) -> Iterator[Sequence[ObjectView]]:
        """As `DaemonView.objects`."""
        ...

    def review_subject(self, object_id: str) -> ReviewSubject | None:
        """What a review of a shown object has to name; None where none of that id is shown."""
        ...

    def detections(self) -> Iterator[Sequence[DetectionView]]:
        """Every node's sightings, before deduplication."""
        ...

    def cells(self) -> Iterator[Sequence[CellView]]:
        """As `DaemonView.cells`."""
        ...

    def counters(self) -> Iterator[Mapping[str, Mapping[NodeId, int]]]:
        """The swarm's counters, by name and node."""
        ...

    def neighbours(self) -> Sequence[NeighbourView]:
        """The swarms of other owners beside this one: few, and of each what fits one word."""
        ...


class EyeControl(Protocol):
    """The eye as a person at the control socket sees it."""

    @property
    def state(self) -> str:
        """`starting`, `running`, `restarting`, `degraded`, `finished` or `failed`."""
        ...

    def start(self) -> None:
        """Let it see."""
        ...

    def stop(self) -> None:
        """End its process."""
        ...


class PeerPast(Protocol):
    """What others wrote down of their own past, as far as it was fetched; moments are UTC seconds since 1970."""

    def want(self, from_s: float, to_s: float) -> None:
        """Fetch what others wrote down between two moments."""
        ...

    def stretches(self, from_s: float, to_s: float) -> Sequence[Stretch]:
        """Of which times everybody's past is here, and why not of the others; milliseconds since 2020."""
        ...

    async def between(self, from_s: float, to_s: float) -> Sequence[Fetched]:
        """Pages that touch a stretch of time, by their end, the oldest first, a bounded number."""
        ...

    async def newest(self, at_s: float) -> Sequence[Fetched]:
        """Of each node the newest page that began by a moment."""
        ...

    async def events(self, query: Query) -> Sequence[EventRecord]:
        """What pages tell of a query, oldest first."""
        ...

    def records(self, one: Fetched) -> Sequence[EventRecord]:
        """The events of a page."""
        ...

    def name_of(self, node: NodeId) -> str:
        """A node's name, also of one that is a member no more."""
        ...


class Past(Protocol):
    """What happened at this node and what others told, and what stands unsolved."""

    @property
    def pages(self) -> PeerPast:
        """What was fetched of others."""
        ...

    def standing(self) -> Sequence[Alert]:
        """Alerts, the gravest first."""
        ...

    def problems(self) -> Sequence[str]:
        """What a person has to mend before this node is healthy."""
        ...

    def note(self, kind: str, subject: str, reason: str) -> None:
        """Write down what a bridge saw happen."""
        ...

    def set_alert(self, code: str, text: str, subject: str = "") -> None:
        """Raise a standing alert, or clear it with an empty text."""
        ...

    async def find(self, query: Query) -> Sequence[EventRecord]:
        """Events, oldest first."""
        ...

    def dismissed(self) -> Mapping[NodeId, NodeId]:
        """Failed members that lists leave out, and who dismissed each."""
        ...

    def dismiss(self, name: str) -> NodeId:
        """Take a failed member off the lists until it returns; raises `DaemonError` where there is none."""
        ...


class Operations(DaemonView, Protocol):
    """What the control verbs and pages need beyond a `DaemonView`; refusals are `ProtocolError`s of the protocols."""

    def status(self) -> Mapping[str, Any]:
        """Everything at a glance, JSON-ready."""
        ...

    @property
    def past(self) -> "Past":
        """What happened, and what stands unsolved."""
        ...

    def waits_for(self) -> str:
        """What is missing until this daemon is ready; "" when it is."""
        ...

    def summary(self) -> NodeSummary:
        """The membership at a glance."""
        ...

    def trust(self) -> TrustSummary:
        """What this node holds of the fleet's trust."""
        ...

    def stages(self) -> Mapping[str, Histogram]:
        """Latency by stage."""
        ...

    def served(self) -> Sequence[tuple[str, str, str]]:
        """(topic, kind, what) of all that this daemon offers to others."""
        ...

    def request(self, event: Event) -> None:
        """Give the node a local request."""
        ...

    def ask(self, subprotocol: str, request: object) -> None:
        """Give a sub-protocol a request."""
        ...

    def add_statement(self, kind: str, statement: bytes) -> bool:
        """Take a statement about trust; whether it was new."""
        ...

    @property
    def sightings(self) -> SightingFilter[LocalDetection]:
        """Places and filters what outside detectors say."""
        ...

    @property
    def eye_control(self) -> EyeControl | None:
        """The eye; None on a node without one."""
        ...

    def on_pose(self, pose: PoseSeen, is_armed: bool | None) -> None:
        """The autopilot's newest pose, and whether the vehicle is armed: to the eye, to peers, to whoever listens."""
        ...

    def note_problem(self, where: str, text: str) -> None:
        """Say a bridge's trouble in the log."""
        ...

    def stop(self) -> None:
        """Begin to leave."""
        ...
