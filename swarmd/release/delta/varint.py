"""Integers of a delta file: seven bits a byte, lowest first, five bytes at most."""

from swarmd.release.errors import DeltaError


def varint(value: int) -> bytes:
    """Seven bits a byte, lowest first."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The integer at `at` and the position after it.

    Raises:
        DeltaError: The data end, or the integer has more than five bytes.
    """
    value = shift = 0
    while shift < 35:
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise DeltaError("the delta is cut short or malformed (integer)")
