"""What the daemons of a soak acknowledged, and what of it a picture lacks.

A fact is acknowledged when a daemon has answered for it, or has shown it to anybody. From then on it must outlive every
kill: at the end each daemon's picture holds it.

- A cell that `cell_done` answered for: the cell is done, and the daemon that answered is among those who did it.
- An object that `objects` showed at a spot: an object is there, seen last no earlier than it was shown, unless nobody
  has seen it for `TTL_S`: from then on the daemons show it no longer, as they should.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from swarmd_protocols.state.dedup.config import DedupConfig

SPOT_GAP_M = 20.0
"""Metres between two spots: far beyond every radius within which two sightings are one object."""
SPOTS_EAST_M = 3_000.0
"""Metres east of the origin where the spots begin: no module of the rendered farm is there."""
TTL_S = DedupConfig().ttl_ms / 1_000
"""Seconds without a sighting after which an object is shown no longer."""
_ROW = 20

Row = Mapping[str, Any]


def place_of(spot: int) -> tuple[float, float]:
    """East and north of a spot, metres.

    >>> place_of(21)
    (3020.0, 20.0)
    """
    return SPOTS_EAST_M + SPOT_GAP_M * (spot % _ROW), SPOT_GAP_M * (spot // _ROW)


def spot_at(east_m: float, north_m: float) -> int | None:
    """The spot within a quarter of a gap of a place; None where there is none.

    >>> spot_at(3020.4, 19.0), spot_at(3030.0, 20.0), spot_at(17.0, 20.0)
    (21, None, None)
    """
    column, row = round((east_m - SPOTS_EAST_M) / SPOT_GAP_M), round(north_m / SPOT_GAP_M)
    if not 0 <= column < _ROW or row < 0:
        return None
    spot = column + _ROW * row
    east, north = place_of(spot)
    return spot if max(abs(east - east_m), abs(north - north_m)) <= SPOT_GAP_M / 4 else None


def cells_by(now_s: float, warm_s: float, end_s: float, cells: int) -> int:
    """Cells that are done by a time: nine of ten within the warm-up, as what is done is kept for ever and counts as
    growth; the rest until the end, so that each kill may take one along.

    >>> [cells_by(at_s, 1_800, 7_200, 240) for at_s in (0, 900, 1_800, 4_500, 7_200, 9_000)]
    [0, 108, 216, 228, 240, 240]
    """
    early = cells * 9 // 10
    if now_s < warm_s:
        return int(early * now_s / warm_s)
    return early + int((cells - early) * min(1.0, (now_s - warm_s) / max(1.0, end_s - warm_s)))


class Ledger:
    """Everything that was acknowledged."""

    def __init__(self) -> None:
        self.cells: dict[str, set[str]] = {}
        """Cell to the names of those who were told that they have done it."""
        self.spots: dict[int, float] = {}
        """Spot to the latest time, seconds since 1970, at which a daemon said it was seen."""

    def cell_done(self, cell: str, node: str) -> None:
        """A daemon has answered that it did a cell."""
        self.cells.setdefault(cell, set()).add(node)

    def shown(self, objects: Sequence[Row]) -> None:
        """A daemon has shown these objects."""
        for spot, last_s in _spots(objects).items():
            self.spots[spot] = max(last_s, self.spots.get(spot, 0.0))

    def missing(self, cells: Sequence[Row], objects: Sequence[Row], now_s: float) -> list[str]:
        """What one daemon's picture lacks of all that was acknowledged, in words.

        Args:
            cells: As the daemon shows them.
            objects: As the daemon shows them.
            now_s: Seconds since 1970 when it was asked.
        """
        done = {row["id"]: set(row["done_by"]) for row in cells if row["state"] == "done"}
        lost = []
        for cell, nodes in self.cells.items():
            lost += [f"{cell} done by {node}" for node in sorted(nodes - done.get(cell, set()))]
        seen = _spots(objects)
        for spot, last_s in self.spots.items():
            if last_s + TTL_S <= now_s:
                continue
            if spot not in seen:
                lost.append(f"the object at spot {spot}")
            elif seen[spot] < last_s:
                lost.append(f"spot {spot} seen at {last_s}; it is shown as seen last at {seen[spot]}")
        return lost


def _spots(objects: Sequence[Row]) -> dict[int, float]:
    found: dict[int, float] = {}
    for row in objects:
        if row["east_m"] is not None and (spot := spot_at(row["east_m"], row["north_m"])) is not None:
            found[spot] = max(row["last_seen_s"], found.get(spot, 0.0))
    return found
