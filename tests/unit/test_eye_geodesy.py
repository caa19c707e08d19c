"""Places beside those of a library that is not ours: pymap3d's rays meet the ellipsoid, ours a plane."""

import importlib
import math
import random
from typing import Any

import numpy as np
import pytest

from swarmd_models.geo.geolocate import MAX_RANGE_M, Intrinsics, enu_m, ground_to_pixel, offset, pixel_to_ground
from swarmd_models.geo.poses import make_pose

NEAR_M = 0.02
"""How far a flat earth may be off within 200 m."""
FAR_M = 0.5
"""How far within `MAX_RANGE_M`: 8 cm of the earth's curve, seen at 8 degrees."""


@pytest.fixture(scope="module")
def pymap3d() -> Any:
    """The library."""
    return pytest.importorskip("pymap3d", reason="pymap3d is not installed (make setup-extras)")


def _apart_m(pymap3d: Any, one: tuple[float, float], other: tuple[float, float]) -> float:
    east, north, _ = pymap3d.geodetic2enu(*one, 0.0, *other, 0.0)
    return math.hypot(float(east), float(north))


def test_metres_about_an_origin_are_the_ellipsoids(pymap3d: Any) -> None:
    rng = random.Random(1)
    for _ in range(300):
        origin = rng.uniform(-70, 70), rng.uniform(-180, 180)
        reach = rng.choice((200.0, MAX_RANGE_M))
        east, north = rng.uniform(-reach, reach) * 0.7, rng.uniform(-reach, reach) * 0.7
        latitude, longitude, _ = (float(x) for x in pymap3d.enu2geodetic(east, north, 0.0, *origin, 0.0))
        tolerance = NEAR_M if reach < MAX_RANGE_M else 0.3
        assert math.dist(enu_m(latitude, longitude, origin), (east, north)) < tolerance
        assert _apart_m(pymap3d, offset(*origin, east, north), (latitude, longitude)) < tolerance


def test_what_a_pixel_shows_is_where_its_ray_meets_the_ellipsoid(pymap3d: Any) -> None:
    look_at, rng = importlib.import_module("pymap3d.los").lookAtSpheroid, random.Random(2)
    camera = Intrinsics.from_hfov(60.0, 640, 512)
    near = far = 0
    for _ in range(600):
        at = rng.uniform(-65, 65), rng.uniform(-180, 180)
        height, yaw, pitch, roll = (
            rng.uniform(5, 150),
            rng.uniform(-180, 180),
            rng.uniform(-90, -25),
            rng.uniform(-8, 8),
        )
        u, v = rng.uniform(0, 640), rng.uniform(0, 512)
        pose = make_pose(0, *at, height, yaw, pitch, roll)
        place = pixel_to_ground(camera, pose, u, v)
        if place is None:
            continue
        # The ray in north, east and down, by matrices of yaw, pitch and roll.
        y, p, r = (math.radians(angle) for angle in (yaw, pitch, roll))
        about_down = np.array([[math.cos(y), -math.sin(y), 0], [math.sin(y), math.cos(y), 0], [0, 0, 1]])
        about_right = np.array([[math.cos(p), 0, math.sin(p)], [0, 1, 0], [-math.sin(p), 0, math.cos(p)]])
        about_front = np.array([[1, 0, 0], [0, math.cos(r), -math.sin(r)], [0, math.sin(r), math.cos(r)]])
        looked = np.array([1.0, (u - camera.cx) / camera.fx, (v - camera.cy) / camera.fy])
        north, east, down = about_down @ about_right @ about_front @ looked
        azimuth, tilt = math.degrees(math.atan2(east, north)), math.degrees(math.atan2(math.hypot(north, east), down))
        latitude, longitude, _ = (float(x) for x in look_at(*at, height, azimuth, tilt))
        off = _apart_m(pymap3d, (place.latitude_deg, place.longitude_deg), (latitude, longitude))
        is_near = height / math.cos(math.radians(tilt)) < 200.0
        near, far = near + is_near, far + (not is_near)
        assert off < (NEAR_M if is_near else FAR_M), (height, pitch, off)
        back = ground_to_pixel(camera, pose, latitude, longitude)
        assert back is not None
        assert math.dist(back, (u, v)) < 1.0
    assert near > 300
    assert far > 20
