"""One thing's place on the ground, estimated over the frames that show it.

Two kinds of error are kept apart: jitter (attitude, pixel) differs from frame to frame, so the mean over the frames is
better than each; bias (the receiver's position, the height) is the same through a pass and stays, however long one
looks.
"""

from dataclasses import dataclass, replace

from swarmd_models.geo.geolocate import GroundFix, Intrinsics, enu_m, enu_to_pixel, offset, rotate
from swarmd_models.types import GroundPosition, Pose

DECORRELATION_NS = 200_000_000
"""Attitude errors of frames closer together than this are mostly the same error; averaging them proves little."""
_FLOOR_M2 = 1e-4
"""One centimetre: nothing here is known better."""
_VELOCITY_SHARE = 0.4
"""Weight of the newest measured velocity in the kept one."""
_MAX_SPEED_M_S = 60.0
"""Metres a second; nothing on the ground that we look at is faster, and a jump of the pose is."""

Covariance = tuple[float, float, float]
"""(ee, en, nn)."""


@dataclass(frozen=True, slots=True)
class Place:
    """An estimate, in metres about an origin of its own."""

    origin: tuple[float, float]
    """Latitude and longitude, degrees."""
    east_m: float
    north_m: float
    information: Covariance
    """Inverse of the jitter of the mean."""
    bias_m2: Covariance
    depth_m: float
    """Along the camera's axis when last seen."""
    seen_ns: int
    velocity_m_s: tuple[float, float] = (0.0, 0.0)
    ground_m: float | None = None
    """Height of the ground there by a height model; None: as high as below the camera."""

    def position(self) -> GroundPosition:
        """The estimate in degrees, with jitter of the mean and bias added up."""
        latitude, longitude = offset(*self.origin, self.east_m, self.north_m)
        jitter = inverse(self.information)
        total = (jitter[0] + self.bias_m2[0], jitter[1] + self.bias_m2[1], jitter[2] + self.bias_m2[2])
        return GroundPosition(latitude, longitude, total)

    def project(self, pose: Pose, intrinsics: Intrinsics, at_ns: int) -> tuple[float, float, float] | None:
        """(u, v, depth in metres) in a frame of this pose and time; None when it lies behind the camera."""
        dt = (at_ns - self.seen_ns) * 1e-9
        east, north = enu_m(pose.latitude_deg, pose.longitude_deg, self.origin)
        e, n = self.east_m + self.velocity_m_s[0] * dt - east, self.north_m + self.velocity_m_s[1] * dt - north
        up = 0.0 if self.ground_m is None or pose.ground_m is None else self.ground_m - pose.ground_m
        pixel = enu_to_pixel(intrinsics, pose, e, n, up)
        if pixel is None:
            return None
        w, x, y, z = pose.camera_to_ned
        depth = rotate((w, -x, -y, -z), (n, e, pose.height_agl_m - up))[0]
        return pixel[0], pixel[1], max(depth, 0.1)


def first_place(fix: GroundFix, pose: Pose, depth_m: float, seen_ns: int) -> Place:
    """The estimate after one frame."""
    origin = (pose.latitude_deg, pose.longitude_deg)
    information = inverse(fix.jitter_m2)
    return Place(origin, fix.east_m, fix.north_m, information, fix.bias_m2, depth_m, seen_ns, ground_m=fix.ground_m)


def refined(place: Place, fix: GroundFix, pose: Pose, depth_m: float, seen_ns: int) -> Place:
    """The estimate of a thing that stands still, after one more frame: the mean, weighted by information."""
    east, north = _about(place, fix, pose)
    # Two frames 30 ms apart share their attitude error: the second one counts for its share of the decorrelation time.
    share = min(max((seen_ns - place.seen_ns) / DECORRELATION_NS, 0.0), 1.0)
    new = inverse(fix.jitter_m2)
    added = (new[0] * share, new[1] * share, new[2] * share)
    old = place.information
    total = (old[0] + added[0], old[1] + added[1], old[2] + added[2])
    vector_e = old[0] * place.east_m + old[1] * place.north_m + added[0] * east + added[1] * north
    vector_n = old[1] * place.east_m + old[2] * place.north_m + added[1] * east + added[2] * north
    spread = inverse(total)
    return replace(
        place,
        east_m=spread[0] * vector_e + spread[1] * vector_n,
        north_m=spread[1] * vector_e + spread[2] * vector_n,
        information=total,
        bias_m2=fix.bias_m2,
        depth_m=depth_m,
        seen_ns=seen_ns,
        ground_m=place.ground_m if fix.ground_m is None else fix.ground_m,
    )


def moved(place: Place, fix: GroundFix, pose: Pose, depth_m: float, seen_ns: int) -> Place:
    """The estimate of a thing that moves: where it is now, and a smoothed velocity."""
    east, north = _about(place, fix, pose)
    dt = (seen_ns - place.seen_ns) * 1e-9
    velocity = place.velocity_m_s
    if dt > 1e-3:
        measured = ((east - place.east_m) / dt, (north - place.north_m) / dt)
        mixed = [old + _VELOCITY_SHARE * (new - old) for old, new in zip(velocity, measured, strict=True)]
        velocity = (_limited(mixed[0]), _limited(mixed[1]))
    information = inverse(fix.jitter_m2)
    return Place(place.origin, east, north, information, fix.bias_m2, depth_m, seen_ns, velocity, fix.ground_m)


def inverse(matrix: Covariance) -> Covariance:
    """Inverse of a symmetric positive 2x2 matrix, kept away from singular.

    >>> inverse((2.0, 0.0, 4.0))
    (0.5, -0.0, 0.25)
    """
    a, b, c = matrix
    determinant = a * c - b * b
    if determinant < 1e-12 * max(a * c, 1e-12):
        a, c = max(a, 1e-9) + _FLOOR_M2, max(c, 1e-9) + _FLOOR_M2
        determinant = max(a * c - b * b, 1e-12)
    return c / determinant, -b / determinant, a / determinant


def _about(place: Place, fix: GroundFix, pose: Pose) -> tuple[float, float]:
    east, north = enu_m(pose.latitude_deg, pose.longitude_deg, place.origin)
    return east + fix.east_m, north + fix.north_m


def _limited(speed: float) -> float:
    return min(max(speed, -_MAX_SPEED_M_S), _MAX_SPEED_M_S)
