"""Which asset (panel, tree, pole) a position belongs to, when the position's uncertainty allows an answer at all.

Assets are rectangles with sides east and north, read from CSV or GeoJSON. `asset_of` weighs every asset near the
position by the probability that the true position lies on it, under a Gaussian with the detection's covariance, and
names the best one only when its share is large enough: a wrong name would merge two true things for good, while no
name leaves it to the distance rule.
"""

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swarmd_models.errors import SiteError
from swarmd_models.geo.positions import Plane

FILE_MAX_BYTES = 64 << 20
"""Of a map, packed or not; the largest plant that we have has 24,257 modules in 1 MB."""
ASSETS_MAX = 500_000
"""Assets of a map: twenty such plants."""
_CELL_M = 8.0
"""Side of a cell of the search grid, metres; about three modules."""
_SIGMAS = 3.0
"""Standard deviations within which an asset can be meant: 99 % of two-dimensional errors."""
_GRID = 5
"""Points a side at which an asset's rectangle is sampled."""
_MIN_SIGMA_M = 0.05
"""Metres; no position is believed to be better, and no covariance is singular."""
_NAMES = (("asset",), ("zone", "table", "panel"), ("panel",), ("id",))
"""Columns that together name an asset; the first set that a file has is taken."""


@dataclass(frozen=True, slots=True)
class Asset:
    """One rectangle of the map, metres about the mission origin."""

    asset: str
    east_m: float
    north_m: float
    width_m: float
    depth_m: float


class SiteMap:
    """All assets, indexed by place."""

    def __init__(self, assets: Sequence[Asset]) -> None:
        """Index them on a grid of 8 m."""
        self.assets = tuple(assets)
        self._index: dict[tuple[int, int], list[Asset]] = {}
        self._reach_m = max((math.hypot(a.width_m, a.depth_m) / 2 for a in assets), default=0.0)
        for asset in assets:
            self._index.setdefault(_cell(asset.east_m, asset.north_m), []).append(asset)

    def asset_of(
        self, east_m: float, north_m: float, covariance_m2: tuple[float, float, float], least_probability: float
    ) -> str:
        """The asset at a position.

        Args:
            east_m: Metres east of the mission origin.
            north_m: Metres north of it.
            covariance_m2: (east-east, east-north, north-north), square metres.
            least_probability: 0..1, share of the probability that the best asset must hold among the assets near.

        Returns:
            Its id, or "" where none is near or none is sure enough.
        """
        inverse, sigma_m = _inverse(covariance_m2)
        weights = [
            (_mass(asset, east_m, north_m, inverse), asset.asset)
            for asset in self._near(east_m, north_m, _SIGMAS * sigma_m + self._reach_m)
        ]
        total = sum(weight for weight, _ in weights)
        if total <= 0.0:
            return ""
        best, name = max(weights)
        return name if best / total >= least_probability else ""

    def is_near(self, east_m: float, north_m: float, covariance_m2: tuple[float, float, float]) -> bool:
        """Whether any asset lies within three standard deviations of a position."""
        _, sigma_m = _inverse(covariance_m2)
        return bool(self._near(east_m, north_m, _SIGMAS * sigma_m + self._reach_m))

    def _near(self, east_m: float, north_m: float, radius_m: float) -> list[Asset]:
        span = min(int(radius_m / _CELL_M) + 1, 8)
        column, row = _cell(east_m, north_m)
        return [
            asset
            for i in range(column - span, column + span + 1)
            for j in range(row - span, row + span + 1)
            for asset in self._index.get((i, j), ())
            if math.hypot(asset.east_m - east_m, asset.north_m - north_m) <= radius_m
        ]


def load_site_map(path: Path, plane: Plane | None) -> SiteMap:
    """Read a map from `.csv` (also `.csv.gz`) or `.geojson`/`.json`.

    CSV columns: `asset` (or `zone,table,panel`, or `id`), and `east_m,north_m` or `latitude_deg,longitude_deg` (or
    `lat,lon`), optional `width_m,depth_m` (or `height_m`). GeoJSON: points or polygons with `properties.asset` (or
    `id`).

    Args:
        path: The file.
        plane: The mission plane; needed where the file has degrees. With degrees in the file they win, since metres
            in a file may be about another origin.

    Raises:
        SiteError: Names the file, the line and the remedy.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise SiteError(f"{path}: the site map cannot be read: {error.strerror}") from error
    if len(raw) > FILE_MAX_BYTES:
        raise SiteError(f"{path}: {len(raw)} bytes; a site map has at most {FILE_MAX_BYTES}")
    text = _text(path, raw)
    assets = _from_geojson(path, text, plane) if path.suffix in (".geojson", ".json") else _from_csv(path, text, plane)
    if not assets:
        raise SiteError(f"{path}: the site map holds no asset")
    if len(assets) > ASSETS_MAX:
        raise SiteError(f"{path}: {len(assets)} assets; at most {ASSETS_MAX}")
    if len({asset.asset for asset in assets}) < len(assets):
        raise SiteError(f"{path}: two assets share an id; make them unique")
    return SiteMap(assets)


def _text(path: Path, raw: bytes) -> str:
    import gzip
    import zlib

    try:
        if path.suffix == ".gz":
            with gzip.GzipFile(fileobj=io.BytesIO(raw)) as packed:
                raw = packed.read(FILE_MAX_BYTES + 1)
            if len(raw) > FILE_MAX_BYTES:
                raise SiteError(f"{path}: unpacks to more than {FILE_MAX_BYTES} bytes")
        return raw.decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise SiteError(f"{path}: is neither UTF-8 text nor a sound gzip file: {error}") from error


def _from_csv(path: Path, text: str, plane: Plane | None) -> list[Asset]:
    reader = csv.DictReader(io.StringIO(text))
    columns = set(reader.fieldnames or ())
    named = next((names for names in _NAMES if columns >= set(names)), None)
    place = next(
        (p for p in (("latitude_deg", "longitude_deg"), ("lat", "lon"), ("east_m", "north_m")) if columns >= set(p)),
        None,
    )
    if named is None or place is None:
        raise SiteError(
            f"{path}:1: a site map needs the columns asset and latitude_deg,longitude_deg or east_m,north_m"
        )
    if place[0] != "east_m" and plane is None:
        raise SiteError(f"{path}:1: the map is in degrees; set node.origin to place it")
    depth = "depth_m" if "depth_m" in columns else "height_m"
    assets = []
    for row in reader:
        try:
            x, y = _number(row[place[0]]), _number(row[place[1]])
            east, north = (x, y) if place[0] == "east_m" else _plane(plane).to_m(x, y)
            width, size = _number(row.get("width_m") or "1"), _number(row.get(depth) or "1")
            assets.append(Asset(_identity("/".join(row[part] or "" for part in named)), east, north, width, size))
        except (ValueError, TypeError) as error:
            raise SiteError(f"{path}:{reader.line_num}: {error}") from error
    return assets


def _from_geojson(path: Path, text: str, plane: Plane | None) -> list[Asset]:
    if plane is None:
        raise SiteError(f"{path}: a GeoJSON map is in degrees; set node.origin to place it")
    try:
        tree = json.loads(text)
        features = tree["features"]
        if not isinstance(features, list):
            raise ValueError("`features` is no list")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SiteError(f"{path}: is no GeoJSON FeatureCollection: {error}") from error
    assets = []
    for number, feature in enumerate(features):
        try:
            assets.append(_feature(feature, plane))
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise SiteError(
                f"{path}: feature {number}: {error}; it needs properties.asset and a Point or Polygon"
            ) from error
    return assets


def _feature(feature: Mapping[str, Any], plane: Plane) -> Asset:
    properties = feature.get("properties") or {}
    name = _identity(str(properties.get("asset") or feature.get("id") or properties.get("id") or ""))
    geometry = feature["geometry"]
    if geometry["type"] == "Point":
        lon, lat = geometry["coordinates"][:2]
        east, north = plane.to_m(_number(lat), _number(lon))
        return Asset(name, east, north, _number(properties.get("width_m", 1)), _number(properties.get("depth_m", 1)))
    if geometry["type"] != "Polygon":
        raise ValueError(f"a {geometry['type']!r} is no asset")
    ring = [plane.to_m(_number(lat), _number(lon)) for lon, lat, *_ in geometry["coordinates"][0]]
    easts, norths = [p[0] for p in ring], [p[1] for p in ring]
    return Asset(
        name,
        (min(easts) + max(easts)) / 2,
        (min(norths) + max(norths)) / 2,
        max(easts) - min(easts),
        max(norths) - min(norths),
    )


def _plane(plane: Plane | None) -> Plane:
    assert plane is not None
    return plane


def _number(value: object) -> float:
    number = float(value)  # type: ignore[arg-type]
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is no finite number")
    return number


def _identity(text: str) -> str:
    if not 0 < len(text.encode()) <= 64:
        raise ValueError(f"{text[:80]!r} is no asset id; it has 1 to 64 bytes")
    return text


def _cell(east_m: float, north_m: float) -> tuple[int, int]:
    return math.floor(east_m / _CELL_M), math.floor(north_m / _CELL_M)


def _inverse(covariance_m2: tuple[float, float, float]) -> tuple[tuple[float, float, float], float]:
    """The inverse matrix and the largest standard deviation; a degenerate matrix is widened to 5 cm."""
    ee, en, nn = covariance_m2
    ee, nn = max(ee, _MIN_SIGMA_M**2), max(nn, _MIN_SIGMA_M**2)
    determinant = ee * nn - en * en
    if determinant <= 1e-9 * ee * nn:
        en, determinant = 0.0, ee * nn
    largest = (ee + nn) / 2 + math.hypot((ee - nn) / 2, en)
    return (nn / determinant, -en / determinant, ee / determinant), math.sqrt(largest)


def _mass(asset: Asset, east_m: float, north_m: float, inverse: tuple[float, float, float]) -> float:
    """Probability that lies on the rectangle, up to a factor that all assets share: a mean over sample points."""
    a, b, c = inverse
    total = 0.0
    for i in range(_GRID):
        de = asset.east_m + ((i + 0.5) / _GRID - 0.5) * asset.width_m - east_m
        for j in range(_GRID):
            dn = asset.north_m + ((j + 0.5) / _GRID - 0.5) * asset.depth_m - north_m
            total += math.exp(-0.5 * (a * de * de + 2 * b * de * dn + c * dn * dn))
    return total * asset.width_m * asset.depth_m
