"""The farm as a thermal camera over it sees it.

The ground is kept as one plan-view strip per table, drawn when first seen and kept in a bounded cache; a frame is a cut
through a few strips, one perspective warp and the sensor's blur, drift and noise. The same seed draws the same farm.
"""

from collections import OrderedDict

import numpy as np
import numpy.typing as npt

from swarmd_models.synthetic.compose import (
    MODULE_COLUMNS,
    MODULE_ROWS,
    TEXEL_M,
    Grey,
    NoiseBank,
    Sensor,
    ground_texture,
    look,
    place_module,
    view_bounds,
)
from swarmd_models.synthetic.thermal import draw_module
from swarmd_sim.world.crop_farm import Scenery
from swarmd_sim.world.farm import MARGIN_M, MODULE_DEPTH_M, MODULE_WIDTH_M, TABLE_PITCH_M, Farm

_BORDER_M = 40.0
"""Ground drawn south and north of the tables."""
_GROUND_TEXELS = 768
_MAX_STRIPS = 48
_MODULE_LEVEL = 112.0
_GROUND_LEVEL = 152.0
_SHADOW_LEVEL = 62.0
_SHADOW_M = 0.7


class FarmView:
    """Draws frames of one farm. Not thread-safe."""

    def __init__(self, farm: Farm, width: int, height: int, seed: int = 0, scenery: Scenery | None = None) -> None:
        """Prepare ground and noise.

        Args:
            farm: What is to be seen.
            width: Of a frame, pixels.
            height: Of a frame, pixels.
            seed: Of the sensor's noise, so that two drones do not share it.
            scenery: What modules look like; None draws them.
        """
        self._scenery = scenery
        ground_level = _GROUND_LEVEL if scenery is None else scenery.ground_level
        self._farm = farm
        self._size = (width, height)
        self._rng = np.random.default_rng([abs(farm.seed), 3, abs(seed)])
        self._noise = NoiseBank(width, height, self._rng)
        soil = np.random.default_rng([abs(farm.seed), 4])
        texture = ground_texture(_GROUND_TEXELS, _GROUND_TEXELS, ground_level, soil, stone_levels=10.0)
        half = np.concatenate([texture, texture[::-1]], axis=0)
        self._ground = np.concatenate([half, half[:, ::-1]], axis=1)  # Mirrored, so it repeats without a seam.
        self._north_m = farm.extent_m[1] + _BORDER_M
        self._rows = int((self._north_m + _BORDER_M) / TEXEL_M)
        self._strips: OrderedDict[int, Grey] = OrderedDict()

    def frame(self, to_ground: npt.NDArray[np.float64], sensor: Sensor) -> Grey:
        """One frame.

        Args:
            to_ground: Homography from pixels to east and north of the farm's origin, metres, shape (3, 3).
            sensor: What the camera adds.

        Returns:
            Shape (height, width), uint8.
        """
        plan, west_m, north_m = self._cut(view_bounds(to_ground, *self._size, margin_m=0.2))
        frame = look(plan, west_m, north_m, to_ground, *self._size)
        return self._noise.apply(frame, sensor, self._rng)

    def _cut(self, bounds: tuple[float, float, float, float]) -> tuple[Grey, float, float]:
        """The plan view of a rectangle, and the ground position of its top left corner."""
        west, south, east, north = bounds
        first, last = self._strip_column(west) // _STRIP_COLUMNS, self._strip_column(east) // _STRIP_COLUMNS
        last = min(last, first + 40)  # A camera that looks at the horizon sees no end of strips.
        top = min(max(int((self._north_m - north) / TEXEL_M), 0), self._rows - 2)
        bottom = min(max(int((self._north_m - south) / TEXEL_M) + 2, top + 2), self._rows)
        plan = np.concatenate([self._strip(index)[top:bottom] for index in range(first, last + 1)], axis=1)
        return plan, first * _STRIP_COLUMNS * TEXEL_M + _STRIP_WEST_M, self._north_m - top * TEXEL_M

    @staticmethod
    def _strip_column(east_m: float) -> int:
        return int(np.floor((east_m - _STRIP_WEST_M) / TEXEL_M))

    def _strip(self, index: int) -> Grey:
        """The plan view of table `index` and half the gaps beside it; bare ground beyond the farm."""
        strip = self._strips.get(index)
        if strip is None:
            strip = self._draw_strip(index)
            self._strips[index] = strip
            if len(self._strips) > _MAX_STRIPS:
                self._strips.popitem(last=False)
        else:
            self._strips.move_to_end(index)
        return strip

    def _draw_strip(self, index: int) -> Grey:
        side = 2 * _GROUND_TEXELS
        rows = np.arange(self._rows) % side
        columns = np.arange(index * _STRIP_COLUMNS, (index + 1) * _STRIP_COLUMNS) % side
        plan = self._ground[np.ix_(rows, columns)].copy()
        for table in range(self._farm.tables):
            # Strips are whole texels wide, tables are not: a table belongs to the strip that holds its centre.
            centre = MARGIN_M + MODULE_WIDTH_M / 2 + table * TABLE_PITCH_M
            if self._strip_column(centre) // _STRIP_COLUMNS == index:
                self._draw_table(plan, table, index)
        return np.asarray(np.clip(plan, 0, 255), dtype=np.uint8)

    def _draw_table(self, plan: npt.NDArray[np.float32], table: int, index: int) -> None:
        farm, scenery = self._farm, self._scenery
        rng = np.random.default_rng([abs(farm.seed), 5, table])
        level, shadow_level = _MODULE_LEVEL + rng.normal(0, 4.0), _SHADOW_LEVEL
        if scenery is not None:
            level, shadow_level = scenery.level + rng.normal(0, scenery.table_levels), scenery.shadow_level
        modules = farm.modules[table * farm.modules_per_table : (table + 1) * farm.modules_per_table]
        column = self._strip_column(modules[0].east_m - MODULE_WIDTH_M / 2) - index * _STRIP_COLUMNS
        tops = [int((self._north_m - m.north_m - MODULE_DEPTH_M / 2) / TEXEL_M + 0.5) for m in modules]
        shadow = round(_SHADOW_M / TEXEL_M)
        plan[min(tops) : max(tops) + MODULE_ROWS, column + MODULE_COLUMNS : column + MODULE_COLUMNS + shadow] = (
            shadow_level
        )
        plan[min(tops) : max(tops) + MODULE_ROWS, column : column + MODULE_COLUMNS] = level - 20.0  # The rails between.
        for module, top in zip(modules, tops, strict=True):
            if scenery is None:
                patch = draw_module(module.label, MODULE_ROWS, MODULE_COLUMNS, rng)
            else:
                patch = scenery.patches[module.asset]
            place_module(plan, patch, level + rng.normal(0, 1.5), top, column)


_STRIP_COLUMNS = round(TABLE_PITCH_M / TEXEL_M)
_STRIP_WEST_M = MARGIN_M + MODULE_WIDTH_M / 2 - TABLE_PITCH_M / 2
