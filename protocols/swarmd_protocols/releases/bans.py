"""Who gave bad chunks of one file, and when each is asked again.

It is not asked for what anybody else shows until its time is over. What nobody else shows it is asked for now and then,
one chunk at a time: the only holder of a new release may have been ill for a moment, and no device is to wait for ten
minutes because of that. Each bad chunk doubles the pause before the next such question, up to the ban's own length, so
a liar wins six chunks in the first ten minutes, and one in each ten after that.
"""

from swarmd_protocols.ids import NodeId


class Bans:
    """See the module.

    Args:
        ban_ns: How long, nanoseconds, after its last bad chunk a peer is not asked as others are.
        retry_ns: How long after the first bad one it is asked for what nobody else shows.
    """

    __slots__ = ("_ban_ns", "_by_node", "_retry_ns")

    def __init__(self, ban_ns: int, retry_ns: int) -> None:
        self._ban_ns, self._retry_ns = ban_ns, retry_ns
        self._by_node: dict[NodeId, tuple[int, int, int]] = {}
        """Until when; not asked before; the pause after the next bad chunk. Monotonic nanoseconds."""

    def __contains__(self, node: NodeId) -> bool:
        return node in self._by_node

    def add(self, node: NodeId, now_ns: int) -> None:
        """A peer gave a bad chunk."""
        pause_ns = self._by_node[node][2] if node in self._by_node else self._retry_ns
        self._by_node[node] = now_ns + self._ban_ns, now_ns + pause_ns, min(2 * pause_ns, self._ban_ns)

    def is_due(self, node: NodeId, now_ns: int) -> bool:
        """Whether a banned peer may be asked for what nobody else shows."""
        return self._by_node[node][1] <= now_ns

    def asked(self, node: NodeId, now_ns: int) -> None:
        """A banned peer was asked; until it gives something good it is not asked for more before the pause is over."""
        until_ns, _, pause_ns = self._by_node[node]
        self._by_node[node] = until_ns, now_ns + pause_ns, pause_ns

    def gave(self, node: NodeId, now_ns: int) -> None:
        """What a banned peer was asked for was good: the next is asked for at once."""
        if node in self._by_node:
            until_ns, _, pause_ns = self._by_node[node]
            self._by_node[node] = until_ns, now_ns, pause_ns

    def over(self, now_ns: int) -> set[NodeId]:
        """Forget those whose time is over.

        Returns:
            Them.
        """
        freed = {node for node, (until_ns, _, _) in self._by_node.items() if until_ns <= now_ns}
        for node in freed:
            del self._by_node[node]
        return freed
