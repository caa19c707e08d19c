"""From a plan view of the ground to the frame that a thermal camera on a drone takes of it.

A *plan view* is a grey picture of the ground from straight above: row 0 lies north, column 0 west, one texel is
`TEXEL_M` metres. A camera looks at it through a homography (the ground is a plane), then the sensor blurs, drifts and
adds noise. Recipes compose training frames with this module and the world renders `sim://` with it, so both look alike.

Rules: pure functions of their arguments and generator; metres and radians outside, pixels inside.
"""

from dataclasses import dataclass
from typing import Protocol, TypeAlias

import cv2
import numpy as np
import numpy.typing as npt

from swarmd_models.synthetic.thermal import Patch

Grey: TypeAlias = npt.NDArray[np.uint8]
Matrix: TypeAlias = npt.NDArray[np.float64]

TEXEL_M = 0.045
"""Size of one texel; a 2.2 m x 0.99 m module is 49 x 22 texels, close to the 40 x 24 of the real crops."""

MODULE_WIDTH_M = 2.2
"""Metres along a table, of the modules that real plants have."""
MODULE_DEPTH_M = 0.99
"""Metres across a table."""
TABLE_PITCH_M = 6.03
"""Sizes on a real plant (a survey of 600 tables in northern Chile): modules east-west by north-south, tables apart."""

MODULE_COLUMNS = round(MODULE_WIDTH_M / TEXEL_M)
MODULE_ROWS = round(MODULE_DEPTH_M / TEXEL_M)


class PinholeLike(Protocol):
    """Intrinsics of a camera without distortion, pixels; `swarmd_models.geo.geolocate.Intrinsics` is one."""

    @property
    def fx(self) -> float:
        """Focal length along the columns."""

    @property
    def fy(self) -> float:
        """Focal length along the rows."""

    @property
    def cx(self) -> float:
        """Column of the optical axis."""

    @property
    def cy(self) -> float:
        """Row of the optical axis."""


def rotation_from_euler(yaw_rad: float, pitch_rad: float, roll_rad: float) -> Matrix:
    """Rotation from the camera's forward-right-down frame to north-east-down.

    Args:
        yaw_rad: Heading, clockwise from north.
        pitch_rad: Nose up; -pi/2 looks straight down.
        roll_rad: Right side down.

    Returns:
        Shape (3, 3), float64, orthonormal.
    """
    cy, sy = np.cos(yaw_rad), np.sin(yaw_rad)
    cp, sp = np.cos(pitch_rad), np.sin(pitch_rad)
    cr, sr = np.cos(roll_rad), np.sin(roll_rad)
    yaw = np.array([[cy, -sy, 0.0], [sy, cy, 0.0], [0.0, 0.0, 1.0]])
    pitch = np.array([[cp, 0.0, sp], [0.0, 1.0, 0.0], [-sp, 0.0, cp]])
    roll = np.array([[1.0, 0.0, 0.0], [0.0, cr, -sr], [0.0, sr, cr]])
    return np.asarray(yaw @ pitch @ roll, dtype=np.float64)


def pixel_to_ground(lens: PinholeLike, rotation: Matrix, east_m: float, north_m: float, height_m: float) -> Matrix:
    """Homography from pixels (u, v, 1) to the ground plane (east, north, 1), metres.

    Args:
        lens: Intrinsics, pixels.
        rotation: Camera forward-right-down to north-east-down, shape (3, 3).
        east_m: Where the camera is.
        north_m: Where the camera is.
        height_m: Above the plane, > 0.

    Returns:
        Shape (3, 3), float64.
    """
    ray = np.array(
        [[0.0, 0.0, 1.0], [1.0 / lens.fx, 0.0, -lens.cx / lens.fx], [0.0, 1.0 / lens.fy, -lens.cy / lens.fy]]
    )
    ned = rotation @ ray
    return np.stack([height_m * ned[1] + east_m * ned[2], height_m * ned[0] + north_m * ned[2], ned[2]])


def project(homography: Matrix, points: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Apply a homography to points of shape (n, 2); the points must not lie on its horizon."""
    out = np.column_stack([points, np.ones(len(points))]) @ homography.T
    return np.asarray(out[:, :2] / out[:, 2:], dtype=np.float64)


def plan_to_ground(west_m: float, north_m: float) -> Matrix:
    """Homography from plan indices (column, row, 1) to the ground, for a plan whose top left corner is given."""
    half = TEXEL_M / 2.0
    return np.array([[TEXEL_M, 0.0, west_m + half], [0.0, -TEXEL_M, north_m - half], [0.0, 0.0, 1.0]])


def view_bounds(to_ground: Matrix, width: int, height: int, margin_m: float) -> tuple[float, float, float, float]:
    """The rectangle (west, south, east, north) of ground that a frame shows, metres."""
    corners = np.array([[0.0, 0.0], [width, 0.0], [width, height], [0.0, height]])
    ground = project(to_ground, corners)
    low, high = ground.min(axis=0) - margin_m, ground.max(axis=0) + margin_m
    return float(low[0]), float(low[1]), float(high[0]), float(high[1])


def look(plan: Grey, west_m: float, north_m: float, to_ground: Matrix, width: int, height: int) -> Grey:
    """What the camera sees of a plan view, without sensor effects.

    Args:
        plan: Shape (rows, columns), uint8.
        west_m: West edge of the plan.
        north_m: North edge of the plan.
        to_ground: Homography from pixels to ground, of `pixel_to_ground`.
        width: Of the frame, pixels.
        height: Of the frame, pixels.

    Returns:
        Shape (height, width), uint8; beyond the plan its border repeats.
    """
    # Pixel and texel *indices* are half a step from the coordinates that homographies and boxes speak of.
    centre = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, 0.5], [0.0, 0.0, 1.0]])
    matrix = np.linalg.inv(plan_to_ground(west_m, north_m)) @ to_ground @ centre
    frame = cv2.warpPerspective(
        plan, matrix, (width, height), flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP, borderMode=cv2.BORDER_REPLICATE
    )
    return np.asarray(frame, dtype=np.uint8)


def module_box(to_pixel: Matrix, east_m: float, north_m: float) -> tuple[float, float, float, float]:
    """The box (x1, y1, x2, y2) in pixels around the module whose centre is given."""
    half_w, half_d = MODULE_WIDTH_M / 2.0, MODULE_DEPTH_M / 2.0
    corners = np.array(
        [
            [east_m - half_w, north_m - half_d],
            [east_m + half_w, north_m - half_d],
            [east_m + half_w, north_m + half_d],
            [east_m - half_w, north_m + half_d],
        ]
    )
    pixels = project(to_pixel, corners)
    (x1, y1), (x2, y2) = pixels.min(axis=0), pixels.max(axis=0)
    return float(x1), float(y1), float(x2), float(y2)


def ground_texture(
    rows: int, columns: int, level: float, rng: np.random.Generator, stones: float = 6e-5, stone_levels: float = 30.0
) -> Patch:
    """Bare soil: four octaves of smooth noise, and stones.

    Args:
        rows: Texels.
        columns: Texels.
        level: Mean grey level.
        stones: How many at most, per texel.
        stone_levels: How much they differ from the soil, standard deviation.
        rng: Where all variation comes from.

    Returns:
        Shape (rows, columns), float32, grey levels.
    """
    ground = np.full((rows, columns), level, dtype=np.float32)
    for period, strength in ((160, 7.0), (48, 4.0), (14, 2.5), (4, 1.5)):
        coarse = rng.standard_normal((rows // period + 3, columns // period + 3)).astype(np.float32)
        fine = cv2.resize(coarse, (columns + 2 * period, rows + 2 * period), interpolation=cv2.INTER_LINEAR)
        ground += strength * fine[period : period + rows, period : period + columns]
    for _ in range(int(rows * columns * rng.uniform(0.0, stones))):
        centre = (int(rng.integers(columns)), int(rng.integers(rows)))
        cv2.circle(ground, centre, int(rng.integers(1, 4)), float(level + rng.normal(0, stone_levels)), -1)
    return ground


def place_module(plan: Patch, patch: Patch, level: float, row: int, column: int) -> None:
    """Put one module's patch on a plan view, in place; what lies outside is cut off.

    Args:
        plan: Shape (rows, columns), float32, grey levels.
        patch: The module, relative to its level.
        level: Grey level of a healthy module here.
        row: Of the patch's top left corner on the plan.
        column: Likewise.
    """
    top, left = max(row, 0), max(column, 0)
    bottom, right = min(row + patch.shape[0], plan.shape[0]), min(column + patch.shape[1], plan.shape[1])
    if top < bottom and left < right:
        plan[top:bottom, left:right] = patch[top - row : bottom - row, left - column : right - column] + level


@dataclass(frozen=True, slots=True)
class Sensor:
    """What the camera adds to the scene in one frame."""

    blur_px: float = 0.6
    noise_levels: float = 2.0
    gain: float = 1.0
    offset_levels: float = 0.0
    """Drift of the automatic gain control."""
    vignette_levels: float = 3.0
    """Warm corners: the housing seen by the outer pixels."""


class NoiseBank:
    """Gaussian noise drawn once and cut anew for every frame: a frame's noise then costs one addition."""

    def __init__(self, width: int, height: int, rng: np.random.Generator) -> None:
        """Draw the bank for frames of one size."""
        self._size = (width, height)
        self._bank = rng.standard_normal((height + 97, width + 61), dtype=np.float32)
        y, x = np.mgrid[0:height, 0:width].astype(np.float32)
        radius = ((x / width - 0.5) ** 2 + (y / height - 0.5) ** 2) * 2.0
        self._corner = (radius - 0.33).astype(np.float32)
        self._stripes = rng.standard_normal((1, width)).astype(np.float32)

    def apply(self, frame: Grey, sensor: Sensor, rng: np.random.Generator) -> Grey:
        """One frame as the sensor delivers it.

        Args:
            frame: Shape (height, width) of the bank, uint8.
            sensor: Strength of every effect.
            rng: Chooses the cut; six bits are enough to look fresh.

        Returns:
            Shape (height, width), uint8.
        """
        width, height = self._size
        if sensor.blur_px > 0.0:
            frame = np.asarray(cv2.GaussianBlur(frame, (5, 5), sensor.blur_px), dtype=np.uint8)
        top, left = int(rng.integers(97)), int(rng.integers(61))
        out = frame.astype(np.float32)
        out *= sensor.gain
        out += sensor.offset_levels + 128.0 * (1.0 - sensor.gain)
        out += sensor.vignette_levels * self._corner + (0.25 * sensor.noise_levels) * self._stripes
        out += sensor.noise_levels * self._bank[top : top + height, left : left + width]
        return np.asarray(cv2.convertScaleAbs(np.clip(out, 0.0, 255.0, out=out)), dtype=np.uint8)
