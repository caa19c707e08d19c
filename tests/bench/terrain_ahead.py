"""How long a frame waits for heights while a drone flies over a fine survey: `python -m tests.bench.terrain_ahead`."""

import math
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from swarmd_models.geo.ahead import ReadAhead
from swarmd_models.geo.apart import apart
from swarmd_models.geo.geolocate import offset
from swarmd_models.geo.heights import open_heights
from swarmd_models.geo.poses import make_pose
from swarmd_models.geo.terrain import Terrain, TerrainRule
from tests.support.relief import write_tiff

SIDE = 6_000
"""Heights along a side: 6 km at a metre."""
FRAME_S = 0.02
"""Seconds between frames: 50 a second."""
FRAMES = 900
SPEED_M_S = 80.0
"""Metres a second, so that several patches are read while it runs."""


def main() -> None:
    """Fly north over a GeoTIFF in UTM 32, and print what frames waited and what was placed."""
    rows, columns = np.mgrid[0:SIDE, 0:SIDE]
    heights = (400.0 + 20.0 * np.sin(rows / 90.0) * np.cos(columns / 70.0)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "survey.tif"
        packed = {"compress": "deflate", "tiled": True, "blockxsize": 512, "blockysize": 512}
        write_tiff(path, heights, "EPSG:32632", (497_000.0, 5_243_000.0), (1.0, 1.0), **packed)
        start = (47.325, 9.0)
        waited, placed, began = [], 0, time.monotonic()
        late: list[bool] = []
        reader = ReadAhead(apart(open_heights(path), path))
        terrain = Terrain(reader, TerrainRule(str(path), 0.3))
        for number in range(FRAMES):
            where = offset(*start, 0.0, SPEED_M_S * number * FRAME_S)
            pose = make_pose(number, *where, 60.0, 0.0, -60.0, 0.0)
            cpu, wall = time.thread_time(), time.perf_counter()
            placed += terrain.stand(pose).ground_m is not None
            waited.append((time.perf_counter() - wall, time.thread_time() - cpu))
            if waited[-1][0] > 0.005:
                late.append(threading.active_count() > 1)
            time.sleep(max(0.0, began + (number + 1) * FRAME_S - time.monotonic()))
        walls = sorted(wall for wall, _ in waited)
        print(
            f"{FRAMES} frames, {placed} placed; stand: p50 {walls[len(walls) // 2] * 1e3:.3f} ms, p99 "
            f"{walls[math.ceil(len(walls) * 0.99) - 1] * 1e3:.3f} ms, most {walls[-1] * 1e3:.2f} ms, CPU at most "
            f"{max(cpu for _, cpu in waited) * 1e3:.2f} ms; {sum(late)} above 5 ms "
            f"while heights were read and {len(late) - sum(late)} while none were"
        )
        alone = Terrain(open_heights(path), TerrainRule(str(path), 0.3))
        wall = time.perf_counter()
        alone.stand(make_pose(0, *start, 60.0, 0.0, -60.0, 0.0))
        print(f"the same patch read while the frame waits: {(time.perf_counter() - wall) * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
