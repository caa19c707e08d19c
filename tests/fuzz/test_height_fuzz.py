"""Height models of damaged bytes are read or refused, and whatever they say, a ray ends."""

import math
import os
import random
from pathlib import Path

import numpy as np
import pytest

from swarmd_models.errors import SourceError
from swarmd_models.geo.geolocate import MAX_RANGE_M, Intrinsics, ray_to_ground
from swarmd_models.geo.heights import HEIGHTS_M, open_heights
from swarmd_models.geo.poses import make_pose
from swarmd_models.geo.terrain import Terrain, TerrainRule
from tests.support.relief import write_hgt, write_tiff

ROUNDS = int(os.environ.get("SWARMD_FUZZ_ROUNDS", "300"))
CAMERA = Intrinsics.from_hfov(60.0, 640, 512)


def _looked(path: Path, rng: random.Random) -> bool:
    """Whether anything was placed over a height model; raises what it should not."""
    try:
        terrain = Terrain(open_heights(path), TerrainRule(str(path), 4.0))
    except SourceError:
        return False
    placed = False
    for _ in range(3):
        angles = rng.uniform(0, 360), rng.uniform(-90, 0), rng.uniform(-10, 10)
        pose = terrain.stand(make_pose(0, rng.uniform(47.45, 47.55), rng.uniform(8.45, 8.55), 60.0, *angles))
        assert (pose.ground_m is None) == bool(terrain.problem)
        assert pose.ground_m is None or HEIGHTS_M[0] <= pose.ground_m <= HEIGHTS_M[1]
        fix = ray_to_ground(CAMERA, pose, rng.uniform(0, 640), rng.uniform(0, 512), 2.0, terrain)
        if fix is None:
            continue
        placed = True
        assert pose.ground_m is not None
        assert math.hypot(fix.east_m, fix.north_m) <= MAX_RANGE_M
        assert all(math.isfinite(value) for value in (*fix.pixel_m2, *fix.attitude_m2, *fix.bias_m2))
        assert min(fix.attitude_m2[0], fix.attitude_m2[2], fix.bias_m2[0], fix.bias_m2[2]) > 0.0
    return placed


def test_tiles_of_any_heights(tmp_path: Path) -> None:
    """Noise, voids and cliffs: every 16-bit number at any place."""
    rng, numbers = random.Random(1), np.random.default_rng(1)
    path = write_hgt(tmp_path, 47, 8, lambda latitude, longitude: np.float64(400.0))
    whole = np.frombuffer(path.read_bytes(), ">i2").reshape(1201, 1201)
    placed = 0
    for _ in range(ROUNDS // 10):
        damaged = whole.copy()
        share = rng.choice((0.001, 0.01, 0.3))
        at = numbers.random((220, 220)) < share
        wild = (
            numbers.integers(-32768, 32768, (220, 220))
            if rng.random() < 0.5
            else numbers.integers(350, 460, (220, 220))
        )
        damaged[500:720, 500:720][at] = wild[at]
        path.write_bytes(damaged.tobytes()[: rng.choice((None, None, None, rng.randrange(2 * 1201**2)))])
        placed += _looked(path, rng)
    assert placed > ROUNDS // 100


def test_geotiffs_of_damaged_bytes(tmp_path: Path) -> None:
    pytest.importorskip("rasterio", reason="rasterio is not here (pip install 'swarmd[terrain]')")
    rng = random.Random(2)
    heights = np.random.default_rng(2).uniform(380, 420, (120, 120)).astype(np.float32)
    good = write_tiff(
        tmp_path / "good.tif", heights, "EPSG:4326", (8.45, 47.55), (1 / 1200, 1 / 1200), compress="deflate", tiled=True
    ).read_bytes()
    path, placed = tmp_path / "damaged.tif", 0
    for _ in range(ROUNDS // 3):
        damaged = bytearray(good)
        for _ in range(rng.randrange(1, 6)):
            # Most of a file is packed pixels; its header and its tags stand at the ends.
            reach = rng.choice((8, 400, len(damaged)))
            damaged[rng.choice((1, -1)) * rng.randrange(1, reach)] = rng.randrange(256)
        path.write_bytes(damaged[: rng.choice((None, None, rng.randrange(len(damaged))))])
        placed += _looked(path, rng)
    assert placed > ROUNDS // 30
