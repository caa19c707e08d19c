"""Training and evaluation frames: plant geometry, modules on it, a camera over it, and what is true of the frame.

One scene is made from one generator, so frame `i` of seed `s` is the same on every machine and in every order. Modules
come from real crops or are drawn by procedure; a frame holds one kind only, as a camera sees one plant.
"""

from dataclasses import dataclass

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
    project,
    rotation_from_euler,
    view_bounds,
)
from swarmd_models.synthetic.pool import CropPool
from swarmd_models.synthetic.thermal import FAULT_LABELS, NORMAL_LABEL, Crops, Patch, draw_module


@dataclass(frozen=True, slots=True)
class Lens:
    """Intrinsics of the nominal camera, pixels."""

    fx: float
    fy: float
    cx: float
    cy: float

    @classmethod
    def nominal(cls, width: int, height: int, height_m: float, texel_m: float) -> "Lens":
        """The lens for which one pixel is `texel_m` on the ground straight below `height_m`."""
        focal = height_m / texel_m
        return cls(focal, focal, width / 2.0, height / 2.0)


@dataclass(frozen=True, slots=True)
class SceneOptions:
    """How frames are composed; the `[scene]` table of a recipe."""

    width: int = 320
    height: int = 256
    height_m: float = 25.0
    pixel_m: float = 0.045
    """Ground per pixel at the nominal height."""
    fault_share: float = 0.3
    """Of the modules in a training frame; far above a real plant's, so that every frame teaches."""
    plain_share: float = 0.15
    """Frames with the prevalence of a real plant (2 %), some of them without a module."""
    real_share: float = 0.7
    """Frames made of real crops, where there are any."""
    dense_share: float = 0.65
    """Frames with tables close together, as other sites have them; they teach more a second."""
    scale_jitter: float = 0.18
    max_tilt_rad: float = 0.2


@dataclass(slots=True)
class Scene:
    """One composed frame and its truth."""

    image: Grey
    boxes: npt.NDArray[np.float32]
    """Shape (n, 4): x1, y1, x2, y2 of every module whose centre is in the frame."""
    label_index: npt.NDArray[np.int64]
    """Shape (n,): index into `FAULT_LABELS`, -1 for a healthy module."""
    crop_index: npt.NDArray[np.int64]
    """Shape (n,): which real crop it was, -1 when drawn."""
    real: bool = False


@dataclass(slots=True)
class _Module:
    east_m: float
    north_m: float
    label: str = ""
    crop: int = -1


class SceneMaker:
    """Composes frames. Not thread-safe; cheap to make one for every worker."""

    def __init__(self, options: SceneOptions, seed: int, crops: Crops | None = None, split: int = 0) -> None:
        """Prepare crops and noise.

        Args:
            options: How to compose.
            seed: Of every frame.
            crops: Real crops, or None to draw all modules.
            split: Which split of the crops may be used: 0 train, 1 validation.
        """
        self.options = options
        self._seed = seed
        self._pool = CropPool(crops, split, options.fault_share) if crops is not None else None
        self._lens = Lens.nominal(options.width, options.height, options.height_m, options.pixel_m)
        self._noise = NoiseBank(options.width, options.height, np.random.default_rng([seed, 1]))

    def scene(self, index: int) -> Scene:
        """Frame number `index` (>= 0) of this maker's seed."""
        rng = np.random.default_rng([self._seed, 2, index])
        options = self.options
        real = self._pool is not None and rng.random() < options.real_share
        to_ground = self._camera(rng)
        bounds = view_bounds(to_ground, options.width, options.height, margin_m=0.5)
        modules = self._layout(rng, bounds)
        share = 0.02 if rng.random() < options.plain_share else options.fault_share
        level = self._choose(modules, share, real, rng)
        plan = self._paint(modules, bounds, level, real, rng)
        image = look(plan, bounds[0], bounds[3], to_ground, options.width, options.height)
        image = self._noise.apply(image, _random_sensor(rng, real), rng)
        return self._truth(image, modules, np.asarray(np.linalg.inv(to_ground), dtype=np.float64), real)

    def _camera(self, rng: np.random.Generator) -> npt.NDArray[np.float64]:
        options = self.options
        yaw = (np.pi if rng.random() < 0.5 else 0.0) + rng.normal(0, 0.04)
        pitch = -np.pi / 2 + rng.uniform(0, options.max_tilt_rad)
        height = options.height_m * float(np.exp(rng.uniform(-options.scale_jitter, options.scale_jitter)))
        rotation = rotation_from_euler(yaw, pitch, rng.normal(0, 0.03))
        return pixel_to_ground(self._lens, rotation, 0.0, 0.0, height)

    def _layout(self, rng: np.random.Generator, bounds: tuple[float, float, float, float]) -> list[_Module]:
        """Tables east to west across the view, some ending in it, at this plant's pitch or another site's."""
        west, south, east, north = bounds
        options = self.options
        pitch = TABLE_PITCH_M if rng.random() < 1.0 - options.dense_share else rng.uniform(MODULE_WIDTH_M + 0.02, 3.4)
        row_pitch = MODULE_DEPTH_M + rng.uniform(0.0, 0.03)
        modules = []
        table_east = west - rng.uniform(0.0, pitch)
        while table_east < east + MODULE_WIDTH_M:
            first, last = south - 1.0, north + 1.0
            if rng.random() < 0.15:  # The table ends within the view.
                first = rng.uniform(south, north)
            elif rng.random() < 0.15:
                last = rng.uniform(south, north)
            if rng.random() < 0.06:
                first = last  # No table here.
            row_north = first + rng.uniform(0.0, row_pitch)
            while row_north < last:
                if west - 1.2 < table_east < east + 1.2 and south - 0.6 < row_north < north + 0.6:
                    modules.append(_Module(table_east, row_north))
                row_north += row_pitch
            table_east += pitch
        return modules

    def _choose(self, modules: list[_Module], share: float, real: bool, rng: np.random.Generator) -> float:
        """Give every module its class and, in real frames, its crop; returns the level of the frame's modules."""
        pool = self._pool
        if not real or pool is None:
            for module in modules:
                faulty = rng.random() < share
                module.label = FAULT_LABELS[int(rng.integers(len(FAULT_LABELS)))] if faulty else ""
            return float(rng.uniform(70, 170))
        level = pool.level(rng)
        few = share < self.options.fault_share
        for module in modules:
            module.crop = pool.draw(level, rng, healthy=few and rng.random() > share / self.options.fault_share)
            label = pool.crops.labels[pool.crops.label_index[module.crop]]
            module.label = "" if label == NORMAL_LABEL else label
        return level

    def _paint(
        self,
        modules: list[_Module],
        bounds: tuple[float, float, float, float],
        level: float,
        real: bool,
        rng: np.random.Generator,
    ) -> Grey:
        west, south, east, north = bounds
        rows, columns = int((north - south) / TEXEL_M) + 1, int((east - west) / TEXEL_M) + 1
        soil = float(np.clip(level + rng.normal(0, 45), 20, 235))
        stones = 4e-4 if rng.random() < 0.4 else 6e-5
        plan = ground_texture(rows, columns, soil, rng, stones, stone_levels=float(rng.uniform(8, 50)))
        placed = [
            (
                round((north - module.north_m - MODULE_DEPTH_M / 2) / TEXEL_M),
                round((module.east_m - MODULE_WIDTH_M / 2 - west) / TEXEL_M),
                module,
            )
            for module in modules
        ]
        if rng.random() < 0.7:  # The low sun's shadow beside the tables.
            side = int(rng.integers(8, 22)) * (1 if rng.random() < 0.5 else -1)
            shadow = level - rng.uniform(30, 90)
            for row, column, _ in placed:
                place_module(plan, np.zeros((MODULE_ROWS + 1, MODULE_COLUMNS), np.float32), shadow, row, column + side)
        contrast = float(np.exp(rng.normal(0, 0.08))) if real else 1.0
        jump = rng.uniform(0.0, 5.0)
        of_table = {column: rng.normal(0, jump) for _, column, _ in placed}  # Tables differ in level; no fault.
        for row, column, module in placed:
            patch = self._patch(module, rng)
            place_module(plan, patch * contrast, level + of_table[column] + rng.normal(0, 2.0), row, column)
        if rng.random() < 0.12:
            _reflect(plan, rng)
        return np.asarray(np.clip(plan, 0, 255), dtype=np.uint8)

    def _patch(self, module: _Module, rng: np.random.Generator) -> Patch:
        if module.crop < 0 or self._pool is None:
            patch = draw_module(module.label, MODULE_ROWS, MODULE_COLUMNS, rng)
            return patch if rng.random() < 0.5 else patch[::-1]
        patch = self._pool.patch(module.crop)
        flips = int(rng.integers(4))
        patch = patch[:: (-1 if flips & 1 else 1), :: (-1 if flips & 2 else 1)]
        if module.label == "offline-module" and rng.random() < 0.15:
            patch = patch + np.float32(rng.uniform(10.0, 40.0))  # In flight its neighbours tell it apart.
        return patch

    def _truth(self, image: Grey, modules: list[_Module], to_pixel: npt.NDArray[np.float64], real: bool) -> Scene:
        boxes, labels, crop_index = [], [], []
        for module in modules:
            u, v = project(to_pixel, np.array([[module.east_m, module.north_m]]))[0]
            if 0 <= u < self.options.width and 0 <= v < self.options.height:
                boxes.append(module_box(to_pixel, module.east_m, module.north_m))
                labels.append(FAULT_LABELS.index(module.label) if module.label else -1)
                crop_index.append(module.crop)
        return Scene(
            image,
            np.array(boxes, dtype=np.float32).reshape(-1, 4),
            np.array(labels, dtype=np.int64),
            np.array(crop_index, dtype=np.int64),
            real,
        )


def _reflect(plan: Patch, rng: np.random.Generator) -> None:
    """A broad bright patch across several modules: the sky or a cloud mirrored in the glass; no fault."""
    rows, columns = plan.shape
    y = (np.arange(rows, dtype=np.float32)[:, None] - rng.uniform(0, rows)) / (rng.uniform(1.5, 4.0) / TEXEL_M)
    x = (np.arange(columns, dtype=np.float32)[None, :] - rng.uniform(0, columns)) / (rng.uniform(1.5, 4.0) / TEXEL_M)
    plan += np.float32(rng.uniform(-15.0, 25.0)) * np.exp(-0.5 * (y * y + x * x))


def _random_sensor(rng: np.random.Generator, real: bool) -> Sensor:
    # Real crops bring the noise and blur of their own camera; little is added to them.
    return Sensor(
        blur_px=float(rng.uniform(0.0, 0.6 if real else 0.9)),
        noise_levels=float(rng.uniform(0.2, 1.5) if real else rng.uniform(0.3, 3.0)),
        gain=float(np.exp(rng.normal(0, 0.06))),
        offset_levels=float(rng.normal(0, 5.0)),
        vignette_levels=float(rng.uniform(0.0, 6.0)),
    )
