"""What operators have said of things, held against what a kept frame shows: labels for training, out of reviews.

The frames lie on the device and reviews in the swarm; what joins them is the place on the ground. A detection is of a
reviewed thing where it bears the label that the detectors gave the thing, and its place passes the gate by which the
swarm itself takes two sightings for one (docs/protocols/dedup.md).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from swarmd_models.errors import SourceError

RADIUS_M = 5.0
GATE = 16.0
"""Squared Mahalanobis distance: 1 true pair in 3,000 is missed. Source: chi-square of two degrees of freedom."""
FLOOR_M2 = 0.05**2
"""Added to each variance: the least error that anybody is believed."""
_FAR = 1e12
"""Beyond any angle in degrees or variance in m²."""
METRES_A_DEGREE = 111_320.0
"""Of latitude, to half a per cent, which is 2 cm within `RADIUS_M`."""
_AGREED = ("confirmed", "relabelled", "rejected")


@dataclass(frozen=True, slots=True)
class Reviewed:
    """One thing on which operators agree."""

    id: str
    label: str
    """What they say it is."""
    detected: str
    """What the detectors say it is."""
    is_rejected: bool
    operators: tuple[str, ...]
    latitude_deg: float
    longitude_deg: float
    covariance_m2: tuple[float, float, float]
    """(east-east, east-north, north-north)."""


def reviewed_of(document: object) -> list[Reviewed]:
    """Read the objects that `swarmd objects --geojson` and the ground view's export write.

    Things without a place, without a verdict, and disputed ones are passed over.

    Raises:
        SourceError: It is no such document.
    """
    features = document.get("features") if isinstance(document, dict) else None
    if not isinstance(features, list):
        raise SourceError("no GeoJSON of objects; write it with: swarmd objects --geojson > objects.geojson")
    try:
        return [_reviewed(one) for one in features if one["geometry"] and one["properties"].get("review") in _AGREED]
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise SourceError(f"no GeoJSON of objects: {error!r}") from error


def _reviewed(feature: Mapping[str, Any]) -> Reviewed:
    told = feature["properties"]
    longitude, latitude = (float(value) for value in feature["geometry"]["coordinates"][:2])
    ee, en, nn = (float(value) for value in told["covariance_m2"] or (1.0, 0.0, 1.0))
    by = sorted(
        {str(said["operator"]) for said in told["reviews"] if said["verdict"] in ("confirm", "reject", "relabel")}
    )
    label = str(told["label"])
    detected = str(told.get("detected") or label)
    rejected = told["review"] == "rejected"
    return Reviewed(str(told["id"]), label, detected, rejected, tuple(by), latitude, longitude, (ee, en, nn))


def is_placed(found: Mapping[str, Any]) -> bool:
    """Whether what a file says of a detection's place can be reckoned with."""
    covariance = found.get("covariance_m2")
    values = [
        found.get("latitude_deg"),
        found.get("longitude_deg"),
        *(covariance if isinstance(covariance, list | tuple) else ()),
    ]
    return len(values) == 5 and all(isinstance(one, int | float) and abs(one) < _FAR for one in values)


class ReviewIndex:
    """What was reviewed, by label and by squares of ground: a detection is held against what lies about it alone."""

    def __init__(self, reviewed: Iterable[Reviewed]) -> None:
        """Sort everything in; what has no place on earth is passed over."""
        self._squares: dict[tuple[str, int, int], list[Reviewed]] = {}
        for one in reviewed:
            if not (abs(one.latitude_deg) <= _FAR and abs(one.longitude_deg) <= _FAR):
                continue
            band = _band(one.latitude_deg)
            column = math.floor(one.longitude_deg / _width_deg(band))
            self._squares.setdefault((one.detected, band, column), []).append(one)

    def near(self, label: str, latitude_deg: float, longitude_deg: float) -> list[Reviewed]:
        """Those of a label in the squares about a place: all within `RADIUS_M`, and some beyond."""
        found: list[Reviewed] = []
        middle = _band(latitude_deg)
        for band in (middle - 1, middle, middle + 1):
            column = math.floor(longitude_deg / _width_deg(band))
            for beside in (column - 1, column, column + 1):
                found += self._squares.get((label, band, beside), ())
        return found


def _band(latitude_deg: float) -> int:
    """Which strip of ground, `RADIUS_M` high, from the equator."""
    return math.floor(latitude_deg * METRES_A_DEGREE / RADIUS_M)


def _width_deg(band: int) -> float:
    """Degrees of longitude that are at least `RADIUS_M` anywhere in a strip: as at its edge towards the pole."""
    edge = max(abs(band), abs(band + 1)) * RADIUS_M / METRES_A_DEGREE
    return RADIUS_M / METRES_A_DEGREE / max(math.cos(math.radians(min(edge, 90.0))), 1e-9)


def review_of(found: Mapping[str, Any], reviewed: ReviewIndex) -> Reviewed | None:
    """What operators say of a detection of a kept frame; of several things that it may be, of the nearest.

    One that a file tells twice, and differently, is as good as disputed: None.
    """
    if "latitude_deg" not in found or not isinstance(found["label"], str):
        return None
    about = reviewed.near(found["label"], float(found["latitude_deg"]), float(found["longitude_deg"]))
    near = [(_distance(found, one), one.id, one) for one in about]
    passing = [item for item in near if item[0] <= GATE]
    if not passing:
        return None
    nearest = min(passing, key=lambda item: item[:2])
    verdicts = {(one.label, one.is_rejected) for *place, one in passing if (*place,) == nearest[:2]}
    return nearest[2] if len(verdicts) == 1 else None


def _distance(found: Mapping[str, Any], one: Reviewed) -> float:
    """Squared Mahalanobis distance under both covariances; infinite beyond `RADIUS_M`."""
    north = (float(found["latitude_deg"]) - one.latitude_deg) * METRES_A_DEGREE
    east = (
        (float(found["longitude_deg"]) - one.longitude_deg) * METRES_A_DEGREE * math.cos(math.radians(one.latitude_deg))
    )
    if east * east + north * north > RADIUS_M**2:
        return math.inf
    a, b = found["covariance_m2"], one.covariance_m2
    ee, en, nn = a[0] + b[0] + 2 * FLOOR_M2, a[1] + b[1], a[2] + b[2] + 2 * FLOOR_M2
    determinant = ee * nn - en * en
    if determinant <= 0:
        return math.inf
    return float((nn * east * east - 2 * en * east * north + ee * north * north) / determinant)


def overlap(a: Sequence[float], b: Sequence[float]) -> float:
    """Intersection over union of two boxes (x1, y1, x2, y2).

    >>> overlap((0, 0, 2, 2), (1, 0, 3, 2))
    0.3333333333333333
    """
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    both = width * height
    return both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both)
