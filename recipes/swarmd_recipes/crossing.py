"""A crossing that a camera on a mast looks down on: roads, markings, pavements, the camera's place, light and noise.

Everything about a crossing follows from its number: two crossings differ in the angles and widths of their roads, in
markings, patches, shadows of trees and buildings, in the mast's height and tilt, and in hour and sensor. Metres, east
and north from the middle of the crossing; the camera stands south of it and looks north.
"""

from dataclasses import dataclass
from typing import TypeAlias

import cv2
import numpy as np
import numpy.typing as npt

from swarmd_models.synthetic.compose import (
    TEXEL_M,
    Grey,
    Sensor,
    ground_texture,
    look,
    pixel_to_ground,
    rotation_from_euler,
    view_bounds,
)
from swarmd_models.synthetic.scenes import Lens

Floats: TypeAlias = npt.NDArray[np.float64]

WIDTH, HEIGHT = 384, 256
"""Of a camera's frame, pixels."""
FINER = 2
"""Pixels that a pixel of the frame is drawn with, along each side, before it is averaged."""
_FOCAL = 360.0
_DUSK_SHARE = 0.3
"""Of the crossings."""
_RAIN_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class Road:
    """A straight road through the middle."""

    angle: float
    """Of its direction, radians from east."""
    width_m: float
    pavement_m: float
    """On either side."""

    def at(self, along_m: float, aside_m: float) -> tuple[float, float]:
        """East and north of a place: so far along, so far to the left of its middle."""
        c, s = np.cos(self.angle), np.sin(self.angle)
        return float(along_m * c - aside_m * s), float(along_m * s + aside_m * c)


@dataclass(frozen=True, slots=True)
class Mast:
    """Where the camera stands, and how it looks."""

    north_m: float
    height_m: float
    rotation: Floats

    def pixels(self, points: Floats) -> Floats:
        """Where points (n, 3) of east, north and height are in the frame, shape (n, 2)."""
        ned = np.column_stack([points[:, 1] - self.north_m, points[:, 0], self.height_m - points[:, 2]])
        forward, right, down = (ned @ self.rotation).T
        forward = np.maximum(forward, 0.5)
        return np.column_stack([WIDTH / 2 + _FOCAL * right / forward, HEIGHT / 2 + _FOCAL * down / forward])


@dataclass(frozen=True, slots=True)
class Crossing:
    """One camera's view without anybody in it.

    Attributes:
        roads: Two of them.
        mast: The camera.
        picture: Shape (FINER * HEIGHT, FINER * WIDTH), grey.
        sun: Unit vector towards it on the ground, and its height as a tangent; a tangent of 0: no shadows.
        sensor: What the camera adds.
        is_dusk: Headlights are on.
        rain: Streaks in a frame.
    """

    roads: tuple[Road, Road]
    mast: Mast
    picture: Grey
    sun: tuple[float, float, float]
    sensor: Sensor
    is_dusk: bool
    rain: int


def crossing_of(number: int) -> Crossing:
    """The crossing with this number (>= 0), the same in every process."""
    rng = np.random.default_rng([15, number])
    first = rng.uniform(0.0, np.pi)
    roads = (
        Road(first, rng.uniform(6.0, 10.0), rng.uniform(1.8, 3.5)),
        Road(first + np.pi / 2 + rng.uniform(-0.45, 0.45), rng.uniform(5.5, 8.5), rng.uniform(1.8, 3.5)),
    )
    height = float(rng.uniform(10.0, 14.0))
    pitch = -np.radians(rng.uniform(33.0, 39.0))
    rotation = rotation_from_euler(0.0, pitch, rng.normal(0.0, 0.02))
    mast = Mast(float(height / np.tan(pitch) + rng.uniform(-4.0, 1.0)), height, rotation)
    is_dusk = bool(rng.random() < _DUSK_SHARE)
    sun_angle, tangent = rng.uniform(0.0, 2 * np.pi), rng.uniform(0.5, 1.6)
    is_clear = not is_dusk and rng.random() < 0.6
    sun = (float(np.cos(sun_angle)), float(np.sin(sun_angle)), float(tangent) if is_clear else 0.0)
    picture = _picture(roads, mast, is_clear, rng)
    rain = int(rng.integers(20, 90)) if rng.random() < _RAIN_SHARE else 0
    return Crossing(roads, mast, picture, sun, _sensor(is_dusk, rng), is_dusk, rain)


def _sensor(is_dusk: bool, rng: np.random.Generator) -> Sensor:
    if is_dusk:
        return Sensor(
            float(rng.uniform(0.4, 0.9)), float(rng.uniform(4.0, 8.0)), float(rng.uniform(0.45, 0.7)),
            float(rng.uniform(-45.0, -25.0)), 5.0,
        )  # fmt: skip
    return Sensor(
        float(rng.uniform(0.3, 0.8)), float(rng.uniform(1.5, 4.0)), float(rng.uniform(0.8, 1.1)),
        float(rng.normal(0.0, 8.0)), 3.0,
    )  # fmt: skip


def _picture(roads: tuple[Road, Road], mast: Mast, is_clear: bool, rng: np.random.Generator) -> Grey:
    """The ground as the camera sees it."""
    lens = Lens(FINER * _FOCAL, FINER * _FOCAL, FINER * WIDTH / 2, FINER * HEIGHT / 2)
    to_ground = pixel_to_ground(lens, mast.rotation, 0.0, mast.north_m, mast.height_m)
    west, south, east, north = view_bounds(to_ground, FINER * WIDTH, FINER * HEIGHT, 0.5)
    rows, columns = int((north - south) / TEXEL_M) + 1, int((east - west) / TEXEL_M) + 1
    plan = ground_texture(rows, columns, 0.0, rng, 3e-5, 25.0)
    level = np.full((rows, columns), float(rng.uniform(70, 130)), np.float32)  # Verge.
    draw = _Plan(level, west, north)
    for road in roads:
        draw.band(road, road.width_m / 2 + road.pavement_m, float(rng.uniform(120, 165)))
    asphalt = float(rng.uniform(70, 105))
    for road in roads:
        draw.band(road, road.width_m / 2, asphalt + rng.normal(0.0, 3.0))
    _mark(draw, roads, asphalt, rng)
    if is_clear:  # What trees and houses leave dark.
        for _ in range(int(rng.integers(0, 5))):
            at = (rng.uniform(west, east), rng.uniform(south, north))
            draw.shade(at, float(rng.uniform(1.0, 5.0)), float(rng.uniform(0.5, 0.75)))
    return look(np.clip(level + plan, 0, 255).astype(np.uint8), west, north, to_ground, FINER * WIDTH, FINER * HEIGHT)


class _Plan:
    """Draws on a plan view by metres."""

    def __init__(self, level: npt.NDArray[np.float32], west: float, north: float) -> None:
        self._level, self._west, self._north = level, west, north

    def _texels(self, points: list[tuple[float, float]]) -> npt.NDArray[np.int32]:
        return (
            np.array([[(e - self._west) / TEXEL_M, (self._north - n) / TEXEL_M] for e, n in points])
            .round()
            .astype(np.int32)
        )

    def strip(self, road: Road, along: tuple[float, float], aside: tuple[float, float], level: float) -> None:
        """A rectangle in a road's own directions."""
        corners = [road.at(x, y) for x, y in zip((*along, *along[::-1]), np.repeat(aside, 2), strict=True)]
        cv2.fillConvexPoly(self._level, self._texels(corners), float(level))

    def band(self, road: Road, half_m: float, level: float) -> None:
        """The road's whole length."""
        self.strip(road, (-90.0, 90.0), (-half_m, half_m), level)

    def shade(self, at: tuple[float, float], size_m: float, share: float) -> None:
        """A blot that lets through a share of the light."""
        centre = tuple(int(v) for v in self._texels([at])[0])
        mask = np.zeros(self._level.shape, np.uint8)
        cv2.ellipse(mask, centre, (int(size_m / TEXEL_M), int(0.6 * size_m / TEXEL_M)), 20.0, 0, 360, 1, -1)
        self._level[mask > 0] *= np.float32(share)


def _mark(draw: _Plan, roads: tuple[Road, Road], asphalt: float, rng: np.random.Generator) -> None:
    """Middle lines, stop lines, zebra crossings; patches and manholes."""
    white = float(rng.uniform(150, 225))
    for road, other in (roads, roads[::-1]):
        free = other.width_m / 2 + 1.0
        for side in (-1.0, 1.0):
            for at in np.arange(free + 4.0, 40.0, 4.0):
                draw.strip(road, (side * at, side * (at + 2.0)), (-0.08, 0.08), white)
            draw.strip(road, (side * (free + 3.2), side * (free + 3.7)), (0.0, side * road.width_m / 2), white)
            if rng.random() < 0.6:
                for aside in np.arange(-road.width_m / 2 + 0.4, road.width_m / 2 - 0.4, 1.0):
                    draw.strip(road, (side * free, side * (free + 2.6)), (aside, aside + 0.5), white)
        for _ in range(int(rng.integers(2, 7))):
            along, aside = rng.uniform(-35, 35), rng.uniform(-0.4, 0.4) * road.width_m
            size = rng.uniform(0.3, 2.5, 2)
            draw.strip(road, (along, along + size[0]), (aside, aside + size[1]), asphalt + rng.normal(0.0, 16.0))
