"""A solar farm: tables of modules on a plane, some of them faulty, and the cells in which it is inspected.

The same seed and sizes give the same farm on every machine. Geometry is a real plant's: tables every 6.03 m east-west,
each a column of modules of 2.2 m (east-west) by 0.99 m. Positions are metres east and north of the farm's south-west
corner, which is the mission origin. Standard library only, so that a daemon may import it without cost.
"""

import csv
import io
import json
import math
import random
from dataclasses import dataclass, field
from functools import cached_property

MODULE_WIDTH_M = 2.2
MODULE_DEPTH_M = 0.99
TABLE_PITCH_M = 6.03
MARGIN_M = 4.0
"""Bare ground between the origin and the first table."""

LANE_TABLES = 2
"""Tables that one pass of a drone sees whole."""

FAULT_KINDS = (
    "cell",
    "cell-multi",
    "cracking",
    "diode",
    "diode-multi",
    "hot-spot",
    "hot-spot-multi",
    "offline-module",
    "shadowing",
    "soiling",
    "vegetation",
)

ORIGIN_WGS84 = (-18.8856864, -70.1124341)
"""Where the plant stands whose geometry this is."""

_SEMI_MAJOR_M = 6_378_137.0
_ECCENTRICITY_2 = 6.69437999014e-3


def metres_per_degree(latitude_deg: float) -> tuple[float, float]:
    """Metres north per degree of latitude and east per degree of longitude, near a latitude.

    Source:
        WGS 84 meridian and prime vertical radii of curvature.
    """
    sine = math.sin(math.radians(latitude_deg))
    root = 1.0 - _ECCENTRICITY_2 * sine * sine
    meridian = _SEMI_MAJOR_M * (1.0 - _ECCENTRICITY_2) / root**1.5
    prime = _SEMI_MAJOR_M / math.sqrt(root)
    return math.radians(meridian), math.radians(prime * math.cos(math.radians(latitude_deg)))


@dataclass(frozen=True, slots=True)
class Module:
    """One solar module and its true state."""

    asset: str
    table: int
    row: int
    east_m: float
    north_m: float
    """Of its centre."""
    label: str
    """Fault class, "" for a healthy module."""
    width_m: float = MODULE_WIDTH_M
    depth_m: float = MODULE_DEPTH_M


@dataclass(frozen=True, slots=True)
class Fault:
    """A module that is to be found."""

    asset: str
    label: str
    east_m: float
    north_m: float


@dataclass(frozen=True, slots=True)
class Cell:
    """A piece of a lane: what one drone inspects in one go."""

    cell_id: str
    east_m: float
    north_m: float
    """Of its centre."""
    start: tuple[float, float]
    end: tuple[float, float]
    """South and north end of the lane's piece, (east, north)."""
    polygon: tuple[tuple[float, float], ...]
    """Its four corners, counter-clockwise from the south-west."""


@dataclass(frozen=True)
class Farm:
    """A solar farm. Make one with `build`."""

    seed: int
    tables: int
    modules_per_table: int
    prevalence: float
    cell_m: float
    modules: tuple[Module, ...] = field(repr=False)
    cells: tuple[Cell, ...] = field(repr=False)
    origin: tuple[float, float] = ORIGIN_WGS84

    @classmethod
    def build(
        cls, seed: int = 7, tables: int = 24, modules: int = 40, faults: float = 0.025, cell_m: float = 20.0
    ) -> "Farm":
        """Lay out a farm.

        Args:
            seed: Decides which modules are faulty and how; any integer.
            tables: Columns of modules, 1 to 600.
            modules: Modules of each table, 1 to 200.
            faults: Share of faulty modules, 0 to 1; the number is exact, the places are random.
            cell_m: Wanted length of a cell along its lane, metres, >= 2.

        Returns:
            The farm.

        Raises:
            ValueError: A size lies outside its range.
        """
        for name, value, low, high in (
            ("tables", tables, 1, 600),
            ("modules", modules, 1, 200),
            ("faults", faults, 0.0, 1.0),
            ("cell_m", cell_m, 2.0, 10_000.0),
        ):
            if not low <= value <= high:
                raise ValueError(f"{name} is {value}; it must lie between {low} and {high}")
        labels = _choose_faults(random.Random(f"farm/{seed}"), tables * modules, faults)
        placed = tuple(
            Module(
                f"t{table:02d}-m{row:02d}",
                table,
                row,
                round(MARGIN_M + MODULE_WIDTH_M / 2 + table * TABLE_PITCH_M, 4),
                round(MARGIN_M + (row + 0.5) * MODULE_DEPTH_M, 4),
                labels.get(table * modules + row, ""),
            )
            for table in range(tables)
            for row in range(modules)
        )
        return cls(seed, tables, modules, faults, cell_m, placed, _cut_cells(tables, modules, cell_m))

    @property
    def extent_m(self) -> tuple[float, float]:
        """Size east-west and north-south with the margins."""
        east = 2 * MARGIN_M + (self.tables - 1) * TABLE_PITCH_M + MODULE_WIDTH_M
        return east, 2 * MARGIN_M + self.modules_per_table * MODULE_DEPTH_M

    @cached_property
    def _by_cell(self) -> dict[str, Cell]:
        return {cell.cell_id: cell for cell in self.cells}

    def cell(self, cell_id: str) -> Cell | None:
        """The cell of that id, or None."""
        return self._by_cell.get(cell_id)

    def truth(self) -> tuple[Fault, ...]:
        """Every faulty module, table by table from the west, from south to north."""
        return tuple(Fault(m.asset, m.label, m.east_m, m.north_m) for m in self.modules if m.label)

    def to_wgs84(self, east_m: float, north_m: float) -> tuple[float, float]:
        """Latitude and longitude, degrees, of a point of the plane."""
        per_latitude, per_longitude = metres_per_degree(self.origin[0])
        return self.origin[0] + north_m / per_latitude, self.origin[1] + east_m / per_longitude

    def to_plane(self, latitude_deg: float, longitude_deg: float) -> tuple[float, float]:
        """East and north, metres; the inverse of `to_wgs84`."""
        per_latitude, per_longitude = metres_per_degree(self.origin[0])
        return (longitude_deg - self.origin[1]) * per_longitude, (latitude_deg - self.origin[0]) * per_latitude

    def asset_at(self, east_m: float, north_m: float, max_m: float = 0.9) -> str:
        """The module nearest to a point, if the point lies within `max_m` of its rectangle along both axes; else ""."""
        table = round((east_m - MARGIN_M - MODULE_WIDTH_M / 2) / TABLE_PITCH_M)
        row = math.floor((north_m - MARGIN_M) / MODULE_DEPTH_M)
        table = min(max(table, 0), self.tables - 1)
        row = min(max(row, 0), self.modules_per_table - 1)
        module = self.modules[table * self.modules_per_table + row]
        near_east = abs(east_m - module.east_m) <= MODULE_WIDTH_M / 2 + max_m
        near_north = abs(north_m - module.north_m) <= MODULE_DEPTH_M / 2 + max_m
        return module.asset if near_east and near_north else ""

    def site_map_csv(self) -> str:
        """All modules as CSV; a site map knows no faults."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["asset", "latitude_deg", "longitude_deg", "east_m", "north_m", "width_m", "depth_m"])
        for m in self.modules:
            latitude, longitude = self.to_wgs84(m.east_m, m.north_m)
            place = (f"{latitude:.9f}", f"{longitude:.9f}", f"{m.east_m:.3f}", f"{m.north_m:.3f}")
            writer.writerow([m.asset, *place, m.width_m, m.depth_m])
        return out.getvalue()

    def site_map_geojson(self) -> str:
        """All modules as GeoJSON polygons with the property `asset`."""
        return self._geojson([(m, {"asset": m.asset}) for m in self.modules])

    def truth_geojson(self) -> str:
        """The faulty modules as GeoJSON polygons with `asset` and `label`."""
        return self._geojson([(m, {"asset": m.asset, "label": m.label}) for m in self.modules if m.label])

    def _geojson(self, modules: list[tuple[Module, dict[str, str]]]) -> str:
        features = []
        for m, properties in modules:
            w, d = m.width_m / 2, m.depth_m / 2
            corners = ((-w, -d), (w, -d), (w, d), (-w, d), (-w, -d))
            ring = []
            for east, north in corners:
                latitude, longitude = self.to_wgs84(m.east_m + east, m.north_m + north)
                ring.append([round(longitude, 9), round(latitude, 9)])
            geometry = {"type": "Polygon", "coordinates": [ring]}
            features.append({"type": "Feature", "geometry": geometry, "properties": properties})
        return json.dumps({"type": "FeatureCollection", "features": features}, separators=(",", ":"))


def _choose_faults(rng: random.Random, count: int, prevalence: float) -> dict[int, str]:
    """Which modules are faulty and how: every kind in turn, so that a small farm shows them all."""
    chosen = rng.sample(range(count), round(count * prevalence))
    kinds = list(FAULT_KINDS)
    rng.shuffle(kinds)
    return {module: kinds[index % len(kinds)] for index, module in enumerate(chosen)}


def _cut_cells(tables: int, modules: int, cell_m: float) -> tuple[Cell, ...]:
    """Lanes over pairs of tables, each cut into equal pieces of about `cell_m`."""
    length_m = modules * MODULE_DEPTH_M
    pieces = max(1, round(length_m / cell_m))
    piece_m = length_m / pieces
    cells: list[Cell] = []
    for first in range(0, tables, LANE_TABLES):
        last = min(first + LANE_TABLES, tables) - 1
        west = MARGIN_M + first * TABLE_PITCH_M
        east = MARGIN_M + last * TABLE_PITCH_M + MODULE_WIDTH_M
        centre = (west + east) / 2
        for piece in range(pieces):
            south = MARGIN_M + piece * piece_m
            north = south + piece_m
            polygon = ((west, south), (east, south), (east, north), (west, north))
            middle = (south + north) / 2
            cells.append(Cell(f"c{len(cells):02d}", centre, middle, (centre, south), (centre, north), polygon))
    return tuple(cells)
