"""WGS84 to centimetres east and north of the mission origin, and back.

The plane touches the ellipsoid at the origin; heights are taken as the origin's. Exact ellipsoid geometry, no
approximation by degrees, so two nodes kilometres apart agree to a millimetre.

Source:
    WGS 84 (NIMA TR8350.2): a = 6,378,137 m, f = 1/298.257223563; local tangent plane as in any geodesy text.
"""

import functools
import math
from dataclasses import dataclass

_A_M = 6_378_137.0
"""Equatorial radius, metres (WGS 84, NGA.STND.0036)."""
_F = 1 / 298.257223563
"""Flattening (WGS 84)."""
_E2 = _F * (2 - _F)
"""First eccentricity squared."""
_CLOSE_M = 1e-6
"""Metres at which the inverse projection has converged: far below the centimetre that is shared."""

Vector = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Plane:
    """The east-north plane about one origin."""

    latitude_deg: float
    longitude_deg: float

    def to_cm(self, latitude_deg: float, longitude_deg: float) -> tuple[int, int]:
        """(east, north) in centimetres.

        >>> Plane(-18.8856864, -70.1124341).to_cm(-18.8856864, -70.1124341)
        (0, 0)
        >>> Plane(0.0, 0.0).to_cm(0.001, 0.002)
        (22264, 11057)
        """
        east, north = self.to_m(latitude_deg, longitude_deg)
        return round(east * 100), round(north * 100)

    def to_m(self, latitude_deg: float, longitude_deg: float) -> tuple[float, float]:
        """(east, north) in metres."""
        (x0, y0, z0), sin_lat, cos_lat, sin_lon, cos_lon = _axes(self.latitude_deg, self.longitude_deg)
        x, y, z = _ecef(math.radians(latitude_deg), math.radians(longitude_deg))
        dx, dy, dz = x - x0, y - y0, z - z0
        east = -sin_lon * dx + cos_lon * dy
        north = -sin_lat * (cos_lon * dx + sin_lon * dy) + cos_lat * dz
        return east, north

    def to_wgs84(self, east_m: float, north_m: float) -> tuple[float, float]:
        """(latitude, longitude) in degrees of a point of the plane, by Newton steps on `to_m`."""
        lat = math.radians(self.latitude_deg)
        root = math.sqrt(1 - _E2 * math.sin(lat) ** 2)
        meridian_m = _A_M * (1 - _E2) / root**3
        normal_m = _A_M / root * max(math.cos(lat), 1e-9)
        latitude, longitude = self.latitude_deg, self.longitude_deg
        for _ in range(6):
            east, north = self.to_m(latitude, longitude)
            if abs(east_m - east) < _CLOSE_M and abs(north_m - north) < _CLOSE_M:
                break
            latitude += math.degrees((north_m - north) / meridian_m)
            longitude += math.degrees((east_m - east) / normal_m)
        return latitude, longitude


def wgs84_to_enu_cm(
    latitude_deg: float, longitude_deg: float, origin_latitude_deg: float, origin_longitude_deg: float
) -> tuple[int, int]:
    """(east, north) in centimetres of a place about an origin."""
    return Plane(origin_latitude_deg, origin_longitude_deg).to_cm(latitude_deg, longitude_deg)


def enu_cm_to_wgs84(
    east_cm: int, north_cm: int, origin_latitude_deg: float, origin_longitude_deg: float
) -> tuple[float, float]:
    """(latitude, longitude) in degrees of a point of the plane about an origin."""
    return Plane(origin_latitude_deg, origin_longitude_deg).to_wgs84(east_cm / 100, north_cm / 100)


def ecef_m(latitude_deg: float, longitude_deg: float) -> Vector:
    """A place on the WGS 84 ellipsoid, metres from the centre of the Earth.

    >>> [round(one) for one in ecef_m(0.0, 90.0)]
    [0, 6378137, 0]
    """
    return _ecef(math.radians(latitude_deg), math.radians(longitude_deg))


@functools.lru_cache(maxsize=64)
def _axes(latitude_deg: float, longitude_deg: float) -> tuple[Vector, float, float, float, float]:
    """An origin on the ellipsoid, and the sines and cosines of its latitude and longitude: asked for at every point."""
    lat, lon = math.radians(latitude_deg), math.radians(longitude_deg)
    return _ecef(lat, lon), math.sin(lat), math.cos(lat), math.sin(lon), math.cos(lon)


def _ecef(lat_rad: float, lon_rad: float) -> Vector:
    normal = _A_M / math.sqrt(1 - _E2 * math.sin(lat_rad) ** 2)
    return (
        normal * math.cos(lat_rad) * math.cos(lon_rad),
        normal * math.cos(lat_rad) * math.sin(lon_rad),
        normal * (1 - _E2) * math.sin(lat_rad),
    )
