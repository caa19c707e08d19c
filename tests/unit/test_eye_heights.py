"""Height models from files: SRTM's tiles across their edges, GeoTIFFs in degrees and metres, and what is refused."""

import dataclasses
import json
import math
import random
from pathlib import Path

import numpy as np
import pytest

from swarmd.cli.detect import _SIGMA_M
from swarmd.cli.main import main
from swarmd.config.sections import PoseSection
from swarmd.eye.ground import SIGMA_MAX_M, open_terrain
from swarmd.eye.ipc import TerrainWords
from swarmd_models.errors import SourceError
from swarmd_models.geo.geolocate import offset
from swarmd_models.geo.heights import MAX_PATCH_SIDE, GeoTiff, HeightReader, HgtTiles, is_near_middle, open_heights
from swarmd_models.geo.poses import make_pose
from swarmd_models.geo.terrain import Terrain, TerrainRule
from tests.support.relief import write_hgt, write_tiff

RNG = random.Random(11)
_PACKED = {"compress": "deflate", "tiled": True, "blockxsize": 512, "blockysize": 512, "interleave": "pixel"}
TIFF = pytest.mark.skipif("not __import__('importlib.util').util.find_spec('rasterio')", reason="rasterio is not here")


def _surface(latitude: float, longitude: float) -> float:
    return 400.0 + 9000.0 * (latitude - 47.0) + 5000.0 * (longitude - 8.0)


def _height(reader: HeightReader | Terrain, latitude: float, longitude: float) -> float:
    terrain = reader if isinstance(reader, Terrain) else Terrain(reader, TerrainRule("m", 0.0))
    pose = terrain.stand(make_pose(0, latitude, longitude, 50.0, 0.0, -90.0, 0.0))
    return math.nan if pose.ground_m is None else pose.ground_m


def test_tiles_are_one_ground_across_their_edges(tmp_path: Path) -> None:
    for south, west in ((46, 7), (46, 8), (47, 7), (47, 8)):
        write_hgt(tmp_path, south, west, _surface)
    reader = open_heights(tmp_path)
    for _ in range(30):
        where = 47.0 + RNG.uniform(-0.02, 0.02), 8.0 + RNG.uniform(-0.02, 0.02)
        assert _height(reader, *where) == pytest.approx(_surface(*where), abs=0.6), "heights are whole metres"
    patch = reader.patch(47.0, 8.0)
    assert np.isfinite(patch.heights_m).all()
    alone = open_heights(tmp_path / "N47E008.hgt").patch(47.0, 8.0)
    rows, columns = alone.heights_m.shape
    assert np.isinf(alone.heights_m).sum() > rows * columns / 2
    assert np.isfinite(alone.heights_m).sum() > rows * columns / 5


def test_southern_and_western_tiles_and_finer_ones(tmp_path: Path) -> None:
    path = write_hgt(tmp_path, -19, -71, lambda latitude, longitude: 100.0 + 1000 * (latitude + 19), side=3601)
    assert path.name == "S19W071.hgt"
    assert _height(HgtTiles(path), -18.25, -70.25) == pytest.approx(850.0, abs=0.6)
    assert is_near_middle(HgtTiles(path).patch(-18.25, -70.25), *offset(-18.25, -70.25, 300.0, 300.0))
    assert not is_near_middle(HgtTiles(path).patch(-18.25, -70.25), *offset(-18.25, -70.25, 600.0, 0.0))


def test_a_void_is_a_void_and_nothing_near_it_is_bent(tmp_path: Path) -> None:
    path = write_hgt(tmp_path, 47, 8, lambda latitude, longitude: 400.0)
    raw = np.fromfile(path, ">i2").reshape(1201, 1201)
    raw[600, 600] = -32768
    raw.tofile(path)
    reader = open_heights(path)
    assert math.isnan(_height(reader, 47.5 + 0.3 / 1200, 8.5 + 0.3 / 1200))
    assert _height(reader, 47.5 + 1.1 / 1200, 8.5) == pytest.approx(400.0)


@pytest.mark.parametrize(
    ("name", "size", "why"),
    [
        ("N47E008.hgt", 100, "has 100 bytes; an .hgt tile has 2,884,802 or 25,934,402"),
        ("alps.hgt", 2 * 1201 * 1201, "named by its south-western corner"),
        ("N95E008.hgt", 2 * 1201 * 1201, "no place on earth"),
        ("N47E008.png", 100, "give NAME.hgt, a folder of .hgt tiles, or a GeoTIFF"),
    ],
)
def test_files_that_are_no_tiles(tmp_path: Path, name: str, size: int, why: str) -> None:
    (tmp_path / name).write_bytes(bytes(size))
    with pytest.raises(SourceError, match=why):
        open_heights(tmp_path / name)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    for name in ("N47E008.hgt", "missing.hgt", "missing.tif", "missing"):
        with pytest.raises(SourceError, match=f"cannot read height model .*{name}: no such file or folder"):
            open_heights(tmp_path / name)


def test_a_tile_that_was_cut_off_since(tmp_path: Path) -> None:
    path = write_hgt(tmp_path, 47, 8, lambda latitude, longitude: 400.0)
    terrain = Terrain(open_heights(path), TerrainRule(str(path), 0.0))
    path.write_bytes(b"")
    pose = make_pose(0, 47.2, 8.2, 50.0, 0.0, -90.0, 0.0)
    assert terrain.stand(pose) == pose
    assert "was cut off" in terrain.problem


def test_two_resolutions_and_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"no \.hgt tile"):
        open_heights(tmp_path)
    (tmp_path / "N47E008.hgt").write_bytes(bytes(2 * 1201 * 1201))
    (tmp_path / "N47E009.hgt").write_bytes(bytes(2 * 3601 * 3601))
    with pytest.raises(SourceError, match="two resolutions"):
        open_heights(tmp_path)


@TIFF
def test_a_geotiff_in_degrees(tmp_path: Path) -> None:
    step = 1 / 3600
    latitudes, longitudes = 47.3 - (np.arange(400) + 0.5) * step, 8.5 + (np.arange(500) + 0.5) * step
    heights = (400.0 + 9000 * (latitudes[:, None] - 47) + 5000 * (longitudes[None, :] - 8)).astype(np.float32)
    reader = open_heights(write_tiff(tmp_path / "h.tif", heights, "EPSG:4326", (8.5, 47.3), (step, step)))
    for _ in range(20):
        where = RNG.uniform(47.21, 47.28), RNG.uniform(8.52, 8.62)
        assert _height(reader, *where) == pytest.approx(_surface(*where), abs=0.1)
    assert math.isnan(_height(reader, 47.5, 8.5))


@TIFF
def test_a_geotiff_in_metres_of_a_survey(tmp_path: Path) -> None:
    """A metre's grid in UTM, finer than a patch is kept: read coarser, where its coordinates say."""
    from rasterio.warp import transform

    x, y = transform("EPSG:4326", "EPSG:32632", [8.6], [47.3])
    east = np.arange(4000) * 1.0 - 2000 + 0.5
    heights = (500.0 + 0.1 * east[None, :] - 0.2 * east[:, None]).astype(np.float32)
    path = write_tiff(tmp_path / "h.tif", heights, "EPSG:32632", (x[0] - 2000, y[0] + 2000), (1.0, 1.0), tiled=True)
    reader = open_heights(path)
    terrain = Terrain(reader, TerrainRule("m", 0.0))
    assert reader.patch(47.3, 8.6).heights_m.shape == (MAX_PATCH_SIDE, MAX_PATCH_SIDE)
    for _ in range(10):
        de, dn = RNG.uniform(-250, 250), RNG.uniform(-250, 250)
        lon, lat = transform("EPSG:32632", "EPSG:4326", [x[0] + de], [y[0] + dn])
        assert _height(terrain, lat[0], lon[0]) == pytest.approx(500.0 + 0.1 * de + 0.2 * dn, abs=0.1)


@TIFF
@pytest.mark.parametrize("declared", [True, False])
def test_a_geotiffs_void_is_not_mixed_into_its_neighbours(tmp_path: Path, declared: bool) -> None:
    step = 1 / 3600
    heights = np.full((300, 300), 400.0, np.float32)
    heights[150, 150] = -9999.0
    more = {"nodata": -9999.0} if declared else {}
    reader = open_heights(write_tiff(tmp_path / "h.tif", heights, "EPSG:4326", (8.5, 47.3), (step, step), **more))
    patch = reader.patch(47.3 - 150.5 * step, 8.5 + 150.5 * step)
    known = patch.heights_m[np.isfinite(patch.heights_m)]
    assert np.allclose(known, 400.0), "no slope that is none"
    assert 1 <= np.isnan(patch.heights_m).sum() <= 16


@TIFF
def test_geotiffs_that_are_refused(tmp_path: Path) -> None:
    flat = np.zeros((10, 10), np.float32)
    good = write_tiff(tmp_path / "good.tif", flat, "EPSG:4326", (8.5, 47.3), (0.001, 0.001))
    (tmp_path / "junk.tif").write_bytes(b"II*\0" + bytes(100))
    (tmp_path / "half.tif").write_bytes(good.read_bytes()[:200])
    wide = np.zeros((18, 999_999), np.int8)
    write_tiff(tmp_path / "wide.tif", wide, "EPSG:4326", (0, 50), (1e-6, 1e-6), compress="deflate", blockysize=18)
    # Bands that are interleaved are read together: what a kilobyte unpacks to has no bound but their number.
    many = tmp_path / "many.tif"
    write_tiff(many, np.zeros((512, 512), np.int16), "EPSG:4326", (8.5, 47.3), (0.001, 0.001), count=40, **_PACKED)
    bands = np.zeros((1, 1), np.int8)
    write_tiff(tmp_path / "bands.tif", bands, "EPSG:4326", (8.5, 47.3), (0.001, 0.001), count=65)
    write_tiff(tmp_path / "nowhere.tif", flat, "", (0, 0), (2.0, 2.0))
    write_tiff(tmp_path / "complex.tif", flat.astype(np.complex64), "EPSG:4326", (8.5, 47.3), (0.001, 0.001))
    for name, why in (
        ("junk.tif", "cannot be used"),
        ("half.tif", "cannot be used"),
        ("nowhere.tif", "does not say where it lies"),
        ("complex.tif", "complex"),
        ("wide.tif", "a block of 999999 x 18 is more than 16 MiB"),
        ("many.tif", "a block of 512 x 512 x 40 is more than 16 MiB"),
        ("bands.tif", "it has 65 bands, more than 64"),
        ("missing.tif", "no such file"),
    ):
        with pytest.raises(SourceError, match=why):
            GeoTiff(tmp_path / name)


@TIFF
def test_heights_in_feet_are_refused(tmp_path: Path) -> None:
    import rasterio

    path = write_tiff(tmp_path / "h.tif", np.zeros((9, 9), np.float32), "EPSG:4326", (8.5, 47.3), (0.001, 0.001))
    with rasterio.open(path, "r+") as file:
        file.units = ("ft",)
    with pytest.raises(SourceError, match="in ft, not in metres"):
        GeoTiff(path)


def test_home_and_error_are_judged_when_it_opens(tmp_path: Path) -> None:
    path = str(write_hgt(tmp_path, 47, 8, lambda latitude, longitude: 400.0))
    assert open_terrain(TerrainWords()) is None
    assert open_terrain(TerrainWords(path, 4.0, "47.5,8.5")) is not None
    with pytest.raises(SourceError, match=r"does not know the height of home \(outside\)"):
        open_terrain(TerrainWords(path, 4.0, "48.5,8.5"))
    with pytest.raises(SourceError, match="give LAT,LON"):
        open_terrain(TerrainWords(path, 4.0, "48.5"))
    with pytest.raises(SourceError, match="height model: a,b is no LAT,LON; give"):
        open_terrain(TerrainWords(path, 4.0, "a,b"))
    for sigma_m in (math.nan, math.inf, -1.0, SIGMA_MAX_M + 1):
        with pytest.raises(SourceError, match=f"error of {sigma_m:g} m; give 0 to 1000"):
            open_terrain(TerrainWords(path, sigma_m))


def test_the_flag_and_the_key_have_one_bound() -> None:
    (sigma,) = (field for field in dataclasses.fields(PoseSection) if field.name == "terrain_sigma_m")
    assert sigma.metadata["high"] == SIGMA_MAX_M
    assert sigma.default == _SIGMA_M


@pytest.mark.parametrize("flag", [("--terrain-home", "47,8"), ("--terrain-sigma", "5"), ("--terrain-unknown", "level")])
def test_flags_about_no_height_model_are_refused(flag: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["detect", "--source", "sim://farm", "--max-frames", "1", *flag]) == 1
    assert "give --terrain" in capsys.readouterr().err


def test_detect_places_on_a_slope(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The whole eye on a rendered farm's frame, over level ground, over a slope, and where the model ends."""
    import cv2

    from swarmd_sim.world.source import open_source

    frames = tmp_path / "frames"
    frames.mkdir()
    source = open_source("sim://farm?seed=3&faults=0.4")
    try:
        pictures = [source.read() for _ in range(10)]
    finally:
        source.close()
    for index in range(6):
        cv2.imwrite(str(frames / f"{index}.png"), pictures[-1].image)  # type: ignore[union-attr]
    path = write_hgt(tmp_path, 47, 8, lambda latitude, longitude: 400 + 30_000 * (latitude - 47.0))
    base = ["detect", "--source", str(frames), "--json", "--tracks", "--hfov", "60", "--threshold", "0.05"]
    places = []
    for more in ([], ["--terrain", str(path)], ["--terrain", str(path), "--terrain-unknown", "level"]):
        where = "47.2,8.2" if len(more) < 3 else "48.2,8.2"
        assert main([*base, "--pose", f"fixed:{where},30,0,-60,0", *more]) == 0
        said = capsys.readouterr()
        rows = [json.loads(line) for line in said.out.splitlines()]
        found = [track for row in rows for track in row["tracks"] if "latitude_deg" in track]
        places.append(sorted(track["latitude_deg"] for track in found))
        assert ("outside of height model" in said.err) == (len(more) > 2)
    assert places[0]
    assert len(places[0]) == len(places[1]) == len(places[2])
    assert all(47.2 < slope < level for level, slope in zip(*places[:2], strict=True)), "uphill the ray ends sooner"
    assert main([*base, "--pose", "fixed:48.2,8.2,30,0,-60,0", "--terrain", str(path)]) == 0
    assert "latitude_deg" not in capsys.readouterr().out
