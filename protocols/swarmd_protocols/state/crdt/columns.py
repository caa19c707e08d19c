"""Columns of integers on the wire: one width for a whole column, so that packing and unpacking run at the speed of C.

A column is one byte of code and then its values, little endian:

    code 0          every value is 0, no bytes follow
    code 1          every value is the same, one i64 follows
    code b h i q    n values of 1, 2, 4, 8 bytes, signed

The count of rows is known from elsewhere, so no length is stored and no length can lie.
"""

import struct
from collections.abc import Sequence
from itertools import accumulate, pairwise

from swarmd_protocols.errors import WireError

_ZERO = 0
"""Code of a column of zeros."""
_SAME = 1
"""Code of a column of one value."""
_WIDTHS = {ord("b"): 1, ord("h"): 2, ord("i"): 4, ord("q"): 8}
"""Code to bytes a value; the letters of `struct`."""
_I64 = struct.Struct("<q")


def pack(values: Sequence[int]) -> bytes:
    """Pack one column.

    Args:
        values: Integers that fit 64 bits signed; at least one.

    Returns:
        The code and the values.

    >>> pack([3] * 9).hex()
    '010300000000000000'
    >>> len(pack([1, -2, 100]))
    4
    """
    low, high = min(values), max(values)
    if low == high and (low == 0 or len(values) > 8):
        return b"\x00" if low == 0 else b"\x01" + _I64.pack(low)
    if low >= -128 and high <= 127:
        code = "b"
    elif low >= -32_768 and high <= 32_767:
        code = "h"
    elif low >= -2_147_483_648 and high <= 2_147_483_647:
        code = "i"
    else:
        code = "q"
    return code.encode() + struct.pack(f"<{len(values)}{code}", *values)


def unpack(data: bytes, count: int) -> Sequence[int]:
    """Unpack one column of `count` rows.

    Raises:
        WireError: The bytes are no column of that many rows.
    """
    if not data:
        raise WireError("a column is empty")
    code = data[0]
    if code == _ZERO and len(data) == 1:
        return (0,) * count
    if code == _SAME and len(data) == 9:
        return _I64.unpack_from(data, 1) * count
    width = _WIDTHS.get(code)
    if width is None or len(data) != 1 + width * count:
        raise WireError(f"a column of {len(data)} bytes does not hold {count} values")
    return struct.unpack_from(f"<{count}{chr(code)}", data, 1)


def pack_deltas(values: Sequence[int]) -> bytes:
    """Pack a column whose neighbours are alike: the first value, then the differences."""
    return _I64.pack(values[0]) + (pack([b - a for a, b in pairwise(values)]) if len(values) > 1 else b"")


def unpack_deltas(data: bytes, count: int) -> Sequence[int]:
    """Undo `pack_deltas`; values may leave 64 bits only by a liar's hand, which the caller's bounds catch."""
    if len(data) < 8:
        raise WireError("a column of differences is cut short")
    first = _I64.unpack_from(data)[0]
    if count == 1:
        if len(data) != 8:
            raise WireError("a column of one value has bytes to spare")
        return (first,)
    return list(accumulate(unpack(data[8:], count - 1), initial=first))
