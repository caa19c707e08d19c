"""Where a ray meets ground that is not level.

Rules:

- Between four heights the ground is the bilinear surface through them. Along a ray that is a parabola in each cell, so
  the meet is computed cell by cell, in closed form: no ridge between two steps is missed, and a ray crosses a bounded
  number of cells.
- The first meet counts: what lies behind a hill is not seen.
- A ray that runs into a void or off the model before it meets ground has no place, with the reason counted; so has
  everything while the height below the camera is not known. Who wants level ground there says so (`level`). What has
  not been read yet is as unknown as a void.
- The camera's height is above the ground below it; with a `home`, above the ground there.
"""

import math
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from swarmd_models.errors import SourceError
from swarmd_models.geo.ahead import Patches, ReadAhead, ReadNow
from swarmd_models.geo.apart import apart
from swarmd_models.geo.geolocate import (
    LEVEL,
    MAX_RANGE_M,
    MIN_DEPRESSION_RAD,
    Meet,
    Vector,
    is_usable,
    radii_m,
)
from swarmd_models.geo.heights import HeightReader, Patch, is_near_middle, open_heights
from swarmd_models.types import Pose

REASONS = ("horizon", "range", "grazing", "void", "outside", "unread")
"""Why a ray has no place: near or above the horizon; no ground in range; flatter to the ground there than 8 degrees;
a void in the model, or its end, on the way or below the camera; heights there that have not been read yet."""
_EDGE = 1e-9
"""Cells; a meet this little beyond the edge of a cell is on it."""

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TerrainRule:
    """Which height model, and how far it is to be trusted."""

    path: str
    sigma_m: float
    """Standard deviation, metres, of the difference between its heights below the camera and where a ray ends."""
    home: tuple[float, float] | None = None
    """(latitude, longitude) above whose ground poses give their height; None: above the ground below."""
    level: bool = False
    """Take level ground where the model says nothing, with what that says of itself; else there is no place."""


def parse_home(text: str) -> tuple[float, float] | None:
    """`LAT,LON`, or nothing; raises `ValueError` for anything else.

    >>> parse_home("47.1,8.2")
    (47.1, 8.2)
    """
    if not text:
        return None
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != 2 or not (abs(numbers[0]) < 89.0 and abs(numbers[1]) <= 180.0):
        raise ValueError(f"{text} is no LAT,LON")
    return numbers[0], numbers[1]


class Terrain:
    """Ground by a height model; a `Ground` for rays."""

    def __init__(self, reader: HeightReader | ReadAhead, rule: TerrainRule) -> None:
        """Read nothing yet; by `ReadAhead` frames never wait for the file."""
        self._patches: Patches = reader if isinstance(reader, ReadAhead) else ReadNow(reader)
        self._is_short = False
        """The patch reaches less far than rays from where the camera is; another one is being read."""
        self._rule = rule
        self._patch: Patch | None = None
        self._home_m: float | None = None
        self._why = ""
        self._problem = ""
        self._is_told = False
        self.sigma_m = rule.sigma_m
        self.counts: Counter[str] = Counter()
        """By reason: rays that have no place, or level ground's."""

    @classmethod
    def open(cls, rule: TerrainRule, *, is_ahead: bool = False) -> "Terrain":
        """Look at the file, and read the height of `home`.

        Args:
            rule: Which file, and how it is trusted.
            is_ahead: Read heights in a thread before they are needed.

        Raises:
            SourceError: The height model cannot be used, or does not know the home.
        """
        reader = open_heights(Path(rule.path))
        terrain = cls(ReadAhead(apart(reader, Path(rule.path))) if is_ahead else reader, rule)
        if rule.home is not None:
            height, why = _height(reader.patch(*rule.home), *rule.home)
            if why:
                raise SourceError(f"height model {rule.path} does not know the height of home ({why})")
            terrain._home_m = height
        return terrain

    def stand(self, pose: Pose) -> Pose:
        """A pose with the height of the ground below it, where the model knows it; else `problem` says why not."""
        if not is_usable(pose):
            return pose
        where = (pose.latitude_deg, pose.longitude_deg)
        try:
            self._patch = self._patches.about(*where)
        except SourceError as error:
            self._patch, self._why, self._problem = None, "void", str(error)
            return pose
        slow = self._patches.slow
        self._problem = f"height model {self._rule.path} {slow}" if slow else ""
        if self._patch is None:
            self._why = "unread"
            return pose
        self._is_short = not is_near_middle(self._patch, *where)
        ground, self._why = _height(self._patch, *where)
        if self._why == "outside" and self._is_short:
            self._why = "unread"
            return pose
        if self._why:
            self._problem = f"{where[0]:.4f}, {where[1]:.4f} is {_WORDS[self._why]} of height model {self._rule.path}"
            return pose
        if self._home_m is None:
            return replace(pose, ground_m=ground)
        height = pose.height_agl_m + self._home_m - ground
        if height <= 0.0:
            self._problem = f"by height model {self._rule.path} the camera is {-height:.0f} m below the ground"
        return replace(pose, ground_m=ground, height_agl_m=height)

    @property
    def problem(self) -> str:
        """Why nothing, or only level ground's, can be placed; "" where the height below the camera is known."""
        return self._problem

    def news(self) -> str:
        """The problem, when it is new; "" until it was mended and comes again."""
        is_news, self._is_told = bool(self._problem) and not self._is_told, bool(self._problem)
        return self._problem if is_news else ""

    def meet(self, pose: Pose, ray: Vector) -> Meet | None:
        """Where a ray from a pose of `stand` first meets the ground."""
        found = self._meet(pose, ray)
        if isinstance(found, Meet):
            return found
        self.counts[found] += 1
        return LEVEL.meet(pose, ray) if self._rule.level and found in _WORDS else None

    def _meet(self, pose: Pose, ray: Vector) -> Meet | str:
        length = math.sqrt(ray[0] ** 2 + ray[1] ** 2 + ray[2] ** 2)
        if ray[2] < math.sin(MIN_DEPRESSION_RAD) * length:
            return "horizon"
        if pose.ground_m is None or self._patch is None:
            return self._why or "outside"
        meridian, vertical = radii_m(pose.latitude_deg)
        parallel = vertical * max(math.cos(math.radians(pose.latitude_deg)), 1e-6)
        # Cells, in rows and columns, that a metre north and a metre east are.
        per_m = (
            math.degrees(1 / meridian) / self._patch.step_deg[0],
            math.degrees(1 / parallel) / self._patch.step_deg[1],
        )
        start = self._patch.at(pose.latitude_deg, pose.longitude_deg)
        run = ray[0] * per_m[0], ray[1] * per_m[1]
        eye_m = pose.ground_m + pose.height_agl_m
        found = _first_meet(self._patch.heights_m, start, run, (eye_m, -ray[2]), MAX_RANGE_M / length)
        if isinstance(found, str):
            return "unread" if found == "outside" and self._is_short else found
        distance, (row_slope, column_slope) = found
        slope = row_slope * per_m[0], column_slope * per_m[1]
        _, (below_row, below_column) = _surface(self._patch.heights_m, *start)
        below = below_row * per_m[0], below_column * per_m[1]
        fall = ray[2] + slope[0] * ray[0] + slope[1] * ray[1]
        if fall < math.sin(MIN_DEPRESSION_RAD) * length * math.sqrt(1 + slope[0] ** 2 + slope[1] ** 2):
            return "grazing"
        return Meet(distance, slope, below, eye_m - distance * ray[2])


_WORDS = {"outside": "outside", "void": "in a void", "unread": "in an unread part"}


def _height(patch: Patch, latitude_deg: float, longitude_deg: float) -> tuple[float, str]:
    """Height of the ground at a place, or why it is not known."""
    row, column = patch.at(latitude_deg, longitude_deg)
    rows, columns = patch.heights_m.shape
    if not (0.0 <= row <= rows - 1 and 0.0 <= column <= columns - 1):
        return math.nan, "outside"
    height, _ = _surface(patch.heights_m, row, column)
    if math.isfinite(height):
        return height, ""
    r, c = min(int(row), rows - 2), min(int(column), columns - 2)
    return math.nan, "outside" if np.isinf(patch.heights_m[r : r + 2, c : c + 2]).any() else "void"


def _surface(heights: npt.NDArray[np.float32], row: float, column: float) -> tuple[float, tuple[float, float]]:
    """Height at a place of the grid, and how it grows by a row and by a column."""
    r, c = min(int(row), heights.shape[0] - 2), min(int(column), heights.shape[1] - 2)
    sw, se, nw, ne = (float(heights[r + i, c + j]) for i in (0, 1) for j in (0, 1))
    y, x = row - r, column - c
    twist = ne - nw - se + sw
    by_row, by_column = nw - sw + x * twist, se - sw + y * twist
    return sw + y * (nw - sw) + x * (se - sw) + x * y * twist, (by_row, by_column)


def _first_meet(
    heights: npt.NDArray[np.float32],
    start: tuple[float, float],
    run: tuple[float, float],
    line: tuple[float, float],
    reach: float,
) -> tuple[float, tuple[float, float]] | str:
    """Where a line from above first meets the surface through a grid of heights.

    Args:
        heights: Shape (rows, columns), metres.
        start: (row, column), within the grid.
        run: Rows and columns that the line goes on by a unit.
        line: Its height at the start, and how much it rises by a unit.
        reach: Units after which it ends.

    Returns:
        Units to the meet, and the surface's slope there by row and by column; or the reason why there is none.
    """
    cuts = _cuts(start, run, reach)
    a, b = cuts[:-1], cuts[1:]
    middle = (a + b) / 2
    rows = np.floor(start[0] + run[0] * middle).astype(np.int64)
    columns = np.floor(start[1] + run[1] * middle).astype(np.int64)
    is_inside = (rows >= 0) & (columns >= 0) & (rows < heights.shape[0] - 1) & (columns < heights.shape[1] - 1)
    r, c = np.where(is_inside, rows, 0), np.where(is_inside, columns, 0)
    corners = [heights[r + i, c + j].astype(np.float64) for i in (0, 1) for j in (0, 1)]
    is_beyond = ~is_inside | np.isinf(corners).any(axis=0)
    is_void = np.isnan(corners).any(axis=0)
    with np.errstate(invalid="ignore"):
        over = [line[0] + line[1] * t - _bilinear(corners, start, run, (r, c), t) for t in (a, middle, b)]
        bend = 2 * over[0] - 4 * over[1] + 2 * over[2]
        slant = -3 * over[0] + 4 * over[1] - over[2]
        turn = np.clip(np.divide(-slant, 2 * bend, out=np.ones_like(bend), where=bend > 0), 0.0, 1.0)
        lowest = np.minimum(over[2], over[0] + slant * turn + bend * turn**2)
    is_known = ~(is_beyond | is_void)
    is_end = ~is_known | (lowest <= 0.0)
    if not is_end.any():
        return "range"
    at = int(np.argmax(is_end))
    if not is_known[at]:
        return "outside" if is_beyond[at] else "void"
    share = _first_root(float(over[0][at]), float(slant[at]), float(bend[at]))
    distance = float(a[at] + share * (b[at] - a[at]))
    row, column = start[0] + run[0] * distance, start[1] + run[1] * distance
    cell = heights[r[at] : r[at] + 2, c[at] : c[at] + 2]
    return distance, _surface(cell, row - float(r[at]), column - float(c[at]))[1]


def _cuts(start: tuple[float, float], run: tuple[float, float], reach: float) -> Numbers:
    """Where a line crosses the lines of a grid, in order, with its start and its end."""
    found = [np.array([0.0, reach])]
    for first, by in zip(start, run, strict=True):
        last = first + by * reach
        low, high = math.ceil(min(first, last)), math.floor(max(first, last))
        if abs(by) * reach > _EDGE and high >= low:
            found.append((np.arange(low, high + 1) - first) / by)
    return np.unique(np.clip(np.concatenate(found), 0.0, reach))


def _bilinear(
    corners: list[Numbers],
    start: tuple[float, float],
    run: tuple[float, float],
    cell: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]],
    t: Numbers,
) -> Numbers:
    sw, se, nw, ne = corners
    y, x = start[0] + run[0] * t - cell[0], start[1] + run[1] * t - cell[1]
    height: Numbers = sw + y * (nw - sw) + x * (se - sw) + x * y * (ne - nw - se + sw)
    return height


def _first_root(c: float, b: float, a: float) -> float:
    """The first of the places in [0, 1] where a t² + b t + c, which starts at or above 0, comes down to 0."""
    if c <= 0.0:
        return 0.0
    root = math.sqrt(max(b * b - 4 * a * c, 0.0))
    # Of the two forms of a quadratic's roots, the one that does not subtract near numbers.
    q = -(b + math.copysign(root, b)) / 2
    roots = [value for value in (q / a if a else math.inf, c / q if q else math.inf) if value >= -_EDGE]
    return min(max(min(roots, default=1.0), 0.0), 1.0)
