"""Sets of chunks as integers: bit i is chunk i. What is done with them costs bytes, not a loop over every chunk."""

import random
from collections.abc import Iterator


def bits(mask: int) -> Iterator[int]:
    """The indexes of the bits that are set, ascending.

    >>> list(bits(0b1011))
    [0, 1, 3]
    """
    for at, octet in enumerate(mask.to_bytes(-(-mask.bit_length() // 8), "little")):
        while octet:
            low = octet & -octet
            yield 8 * at + low.bit_length() - 1
            octet ^= low


def pick(mask: int, rng: random.Random) -> int:
    """One of the set bits, all equally likely; there must be one.

    >>> pick(0b100, random.Random(1))
    2
    """
    place = rng.randrange(mask.bit_count())
    octets = mask.to_bytes(-(-mask.bit_length() // 8), "little")
    for at, octet in enumerate(octets):
        count = octet.bit_count()
        if place < count:
            return 8 * at + list(bits(octet))[place]
        place -= count
    raise AssertionError("an empty set has nothing to pick")


class Counts:
    """How often each chunk was counted: one mask for each count.

    Args:
        chunks: How many chunks there are; each begins at 0.
    """

    __slots__ = ("_masks",)

    def __init__(self, chunks: int) -> None:
        self._masks = [(1 << chunks) - 1]

    def add(self, mask: int) -> None:
        """Count these once more."""
        for count in range(len(self._masks) - 1, -1, -1):
            moved = self._masks[count] & mask
            if moved:
                self._masks[count] ^= moved
                if count + 1 == len(self._masks):
                    self._masks.append(0)
                self._masks[count + 1] |= moved

    def take(self, mask: int) -> None:
        """Count these once less; each must have been counted."""
        for count in range(1, len(self._masks)):
            moved = self._masks[count] & mask
            self._masks[count] ^= moved
            self._masks[count - 1] |= moved
        while len(self._masks) > 1 and not self._masks[-1]:
            self._masks.pop()

    def of(self, index: int) -> int:
        """How often a chunk was counted."""
        return next(count for count, mask in enumerate(self._masks) if mask >> index & 1)

    def under(self, count: int) -> int:
        """The mask of those counted less often than this."""
        found = 0
        for mask in self._masks[:count]:
            found |= mask
        return found

    def least(self, mask: int) -> int:
        """Those of `mask` that were counted least; 0 for none."""
        return next((mask & one for one in self._masks if mask & one), 0)
