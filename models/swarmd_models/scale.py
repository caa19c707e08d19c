"""How much ground a pixel shows to a model: what it was trained for, and a part of a frame shown to another like that.

A bundle that says so has `recipe.scene.pixel_m` in its `[provenance]`, metres of ground a pixel of its input. An eye is
flown so that its model sees things about as large as it was trained for; another model that is asked about a small
picture of one must see it as large as *it* was trained for, not blown up to fill its input.
"""

from typing import TypeAlias

import numpy as np

from swarmd_models.bundle import Bundle
from swarmd_models.types import Image

Box: TypeAlias = tuple[float, float, float, float]
"""x1, y1, x2, y2, pixels."""
Place: TypeAlias = tuple[float, float]
"""Where the middle of a thing lies in a picture: shares of its width and height."""

_LEAST_M, _MOST_M = 0.005, 1.0
"""Metres of ground a pixel between which a bundle is believed."""


def trained_pixel_m(bundle: Bundle) -> float:
    """Metres of ground a pixel of its input that a model was trained for; 0.0 where the bundle does not say."""
    recipe = bundle.provenance.get("recipe")
    scene = recipe.get("scene") if isinstance(recipe, dict) else None
    value = scene.get("pixel_m") if isinstance(scene, dict) else None
    return float(value) if isinstance(value, int | float) and _LEAST_M < value < _MOST_M else 0.0


def frame_pixel_m(bundle: Bundle, width: int, height: int) -> float:
    """Metres of ground that a pixel of a frame shows, where the model sees it at its own scale; 0.0: not known."""
    of = bundle.input
    if min(width, height, of.width, of.height) <= 0:
        return 0.0
    return trained_pixel_m(bundle) * min(of.width / width, of.height / height)


def as_trained(picture: Image, pixel_m: float, bundle: Bundle, place: Place = (0.5, 0.5)) -> tuple[Image, Box | None]:
    """A small picture as a model was trained to see such things.

    Args:
        picture: Shape (H, W) or (H, W, 1 or 3), uint8.
        pixel_m: Metres of ground that a pixel of it shows; 0.0: not known.
        bundle: Of the model.
        place: Of the thing in it.

    Returns:
        A picture of the input's size, with the other at the model's scale in its middle and, around it, what most of
        its border is; and where in it the thing's own middle lies, a third of the other around the place: what a model
        sees beside that is a neighbour cut off. The picture itself and None where one of the scales is not known.
    """
    import cv2

    trained, width, height = trained_pixel_m(bundle), bundle.input.width, bundle.input.height
    if not trained or pixel_m <= 0.0 or min(width, height) <= 0:
        return picture, None
    rows, columns = picture.shape[:2]
    factor = min(pixel_m / trained, width / columns, height / rows)
    across, down = max(1, round(columns * factor)), max(1, round(rows * factor))
    method = cv2.INTER_AREA if factor < 1.0 else cv2.INTER_LINEAR
    fitted = np.asarray(cv2.resize(picture, (across, down), interpolation=method)).reshape(
        down, across, *picture.shape[2:]
    )
    border = np.concatenate([picture[0], picture[-1], picture[:, 0], picture[:, -1]])
    out = np.empty((height, width, *picture.shape[2:]), np.uint8)
    out[...] = np.median(border, axis=0).astype(np.uint8)
    top, left = (height - down) // 2, (width - across) // 2
    out[top : top + down, left : left + across] = fitted
    x, y = left + across * place[0], top + down * place[1]
    return out, (x - across / 6, y - down / 6, x + across / 6, y + down / 6)
