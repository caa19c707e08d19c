"""The life of a gateway or a region: a number for each start, above those of all before it (`wire.py`)."""

import secrets

from swarmd_protocols.federation.wire import NUMBER_MAX

LIFE_MAX = NUMBER_MAX >> 1
"""No clock and no number of starts comes to this: who is told that it spoke in a life above has a key that somebody
else has too, and goes on in its own, which it keeps."""
APART = 4_096
"""Where the clock stands behind the last life the next is up to so many above it, by chance: two that begin from one
copy of a file are not of one number, whose frames would be taken for copies."""


def next_life(last: int, now_s: int) -> int:
    """A life above the last and not below the clock's seconds."""
    return now_s if now_s > last else last + 1 + secrets.randbelow(APART)
