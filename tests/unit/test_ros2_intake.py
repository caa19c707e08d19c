"""What ROS 2 detectors say: boxes become places only with a camera and a pose; what makes no sense is counted."""

import math
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("cyclonedds", reason="cyclonedds is not installed (extra dds)")

from swarmd.api.daemon import PoseSeen
from swarmd.bridges.ros2 import messages as m
from swarmd.bridges.ros2.intake import CAMERAS_MAX, DETECTIONS_IN_MAX, Camera, Intake
from swarmd.bridges.ros2.limits import TopicLimits
from swarmd_models.geo.geolocate import Intrinsics, enu_m, ground_to_pixel, offset, quaternion_from_euler
from swarmd_models.types import Pose

K = [500.0, 0.0, 320.0, 0.0, 505.0, 240.0, 0.0, 0.0, 1.0]
PLACE = (-18.88, -70.11)
NAN, INF = math.nan, math.inf
WALL_NS, NOW_NS = 1_800_000_000 * 10**9, 3_600 * 10**9


@pytest.fixture(autouse=True)
def _clock_that_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pose is fresh for 0.2 s: no busy machine makes it old, and none that is to be fresh is old by chance."""
    stands = SimpleNamespace(time_ns=lambda: WALL_NS, monotonic_ns=lambda: NOW_NS)
    monkeypatch.setattr("swarmd.bridges.ros2.intake.time", stands)


def info(**changes: Any) -> m.CameraInfo:
    fields: dict[str, Any] = {"height": 480, "width": 640, "distortion_model": "plumb_bob", "d": [0.0] * 5, "k": K}
    return m.CameraInfo(m.Header(frame_id="camera"), **{**fields, **changes})


def seen(pitch_deg: float = -70.0, *, has_fix: bool = True, age_ms: int = 0) -> PoseSeen:
    rotation = quaternion_from_euler(0.7, math.radians(pitch_deg), 0.05)
    at_ns = NOW_NS - age_ms * 1_000_000
    return PoseSeen(*PLACE, 32.0, 0.7, 0.5, has_fix, None, at_ns, rotation)


def box(u: float, v: float, size: float = 10.0, score: float = 0.8, label: str = "car") -> m.Detection2D:
    result = m.ObjectHypothesisWithPose(m.ObjectHypothesis(label, score))
    return m.Detection2D(m.Header(), [result], m.BoundingBox2D(m.Pose2D(m.Point2D(u, v)), size, size), "t1")


def boxes(*found: m.Detection2D, frame: str = "camera") -> m.Detection2DArray:
    return m.Detection2DArray(m.Header(frame_id=frame), list(found))


def ready(ground: str = "center") -> Intake:
    intake = Intake(ground)
    intake.on_camera(info())
    intake.on_pose(seen())
    return intake


def place_of(rows: list[dict[str, object]]) -> tuple[float, float]:
    latitude, longitude = rows[0]["latitude_deg"], rows[0]["longitude_deg"]
    assert isinstance(latitude, float)
    assert isinstance(longitude, float)
    return latitude, longitude


@pytest.mark.parametrize(("east_m", "north_m"), [(0.0, 10.0), (8.0, 14.0), (-3.0, 6.0)])
def test_a_box_is_placed_where_its_thing_stands(east_m: float, north_m: float) -> None:
    thing = offset(*PLACE, east_m, north_m)
    one = seen()
    assert one.camera_to_ned is not None
    camera = Pose(one.captured_ns, *PLACE, 32.0, one.camera_to_ned)
    pixel = ground_to_pixel(Intrinsics(500.0, 505.0, 320.0, 240.0, 640, 480), camera, *thing)
    assert pixel is not None
    rows = ready().rows2(boxes(box(*pixel)))
    assert enu_m(*place_of(rows), thing) == pytest.approx((0.0, 0.0), abs=0.01)
    assert (rows[0]["label"], rows[0]["score"], rows[0]["track"]) == ("car", 0.8, "t1")
    covariance = rows[0]["covariance_m2"]
    assert isinstance(covariance, list)
    assert min(covariance[0], covariance[2]) > 0.25


def test_the_bottom_of_a_box_stands_on_the_ground_where_that_is_wanted() -> None:
    lower = place_of(ready("bottom").rows2(boxes(box(320.0, 240.0, 40.0))))
    assert lower == pytest.approx(place_of(ready().rows2(boxes(box(320.0, 260.0)))), abs=1e-9)


def test_a_region_and_binning_are_undone() -> None:
    half = Intake("center")
    half.on_camera(info(binning_x=2, binning_y=2, roi=m.RegionOfInterest(100, 40, 400, 440)))
    half.on_pose(seen())
    whole = place_of(ready().rows2(boxes(box(320.0, 240.0))))
    assert place_of(half.rows2(boxes(box(110.0, 100.0)))) == pytest.approx(whole, abs=1e-9)


@pytest.mark.parametrize(
    ("model", "d"),
    [
        ("plumb_bob", [-0.28, 0.09, 0.001, -0.0008, -0.01]),
        ("rational_polynomial", [-0.2, 0.05, 0.0005, 0.001, 0.0, 0.02, -0.01, 0.003]),
    ],
)
def test_distortion_is_undone_as_opencv_does(model: str, d: list[float]) -> None:
    cv2 = pytest.importorskip("cv2")
    import numpy as np

    camera = Camera(info(distortion_model=model, d=d))
    matrix = np.array(K).reshape(3, 3)
    for ideal in ((20.0, 30.0), (320.0, 240.0), (600.0, 100.0), (500.0, 460.0)):
        ray = np.array([[(ideal[0] - K[2]) / K[0], (ideal[1] - K[5]) / K[4], 1.0]])
        (u, v), *_ = cv2.projectPoints(ray, np.zeros(3), np.zeros(3), matrix, np.array(d))[0].reshape(-1, 2)
        assert camera.undistorted(u, v) == pytest.approx(ideal, abs=0.01)


@pytest.mark.parametrize(
    ("camera", "pose"),
    [
        (None, seen()),
        (info(), None),
        (info(), seen(has_fix=False)),
        (info(), seen(age_ms=800)),
        (info(), seen(pitch_deg=0.0)),
        (info(k=[0.0] * 9), seen()),
        (info(k=[NAN, *K[1:]]), seen()),
        (info(d=[INF] * 5), seen()),
        (info(d=[0.1]), seen()),
        (info(distortion_model="equidistant", d=[0.1] * 5), seen()),
        (info(distortion_model="omni", d=[0.1] * 4), seen()),
        (info(width=0), seen()),
    ],
)
def test_without_camera_pose_or_fix_there_is_no_place(camera: m.CameraInfo | None, pose: PoseSeen | None) -> None:
    intake = Intake("center")
    if camera is not None:
        intake.on_camera(camera)
    if pose is not None:
        intake.on_pose(pose)
    rows = intake.rows2(boxes(box(320.0, 240.0)))
    assert rows == [{"label": "car", "score": 0.8, "track": "t1"}]
    assert intake.counts["without_place"] == 1


def test_the_pose_is_that_of_the_picture() -> None:
    intake = Intake("center")
    intake.on_camera(info())
    intake.on_pose(seen(age_ms=800))
    old = seen(age_ms=400)
    intake.on_pose(old)
    moved = PoseSeen(-18.87, -70.11, 32.0, 0.7, 0.5, True, None, old.captured_ns + 400_000_000, old.camera_to_ned)
    intake.on_pose(moved)
    at_ns = WALL_NS - (NOW_NS - old.captured_ns)
    header = m.Header(m.Time(at_ns // 10**9, at_ns % 10**9), "camera")
    then = place_of(intake.rows2(m.Detection2DArray(header, [box(320.0, 240.0)])))
    now = place_of(intake.rows2(boxes(box(320.0, 240.0))))
    assert now[0] - then[0] == pytest.approx(0.01, abs=1e-6)


def test_one_camera_is_the_camera_and_of_two_only_the_named_one() -> None:
    intake = ready()
    assert "latitude_deg" in intake.rows2(boxes(box(320.0, 240.0), frame="other"))[0]
    second = info()
    second.header = m.Header(frame_id="second")
    intake.on_camera(second)
    assert "latitude_deg" not in intake.rows2(boxes(box(320.0, 240.0), frame="other"))[0]
    for number in range(50):
        second.header = m.Header(frame_id=f"c{number}")
        intake.on_camera(second)
    assert intake.counts["cameras"] == CAMERAS_MAX


@pytest.mark.parametrize(
    "bad",
    [
        box(NAN, 1.0),
        box(INF, 1.0),
        box(1e9, 1.0),
        box(1.0, 1.0, size=-1.0),
        box(1.0, 1.0, size=NAN),
        box(1.0, 1.0, score=NAN),
        box(1.0, 1.0, score=1.1),
        box(1.0, 1.0, label=""),
        box(1.0, 1.0, label="x" * 65),
        m.Detection2D(),
    ],
)
def test_boxes_that_make_no_sense_are_dropped(bad: m.Detection2D) -> None:
    intake = ready()
    assert len(intake.rows2(boxes(bad, box(1.0, 200.0)))) == 1
    assert intake.counts["dropped_malformed"] == 1


def test_too_many_are_dropped_together() -> None:
    intake = ready()
    assert intake.rows2(boxes(*[box(1.0, 1.0)] * (DETECTIONS_IN_MAX + 1))) == []
    assert intake.counts["dropped_oversized"] == 1


@pytest.mark.parametrize("covariance", [(1.0, 2.0, 1.0), (-1.0, 0.0, 1.0), (NAN, 0.0, 1.0), (1e9, 0.0, 1.0)])
def test_a_covariance_that_is_none_is_dropped(covariance: tuple[float, float, float]) -> None:
    matrix = [0.0] * 36
    matrix[0], matrix[1], matrix[7] = covariance
    result = m.ObjectHypothesisWithPose(m.ObjectHypothesis("car", 0.5), m.PoseWithCovariance(m.Pose(), matrix))
    intake = Intake("center")
    assert intake.rows3(m.Detection3DArray(m.Header(), [m.Detection3D(results=[result])])) == []
    assert intake.counts["dropped_malformed"] == 1


def test_rates_by_topic() -> None:
    now = 0.0
    limits = TopicLimits(("/bob/*=2", "/*/fix=1"), lambda: now)
    assert limits.hz("/bob/fix", 10.0) == 2.0
    assert limits.hz("/eve/fix", 10.0) == 1.0
    assert limits.hz("/eve/pose", 10.0) == 10.0
    said = 0
    for step in range(100):
        now = step / 10
        said += limits.is_due("/eve/fix", 10.0)
    assert said in (10, 11, 12)
    now = 100.0
    assert sum(limits.is_due("/eve/pose", 10.0) for _ in range(50)) == 1
