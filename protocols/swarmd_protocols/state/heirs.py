"""Reviews outlive their carriers: what an operator signed is said again by one of those who heard it.

A statement lies in the log of the member where it was handed in. Where that log leaves the state (its author is
revoked, convicted, enrolled anew, or drops what it carried), the statement would leave with it, though its own
signature holds whoever carries it.

Rules this file keeps:

- Only what would count is said again: signed by a key that the newest root names, and newest in its slot.
- One member says it, as a rule: those who are heard come one after another, in an order that is another for each
  statement; whoever is later hears the earlier and has nothing left to do.
- Nothing travels for it but the batches that say it, and equal batches still make equal views.
"""

from collections.abc import Iterable
from hashlib import blake2b

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.reviews import SignedReview
from swarmd_protocols.state.reviews import Reviews

FIRST_NS = 2_000_000_000
"""Nanoseconds that everybody waits: a root or a revocation is everywhere in less, and a certificate that was replaced
comes with it."""
TURN_NS = 15_000_000_000
"""Nanoseconds between two turns: three looks (`ReplicaConfig.expire_ns`), in which a batch reaches everybody also
where the flood missed them and a comparison brings it."""
TURNS_MAX = 20
"""Turns that are told apart; five minutes. Who would come later comes then."""
LOOK_MAX = 64
"""Statements said again in one look: 48 kB at the largest, in the pause of five seconds."""


class Heirs:
    """Which of the statements that nobody carries any more this node says again, and when."""

    def __init__(self, node: NodeId, reviews: Reviews) -> None:
        self._node = node
        self._reviews = reviews
        self._since_ns: dict[bytes, int] = {}
        """Statement to when it was first missed here."""

    def due(self, heard: Iterable[NodeId], now_ns: int) -> list[SignedReview]:
        """What this node is to say again at this moment.

        Args:
            heard: Members that would do it otherwise.
            now_ns: Own monotonic clock.
        """
        orphans = self._reviews.orphans() if self._reviews.missing else []
        self._since_ns = {said.statement: self._since_ns.get(said.statement, now_ns) for said in orphans}
        others = list(heard)
        found = [
            said
            for said in orphans
            if now_ns - self._since_ns[said.statement] >= FIRST_NS + TURN_NS * self._turn(said, others)
        ]
        return found[:LOOK_MAX]

    def _turn(self, said: SignedReview, others: Iterable[NodeId]) -> int:
        """How many of those who are heard come before this node."""
        own = _place(said, self._node)
        return min(TURNS_MAX, sum(_place(said, other) < own for other in others))


def _place(said: SignedReview, node: NodeId) -> bytes:
    return blake2b(said.digest + node, digest_size=8, person=b"swarmd-heirs").digest()
