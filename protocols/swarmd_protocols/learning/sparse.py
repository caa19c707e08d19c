"""What of a change is told in one round: its largest entries, and what was not told is not forgotten. Pure.

A member tells by how much its labels would move the head, and the others keep the sum of what it has told. Each round
it tells the largest entries of the difference between what it means now and that sum: so what was left out, and what
rounding took, comes later. Source: EF21 (Richtárik, Sokolov, Fatkhullin, 2021), top-k as its compressor.
"""

import math
from collections.abc import Sequence

from swarmd_protocols.errors import StateError
from swarmd_protocols.learning.form import EXPONENT_MAX, UNIT_BITS

CHANGE_MAX = 127.0
"""Of one weight: beyond what any head has, and what a delta can write."""


def in_units(change: Sequence[float]) -> list[int]:
    """A change of weights in whole 2^-24.

    Raises:
        StateError: It holds what is no number, or is beyond `CHANGE_MAX`: such a training has failed.

    >>> in_units([0.5, -0.25])
    [8388608, -4194304]
    """
    if not all(math.isfinite(one) and abs(one) <= CHANGE_MAX for one in change):
        raise StateError(f"the training gave weights that are no numbers, or moved one by more than {CHANGE_MAX}")
    return [round(one * (1 << UNIT_BITS)) for one in change]


def top_k(meant: Sequence[int], told: Sequence[int], entries: int) -> tuple[int, list[tuple[int, int]]]:
    """The largest entries of a difference.

    Args:
        meant: What this member's labels would do, in 2^-24.
        told: The sum of what it has told, as the others have it.
        entries: At most so many.

    Returns:
        The exponent and (index, value) with indices rising, such as `form.sign_delta` takes.

    >>> top_k([1000, 3, -500, 0], [0, 0, 0, 0], 2)
    (3, [(0, 125), (2, -62)])
    """
    rest = [one - other for one, other in zip(meant, told, strict=True)]
    chosen = sorted(range(len(rest)), key=lambda at: (-abs(rest[at]), at))[:entries]
    most = max((abs(rest[at]) for at in chosen), default=0)
    exponent = max(0, most.bit_length() - 7)
    if rounded(most, exponent) > 127:
        exponent += 1
    exponent = min(exponent, EXPONENT_MAX)
    found = [(at, max(-127, min(127, rounded(rest[at], exponent)))) for at in sorted(chosen)]
    return exponent, [(at, value) for at, value in found if value]


def rounded(number: int, bits: int) -> int:
    """number / 2^bits, to the nearest whole one, halves towards zero.

    >>> rounded(12, 3), rounded(13, 3), rounded(-13, 3)
    (1, 2, -2)
    """
    half = (1 << bits) - 1 >> 1
    return (number + half >> bits) if number >= 0 else -(-number + half >> bits)
