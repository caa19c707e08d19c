"""What changes between two files of numbers, as bytes that compress: integer residuals, zigzag, byte planes.

Float bits are mapped to integers in the order of the numbers first, so a small change of value is a small residual.
Regions of the new file are paired with the old file's by name; bytes outside any region (the skeleton) are the old
ones plus a bytewise residual when they are equally long, and literal otherwise. Everything rebuilds to the byte.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from swarmd.release.delta.flatbuffer import Region

U8 = npt.NDArray[np.uint8]

_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32}
_SIGNED = {1: np.int8, 2: np.int16, 4: np.int32}


def _ordered(bits: npt.NDArray[np.unsignedinteger], width: int) -> npt.NDArray[np.unsignedinteger]:
    """Float bits as integers in the order of the numbers."""
    sign = bits.dtype.type(1 << (8 * width - 1))
    return np.where(bits & sign, ~bits, bits | sign)


def _unordered(ranks: npt.NDArray[np.unsignedinteger], width: int) -> npt.NDArray[np.unsignedinteger]:
    sign = ranks.dtype.type(1 << (8 * width - 1))
    return np.where(ranks & sign, ranks ^ sign, ~ranks)


def _numbers(data: bytes, start: int, size: int, width: int) -> npt.NDArray[np.unsignedinteger]:
    return np.frombuffer(data, np.dtype(_UNSIGNED[width]).newbyteorder("<"), size // width, start)


def planes_of(old: bytes, old_start: int, new: bytes, new_start: int, size: int, kind: str) -> list[U8]:
    """The residual of one region as zigzagged byte planes, lowest byte first.

    Args:
        old: The old file.
        old_start: Where the region lies in it.
        new: The new file.
        new_start: Where the region lies in it.
        size: Bytes, a multiple of the element's width.
        kind: "i1", "i2", "i4", "f2" or "f4".
    """
    width = int(kind[1])
    before, after = _numbers(old, old_start, size, width), _numbers(new, new_start, size, width)
    if kind[0] == "f":
        before, after = _ordered(before, width), _ordered(after, width)
    signed = (after - before).view(_SIGNED[width])
    zigzag = ((signed << 1) ^ (signed >> (8 * width - 1))).view(np.uint8).reshape(-1, width)
    return [np.ascontiguousarray(zigzag[:, plane]) for plane in range(width)]


def apply_planes(old: bytes, old_start: int, planes: list[U8], kind: str) -> bytes:
    """The bytes of the region in the new file."""
    width = int(kind[1])
    count = len(planes[0])
    joined = np.empty((count, width), np.uint8)
    for index, plane in enumerate(planes):
        joined[:, index] = plane
    zigzag = joined.reshape(-1).view(_UNSIGNED[width])
    one = zigzag.dtype.type(1)
    residual = (zigzag >> one) ^ (~(zigzag & one) + one)
    before = _numbers(old, old_start, count * width, width)
    if kind[0] == "f":
        return bytes(_unordered((_ordered(before, width) + residual).astype(zigzag.dtype), width).astype(zigzag.dtype))
    return bytes((before + residual).astype(zigzag.dtype))


@dataclass(frozen=True, slots=True)
class Pair:
    """A region of the new file and where its numbers were before."""

    new_start: int
    old_start: int
    size: int
    kind: str


def pair_regions(old: bytes, old_regions: list[Region], new: bytes, new_regions: list[Region]) -> list[Pair]:
    """Give each region of the new file the region of the old one that it differs least from.

    Of the same size and kind; the name and then the place decide between equals. A converter names constants as it
    pleases and may store a tensor once or twice, so the content is what tells; an old region may serve several. Regions
    of a new size are left to the skeleton.

    Args:
        old: The old file.
        old_regions: Its regions.
        new: The new file.
        new_regions: Its regions.
    """
    alike: dict[tuple[int, str], list[Region]] = {}
    for region in old_regions:
        alike.setdefault((region.size, region.kind), []).append(region)
    pairs = []
    for region in new_regions:
        candidates = alike.get((region.size, region.kind), [])
        if candidates:
            best = min(candidates, key=lambda one: (_apart(old, one, new, region), *_unlike(one, region)))
            pairs.append(Pair(region.start, best.start, region.size, region.kind))
    return pairs


def _apart(old: bytes, before: Region, new: bytes, after: Region) -> int:
    """About how many bits the residual takes."""
    planes = planes_of(old, before.start, new, after.start, after.size, after.kind)
    return int(sum(np.log2(plane.astype(np.float32) + 1).sum() for plane in planes) * 16)


def _unlike(before: Region, after: Region) -> tuple[bool, int]:
    return before.name != after.name, abs(before.start - after.start)


def skeleton(data: bytes, spans: list[tuple[int, int]]) -> bytes:
    """All bytes outside the spans (start, size), which are ascending and do not overlap."""
    parts, at = [], 0
    for start, size in spans:
        parts.append(data[at:start])
        at = start + size
    parts.append(data[at:])
    return b"".join(parts)


def xor(one: bytes, other: bytes) -> bytes:
    """Bytewise exclusive or of equally long bytes."""
    return bytes(np.frombuffer(one, np.uint8) ^ np.frombuffer(other, np.uint8))
