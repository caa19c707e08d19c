"""Height models drawn for tests: `.hgt` tiles and GeoTIFFs of a surface that a function gives."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]
Surface = Callable[[Numbers, Numbers], Numbers]
"""Heights in metres at latitudes and longitudes."""


def write_hgt(folder: Path, south: int, west: int, surface: Surface, side: int = 1201) -> Path:
    """A tile; (south, west) is its south-western corner in whole degrees."""
    name = f"{'N' if south >= 0 else 'S'}{abs(south):02}{'E' if west >= 0 else 'W'}{abs(west):03}.hgt"
    step = np.arange(side) / (side - 1)
    heights = surface(south + step[::-1, None], west + step[None, :]) + np.zeros((side, side))
    (folder / name).write_bytes(np.round(heights).astype(">i2").tobytes())
    return folder / name


def write_tiff(
    path: Path,
    heights: npt.NDArray[Any],
    crs: str,
    corner: tuple[float, float],
    step: tuple[float, float],
    count: int = 1,
    **more: Any,
) -> Path:
    """A GeoTIFF whose first row is its northernmost; `corner` is its north-western one."""
    import rasterio
    from rasterio.transform import from_origin

    rows, columns = heights.shape
    with rasterio.open(
        path, "w", driver="GTiff", height=rows, width=columns, count=count, dtype=heights.dtype, crs=crs,
        transform=from_origin(*corner, *step), **more,
    ) as file:  # fmt: skip
        file.write(heights, 1)
    return path
