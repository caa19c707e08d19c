"""The survey area as cells, the same on every node: from a CSV of cells, from a polygon, or from the site map's assets.

Cells that are cut out of an area are squares of a grid about the mission origin, named by their column and row, so that
every node that reads the same area and origin names the same cells.
"""

import csv
import io
import json
import math
from collections.abc import Sequence
from pathlib import Path

from swarmd_models.errors import SiteError
from swarmd_models.geo.positions import Plane

FILE_MAX_BYTES = 16 << 20
"""Of a survey area's file."""
CELLS_MAX = 50_000
"""Cells of an area: each is a row in every node's state."""
POINTS_MAX = 100_000
"""Corners of a polygon."""
Cells = tuple[tuple[str, int, int], ...]
Points = Sequence[tuple[float, float]]


def load_survey(path: Path, plane: Plane | None, cell_m: float) -> Cells:
    """The cells of a file, whichever kind it is.

    Args:
        path: CSV of cells, or GeoJSON with one polygon in WGS84.
        plane: The plane about the mission origin; a polygon needs it.
        cell_m: Side of the squares that a polygon is cut into, metres, > 0.

    Returns:
        (cell id, centre east cm, centre north cm).

    Raises:
        SiteError: Names the file and the remedy.
    """
    if path.suffix.lower() in (".geojson", ".json"):
        if plane is None:
            raise SiteError(f"{path}: a polygon in degrees needs the mission origin; set node.origin")
        return cells_of_polygon([plane.to_m(lat, lon) for lon, lat in outline(path)], cell_m, str(path))
    return load_cells(path)


def cells_of_polygon(outline: Points, cell_m: float, where: str = "the survey area") -> Cells:
    """Squares of a grid whose centres lie in a polygon.

    Args:
        outline: Corners (east, north), metres; at least three; closed or not.
        cell_m: Side of a square, metres, > 0.
        where: The area's name in an error.

    Returns:
        The cells, south to north and west to east.

    Raises:
        SiteError: No cell fits, or too many do.
    """
    easts, norths = [east for east, _ in outline], [north for _, north in outline]
    columns = range(math.floor(min(easts) / cell_m), math.floor(max(easts) / cell_m) + 1)
    rows = range(math.floor(min(norths) / cell_m), math.floor(max(norths) / cell_m) + 1)
    if len(columns) * len(rows) > 4 * CELLS_MAX:
        raise SiteError(f"{where}: more than {CELLS_MAX} cells of {cell_m:g} m; make claims.cell_m larger")
    found = [(c, r) for r in rows for c in columns if _inside(outline, (c + 0.5) * cell_m, (r + 0.5) * cell_m)]
    return _squares(found, cell_m, where)


def cells_of_assets(places: Points, cell_m: float) -> Cells:
    """Squares of a grid that hold at least one asset's centre.

    Args:
        places: Centres (east, north), metres.
        cell_m: Side of a square, metres, > 0.

    Returns:
        The cells, south to north and west to east.

    Raises:
        SiteError: There is no asset, or there are too many cells.
    """
    held = {(math.floor(east / cell_m), math.floor(north / cell_m)) for east, north in places}
    return _squares(sorted(held, key=lambda square: (square[1], square[0])), cell_m, "the site map")


def _squares(found: Sequence[tuple[int, int]], cell_m: float, where: str) -> Cells:
    if not 0 < len(found) <= CELLS_MAX:
        raise SiteError(f"{where}: {len(found)} cells of {cell_m:g} m; 1 to {CELLS_MAX}: change claims.cell_m")
    half = cell_m / 2
    return tuple(
        (f"x{column}y{row}", round((column * cell_m + half) * 100), round((row * cell_m + half) * 100))
        for column, row in found
    )


def _inside(outline: Points, east: float, north: float) -> bool:
    """Even-odd rule."""
    inside = False
    last = outline[-1]
    for corner in outline:
        (e1, n1), (e2, n2) = last, corner
        if (n1 > north) != (n2 > north) and east < e1 + (north - n1) / (n2 - n1) * (e2 - e1):
            inside = not inside
        last = corner
    return inside


def outline(path: Path) -> Points:
    """The outer ring of the only polygon of a GeoJSON file, (longitude, latitude) in degrees.

    Raises:
        SiteError: Names the file and the remedy.
    """
    try:
        raw = path.read_bytes()
        if len(raw) > FILE_MAX_BYTES:
            raise SiteError(f"{path}: {len(raw)} bytes; a survey area has at most {FILE_MAX_BYTES}")
        shape = json.loads(raw)
        if shape["type"] == "FeatureCollection":
            (shape,) = shape["features"]
        if shape["type"] == "Feature":
            shape = shape["geometry"]
        if shape["type"] != "Polygon":
            raise ValueError(f"is a {shape['type']}")
        ring = [(float(point[0]), float(point[1])) for point in shape["coordinates"][0]]
    except OSError as error:
        raise SiteError(f"{path}: the survey area cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise SiteError(f"{path}: is no GeoJSON with exactly one Polygon ({error})") from error
    if not 3 <= len(ring) <= POINTS_MAX or not all(abs(lon) <= 180 and abs(lat) <= 90 for lon, lat in ring):
        raise SiteError(f"{path}: the polygon needs 3 to {POINTS_MAX} corners on Earth, longitude first")
    return ring


def load_cells(path: Path) -> Cells:
    """The cells of a CSV file.

    Returns:
        (cell id, centre east cm, centre north cm) in the file's order.

    Raises:
        SiteError: Names the file, the line and the remedy.
    """
    try:
        raw = path.read_bytes()
        if len(raw) > FILE_MAX_BYTES:
            raise SiteError(f"{path}: {len(raw)} bytes; a survey area has at most {FILE_MAX_BYTES}")
        text = raw.decode("utf-8-sig")
    except OSError as error:
        raise SiteError(f"{path}: the cells cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SiteError(f"{path}: is not UTF-8 text: {error}") from error
    reader = csv.DictReader(io.StringIO(text))
    if not {"cell_id", "east_m", "north_m"} <= set(reader.fieldnames or ()):
        raise SiteError(f"{path}:1: a survey area needs the columns cell_id,east_m,north_m")
    cells: dict[str, tuple[int, int]] = {}
    for row in reader:
        name = row["cell_id"] or ""
        try:
            east, north = float(row["east_m"]), float(row["north_m"])
        except (TypeError, ValueError):
            raise SiteError(f"{path}:{reader.line_num}: east_m and north_m must be numbers") from None
        if not 0 < len(name.encode()) <= 64 or name in cells:
            raise SiteError(f"{path}:{reader.line_num}: cell_id must be unique and have 1 to 64 bytes")
        if not (math.isfinite(east) and math.isfinite(north) and abs(east) + abs(north) < 1e6):
            raise SiteError(f"{path}:{reader.line_num}: the cell lies farther than 1,000 km from the origin")
        cells[name] = (round(east * 100), round(north * 100))
    if not 0 < len(cells) <= CELLS_MAX:
        raise SiteError(f"{path}: {len(cells)} cells; a survey area has 1 to {CELLS_MAX}")
    return tuple((name, east, north) for name, (east, north) in cells.items())
