"""The picture at the end of a demo: farm, truth, objects and the drones' paths, as PNG."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swarmd_sim.world.farm import Farm

WIDTH_PX = 1600
"""Pixels of the picture's width."""
MARGIN_M = 6.0
"""Metres of ground around the farm."""
_PAPER, _PANEL, _TRUTH, _OBJECT, _TEXT = (250, 248, 246), (214, 201, 190), (40, 40, 200), (60, 140, 30), (60, 50, 40)
_PATHS = ((190, 120, 40), (40, 150, 190), (150, 60, 150), (90, 160, 90), (60, 90, 220), (150, 150, 40))


def draw(
    path: Path, farm: "Farm", objects: Sequence[Mapping[str, Any]], paths: Sequence[Sequence[tuple[float, float]]]
) -> None:
    """Write the picture.

    Args:
        path: Where; its folder is made.
        farm: With modules and truth.
        objects: Rows of the control verb `objects`.
        paths: (east, north) in metres, drone by drone.

    Raises:
        OSError: The file cannot be written.
    """
    import cv2
    import numpy as np

    east_m, north_m = farm.extent_m
    scale = WIDTH_PX / (east_m + 2 * MARGIN_M)
    height = int((north_m + 2 * MARGIN_M) * scale) + 40
    picture = np.full((height, WIDTH_PX, 3), _PAPER, np.uint8)

    def place(east: float, north: float) -> tuple[int, int]:
        return int((east + MARGIN_M) * scale), int(height - 40 - (north + MARGIN_M) * scale)

    for module in farm.modules:
        low = place(module.east_m - module.width_m / 2, module.north_m - module.depth_m / 2)
        high = place(module.east_m + module.width_m / 2, module.north_m + module.depth_m / 2)
        cv2.rectangle(picture, low, high, _PANEL, 1)
    for number, steps in enumerate(paths):
        points = np.array([place(*step) for step in steps], np.int32).reshape(-1, 1, 2)
        if len(points) > 1:
            cv2.polylines(picture, [points], False, _PATHS[number % len(_PATHS)], 1, cv2.LINE_AA)
    for fault in farm.truth():
        cv2.circle(picture, place(fault.east_m, fault.north_m), int(1.3 * scale), _TRUTH, 2, cv2.LINE_AA)
    for row in objects:
        if row["east_m"] is not None:
            cv2.circle(picture, place(row["east_m"], row["north_m"]), int(0.5 * scale), _OBJECT, -1, cv2.LINE_AA)
    text = (
        f"red ring: true fault ({len(farm.truth())})   green dot: object of the swarm ({len(objects)})   lines: drones"
    )
    cv2.putText(picture, text, (12, height - 14), cv2.FONT_HERSHEY_SIMPLEX, 0.55, _TEXT, 1, cv2.LINE_AA)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not cv2.imwrite(str(path), picture):
        raise OSError(f"{path}: the picture cannot be written")
