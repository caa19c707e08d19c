"""One thing's place on the ground, estimated over the frames that show it.

The place is the mean over the frames, weighted by how well attitude and pixel are known in each. What it claims keeps
two kinds of error apart:

- Pixels differ from frame to frame, so the mean over the frames is better than each.
- The receiver's position, the height and the attitude may be wrong by the same through a pass: a mount that is turned
  by a degree is so in every frame, and nothing in a pose says which part of its attitude error that is. So none of
  them averages out, however long one looks, and what is claimed holds however the errors of the frames hang together
  (`Place.covariance_m2`).
"""

from dataclasses import dataclass, replace

from swarmd_models.geo.geolocate import GroundFix, Intrinsics, enu_m, enu_to_pixel, offset, rotate
from swarmd_models.types import GroundPosition, Pose

DECORRELATION_NS = 200_000_000
"""Boxes of frames closer together than this are mostly off by the same; averaging them proves little."""
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
    """Weights of the frames, added up."""
    free: Covariance
    """Weighted twice and added up: errors that differ from frame to frame."""
    shared: Covariance
    """Likewise: errors that the frames may have in common."""
    looks: float
    """Frames, each counted for its share of `DECORRELATION_NS`."""
    depth_m: float
    """Along the camera's axis when last seen."""
    seen_ns: int
    velocity_m_s: tuple[float, float] = (0.0, 0.0)
    ground_m: float | None = None
    """Height of the ground there by a height model; None: as high as below the camera."""

    def position(self) -> GroundPosition:
        """The estimate in degrees."""
        latitude, longitude = offset(*self.origin, self.east_m, self.north_m)
        return GroundPosition(latitude, longitude, self.covariance_m2)

    @property
    def covariance_m2(self) -> Covariance:
        """Of the estimate.

        Source:
            With weights W_i = P I_i, P the inverse of the sum of the I_i, an error that differs adds sum(W_i R_i W_i);
            of errors S_i that hang together in a way nobody knows n frames have at most n sum(W_i S_i W_i) (Jensen's
            inequality: a mean's square is at most the mean of the squares), and exactly S where each has the same S.
        """
        mixed = _added(self.free, _times(self.shared, self.looks))
        return _between(inverse(self.information), mixed)

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
    return Place(origin, fix.east_m, fix.north_m, *_weighed(fix), 1.0, depth_m, seen_ns, ground_m=fix.ground_m)


def refined(place: Place, fix: GroundFix, pose: Pose, depth_m: float, seen_ns: int) -> Place:
    """The estimate of a thing that stands still, after one more frame: the mean, weighted by information."""
    east, north = _about(place, fix, pose)
    # Two frames 30 ms apart share their error: the second one counts for its share of the decorrelation time.
    share = min(max((seen_ns - place.seen_ns) / DECORRELATION_NS, 0.0), 1.0)
    added, free, shared = (_times(one, share) for one in _weighed(fix))
    old = place.information
    total = _added(old, added)
    vector_e = old[0] * place.east_m + old[1] * place.north_m + added[0] * east + added[1] * north
    vector_n = old[1] * place.east_m + old[2] * place.north_m + added[1] * east + added[2] * north
    spread = inverse(total)
    return replace(
        place,
        east_m=spread[0] * vector_e + spread[1] * vector_n,
        north_m=spread[1] * vector_e + spread[2] * vector_n,
        information=total,
        free=_added(place.free, free),
        shared=_added(place.shared, shared),
        looks=place.looks + share,
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
    return Place(place.origin, east, north, *_weighed(fix), 1.0, depth_m, seen_ns, velocity, fix.ground_m)


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


def _weighed(fix: GroundFix) -> tuple[Covariance, Covariance, Covariance]:
    """A frame's weight, and its free and its shared error weighted twice."""
    weight = inverse(_added(fix.pixel_m2, fix.attitude_m2))
    return weight, _between(weight, fix.pixel_m2), _between(weight, _added(fix.attitude_m2, fix.bias_m2))


def _between(outer: Covariance, inner: Covariance) -> Covariance:
    """outer · inner · outer, of symmetric 2x2 matrices."""
    a, b, c = outer
    d, e, f = inner
    ad, ae, bd, be = a * d + b * e, a * e + b * f, b * d + c * e, b * e + c * f
    return ad * a + ae * b, ad * b + ae * c, bd * b + be * c


def _added(one: Covariance, other: Covariance) -> Covariance:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def _times(matrix: Covariance, factor: float) -> Covariance:
    return matrix[0] * factor, matrix[1] * factor, matrix[2] * factor


def _about(place: Place, fix: GroundFix, pose: Pose) -> tuple[float, float]:
    east, north = enu_m(pose.latitude_deg, pose.longitude_deg, place.origin)
    return east + fix.east_m, north + fix.north_m


def _limited(speed: float) -> float:
    return min(max(speed, -_MAX_SPEED_M_S), _MAX_SPEED_M_S)
