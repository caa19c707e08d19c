"""How alike two things look, by the few bytes that their sightings carry (`Sighting.features`). Integers only.

```
 0      1                9               17
 ├──────┼────────────────┼───────────────┤
 │ form │ even, 8 × int8 │ odd, 8 × int8 │      odd numbers change their sign where a thing is seen upside down
 └──────┴────────────────┴───────────────┘
```

Rules this file keeps:

- Looks are compared only within one model (its digest stands in the row) and one form; anything else says nothing.
- They are compared only where places are poor, and then they can only forbid: two sightings that places keep apart
  stay apart however alike they look. So who lies about looks can do what a lie about places does, and no more: draw
  sightings near its own to itself, or keep its own apart.
- What two looks say depends on these two alone, and is the same from either side.
"""

from collections.abc import Callable
from math import isqrt
from operator import mul
from struct import Struct

from swarmd_protocols.state.crdt.facts import FEATURES_BYTES
from swarmd_protocols.state.dedup.config import DedupConfig
from swarmd_protocols.state.dedup.gate import Covariance

LIKE_MIN_MILLI = 400
"""Likeness below which two sightings are two things: one true pair in fifty is, and four of five that are not one
(`python -m tests.bench.feature_sharing`, real modules, noise of 6 grey levels)."""
UNKNOWN_MILLI = 600
"""Likeness that a pair counts for of which nothing is known: as often of one thing as of two."""
WEIGHT = 30
"""Squared Mahalanobis distance, thousandths, for a thousandth of likeness: from 0.9 to 0.5 true pairs become a
twentieth as frequent, and others twenty times; -2 ln of both is 12."""
COMPARE_UNITS = 4
"""Work of one comparison, about a microsecond each."""

_HALF = 8
"""Numbers that stay as they are where a thing is seen upside down; as many follow that do not."""
_numbers: Callable[[bytes, int], tuple[int, ...]] = Struct("<16b").unpack_from


def is_poor(a: Covariance, b: Covariance, config: DedupConfig) -> bool:
    """Whether two places are too uncertain to tell neighbours apart."""
    return a[0] + b[0] + a[2] + b[2] > 2 * config.poor_cm**2


def likeness_milli(a: bytes, b: bytes) -> int | None:
    """The cosine of two looks, thousandths, the better of both ways up.

    Args:
        a: Model and features of one sighting, as `look_of` gives them.
        b: The same of another.

    Returns:
        -1000 to 1000; None where they cannot be compared.

    >>> likeness_milli(b"model" + bytes([1, 127] + [0] * 15), b"model" + bytes([1, 127, 127] + [0] * 14))
    707
    """
    at = len(a) - FEATURES_BYTES
    if at <= 0 or len(b) != len(a) or a[: at + 1] != b[: at + 1]:
        return None
    left, right = _numbers(a, at + 1), _numbers(b, at + 1)
    products: list[int] = list(map(mul, left, right))
    even, odd = sum(products[:_HALF]), sum(products[_HALF:])
    lengths: int = isqrt(sum(map(mul, left, left)) * sum(map(mul, right, right)))
    if not lengths:
        return None
    return max(-1000, min(1000, 1000 * (even + abs(odd)) // lengths))


def look_of(model: bytes, features: bytes) -> bytes:
    """What `likeness_milli` compares; b"" where there is nothing to compare, or nobody knows by which model."""
    return model + features if features and model.strip(b"\0") else b""


def order_milli(distance: int, a: Covariance, b: Covariance, look: bytes, other: bytes, config: DedupConfig) -> int:
    """How near two sightings are by place and look together.

    Args:
        distance: As by place alone, within the gate; squared Mahalanobis, thousandths, where covariances count.
        a: Covariance of one place.
        b: Covariance of the other.
        look: Of the one (`look_of`).
        other: Of the other.
        config: The swarm's.

    Returns:
        Thousandths, at least 0, comparable among pairs of one sighting; -1: they are two things.
    """
    if not config.use_covariance:
        return distance
    likeness = likeness_milli(look, other) if look and is_poor(a, b, config) else None
    if likeness is None:
        likeness = UNKNOWN_MILLI
    elif likeness < LIKE_MIN_MILLI:
        return -1
    return distance + WEIGHT * (1000 - likeness)
