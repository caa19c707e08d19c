"""How large a picture is, by its header, before anything is decoded.

A picture's pixels are what its decoder allocates, and a file of some kilobytes can hold gigabytes of them. Formats
whose header is not known here are not decoded at all.

Source:
    PNG (ISO/IEC 15948) 5.3 and 11.2.2; TIFF 6.0, sections 2 and 8; JPEG (ITU-T T.81) B.2.2; BMP: BITMAPCOREHEADER and
    BITMAPINFOHEADER; WebP (RFC 9649) 2.4 to 2.7; Netpbm's pbm(5), pgm(5) and ppm(5).
"""

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass

_TIFF_WIDTH, _TIFF_HEIGHT, _TIFF_BITS, _TIFF_SAMPLES = 256, 257, 258, 277
_TIFF_SHORT, _TIFF_LONG = 3, 4
"""Tags, and the types of their values."""
_NO_FRAME = (0xC4, 0xC8, 0xCC)
"""JPEG markers among those of frames that begin none: Huffman tables, an extension, arithmetic coding."""
_ALONE = (0x01, *range(0xD0, 0xD9))
"""JPEG markers that nothing belongs to."""
_MAX_MARKERS = 10_000
"""JPEG segments before the frame; cameras write some tens, a colour profile or EXIF with a preview a few more."""
_MAX_CHUNKS = 65_536
"""Of a PNG; writers put 8 KiB of pixels and more into each."""
_TILE_WIDTH, _TILE_HEIGHT = 322, 323
_MAX_TILE_PIXELS = 1 << 24
"""Of a TIFF's tile that is larger than its picture: decoders make room for whole tiles. Usual ones have 65,536."""
_CORE_HEADER_BYTES = 12
"""The oldest of BMP's headers, which has sides of 16 bits."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a picture's header says."""

    width: int
    height: int
    bits: int = 8
    """Of one sample."""
    samples: int = 3
    """Of one pixel; 3 where the header does not say."""

    @property
    def raw_bytes(self) -> int:
        """Of all samples of more than 8 bits; 0 for usual pictures."""
        return self.width * self.height * self.samples * (self.bits // 8) if self.bits > 8 else 0


def read_header(data: bytes) -> Header | None:
    """The header of a PNG, TIFF, JPEG, BMP, WebP or Netpbm picture; None where it is none of these, or cut off.

    >>> read_header(b"P5 # made by hand\\n640 512\\n65535\\n")
    Header(width=640, height=512, bits=16, samples=1)
    """
    for magic, read in _READERS:
        if magic.match(data):
            try:
                header = read(data)
            except (struct.error, IndexError):
                return None
            return header if header is not None and header.width > 0 and header.height > 0 else None
    return None


def _png(data: bytes) -> Header | None:
    width, height, bits, colour = struct.unpack_from(">IIBB", data, 16)
    at = 8
    for _ in range(_MAX_CHUNKS):
        length, kind = struct.unpack_from(">I4s", data, at)
        at += 12 + length
        if at > len(data):
            return None  # OpenCV makes room for what a chunk says to hold, up to 4 GiB, before it looks for it.
        if kind == b"IEND":
            break
    else:
        return None
    return Header(width, height, bits, {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}.get(colour, 4))


def _tiff(data: bytes) -> Header | None:
    order = "<" if data[:2] == b"II" else ">"
    (place,) = struct.unpack_from(order + "I", data, 4)
    (count,) = struct.unpack_from(order + "H", data, place)
    found = {_TIFF_BITS: 1, _TIFF_SAMPLES: 1, _TIFF_WIDTH: 0, _TIFF_HEIGHT: 0, _TILE_WIDTH: 0, _TILE_HEIGHT: 0}
    for at in range(place + 2, place + 2 + 12 * count, 12):
        tag, kind, values = struct.unpack_from(order + "HHI", data, at)
        if tag not in found:
            continue
        size = {_TIFF_SHORT: "H", _TIFF_LONG: "I"}.get(kind)
        if size is None:
            return None  # Of another type, which decoders may take all the same.
        # More than four bytes of values lie elsewhere; of several samples the first says enough.
        is_far = values * struct.calcsize(size) > 4
        where = struct.unpack_from(order + "I", data, at + 8)[0] if is_far else at + 8
        # A tag that stands there twice counts as its largest: which of them a decoder takes, it does not say.
        found[tag] = max(found[tag], struct.unpack_from(order + size, data, where)[0])
    width, height = found[_TIFF_WIDTH], found[_TIFF_HEIGHT]
    if found[_TILE_WIDTH] * found[_TILE_HEIGHT] > max(width * height, _MAX_TILE_PIXELS):
        return None
    return Header(width, height, found[_TIFF_BITS], found[_TIFF_SAMPLES])


def _jpeg(data: bytes) -> Header | None:
    at = 2
    for _ in range(_MAX_MARKERS):
        at = data.find(b"\xff", at)  # What is between segments counts for nothing, here as in decoders.
        if at < 0:
            return None
        while data[at] == 0xFF:
            at += 1
        marker, at = data[at], at + 1
        if marker in _ALONE or marker == 0:
            continue
        if 0xC0 <= marker <= 0xCF and marker not in _NO_FRAME:
            bits, height, width, samples = struct.unpack_from(">BHHB", data, at + 2)
            return Header(width, height, bits, samples)
        if marker in (0xD9, 0xDA):
            return None
        (length,) = struct.unpack_from(">H", data, at)
        at += max(length, 2)
    return None


def _bmp(data: bytes) -> Header:
    (length,) = struct.unpack_from("<I", data, 14)
    form = "<HH" if length == _CORE_HEADER_BYTES else "<ii"
    width, height = struct.unpack_from(form, data, 18)
    return Header(abs(width), abs(height))


def _webp(data: bytes) -> Header | None:
    kind = data[12:16]
    if kind == b"VP8X":
        sides = int.from_bytes(data[24:27], "little"), int.from_bytes(data[27:30], "little")
        return Header(sides[0] + 1, sides[1] + 1) if len(data) >= 30 else None
    if kind == b"VP8L":
        (packed,) = struct.unpack_from("<I", data, 21)
        return Header((packed & 0x3FFF) + 1, (packed >> 14 & 0x3FFF) + 1)
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", data, 26)
        return Header(width & 0x3FFF, height & 0x3FFF)
    return None


_GAP = rb"(?:\s|#[^\r\n]*[\r\n])*"
_NETPBM = re.compile(
    rb"P[1-6](?=[\s#])" + _GAP + rb"(\d{1,9})\s" + _GAP + rb"(\d{1,9})\s(?:" + _GAP + rb"(\d{1,9})\s)?"
)
"""Each number whole, with white space behind it: decoders differ on what a comment there belongs to."""


def _netpbm(data: bytes) -> Header | None:
    numbers = _NETPBM.match(data[:2048])
    is_bitmap = data[1:2] in b"14"
    if numbers is None or (numbers[3] is None and not is_bitmap):
        return None
    is_deep = not is_bitmap and int(numbers[3]) > 255
    return Header(int(numbers[1]), int(numbers[2]), 16 if is_deep else 8, 3 if data[1:2] in b"36" else 1)


_READERS: tuple[tuple[re.Pattern[bytes], Callable[[bytes], Header | None]], ...] = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), _png),
    (re.compile(rb"II\*\0|MM\0\*"), _tiff),
    (re.compile(rb"\xff\xd8"), _jpeg),
    (re.compile(rb"BM"), _bmp),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), _webp),
    (re.compile(rb"P[1-6]"), _netpbm),
)
