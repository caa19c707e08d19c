"""What a bridge sees of the daemon, and what the daemon asks of a bridge.

A bridge never changes what the protocols do except through `command`, runs as one supervised task, and fails alone: a
broker that is down or a library that is missing is counted and said, and nothing else slows down.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, runtime_checkable

from swarmd_protocols.effects import MemberChanged, StateChanged, UserEventDelivered
from swarmd_protocols.ids import NodeId
from swarmd_protocols.node import MemberView
from swarmd_protocols.state.observations import CellView, DetectionView, LocalDetection, ObjectView


@dataclass(frozen=True, slots=True)
class DetectionSeen:
    """One detection became known at this node, its own or a peer's."""

    origin: NodeId
    origin_name: str
    detection: LocalDetection
    hlc: int
    sighting: str = ""
    """A peer's register in the shared state (`DetectionView.sighting`); own ones: `DaemonView.own_sighting`."""
    stage_ns: Mapping[str, int] = field(default_factory=dict)
    """How long the eye worked on the frame, by stage; empty for peers and outside detectors."""
    started_ns: int = 0
    """When the eye began with the frame, monotonic; 0 where `stage_ns` is empty."""
    box: tuple[float, float, float, float] | None = None
    """(left, top, right, bottom) as shares of the own frame, 0 to 1; None for peers and outside detectors."""


def seen_of(view: DetectionView, origin_name: str) -> DetectionSeen:
    """A peer's sighting, learned through the shared state, as bridges hear of detections.

    The state keeps no track numbers of others: the time of first sight, unique for each origin, stands in for one.
    """
    detection = LocalDetection(
        kind="new" if view.reports <= 1 else "update",
        track_id=view.first_hlc,
        label=view.label,
        score_milli=view.score_milli,
        east_cm=view.east_cm,
        north_cm=view.north_cm,
        covariance_cm2=view.covariance_cm2,
        asset=view.asset,
        moving=view.moving,
        captured_ns=0,
        model_digest=view.model_digest,
    )
    return DetectionSeen(view.origin, origin_name, detection, view.last_hlc, view.sighting)


@dataclass(frozen=True, slots=True)
class PoseSeen:
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


@dataclass(frozen=True, slots=True)
class NodePosition:
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


@dataclass(frozen=True, slots=True)
class PositionSeen:
    """Another member said where it is; `position` is None when it has lost its fix."""

    node: NodeId
    name: str
    position: NodePosition | None


@dataclass(frozen=True, slots=True)
class PictureSeen:
    """One frame as a small JPEG; only whoever asked gets any (`DaemonView.watch_pictures`), the bus carries none."""

    jpeg: bytes
    width: int
    height: int
    captured_ns: int


BusEvent: TypeAlias = MemberChanged | UserEventDelivered | StateChanged | DetectionSeen | PoseSeen | PositionSeen


@dataclass(frozen=True, slots=True)
class NodeInfo:
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

    def own_sighting(self, track_id: int) -> DetectionView | None:
        """What a living track of this node became in the shared state."""
        ...

    def counters(self) -> Mapping[str, int]:
        """This daemon's monotonic counters, by metric name."""
        ...

    def subscribe(self, callback: Callable[[BusEvent], None]) -> Callable[[], None]:
        """Call back on the loop for each event from now on; the returned function ends it. Callbacks must not block."""
        ...

    def command(self, verb: str, arguments: Mapping[str, object]) -> Mapping[str, object]:
        """Run a control verb as the CLI would; raises `DaemonError` with a sentence for people."""
        ...


class Bridge(Protocol):
    """One outside interface."""

    @property
    def name(self) -> str:
        """Short and fixed: its configuration section, task name and metrics label."""
        ...

    async def run(self, daemon: DaemonView) -> None:
        """Serve until cancelled; reconnects by itself; clean on cancellation."""
        ...

    def counters(self) -> dict[str, int]:
        """Monotonic counts for metrics: published, received, dropped_<reason>, reconnects."""
        ...


@runtime_checkable
class Measured(Protocol):
    """A bridge that also tells how full its queues are."""

    def gauges(self) -> dict[str, int]:
        """Messages by queue."""
        ...
