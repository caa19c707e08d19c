"""From what a thermal camera measured, 16 bits or floats a pixel, to the 8-bit grey picture that models look at.

A decoder's own way from 16 bits to 8 keeps the upper byte, and a scene spans a few hundred counts of 65,536: the
picture becomes flat, and nothing is found in it. Here the range that the scene uses is spread over the grey levels, as
a camera's automatic gain does, with room above it, so that a hot spot stays hotter than hot soil. The range follows the
scene slowly: levels that jump from frame to frame would be a change of every module at once.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from swarmd_models.errors import FrameError
from swarmd_models.types import Image, Level

LOW_GREY, HIGH_GREY = 16.0, 208.0
"""Grey levels of the scene's coldest and hottest share; a quarter of the span is left above for what is hotter."""
_SHARE = 0.5
"""Per cent of the pixels that may be colder or hotter than that: dead pixels, the sky, a hot spot."""
_STEP_FLOAT, _STEP_COUNT = 0.01, 1.0
"""What a grey level is worth at least, kelvin of floats and counts of integers: below is the detector's own noise
(30 to 50 mK of uncooled ones), which would fill an even scene."""
_FOLLOW = 0.2
"""Of the way to a frame's own range that the kept one goes."""
_LEAST_FLOAT, _MOST_FLOAT = -300.0, 100_000.0
"""Floats beyond are dead pixels: nothing is colder than -273 degrees Celsius, and counts of 16 bits end before. Some
files write -9999 or 1e30 for a pixel that is none, and one frame of them would leave the range so wide that nothing is
seen in hundreds after it."""
_EVERY = 4
"""Rows and columns between two pixels that the range is read off."""


def is_raw(image: npt.NDArray[Any]) -> bool:
    """Whether a decoded picture is measurements: one channel of 16 bits or floats."""
    return image.ndim == 2 and (image.dtype == np.uint16 or image.dtype.kind == "f")


@dataclass(slots=True)
class Leveller:
    """Levels the frames of one camera, in order."""

    low: float = 0.0
    high: float = 0.0
    """Values of `LOW_GREY` and `HIGH_GREY`; equal before the first frame."""

    def level(self, raw: npt.NDArray[Any]) -> tuple[Image, Level]:
        """One frame.

        Args:
            raw: Shape (H, W), uint16 counts, or floats in kelvin or degrees Celsius; NaN, infinity and what
                nothing can have are dead pixels.

        Returns:
            Shape (H, W), uint8, and what a grey level means.

        Raises:
            FrameError: Every pixel is dead.
        """
        if raw.dtype.kind == "f":
            raw = _without_the_dead(raw)
        alive = _alive(raw[::_EVERY, ::_EVERY])
        if not alive.size:
            alive = _alive(raw)
        if not alive.size:
            raise FrameError("every pixel of the thermal frame is dead")
        low, high = (float(value) for value in np.percentile(alive, (_SHARE, 100.0 - _SHARE)))
        span = HIGH_GREY - LOW_GREY
        least = span * (_STEP_FLOAT if raw.dtype.kind == "f" else _STEP_COUNT)
        if high - low < least:
            middle = (low + high) / 2
            low, high = middle - least / 2, middle + least / 2
        if self.low < self.high and low < self.high and high > self.low:
            low, high = self.low + _FOLLOW * (low - self.low), self.high + _FOLLOW * (high - self.high)
        self.low, self.high = low, high
        a_level = (high - low) / span
        zero = low - LOW_GREY * a_level
        grey = (raw.astype(np.float32) - np.float32(zero)) * np.float32(1.0 / a_level)
        if raw.dtype.kind == "f":
            grey = np.nan_to_num(grey, nan=LOW_GREY, posinf=255.0, neginf=0.0)
        return np.clip(np.rint(grey), 0, 255).astype(np.uint8), Level(zero, a_level)


def _without_the_dead(raw: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Floats with NaN in place of numbers that no camera can have measured."""
    is_none = np.isfinite(raw) & ((raw < _LEAST_FLOAT) | (raw > _MOST_FLOAT))
    return np.where(is_none, np.nan, raw).astype(np.float32)


def _alive(raw: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    seen = raw.astype(np.float64)
    return seen[np.isfinite(seen)]
