"""Which peers take nothing of which authors just now, as their summaries say (`messages.ROOM`)."""

from collections.abc import Collection

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.messages import Have
from swarmd_protocols.state.crdt.store import room_in

PAUSE_NS = 30_000_000_000
"""How long a peer's word holds that it takes nothing of an author: as long as it takes an account to fill up again."""
PAUSES_MAX = 64
"""Authors that one peer may have paused here; what else it takes nothing of is sent to it and costs it more."""


class Pauses:
    """What peers have said."""

    def __init__(self) -> None:
        """Everybody takes everything."""
        self._until_ns: dict[NodeId, dict[NodeId, int]] = {}
        """By peer: of whom it takes nothing, and until when that is believed."""

    def note(self, peer: NodeId, have: Have, now_ns: int) -> None:
        """Learn from a summary of whom a peer takes nothing just now, and of whom it does again.

        Args:
            peer: Whose summary it is.
            have: The summary.
            now_ns: Own monotonic clock.
        """
        held = self._until_ns.get(peer, {})
        paused = self._until_ns[peer] = {author: until_ns for author, until_ns in held.items() if until_ns > now_ns}
        for raw_origin, positions in have.rows:
            origin = NodeId(raw_origin)
            if room_in(positions) != 0:
                paused.pop(origin, None)
            elif origin in paused or len(paused) < PAUSES_MAX:
                paused[origin] = now_ns + PAUSE_NS
        if not paused:
            del self._until_ns[peer]

    def takes(self, peer: NodeId, author: NodeId, now_ns: int) -> bool:
        """Whether a peer may be sent something of an author."""
        paused = self._until_ns.get(peer)
        return paused is None or paused.get(author, now_ns) <= now_ns

    def keep(self, peers: Collection[NodeId]) -> None:
        """Forget what others than these have said."""
        for peer in [peer for peer in self._until_ns if peer not in peers]:
            del self._until_ns[peer]
