"""From a frame to the input tensor, with every buffer allocated once.

Resizing goes straight into the letterbox canvas, and one pass writes the canvas into the tensor. For the project's
own INT8 models (scale 1/255, zero point -128) that pass is `pixel ^ 0x80`: quantising is flipping one bit.
"""

from dataclasses import dataclass

import numpy as np

from swarmd_models.backends.base import Array, TensorSpec
from swarmd_models.bundle import InputRule
from swarmd_models.errors import ArtefactError, FrameError
from swarmd_models.opencv import cv2
from swarmd_models.types import Image

_CONVERSIONS = {
    (1, "bgr"): "COLOR_GRAY2BGR", (1, "rgb"): "COLOR_GRAY2RGB",
    (3, "rgb"): "COLOR_BGR2RGB", (3, "gray"): "COLOR_BGR2GRAY",
}  # fmt: skip
"""OpenCV's name of the conversion from so many channels to an order."""
MAX_SIDE = 16_384
"""Pixels of a picture's side: larger ones are damaged or an attack."""


@dataclass(frozen=True, slots=True)
class Mapping:
    """Frame pixels to input pixels: input = frame * scale + pad."""

    scale_x: float
    scale_y: float
    pad_x: float
    pad_y: float
    frame_width: int
    frame_height: int


def input_size(spec: TensorSpec) -> tuple[int, int, int, bool]:
    """(height, width, channels, is_nhwc) of an image input; raises `ArtefactError` for any other tensor."""
    shape = spec.shape
    if len(shape) == 4 and shape[0] == 1 and min(shape) > 0:
        if shape[3] in (1, 3):
            return shape[1], shape[2], shape[3], True
        if shape[1] in (1, 3):
            return shape[2], shape[3], shape[1], False
    raise ArtefactError(
        f"input {spec.name} has the shape {shape}; an image of 1 or 3 channels, one at a time, is needed"
    )


class Preprocessor:
    """Fills one model's input from frames of any size."""

    def __init__(self, rule: InputRule, spec: TensorSpec) -> None:
        """Choose the cheapest exact way for this input; raises `ArtefactError` when there is none."""
        self._rule = rule
        self.height, self.width, self._channels, self._is_nhwc = input_size(spec)
        if (self._channels == 1) != (rule.channels == "gray"):
            raise ArtefactError(f"the bundle feeds {rule.channels} into an input of {self._channels} channels")
        self._mean = np.broadcast_to(np.asarray(rule.mean, np.float64), self._channels)
        self._std = np.broadcast_to(np.asarray(rule.std, np.float64), self._channels)
        self._factor = (1.0 / self._std).astype(np.float32)
        self._offset = (self._mean / self._std).astype(np.float32)
        self._is_even = len(set(zip(self._mean.tolist(), self._std.tolist(), strict=True))) == 1
        shape = (self.height, self.width) if self._channels == 1 else (self.height, self.width, 3)
        self._canvas: Image = np.empty(shape, np.uint8)
        self._mapping: Mapping | None = None
        self._region: Image = self._canvas
        self._small: dict[int, Image] = {}
        self._is_float = spec.dtype.kind == "f"
        self._flips = False
        self._table: Image | None = None
        if not self._is_float:
            self._plan_integer(rule, spec)

    @property
    def canvas(self) -> Image:
        """The newest frame as it went into the input, before quantising; written anew by the next `fill`."""
        return self._canvas

    @property
    def mapping(self) -> Mapping | None:
        """Of the newest frame; None before the first."""
        return self._mapping

    @property
    def is_bit_flip(self) -> bool:
        """Whether quantising is one XOR (the project's own contract holds)."""
        return self._flips

    def fill(self, image: Image, view: Array) -> Mapping:
        """Write the frame into the input tensor.

        Args:
            image: Shape (H, W) grey or (H, W, 3) BGR, uint8.
            view: The input without its batch axis; not kept.

        Returns:
            How to get from boxes in the input back to the frame.

        Raises:
            FrameError: The frame is of a kind or size that cannot be used.
        """
        channels = _check(image)
        mapping = self._mapping
        if mapping is None or (mapping.frame_height, mapping.frame_width) != image.shape[:2]:
            mapping = self._lay_out(image.shape[0], image.shape[1])
        self._resize(image, channels)
        self._write(view)
        return mapping

    def _plan_integer(self, rule: InputRule, spec: TensorSpec) -> None:
        if spec.dtype not in (np.dtype(np.int8), np.dtype(np.uint8)):
            raise ArtefactError(f"input {spec.name} is {spec.dtype}; int8, uint8 and float32 can be fed")
        low = -128 if spec.dtype == np.dtype(np.int8) else 0
        pixels = np.arange(256, dtype=np.float64)[:, None]
        if rule.as_is or not spec.is_quantised:
            raw = pixels + low
        else:
            real = (pixels - self._mean) / self._std
            raw = np.clip(np.rint(real / spec.scale) + spec.zero_point, low, low + 255)
        table = raw.astype(spec.dtype).view(np.uint8)
        if (table == table[:, :1]).all():
            table = table[:, 0]
        identity = np.arange(256, dtype=np.uint8)
        self._flips = bool(np.array_equal(table, identity ^ 0x80))
        if not self._flips and not np.array_equal(table, identity):
            self._table = table

    def _lay_out(self, height: int, width: int) -> Mapping:
        rule = self._rule
        region = (0, 0, self.width, self.height)
        if rule.resize == "none" and (height, width) != (self.height, self.width):
            raise FrameError(f"the frame is {width}x{height}; this model takes {self.width}x{self.height} as it is")
        if rule.resize == "letterbox":
            scale = min(self.width / width, self.height / height)
            w, h = max(1, round(width * scale)), max(1, round(height * scale))
            region = ((self.width - w) // 2, (self.height - h) // 2, w, h)
        x, y, w, h = region
        self._canvas.fill(rule.pad)
        self._region = self._canvas[y : y + h, x : x + w]
        self._small.clear()
        self._mapping = Mapping(w / width, h / height, x, y, width, height)
        return self._mapping

    def _resize(self, image: Image, channels: int) -> None:
        region = self._region
        height, width = region.shape[:2]
        code = _CONVERSIONS.get((channels, self._rule.channels))
        if code is None:
            if image.shape[:2] == (height, width):
                np.copyto(region, image if image.ndim == region.ndim else image[..., 0])
            else:
                cv2.resize(image, (width, height), dst=region, interpolation=cv2.INTER_LINEAR)
            return
        # Fewer pixels first: the colour conversion then costs a fraction.
        small = image
        if image.shape[:2] != (height, width):
            buffer = self._small.get(channels)
            if buffer is None:
                buffer = np.empty((height, width, 3) if channels == 3 else (height, width), np.uint8)
                self._small[channels] = buffer
            small = cv2.resize(image, (width, height), dst=buffer, interpolation=cv2.INTER_LINEAR)  # type: ignore[assignment]
        cv2.cvtColor(small, getattr(cv2, code), dst=region)

    def _write(self, view: Array) -> None:
        canvas = self._canvas
        if self._is_nhwc:
            self._write_pixels(canvas, view[..., 0] if self._channels == 1 else view, None)
        elif self._channels == 1:
            self._write_pixels(canvas, view[0], None)
        else:
            for channel in range(3):
                self._write_pixels(canvas[..., channel], view[channel], channel)

    def _write_pixels(self, pixels: Image, target: Array, channel: int | None) -> None:
        """Fill the whole input, or the plane of one channel."""
        if self._is_float:
            # A number for all channels, or one along the last axis, or that of the plane.
            at = 0 if self._is_even else slice(None) if channel is None else channel
            np.multiply(pixels, self._factor[at], out=target, casting="unsafe")
            if self._offset.any():
                target -= self._offset[at]
        elif self._flips:
            np.bitwise_xor(pixels, np.uint8(0x80), out=target.view(np.uint8))
        elif self._table is None:
            np.copyto(target.view(np.uint8), pixels)
        elif self._table.ndim == 1 or channel is not None:
            table = self._table if self._table.ndim == 1 else self._table[:, channel]
            cv2.LUT(np.ascontiguousarray(pixels), np.ascontiguousarray(table), dst=target.view(np.uint8))
        else:
            cv2.LUT(pixels, self._table[:, None, :], dst=target.view(np.uint8))


def _check(image: Image) -> int:
    if image.dtype != np.uint8 or image.size == 0 or max(image.shape) > MAX_SIDE:
        raise FrameError(f"a frame of {image.dtype} and shape {image.shape} cannot be used; 8-bit pixels are needed")
    if image.ndim == 2 or (image.ndim == 3 and image.shape[2] == 1):
        return 1
    if image.ndim == 3 and image.shape[2] == 3:
        return 3
    raise FrameError(f"a frame of shape {image.shape} cannot be used; grey (H, W) or BGR (H, W, 3) is needed")
