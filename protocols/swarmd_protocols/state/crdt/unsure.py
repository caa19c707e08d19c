"""Columns of sightings of which their authors are not sure: what score each needs, and how alike looks are."""

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import TypeAlias

from swarmd_protocols.errors import WireError
from swarmd_protocols.state.crdt.columns import pack, unpack

Alike: TypeAlias = tuple[int, int]
"""Correlations in thousandths, of two looks in one pass and of two on different days; 0: not said."""
NOT_SAID: Alike = (0, 0)
"""No bundle has measured it."""
NO_COLUMN = b"\x00"
"""A column of which no row says anything."""


def pack_unsure(needs: Sequence[int], alike: Sequence[Alike]) -> list[bytes]:
    """The columns as they stand in a batch, as few as say something; at least the first."""
    values = [value for pair in alike for value in pair]
    return [pack(needs), pack(values)] if any(values) else [pack(needs)]


def unpack_unsure(needs: bytes, alike: bytes, scores: Sequence[int]) -> tuple[Iterable[int], Iterable[Alike]]:
    """Of each row what it needs and how alike looks are; (0, `NOT_SAID`) for what is sure.

    Args:
        needs: The column.
        alike: Likewise.
        scores: Of the rows, thousandths.

    Raises:
        WireError: A value is no score and no correlation.
    """
    n = len(scores)
    if needs == NO_COLUMN:
        return repeat(0, n), repeat(NOT_SAID, n)
    wanted = unpack(needs, n)
    if not 0 <= min(wanted) <= max(wanted) <= 1000:
        raise WireError("the score that a sighting needs is out of range")
    told = [need * (need > score) for need, score in zip(wanted, scores, strict=True)]
    if alike == NO_COLUMN:
        return told, repeat(NOT_SAID, n)
    values = unpack(alike, 2 * n)
    if not 0 <= min(values) <= max(values) <= 1000:
        raise WireError("a correlation of looks is out of range")
    pairs = zip(values[::2], values[1::2], strict=True)
    return told, [pair if need else NOT_SAID for pair, need in zip(pairs, told, strict=True)]
