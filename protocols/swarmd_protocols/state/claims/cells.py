"""The pieces of a survey area, and which lie next to each other."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isqrt
from typing import NamedTuple

_NEIGHBOURS_MAX = 8
"""Nearest cells that a claim looks at: those around a cell of a grid."""


@dataclass(slots=True)
class Cell:
    """One piece of the survey area."""

    cell_id: str
    key: bytes
    east_cm: int
    north_cm: int
    owner_draw: int


class Ground(NamedTuple):
    """How the cells of an area lie."""

    beside: Mapping[bytes, list[bytes]]
    """Cell to the cells next to it."""
    reach_cm: int
    """How far from it these are at most."""


def neighbours(cells: list[Cell]) -> Ground:
    """Cell to the cells next to it: within one and a half times the pitch that the area and their number suggest."""
    if not cells:
        return Ground({}, 0)
    easts, norths = [cell.east_cm for cell in cells], [cell.north_cm for cell in cells]
    width, height = max(easts) - min(easts), max(norths) - min(norths)
    # n cells of a pitch p cover (width + p) (height + p): p solves (n - 1) p^2 = (width + height) p + width height.
    around, n = width + height, max(1, len(cells) - 1)
    pitch = max(1, (around + isqrt(around * around + 4 * n * width * height)) // (2 * n))
    reach = pitch * 3 // 2
    grid: dict[tuple[int, int], list[Cell]] = {}
    for cell in cells:
        grid.setdefault((cell.east_cm // reach, cell.north_cm // reach), []).append(cell)
    out: dict[bytes, list[bytes]] = {}
    for cell in cells:
        column, row = cell.east_cm // reach, cell.north_cm // reach
        near = [
            other.key
            for i in (column - 1, column, column + 1)
            for j in (row - 1, row, row + 1)
            for other in grid.get((i, j), ())
            if other is not cell and abs(other.east_cm - cell.east_cm) + abs(other.north_cm - cell.north_cm) <= reach
        ]
        out[cell.key] = near[:_NEIGHBOURS_MAX]
    return Ground(out, reach)
