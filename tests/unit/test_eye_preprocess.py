"""From frames to tensors: every layout and type, no needless copies, boxes that find their way back."""

import numpy as np
import pytest

from swarmd_models.bundle import InputRule
from swarmd_models.errors import ArtefactError, FrameError
from swarmd_models.preprocess import Preprocessor
from tests.support.bundles import spec

RNG = np.random.default_rng(5)
INT8 = spec("i", (1, 32, 32, 3), "int8", 1 / 255, -128)


def _picture(height: int, width: int, channels: int = 3) -> np.ndarray:
    shape = (height, width) if channels == 1 else (height, width, channels)
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def test_int8_is_one_flipped_bit() -> None:
    fill = Preprocessor(InputRule(channels="bgr"), INT8)
    image, view = _picture(32, 32), np.zeros((32, 32, 3), np.int8)
    fill.fill(image, view)
    assert fill.is_bit_flip
    np.testing.assert_array_equal(view.astype(np.int16), image.astype(np.int16) - 128)


def test_another_scale_is_quantised_exactly() -> None:
    other = spec("i", (1, 32, 32, 3), "int8", 1 / 64, 3)
    fill = Preprocessor(InputRule(channels="bgr", mean=127.5, std=127.5), other)
    image, view = _picture(32, 32), np.zeros((32, 32, 3), np.int8)
    fill.fill(image, view)
    wanted = np.clip(np.rint((image - 127.5) / 127.5 * 64) + 3, -128, 127)
    np.testing.assert_array_equal(view, wanted)


def test_bare_quantised_models_get_the_pixels_as_they_are() -> None:
    fill = Preprocessor(InputRule(channels="rgb", as_is=True), spec("i", (1, 32, 32, 3), "uint8", 1 / 128, 128))
    image, view = _picture(32, 32), np.zeros((32, 32, 3), np.uint8)
    fill.fill(image, view)
    np.testing.assert_array_equal(view, image[..., ::-1])


@pytest.mark.parametrize("nhwc", [True, False])
@pytest.mark.parametrize("channels", [1, 3])
def test_float_layouts(nhwc: bool, channels: int) -> None:
    shape = (1, 32, 32, channels) if nhwc else (1, channels, 32, 32)
    rule = InputRule(channels="gray" if channels == 1 else "bgr", mean=51.0, std=255.0)
    fill = Preprocessor(rule, spec("i", shape))
    image, view = _picture(32, 32, channels), np.zeros(shape[1:], np.float32)
    fill.fill(image, view)
    wanted = (image.astype(np.float32) - 51.0) / 255.0
    got = view if nhwc else np.moveaxis(view, 0, -1)
    np.testing.assert_allclose(got.reshape(wanted.shape), wanted, atol=1e-6)


@pytest.mark.parametrize(
    ("frame", "wanted"), [(1, "bgr"), (1, "rgb"), (3, "gray"), (1, "gray"), (3, "bgr"), (3, "rgb")]
)
@pytest.mark.parametrize("size", [(32, 32), (64, 48), (20, 61)])
def test_every_kind_of_frame_fills_every_kind_of_input(frame: int, wanted: str, size: tuple[int, int]) -> None:
    channels = 1 if wanted == "gray" else 3
    fill = Preprocessor(InputRule(channels=wanted), spec("i", (1, 32, 32, channels), "int8", 1 / 255, -128))
    image = np.full((*size, 3) if frame == 3 else size, 200, np.uint8)
    view = np.zeros((32, 32, channels), np.int8)
    fill.fill(image, view)
    assert (view.view(np.uint8) ^ 0x80 == 200).all()


def test_the_letterbox_keeps_the_shape_and_fills_the_rest() -> None:
    fill = Preprocessor(InputRule(channels="bgr", resize="letterbox", pad=7), INT8)
    view = np.zeros((32, 32, 3), np.int8)
    mapping = fill.fill(np.full((50, 100, 3), 255, np.uint8), view)
    pixels = view.view(np.uint8) ^ 0x80
    assert (mapping.scale_x, mapping.scale_y, mapping.pad_x, mapping.pad_y) == (0.32, 0.32, 0, 8)
    assert (pixels[8:24] == 255).all()
    assert (pixels[:8] == 7).all()
    assert (pixels[24:] == 7).all()
    # Another camera: the old picture must not shine through.
    fill.fill(np.full((100, 50, 3), 255, np.uint8), view)
    assert ((view.view(np.uint8) ^ 0x80)[:, :8] == 7).all()


def test_nothing_is_allocated_from_frame_to_frame() -> None:
    fill = Preprocessor(
        InputRule(channels="gray", resize="letterbox"), spec("i", (1, 64, 64, 1), "int8", 1 / 255, -128)
    )
    view, image = np.zeros((64, 64, 1), np.int8), _picture(480, 640)
    fill.fill(image, view)
    buffers = [id(fill._canvas), *map(id, fill._small.values())]
    fill.fill(image, view)
    assert buffers == [id(fill._canvas), *map(id, fill._small.values())]


def test_frames_that_cannot_be_used() -> None:
    fill = Preprocessor(InputRule(channels="bgr", resize="none"), INT8)
    view = np.zeros((32, 32, 3), np.int8)
    for bad in (_picture(32, 32).astype(np.uint16), np.zeros((0, 5, 3), np.uint8), np.zeros((32, 32, 4), np.uint8)):
        with pytest.raises(FrameError):
            fill.fill(bad, view)
    with pytest.raises(FrameError, match="the frame is 40x30; this model takes 32x32 as it is"):
        fill.fill(_picture(30, 40), view)


def test_inputs_that_are_no_image() -> None:
    for shape in ((1, 5), (2, 32, 32, 3), (1, 32, 32, 7)):
        with pytest.raises(ArtefactError, match="an image of 1 or 3 channels"):
            Preprocessor(InputRule(), spec("i", shape, "int8", 1 / 255, -128))
    with pytest.raises(ArtefactError, match="int8, uint8 and float32"):
        Preprocessor(InputRule(), spec("i", (1, 32, 32, 3), "int16", 1 / 255, 0))
