"""Stretches of time as sorted lists of (from, to), apart from each other. Pure."""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

Span: TypeAlias = tuple[int, int]

JOIN_MS = 1_000
"""Two stretches so close, milliseconds, are one: a node writes the next page down a moment after the last."""


def joined(spans: Iterable[Span]) -> list[Span]:
    """The same time as few stretches.

    >>> joined([(5_000, 9_000), (0, 4_500), (20_000, 20_000)])
    [(0, 9000), (20000, 20000)]
    """
    found: list[Span] = []
    for begin, end in sorted(spans):
        if found and begin - found[-1][1] <= JOIN_MS:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def without(span: Span, taken: Sequence[Span]) -> list[Span]:
    """What of a stretch lies in none of the others, which are sorted; what is not longer than `JOIN_MS` is nothing.

    >>> without((0, 10_000), [(2_000, 3_000), (9_500, 12_000)])
    [(0, 2000), (3000, 9500)]
    """
    begin, end = span
    found: list[Span] = []
    for one_begin, one_end in taken:
        if one_end <= begin:
            continue
        if one_begin >= end:
            break
        if one_begin - begin > JOIN_MS:
            found.append((begin, one_begin))
        begin = max(begin, one_end)
    if end - begin > JOIN_MS:
        found.append((begin, end))
    return found


def common(span: Span, others: Sequence[Span]) -> list[Span]:
    """What of a stretch lies in any of the others, which are sorted and apart.

    >>> common((0, 10), [(2, 3), (9, 12)])
    [(2, 3), (9, 10)]
    """
    begin, end = span
    return [(max(begin, one), min(end, other)) for one, other in others if one < end and other > begin]
