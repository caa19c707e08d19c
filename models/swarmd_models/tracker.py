"""Which detections of successive frames are the same thing.

With a usable pose, a track remembers its place on the ground and is looked for where that place must appear in the new
frame, so a camera that moves a whole module between two frames does not take one module for its neighbour. Without a
pose, boxes are carried on by their own motion and the camera's. Lifetimes are in time, not in frames.

Rules:
- A detection belongs to at most one track and a track to at most one detection a frame.
- Things fixed to the ground whose centres are half a box or more apart are never the same, except when at least three
  tracks agree on a common shift that the attitude error can explain.
- A box that the frame's border cuts is not where its thing is: the model's whole box counts instead where it gives one,
  and a place is never refined by a cut box.
- An id is given when a track is confirmed and is never used again.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from swarmd_models.association import Box, centre_distance, common_shift, iou, match
from swarmd_models.bundle_rules import TrackRule
from swarmd_models.geo.geolocate import GroundFix, Intrinsics, is_usable
from swarmd_models.geo.place import Place, first_place, moved, refined
from swarmd_models.motion import Motion, sway
from swarmd_models.types import Detection, Pose, TrackEvent

MAX_TRACKS = 1000
"""Tracks at once; a frame full of modules shows some hundred."""
GROUND_GATE = 0.5
"""Boxes: half-way to a neighbour that touches."""
PIXEL_GATE = 0.8
"""Boxes between two centres that may still be one thing, where no pose helps."""
MIN_IOU = 0.05
"""Overlap that alone makes two boxes candidates for one thing."""
AGE_COST = 0.3
"""Boxes of misfit that a second out of sight counts for: who was just seen goes before who has been away."""
DOUBLE_IOU = 0.8
"""Overlap above which two detections of one frame are one thing seen twice."""
STRANGER_IOU = 0.5
"""Overlap that a detection of another class needs to continue a track."""
SHIFT_SIGMAS = 4.0
"""Standard deviations of attitude that a whole scene may have shifted by."""
MIN_WITNESSES = 3
"""Things that must agree on a common shift: two could be chance."""
_BORDER_PX = 2.0
"""Pixels from the edge within which a box is cut off."""
_CUT_SHARE = 0.3
"""Share of a cut box by which its centre is uncertain."""


@dataclass(frozen=True, slots=True)
class View:
    """A usable pose with the camera that has it."""

    pose: Pose
    intrinsics: Intrinsics


@dataclass(slots=True)
class _Track:
    box: Box
    size: tuple[float, float]
    """Of the box when it was last seen whole."""
    seen_ns: int
    votes: dict[int, tuple[float, float, str]] = field(default_factory=dict)
    """Class index to (sum of scores, best score, label)."""
    hits: int = 0
    sure_hits: int = 0
    need: float = 0.0
    """Score that the last look which was not sure would have needed."""
    is_sure: bool = False
    """As many looks were sure as are needed to be told; stays."""
    track_id: int = 0
    """0 until confirmed."""
    told_ns: int = 0
    motion: Motion | None = None
    """For frames without a pose; None before the first sight."""
    place: Place | None = None
    predicted: Box | None = None
    """In the frame at hand; None when it must lie outside."""
    is_by_ground: bool = False
    is_rough: bool = False
    """The place comes from cut boxes only."""


class Tracker:
    """Follows the detections of one camera."""

    def __init__(self, rule: TrackRule, update_interval_ns: int = 0, first_id: int = 1) -> None:
        """Start with nothing.

        Args:
            rule: What the things are like.
            first_id: Greater than every id that was given before on this device.
            update_interval_ns: At most one `update` a track in this time; `new` and `end` are never held back.
        """
        self._rule = rule
        self._lost_ns = rule.lost_ms * 1_000_000
        self._update_interval_ns = update_interval_ns
        self._tracks: list[_Track] = []
        self._next_id = first_id
        self._last_ns = 0
        """Time of the last frame."""

    @property
    def live_count(self) -> int:
        """Confirmed tracks."""
        return sum(1 for track in self._tracks if track.track_id)

    def adopt(self, rule: TrackRule) -> None:
        """Go on under another model's rule; what lives stays and keeps its id."""
        self._rule = rule
        self._lost_ns = rule.lost_ms * 1_000_000

    def update(
        self,
        captured_ns: int,
        detections: Sequence[Detection],
        fixes: Sequence[GroundFix | None],
        pose: Pose | None,
        intrinsics: Intrinsics | None,
    ) -> list[TrackEvent]:
        """Take in one frame.

        Args:
            captured_ns: Time of the frame; when it lies before the last one, everything is ended first.
            detections: What was seen.
            fixes: For each detection its meet with the ground, or None; same length.
            pose: Of the camera, or None.
            intrinsics: Of the camera at the frame's size, or None.

        Returns:
            What ended, went on and began.
        """
        events: list[TrackEvent] = []
        if any(captured_ns < track.seen_ns for track in self._tracks):
            events += self.finish()
        events += self._expire(captured_ns)
        view = View(pose, intrinsics) if pose is not None and intrinsics is not None and is_usable(pose) else None
        for track in self._tracks:
            self._predict(track, captured_ns, view)
        seen = _without_doubles(detections, self._rule.static)
        pairs = self._associate([detections[index] for index in seen], captured_ns, view)
        self._carry(pairs, [detections[index] for index in seen], captured_ns)
        taken = set()
        for track_index, position in pairs:
            index = seen[position]
            taken.add(index)
            self._absorb(self._tracks[track_index], detections[index], fixes[index], captured_ns, view)
            events += self._tell(self._tracks[track_index], captured_ns)
        # What is sure begins first: candidates must not take its room.
        for index in sorted(seen, key=lambda index: detections[index].need > 0.0):
            if index not in taken and len(self._tracks) < MAX_TRACKS:
                events += self._begin(detections[index], fixes[index], captured_ns, view)
        return events

    def finish(self) -> list[TrackEvent]:
        """End everything, because the camera has gone or changed."""
        events = [_event("end", track) for track in self._tracks if track.track_id]
        self._tracks.clear()
        return events

    def _predict(self, track: _Track, captured_ns: int, view: View | None) -> None:
        track.is_by_ground = False
        if view is not None and track.place is not None:
            found = track.place.project(view.pose, view.intrinsics, captured_ns)
            track.is_by_ground = True
            track.predicted = None if found is None else self._box_at(track, found, view.intrinsics)
            return
        track.predicted = track.box if track.motion is None else track.motion.box_at(captured_ns)

    def _box_at(self, track: _Track, found: tuple[float, float, float], intrinsics: Intrinsics) -> Box | None:
        """The box around a projected ground point; None when all of it lies outside of the frame."""
        u, v, depth = found
        assert track.place is not None
        scale = min(max(track.place.depth_m / depth, 0.25), 4.0)
        half_w, half_h = track.size[0] * scale / 2, track.size[1] * scale / 2
        middle = v - half_h if self._rule.ground_point == "bottom" else v
        x1, y1, x2, y2 = u - half_w, middle - half_h, u + half_w, middle + half_h
        is_seen = x2 > 0.0 and y2 > 0.0 and x1 < intrinsics.width and y1 < intrinsics.height
        return (x1, y1, x2, y2) if is_seen else None

    def _associate(self, detections: list[Detection], captured_ns: int, view: View | None) -> list[tuple[int, int]]:
        boxes = [detection.whole_box or detection.box for detection in detections]
        ground = [t.predicted for t in self._tracks if t.is_by_ground and t.predicted is not None]
        dx = dy = 0.0
        if self._rule.static and view is not None and min(len(ground), len(boxes)) >= MIN_WITNESSES:
            reach = SHIFT_SIGMAS * view.pose.attitude_sigma_rad * view.intrinsics.fx
            dx, dy = common_shift(ground, boxes, reach)
        costs: list[tuple[float, int, int]] = []
        for i, track in enumerate(self._tracks):
            if track.predicted is None:
                continue
            x1, y1, x2, y2 = track.predicted
            expected = (x1 + dx, y1 + dy, x2 + dx, y2 + dy) if track.is_by_ground else track.predicted
            age = 0.0 if track.is_by_ground and self._rule.static else AGE_COST * (captured_ns - track.seen_ns) / 1e9
            for j, detection in enumerate(detections):
                cost = self._cost(track, expected, boxes[j], detection.class_index) + age
                if cost < math.inf:
                    costs.append((cost, i, j))
        return match(costs)

    def _carry(self, pairs: list[tuple[int, int]], detections: list[Detection], captured_ns: int) -> None:
        """Where all that is followed by its motion alone is off by the same, the camera moved, and all with it."""
        offs = []
        for track_index, position in pairs:
            motion = self._tracks[track_index].motion
            if motion is not None and not self._tracks[track_index].is_by_ground:
                detection = detections[position]
                offs.append(motion.off_from(detection.whole_box or detection.box, captured_ns))
        frame_ns, self._last_ns = captured_ns - self._last_ns, captured_ns
        dx, dy = sway(offs)
        if dx or dy:
            for track in self._tracks:
                if track.motion is not None and not track.is_by_ground:
                    track.motion.carry(dx, dy, captured_ns, frame_ns)

    def _cost(self, track: _Track, expected: Box, box: Box, class_index: int) -> float:
        """0 for a perfect fit, infinity for an impossible one."""
        distance = centre_distance(expected, box)
        if self._rule.static and track.is_by_ground:
            return distance if distance < GROUND_GATE else math.inf
        if distance > 3.0:
            return math.inf
        overlap = iou(expected, box)
        if overlap < MIN_IOU and distance > PIXEL_GATE:
            return math.inf
        if class_index in track.votes:
            return 1.0 - overlap + 0.2 * distance
        # Another class at the same place is the same thing only if it covers it well.
        return math.inf if overlap < STRANGER_IOU else 1.5 - overlap + 0.2 * distance

    def _begin(
        self, detection: Detection, fix: GroundFix | None, captured_ns: int, view: View | None
    ) -> list[TrackEvent]:
        x1, y1, x2, y2 = detection.box
        track = _Track(detection.box, (x2 - x1, y2 - y1), captured_ns)
        self._tracks.append(track)
        self._absorb(track, detection, fix, captured_ns, view)
        return self._tell(track, captured_ns)

    def _absorb(
        self, track: _Track, detection: Detection, fix: GroundFix | None, captured_ns: int, view: View | None
    ) -> None:
        whole = detection.whole_box or detection.box
        if track.motion is None:
            track.motion = Motion.begin(whole, captured_ns)
        else:
            track.motion.take(whole, captured_ns)
        if fix is not None and view is not None:
            self._settle(track, detection, fix, captured_ns, view)
        elif not self._rule.static:
            track.place = None  # A mover's old place is no place.
        x1, y1, x2, y2 = whole
        track.size = (x2 - x1, y2 - y1)
        track.box, track.seen_ns, track.hits = detection.box, captured_ns, track.hits + 1
        if detection.need:
            track.need = detection.need
        else:
            track.sure_hits += 1
        total, best, _ = track.votes.get(detection.class_index, (0.0, 0.0, ""))
        track.votes[detection.class_index] = (total + detection.score, max(best, detection.score), detection.label)

    def _settle(self, track: _Track, detection: Detection, fix: GroundFix, captured_ns: int, view: View) -> None:
        """Take the detection into the track's estimate of its place."""
        is_cut = _is_cut(detection, view.intrinsics)
        place = track.place
        if is_cut:
            if place is not None and not track.is_rough:
                return
            x1, y1, x2, y2 = detection.whole_box or detection.box
            fix = _widened(fix, max(x2 - x1, y2 - y1), view)
        projected = None if place is None else place.project(view.pose, view.intrinsics, captured_ns)
        if place is None or projected is None or (track.is_rough and not is_cut):
            place = first_place(fix, view.pose, view.pose.height_agl_m, captured_ns)
            projected = place.project(view.pose, view.intrinsics, captured_ns)
            depth = projected[2] if projected is not None else view.pose.height_agl_m
            track.place = first_place(fix, view.pose, depth, captured_ns)
        else:
            follow = refined if self._rule.static else moved
            track.place = follow(place, fix, view.pose, projected[2], captured_ns)
        track.is_rough = is_cut

    def _tell(self, track: _Track, captured_ns: int) -> list[TrackEvent]:
        if track.track_id == 0:
            if track.hits < self._rule.min_hits:
                return []
            track.track_id, self._next_id = self._next_id, self._next_id + 1
            track.told_ns = captured_ns
            track.is_sure = track.sure_hits >= self._rule.min_hits
            return [_event("new", track)]
        became_sure = not track.is_sure and track.sure_hits >= self._rule.min_hits
        if captured_ns - track.told_ns < self._update_interval_ns and not became_sure:
            return []
        track.is_sure = track.is_sure or became_sure
        track.told_ns = captured_ns
        return [_event("update", track)]

    def _expire(self, captured_ns: int) -> list[TrackEvent]:
        events, living = [], []
        for track in self._tracks:
            if captured_ns - track.seen_ns <= self._lost_ns:
                living.append(track)
            elif track.track_id:
                events.append(_event("end", track))
        self._tracks = living
        return events


def _without_doubles(detections: Sequence[Detection], is_static: bool) -> list[int]:
    """Indices of the detections, the best of those that show the same thing under two classes."""
    order = sorted(range(len(detections)), key=lambda index: -detections[index].score)
    kept: list[int] = []
    for index in order:
        box = detections[index].box
        if is_static:
            is_double = any(centre_distance(detections[other].box, box) < GROUND_GATE for other in kept)
        else:
            is_double = any(iou(detections[other].box, box) > DOUBLE_IOU for other in kept)
        if not is_double:
            kept.append(index)
    return kept


def _is_cut(detection: Detection, intrinsics: Intrinsics) -> bool:
    x1, y1, x2, y2 = detection.box
    right, bottom = intrinsics.width - _BORDER_PX, intrinsics.height - _BORDER_PX
    return x1 < _BORDER_PX or y1 < _BORDER_PX or x2 > right or y2 > bottom


def _widened(fix: GroundFix, size_px: float, view: View) -> GroundFix:
    """A box cut by the frame's border has its centre somewhere else than the thing has."""
    slant_m = math.hypot(fix.east_m, fix.north_m, view.pose.height_agl_m)
    extra = (_CUT_SHARE * size_px / view.intrinsics.fx * slant_m) ** 2
    ee, en, nn = fix.pixel_m2
    return replace(fix, pixel_m2=(ee + extra, en, nn + extra))


def _event(kind: str, track: _Track) -> TrackEvent:
    class_index = max(track.votes, key=lambda index: (track.votes[index][0], -index))
    _, best, label = track.votes[class_index]
    position = None if track.place is None else track.place.position()
    return TrackEvent(
        kind,  # type: ignore[arg-type]
        track.track_id,
        class_index,
        label,
        best,
        track.box,
        track.seen_ns,
        track.hits,
        position,
        need=0.0 if track.is_sure else track.need,
    )
