"""What one peer may cost: a token bucket for each, refilled with time; and what happens once in so long. Pure.

The caller says what a thing costs.
"""

from collections.abc import Hashable

import msgspec

from swarmd_protocols.ids import NodeId

MAX_PEERS = 4_096
"""Buckets that are kept; more than a node has neighbours. The longest unused goes first, and begins full again."""
_NS_PER_S = 1_000_000_000


class Allowance(msgspec.Struct):
    """So much a second for each peer, and `burst` at once.

    >>> peer = NodeId(b"p" * 16)
    >>> some = Allowance(per_s=2, burst=3)
    >>> [some.take(peer, 1, 0) for _ in range(4)], some.take(peer, 1, 500_000_000)
    ([True, True, True, False], True)
    """

    per_s: int
    burst: int
    _left: dict[NodeId, tuple[int, int]] = msgspec.field(default_factory=dict)
    """Billionths left, and when that was."""

    def take(self, peer: NodeId, cost: int, now_ns: int) -> bool:
        """Spend so much of a peer's allowance; False, and nothing spent, when it has not so much left."""
        left = self.left(peer, now_ns)
        spends = cost * _NS_PER_S <= left
        self._left.pop(peer, None)
        if len(self._left) >= MAX_PEERS:
            del self._left[next(iter(self._left))]
        self._left[peer] = (left - cost * _NS_PER_S if spends else left), now_ns
        return spends

    def left(self, peer: NodeId, now_ns: int) -> int:
        """What a peer has left, in billionths."""
        left, since_ns = self._left.get(peer, (self.burst * _NS_PER_S, now_ns))
        return min(self.burst * _NS_PER_S, left + max(0, now_ns - since_ns) * self.per_s)


class Seldom:
    """What happens for each key once in so long; the longest known key goes first when there are too many.

    Args:
        every_ns: How long.
        keys_max: Keys that are remembered.
    """

    def __init__(self, every_ns: int, keys_max: int) -> None:
        self._every_ns = every_ns
        self._keys_max = keys_max
        self._since_ns: dict[Hashable, int] = {}

    def is_due(self, key: Hashable, now_ns: int) -> bool:
        """Whether it may happen for this key; it has then happened."""
        if now_ns - self._since_ns.get(key, -self._every_ns) < self._every_ns:
            return False
        if len(self._since_ns) >= self._keys_max:
            del self._since_ns[next(iter(self._since_ns))]
        self._since_ns[key] = now_ns
        return True
