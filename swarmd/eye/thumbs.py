"""Thumbnails: the best small picture of each track, for the brain's shelf. Off unless the configuration wants them.

Rules this file keeps:

- Of people there are none: not of what bears a private label (`eye.thumbnails_never` and those that are always
  private), not of anything beside whom such a label was seen within two seconds, and none in which the
  redactor's own detector sees somebody, or that shows what is masked. So nothing has to be made unreadable in a picture
  that leaves the eye: a picture that would have to be is not made.
- A picture shows one track and, where whole frames may be shown (`privacy.show`), its surroundings; else these are
  flat. At most 192 x 144 pixels and 6 KiB, without metadata.
- The first good look goes to the brain with the track's first event; a better one at most every ten seconds, and when
  the track ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from swarmd.eye.ipc import Crop
from swarmd_models.frame_ring import PRIVATE_LABELS
from swarmd_models.redaction import Redactor, only_findings
from swarmd_models.types import EyeResult, Frame, Image, TrackEvent
from swarmd_protocols.thumbs.form import HEIGHT_MAX, SIDE_MIN, THUMB_MAX_BYTES, WIDTH_MAX, problem_of

AROUND = 0.6
"""Share of a box's side that is shown on each side of it: what stands around tells a person where he looks."""
LEAST_PX = (48.0, 36.0)
"""Pixels of a frame, across and down, that a picture shows at least."""
BETTER = 1.15
"""A look is better when its worth is so many times that of the one before: below it, nobody sees the difference."""
AGAIN_NS = 10_000_000_000
"""Nanoseconds between two pictures of one track, at least."""
PRIVATE_NS = 2_000_000_000
"""Nanoseconds for which a place where somebody was seen stays private: a detector misses a person now and then."""
PRIVATE_GROWS = 0.5
"""Share of a private box's side by which it is made larger on each side: boxes are never exact, and people move."""
TRACKS_MAX = 256
"""Tracks of which a picture is kept; the oldest are forgotten first."""
QUALITIES = (80, 65, 50, 35, 20)
"""Of the JPEG, the first that fits."""

_Box = tuple[float, float, float, float]
_EVERYWHERE: _Box = (-np.inf, -np.inf, np.inf, np.inf)


@dataclass(slots=True)
class _Look:
    """The best look at a track so far."""

    worth: float
    label: str
    jpeg: bytes
    pixel_m: float
    """Metres of ground that a pixel of it shows; 0.0: not known."""
    place: tuple[float, float]
    """Where in it the middle of the box lies, shares of its width and height."""
    told_ns: int | None = None
    """When the brain was given a picture of this track last; None: never."""
    is_told: bool = False
    """Whether this one was."""


class ThumbMaker:
    """Decides which looks are worth a picture, and makes it.

    Args:
        never: Words in a label of which no picture is made, beside `PRIVATE_LABELS`.
        redactor: Looks at each picture before it goes, and says what is shown; None: the model's labels alone are
            looked at, and findings alone are shown.
    """

    def __init__(self, never: Sequence[str] = (), redactor: Redactor | None = None) -> None:
        self._redactor = redactor
        self._never = tuple(word.lower() for word in (*PRIVATE_LABELS, *never) if word)
        self._looks: dict[int, _Look] = {}
        self._private: list[tuple[int, _Box]] = []
        """When somebody was seen, and where, made larger."""

    def crops(self, frame: Frame, result: EyeResult, pixel_m: float = 0.0) -> list[Crop]:
        """What the brain shall have before it hears of this frame.

        Args:
            frame: The frame.
            result: What came of it.
            pixel_m: Metres of ground that a pixel of it shows; 0.0: not known.
        """
        self._note_private(frame, result)
        given = []
        for event in result.events:
            if event.kind != "end" and not self._is_private(event.label):
                self._look(frame, event, pixel_m)
            elif event.kind != "end":
                self._looks.pop(event.track_id, None)
            given += self._due(event.track_id, frame.captured_ns, is_end=event.kind == "end")
        return given

    def last(self, track_ids: Sequence[int], now_ns: int) -> list[Crop]:
        """The same of tracks that end without a frame."""
        return [crop for track_id in track_ids for crop in self._due(track_id, now_ns, is_end=True)]

    # --- inside -----------------------------------------------------------------------------------------------------

    def _is_private(self, label: str) -> bool:
        return any(word in label.lower() for word in self._never)

    def _note_private(self, frame: Frame, result: EyeResult) -> None:
        now_ns = frame.captured_ns
        self._private = [(seen_ns, box) for seen_ns, box in self._private if now_ns - seen_ns <= PRIVATE_NS]
        # A track lives on where the detector misses it for a frame; both are private.
        found = [(one.label, one.box) for one in result.detections] + [(one.label, one.box) for one in result.events]
        for label, box in found:
            if self._is_private(label):
                place = _grown(box, PRIVATE_GROWS) if np.isfinite(box).all() else _EVERYWHERE
                self._private.append((now_ns, place))

    def _look(self, frame: Frame, event: TrackEvent, pixel_m: float) -> None:
        height, width = frame.image.shape[:2]
        track_id, label, score, box = event.track_id, event.label, event.score, event.box
        shown = window_of(box, width, height)
        if shown is None or any(_touch(shown, private) for _, private in self._private):
            return
        if self._redactor is not None and self._redactor.is_masked(shown, width, height):
            return
        old = self._looks.get(track_id)
        worth = score * _visible(box, width, height) * min(1.0, (box[2] - box[0]) * (box[3] - box[1]) / 4_096) ** 0.25
        if old is not None and old.label == label and worth < old.worth * BETTER:
            return
        shows_frames = self._redactor is not None and self._redactor.shows_frames
        jpeg = jpeg_of(visible_part(frame.image, shown, box, shows_frames))
        if not jpeg:
            return
        scale = pixel_m / scale_of(shown[3] - shown[1], shown[2] - shown[0])
        self._looks.pop(track_id, None)
        told_ns = None if old is None else old.told_ns
        self._looks[track_id] = _Look(worth, label, jpeg, scale, place_of(box, shown), told_ns)
        if len(self._looks) > TRACKS_MAX:
            del self._looks[next(iter(self._looks))]

    def _due(self, track_id: int, now_ns: int, *, is_end: bool) -> list[Crop]:
        look = self._looks.pop(track_id, None) if is_end else self._looks.get(track_id)
        if look is None or look.is_told:
            return []
        if not is_end and look.told_ns is not None and now_ns - look.told_ns < AGAIN_NS:
            return []
        # Who is not shown now is looked at again with a better picture, when one would be told again.
        look.told_ns, look.is_told = now_ns, True
        if self._redactor is not None and self._redactor.shows_somebody(_pixels(look.jpeg)):
            return []
        return [Crop(track_id, look.label, look.jpeg, look.pixel_m, look.place)]


def _pixels(jpeg: bytes) -> Image:
    """What the picture will show to others."""
    return np.asarray(cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_UNCHANGED), dtype=np.uint8)


def _grown(box: _Box, share: float) -> _Box:
    dx, dy = (box[2] - box[0]) * share, (box[3] - box[1]) * share
    return box[0] - dx, box[1] - dy, box[2] + dx, box[3] + dy


def _touch(a: tuple[int, int, int, int], b: _Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _visible(box: _Box, width: int, height: int) -> float:
    """1.0 where the whole box lies within the frame, 0.5 where it touches the border and may go on."""
    return 1.0 if box[0] > 0 and box[1] > 0 and box[2] < width and box[3] < height else 0.5


def window_of(box: _Box, width: int, height: int) -> tuple[int, int, int, int] | None:
    """What is shown of a frame: the box and what stands around it, four to three, moved into the frame.

    >>> window_of((100.0, 100.0, 140.0, 130.0), 640, 480)
    (76, 82, 164, 148)
    """
    if not np.isfinite(box).all() or box[0] >= box[2] or box[1] >= box[3]:
        return None
    x1, y1, x2, y2 = _grown(box, AROUND)
    across, down = max(x2 - x1, LEAST_PX[0]), max(y2 - y1, LEAST_PX[1])
    across, down = max(across, down * 4 / 3), max(down, across * 3 / 4)
    across, down = round(min(across, width)), round(min(down, height))
    left = round(min(max((x1 + x2 - across) / 2, 0), width - across))
    top = round(min(max((y1 + y2 - down) / 2, 0), height - down))
    if across < SIDE_MIN or down < SIDE_MIN:
        return None
    return left, top, left + across, top + down


def place_of(box: _Box, shown: tuple[int, int, int, int]) -> tuple[float, float]:
    """Where in what is shown the middle of a box lies, of as much of it as can be seen there: shares of its sides.

    >>> place_of((-20.0, 100.0, 40.0, 130.0), (0, 82, 88, 148))
    (0.22727272727272727, 0.5)
    """
    left, top, right, bottom = shown
    x1, x2 = (min(max(side, left), right) for side in (box[0], box[2]))
    y1, y2 = (min(max(side, top), bottom) for side in (box[1], box[3]))
    return float(((x1 + x2) / 2 - left) / (right - left)), float(((y1 + y2) / 2 - top) / (bottom - top))


def visible_part(image: Image, shown: tuple[int, int, int, int], box: _Box, shows_frames: bool) -> Image:
    """What a picture of a box shows of a frame: where whole frames may not be shown, all but the box is flat."""
    left, top, right, bottom = shown
    part = np.ascontiguousarray(image[top:bottom, left:right])
    return part if shows_frames else only_findings(part, [(box[0] - left, box[1] - top, box[2] - left, box[3] - top)])


def scale_of(height: int, width: int) -> float:
    """Pixels of the picture for a pixel of a part of a frame; never scaled up."""
    return min(1.0, WIDTH_MAX / width, HEIGHT_MAX / height)


def jpeg_of(part: Image) -> bytes:
    """A part of a frame as a picture that peers take; b"" where none can be made."""
    height, width = part.shape[:2]
    scale = scale_of(height, width)
    if scale < 1.0:
        size = max(SIDE_MIN, int(width * scale)), max(SIDE_MIN, int(height * scale))
        part = np.asarray(cv2.resize(part, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)
    for quality in QUALITIES:
        _, data = cv2.imencode(".jpg", part, [cv2.IMWRITE_JPEG_QUALITY, quality])
        if data.size <= THUMB_MAX_BYTES:
            jpeg = data.tobytes()
            return b"" if problem_of(jpeg) else jpeg
    return b""
