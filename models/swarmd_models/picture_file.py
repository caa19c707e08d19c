"""One picture out of a local file, judged by its size and its header before anything of it is decoded."""

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from swarmd_models.bounded_file import read_bounded
from swarmd_models.errors import SourceError
from swarmd_models.picture_header import read_header

MAX_IMAGE_BYTES = 64 << 20
"""Of a picture's file."""
MAX_IMAGE_SIDE = 16_384
"""Pixels of a picture's side, by its header, before it is decoded."""
MAX_IMAGE_PIXELS = 160_000_000
"""Of a picture, before it is decoded: the largest aerial cameras have 150 million. In colour that is 480 MB."""
_UNKNOWN_PICTURE = "corrupt, or of a format that is not known"
MAX_RAW_BYTES = 256 << 20
"""Of a thermal picture's pixels, as its header says them, before it is decoded: a hundred times the largest sensors'.
Packed, a file of 62 KB holds 512 MB of them, and an eye was at it for a minute."""


def picture_bytes(path: Path) -> bytes:
    """A picture's file, whole, and no larger than can be decoded.

    Raises:
        SourceError: Missing, too large in bytes or in pixels, truncated, or no picture.
    """
    data = read_bounded(path, MAX_IMAGE_BYTES, "picture", SourceError)
    if not data:
        raise SourceError(f"picture {path} is empty")
    if data[:2] == b"\xff\xd8" and data.rfind(b"\xff\xd9") < data.rfind(b"\xff\xda"):
        raise SourceError(f"picture {path} is truncated: the JPEG has no end")
    if data[:8] == b"\x89PNG\r\n\x1a\n" and b"IEND" not in data[-64:]:
        raise SourceError(f"picture {path} is truncated: the PNG has no end")
    _check_size(path, data)
    return data


def decoded(data: bytes, path: Path, flags: int) -> npt.NDArray[Any]:
    """The pixels of `picture_bytes`.

    Args:
        data: The file.
        path: Its name, for what is said of it.
        flags: OpenCV's `IMREAD_…`.

    Raises:
        SourceError: It is corrupt.
    """
    try:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except cv2.error as error:
        raise SourceError(f"picture {path} cannot be decoded: {error.err}") from error
    if image is None or image.size == 0:
        raise SourceError(f"picture {path} cannot be decoded: {_UNKNOWN_PICTURE}")
    return image


def read_pixels(path: Path) -> npt.NDArray[np.uint8]:
    """A picture as it is, shape (H, W, 3) BGR or (H, W) grey, 8 bits.

    Raises:
        SourceError: Missing, too large in bytes or in pixels, truncated, or no picture.
    """
    return decoded(picture_bytes(path), path, cv2.IMREAD_ANYCOLOR).astype(np.uint8, copy=False)


def _check_size(path: Path, data: bytes) -> None:
    """Refuse by its header what would be too large to decode."""
    header = read_header(data)
    if header is None:
        raise SourceError(f"picture {path} cannot be decoded: {_UNKNOWN_PICTURE}")
    if header.raw_bytes > MAX_RAW_BYTES:
        raise SourceError(f"picture {path} holds more than {MAX_RAW_BYTES >> 20} MiB of measurements; give it in parts")
    if max(header.width, header.height) > MAX_IMAGE_SIDE:
        raise SourceError(f"picture {path} is wider or higher than {MAX_IMAGE_SIDE} pixels")
    if header.width * header.height > MAX_IMAGE_PIXELS:
        raise SourceError(f"picture {path} has more than {MAX_IMAGE_PIXELS // 1_000_000} million pixels")
