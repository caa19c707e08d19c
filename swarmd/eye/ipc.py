"""What brain and eye say to each other over their socket pair.

Each message is a 4-byte big-endian length and that many bytes of msgpack, a tagged array. The brain speaks first, with
`Configure`. Either side that reads what it cannot decode stops talking: both come from one installation, so bytes that
make no sense mean a broken process, never a newer peer.

```
 0        4                      4+n
 ├────────┼──────────────────────┤
 │ n (BE) │ msgpack ["Tag", …]   │   n <= 1 MiB
 └────────┴──────────────────────┘
```
"""

from typing import TypeAlias, TypeVar

import msgspec

from swarmd.errors import EyeError
from swarmd_models.types import Pose, TrackEvent

MAX_MESSAGE_BYTES = 1 << 20
"""Bytes of one message: a picture has 256 KiB, a frame's events some kB."""
_T = TypeVar("_T")
LENGTH_BYTES = 4
"""Bytes of the length in front of each message."""


class _Message(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Base: a tagged msgpack array."""


# --- Brain to eye ---------------------------------------------------------------------------------------------------


class TerrainWords(msgspec.Struct, frozen=True):
    """What the ground is like (`swarmd_models.geo.terrain`)."""

    path: str = ""
    """Height model; "": level ground."""
    sigma_m: float = 0.0
    home: str = ""
    """`LAT,LON`, or nothing."""
    level: bool = False
    """Level ground where the model says nothing."""


class CameraRule(msgspec.Struct, frozen=True):
    """What is known of the camera."""

    hfov_deg: float = 0.0
    """Horizontal field of view; 0: unknown, and nothing is placed on the ground unless the source knows its camera."""
    calibration: str = ""
    """File of its calibration (`swarmd_models.geo.calibration`); goes before `hfov_deg`."""
    boresight_deg: tuple[float, ...] = ()
    """Yaw, pitch and roll of the camera against what poses say of it."""
    terrain: TerrainWords = TerrainWords()
    attitude_sigma_deg: float = 0.0
    """How well it is known where it looks; 0: as poses say."""


class OperatingPoint(msgspec.Struct, frozen=True):
    """What counts of what the model says."""

    false_per_1000: float = 0.0
    """False alarms in 1,000 healthy things that thresholds may let through; 0: the bundle's own thresholds."""
    candidates_per_1000: float = 0.0
    """The same for candidates; 0: none are told."""
    reject: bool = False
    """Whether frames and detections of another world count for nothing (`swarmd_models.strange`)."""


class PrivateRule(msgspec.Struct, frozen=True):
    """What nobody is shown of a picture that leaves the eye."""

    never: tuple[str, ...] = ()
    """Words in a label of which no thumbnail and no look is made, beside those that are always private."""
    detector: str = ""
    """Bundle of a detector of its own that looks for people and vehicles (`swarmd_models.redaction`); "": none."""
    masks: tuple[str, ...] = ()
    """Parts of the frame that are always covered, as `swarmd_models.redaction.read_masks` takes them."""
    shows_frames: bool = False
    """Whether a picture shows more than findings and a little around them."""


class Configure(_Message, frozen=True):
    """How to run; the first message, exactly once."""

    source: str
    model: str
    labels: str = ""
    max_frames: int = 0
    """0: until the source ends."""
    paced: bool = True
    """Videos at their own pace, newest frame first; False: every frame, as fast as they can be inferred."""
    loop: bool = False
    pose: str = ""
    """As `swarmd_models.geo.poses.open_poses` takes it; frames that carry a pose need none."""
    camera: CameraRule = CameraRule()
    backends: tuple[str, ...] = ("litert",)
    threads: int = 1
    score_threshold: float = 0.0
    """0: the bundle's."""
    min_hits: int = 0
    """0: the bundle's."""
    update_interval_ms: int = 100
    stats_interval_s: float = 1.0
    frame_interval_ms: float = 100.0
    """What the model has to keep up with."""
    first_track_id: int = 1
    keep_frames: str = ""
    """Folder for frames the model was unsure of; "" keeps none, ever."""
    keep_frames_bytes: int = 256 << 20
    system: str = "/sys"
    """Where the kernel tells temperatures and batteries."""
    calm_s: float = 60.0
    """How long all must be well before the eye takes on more again."""
    dwell_s: float = 5.0
    """Between two steps down."""
    point: OperatingPoint = OperatingPoint()
    thumbnails: bool = False
    """Whether small pictures of tracks are made (`thumbs.py`)."""
    private: PrivateRule = PrivateRule()
    looks: bool = False
    """Whether tracks say how their things look (`swarmd_models.looks`)."""


class PoseUpdate(_Message, frozen=True):
    """The autopilot's newest pose, for `pose = "live"`."""

    pose: Pose


class Power(_Message, frozen=True):
    """What the autopilot says of the battery."""

    battery_milli: int
    """Thousandths of full."""


class AssignCell(_Message, frozen=True):
    """Survey this cell after the ones assigned before; for sources that move."""

    cell_id: str


class DropCell(_Message, frozen=True):
    """Do not survey this cell any more."""

    cell_id: str


class SwapModel(_Message, frozen=True):
    """Load this model beside the running one, check it, and swap between two frames."""

    model: str
    labels: str = ""


class SwapBack(_Message, frozen=True):
    """Return to the model before the last swap, at once."""


class ShowFrames(_Message, frozen=True):
    """Send a small JPEG now and then; pictures never leave the eye unasked."""

    interval_ms: int = 0
    """Least time between two; 0: none."""
    width: int = 640
    """Wider frames are made smaller."""
    quality: int = 70
    """Of the JPEG, 1 to 100."""


class Stop(_Message, frozen=True):
    """Finish the frame at hand and exit with status 0."""


# --- Eye to brain ---------------------------------------------------------------------------------------------------


class Ready(_Message, frozen=True):
    """The model is loaded and the source is open (or, when live, being opened)."""

    model: str
    version: str
    digest: str
    labels: tuple[str, ...]
    backend: str
    runtime: str
    load_ms: float
    device: dict[str, str | int | tuple[str, ...]] = {}
    """`swarmd_models.device.Device`, as a dictionary."""
    alike_milli: tuple[int, int] = (0, 0)
    """How alike looks of the model are (`swarmd_models.operating_point.alike_milli`)."""


class FrameDone(_Message, frozen=True):
    """One frame has been seen. Events of tracks that died with the eye come with index -1."""

    frame_index: int
    captured_ns: int
    sent_ns: int
    """Monotonic clock, when the eye handed it over."""
    detections: int
    best_score: float
    events: tuple[TrackEvent, ...]
    stage_ns: dict[str, int]
    started_ns: int = 0
    """Monotonic clock, when the eye began to work on it; 0: it did not."""
    width: int = 0
    """Of the frame in which the events' boxes are pixels; 0: not known."""
    height: int = 0


class Picture(_Message, frozen=True):
    """One frame as a JPEG, people and number plates made unreadable; only after `ShowFrames`."""

    frame_index: int
    captured_ns: int
    width: int
    height: int
    jpeg: bytes


class Crop(_Message, frozen=True):
    """The best look at a track, as peers may have it; told before the frame whose event the track is part of."""

    track_id: int
    label: str
    jpeg: bytes
    pixel_m: float = 0.0
    """Metres of ground that a pixel of it shows, where the model sees at its own scale (`scale.py`); 0.0: not known."""
    place: tuple[float, float] | None = None
    """Where in it the middle of the thing lies, shares of its width and height; None: not known."""


class Stats(_Message, frozen=True):
    """Counters since the eye's start, and gauges of now."""

    counters: dict[str, int]
    gauges: dict[str, float]


class Heartbeat(_Message, frozen=True):
    """The eye's threads run; `busy_ns` is how long the frame at hand has been in work, 0 when none is."""

    busy_ns: int


class Problem(_Message, frozen=True):
    """Something a person should know. `fatal`: starting the eye again would end the same way."""

    text: str
    fatal: bool
    of_model: bool = False
    """Whether another model might work where this one cannot."""


class Choice(_Message, frozen=True):
    """Which model is taken and why, in the ordinary course of things: nothing that a person has to mend."""

    text: str


class CellReached(_Message, frozen=True):
    """The source has arrived at an assigned cell."""

    cell_id: str


class CellDone(_Message, frozen=True):
    """The source has surveyed an assigned cell."""

    cell_id: str
    quality_milli: int


class SourceState(_Message, frozen=True):
    """A live source has gone or come back; told each time."""

    problem: str
    """Why no frames come; "" when they come again."""
    gives: str = ""
    """What a camera says that it gives, where that is what is told."""


class Here(_Message, frozen=True):
    """Where the device is, about twice a second: the newest frame's pose, or what a moving source says of itself."""

    pose: Pose | None
    battery_milli: int
    """Thousandths of full; -1: unknown."""
    cell_id: str
    """The cell being surveyed, or ""."""


class Finished(_Message, frozen=True):
    """The source has ended, or `max_frames` have been seen; the eye exits with status 0."""

    frames: int


class SwapDone(_Message, frozen=True):
    """How a swap went; when `ok` is False, the model that ran before still runs."""

    ok: bool
    model: str
    version: str
    digest: str
    labels: tuple[str, ...]
    text: str
    path: str = ""
    """Of the bundle that was to run, as it was named."""
    chosen: bool = False
    """Whether the eye chose by itself, for power, heat or load; False: it was told to."""
    alike_milli: tuple[int, int] = (0, 0)
    """As in `Ready`, of the model that runs now."""


ToEye: TypeAlias = Configure | PoseUpdate | Power | AssignCell | DropCell | SwapModel | SwapBack | ShowFrames | Stop
FromEye: TypeAlias = (
    Ready
    | FrameDone
    | Stats
    | Heartbeat
    | Problem
    | Choice
    | CellReached
    | CellDone
    | Here
    | Finished
    | SwapDone
    | Picture
    | Crop
    | SourceState
)

_encoder = msgspec.msgpack.Encoder()
_to_eye: msgspec.msgpack.Decoder[ToEye] = msgspec.msgpack.Decoder(ToEye)
_from_eye: msgspec.msgpack.Decoder[FromEye] = msgspec.msgpack.Decoder(FromEye)


def encode(message: ToEye | FromEye) -> bytes:
    """A message as bytes with its length in front; raises `EyeError` when it is larger than a message may be."""
    body = _encoder.encode(message)
    if len(body) > MAX_MESSAGE_BYTES:
        raise EyeError(f"a message of {len(body)} bytes to or from the eye; {MAX_MESSAGE_BYTES} are allowed")
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


class Splitter:
    """Cuts a stream of bytes into messages."""

    def __init__(self) -> None:
        """Start with an empty buffer."""
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Bodies of the messages that are complete now.

        Raises:
            EyeError: A length is larger than a message may be; the stream cannot be read on.
        """
        buffer = self._buffer
        buffer += data
        bodies, at = [], 0
        while len(buffer) - at >= LENGTH_BYTES:
            size = int.from_bytes(buffer[at : at + LENGTH_BYTES], "big")
            if size > MAX_MESSAGE_BYTES:
                raise EyeError(f"the eye's socket carries a length of {size} bytes; the stream is broken")
            if len(buffer) - at - LENGTH_BYTES < size:
                break
            bodies.append(bytes(buffer[at + LENGTH_BYTES : at + LENGTH_BYTES + size]))
            at += LENGTH_BYTES + size
        del buffer[:at]
        return bodies


def decode_to_eye(body: bytes) -> ToEye:
    """A message for the eye; raises `EyeError`."""
    return _decoded(_to_eye, body)


def decode_from_eye(body: bytes) -> FromEye:
    """A message from the eye; raises `EyeError`."""
    return _decoded(_from_eye, body)


def _decoded(decoder: msgspec.msgpack.Decoder[_T], body: bytes) -> _T:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, ValueError) as error:
        raise EyeError(f"bytes on the eye's socket are no message: {error}") from error
