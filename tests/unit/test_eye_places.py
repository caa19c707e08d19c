"""What a place claims after many looks, beside truths: errors drawn as poses claim them, constant ones among them.

Each flight has one thing, drones that look at it, and errors of its own; what is counted is how many truths lie inside
the ellipse of 95 %. Errors that stay are the trial's cases: nothing in a pose says which part of its attitude error
does.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from swarmd_models.geo import place as places
from swarmd_models.geo.geolocate import Intrinsics, enu_m, enu_to_pixel, multiply, offset, ray_to_ground
from swarmd_models.geo.poses import make_pose
from swarmd_models.types import Pose
from swarmd_protocols.state.dedup.gate import fuse

CAMERA = Intrinsics.from_hfov(60.0, 640, 512)
AT = (47.0, 8.0)
CHI2_95 = 5.991
"""Squared Mahalanobis distance inside which 95 % lie, two dimensions."""
FLIGHTS = 400
LEAST = 0.95 - 3 * math.sqrt(0.95 * 0.05 / FLIGHTS)
"""What 0.95 may give in so many flights."""

Errors = Callable[[random.Random, float], float]
"""Of one standard deviation; called once a frame with the time in seconds."""


@dataclass(frozen=True)
class Trial:
    """What drones claim of their errors and which of them stay."""

    position_m: float = 0.02
    height_m: float = 0.03
    attitude_rad: float = math.radians(1.0)
    is_mount_off: bool = True
    """The attitude error is that of the mount; else each frame has its own."""
    drones: int = 1
    path: str = "over"
    floats: bool = False
    """The receiver starts without its corrections."""


TRIALS = {
    "RTK, mount off": Trial(),
    "RTK, mount off, oblique": Trial(path="oblique"),
    "RTK, mount off, in a circle": Trial(path="circle"),
    "RTK that starts without corrections, mount off": Trial(floats=True),
    "RTK, attitude differs": Trial(is_mount_off=False),
    "GNSS": Trial(1.5, 2.0, is_mount_off=False),
    "GNSS, mount off": Trial(1.5, 2.0),
    "GNSS, mount off, oblique": Trial(1.5, 2.0, path="oblique"),
    "three drones, RTK, mounts off": Trial(drones=3),
    "three drones, GNSS, mounts off": Trial(1.5, 2.0, drones=3),
}


def _path(kind: str, rng: random.Random) -> list[tuple[float, float, float, float]]:
    """(east, north, yaw, pitch) of the camera, five times a second, about a thing near the middle."""
    side = rng.uniform(-8.0, 8.0)
    if kind == "circle":
        around = [math.tau * step / 40 for step in range(40)]
        return [(20 * math.sin(a), 20 * math.cos(a), math.degrees(a) + 180.0, -56.0) for a in around]
    start, pitch = (-48.0, -50.0) if kind == "oblique" else (-16.0, -88.0)
    return [(side, start + 2.4 * step, 0.0, pitch) for step in range(24)]


def _flown(trial: Trial, rng: random.Random) -> tuple[float, float, tuple[float, float, float]] | None:
    """One drone's place of the thing at (0, 0): metres and covariance."""
    mount = [rng.gauss(0.0, 1.0) for _ in range(3)]
    off = [rng.gauss(0.0, 1.0) for _ in range(3)]
    found: places.Place | None = None
    for step, (east, north, yaw, pitch) in enumerate(_path(trial.path, rng)):
        is_float = trial.floats and step < 6
        sigma = 1.0 if is_float else trial.position_m
        truth = make_pose(step, *offset(*AT, east, north), 30.0, yaw, pitch, 0.0)
        pixel = enu_to_pixel(CAMERA, truth, -east, -north)
        if pixel is None or not (0 < pixel[0] < CAMERA.width and 0 < pixel[1] < CAMERA.height):
            continue
        turn = mount if trial.is_mount_off else [rng.gauss(0.0, 1.0) for _ in range(3)]
        half = [0.5 * trial.attitude_rad * angle for angle in turn]
        claimed = _claimed(truth, trial, sigma, off, half)
        fix = ray_to_ground(CAMERA, claimed, pixel[0] + rng.gauss(0.0, 1.5), pixel[1] + rng.gauss(0.0, 1.5), 1.5)
        if fix is None:
            continue
        at_ns = step * 200_000_000
        follow = places.refined if found is not None else lambda _, *one: places.first_place(*one)
        found = follow(found, fix, claimed, 30.0, at_ns)  # type: ignore[arg-type]
    if found is None:
        return None
    position = found.position()
    return *enu_m(position.latitude_deg, position.longitude_deg, AT), position.covariance_m2


def _claimed(truth: Pose, trial: Trial, sigma_m: float, off: list[float], half: list[float]) -> Pose:
    latitude, longitude = offset(truth.latitude_deg, truth.longitude_deg, sigma_m * off[0], sigma_m * off[1])
    turned = multiply(truth.camera_to_ned, (math.sqrt(1.0 - sum(h * h for h in half)), *half))
    return replace(
        truth, latitude_deg=latitude, longitude_deg=longitude, height_agl_m=30.0 + trial.height_m * off[2],
        camera_to_ned=turned, position_sigma_m=sigma_m, height_sigma_m=trial.height_m,
        attitude_sigma_rad=trial.attitude_rad,
    )  # fmt: skip


def inside(trial: Trial, flights: int = FLIGHTS) -> float:
    """Share of truths inside the ellipse of 95 %, after the drones' places were joined as the swarm joins them."""
    rng = random.Random(18)
    hits = seen = 0
    while seen < flights:
        flown = [_flown(trial, rng) for _ in range(trial.drones)]
        # Tenths of millimetres instead of centimetres: what is judged is the claim, not its rounding.
        scaled = [(round(e * 1e4), round(n * 1e4), _scaled(cov)) for e, n, cov in filter(None, flown)]
        if not scaled:
            continue
        east, north, (ee, en, nn) = fuse(scaled, 0)
        hits += (nn * east * east - 2 * en * east * north + ee * north * north) / (ee * nn - en * en) < CHI2_95
        seen += 1
    return hits / seen


def _scaled(covariance: tuple[float, float, float]) -> tuple[int, int, int]:
    ee, en, nn = (round(value * 1e8) for value in covariance)
    return ee, en, nn


@pytest.mark.parametrize("name", TRIALS)
def test_truths_lie_inside_the_ellipse_that_is_claimed(name: str) -> None:
    assert LEAST <= inside(TRIALS[name]) <= 1.0, name


def test_looks_that_differ_still_narrow_a_place() -> None:
    """Forty looks at 1.5 pixels with nothing else off: the claim is that of their mean, not of one look."""
    exact = Trial(1e-4, 1e-4, 1e-6, path="circle")
    assert inside(exact) >= LEAST
    one = _flown(exact, random.Random(1))
    pose = make_pose(0, *offset(*AT, 0.0, 20.0), 30.0, 180.0, -56.0, 0.0)
    single = ray_to_ground(CAMERA, replace(pose, attitude_sigma_rad=1e-6), CAMERA.cx, CAMERA.cy, 1.5)
    assert one is not None
    assert single is not None
    pixels = single.pixel_m2[0] + single.pixel_m2[2]
    assert one[2][0] + one[2][2] < pixels / 20
