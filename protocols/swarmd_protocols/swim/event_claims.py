"""What peers say they have delivered of an origin's events and this node has not: it comes, or nobody keeps it. Pure.

A claim is of one moment: what is claimed later is awaited from then on, so that nothing that is still on its way is
given up for what was missing before it.
"""

from collections.abc import Mapping, Set

import msgspec

PATIENCE_NS = 5_000_000_000
"""Missing events are awaited for so long, nanoseconds, before those behind them are delivered: several repairs."""
MESH_PATIENCE_NS = 30_000_000_000
"""The same in a mesh, where all behind a lossy link wait for what comes over it: at 30 % loss a question and its answer
come through half the time, and whoever gives up keeps the event from all behind."""
CUT_OFF_NS = 60_000_000_000
"""Where the origin is gone without a word, what is missing before an event is awaited for so long, nanoseconds: the cut
that took it away ends within a minute in most cases, and ends all that this side could be told."""
_PEERS_MAX = 8
"""Peers whose word about an origin's events is remembered; three are enough."""


class _Claim(msgspec.Struct):
    """A peer's word that it has delivered an origin's events up to one."""

    delivered: int
    until_ns: int


class _Origin:
    """What is said about one origin's events."""

    __slots__ = ("asked_ns", "awaits", "claims")

    def __init__(self) -> None:
        self.claims: dict[bytes, _Claim] = {}
        self.asked_ns = -PATIENCE_NS
        self.awaits = False


class Claims:
    """Peers' words about what is missing here, by origin; bounded by peers for each."""

    def __init__(self) -> None:
        self._origins: dict[bytes, _Origin] = {}

    def note(
        self, origin: bytes, peer: bytes, delivered: int, here: int, now_ns: int, patience_ns: int = PATIENCE_NS
    ) -> bool:
        """A peer has delivered more than is here.

        Args:
            origin: Whose events.
            peer: Who says so.
            delivered: Up to where it has them.
            here: Up to where this node has them.
            now_ns: The time.
            patience_ns: How long what is missing is awaited.

        Returns:
            Whether it is time to ask for what is missing: once a patience.
        """
        told = self._origins.setdefault(origin, _Origin())
        for other in [other for other, claim in told.claims.items() if claim.delivered <= here]:
            del told.claims[other]
        if peer not in told.claims and len(told.claims) < _PEERS_MAX:
            told.claims[peer] = _Claim(delivered, now_ns + patience_ns)
        asks = now_ns - told.asked_ns >= PATIENCE_NS
        if asks:
            told.asked_ns = now_ns
        return asks

    def revise(self, peer: bytes, told: Mapping[bytes, int]) -> None:
        """A peer says anew how far it has delivered each origin: what it claimed beyond that is over."""
        for origin, said in self._origins.items():
            claim = said.claims.get(peer)
            if claim is not None and told.get(origin, 0) < claim.delivered:
                del said.claims[peer]

    def next_due_ns(self, origin: bytes, now_ns: int) -> int | None:
        """When to look at the words about an origin, where nobody is about to; who asks looks then."""
        told = self._origins.get(origin)
        dues = [claim.until_ns for claim in told.claims.values() if claim.until_ns > now_ns] if told else []
        if told is None or told.awaits or not dues:
            return None
        told.awaits = True
        return min(dues)

    def looked(self, origin: bytes) -> None:
        """It was looked at them."""
        if origin in self._origins:
            self._origins[origin].awaits = False

    def wait(self, origin: bytes, now_ns: int, patience_ns: int = PATIENCE_NS) -> None:
        """Nobody could have brought what is missing: the patience begins anew."""
        if origin in self._origins:
            for claim in self._origins[origin].claims.values():
                claim.until_ns = now_ns + patience_ns

    def given_up(self, origin: bytes, here: int, needed: int, heard: Set[bytes], now_ns: int) -> int:
        """Up to where an origin's events were awaited in vain.

        It takes the word of as many peers as a failure does (of all where there are fewer), so that fewer stolen keys
        silence nobody; or that of the origin itself.

        Args:
            origin: Whose events.
            here: Up to where this node has them.
            needed: Peers whose word it takes.
            heard: The peers in reach. Where a cut leaves few, fewer words are needed: then of these alone, or the last
                lie of one that is gone would decide.
            now_ns: The time.

        Returns:
            The last one that so many peers have delivered, and have said so long ago; 0 for none.
        """
        claims = self._origins[origin].claims if origin in self._origins else {}
        ripe = [(peer, claim.delivered) for peer, claim in claims.items() if claim.until_ns <= now_ns and peer in heard]
        words = [
            delivered for peer, delivered in ripe for _ in range(needed if peer == origin else 1) if delivered > here
        ]
        return sorted(words, reverse=True)[needed - 1] if len(words) >= needed > 0 else 0

    def forget(self, origin: bytes) -> None:
        """Drop what was said about an origin."""
        self._origins.pop(origin, None)
