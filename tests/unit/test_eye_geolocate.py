"""From pixels to the ground: signs, errors, and everything that must give no position."""

import math
from dataclasses import replace

import numpy as np
import pytest

from swarmd_models.geo.geolocate import (
    Intrinsics,
    enu_m,
    extent_on_ground,
    ground_to_pixel,
    multiply,
    offset,
    pixel_to_ground,
    quaternion_from_euler,
    radii_m,
    ray_to_ground,
    rotate,
)
from swarmd_models.geo.poses import make_pose
from swarmd_models.types import Pose

CAMERA = Intrinsics.from_hfov(60.0, 640, 512)
NADIR = make_pose(0, -18.88, -70.11, 30.0, 0.0, -90.0, 0.0)


def _enu(pose: Pose, u: float, v: float) -> tuple[float, float]:
    place = pixel_to_ground(CAMERA, pose, u, v)
    assert place is not None
    return enu_m(place.latitude_deg, place.longitude_deg, (pose.latitude_deg, pose.longitude_deg))


def test_looking_down_heading_north_the_picture_is_a_map() -> None:
    metre_px = CAMERA.fx / 30.0
    assert _enu(NADIR, 320, 256) == pytest.approx((0, 0), abs=1e-6)
    assert _enu(NADIR, 320 + metre_px, 256) == pytest.approx((1, 0), abs=1e-6), "right is east"
    assert _enu(NADIR, 320, 256 - metre_px) == pytest.approx((0, 1), abs=1e-6), "up is north"


def test_heading_east_up_is_east() -> None:
    pose = make_pose(0, -18.88, -70.11, 30.0, 90.0, -90.0, 0.0)
    assert _enu(pose, 320, 256 - CAMERA.fx / 30.0) == pytest.approx((1, 0), abs=1e-6)


def test_looking_ahead_and_down() -> None:
    pose = make_pose(0, 47.0, 8.0, 30.0, 0.0, -45.0, 0.0)
    assert _enu(pose, 320, 256) == pytest.approx((0, 30), abs=1e-4)
    pose = make_pose(0, 47.0, 8.0, 30.0, 180.0, -45.0, 0.0)
    assert _enu(pose, 320, 256) == pytest.approx((0, -30), abs=1e-4)


def test_rolled_right_the_axis_points_left() -> None:
    pose = make_pose(0, 47.0, 8.0, 30.0, 0.0, -45.0, 0.0)
    rolled = replace(pose, camera_to_ned=quaternion_from_euler(0.0, math.radians(-90), math.radians(10)))
    east, _ = _enu(rolled, 320, 256)
    assert abs(east) < 1e-6, "roll about the optical axis leaves the middle where it is"


@pytest.mark.parametrize(
    "pose",
    [
        None,
        replace(NADIR, has_fix=False),
        replace(NADIR, height_agl_m=0.0),
        replace(NADIR, height_agl_m=math.nan),
        replace(NADIR, latitude_deg=math.inf),
        replace(NADIR, latitude_deg=89.9),
        replace(NADIR, camera_to_ned=(0.0, 0.0, 0.0, 0.0)),
        make_pose(0, 47.0, 8.0, 30.0, 0.0, 0.0, 0.0),
        make_pose(0, 47.0, 8.0, 30.0, 0.0, -5.0, 0.0),
        make_pose(0, 47.0, 8.0, 30.0, 0.0, 60.0, 0.0),
        make_pose(0, 47.0, 8.0, 900.0, 0.0, -30.0, 0.0),
    ],
    ids=["no pose", "no fix", "on the ground", "nan", "inf", "pole", "no attitude", "horizon", "5 deg", "sky", "far"],
)
def test_no_position_rather_than_a_wrong_one(pose: Pose | None) -> None:
    assert pixel_to_ground(CAMERA, pose, 320, 256) is None


def test_the_covariance_is_that_of_a_simulation() -> None:
    pose = make_pose(0, 47.0, 8.0, 32.0, 30.0, -45.0, 0.0)
    fix = ray_to_ground(CAMERA, pose, 400, 300, pixel_sigma=2.0)
    assert fix is not None
    rng = np.random.default_rng(1)
    samples = []
    for _ in range(4000):
        axis = rng.normal(0, pose.attitude_sigma_rad, 3) / 2
        small = (1.0, *axis)
        norm = math.sqrt(sum(x * x for x in small))
        turned = multiply(tuple(x / norm for x in small), pose.camera_to_ned)  # type: ignore[arg-type]
        height = 32.0 + rng.normal(0, pose.height_sigma_m)
        u, v = 400 + rng.normal(0, 2.0), 300 + rng.normal(0, 2.0)
        meet = ray_to_ground(CAMERA, replace(pose, camera_to_ned=turned, height_agl_m=height), u, v)
        assert meet is not None
        move = rng.normal(0, pose.position_sigma_m, 2)
        samples.append((meet.east_m + move[0], meet.north_m + move[1]))
    measured = np.cov(np.asarray(samples).T)
    ee, en, nn = fix.covariance_m2
    np.testing.assert_allclose([[ee, en], [en, nn]], measured, rtol=0.12, atol=0.05)


def test_published_error_budget() -> None:
    """facts: AGL 32 m, nadir, 1 degree, 1.5 m GPS, 1 m height: CE50 1.8 m."""
    fix = ray_to_ground(CAMERA, replace(NADIR, height_agl_m=32.0), 320, 256)
    assert fix is not None
    sigma = math.sqrt(fix.covariance_m2[0])
    assert sigma * 1.1774 == pytest.approx(1.9, abs=0.15)


def test_flat_earth_there_and_back() -> None:
    for latitude in (-60.0, 0.0, 47.0, 80.0):
        for east, north in ((46.0, 0.0), (-300.0, 400.0), (0.0, -1000.0)):
            point = offset(latitude, 179.9999, east, north)
            assert -180.0 <= point[1] <= 180.0
            assert enu_m(*point, (latitude, 179.9999)) == pytest.approx((east, north), abs=1e-6)


def test_radii_of_wgs84() -> None:
    assert radii_m(0.0) == pytest.approx((6_335_439.327, 6_378_137.0), abs=0.01)
    assert radii_m(90.0) == pytest.approx((6_399_593.626, 6_399_593.626), abs=0.01)


def test_a_point_behind_the_camera_has_no_pixel() -> None:
    pose = make_pose(0, 47.0, 8.0, 30.0, 0.0, -30.0, 0.0)
    assert ground_to_pixel(CAMERA, pose, *offset(47.0, 8.0, 0.0, 100.0)) is not None
    assert ground_to_pixel(CAMERA, pose, *offset(47.0, 8.0, 0.0, -100.0)) is None


def test_euler_angles_turn_forward() -> None:
    yaw = quaternion_from_euler(math.radians(90), 0.0, 0.0)
    assert rotate(yaw, (1.0, 0.0, 0.0)) == pytest.approx((0, 1, 0), abs=1e-9)
    pitch = quaternion_from_euler(0.0, math.radians(-90), 0.0)
    assert rotate(pitch, (1.0, 0.0, 0.0)) == pytest.approx((0, 0, 1), abs=1e-9)
    roll = quaternion_from_euler(0.0, 0.0, math.radians(90))
    assert rotate(roll, (0.0, 1.0, 0.0)) == pytest.approx((0, 0, 1), abs=1e-9)


def test_a_field_of_view_must_make_sense() -> None:
    with pytest.raises(ValueError, match="1 to 170"):
        Intrinsics.from_hfov(0.0, 640, 512)
    half = CAMERA.scaled_to(320, 256)
    assert (half.fx, half.cx, half.cy) == (CAMERA.fx / 2, 160, 128)


@pytest.mark.parametrize(("heading_deg", "extent_m"), [(0.0, (4.0, 2.0)), (90.0, (2.0, 4.0)), (180.0, (4.0, 2.0))])
def test_a_box_reaches_as_far_as_what_it_holds(heading_deg: float, extent_m: tuple[float, float]) -> None:
    pose = make_pose(0, -18.88, -70.11, 30.0, heading_deg, -90.0, 0.0)
    metre_px = CAMERA.fx / 30.0
    box = (300.0, 200.0, 300.0 + 4 * metre_px, 200.0 + 2 * metre_px)
    assert extent_on_ground(CAMERA, pose, box) == pytest.approx(extent_m, abs=1e-6)


def test_a_slanting_view_reaches_farther_and_over_the_horizon_nowhere() -> None:
    slant = make_pose(0, 47.0, 8.0, 30.0, 0.0, -45.0, 0.0)
    box = (300.0, 240.0, 340.0, 280.0)
    corners = [enu_m(*_place(slant, u, v), (slant.latitude_deg, slant.longitude_deg)) for u, v in _corners(box)]
    easts, norths = zip(*corners, strict=True)
    wanted = (max(easts) - min(easts), max(norths) - min(norths))
    assert extent_on_ground(CAMERA, slant, box) == pytest.approx(wanted, abs=1e-6)
    assert wanted[1] > wanted[0]
    level = make_pose(0, 47.0, 8.0, 30.0, 0.0, -25.0, 0.0)
    assert extent_on_ground(CAMERA, level, (300.0, 0.0, 340.0, 500.0)) is None


def _corners(box: tuple[float, float, float, float]) -> list[tuple[float, float]]:
    x1, y1, x2, y2 = box
    return [(x1, y1), (x2, y1), (x2, y2), (x1, y2)]


def _place(pose: Pose, u: float, v: float) -> tuple[float, float]:
    place = pixel_to_ground(CAMERA, pose, u, v)
    assert place is not None
    return place.latitude_deg, place.longitude_deg
