"""The words of the eye: frame, pose, detection, track event. Plain values, no I/O.

Boxes are (x1, y1, x2, y2) in pixels of the source frame, x right, y down, float. Angles are radians, lengths metres,
times integer nanoseconds of the device's monotonic clock.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Image: TypeAlias = npt.NDArray[np.uint8]
else:
    # The brain, which reads poses and events but never a picture, need not load numpy.
    Image = Any
"""Shape (H, W) grey or (H, W, 3) BGR, uint8, row 0 at the top."""


@dataclass(frozen=True, slots=True)
class Pose:
    """Where the camera was and how it looked when a frame was captured."""

    captured_ns: int
    latitude_deg: float
    longitude_deg: float
    height_agl_m: float
    """Above the ground below, not above sea level."""
    camera_to_ned: tuple[float, float, float, float]
    """Unit quaternion (w, x, y, z) from the camera's forward-right-down frame to north-east-down."""
    position_sigma_m: float = 1.5
    height_sigma_m: float = 1.0
    attitude_sigma_rad: float = 0.0175
    has_fix: bool = True
    """False: the numbers above must not be used to place anything."""
    ground_m: float | None = None
    """Height of the ground below by a height model; None: not known, and the ground is taken as level."""


@dataclass(frozen=True, slots=True)
class Level:
    """What the grey levels of a levelled thermal frame mean: value = `zero` + `step` × grey, but at 0 and 255."""

    zero: float
    """In the camera's own counts, or kelvin or degrees Celsius where it gives floats."""
    step: float


@dataclass(frozen=True, slots=True)
class Frame:
    """One picture with the time of its capture."""

    index: int
    captured_ns: int
    image: Image
    pose: Pose | None = None
    level: Level | None = None
    """Of frames that a thermal camera gave as measurements (`levelling.py`)."""


class FrameSource(Protocol):
    """Anything that gives frames: camera, stream, video, folder, simulated drone."""

    def read(self) -> Frame | None:
        """The next frame, in order; None at the end. Blocks until there is one.

        Raises `SourceError` when the source has gone, `FrameError` when only this frame is bad and `read` may go on.
        """
        ...

    def close(self) -> None:
        """Release the device or file; may be called twice."""
        ...


@dataclass(frozen=True, slots=True)
class Detection:
    """What the model says about one place in one frame."""

    class_index: int
    label: str
    score: float
    box: tuple[float, float, float, float]
    whole_box: tuple[float, float, float, float] | None = None
    """Where the model sees the thing go on beyond the frame's border, the box before it was cut; else None."""
    need: float = 0.0
    """Score from which the model would be sure; above `score` this is a candidate."""


@dataclass(frozen=True, slots=True)
class GroundPosition:
    """A point on the ground with its uncertainty."""

    latitude_deg: float
    longitude_deg: float
    covariance_m2: tuple[float, float, float]
    """(east-east, east-north, north-north), square metres."""


@dataclass(frozen=True, slots=True)
class TrackEvent:
    """The life of one tracked thing: `new` once, `update` while seen, `end` once; the id is never used again."""

    kind: Literal["new", "update", "end"]
    track_id: int
    class_index: int
    label: str
    score: float
    """The best so far."""
    box: tuple[float, float, float, float]
    captured_ns: int
    hits: int
    """Frames in which it was detected."""
    position: GroundPosition | None
    extent_m: tuple[float, float] | None = None
    """How far its box reaches east and north on the ground, metres; None without a pose or across the horizon."""
    features: bytes = b""
    """How it looks, 17 bytes (`looks.py`), where this look is better than any told before; b"": not said."""
    need: float = 0.0
    """Score from which its looks would count; 0 where enough of them did."""


@dataclass(frozen=True, slots=True)
class EyeResult:
    """All that came of one frame."""

    frame_index: int
    captured_ns: int
    detections: Sequence[Detection]
    events: Sequence[TrackEvent]
    stage_ns: dict[str, int] = field(default_factory=dict)
    """Nanoseconds by stage: preprocess, infer, decode, nms, track, locate."""
    rejected: str = ""
    """Why nothing that was seen in it counts (`strange.REASONS`), or ""."""
