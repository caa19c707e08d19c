"""What a region remembers of a gateway that was heard, and what it tells one that was not heard for a while."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from swarmd.federation.store import Store
from swarmd_protocols.federation.wire import KNOWN_MAX, Known
from swarmd_protocols.ids import NodeId

KNOWN_KEPT = 4 * KNOWN_MAX
"""Objects that one gateway has still to be told of, the newest."""
MARGIN_MS = 20_000
"""Before a gateway was heard last: what it was told then may have been lost with the path."""


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


def missed(store: Store, swarm: str, gateway: NodeId) -> list[Known]:
    """What others have said since this gateway was heard last, at most one frame of it, the newest last: it would take
    its own word of before for what the region shows, where its swarm shows the same again."""
    rows = store._db.execute(
        "SELECT o.object, o.stamp, o.digest FROM sites s JOIN objects o ON o.swarm = s.swarm AND o.learned_ms >= "
        "s.heard_ms - ? WHERE s.swarm = ? AND s.gateway = ? AND o.gateway != s.gateway "
        "ORDER BY o.learned_ms DESC LIMIT ?",
        (MARGIN_MS, swarm, gateway.hex(), KNOWN_MAX),
    ).fetchall()
    return [Known(bytes.fromhex(one), stamp, bytes.fromhex(digest)) for one, stamp, digest in reversed(rows)]
