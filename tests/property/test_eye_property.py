"""Laws of the eye that hold for every input."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_models.association import Box, iou, match
from swarmd_models.backends.base import TensorSpec
from swarmd_models.bundle import InputRule
from swarmd_models.bundle_rules import TrackRule
from swarmd_models.geo.geolocate import Intrinsics, ground_to_pixel, pixel_to_ground
from swarmd_models.geo.place import inverse
from swarmd_models.geo.poses import make_pose
from swarmd_models.motion import Motion
from swarmd_models.preprocess import Preprocessor
from swarmd_models.tracker import Tracker
from swarmd_models.types import Detection, TrackEvent

CAMERA = Intrinsics.from_hfov(60.0, 640, 512)
angles = st.floats(-180, 180)


@given(st.floats(-80, 80), angles, st.floats(1, 200), angles, st.floats(-90, -20), st.floats(-30, 30),
       st.floats(0, 640), st.floats(0, 512))  # fmt: skip
def test_pixel_to_ground_and_back(
    lat: float, lon: float, agl: float, yaw: float, pitch: float, roll: float, u: float, v: float
) -> None:
    pose = make_pose(0, lat, lon, agl, yaw, pitch, roll)
    place = pixel_to_ground(CAMERA, pose, u, v)
    if place is None:
        return
    ee, en, nn = place.covariance_m2
    assert ee > 0
    assert ee * nn >= en * en
    back = ground_to_pixel(CAMERA, pose, place.latitude_deg, place.longitude_deg)
    assert back is not None
    assert math.dist(back, (u, v)) < 1e-2


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6), st.floats(-0.99, 0.99))
def test_the_inverse_of_a_covariance_inverts(a: float, c: float, rho: float) -> None:
    b = rho * math.sqrt(a * c)
    ia, ib, ic = inverse((a, b, c))
    np.testing.assert_allclose(np.array([[a, b], [b, c]]) @ [[ia, ib], [ib, ic]], np.eye(2), atol=1e-3)


@settings(max_examples=40)
@given(st.integers(1, 700), st.integers(1, 700), st.sampled_from(["letterbox", "stretch"]), st.integers(0, 2))
def test_boxes_find_their_way_back_through_any_resize(height: int, width: int, resize: str, channels: int) -> None:
    rule = InputRule(channels="bgr", resize=resize)
    spec = TensorSpec("i", (1, 64, 96, 3), np.dtype(np.int8), 1 / 255, -128)
    mapping = Preprocessor(rule, spec).fill(np.zeros((height, width, 3), np.uint8), np.zeros((64, 96, 3), np.int8))
    for x, y in ((0, 0), (width, height), (width / 3, height / 2)):
        ix, iy = x * mapping.scale_x + mapping.pad_x, y * mapping.scale_y + mapping.pad_y
        assert -1e-6 <= ix <= 96 + 1e-6
        assert -1e-6 <= iy <= 64 + 1e-6
        assert math.isclose((ix - mapping.pad_x) / mapping.scale_x, x, abs_tol=1e-6)


boxes = st.tuples(st.floats(-50, 700), st.floats(-50, 700), st.floats(0, 300), st.floats(0, 300)).map(
    lambda b: (b[0], b[1], b[0] + b[2], b[1] + b[3])
)


@given(boxes, boxes)
def test_overlap_is_symmetric_and_bounded(a: tuple[float, ...], b: tuple[float, ...]) -> None:
    assert 0.0 <= iou(a, b) <= 1.0 + 1e-9  # type: ignore[arg-type]
    assert math.isclose(iou(a, b), iou(b, a), abs_tol=1e-12)  # type: ignore[arg-type]


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 8), st.integers(0, 8))))
def test_a_match_is_one_to_one(costs: list[tuple[float, int, int]]) -> None:
    pairs = match(costs)
    assert len({row for row, _ in pairs}) == len(pairs) == len({column for _, column in pairs})
    assert set(pairs) <= {(row, column) for _, row, column in costs}


@given(st.lists(st.tuples(st.integers(0, 3 * 10**9), boxes, st.floats(-500, 500)), min_size=1, max_size=30))
def test_a_motion_stays_finite_and_its_covariance_one(sights: list[tuple[int, Box, float]]) -> None:
    motion, now = Motion.begin(sights[0][1], 0), 0
    for after_ns, box, swung in sights:
        now += after_ns
        motion.carry(swung, -swung, now, after_ns)
        motion.take(box, now)
        assert all(math.isfinite(value) for value in motion.box_at(now + 10**9))
        scale = motion.place_var * motion.speed_var
        assert motion.place_var >= 0 <= motion.speed_var
        assert motion.cross_var**2 <= scale * (1 + 1e-6) + 1e-9


detections = st.builds(lambda c, s, b: Detection(c, f"c{c}", s, b), st.integers(0, 3), st.floats(0.01, 1), boxes)
frames = st.lists(st.tuples(st.integers(-100, 900), st.lists(detections, max_size=6)), max_size=25)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(frames, st.booleans(), st.booleans())
def test_every_track_lives_once(sequence: list[tuple[int, list[Detection]]], static: bool, with_pose: bool) -> None:
    tracker = Tracker(TrackRule(min_hits=1, lost_ms=300, static=static))
    now = 0
    events: list[TrackEvent] = []
    for step_ms, found in sequence:
        now = max(0, now + step_ms * 1_000_000)
        pose = make_pose(now, 47.0, 8.0 + now * 1e-16, 30.0, 0.0, -90.0, 0.0) if with_pose else None
        fixes = []
        for d in found:
            place = None
            if pose is not None:
                from swarmd_models.geo.geolocate import ray_to_ground

                place = ray_to_ground(CAMERA, pose, (d.box[0] + d.box[2]) / 2, (d.box[1] + d.box[3]) / 2)
            fixes.append(place)
        told = tracker.update(now, found, fixes, pose, CAMERA)
        seen_now = [e.track_id for e in told if e.kind != "end"]
        assert len(seen_now) == len(set(seen_now)) <= len(found)
        events += told
    events += tracker.finish()
    lives: dict[int, list[str]] = {}
    for event in events:
        lives.setdefault(event.track_id, []).append(event.kind)
        assert event.score <= 1.0
    for kinds in lives.values():
        assert kinds[0] == "new"
        assert kinds[-1] == "end"
        assert set(kinds[1:-1]) <= {"update"}
