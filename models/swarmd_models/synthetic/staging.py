"""Shows given crops to a model as in flight: at nominal scale, among healthy modules of their own level, in one frame.

Six crops share a frame, each with two healthy modules or more between it and the next. Crops keep their own grey
levels; the neighbours are chosen to match. Nothing depends on the judged crops' labels.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from swarmd_models.synthetic.compose import (
    MODULE_COLUMNS,
    MODULE_DEPTH_M,
    MODULE_ROWS,
    MODULE_WIDTH_M,
    TABLE_PITCH_M,
    TEXEL_M,
    Grey,
    NoiseBank,
    Sensor,
    ground_texture,
    look,
    module_box,
    pixel_to_ground,
    place_module,
    rotation_from_euler,
    view_bounds,
)
from swarmd_models.synthetic.scenes import Lens, SceneOptions
from swarmd_models.synthetic.thermal import NORMAL_LABEL, Crops, Patch

PER_FRAME = 6
"""Real crops shown in one frame: so few that none hides another."""
_ROWS_APART = 3
"""Rows between two of them."""
_TILT_RAD = 0.06
"""Radians that the camera looks ahead, as in flight."""
_MARGIN_M, _FLOWN_MARGIN_M = 0.5, 3.0
"""Ground laid out beside the view: where a camera looks from elsewhere, as much for all of them, so that all see the
same neighbours."""
_SENSOR = Sensor(blur_px=0.3, noise_levels=0.5, vignette_levels=2.0)
"""Real crops bring their own camera's noise; little is added."""


@dataclass(frozen=True, slots=True)
class Staging:
    """Under which conditions crops are shown."""

    sensor: Sensor = _SENSOR
    noise: tuple[int, ...] = ()
    """Seed of the noise, beside that of the neighbours; (): theirs."""
    ahead_m: float = 0.0
    """How far the camera has flown on."""
    yaw_rad: float = 0.0
    height: float = 1.0
    """Factor on the height."""
    contrast: float = 1.0
    """Factor on what a module shows beside its own level: less sun, less of it."""


@dataclass(frozen=True, slots=True)
class StagedFrame:
    """One frame and where the judged crops are in it."""

    image: Grey
    crops: tuple[int, ...]
    boxes: npt.NDArray[np.float32]
    """Shape (judged, 4): x1, y1, x2, y2."""


def stage_crops(
    crops: Crops, judged: npt.NDArray[np.int64], options: SceneOptions, seed: int = 1, staging: Staging | None = None
) -> Iterator[StagedFrame]:
    """Compose the frames in which crops are judged.

    Args:
        crops: Where the crops and their healthy neighbours come from.
        judged: Indices of the crops to be judged.
        options: Size and nominal scale of a frame.
        seed: Of neighbours and noise.
        staging: How they are looked at; None: as `evaluate` does.

    Yields:
        Frames of up to six judged crops, darkest first; together they hold each once.
    """
    margin_m = _MARGIN_M if staging is None else _FLOWN_MARGIN_M
    staging = staging or Staging()
    medians = np.median(crops.images.reshape(len(crops.images), -1), axis=1)
    healthy = crops.where(NORMAL_LABEL)
    healthy = healthy[np.argsort(medians[healthy], kind="stable")]
    order = judged[np.argsort(medians[judged], kind="stable")]
    lens = Lens.nominal(options.width, options.height, options.height_m, options.pixel_m)
    noise = NoiseBank(options.width, options.height, np.random.default_rng([seed, 6, *staging.noise]))
    nominal = _to_ground(lens, options.height_m, Staging())
    bounds = view_bounds(nominal, options.width, options.height, margin_m)
    to_ground = _to_ground(lens, options.height_m, staging)
    to_pixel = np.asarray(np.linalg.inv(to_ground), dtype=np.float64)
    for start in range(0, len(order), PER_FRAME):
        group = order[start : start + PER_FRAME]
        rng = np.random.default_rng([seed, 7, start])
        plan, west, north, centres = _plan(crops, group, healthy, medians, bounds, rng, staging.contrast)
        if staging.noise:
            rng = np.random.default_rng([seed, 7, start, *staging.noise])
        image = noise.apply(look(plan, west, north, to_ground, options.width, options.height), staging.sensor, rng)
        boxes = np.array([module_box(to_pixel, *centre) for centre in centres], dtype=np.float32)
        yield StagedFrame(image, tuple(int(i) for i in group), boxes)


def _to_ground(lens: Lens, height_m: float, staging: Staging) -> npt.NDArray[np.float64]:
    height_m *= staging.height
    ahead_m = height_m * float(np.tan(_TILT_RAD)) - staging.ahead_m
    rotation = rotation_from_euler(staging.yaw_rad, -np.pi / 2 + _TILT_RAD, 0.0)
    return pixel_to_ground(lens, rotation, 0.0, -ahead_m, height_m)


def _plan(
    crops: Crops,
    group: npt.NDArray[np.int64],
    healthy: npt.NDArray[np.int64],
    medians: npt.NDArray[np.float64],
    bounds: tuple[float, float, float, float],
    rng: np.random.Generator,
    contrast: float,
) -> tuple[Grey, float, float, list[tuple[float, float]]]:
    """Two tables side by side through the middle of the view, the judged crops three rows apart."""
    west, south, east, north = bounds
    level = float(medians[group].mean())
    plan = ground_texture(
        int((north - south) / TEXEL_M) + 1,
        int((east - west) / TEXEL_M) + 1,
        float(np.clip(level + 25, 20, 235)),
        rng,
        0.0,
    )
    near = int(np.searchsorted(medians[healthy], level))
    low, high = max(near - 60, 0), min(near + 60, len(healthy))
    neighbours = np.setdiff1d(healthy[low:high], group)
    if not len(neighbours):
        neighbours = healthy if len(healthy) else group
    slots = [(side, row * _ROWS_APART) for row in (0, -1, 1) for side in (-0.5, 0.5)]
    judged = dict(zip(slots, group, strict=False))
    centres: dict[tuple[float, int], tuple[float, float]] = {}
    reach = int((north - south) / MODULE_DEPTH_M / 2) + 2
    for side in (-0.5, 0.5):
        for row in range(-reach, reach + 1):
            crop = judged.get((side, row))
            index = int(neighbours[int(rng.integers(len(neighbours)))]) if crop is None else int(crop)
            east_m, north_m = side * TABLE_PITCH_M, row * MODULE_DEPTH_M
            top = round((north - north_m - MODULE_DEPTH_M / 2) / TEXEL_M)
            left = round((east_m - MODULE_WIDTH_M / 2 - west) / TEXEL_M)
            patch, own = crops.patch(index)
            place_module(plan, to_module(patch) * np.float32(contrast), own if crop is not None else level, top, left)
            centres[(side, row)] = (east_m, north_m)
    return np.asarray(np.clip(plan, 0, 255), dtype=np.uint8), west, north, [centres[slot] for slot in judged]


def to_module(patch: Patch) -> Patch:
    """A crop's patch at the size of a module on the plan."""
    resized = cv2.resize(np.ascontiguousarray(patch), (MODULE_COLUMNS, MODULE_ROWS), interpolation=cv2.INTER_LINEAR)
    return np.asarray(resized, dtype=np.float32)
