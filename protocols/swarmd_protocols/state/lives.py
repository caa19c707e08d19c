"""The numbers of a node's lives: no two lives may write under one, whatever became of the journal between them."""

import random

_INCARNATION_MAX = (1 << 48) - 2
"""One below what the wire takes, so that the next life still has a number."""
_DRAWN_BITS = 16
"""Of a life's number, drawn: of two lives that would have begun with one number, one pair in 65,536 does."""
_START_MAX_S = 3 << 30
"""Unix seconds, in the year 2072: a clock beyond that must not use up the numbers of the lives that follow."""


def life_number(unix_s: int, rng: random.Random) -> int:
    """A number for a life that begins, which no other life has, whatever became of the journal.

    The low bits are drawn: who lost its journal may begin two lives in one second, and a device without a clock of its
    own begins every life in the same one. A number below that of an earlier life does no harm, an equal one does: two
    batches under one dot convict their author.

    Args:
        unix_s: Unix seconds at the start, so that numbers mostly grow.
        rng: Source of the drawn bits.
    """
    return min(max(unix_s, 0), _START_MAX_S) << _DRAWN_BITS | rng.getrandbits(_DRAWN_BITS)


def life_above(known: int, drawn: int) -> int:
    """The number of a life that begins, or goes on, above one that is known.

    Not the next one: a life that began above the same one and could write nothing down (a full disk, a clock that went
    back) has that. So the low bits are this life's own draw here too.

    Args:
        known: The highest number of an earlier life that this one knows; -1 where it knows none.
        drawn: What `life_number` gave, or a number that was made of it.

    Returns:
        `drawn` where that lies above already.
    """
    if drawn <= known:
        drawn = ((known >> _DRAWN_BITS) + 1 << _DRAWN_BITS) | (drawn & ((1 << _DRAWN_BITS) - 1))
    return min(max(drawn, 1), _INCARNATION_MAX)
