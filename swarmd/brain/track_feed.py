"""What the eye tracks, on its way into the shared state: placed, filtered, and then told back by the state itself.

    TrackEvent ─place→ LocalDetection ─filter→ Observed → the state → DetectionLearned, to every subscriber

Nothing is told to subscribers from here: an own sighting takes the same way out as every other node's, in the same turn
of the loop. What only this node's eye knows of a track (`Look`) waits here for those who ask.
"""

import time
from collections.abc import Callable
from dataclasses import replace

from swarmd.api.daemon import Look
from swarmd.api.histogram import Histogram
from swarmd.eye import ipc
from swarmd_models.geo.sightings import TRACKS_MAX, SightingFilter
from swarmd_protocols.effects import StateChanged
from swarmd_protocols.state.observations import DetectionLearned, LocalDetection, Observed
from swarmd_protocols.thumbs.form import name_of

TRACK_GAP = 1000
"""Track ids that an ended eye may have given without our having read them: thousands of frames of new tracks."""

CROPS_MAX = 256
"""Pictures that wait for their track to be told, held back until its asset is sure, say; the oldest go first."""

Box = tuple[float, float, float, float]


class TrackFeed:
    """One eye's tracks."""

    def __init__(
        self,
        sightings: SightingFilter[LocalDetection],
        command: Callable[[object], None],
        capture_to_local: Histogram,
        moving: bool,
        shelve: Callable[[ipc.Crop], bool] = lambda crop: False,
    ) -> None:
        """Nothing is tracked yet.

        Args:
            sightings: Places and filters; outside detectors use the same one.
            command: Gives the state a request.
            capture_to_local: Where the time from a frame to its first subscriber is counted.
            moving: What this eye sees moves by itself.
            shelve: Keeps a picture that a sighting is about to name; whether it does.
        """
        self._sightings = sightings
        self._command = command
        self._capture_to_local = capture_to_local
        self._moving = moving
        self._shelve = shelve
        self._crops: dict[int, ipc.Crop] = {}
        """Of living tracks: pictures that no sighting names yet."""
        self._highest_track = 0
        self._looks: dict[int, tuple[Look, int]] = {}
        """Of living tracks: the last look and when its frame was taken."""

    @property
    def first_track_id(self) -> int:
        """Where the next eye begins to count, so that no track id is used twice."""
        return self._highest_track + TRACK_GAP

    def look(self, track_id: int) -> Look | None:
        """How a living track was seen last."""
        held = self._looks.get(track_id)
        return None if held is None else held[0]

    def take_crop(self, crop: ipc.Crop) -> None:
        """A picture of a track, to be told with what is told of the track next."""
        self._crops.pop(crop.track_id, None)
        self._crops[crop.track_id] = crop
        if len(self._crops) > CROPS_MAX:
            del self._crops[next(iter(self._crops))]

    def take(self, frame: ipc.FrameDone, model_digest: str, alike_milli: tuple[int, int] = (0, 0)) -> None:
        """One frame's track events, by the model with this digest and likeness of looks."""
        found = []
        for event in frame.events:
            self._highest_track = max(self._highest_track, event.track_id)
            found.append(self._sightings.place(event, model_digest, self._moving, alike_milli))
            box = shares_of(event.box, frame.width, frame.height)
            self._looks[event.track_id] = (
                Look(box, frame.stage_ns, frame.started_ns, event.extent_m),
                frame.captured_ns,
            )
        self._observe(self._sightings.take(found))
        for event in frame.events:
            if event.kind == "end":
                self._looks.pop(event.track_id, None)
                self._crops.pop(event.track_id, None)
        while len(self._looks) > TRACKS_MAX:
            del self._looks[next(iter(self._looks))]

    def end_all(self) -> None:
        """The eye is gone: its tracks end."""
        self._observe(self._sightings.forget_all(time.monotonic_ns()))
        self._looks.clear()
        self._crops.clear()

    def on_notice(self, notice: object) -> None:
        """Count how long a new sighting took from its frame until it was told here."""
        match notice:
            case StateChanged(detail=DetectionLearned(kind="new", track_id=track_id)) if track_id in self._looks:
                # From the frame that settled it: a track may be held back until its asset is sure.
                self._capture_to_local.add(time.monotonic_ns() - self._looks[track_id][1])
            case _:
                pass

    def _observe(self, passed: list[LocalDetection]) -> None:
        if passed:
            self._command(Observed(tuple(map(self._pictured, passed) if self._crops else passed)))

    def _pictured(self, detection: LocalDetection) -> LocalDetection:
        """A detection with the name of its track's picture, which is kept from now on; none where the label differs."""
        crop = self._crops.get(detection.track_id)
        if crop is None:
            return detection
        del self._crops[detection.track_id]
        if crop.label != detection.label or not self._shelve(crop):
            return detection
        return replace(detection, thumb=name_of(crop.jpeg))


def shares_of(box: Box, width: int, height: int) -> Box | None:
    """A box in pixels as shares of the frame, cut at its border; None where the frame's size is not known.

    Args:
        box: (left, top, right, bottom), pixels.
        width: Of the frame, pixels.
        height: Of the frame, pixels.

    >>> shares_of((10.0, 20.0, 30.0, 500.0), 100, 200)
    (0.1, 0.1, 0.3, 1.0)
    """
    if width <= 0 or height <= 0:
        return None
    x1, y1, x2, y2 = (min(max(side / size, 0.0), 1.0) for side, size in zip(box, (width, height) * 2, strict=True))
    return x1, y1, x2, y2
