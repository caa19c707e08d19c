"""What neighbouring swarms claim over the own cells, as `neighbours/space.py` found it."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Covers:
    """At one moment; the next look replaces it.

    Attributes:
        cells: Cell to (own monotonic clock until which a claim stands, whether nothing may be begun there).
        settle_ns: How long an own claim has to stand at least, so that a neighbour hears of it; 0 without one.
    """

    cells: Mapping[bytes, tuple[int, bool]] = field(default_factory=dict)
    settle_ns: int = 0

    def stands(self, key: bytes, now_ns: int) -> bool:
        """Whether a neighbour claims a cell: nobody here claims it anew."""
        held = self.cells.get(key)
        return held is not None and now_ns < held[0]

    def forbids(self, key: bytes, now_ns: int) -> bool:
        """Whether work may not even begin on what was claimed before."""
        held = self.cells.get(key)
        return held is not None and now_ns < held[0] and held[1]
