"""The forms in which a picture travels between devices, and how each is read again.

| form | what it is | pixels |
|---|---|---|
| `raw` | rows of pixels, as programs send them | the same |
| `diff-br` | each row less the one above it, modulo 256, packed with brotli | the same |
| `jpeg` | a baseline JPEG of 8 bits, grey or three components, in one scan, without metadata | others |

A request says the form as the tensor's `coding`, beside `binary_data_size`, which then is the coded one. Sides come
from the tensor's shape, which stands before the bytes: what it makes is bounded before anything is decoded, a JPEG's
own header must say the same sides, and brotli is stopped where more would come out.

Source:
    ITU-T T.81 (JPEG), annex B, for segments and the baseline frame.
"""

import re

import numpy as np

from swarmd.worker.coding import CODED_MAX_BYTES, packed, unpacked
from swarmd_models.backends.base import Array
from swarmd_models.opencv import cv2

RAW, DIFF, JPEG = "raw", "diff-br", "jpeg"
FORMS = (RAW, DIFF, JPEG)
CODED = (DIFF, JPEG)
"""Which of them are named as a tensor's `coding`."""
CHANNELS = (1, 3)
_AXES = 3
_JPEG_ROOM_BYTES = 4 << 10
"""Beyond a picture's own bytes that a JPEG of it may have: its tables, where it is a few pixels."""
_JPEG_SIDE_MAX = 65_500
"""`JPEG_MAX_DIMENSION` of libjpeg, which writes and reads no longer side."""
_SOI, _EOI = b"\xff\xd8", b"\xff\xd9"
_SOF0, _SOS, _DRI, _RST0 = 0xC0, 0xDA, 0xDD, 0xD0
_TABLES = (0xDB, 0xC4, 0xE0, _DRI)
"""Quantisation, Huffman, JFIF and restart intervals: what a picture needs, and no metadata."""
_BLOCK, _SAMPLING_MAX = 8, 4
_MARKER = re.compile(rb"\xff(?:[^\0]|\Z)", re.DOTALL)
"""In a scan, where FF 00 is a pixel's FF; one at the very end has nothing behind it."""
_SEGMENTS_MAX = 32
"""Before the scan; one that OpenCV writes has ten at most."""


def judge_sides(shape: tuple[int, ...]) -> int:
    """The bytes of a picture's pixels; raises `ValueError` for a shape that no coded picture may have."""
    if len(shape) != _AXES or min(shape) < 1 or shape[2] not in CHANNELS:
        raise ValueError("only a picture of rows, columns and 1 or 3 channels has such a form")
    size_bytes = shape[0] * shape[1] * shape[2]
    if size_bytes > CODED_MAX_BYTES:
        raise ValueError(f"its shape makes more than the {CODED_MAX_BYTES} bytes that are decoded")
    return size_bytes


def differences(image: Array) -> bytes | None:
    """A picture as `diff-br`; None where it would be no smaller."""
    steps = image.copy()
    steps[1:] -= image[:-1]
    return packed(steps.tobytes())


def from_differences(data: bytes, shape: tuple[int, ...]) -> Array:
    """The picture; raises `ValueError`."""
    steps = np.frombuffer(unpacked(data, judge_sides(shape)), np.uint8).reshape(shape)
    return np.add.accumulate(steps, axis=0, dtype=np.uint8)


def as_jpeg(image: Array, quality: int) -> bytes | None:
    """A picture as `jpeg`; None where a side is longer than such a one may have."""
    if max(image.shape[:2]) > _JPEG_SIDE_MAX:
        return None
    is_written, data = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])
    assert is_written
    return bytes(data)


def from_jpeg(data: bytes, shape: tuple[int, ...]) -> Array:
    """The picture; raises `ValueError`. Nothing is decoded before its header says what the shape does."""
    size_bytes = judge_sides(shape)
    if len(data) > size_bytes + _JPEG_ROOM_BYTES:
        raise ValueError(f"a JPEG of {len(data)} bytes for {size_bytes} of pixels")
    found = _frame_of(data)
    if found != tuple(shape):
        raise ValueError(f"a JPEG whose header says {list(found)}; the shape is {list(shape)}")
    try:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    except cv2.error as error:
        raise ValueError("a JPEG that cannot be decoded") from error
    if image is None or image.dtype != np.uint8 or image.size != size_bytes:
        raise ValueError("a JPEG that cannot be decoded")
    return np.asarray(image.reshape(shape))


def _frame_of(data: bytes) -> tuple[int, int, int]:
    """Rows, columns and components of a JPEG of the one kind that is read; raises `ValueError`."""
    if not (data.startswith(_SOI) and data.endswith(_EOI)):
        raise ValueError("a JPEG that does not begin and end as one does")
    at, frame, units, interval = len(_SOI), None, 0, 0
    for _ in range(_SEGMENTS_MAX):
        head, size = data[at : at + 2], int.from_bytes(data[at + 2 : at + 4], "big")
        segment = data[at + 4 : at + 2 + size]
        if len(head) != 2 or head[0] != 0xFF or size < 2 or len(segment) != size - 2:
            raise ValueError("a JPEG with a segment that is cut short")
        if head[1] == _SOS:
            if frame is None or not segment or segment[0] != frame[2]:
                raise ValueError("a JPEG with a scan that is not of its whole frame")
            begin, end = at + 2 + size, len(data) - len(_EOI)
            if begin >= end:
                raise ValueError("a JPEG without pixels")
            _judge_scan(data, begin, end, (units - 1) // interval if interval else 0)
            return frame
        if head[1] == _SOF0 and frame is None:
            frame, units = _sides_of(segment)
        elif head[1] not in _TABLES:
            raise ValueError(f"a JPEG with a segment of kind {head[1]:#x}: baseline without metadata is wanted")
        elif head[1] == _DRI:
            if len(segment) != 2:
                raise ValueError("a JPEG whose restart interval is no number")
            interval = int.from_bytes(segment, "big")
        at += 2 + size
    raise ValueError("a JPEG without a scan")


def _sides_of(segment: bytes) -> tuple[tuple[int, int, int], int]:
    """Rows, columns and components, and how many units its scan has (MCUs, A.2)."""
    count = segment[5] if len(segment) > 5 else 0
    if count not in CHANNELS or len(segment) != 6 + 3 * count or segment[0] != 8:
        raise ValueError("a JPEG's frame that is not of 8 bits in one or three components")
    rows, columns = int.from_bytes(segment[1:3], "big"), int.from_bytes(segment[3:5], "big")
    samplings = [divmod(one, 16) for one in segment[7::3]]
    if not all(1 <= side <= _SAMPLING_MAX for sampling in samplings for side in sampling):
        raise ValueError("a JPEG's frame whose components are not sampled 1 to 4 times")
    across, down = (max(sides) if count > 1 else 1 for sides in zip(*samplings, strict=True))
    return (rows, columns, count), -(-rows // (_BLOCK * down)) * -(-columns // (_BLOCK * across))


def _judge_scan(data: bytes, begin: int, end: int, restarts_max: int) -> None:
    """See that nothing but pixels and restarts stands in a scan; raises `ValueError`.

    One pass over its bytes, which ends at the first marker that is none of so many restarts, counted from 0 to 7 and
    on from 0.
    """
    for number, found in enumerate(_MARKER.finditer(data, begin, end)):
        if number >= restarts_max or data[found.start() + 1] != _RST0 + number % 8:
            raise ValueError("a JPEG with something else in its scan than pixels and the restarts that its header says")
