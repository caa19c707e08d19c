"""Bundles that programs are about to ask for, and the lenders who are asked for a ticket before anybody does.

- Wanted is what the driver says that programs will ask for, and what they have asked for within `WANTED_NS`.
- Of a wanted bundle tickets are held from `LENDERS` of those that are about as soon as the soonest: drawn, so that the
  swarm's borrowers do not all hold theirs from the same few, and kept while they stay near.
- Who refuses is left for `LEFT_NS`: a lender's tickets are first for those who have something to ask now.

So no request waits for a ticket, and the way to a lender is measured by that question and its answer before anything
depends on it (`Times.met`).
"""

import random
from collections.abc import Callable, Mapping, Sequence

from swarmd_protocols.ids import NodeId
from swarmd_protocols.offload.placement import NEAR, Need, Offer, Times, time_ns
from swarmd_protocols.offload.purse import CostRule

WANTED_NS = 30_000_000_000
"""For so long a bundle is wanted that a program has asked for: as long as the ticket it got is good."""
LEFT_NS = 10_000_000_000
"""For so long a lender is left that gave no ticket: a third of what its tickets live."""
LENDERS = 4
"""Of each bundle: two to draw from, and two for when one dies."""
BUNDLES_MAX = 16
"""Wanted at once; the one asked for longest ago goes. As many as one offer has."""


class Ahead:
    """What one device's programs want."""

    def __init__(self, rng: random.Random, rule: CostRule) -> None:
        """Nothing is wanted.

        Args:
            rng: Draws lenders.
            rule: What a request may cost; who asks more is not asked for a ticket.
        """
        self._rng = rng
        self._rule = rule
        self._wanted: dict[bytes, int] = {}
        """Until when, the one asked for longest ago first."""

    def want(self, digest: bytes, now_ns: int) -> None:
        """A program asks for it, or will."""
        self._wanted.pop(digest, None)
        self._wanted[digest] = now_ns + WANTED_NS
        while len(self._wanted) > BUNDLES_MAX:
            del self._wanted[next(iter(self._wanted))]

    def lenders(
        self,
        offers: Sequence[Offer],
        times: Mapping[NodeId, Times],
        has_ticket: Callable[[NodeId, bytes, int], bool],
        now_ns: int,
    ) -> list[tuple[NodeId, bytes]]:
        """Lenders and bundles of which there should be a ticket.

        Args:
            offers: Of lenders that are believed.
            times: What is known of them.
            has_ticket: Whether there is one.
            now_ns: Monotonic.
        """
        found: list[tuple[NodeId, bytes]] = []
        for digest in [digest for digest, until_ns in self._wanted.items() if until_ns <= now_ns]:
            del self._wanted[digest]
        for digest in self._wanted:
            need = Need(0, digest, 1, 0, now_ns, rule=self._rule)
            took = {
                offer.node: time_ns(offer, need, times, now_ns)
                for offer in offers
                if offer.is_reachable and offer.of(need) is not None and offer.cost_of(need).is_within(self._rule)
            }
            soonest = min(took.values(), default=0.0)
            near = sorted(node for node, it_takes in took.items() if it_takes <= NEAR * soonest)
            chosen = [node for node in near if has_ticket(node, digest, now_ns)][:LENDERS]
            others = [node for node in near if node not in chosen]
            chosen += self._rng.sample(others, min(len(others), LENDERS - len(chosen)))
            found += [(node, digest) for node in chosen]
        return found
