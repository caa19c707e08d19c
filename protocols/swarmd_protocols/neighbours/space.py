"""Which cells of the own survey a neighbour's claims cover, and who may begin where both claim.

Rules this file keeps:

- A cell is not begun while a live claim of a neighbour's covers it: two circles that overlap, a cell's as wide as its
  side. Where somebody of the neighbour's works there, that holds whoever has the right of way.
- Where both have claimed and neither works yet, the swarm begins that has the **right of way**. It changes every
  `SLOT_MS` between the two, by the clock and their keys alone: neither can draw a better lot. Near a change nobody has
  it, so that two clocks never both say yes.
- A neighbour keeps a place from being surveyed for `hold_s` of its agreement; then its claims there do not count until
  half of that time has passed, whatever they are called and however they lie: the account is the own cell's.
- At most `COVERED_MAX` cells are covered by one neighbour, in the order of its claims.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from math import hypot
from typing import NamedTuple, Protocol

from swarmd_protocols.neighbours.words import ClaimRow

SLOT_MS = 600_000
"""For so long one of two has the right of way: several flights over a cell."""
GUARD_MS = 15_000
"""Before and after a change nobody has it: more than the clocks of two that hear each other differ (`AHEAD_MS`)."""
COVERED_MAX = 2_000
"""Cells that one neighbour covers at most: a tenth of a second of work each time it is looked at."""
LOOKED_MAX = 20_000
"""Squares of the grid that are looked at for one neighbour: what it claims may lie where no cells are."""

FREE_MS = 20_000
"""A place counts as kept until it was free for so long at a stretch: three times what an own claim has to stand before
work (`neighbours.SETTLE_NS`), so that who claims in pulses keeps nobody away for longer than others."""
PASSED_MAX_MS = 10_000
"""Between two looks that count in full: a node that stood still for longer has not seen what was claimed meanwhile."""


class Plane(Protocol):
    """The own mission's plane, centimetres east and north of its origin."""

    def to_cm(self, latitude_deg: float, longitude_deg: float) -> tuple[int, int]:
        """(east, north) of a place."""
        ...

    def to_wgs84(self, east_m: float, north_m: float) -> tuple[float, float]:
        """(latitude, longitude) in degrees of a point of the plane, given in metres."""
        ...


class Cover(NamedTuple):
    """A neighbour's claim over an own cell."""

    until_ns: int
    """Own monotonic clock: when it ends unless it is said again."""
    is_firm: bool
    """Nothing may be begun; else it only keeps new claims away, and what was claimed before may begin."""


class Spot(NamedTuple):
    """A cell of the own survey: its middle."""

    key: bytes
    east_cm: int
    north_cm: int


def right_of_way(own: bytes, other: bytes, now_ms: int) -> bool:
    """Whether the own swarm has it over the other at this moment.

    Args:
        own: Key of the own swarm.
        other: Key of the neighbour.
        now_ms: Milliseconds since 1970, by the own swarm's clock.

    >>> a, b = bytes(16), b"b" * 16
    >>> [right_of_way(a, b, at) for at in (60_000, 660_000)], [right_of_way(b, a, at) for at in (60_000, 660_000)]
    ([True, False], [False, True])
    >>> right_of_way(a, b, 600_000 - 1), right_of_way(b, a, 600_000)
    (False, False)
    """
    slot, within_ms = divmod(now_ms, SLOT_MS)
    if not GUARD_MS <= within_ms < SLOT_MS - GUARD_MS:
        return False
    first = blake2b(min(own, other) + max(own, other), digest_size=1, person=b"swarmd-way").digest()[0]
    return bool(first + slot & 1) == (own < other)


class Ground:
    """The own cells, found by place.

    Args:
        spots: All of them.
        pitch_cm: From one to the next.
    """

    def __init__(self, spots: Iterable[Spot], pitch_cm: int) -> None:
        self.pitch_cm = max(1, pitch_cm)
        self._grid: dict[tuple[int, int], list[Spot]] = {}
        self._count = 0
        for spot in spots:
            self._count += 1
            self._grid.setdefault((spot.east_cm // self.pitch_cm, spot.north_cm // self.pitch_cm), []).append(spot)

    def covered(self, east_cm: int, north_cm: int, radius_cm: int) -> Iterator[bytes | None]:
        """Keys of the cells that a circle overlaps; None for each square in which there is none."""
        pitch_cm, reach_cm = self.pitch_cm, radius_cm + self.pitch_cm // 2
        columns = range((east_cm - reach_cm) // pitch_cm, (east_cm + reach_cm) // pitch_cm + 1)
        rows = range((north_cm - reach_cm) // pitch_cm, (north_cm + reach_cm) // pitch_cm + 1)
        if len(columns) * len(rows) > len(self._grid):
            squares: Iterable[tuple[int, int]] = [one for one in self._grid if one[0] in columns and one[1] in rows]
        else:
            squares = ((column, row) for column in columns for row in rows)
        for square in squares:
            found = [
                spot.key
                for spot in self._grid.get(square, ())
                if hypot(spot.east_cm - east_cm, spot.north_cm - north_cm) < reach_cm
            ]
            yield from found or (None,)


@dataclass(slots=True)
class Holds:
    """How long one neighbour has kept each own cell.

    Attributes:
        hold_ms: How long it may.
    """

    hold_ms: int
    _levels: dict[bytes, int] = field(default_factory=dict)
    """Cell to milliseconds: it rises while the cell is kept and counts, and falls else."""
    _free_ms: dict[bytes, int] = field(default_factory=dict)
    """Cell to how long nothing has covered it."""
    spent: set[bytes] = field(default_factory=set)
    """Cells that it has kept for too long: its claims there do not count."""
    _at_ms: int | None = None

    def count(self, covered: Mapping[bytes, bool], now_ms: int) -> dict[bytes, bool]:
        """Those of the covered cells at which the neighbour's claims count.

        Args:
            covered: Cell to anything that is kept with it.
            now_ms: A clock that only rises.
        """
        passed_ms = 0 if self._at_ms is None else min(max(0, now_ms - self._at_ms), PASSED_MAX_MS)
        self._at_ms = now_ms
        for key in [*self._levels, *(key for key in covered if key not in self._levels)]:
            free_ms = self._free_ms[key] = 0 if key in covered else self._free_ms.get(key, 0) + passed_ms
            rises = free_ms < FREE_MS and key not in self.spent
            level = self._levels.get(key, 0) + (passed_ms if rises else -passed_ms)
            if level >= self.hold_ms:
                level = self.hold_ms
                self.spent.add(key)
            elif 2 * level <= self.hold_ms:
                self.spent.discard(key)
            if level <= 0 and key not in covered:
                self._levels.pop(key, None)
                del self._free_ms[key]
            else:
                self._levels[key] = max(0, level)
        return {key: value for key, value in covered.items() if key not in self.spent}


def cells_under(
    claims: Iterable[tuple[ClaimRow, int]], ground: Ground, plane: Plane
) -> tuple[dict[bytes, tuple[bool, int]], bool]:
    """The own cells under a neighbour's claims.

    Args:
        claims: Each with how long it stands yet, milliseconds.
        ground: The own cells.
        plane: The own mission's.

    Returns:
        Cell to (whether somebody works there, milliseconds that it stands yet); whether there were too many.
    """
    found: dict[bytes, tuple[bool, int]] = {}
    looked = 0
    for row, left_ms in claims:
        east_cm, north_cm = plane.to_cm(row.latitude_e7 / 1e7, row.longitude_e7 / 1e7)
        for key in ground.covered(east_cm, north_cm, row.radius_cm):
            looked += 1
            if looked > LOOKED_MAX or len(found) >= COVERED_MAX:
                return found, True
            if key is not None:
                was_working, was_ms = found.get(key, (False, 0))
                found[key] = (was_working or row.is_working, max(was_ms, left_ms))
    return found, False
