"""Whose turn it is to claim first, of those that hold nothing, and how long a node listens before it claims at all.

Rules this file keeps:

- Nodes that hold nothing speak one after the other, by a draw. Where a node knows its neighbours alone, of those that
  it does not know as many come before it as its own draw lets expect.
- Whoever meets others only now lets them say what they have claimed.
- Whoever comes, alone or with a few, among at least as many others begins nothing for a settle, in which it hears what
  they have done; once a lease at most: a peer that comes and goes keeps nobody from work. Whoever came within a lease
  counts as new, since the parts of a swarm meet one by one.
"""

from collections.abc import Mapping
from hashlib import blake2b

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.records import Lease

NEVER_NS = -(1 << 62)
"""Earlier than any time."""


class Turns:
    """The turn of one node among all that may want a cell."""

    def __init__(self, node: NodeId) -> None:
        """Nobody is known."""
        self._node = node
        self._first: list[NodeId] = []
        """Those that can be reached and come before this node by a draw."""
        self._reachable: frozenset[NodeId] = frozenset((node,))
        self.unseen = 0
        """Members of the swarm that this node does not know, by estimate: it keeps a partial view."""
        self.free = 0
        """Cells that nobody claims, when one was chosen last."""
        self._begun_ns = self._met_ns = NEVER_NS
        self._since_ns: dict[NodeId, int] = {}
        """Since when each of the others can be reached."""
        self.came_ns = NEVER_NS
        """When this node, alone or with a few, came among at least as many others."""

    def begin(self, now_ns: int) -> None:
        """This life begins among others who may have claimed cells."""
        self._begun_ns = now_ns

    def know(self, reachable: frozenset[NodeId], lease_ns: int, now_ns: int) -> None:
        """Who can be reached has changed."""
        own = _draw(self._node)
        since_ns = {node: self._since_ns.get(node, now_ns) for node in reachable if node != self._node}
        new = sum(now_ns - one < lease_ns for one in since_ns.values())
        comes = not reachable <= self._reachable
        self._reachable, self._since_ns = reachable, since_ns
        self._first = sorted(node for node in reachable if _draw(node) < own)
        if comes:
            self._met_ns = now_ns
        if comes and 2 * new >= len(reachable) and now_ns - self.came_ns >= lease_ns:
            self.came_ns = now_ns

    def rank(self, records: Mapping[NodeId, tuple[Lease, ...]]) -> int:
        """How many of those that hold nothing come before this node; `records` are the lease records heard."""
        first = sum(not records.get(node) for node in self._first)
        if not self.unseen:
            return first
        holders = sum(1 for node, leases in records.items() if leases and node not in self._reachable)
        draw = int.from_bytes(_draw(self._node), "big")
        return first + (max(0, self.unseen - holders) * draw >> 64)

    def listens_until_ns(self, looking_since_ns: int, settle_ns: int) -> int:
        """Until when a node that holds nothing lets others say what they have claimed, since it knows too few of them.

        It has met nobody since it began, or it meets the neighbours of a partial view, of whom each brings what has
        been claimed. At most a settle from when it began to look.
        """
        if self.unseen:
            return min(self._met_ns + settle_ns // 4, looking_since_ns + settle_ns)
        return self._begun_ns + settle_ns // 2 if len(self._reachable) < 2 else NEVER_NS


def _draw(node: NodeId) -> bytes:
    return blake2b(node, digest_size=8, person=b"swarmd-rank").digest()
