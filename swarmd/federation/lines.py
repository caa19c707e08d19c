"""What a region remembers of a gateway that was heard."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from swarmd_protocols.federation.wire import KNOWN_MAX, Known

KNOWN_KEPT = 4 * KNOWN_MAX
"""Objects that one gateway has still to be told of; what is not told costs it bytes, and nothing else."""


@dataclass(slots=True)
class Line:
    """A gateway that was heard."""

    public_key: bytes
    path: int
    heard_s: float
    have: int = 0
    log: bytes = b""
    known: dict[bytes, Known] = field(default_factory=dict)
    """What others brought, and it has not been told."""
    down_seen: int = 0
    rows_sent: tuple[int, int] = (-1, -1)
    """Of the last rows that went down: after which, and the newest that there was."""
    rows_s: float = float("-inf")
    paused_s: float = float("-inf")
    life: int = 0
    """Above that which it has heard, where that is above the region's own."""

    def learn(self, known: Iterable[Known]) -> None:
        """It is to be told of these."""
        self.known.update((one.object_id, one) for one in known)
        while len(self.known) > KNOWN_KEPT:
            del self.known[next(iter(self.known))]
