"""The generic fallback: copies out of the old file, and literals. For any bytes, tensor or not.

Stream (before brotli): for each step `varint(literal bytes) varint(copied bytes) [varint(zigzag(start - expected))]`,
where `expected` is where the last copy ended; then all literals, joined.
"""

from swarmd.release.delta.varint import read_varint, varint
from swarmd.release.errors import DeltaError

_SEED = 24
"""Bytes that must agree before a copy is considered."""
_STRIDE = 8


def encode(old: bytes, new: bytes) -> bytes:
    """The steps that make `new` out of `old`, uncompressed.

    >>> apply(b"hello hello hello hello hello", encode(b"hello hello hello hello hello", b"say hello hello hello"), 99)
    b'say hello hello hello'
    """
    seeds: dict[bytes, int] = {}
    for start in range(0, len(old) - _SEED + 1, _STRIDE):
        seeds.setdefault(old[start : start + _SEED], start)
    steps, literals = bytearray(), bytearray()
    at = pending = expected = 0
    while at < len(new):
        piece = new[at : at + _SEED]
        found = expected if piece == old[expected : expected + _SEED] else seeds.get(piece)
        if found is None or len(piece) < _SEED:
            at += 1
            continue
        start = found
        back = 0
        while back < at - pending and start - back > 0 and new[at - back - 1] == old[start - back - 1]:
            back += 1
        length = _SEED + _common(old, start + _SEED, new, at + _SEED)
        literals += new[pending : at - back]
        shift = start - back - expected
        steps += varint(at - back - pending) + varint(length + back)
        steps += varint(shift << 1 if shift >= 0 else (-shift << 1) - 1)
        expected = start + length
        at = pending = at + length
    literals += new[pending:]
    steps += varint(len(new) - pending) + varint(0)
    return varint(len(steps)) + bytes(steps) + bytes(literals)


def _common(old: bytes, old_at: int, new: bytes, new_at: int) -> int:
    """How many bytes agree from there on, by doubling steps."""
    length, step = 0, 64
    while True:
        one, other = old[old_at + length : old_at + length + step], new[new_at + length : new_at + length + step]
        if one == other and len(one) == step:
            length += step
            step = min(step * 2, 65_536)
            continue
        for index, (a, b) in enumerate(zip(one, other, strict=False)):
            if a != b:
                return length + index
        return length + min(len(one), len(other))


def apply(old: bytes, stream: bytes, limit: int) -> bytes:
    """Make the new bytes.

    Args:
        old: The old bytes.
        stream: What `encode` gave.
        limit: The new bytes are at most so many.

    Raises:
        DeltaError: The stream contradicts itself or would give more.
    """
    size, at = read_varint(stream, 0)
    end = at + size
    literal_at = end
    out = bytearray()
    expected = 0
    while at < end:
        literal, at = read_varint(stream, at)
        copied, at = read_varint(stream, at)
        if literal_at + literal > len(stream) or len(out) + literal + copied > limit:
            raise DeltaError("the delta copies or holds more than it may")
        out += stream[literal_at : literal_at + literal]
        literal_at += literal
        if not copied:
            continue
        shift, at = read_varint(stream, at)
        start = expected + (shift >> 1 if not shift & 1 else -((shift + 1) >> 1))
        if start < 0 or start + copied > len(old):
            raise DeltaError("the delta copies from outside the old file")
        out += old[start : start + copied]
        expected = start + copied
    return bytes(out)
