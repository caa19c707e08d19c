"""Heights of the ground from files: SRTM's `.hgt` tiles, and GeoTIFF in any system of coordinates that PROJ knows.

A reader gives patches: regular grids of heights about a place, small enough for a small board. What a file does not say
is NaN (void), what lies beyond it is infinite (outside); neither is ever interpolated.
"""

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from swarmd_models.bounded_file import open_regular
from swarmd_models.errors import SourceError
from swarmd_models.geo.geolocate import MAX_RANGE_M, enu_m, offset

Heights = npt.NDArray[np.float32]

HGT_SIDES = (1201, 3601)
"""Samples along a side of a tile: 3 and 1 seconds of arc, both edges included (SRTM, USGS, "SRTM_Topo", section 2)."""
HGT_VOID = -32768
"""Likewise."""
MAX_FILE_BYTES = 16 << 30
"""Of a GeoTIFF: 60,000 x 60,000 heights as floats. Only what lies about the camera is read of it."""
MAX_BLOCK_BYTES = 16 << 20
"""Of a GeoTIFF's strip or tile, unpacked: the least that must be held to read one height of it."""
MAX_BANDS = 64
"""Of a GeoTIFF, of which the first is read; 20,000 in 700 kB took eleven seconds."""
MAX_SIDE = 1_000_000
"""Heights along a side of a GeoTIFF: 500 km at half a metre."""
PATCH_REACH_M = MAX_RANGE_M + 500.0
"""Metres from a patch's middle to its edges: as far as rays go, and room to fly before another one is read."""
MAX_PATCH_SIDE = 1000
"""Heights along a patch's side, 4 MB of floats: models finer than 3 m are read at 3 m, which takes about a second."""
HEIGHTS_M = (-500.0, 9_000.0)
"""Metres within which dry ground lies: the shore of the Dead Sea, and Everest; what says more, as -9999, is void."""
_TILE = re.compile(r"([NS])(\d{2})([EW])(\d{3})", re.IGNORECASE)
_GDAL = {
    "GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR",
    "GDAL_PAM_ENABLED": "NO",
    "GDAL_CACHEMAX": 4 * MAX_BLOCK_BYTES,
    "GDAL_NUM_THREADS": "1",
}
"""The file alone is read, not what lies beside it under like names; and memory has a bound."""


@dataclass(frozen=True, slots=True)
class Patch:
    """A regular grid of heights, row 0 in the south, column 0 in the west."""

    south_deg: float
    west_deg: float
    step_deg: tuple[float, float]
    """From row to row, and from column to column."""
    heights_m: Heights
    """Shape (rows, columns), metres; NaN: void, infinite: outside."""

    def at(self, latitude_deg: float, longitude_deg: float) -> tuple[float, float]:
        """(row, column), with fractions."""
        east = (longitude_deg - self.west_deg + 180.0) % 360.0 - 180.0
        return (latitude_deg - self.south_deg) / self.step_deg[0], east / self.step_deg[1]


class HeightReader(Protocol):
    """Anything that knows heights."""

    def patch(self, latitude_deg: float, longitude_deg: float) -> Patch:
        """The heights within `PATCH_REACH_M` of a place; raises `SourceError` where the file has gone or is broken."""
        ...


def open_heights(path: Path) -> HeightReader:
    """The reader of a file, or of a folder of `.hgt` tiles.

    Args:
        path: A tile named by its south-western corner (`N47E008.hgt`), a folder of such tiles, or a GeoTIFF.

    Raises:
        SourceError: It cannot be read, or is no height model.
    """
    if not path.exists():
        raise SourceError(f"cannot read height model {path}: no such file or folder")
    if path.is_dir():
        return HgtTiles(path)
    if path.suffix.lower() == ".hgt":
        return HgtTiles(path)
    if path.suffix.lower() in (".tif", ".tiff"):
        return GeoTiff(path)
    raise SourceError(f"height model {path} is none: give NAME.hgt, a folder of .hgt tiles, or a GeoTIFF (.tif)")


class HgtTiles:
    """One tile of SRTM's form, or a folder of them, read where they are needed."""

    def __init__(self, path: Path) -> None:
        """See what there is; all tiles of a folder must have one resolution.

        Raises:
            SourceError: No tile, or a file that is none.
        """
        files = sorted(path.glob("*.[hH][gG][tT]")) if path.is_dir() else [path]
        self._tiles: dict[tuple[int, int], Path] = {}
        sides = set()
        for file in files[: 180 * 360]:
            self._tiles[_corner(file)] = file
            sides.add(_side(file))
        if len(sides) != 1:
            what = "tiles of two resolutions" if sides else "no .hgt tile"
            raise SourceError(f"height model {path} has {what}")
        self._side = sides.pop()

    def patch(self, latitude_deg: float, longitude_deg: float) -> Patch:
        """The heights about a place, across the edges of tiles."""
        cells = self._side - 1
        reach = _reach_deg(latitude_deg)
        rows, columns = (
            (math.floor((middle - far) * cells), math.ceil((middle + far) * cells))
            for middle, far in zip((latitude_deg, longitude_deg), reach, strict=True)
        )
        # Near a pole a few metres are many degrees: no more than the bound, about the place.
        columns = _narrowed(columns, round(longitude_deg * cells))
        heights = np.full((rows[1] - rows[0] + 1, columns[1] - columns[0] + 1), np.inf, np.float32)
        for south in range(rows[0] // cells, rows[1] // cells + 1):
            for west in range(columns[0] // cells, columns[1] // cells + 1):
                self._fill(heights, (rows[0], columns[0]), (south, west))
        return Patch(rows[0] / cells, columns[0] / cells, (1 / cells, 1 / cells), heights)

    def _fill(self, heights: Heights, first: tuple[int, int], corner: tuple[int, int]) -> None:
        """Write what one tile knows of a patch whose first height has these indices in the world's grid."""
        cells = self._side - 1
        south, west = corner
        file = self._tiles.get((south, (west + 180) % 360 - 180))
        if file is None:
            return
        bottom, left = first[0] - south * cells, first[1] - west * cells
        # Rows and columns of the tile, counted from its south-western corner.
        r0, r1 = max(bottom, 0), min(bottom + heights.shape[0], self._side)
        c0, c1 = max(left, 0), min(left + heights.shape[1], self._side)
        if r0 >= r1 or c0 >= c1:
            return
        try:
            # The file's rows go from north to south.
            start = (self._side - r1) * self._side * 2
            with open_regular(file) as opened:
                opened.seek(start)
                data = opened.read((r1 - r0) * self._side * 2)
            raw = np.frombuffer(data, ">i2").reshape(r1 - r0, self._side)
        except OSError as error:
            raise SourceError(f"cannot read height model {file}: {error.strerror}") from error
        except ValueError as error:
            raise SourceError(f"height model {file} was cut off") from error
        found = raw[::-1, c0:c1].astype(np.float32)
        found[found == HGT_VOID] = np.nan
        heights[r0 - bottom : r1 - bottom, c0 - left : c1 - left] = _plausible(found)


def _corner(file: Path) -> tuple[int, int]:
    """South-western corner by the name, whole degrees."""
    named = _TILE.match(file.name)
    if named is None:
        raise SourceError(f"height model {file}: a tile is named by its south-western corner, as N47E008.hgt")
    south = int(named[2]) * (1 if named[1].upper() == "N" else -1)
    west = int(named[4]) * (1 if named[3].upper() == "E" else -1)
    if not (-90 <= south < 90 and -180 <= west < 180):
        raise SourceError(f"height model {file}: {named[0]} is no place on earth")
    return south, west


def _side(file: Path) -> int:
    try:
        size = file.stat().st_size
    except OSError as error:
        raise SourceError(f"cannot read height model {file}: {error.strerror}") from error
    for side in HGT_SIDES:
        if size == 2 * side * side:
            return side
    wanted = " or ".join(f"{2 * side * side:,}" for side in HGT_SIDES)
    raise SourceError(f"height model {file} has {size:,} bytes; an .hgt tile has {wanted}")


class GeoTiff:
    """A GeoTIFF in any coordinates, brought to degrees patch by patch (by rasterio, which is GDAL)."""

    def __init__(self, path: Path) -> None:
        """Look at the header.

        Raises:
            SourceError: It cannot be read, says not where it lies, is too large, or rasterio is not installed.
        """
        try:
            import rasterio
            import rasterio.vrt
            import rasterio.warp  # Here, where nobody waits, and not while a frame does.
        except ImportError as error:
            raise SourceError(f"reading height model {path} needs rasterio; install swarmd[terrain]") from error
        self._rasterio = rasterio
        self._path = path
        try:
            size = path.stat().st_size if path.is_file() else -1
        except OSError as error:
            raise SourceError(f"cannot read height model {path}: {error.strerror}") from error
        if size < 0:
            raise SourceError(f"cannot read height model {path}: no such file")
        if size > MAX_FILE_BYTES:
            raise SourceError(f"height model {path} is larger than {MAX_FILE_BYTES >> 30} GiB")
        self._read(lambda source: self._judge(source))

    def patch(self, latitude_deg: float, longitude_deg: float) -> Patch:
        """The heights about a place, brought to degrees."""
        found: Patch = self._read(lambda source: self._warped(source, latitude_deg, longitude_deg))
        return found

    def _read(self, work: Any) -> Any:
        """Do something with the opened file; whatever GDAL makes of a broken one is a `SourceError`."""
        try:
            with self._rasterio.Env(**_GDAL), self._rasterio.open(str(self._path.resolve()), driver="GTiff") as source:
                return work(source)
        except SourceError:
            raise
        except Exception as error:  # GDAL has a class for each mishap, some of them private.
            raise SourceError(f"height model {self._path} cannot be used: {str(error)[:200]}") from error

    def _judge(self, source: Any) -> None:
        from rasterio.enums import Interleaving

        what = ""
        rows, columns = source.block_shapes[0]
        # Where bands are interleaved a block is of all of them: 400 kB, packed, were 400 MB.
        bands = 1 if source.interleaving is Interleaving.band else source.count
        block = f"{columns} x {rows}" + (f" x {bands}" if bands > 1 else "")
        if source.crs is None or source.transform.is_degenerate or source.transform.is_identity:
            what = "it does not say where it lies"
        elif max(source.width, source.height) > MAX_SIDE:
            what = f"a side of {max(source.width, source.height):,} heights is more than {MAX_SIDE:,}"
        elif source.count > MAX_BANDS:
            what = f"it has {source.count:,} bands, more than {MAX_BANDS}"
        elif source.dtypes[0].startswith("complex"):
            what = "its numbers are complex"
        elif rows * columns * bands * np.dtype(source.dtypes[0]).itemsize > MAX_BLOCK_BYTES:
            what = f"a block of {block} is more than {MAX_BLOCK_BYTES >> 20} MiB: tile it (gdal_translate)"
        elif (source.units[0] or "m").lower() not in ("m", "metre", "metres", "meter", "meters", "1"):
            what = f"its heights are in {source.units[0]}, not in metres"
        if what:
            raise SourceError(f"height model {self._path} cannot be used: {what}")

    def _warped(self, source: Any, latitude_deg: float, longitude_deg: float) -> Patch:
        from rasterio.enums import Resampling
        from rasterio.transform import from_origin
        from rasterio.vrt import WarpedVRT
        from rasterio.warp import transform_bounds

        reach = _reach_deg(latitude_deg)
        west, south, east, north = transform_bounds(source.crs, "EPSG:4326", *source.bounds)
        native = math.sqrt(abs((east - west) * (north - south)) / (source.width * source.height))
        if not math.isfinite(native) or native <= 0.0:
            raise ValueError("it lies nowhere on earth")
        step = max(native, 2 * reach[0] / (MAX_PATCH_SIDE - 1)), max(native, 2 * reach[1] / (MAX_PATCH_SIDE - 1))
        rows, columns = (min(math.ceil(2 * far / by) + 1, MAX_PATCH_SIDE) for far, by in zip(reach, step, strict=True))
        first = latitude_deg - (rows - 1) / 2 * step[0], longitude_deg - (columns - 1) / 2 * step[1]
        # A pixel's value is that of its middle.
        corner = from_origin(first[1] - step[1] / 2, first[0] + (rows - 0.5) * step[0], step[1], step[0])
        with WarpedVRT(
            source, crs="EPSG:4326", transform=corner, width=columns, height=rows, resampling=Resampling.bilinear,
            dtype="float32", nodata=_VOID,
        ) as warped:  # fmt: skip
            found = warped.read(1)[::-1]
        found = np.where(found == _VOID, np.float32(np.nan), found * source.scales[0] + source.offsets[0])
        heights = _plausible(found.astype(np.float32))
        if source.nodata is None:
            self._void_undeclared(source, heights, corner)
        return Patch(first[0], first[1], step, _without_beyond(heights, first, step, (south, west, north, east)))

    def _void_undeclared(self, source: Any, heights: Heights, corner: Any) -> None:
        """A file that does not say what stands for a void: what is no height must not be mixed into its neighbours."""
        import cv2
        from rasterio.vrt import WarpedVRT

        rows, columns = heights.shape
        with WarpedVRT(
            source, crs="EPSG:4326", transform=corner, width=columns, height=rows, dtype="float32", nodata=_VOID
        ) as nearest:
            raw = nearest.read(1)[::-1]
        known = _plausible(np.where(raw == _VOID, np.float32(0), raw * source.scales[0] + source.offsets[0]))
        heights[cv2.dilate(np.isnan(known).astype(np.uint8), np.ones((3, 3), np.uint8)) > 0] = np.nan


_VOID = -1e30
"""What GDAL writes where a file says nothing."""


def _without_beyond(
    heights: Heights, first: tuple[float, float], step: tuple[float, float], bounds: tuple[float, float, float, float]
) -> Heights:
    """Outside, where there is nothing beyond a file's bounds (south, west, north, east)."""
    latitudes = first[0] + step[0] * np.arange(heights.shape[0])[:, None]
    longitudes = first[1] + step[1] * np.arange(heights.shape[1])[None, :]
    south, west, north, east = bounds
    is_beyond = (latitudes < south) | (latitudes > north) | (longitudes < west) | (longitudes > east)
    heights[is_beyond & np.isnan(heights)] = np.inf
    return heights


def _plausible(heights: Heights) -> Heights:
    with np.errstate(invalid="ignore"):
        heights[~((heights >= HEIGHTS_M[0]) & (heights <= HEIGHTS_M[1]))] = np.nan
    return heights


def _reach_deg(latitude_deg: float) -> tuple[float, float]:
    """`PATCH_REACH_M` in degrees of latitude and of longitude."""
    north, east = offset(latitude_deg, 0.0, PATCH_REACH_M, PATCH_REACH_M)
    return north - latitude_deg, abs(east)


def _narrowed(span: tuple[int, int], middle: int) -> tuple[int, int]:
    half = MAX_PATCH_SIDE // 2
    return max(span[0], middle - half), min(span[1], middle + half - 1)


def is_near_middle(
    patch: Patch, latitude_deg: float, longitude_deg: float, within_m: float = PATCH_REACH_M - MAX_RANGE_M
) -> bool:
    """Whether rays from above a place end within a patch, or within what there is; or it is nearer than that."""
    rows, columns = patch.heights_m.shape
    middle = (
        patch.south_deg + (rows - 1) / 2 * patch.step_deg[0],
        patch.west_deg + (columns - 1) / 2 * patch.step_deg[1],
    )
    return math.hypot(*enu_m(latitude_deg, longitude_deg, middle)) < within_m
