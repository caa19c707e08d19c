"""The tracker: lifetimes, ids, and modules that all look alike under a moving camera."""

import math
import random
from dataclasses import replace

import pytest

from swarmd_models.association import centre_distance, common_shift
from swarmd_models.bundle_rules import TrackRule
from swarmd_models.geo.geolocate import GroundFix, Intrinsics, enu_m, enu_to_pixel, is_usable, offset, ray_to_ground
from swarmd_models.geo.poses import make_pose
from swarmd_models.tracker import MAX_TRACKS, Tracker
from swarmd_models.types import Detection, Pose, TrackEvent
from tests.support.bundles import seen

MS = 1_000_000
CAMERA = Intrinsics.from_hfov(60.0, 640, 512)
ORIGIN = (-18.88, -70.11)
MODULES = TrackRule(min_hits=2, lost_ms=700, static=True)


def _feed(tracker: Tracker, t_ms: int, detections: list[Detection], pose: Pose | None = None) -> list[TrackEvent]:
    fixes: list[GroundFix | None] = []
    for d in detections:
        x1, y1, x2, y2 = d.whole_box or d.box
        usable = pose is not None and is_usable(pose)
        fixes.append(ray_to_ground(CAMERA, pose, (x1 + x2) / 2, (y1 + y2) / 2, 2.0) if usable and pose else None)
    return tracker.update(t_ms * MS, detections, fixes, pose, CAMERA)


def _pose(t_ms: int, east: float, north: float, yaw: float = 0.0, pitch: float = -90.0, **changes: float) -> Pose:
    latitude, longitude = offset(*ORIGIN, east, north)
    pose = make_pose(t_ms * MS, latitude, longitude, 25.0, yaw, pitch, 0.0)
    return replace(pose, **{"position_sigma_m": 0.1, "height_sigma_m": 0.1, "attitude_sigma_rad": 0.004, **changes})


def _shown(pose: Pose, east: float, north: float, class_index: int = 0, size_m: float = 1.0) -> Detection | None:
    """The detection that a module at a place gives in a frame of this pose; None outside of the frame."""
    e0, n0 = enu_m(pose.latitude_deg, pose.longitude_deg, ORIGIN)
    pixel = enu_to_pixel(CAMERA, pose, east - e0, north - n0)
    if pixel is None or not (0 < pixel[0] < 640 and 0 < pixel[1] < 512):
        return None
    half = CAMERA.fx / pose.height_agl_m * size_m / 2
    u, v = pixel
    whole = (u - half, v - half, u + half, v + half)
    box = (max(whole[0], 0.0), max(whole[1], 0.0), min(whole[2], 640.0), min(whole[3], 512.0))
    return Detection(class_index, f"class{class_index}", 0.8, box, whole if whole != box else None)


def _place(event: TrackEvent) -> tuple[float, float]:
    assert event.position is not None
    return enu_m(event.position.latitude_deg, event.position.longitude_deg, ORIGIN)


def test_a_life_is_new_update_end() -> None:
    tracker = Tracker(TrackRule(min_hits=2, lost_ms=300))
    assert _feed(tracker, 0, [seen(100, 100)]) == []
    assert [e.kind for e in _feed(tracker, 100, [seen(104, 100)])] == ["new"]
    assert [e.kind for e in _feed(tracker, 200, [seen(108, 100)])] == ["update"]
    assert _feed(tracker, 400, []) == []
    ended = _feed(tracker, 501, [])
    assert [(e.kind, e.track_id, e.hits) for e in ended] == [("end", 1, 3)]
    assert ended[0].captured_ns == 200 * MS, "an end carries the time of the last sight"


def test_what_is_seen_once_is_never_told() -> None:
    tracker = Tracker(TrackRule(min_hits=2, lost_ms=300))
    _feed(tracker, 0, [seen(100, 100)])
    assert _feed(tracker, 1000, []) == []
    assert tracker.finish() == []


def test_lifetimes_are_time_not_frames() -> None:
    for interval_ms in (20, 500):
        tracker = Tracker(TrackRule(min_hits=1, lost_ms=600))
        _feed(tracker, 0, [seen(100, 100)])
        t = interval_ms
        while not _feed(tracker, t, []):
            t += interval_ms
        assert 600 < t <= 600 + interval_ms


def test_updates_come_at_most_so_often_but_new_and_end_at_once() -> None:
    tracker = Tracker(TrackRule(min_hits=2, lost_ms=300), update_interval_ns=100 * MS)
    kinds = [e.kind for t in range(0, 400, 20) for e in _feed(tracker, t, [seen(100, 100)])]
    assert kinds == ["new", "update", "update", "update"]


def test_ids_start_where_the_last_eye_stopped_and_never_repeat() -> None:
    tracker = Tracker(TrackRule(min_hits=1, lost_ms=10), first_id=41)
    ids = [e.track_id for t in range(0, 1000, 50) for e in _feed(tracker, t, [seen(100, 100)]) if e.kind == "new"]
    assert ids == list(range(41, 41 + 20))


def test_time_that_goes_back_ends_everything() -> None:
    tracker = Tracker(TrackRule(min_hits=1))
    _feed(tracker, 1000, [seen(100, 100)])
    assert [e.kind for e in _feed(tracker, 10, [seen(100, 100)])] == ["end", "new"]


def test_without_a_pose_boxes_are_carried_on_by_their_motion() -> None:
    tracker = Tracker(TrackRule(min_hits=1, lost_ms=700))
    for t in range(0, 1000, 100):
        events = _feed(tracker, t, [seen(100 + t * 0.15, 100), seen(400 - t * 0.15, 100)])
    assert {e.track_id for e in events} == {1, 2}
    # Unseen for three frames, each is found again where it must be by then.
    events = _feed(tracker, 1300, [seen(100 + 1300 * 0.15, 100), seen(400 - 1300 * 0.15, 100)])
    assert [(e.kind, e.track_id) for e in events] == [("update", 1), ("update", 2)]


def test_the_label_is_a_vote_weighted_by_score() -> None:
    tracker = Tracker(TrackRule(min_hits=1))
    _feed(tracker, 0, [seen(100, 100, score=0.5, class_index=1)])
    _feed(tracker, 50, [seen(100, 100, score=0.9, class_index=2)])
    events = _feed(tracker, 100, [seen(100, 100, score=0.3, class_index=1)])
    assert [(e.class_index, e.label, e.score) for e in events] == [(2, "class2", 0.9)]


def test_one_module_under_two_classes_is_one_thing() -> None:
    tracker = Tracker(replace(MODULES, min_hits=1))
    events = _feed(tracker, 0, [seen(100, 100, score=0.9, class_index=1), seen(102, 101, score=0.8, class_index=2)])
    assert [(e.kind, e.class_index) for e in events] == [("new", 1)]


@pytest.mark.parametrize("speed_m_s", [5.0, 10.0, 15.0])
@pytest.mark.parametrize("fps", [5, 10, 30])
def test_a_row_of_modules_one_metre_apart_under_a_fast_camera(speed_m_s: float, fps: int) -> None:
    """At 10 m/s and 10 fps the picture moves by exactly one module a frame: the aliasing that eats tracks."""
    tracker = Tracker(MODULES)
    random.seed(1)
    faults = [3.0, 4.0, 9.0, 15.0, 16.0, 17.0]
    told: dict[int, TrackEvent] = {}
    for frame in range(int(30 / speed_m_s * fps)):
        t_ms = round(frame * 1000 / fps)
        north = frame / fps * speed_m_s
        pose = _pose(t_ms, 0.0, north)
        jittered = _pose(t_ms, 0.0, north, random.gauss(0, 0.2), -90 + random.gauss(0, 0.2))
        detections = [d for n in faults if (d := _shown(jittered, 0.3, n)) is not None]
        told |= {e.track_id: e for e in _feed(tracker, t_ms, detections, pose)}
    told |= {e.track_id: e for e in tracker.finish()}
    places = sorted(_place(e)[1] for e in told.values())
    assert len(places) == len(faults), f"one track a fault, no more, no less: {places}"
    for place, truth in zip(places, faults, strict=True):
        assert abs(place - truth) < 0.35


def test_neighbours_are_never_fused_even_when_one_is_missed() -> None:
    """A is seen, then only its neighbour B: B must not continue A."""
    tracker = Tracker(replace(MODULES, min_hits=1))
    first = _pose(0, 0.0, 0.0)
    a = _shown(first, 0.0, 2.0)
    assert a is not None
    _feed(tracker, 0, [a], first)
    second = _pose(100, 0.0, 1.0)
    b = _shown(second, 0.0, 3.0)
    assert b is not None
    assert b.box == pytest.approx(a.box, abs=0.5), "in pixels B stands exactly where A stood"
    events = _feed(tracker, 100, [b], second)
    assert [(e.kind, e.track_id) for e in events] == [("new", 2)]


def test_a_lurch_of_the_camera_is_seen_by_its_common_shift() -> None:
    tracker = Tracker(replace(MODULES, min_hits=1))
    pose = _pose(0, 0.0, 0.0, attitude_sigma_rad=0.02)
    spots = [(-3.0, 1.0), (2.0, -2.0), (4.0, 3.0), (-1.0, -4.0)]
    _feed(tracker, 0, [d for e, n in spots if (d := _shown(pose, e, n))], pose)
    lurched = _pose(100, 0.0, 0.0, 0.0, -88.0)
    events = _feed(tracker, 100, [d for e, n in spots if (d := _shown(lurched, e, n))], replace(pose, captured_ns=1))
    assert sorted((e.kind, e.track_id) for e in events) == [("update", i) for i in (1, 2, 3, 4)]


def test_two_things_are_no_proof_of_a_shift() -> None:
    ahead = [(0.0, 0.0, 10.0, 10.0), (50.0, 0.0, 60.0, 10.0)]
    seen_boxes = [(10.0, 0.0, 20.0, 10.0), (60.0, 0.0, 70.0, 10.0)]
    assert common_shift(ahead, seen_boxes, 30.0) == (0.0, 0.0)
    ahead.append((0.0, 80.0, 10.0, 90.0))
    seen_boxes.append((10.0, 80.0, 20.0, 90.0))
    assert common_shift(ahead, seen_boxes, 30.0) == pytest.approx((10.0, 0.0))
    assert common_shift(ahead, seen_boxes, 5.0) == (0.0, 0.0), "further than the attitude can explain"


def test_the_position_improves_and_the_claim_does_not_outrun_it() -> None:
    random.seed(2)
    errors, first_errors, normalised = [], [], []
    for trial in range(40):
        tracker = Tracker(replace(MODULES, min_hits=1))
        events: list[TrackEvent] = []
        for frame in range(8):
            t_ms = frame * 250
            north = frame * 1.0
            pose = _pose(t_ms, 0.0, north, position_sigma_m=0.001, height_sigma_m=0.001, attitude_sigma_rad=0.005)
            shaken = _pose(t_ms, 0.0, north, 0.0, -90 + math.degrees(random.gauss(0, 0.005)))
            detection = _shown(shaken, 1.0, 4.0)
            assert detection is not None
            events += _feed(tracker, t_ms, [detection], pose)
        assert len({e.track_id for e in events}) == 1, trial
        first_errors.append(abs(_place(events[0])[1] - 4.0))
        errors.append(abs(_place(events[-1])[1] - 4.0))
        assert events[-1].position is not None
        assert events[0].position is not None
        # Boxes average out; the mount may be turned by the attitude's error in every frame.
        first, last = (events[i].position.covariance_m2[2] for i in (0, -1))  # type: ignore[union-attr]
        assert (0.005 * 20.0) ** 2 < last < 0.8 * first
        normalised.append(errors[-1] / math.sqrt(events[-1].position.covariance_m2[2]))
    assert sum(errors) < sum(first_errors) * 0.6
    assert sum(n < 2.0 for n in normalised) >= 34, "the claimed sigma must be honest"


def test_bias_does_not_average_away() -> None:
    tracker = Tracker(replace(MODULES, min_hits=1))
    for frame in range(50):
        pose = _pose(frame * 250, 0.0, 0.0, position_sigma_m=1.5)
        detection = _shown(pose, 1.0, 1.0)
        assert detection is not None
        events = _feed(tracker, frame * 250, [detection], pose)
    assert events[0].position is not None
    assert events[0].position.covariance_m2[0] > 1.5**2


def test_a_box_cut_by_the_border_does_not_move_the_place() -> None:
    tracker = Tracker(replace(MODULES, min_hits=1))
    for frame in range(30):
        north = frame * 0.5
        pose = _pose(frame * 50, 0.0, north)
        detection = _shown(pose, 0.0, 8.0)
        if detection is None:
            continue
        # A model that does not see beyond the border.
        told = _feed(tracker, frame * 50, [replace(detection, whole_box=None)], pose)
        if detection.whole_box is None:
            assert abs(_place(told[-1])[1] - 8.0) < 0.1
    assert len(tracker.finish()) == 1


def test_standing_things_are_placed_by_their_feet_and_may_walk() -> None:
    tracker = Tracker(TrackRule(min_hits=1, static=False, ground_point="bottom"))
    pose = _pose(0, 0.0, 0.0, 0.0, -45.0)
    ids = set()
    for frame in range(20):
        t_ms = frame * 100
        pixel = enu_to_pixel(CAMERA, pose, 0.15 * frame, 25.0)
        assert pixel is not None
        detection = Detection(0, "person", 0.9, (pixel[0] - 8, pixel[1] - 40, pixel[0] + 8, pixel[1]))
        fix = ray_to_ground(CAMERA, pose, pixel[0], pixel[1], 2.0)
        events = tracker.update(t_ms * MS, [detection], [fix], pose, CAMERA)
        ids |= {e.track_id for e in events}
    assert ids == {1}
    assert _place(events[-1]) == pytest.approx((0.15 * 19, 25.0), abs=0.05)


def test_a_pose_without_fix_gives_no_position() -> None:
    tracker = Tracker(replace(MODULES, min_hits=1))
    pose = replace(_pose(0, 0.0, 0.0), has_fix=False)
    events = _feed(tracker, 0, [seen(100, 100)], pose)
    assert events[0].position is None


def test_the_number_of_tracks_is_bounded() -> None:
    tracker = Tracker(TrackRule(min_hits=1))
    many = [seen(i * 25 % 10_000, i // 400 * 25) for i in range(MAX_TRACKS + 100)]
    assert len(_feed(tracker, 0, many)) == MAX_TRACKS


def test_centre_distance_is_in_boxes() -> None:
    assert centre_distance((0, 0, 10, 10), (0, 5, 10, 15)) == 0.5
