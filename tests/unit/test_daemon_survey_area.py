"""The survey area as cells: from a polygon, from the site map, and every file that is neither."""

import json
from pathlib import Path

import pytest

from swarmd_models.errors import SiteError
from swarmd_models.geo.positions import Plane
from swarmd_models.geo.survey import cells_of_assets, cells_of_polygon, load_survey

PLANE = Plane(-18.8856864, -70.1124341)


def polygon(corners_m: list[tuple[float, float]]) -> dict[str, object]:
    ring = [list(reversed(PLANE.to_wgs84(east, north))) for east, north in corners_m]
    return {"type": "Polygon", "coordinates": [[*ring, ring[0]]]}


def test_a_square_is_cut_into_squares() -> None:
    cells = cells_of_polygon([(0, 0), (40, 0), (40, 40), (0, 40)], 20)
    assert cells == (("x0y0", 1000, 1000), ("x1y0", 3000, 1000), ("x0y1", 1000, 3000), ("x1y1", 3000, 3000))


def test_what_lies_outside_of_a_bent_polygon_is_no_cell() -> None:
    bent = [(0, 0), (60, 0), (60, 20), (20, 20), (20, 60), (0, 60)]
    names = {name for name, _, _ in cells_of_polygon(bent, 20)}
    assert names == {"x0y0", "x1y0", "x2y0", "x0y1", "x0y2"}


@pytest.mark.parametrize("wrap", ["geometry", "feature", "collection"])
def test_a_polygon_in_degrees_gives_the_cells_of_the_plane(tmp_path: Path, wrap: str) -> None:
    shape: dict[str, object] = polygon([(1, 1), (39, 1), (39, 39), (1, 39)])
    if wrap != "geometry":
        shape = {"type": "Feature", "properties": {}, "geometry": shape}
    if wrap == "collection":
        shape = {"type": "FeatureCollection", "features": [shape]}
    path = tmp_path / "area.geojson"
    path.write_text(json.dumps(shape))
    assert [name for name, _, _ in load_survey(path, PLANE, 20)] == ["x0y0", "x1y0", "x0y1", "x1y1"]


def test_assets_give_the_squares_that_hold_one() -> None:
    assert [name for name, _, _ in cells_of_assets([(1, 1), (2, 3), (-1, 45)], 20)] == ["x0y0", "x-1y2"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "no GeoJSON"),
        ('{"type": "Point", "coordinates": [1, 2]}', "is a Point"),
        ('{"type": "FeatureCollection", "features": []}', "exactly one"),
        ('{"type": "Polygon", "coordinates": [[[1, 2], [3, 4]]]}', "3 to"),
        ('{"type": "Polygon", "coordinates": [[[1, 200], [3, 4], [5, 6]]]}', "on Earth"),
        ('{"type": "Polygon", "coordinates": [[["a", 2]]]}', "no GeoJSON"),
    ],
)
def test_a_file_that_is_no_area_is_named_with_the_reason(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "area.geojson"
    path.write_text(text)
    with pytest.raises(SiteError, match=says) as error:
        load_survey(path, PLANE, 20)
    assert "area.geojson" in str(error.value)


def test_too_many_cells_and_no_cell_and_no_origin(tmp_path: Path) -> None:
    with pytest.raises(SiteError, match="cell_m larger"):
        cells_of_polygon([(0, 0), (1e5, 0), (1e5, 1e5)], 1)
    with pytest.raises(SiteError, match="0 cells"):
        cells_of_polygon([(0, 0), (1, 0), (1, 1)], 20)
    with pytest.raises(SiteError, match=r"node\.origin"):
        load_survey(tmp_path / "area.geojson", None, 20)


def test_a_csv_of_cells_is_still_one(tmp_path: Path) -> None:
    path = tmp_path / "cells.csv"
    path.write_text("cell_id,east_m,north_m\na,1,2\n")
    assert load_survey(path, PLANE, 20) == (("a", 100, 200),)
