"""What a FLIR camera measured, out of the JPEG that it writes: kelvin by pixel, beside the picture made of it.

```
APP1 "FLIR" 00 01 NUMBER LAST data          segments, joined by number: one FFF file
FFF: "FFF" 00 …, at 20 version, at 24 offset of the directory, at 28 its records (all big-endian, or all little)
record: u16 type, …, at 12 offset, at 16 length                    32 bytes each
type 1, RawData:     u16 2, u16 width, u16 height, … at 32 the counts: 16 bits each, or a PNG of them
type 32, CameraInfo: u16 2, … at 32 emissivity, at 40 reflected temperature (K), at 88 R1, B, F, at 776 O (i32), R2
```

kelvin = B / ln(R1 / (R2 (counts of the object + O)) + F), where the counts of the object are those of the picture less
what it reflects. Air between is taken as clear, as it is within some tens of metres. Files come from outside: offsets,
sizes and numbers that cannot be are no measurements, and then the picture is read as any other.

Source:
    ExifTool's description of FLIR's FFF (lib/Image/ExifTool/FLIR.pm) and of its Planck constants.
    Files of three cameras are read; no other tool's temperatures were held against them.
"""

import math
import struct

import cv2
import numpy as np
import numpy.typing as npt

from swarmd_models.picture_header import read_header

MAX_SIDE = 8_192
"""Pixels of a side: eight times the largest sensors'."""
MAX_PIXELS = 4 << 20
"""Five times the largest sensors': packed, a picture of 34 kB held 17 million, which took 416 MiB."""
_AT_ONCE = 1 << 18
"""Pixels whose temperatures are worked out together, in some 64-bit numbers each."""
MAX_RECORDS = 256
"""Of a directory; cameras write some tens."""
MAX_SEGMENTS = 256
"""Of one FFF file: their number is a byte."""
_RAW_DATA, _CAMERA_INFO = 1, 32
_PNG = b"\x89PNG\r\n\x1a\n"
_LEAST_KELVIN, _MOST_KELVIN = 50.0, 5_000.0
"""What no camera measures beyond; a constant that gives more is damaged."""


def kelvin_of(jpeg: bytes) -> npt.NDArray[np.float32] | None:
    """Shape (H, W), kelvin; None where the JPEG holds no measurements that can be read.

    Args:
        jpeg: The whole file.
    """
    try:
        fff = _joined(jpeg)
        if fff[:4] != b"FFF\0":
            return None
        for order in (">", "<"):
            records = _records(fff, order)
            if records is not None:
                break
        else:
            return None
        counts, info = _counts(records.get(_RAW_DATA, b"")), records.get(_CAMERA_INFO, b"")
        return None if counts is None else _kelvin(counts, info)
    except (struct.error, IndexError, ValueError, cv2.error):
        return None


def _joined(jpeg: bytes) -> bytes:
    """The FFF file out of a JPEG's segments; b"" where there is none or one is missing."""
    parts: dict[int, bytes] = {}
    at, last = 2, -1
    while at + 4 <= len(jpeg) and jpeg[at] == 0xFF and jpeg[at + 1] != 0xDA:
        length = int.from_bytes(jpeg[at + 2 : at + 4], "big")
        data = jpeg[at + 4 : at + 2 + length]
        if jpeg[at + 1] == 0xE1 and data[:6] == b"FLIR\0\x01" and len(data) > 8:
            parts.setdefault(data[6], data[8:])
            last = data[7]
        at += 2 + max(length, 2)
    if last < 0 or len(parts) > MAX_SEGMENTS or any(number not in parts for number in range(last + 1)):
        return b""
    return b"".join(parts[number] for number in range(last + 1))


def _records(fff: bytes, order: str) -> dict[int, bytes] | None:
    """The first record of each type that is read; None where this is not the order of the file's bytes."""
    version, start, count = struct.unpack_from(order + "3I", fff, 20)
    if not (100 <= version < 200 and 0 < count <= MAX_RECORDS and start + 32 * count <= len(fff)):
        return None
    found: dict[int, bytes] = {}
    for index in range(count):
        at = start + 32 * index
        (kind,) = struct.unpack_from(order + "H", fff, at)
        offset, length = struct.unpack_from(order + "2I", fff, at + 12)
        # The two that are read alone: each entry may point to all of the file.
        if kind in (_RAW_DATA, _CAMERA_INFO) and offset + length <= len(fff):
            found.setdefault(kind, fff[offset : offset + length])
    return found


def _order(record: bytes) -> str:
    """Each record says its own order: its first number is 2."""
    return "<" if struct.unpack_from("<H", record)[0] == 2 else ">"


def _counts(record: bytes) -> npt.NDArray[np.uint16] | None:
    order = _order(record)
    two, width, height = struct.unpack_from(order + "3H", record)
    data = record[32:]
    if two != 2 or not (0 < width <= MAX_SIDE and 0 < height <= MAX_SIDE and width * height <= MAX_PIXELS):
        return None
    if data[:8] != _PNG:
        if len(data) < 2 * width * height:
            return None
        return np.frombuffer(data, f"{order}u2", width * height).reshape(height, width).astype(np.uint16)
    header = read_header(data)
    if header is None or (header.width, header.height, header.bits, header.samples) != (width, height, 16, 1):
        return None
    image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    if image is None or image.dtype != np.uint16:
        return None
    # FLIR writes the PNG's samples with their bytes swapped.
    return np.asarray(image, np.uint16).byteswap()


def _kelvin(counts: npt.NDArray[np.uint16], info: bytes) -> npt.NDArray[np.float32] | None:
    order = _order(info)
    emissivity, _, reflected_k = struct.unpack_from(order + "3f", info, 32)
    r1, b, f = struct.unpack_from(order + "3f", info, 88)
    o, r2 = struct.unpack_from(order + "if", info, 776)
    numbers = (emissivity, reflected_k, r1, b, f, r2)
    if not all(map(math.isfinite, numbers)) or min(r1, b, r2) <= 0.0 or not 0.01 <= emissivity <= 1.0:
        return None
    if not _LEAST_KELVIN <= reflected_k <= _MOST_KELVIN:
        return None
    # What a black body of the surroundings' temperature would count, of which the object sends back its share.
    mirrored = r1 / (r2 * (math.exp(min(b / reflected_k, 700.0)) - f)) - o
    kelvin = np.empty(counts.size, np.float32)
    for at in range(0, counts.size, _AT_ONCE):
        some = counts.reshape(-1)[at : at + _AT_ONCE]
        of_object = (some.astype(np.float64) - (1.0 - emissivity) * mirrored) / emissivity
        with np.errstate(divide="ignore", invalid="ignore"):
            found = b / np.log(r1 / (r2 * (of_object + o)) + f)
        found[~((found >= _LEAST_KELVIN) & (found <= _MOST_KELVIN))] = np.nan
        kelvin[at : at + _AT_ONCE] = found
    return None if np.isnan(kelvin).all() else kelvin.reshape(counts.shape)
