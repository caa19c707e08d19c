"""From pixels to the ground and back: a camera with its lens, pose, flat earth within a kilometre.

The ground is level, or what a height model says (`terrain.py`).

Frames: camera forward-right-down (FRD), north-east-down (NED), and metres east and north about an origin (ENU). No fix,
no pose, a ray near the horizon: then there is no position, never a wrong one.
"""

import math
from dataclasses import dataclass
from typing import Protocol

from swarmd_models.geo.lens import Distortion
from swarmd_models.types import GroundPosition, Pose

SEMI_MAJOR_M = 6_378_137.0
"""Equatorial radius, metres (WGS 84, NGA.STND.0036)."""
ECCENTRICITY2 = 6.694379990141316e-3
"""WGS 84."""
MIN_DEPRESSION_RAD = math.radians(8.0)
"""A ray flatter than this hits the ground somewhere; nobody knows where."""
MAX_RANGE_M = 1000.0
"""Further out the flat earth is off by more than a decimetre, and an attitude error by tens of metres."""

_SHAPE_SHARE = 0.01
"""By which width ÷ height may differ where one picture is another scaled: sides are whole numbers, often of 16."""

Quaternion = tuple[float, float, float, float]
Vector = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Intrinsics:
    """A pinhole camera, with what its lens does to points; pixels."""

    fx: float
    fy: float
    cx: float
    cy: float
    width: int
    height: int
    distortion: Distortion | None = None

    @classmethod
    def from_hfov(cls, hfov_deg: float, width: int, height: int) -> "Intrinsics":
        """Square pixels, the axis through the middle.

        >>> round(Intrinsics.from_hfov(90.0, 640, 512).fx)
        320
        """
        if not 1.0 <= hfov_deg <= 170.0:
            raise ValueError(f"a horizontal field of view of {hfov_deg:g} degrees; 1 to 170 can be used")
        focal = width / 2 / math.tan(math.radians(hfov_deg) / 2)
        return cls(focal, focal, width / 2, height / 2, width, height)

    def scaled_to(self, width: int, height: int) -> "Intrinsics":
        """The same camera read out at another size."""
        if (width, height) == (self.width, self.height):
            return self
        x, y = width / self.width, height / self.height
        return Intrinsics(self.fx * x, self.fy * y, self.cx * x, self.cy * y, width, height, self.distortion)

    def fits(self, width: int, height: int) -> bool:
        """Whether frames of a size show the same picture, scaled; another shape is cut out of it, who knows where."""
        return abs(width * self.height - height * self.width) <= _SHAPE_SHARE * height * self.width

    def ray(self, u: float, v: float) -> tuple[float, float] | None:
        """How far right and down of the axis a pixel's ray points, at distance 1; None where the lens shows nothing."""
        x, y = (u - self.cx) / self.fx, (v - self.cy) / self.fy
        return (x, y) if self.distortion is None else self.distortion.undo(x, y)

    def pixel(self, x: float, y: float) -> tuple[float, float] | None:
        """The pixel that such a ray lands on, also outside of the frame; None where the lens does not reach."""
        bent = (x, y) if self.distortion is None else self.distortion.bend(x, y)
        return None if bent is None else (self.cx + self.fx * bent[0], self.cy + self.fy * bent[1])


def quaternion_from_euler(yaw_rad: float, pitch_rad: float, roll_rad: float) -> Quaternion:
    """Quaternion (w, x, y, z) from FRD to NED for yaw, then pitch, then roll; pitch -90 degrees looks down."""
    cy, sy = math.cos(yaw_rad / 2), math.sin(yaw_rad / 2)
    cp, sp = math.cos(pitch_rad / 2), math.sin(pitch_rad / 2)
    cr, sr = math.cos(roll_rad / 2), math.sin(roll_rad / 2)
    return (
        cr * cp * cy + sr * sp * sy,
        sr * cp * cy - cr * sp * sy,
        cr * sp * cy + sr * cp * sy,
        cr * cp * sy - sr * sp * cy,
    )


def multiply(a: Quaternion, b: Quaternion) -> Quaternion:
    """The rotation `b`, then `a`."""
    aw, ax, ay, az = a
    bw, bx, by, bz = b
    return (
        aw * bw - ax * bx - ay * by - az * bz,
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
    )


def rotate(q: Quaternion, v: Vector) -> Vector:
    """The vector, rotated by a unit quaternion."""
    w, x, y, z = q
    vx, vy, vz = v
    # v + 2w (u x v) + 2 u x (u x v), the usual expansion.
    tx, ty, tz = 2 * (y * vz - z * vy), 2 * (z * vx - x * vz), 2 * (x * vy - y * vx)
    return (vx + w * tx + y * tz - z * ty, vy + w * ty + z * tx - x * tz, vz + w * tz + x * ty - y * tx)


def radii_m(latitude_deg: float) -> tuple[float, float]:
    """Radii of curvature (meridian, prime vertical) at a latitude."""
    s2 = math.sin(math.radians(latitude_deg)) ** 2
    root = math.sqrt(1 - ECCENTRICITY2 * s2)
    return SEMI_MAJOR_M * (1 - ECCENTRICITY2) / root**3, SEMI_MAJOR_M / root


def offset(latitude_deg: float, longitude_deg: float, east_m: float, north_m: float) -> tuple[float, float]:
    """The point so many metres east and north of another; (latitude, longitude) in degrees."""
    meridian, vertical = radii_m(latitude_deg)
    latitude = latitude_deg + math.degrees(north_m / meridian)
    longitude = longitude_deg + math.degrees(east_m / (vertical * max(math.cos(math.radians(latitude_deg)), 1e-6)))
    return latitude, (longitude + 180.0) % 360.0 - 180.0


def enu_m(latitude_deg: float, longitude_deg: float, origin: tuple[float, float]) -> tuple[float, float]:
    """Metres (east, north) of a point about an origin (latitude, longitude); the inverse of `offset`."""
    meridian, vertical = radii_m(origin[0])
    around = (longitude_deg - origin[1] + 180.0) % 360.0 - 180.0
    east = math.radians(around) * vertical * max(math.cos(math.radians(origin[0])), 1e-6)
    return east, math.radians(latitude_deg - origin[0]) * meridian


@dataclass(frozen=True, slots=True)
class GroundFix:
    """Where a ray meets the ground, relative to the point below the camera, with its kinds of error: (ee, en, nn)."""

    east_m: float
    north_m: float
    pixel_m2: tuple[float, float, float]
    """Differs from frame to frame: averaging helps."""
    attitude_m2: tuple[float, float, float]
    """Part of it differs and part stays (how the camera is mounted); nothing says how much of it."""
    bias_m2: tuple[float, float, float]
    """Stays through a pass (position, height): averaging does not help."""
    ground_m: float | None = None
    """Height of the ground there, as the height model counts; None on level ground."""

    @property
    def covariance_m2(self) -> tuple[float, float, float]:
        """All together."""
        ee, en, nn = map(sum, zip(self.pixel_m2, self.attitude_m2, self.bias_m2, strict=True))
        return ee, en, nn


def is_usable(pose: Pose | None) -> bool:
    """Whether a pose may place anything: it has a fix, is finite, and stands above the ground."""
    if pose is None or not pose.has_fix:
        return False
    numbers = (pose.latitude_deg, pose.longitude_deg, pose.height_agl_m, *pose.camera_to_ned)
    if not all(math.isfinite(n) for n in numbers):
        return False
    norm = sum(n * n for n in pose.camera_to_ned)
    return 0.0 < pose.height_agl_m < 10_000.0 and abs(pose.latitude_deg) < 89.0 and abs(norm - 1.0) < 1e-2


@dataclass(frozen=True, slots=True)
class Meet:
    """Where a ray meets the ground."""

    distance: float
    """In lengths of the ray."""
    slope: tuple[float, float] = (0.0, 0.0)
    """How the ground rises there to the north and to the east."""
    slope_below: tuple[float, float] = (0.0, 0.0)
    """Likewise below the camera."""
    ground_m: float | None = None
    """Height of the ground there, as the height model counts."""


class Ground(Protocol):
    """What rays meet."""

    @property
    def sigma_m(self) -> float:
        """Standard deviation, metres, of its height where a ray ends, as against that below the camera."""
        ...

    def meet(self, pose: Pose, ray: Vector) -> Meet | None:
        """Where a ray (north, east, down) from a usable pose meets it; None near and above the horizon."""
        ...


class Level:
    """Ground that is level, as high as below the camera."""

    sigma_m = 0.0

    def meet(self, pose: Pose, ray: Vector) -> Meet | None:
        """None also beyond `MAX_RANGE_M`."""
        height_m = pose.height_agl_m
        length = math.sqrt(ray[0] ** 2 + ray[1] ** 2 + ray[2] ** 2)
        if ray[2] < math.sin(MIN_DEPRESSION_RAD) * length or height_m * length / ray[2] > MAX_RANGE_M:
            return None
        return Meet(height_m / ray[2], ground_m=pose.ground_m)


LEVEL = Level()


def ray_to_ground(
    intrinsics: Intrinsics, pose: Pose, u: float, v: float, pixel_sigma: float = 1.0, ground: Ground = LEVEL
) -> GroundFix | None:
    """Meet of the ray through a pixel with the ground; None near and above the horizon.

    Args:
        intrinsics: Of the frame in which `u` and `v` are pixels.
        pose: Must be usable.
        u: Pixel, to the right.
        v: Pixel, downwards.
        pixel_sigma: How well the pixel is known.
        ground: What it meets.

    Source:
        Covariance by first-order propagation: the Jacobian of the meet with the ground's tangent plane by attitude
        (small rotations about the three NED axes), height, position and pixel.
    """
    q = pose.camera_to_ned
    looked = intrinsics.ray(u, v)
    if looked is None:
        return None
    ray = rotate(q, (1.0, *looked))
    meet = ground.meet(pose, ray)
    if meet is None:
        return None
    attitude, pixel = pose.attitude_sigma_rad, pixel_sigma
    # A small rotation w about NED moves the ray by w x ray; a moved ray (dn, de, dd) moves the meet by these.
    turned = ((0.0, -ray[2], ray[1]), (ray[2], 0.0, -ray[0]), (-ray[1], ray[0], 0.0))
    turning = _sum_squares([(_shift(ray, meet, d), attitude) for d in turned])
    beside = [rotate(q, (0.0, *step)) for step in _per_pixel(intrinsics, u, v, looked)]
    pointing = _sum_squares([(_shift(ray, meet, d), pixel) for d in beside])
    fall = _fall(ray, meet)
    # A camera or a ground that is higher or lower moves the meet along the ray; so does a camera elsewhere, where the
    # ground below it slopes otherwise than where the ray ends.
    north_off, east_off = ((below - there) / fall for below, there in zip(meet.slope_below, meet.slope, strict=True))
    tilt = ((ray[1] / fall, ray[0] / fall), math.hypot(pose.height_sigma_m, ground.sigma_m))
    eastward = ((1.0 + ray[1] * east_off, ray[0] * east_off), pose.position_sigma_m)
    northward = ((ray[1] * north_off, 1.0 + ray[0] * north_off), pose.position_sigma_m)
    bias = _sum_squares([tilt, eastward, northward])
    return GroundFix(meet.distance * ray[1], meet.distance * ray[0], pointing, turning, bias, meet.ground_m)


def _per_pixel(intrinsics: Intrinsics, u: float, v: float, looked: tuple[float, float]) -> list[tuple[float, float]]:
    """How far a ray moves right and down, at distance 1, for a pixel to the right, and for one down."""
    straight = [(1 / intrinsics.fx, 0.0), (0.0, 1 / intrinsics.fy)]
    if intrinsics.distortion is None:
        return straight
    beside = (intrinsics.ray(u + 1.0, v), intrinsics.ray(u, v + 1.0))
    return [
        plain if ray is None else (ray[0] - looked[0], ray[1] - looked[1])
        for plain, ray in zip(straight, beside, strict=True)
    ]


def extent_on_ground(
    intrinsics: Intrinsics, pose: Pose, box: tuple[float, float, float, float], ground: Ground = LEVEL
) -> tuple[float, float] | None:
    """How far a box reaches on the ground.

    Args:
        intrinsics: Of the frame in which the box is pixels.
        pose: Must be usable.
        box: (left, top, right, bottom), pixels.
        ground: On which it stands.

    Returns:
        Metres from its westernmost to its easternmost corner, and from south to north; None where a corner is near or
        above the horizon. Of something upright it is what the thing hides, which is more than it covers.
    """
    x1, y1, x2, y2 = box
    meets = []
    for u, v in ((x1, y1), (x2, y1), (x2, y2), (x1, y2)):
        looked = intrinsics.ray(u, v)
        ray = None if looked is None else rotate(pose.camera_to_ned, (1.0, *looked))
        meet = None if ray is None else ground.meet(pose, ray)
        if ray is None or meet is None:
            return None
        meets.append((meet.distance * ray[0], meet.distance * ray[1]))
    norths, easts = zip(*meets, strict=True)
    return max(easts) - min(easts), max(norths) - min(norths)


def pixel_to_ground(
    intrinsics: Intrinsics, pose: Pose | None, u: float, v: float, pixel_sigma: float = 1.0, ground: Ground = LEVEL
) -> GroundPosition | None:
    """The place on the ground that a pixel shows; None without a usable pose, and near the horizon."""
    if pose is None or not is_usable(pose):
        return None
    fix = ray_to_ground(intrinsics, pose, u, v, pixel_sigma, ground)
    if fix is None:
        return None
    latitude, longitude = offset(pose.latitude_deg, pose.longitude_deg, fix.east_m, fix.north_m)
    return GroundPosition(latitude, longitude, fix.covariance_m2)


def ground_to_pixel(
    intrinsics: Intrinsics, pose: Pose, latitude_deg: float, longitude_deg: float
) -> tuple[float, float] | None:
    """The pixel that shows a place on level ground, also outside of the frame; None behind camera and lens."""
    east, north = enu_m(latitude_deg, longitude_deg, (pose.latitude_deg, pose.longitude_deg))
    return enu_to_pixel(intrinsics, pose, east, north)


def enu_to_pixel(
    intrinsics: Intrinsics, pose: Pose, east_m: float, north_m: float, up_m: float = 0.0
) -> tuple[float, float] | None:
    """Like `ground_to_pixel`, for metres about the point below the camera, `up_m` above it."""
    w, x, y, z = pose.camera_to_ned
    forward, right, down = rotate((w, -x, -y, -z), (north_m, east_m, pose.height_agl_m - up_m))
    if forward <= 1e-6:
        return None
    return intrinsics.pixel(right / forward, down / forward)


def _fall(ray: Vector, meet: Meet) -> float:
    """How fast a ray comes down on the ground's tangent plane; above 0."""
    return ray[2] + meet.slope[0] * ray[0] + meet.slope[1] * ray[1]


def _shift(ray: Vector, meet: Meet, d: Vector) -> tuple[float, float]:
    """How (east, north) of the meet moves when the ray moves by `d`."""
    along = -meet.distance * (d[2] + meet.slope[0] * d[0] + meet.slope[1] * d[1]) / _fall(ray, meet)
    return meet.distance * d[1] + ray[1] * along, meet.distance * d[0] + ray[0] * along


def _sum_squares(moves: list[tuple[tuple[float, float], float]]) -> tuple[float, float, float]:
    ee = en = nn = 0.0
    for (east, north), sigma in moves:
        e, n = east * sigma, north * sigma
        ee, en, nn = ee + e * e, en + e * n, nn + n * n
    return ee, en, nn
