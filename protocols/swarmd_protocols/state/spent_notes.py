"""Own operator notes that others have replaced: let go of, so that a note that changes once a minute keeps its size.

What may be let go of is said in `crdt/notes.py`. It rests on what this node holds; a peer that lacks some of that for a
moment would show again what was replaced. So a note goes only once it has been spent for `SPENT_NS`. And what this node
lacks is taken for gone only once it has held, in this life, what a peer holds: a journal may lack what came last.
"""

from collections.abc import Iterable

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.notes import NoteMap
from swarmd_protocols.state.crdt.ownlog import FactId

SPENT_NS = 60_000_000_000
"""What everybody in reach holds of each other differs for seconds."""


class SpentNotes:
    """Since when which own notes and removals of notes mean nothing any more."""

    def __init__(self, node: NodeId, notes: NoteMap) -> None:
        """None yet."""
        self._node = node
        self._notes = notes
        self._since_ns: dict[FactId, int] = {}

    def due(self, names: Iterable[FactId], now_ns: int) -> list[FactId]:
        """Those of the living notes and removals of the own log (`OwnLog.notes`) that are to be let go of.

        Args:
            names: As facts are named (`fact_id`).
            now_ns: Own monotonic clock.
        """
        self._since_ns = {name: self._since_ns.get(name, now_ns) for name in names if self._is_spent(name)}
        return [name for name, since_ns in self._since_ns.items() if now_ns - since_ns >= SPENT_NS]

    def _is_spent(self, name: FactId) -> bool:
        match name:
            case (3, int(incarnation), int(serial)):
                return self._notes.is_spent_put((self._node, incarnation, serial))
            case (4, str(), tuple(removes)):
                return self._notes.is_spent_removal(removes)
            case _:
                return False
