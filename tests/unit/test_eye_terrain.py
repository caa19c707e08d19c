"""Where rays meet ground that is not level: beside analytic surfaces, beside pymap3d, and with honest covariances."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from swarmd_models.geo.geolocate import (
    MAX_RANGE_M,
    Intrinsics,
    enu_m,
    enu_to_pixel,
    extent_on_ground,
    multiply,
    offset,
    pixel_to_ground,
    ray_to_ground,
    rotate,
)
from swarmd_models.geo.heights import PATCH_REACH_M, Patch
from swarmd_models.geo.place import first_place
from swarmd_models.geo.poses import make_pose
from swarmd_models.geo.terrain import Terrain, TerrainRule, parse_home
from swarmd_models.types import Pose

AT = (47.3, 8.6)
"""Latitude and longitude about which the ground is drawn."""
CAMERA = Intrinsics.from_hfov(60.0, 640, 512)
STEP_M = 30.0


class Drawn:
    """A height model of a function of metres east and north of `AT`."""

    def __init__(self, surface, step_m: float = STEP_M, reach_m: float = PATCH_REACH_M) -> None:  # type: ignore[no-untyped-def]
        lat, lon = offset(*AT, step_m, step_m)
        self._step = (lat - AT[0], lon - AT[1])
        half = math.ceil(reach_m / step_m)
        self._first = (AT[0] - half * self._step[0], AT[1] - half * self._step[1])
        metres = np.arange(-half, half + 1) * step_m
        east_m, north_m = np.meshgrid(metres, metres)
        self.heights = (surface(east_m, north_m) + np.zeros_like(east_m)).astype(np.float32)
        self.reads = 0

    def patch(self, latitude_deg: float, longitude_deg: float) -> Patch:
        self.reads += 1
        return Patch(self._first[0], self._first[1], self._step, self.heights)


def _terrain(surface, sigma_m: float = 0.0, level: bool = False, **options: float) -> Terrain:  # type: ignore[no-untyped-def]
    return Terrain(Drawn(surface, **options), TerrainRule("drawn.hgt", sigma_m, level=level))


def _pose(rng: random.Random, height: tuple[float, float] = (20.0, 120.0)) -> Pose:
    where = offset(*AT, rng.uniform(-200, 200), rng.uniform(-200, 200))
    angles = (rng.uniform(-180, 180), rng.uniform(-90, -30), rng.uniform(-8, 8))
    return make_pose(0, *where, rng.uniform(*height), *angles)


def _ray(pose: Pose, u: float, v: float) -> tuple[float, float, float]:
    return rotate(pose.camera_to_ned, (1.0, (u - CAMERA.cx) / CAMERA.fx, (v - CAMERA.cy) / CAMERA.fy))


def test_level_ground_of_a_model_is_level_ground() -> None:
    rng, terrain = random.Random(1), _terrain(lambda e, n: 412.0)
    for _ in range(300):
        pose, u, v = _pose(rng), rng.uniform(0, 640), rng.uniform(0, 512)
        plain, there = ray_to_ground(CAMERA, pose, u, v), ray_to_ground(CAMERA, terrain.stand(pose), u, v, 1.0, terrain)
        assert (plain is None) == (there is None)
        if plain is not None and there is not None:
            assert (there.east_m, there.north_m) == pytest.approx((plain.east_m, plain.north_m), abs=1e-6)
            assert there.pixel_m2 == pytest.approx(plain.pixel_m2, rel=1e-6, abs=1e-9)
            assert there.attitude_m2 == pytest.approx(plain.attitude_m2, rel=1e-6, abs=1e-9)
            assert there.bias_m2 == pytest.approx(plain.bias_m2, rel=1e-6, abs=1e-9)
            assert there.ground_m == pytest.approx(412.0, abs=1e-3)


def test_a_plane_is_met_where_its_equation_says() -> None:
    """A bilinear grid holds a plane exactly; 0.35 rises to the north-east."""
    rng, terrain = random.Random(2), _terrain(lambda e, n: 600.0 + 0.3 * e + 0.18 * n)
    met = 0
    for _ in range(400):
        pose = terrain.stand(_pose(rng))
        u, v = rng.uniform(0, 640), rng.uniform(0, 512)
        north, east, down = _ray(pose, u, v)
        fix = ray_to_ground(CAMERA, pose, u, v, 1.0, terrain)
        fall = down + 0.3 * east + 0.18 * north
        if fix is None:
            continue
        met += 1
        t = pose.height_agl_m / fall
        assert (fix.east_m, fix.north_m) == pytest.approx((t * east, t * north), abs=0.02)
        back = enu_to_pixel(CAMERA, pose, fix.east_m, fix.north_m, fix.ground_m - pose.ground_m)  # type: ignore[operator]
        assert back == pytest.approx((u, v), abs=1e-3)
    assert met > 300


def test_a_cone_beside_pymap3d() -> None:
    """The ray by pymap3d, in earth-centred coordinates; where it meets, the cone is as high as the ray."""
    pymap3d = pytest.importorskip("pymap3d", reason="pymap3d is not installed (make setup-extras)")
    rng, terrain = random.Random(3), _terrain(lambda e, n: 900.0 - 0.4 * np.hypot(e - 150.0, n + 90.0), step_m=5.0)
    met = 0
    for _ in range(300):
        pose = terrain.stand(_pose(rng))
        u, v = rng.uniform(0, 640), rng.uniform(0, 512)
        place = pixel_to_ground(CAMERA, pose, u, v, 1.0, terrain)
        if place is None:
            continue
        met += 1
        assert pose.ground_m is not None
        at = (pose.latitude_deg, pose.longitude_deg, pose.ground_m + pose.height_agl_m)
        north, east, down = _ray(pose, u, v)
        eye, ahead = (np.array(pymap3d.enu2ecef(*enu, *at)) for enu in ((0, 0, 0), (east, north, -down)))

        def over(t: np.ndarray, eye: np.ndarray = eye, ahead: np.ndarray = ahead) -> np.ndarray:
            latitude, longitude, height = pymap3d.ecef2geodetic(*(eye[:, None] + t * (ahead - eye)[:, None]))
            e, n, _ = pymap3d.geodetic2enu(latitude, longitude, 0.0, *AT, 0.0)
            return np.asarray(height) - (900.0 - 0.4 * np.hypot(e - 150.0, n + 90.0))

        low, width = 0.0, 0.5
        for span in (MAX_RANGE_M, 0.5, 0.005):
            t = low + np.arange(0.0, span + width, width)
            low, width = float(t[np.argmax(over(t) <= 0.0) - 1]), width / 100
        latitude, longitude, _ = pymap3d.ecef2geodetic(*(eye + low * (ahead - eye)))
        off = pymap3d.geodetic2enu(place.latitude_deg, place.longitude_deg, 0.0, latitude, longitude, 0.0)
        # What is left: the tip between two heights 5 m apart, and the earth's curve.
        assert math.hypot(float(off[0]), float(off[1])) < 0.6, (pose, u, v)
    assert met > 200


def test_no_ridge_is_missed_and_the_first_counts() -> None:
    """A wall one cell wide, that a ray in steps of a cell would pass through."""
    terrain = _terrain(lambda e, n: 100.0 + 60.0 * (np.abs(n - 150.0) < 1.0), step_m=2.0)
    for u in np.linspace(60, 580, 40):
        pose = terrain.stand(make_pose(0, *AT, 40.0, 0.0, -12.0, 0.0))
        fix = ray_to_ground(CAMERA, pose, float(u), 256.0, 1.0, terrain)
        assert fix is not None
        assert fix.north_m == pytest.approx(149.0, abs=1.1), "behind it lies level ground at 188 m"


def test_the_surface_is_followed_to_the_centimetre_in_every_cell() -> None:
    """Against a march in half-centimetre steps over a rough grid: the closed form finds the first meet."""
    rng = random.Random(5)
    noise = np.random.default_rng(5).uniform(0, 25, (400, 400))
    terrain = _terrain(
        lambda e, n: 300.0 + noise[np.rint(e / 10).astype(int) % 400, np.rint(n / 10).astype(int) % 400], step_m=10.0
    )
    drawn = terrain._patches._reader.heights  # type: ignore[attr-defined]
    half = (drawn.shape[0] - 1) // 2
    found = 0
    for _ in range(40):
        pose = terrain.stand(_pose(rng, (30.0, 60.0)))
        u, v = rng.uniform(0, 640), rng.uniform(0, 512)
        fix = ray_to_ground(CAMERA, pose, u, v, 1.0, terrain)
        north, east, down = _ray(pose, u, v)
        e0, n0 = enu_m(pose.latitude_deg, pose.longitude_deg, AT)
        t = np.arange(0.0, 500.0, 0.005)
        # The patch's degrees are metres about `AT`; 200 m off, the parallel's length differs by a part in 30,000.
        x, y = (e0 + t * east) / 10 + half, (n0 + t * north) / 10 + half
        inside = (x > 0) & (y > 0) & (x < 2 * half) & (y < 2 * half)
        x, y, t = x[inside], y[inside], t[inside]
        c, r = x.astype(int), y.astype(int)
        dx, dy = x - c, y - r
        surface = (
            drawn[r, c] * (1 - dx) * (1 - dy) + drawn[r, c + 1] * dx * (1 - dy)
            + drawn[r + 1, c] * (1 - dx) * dy + drawn[r + 1, c + 1] * dx * dy
        )  # fmt: skip
        assert pose.ground_m is not None
        hits = np.nonzero(pose.ground_m + pose.height_agl_m - t * down <= surface)[0]
        if fix is None or not hits.size:
            continue
        found += 1
        first = t[hits[0]]
        assert math.dist((fix.east_m, fix.north_m), (first * east, first * north)) < 0.05
    assert found > 20


def test_the_covariance_is_that_of_small_errors() -> None:
    """Each error by itself, a little of it: the meet moves as the Jacobian says, on a slope that grows uphill."""

    def surface(e: np.ndarray, n: np.ndarray) -> np.ndarray:
        return 500.0 + 0.3 * e - 0.2 * n + 0.0008 * e * e + 0.0004 * n * n

    terrain, small = _terrain(surface, 0.5, step_m=10.0), 1e-3
    base = replace(make_pose(0, *AT, 60.0, 70.0, -50.0, 3.0), position_sigma_m=1.0, height_sigma_m=0.0)
    base = replace(base, attitude_sigma_rad=1.0)

    def met(pose: Pose) -> np.ndarray:
        fix = ray_to_ground(CAMERA, terrain.stand(pose), 400.0, 300.0, 0.0, terrain)
        assert fix is not None
        east, north = enu_m(pose.latitude_deg, pose.longitude_deg, AT)
        return np.array([fix.east_m + east, fix.north_m + north])

    def moved(pose: Pose) -> np.ndarray:
        return (met(pose) - met(base)) / small

    def squares(moves: list[np.ndarray]) -> tuple[float, float, float]:
        all_of = sum(np.outer(move, move) for move in moves)
        return all_of[0, 0], all_of[0, 1], all_of[1, 1]  # type: ignore[index]

    def turned(axis: int) -> Pose:
        about = [math.cos(small / 2), 0.0, 0.0, 0.0]
        about[1 + axis] = math.sin(small / 2)
        return replace(base, camera_to_ned=multiply(tuple(about), base.camera_to_ned))  # type: ignore[arg-type]

    fix = ray_to_ground(CAMERA, terrain.stand(base), 400.0, 300.0, 0.0, terrain)
    assert fix is not None
    assert fix.attitude_m2 == pytest.approx(squares([moved(turned(axis)) for axis in range(3)]), rel=0.02)
    higher = moved(replace(base, height_agl_m=60.0 + small))
    at = [offset(*AT, small, 0.0), offset(*AT, 0.0, small)]
    elsewhere = [moved(replace(base, latitude_deg=where[0], longitude_deg=where[1])) for where in at]
    assert fix.bias_m2 == pytest.approx(squares([higher * 0.5, *elsewhere]), rel=0.02)


@pytest.mark.parametrize("slope", [(0.0, 0.0), (0.3, -0.2)])
def test_nees_within_its_bounds_on_drawn_terrain(slope: tuple[float, float]) -> None:
    """Every error drawn as the covariance says: the mean normalised squared error is 2, within 4 sigmas."""
    rng, count, sigma = random.Random(7), 1000, 3.0

    def surface(e: np.ndarray, n: np.ndarray) -> np.ndarray:
        hills = 6.0 * np.sin(e / 90.0) * np.cos(n / 110.0)
        return 500.0 + slope[0] * e + slope[1] * n + hills

    terrain = _terrain(surface, sigma)
    flat = Terrain(Drawn(surface), TerrainRule("drawn.hgt", 0.0))
    nees = level = seen = 0.0
    while seen < count:
        claimed = replace(_pose(rng, (40.0, 120.0)), position_sigma_m=1.0, height_sigma_m=0.8, attitude_sigma_rad=0.01)
        u, v = rng.uniform(100, 540), rng.uniform(100, 412)
        believed = terrain.stand(claimed)
        fix = ray_to_ground(CAMERA, believed, u, v, 2.0, terrain)
        # Truth: the camera elsewhere, turned, lower or higher, over ground that is higher or lower where it looks.
        truly = replace(
            claimed,
            latitude_deg=offset(claimed.latitude_deg, claimed.longitude_deg, 0.0, rng.gauss(0, 1.0))[0],
            longitude_deg=offset(claimed.latitude_deg, claimed.longitude_deg, rng.gauss(0, 1.0), 0.0)[1],
            height_agl_m=claimed.height_agl_m + rng.gauss(0, 0.8) - rng.gauss(0, sigma),
        )
        turn = [rng.gauss(0, 0.01) for _ in range(3)]
        w, x, y, z = truly.camera_to_ned
        size = math.sqrt(sum(a * a for a in turn))
        about = (math.cos(size / 2), *(math.sin(size / 2) * a / size for a in turn))
        truly = flat.stand(replace(truly, camera_to_ned=multiply(about, (w, x, y, z))))  # type: ignore[arg-type]
        true = pixel_to_ground(CAMERA, truly, u + rng.gauss(0, 2.0), v + rng.gauss(0, 2.0), 1.0, flat)
        if fix is None or true is None or math.hypot(fix.east_m, fix.north_m) > 250.0:
            continue
        seen += 1
        east, north = enu_m(true.latitude_deg, true.longitude_deg, (claimed.latitude_deg, claimed.longitude_deg))
        error = np.array([east - fix.east_m, north - fix.north_m])
        ee, en, nn = fix.covariance_m2
        nees += float(error @ np.linalg.solve(np.array([[ee, en], [en, nn]]), error))
        plain = ray_to_ground(CAMERA, claimed, u, v, 2.0)
        assert plain is not None
        off = np.array([east - plain.east_m, north - plain.north_m])
        ee, en, nn = plain.covariance_m2
        level += float(off @ np.linalg.solve(np.array([[ee, en], [en, nn]]), off))
    mean, spread = nees / count, 2.0 / math.sqrt(count)
    assert abs(mean - 2.0) < 4 * spread + 0.12, f"{mean:.2f}; second-order terms are left some 6 %"
    assert level / count > 3.0, f"level ground says {level / count:.1f} of the same truths"


def test_a_place_is_looked_for_where_its_height_puts_it() -> None:
    """A thing on a slope, seen from two places: its place on the ground, projected, is where it appears."""
    terrain = _terrain(lambda e, n: 700.0 + 0.4 * n)
    first = terrain.stand(make_pose(0, *AT, 50.0, 0.0, -60.0, 0.0))
    fix = ray_to_ground(CAMERA, first, 300.0, 200.0, 1.0, terrain)
    assert fix is not None
    place = first_place(fix, first, 50.0, 0)
    second = terrain.stand(make_pose(1, *offset(*AT, 10.0, 25.0), 40.0, 20.0, -70.0, 0.0))
    found = place.project(second, CAMERA, 0)
    assert found is not None
    again = ray_to_ground(CAMERA, second, found[0], found[1], 1.0, terrain)
    assert again is not None
    assert (again.east_m + 10.0, again.north_m + 25.0) == pytest.approx((fix.east_m, fix.north_m), abs=0.05)
    without = replace(second, ground_m=None)
    assert place.project(without, CAMERA, 0) != pytest.approx(found, abs=5.0)


def test_a_box_on_a_slope_reaches_further() -> None:
    terrain = _terrain(lambda e, n: 700.0 + 1.0 * n)
    pose = terrain.stand(make_pose(0, *AT, 30.0, 0.0, -90.0, 0.0))
    level = extent_on_ground(CAMERA, pose, (300.0, 100.0, 340.0, 400.0))
    slope = extent_on_ground(CAMERA, pose, (300.0, 100.0, 340.0, 400.0), terrain)
    assert level is not None
    assert slope is not None
    assert slope[1] > level[1] * 1.05


def _holed(e: np.ndarray, n: np.ndarray) -> np.ndarray:
    return np.where((n > 60.0) & (n < 130.0), math.nan, np.where(n < -400.0, math.inf, 100.0))


@pytest.mark.parametrize(
    ("yaw", "pitch", "reason"),
    [(0.0, 10.0, "horizon"), (0.0, -5.0, "horizon"), (0.0, -20.0, "void"), (180.0, -8.5, "outside")],
)
def test_why_a_ray_has_no_place(yaw: float, pitch: float, reason: str) -> None:
    for level in (False, True):
        terrain = _terrain(_holed, level=level)
        pose = terrain.stand(make_pose(0, *AT, 70.0, yaw, pitch, 0.0))
        assert pose.ground_m == pytest.approx(100.0)
        fix = ray_to_ground(CAMERA, pose, 320.0, 256.0, 1.0, terrain)
        assert dict(terrain.counts) == {reason: 1}
        assert (fix is not None) == (level and reason in ("void", "outside"))


def test_too_far_and_too_flat() -> None:
    terrain = _terrain(lambda e, n: 100.0 - 0.12 * n)
    pose = terrain.stand(make_pose(0, *AT, 100.0, 0.0, -9.0, 0.0))
    assert ray_to_ground(CAMERA, pose, 320.0, 256.0, 1.0, terrain) is None
    assert dict(terrain.counts) == {"range": 1}
    terrain = _terrain(lambda e, n: 100.0 - 0.12 * n)
    pose = terrain.stand(make_pose(0, *AT, 20.0, 0.0, -10.0, 0.0))
    assert ray_to_ground(CAMERA, pose, 320.0, 256.0, 1.0, terrain) is None
    assert dict(terrain.counts) == {"grazing": 1}


def test_over_a_void_nothing_is_placed_and_it_says_so() -> None:
    terrain = _terrain(_holed)
    pose = terrain.stand(make_pose(0, *offset(*AT, 0.0, 95.0), 50.0, 0.0, -90.0, 0.0))
    assert pose.ground_m is None
    assert "in a void of height model drawn.hgt" in terrain.problem
    assert [terrain.news(), terrain.news()] == [terrain.problem, ""]
    assert ray_to_ground(CAMERA, pose, 320.0, 256.0, 1.0, terrain) is None
    assert dict(terrain.counts) == {"void": 1}
    away = terrain.stand(make_pose(0, *offset(*AT, 0.0, -450.0), 50.0, 0.0, -90.0, 0.0))
    assert away.ground_m is None
    assert "outside of height model" in terrain.problem
    assert terrain.stand(make_pose(0, *AT, 50.0, 0.0, -90.0, 0.0)).ground_m == pytest.approx(100.0)
    assert terrain.problem == ""


def test_heights_above_home_become_heights_above_the_ground() -> None:
    drawn = Drawn(lambda e, n: 400.0 + 0.2 * n)
    terrain = Terrain(drawn, TerrainRule("drawn.hgt", 0.0, home=AT))
    terrain._home_m = 400.0
    pose = terrain.stand(make_pose(0, *offset(*AT, 0.0, 100.0), 60.0, 0.0, -90.0, 0.0))
    assert pose.height_agl_m == pytest.approx(40.0, abs=0.01)
    terrain.stand(make_pose(0, *offset(*AT, 0.0, 400.0), 60.0, 0.0, -90.0, 0.0))
    assert "20 m below the ground" in terrain.problem
    assert drawn.reads == 1, "one patch serves until the camera has flown far"


@pytest.mark.parametrize("text", ["1", "1,2,3", "a,b", "89.5,0", "0,181", "nan,0"])
def test_a_home_that_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"LAT,LON|float"):
        parse_home(text)
