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

import cv2
import numpy as np

from swarmd.worker.coding import CODED_MAX_BYTES, packed, unpacked
from swarmd_models.backends.base import Array

RAW, DIFF, JPEG = "raw", "diff-br", "jpeg"
FORMS = (RAW, DIFF, JPEG)
CODED = (DIFF, JPEG)
"""Which of them are named as a tensor's `coding`."""
CHANNELS = (1, 3)
_AXES = 3
_JPEG_ROOM_BYTES = 4 << 10
"""Beyond a picture's own bytes that a JPEG of it may have: its tables, where it is a few pixels."""
_SOI, _EOI = b"\xff\xd8", b"\xff\xd9"
_SOF0, _SOS = 0xC0, 0xDA
_TABLES = (0xDB, 0xC4, 0xE0, 0xDD)
"""Quantisation, Huffman, JFIF and restart intervals: what a picture needs, and no metadata."""
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


def as_jpeg(image: Array, quality: int) -> bytes:
    """A picture as `jpeg`."""
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
    at, frame = len(_SOI), None
    for _ in range(_SEGMENTS_MAX):
        head, size = data[at : at + 2], int.from_bytes(data[at + 2 : at + 4], "big")
        segment = data[at + 4 : at + 2 + size]
        if len(head) != 2 or head[0] != 0xFF or size < 2 or len(segment) != size - 2:
            raise ValueError("a JPEG with a segment that is cut short")
        if head[1] == _SOS:
            scan = data[at + 2 + size : -len(_EOI)]
            if frame is None or not segment or segment[0] != frame[2]:
                raise ValueError("a JPEG with a scan that is not of its whole frame")
            if not scan or _markers(scan):
                raise ValueError("a JPEG that goes on behind its scan, or has none")
            return frame
        if head[1] == _SOF0 and frame is None:
            frame = _sides_of(segment)
        elif head[1] not in _TABLES:
            raise ValueError(f"a JPEG with a segment of kind {head[1]:#x}: baseline without metadata is wanted")
        at += 2 + size
    raise ValueError("a JPEG without a scan")


def _sides_of(segment: bytes) -> tuple[int, int, int]:
    count = segment[5] if len(segment) > 5 else 0
    if count not in CHANNELS or len(segment) != 6 + 3 * count or segment[0] != 8:
        raise ValueError("a JPEG's frame that is not of 8 bits in one or three components")
    return int.from_bytes(segment[1:3], "big"), int.from_bytes(segment[3:5], "big"), count


def _markers(scan: bytes) -> bool:
    """Whether anything but pixels and restarts stands in a scan."""
    bare = scan.replace(b"\xff\0", b"")
    while (at := bare.find(b"\xff")) >= 0:
        if not 0xD0 <= int.from_bytes(bare[at + 1 : at + 2] or b"\0", "big") <= 0xD7:
            return True
        bare = bare[at + 2 :]
    return False
