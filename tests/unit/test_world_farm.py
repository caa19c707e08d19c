"""The farm: the same for everybody, with the geometry and the faults that were asked for."""

import csv
import io
import json
import subprocess
import sys
from collections import Counter

import pytest

from swarmd_sim.world.farm import FAULT_KINDS, Farm


def test_same_seed_same_farm_other_seed_other_faults() -> None:
    assert Farm.build(seed=7) == Farm.build(seed=7)
    assert Farm.build(seed=7).truth() != Farm.build(seed=8).truth()
    assert [m.east_m for m in Farm.build(seed=7).modules] == [m.east_m for m in Farm.build(seed=8).modules]


def test_same_farm_in_another_process_with_another_hash_seed() -> None:
    code = "from swarmd_sim.world.farm import Farm; print([(f.asset, f.label) for f in Farm.build(seed=7).truth()])"
    out = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": "sim"},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert out[0] == out[1]


@pytest.mark.parametrize(("prevalence", "count"), [(0.0, 0), (0.02, 19), (0.025, 24), (1.0, 960)])
def test_the_number_of_faults_is_exact(prevalence: float, count: int) -> None:
    assert len(Farm.build(faults=prevalence).truth()) == count


def test_every_kind_of_fault_is_there() -> None:
    kinds = Counter(fault.label for fault in Farm.build(seed=3).truth())
    assert set(kinds) == set(FAULT_KINDS)
    assert max(kinds.values()) - min(kinds.values()) <= 1


def test_geometry_is_the_real_plants() -> None:
    farm = Farm.build(tables=3, modules=40)
    first, second, third = farm.modules[0], farm.modules[1], farm.modules[40]
    assert second.north_m - first.north_m == pytest.approx(0.99)
    assert third.east_m - first.east_m == pytest.approx(6.03)
    assert (first.asset, second.asset, third.asset) == ("t00-m00", "t00-m01", "t01-m00")


@pytest.mark.parametrize("tables", [1, 2, 7, 24])
@pytest.mark.parametrize("cell_m", [10.0, 20.0, 1000.0])
def test_cells_cover_every_module_once(tables: int, cell_m: float) -> None:
    farm = Farm.build(tables=tables, cell_m=cell_m)
    for module in farm.modules:
        inside = [
            cell
            for cell in farm.cells
            if cell.polygon[0][0] <= module.east_m <= cell.polygon[2][0]
            and cell.polygon[0][1] <= module.north_m < cell.polygon[2][1]
        ]
        assert len(inside) == 1
    assert len({cell.cell_id for cell in farm.cells}) == len(farm.cells)
    assert all(farm.cell(cell.cell_id) is cell for cell in farm.cells)
    assert farm.cell("c9999") is None


def test_wgs84_and_back() -> None:
    farm = Farm.build()
    assert farm.to_wgs84(0.0, 0.0) == farm.origin
    assert farm.to_plane(*farm.to_wgs84(123.4, 56.7)) == pytest.approx((123.4, 56.7), abs=1e-6)


def test_wgs84_agrees_with_the_eyes_geolocation() -> None:
    from swarmd_models.geo.geolocate import enu_m

    farm = Farm.build(tables=60)
    for module in farm.modules[:: len(farm.modules) // 7]:
        place = farm.to_wgs84(module.east_m, module.north_m)
        assert enu_m(*place, farm.origin) == pytest.approx((module.east_m, module.north_m), abs=0.002)


def test_asset_at_finds_the_module_below_a_point() -> None:
    farm = Farm.build()
    for module in farm.modules[::37]:
        assert farm.asset_at(module.east_m + 0.9, module.north_m - 0.4) == module.asset
    assert farm.asset_at(-50.0, 10.0) == ""
    between = farm.modules[0].east_m + 6.03 / 2
    assert farm.asset_at(between, 20.0, max_m=0.3) == ""


def test_site_maps_name_every_module_and_no_fault() -> None:
    farm = Farm.build(tables=2, modules=3, faults=0.5)
    rows = list(csv.DictReader(io.StringIO(farm.site_map_csv())))
    assert [row["asset"] for row in rows] == [m.asset for m in farm.modules]
    assert "label" not in rows[0]
    features = json.loads(farm.site_map_geojson())["features"]
    assert [f["properties"] for f in features] == [{"asset": m.asset} for m in farm.modules]
    assert all(f["geometry"]["coordinates"][0][0] == f["geometry"]["coordinates"][0][-1] for f in features)
    faults = json.loads(farm.truth_geojson())["features"]
    assert [f["properties"]["asset"] for f in faults] == [f.asset for f in farm.truth()]


@pytest.mark.parametrize(
    "wrong", [{"tables": 0}, {"tables": 601}, {"modules": 0}, {"faults": -0.1}, {"faults": 1.1}, {"cell_m": 0.0}]
)
def test_impossible_sizes_are_named(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Farm.build(**wrong)  # type: ignore[arg-type]
