"""The ground under the swarm: modules, which of them are faulty, and the cells of the survey, in centimetres.

A site is generated (`world.farm`), read from a CSV of surveyed panels, or empty. Which modules of a file are faulty is
drawn, since real site files do not say.
"""

import csv
import gzip
import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from swarmd_models.geo.sitemap import Asset, SiteMap
from swarmd_sim.errors import ScenarioError
from swarmd_sim.run.choices import MILLION, Choices
from swarmd_sim.world.farm import MODULE_DEPTH_M, MODULE_WIDTH_M, Farm

SQUARE_CM = 1_000
"""Pitch of the index of modules."""

FAULT_LABELS = ("hot-spot", "cell", "diode", "cracking", "soiling")
_FILE_MAX_BYTES = 64 * 1024 * 1024
_MODULES_MAX = 200_000


@dataclass(frozen=True, slots=True)
class SiteModule:
    """One module of the plant."""

    asset: str
    east_cm: int
    north_cm: int
    label: str
    """"" for a healthy one."""


@dataclass(frozen=True, slots=True)
class SiteCell:
    """One piece of the survey: fly the lane from start to end."""

    cell_id: str
    east_cm: int
    north_cm: int
    start_cm: tuple[int, int]
    end_cm: tuple[int, int]


class Site:
    """Modules and cells, indexed by place.

    Args:
        modules: All modules.
        cells: The survey; may be empty.
        extent_cm: East and north size.
        module_m: Width and depth of every module; unless given those that the daemon takes where a map says nothing.
    """

    def __init__(
        self,
        modules: tuple[SiteModule, ...],
        cells: tuple[SiteCell, ...],
        extent_cm: tuple[int, int],
        module_m: tuple[float, float] = (1.0, 1.0),
    ) -> None:
        self.modules = modules
        self._module_m = module_m
        self.cells = cells
        self.cell_by_id = {cell.cell_id: cell for cell in cells}
        self.extent_cm = extent_cm
        self.faults = tuple(module for module in modules if module.label)
        self._squares: dict[tuple[int, int], list[SiteModule]] = {}
        for module in modules:
            square = (module.east_cm // SQUARE_CM, module.north_cm // SQUARE_CM)
            self._squares.setdefault(square, []).append(module)

    def near(self, east_cm: int, north_cm: int, radius_cm: int) -> Iterator[SiteModule]:
        """Modules whose centre is within a radius, in a fixed order.

        Args:
            east_cm: Centre.
            north_cm: Centre.
            radius_cm: Radius.

        Yields:
            The modules.
        """
        for x in range((east_cm - radius_cm) // SQUARE_CM, (east_cm + radius_cm) // SQUARE_CM + 1):
            for y in range((north_cm - radius_cm) // SQUARE_CM, (north_cm + radius_cm) // SQUARE_CM + 1):
                for module in self._squares.get((x, y), ()):
                    if (module.east_cm - east_cm) ** 2 + (module.north_cm - north_cm) ** 2 <= radius_cm**2:
                        yield module

    @cached_property
    def map(self) -> SiteMap:
        """The map of it that a daemon would load."""
        width_m, depth_m = self._module_m
        return SiteMap([Asset(m.asset, m.east_cm / 100, m.north_cm / 100, width_m, depth_m) for m in self.modules])

    def asset_at(self, east_cm: int, north_cm: int, within_cm: int = 110) -> str:
        """The asset that a position on the site map falls on: the nearest module, "" when there is none near."""
        best, best_d2 = "", within_cm * within_cm + 1
        for module in self.near(east_cm, north_cm, within_cm):
            d2 = (module.east_cm - east_cm) ** 2 + (module.north_cm - north_cm) ** 2
            if d2 < best_d2:
                best, best_d2 = module.asset, d2
        return best


def empty_site(extent_cm: tuple[int, int]) -> Site:
    """Ground with nothing on it."""
    return Site((), (), extent_cm)


def farm_site(seed: int, tables: int, modules: int, faults_ppm: int, cell_cm: int) -> Site:
    """The generated farm that `sim://farm` also renders.

    Args:
        seed: Of the farm.
        tables: Rows of modules, west to east.
        modules: Modules a table.
        faults_ppm: Share of faulty modules.
        cell_cm: Length of a cell of the survey.

    Returns:
        The site.
    """
    farm = Farm.build(seed=seed, tables=tables, modules=modules, faults=faults_ppm / MILLION, cell_m=cell_cm / 100)
    site_modules = tuple(SiteModule(m.asset, _cm(m.east_m), _cm(m.north_m), m.label) for m in farm.modules)
    cells = tuple(
        SiteCell(c.cell_id, _cm(c.east_m), _cm(c.north_m), _cm_pair(c.start), _cm_pair(c.end)) for c in farm.cells
    )
    return Site(site_modules, cells, _cm_pair(farm.extent_m), (MODULE_WIDTH_M, MODULE_DEPTH_M))


def file_site(path: Path, faults_ppm: int, cell_cm: int, choices: Choices) -> Site:
    """A surveyed plant from a CSV (may be gzipped) with the columns zone, table, panel, east_m, north_m.

    Args:
        path: The file.
        faults_ppm: Share of modules that are drawn to be faulty.
        cell_cm: Side of the square cells of the survey.
        choices: All randomness.

    Returns:
        The site, moved so that its south-west corner is the origin.

    Raises:
        ScenarioError: The file is missing, too large, or not such a table.
    """
    rows = _read_rows(path)
    west = min(row[1] for row in rows)
    south = min(row[2] for row in rows)
    modules = []
    for asset, east_cm, north_cm in rows:
        faulty = choices.chance("site.fault", faults_ppm)
        label = FAULT_LABELS[choices.choose("site.label", len(FAULT_LABELS))] if faulty else ""
        modules.append(SiteModule(asset, east_cm - west, north_cm - south, label))
    extent = (max(m.east_cm for m in modules), max(m.north_cm for m in modules))
    return Site(tuple(modules), _grid_cells(modules, cell_cm), extent)


def _read_rows(path: Path) -> list[tuple[str, int, int]]:
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw)[: _FILE_MAX_BYTES + 1]
    except OSError as error:
        raise ScenarioError(f"site.file {path}: {error.strerror or error}; give a CSV of panels") from error
    if len(text) > _FILE_MAX_BYTES:
        raise ScenarioError(
            f"site.file {path} is larger than {_FILE_MAX_BYTES >> 20} MiB unpacked; cut it to the plant"
        )
    rows: list[tuple[str, int, int]] = []
    reader = csv.DictReader(io.StringIO(text.decode("utf-8", errors="replace")))
    wanted = {"zone", "table", "panel", "east_m", "north_m"}
    if not wanted <= set(reader.fieldnames or ()):
        raise ScenarioError(f"site.file {path}: the columns must include {', '.join(sorted(wanted))}")
    for line, row in enumerate(reader, start=2):
        try:
            asset = f"{row['zone']}/{row['table']}/{row['panel']}"
            rows.append((asset, _cm(float(row["east_m"])), _cm(float(row["north_m"]))))
        except (TypeError, ValueError, OverflowError) as error:
            raise ScenarioError(f"site.file {path}:{line}: not a panel: {error}") from error
        if len(rows) > _MODULES_MAX:
            raise ScenarioError(f"site.file {path} has more than {_MODULES_MAX} panels; cut it to the plant")
    if not rows:
        raise ScenarioError(f"site.file {path} has no panels")
    return rows


def _grid_cells(modules: list[SiteModule], cell_cm: int) -> tuple[SiteCell, ...]:
    squares = sorted({(module.east_cm // cell_cm, module.north_cm // cell_cm) for module in modules})
    cells = []
    for number, (x, y) in enumerate(squares):
        east, north = x * cell_cm + cell_cm // 2, y * cell_cm + cell_cm // 2
        start, end = (east, y * cell_cm), (east, (y + 1) * cell_cm)
        cells.append(SiteCell(f"c{number:04d}", east, north, start, end))
    return tuple(cells)


def _cm(metres: float) -> int:
    return round(metres * 100)


def _cm_pair(metres: tuple[float, float]) -> tuple[int, int]:
    return _cm(metres[0]), _cm(metres[1])
