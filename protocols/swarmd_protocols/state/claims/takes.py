"""Who takes cells from others and does none of them: after a few of these its claims do not count.

A claim takes a cell where it beats one that is alive. Of honest nodes the nearer does so, or one of two that worked on
one cell on both sides of a cut, and then does the cell: seen were two at most between two that it did. A node that
claims whatever others have claimed, with the best bid, would keep all of them from ever beginning.

Rules this file keeps:

- Each cell that an author takes counts one. Each that it is the first to have done takes one away, and so do a minute
  and whoever takes that cell from it in turn: so nobody brings others into disrepute but at its own cost.
- Whoever has taken `TAKES_MAX` is ignored until half of that is left, so that it cannot stay at the edge.
- Each node counts what it hears itself. Where two disagree, both keep off the cell or both may claim it, as before.
"""

from swarmd_protocols.ids import NodeId

TAKES_MAX = 8
"""Cells taken and not done, at which an author is ignored: four times what was seen of honest ones."""
_COUNTED_MAX = 2 * TAKES_MAX
"""More are not counted: who stops is heard again after twelve minutes at most."""
_MINUTE_NS = 60_000_000_000
"""In which one cell is forgotten."""


class Takes:
    """What each author has taken."""

    def __init__(self) -> None:
        """Nobody took anything."""
        self._taken: dict[NodeId, tuple[int, int]] = {}
        """By author: cells, and when that was counted."""
        self._ignored: dict[NodeId, None] = {}
        self._news: list[NodeId] = []

    def ignores(self, node: NodeId) -> bool:
        """Whether the claims of this author do not count."""
        return node in self._ignored

    def note(self, node: NodeId, cells: int, now_ns: int) -> bool:
        """An author is heard, and takes so many cells from others; returns whether it counts otherwise than before."""
        taken, at_ns = self._taken.get(node, (0, now_ns))
        minutes = (now_ns - at_ns) // _MINUTE_NS
        taken = min(_COUNTED_MAX, max(0, taken - minutes) + cells)
        if not taken:
            self._taken.pop(node, None)
        else:
            self._taken[node] = taken, at_ns + minutes * _MINUTE_NS
        if taken >= TAKES_MAX and node not in self._ignored:
            self._ignored[node] = None
            self._news.append(node)
            return True
        if taken <= TAKES_MAX // 2 and node in self._ignored:
            del self._ignored[node]
            return True
        return False

    def news(self) -> list[NodeId]:
        """Who is ignored since the last call, to be named."""
        news, self._news = self._news, []
        return news

    def did(self, node: NodeId) -> None:
        """An author is the first to have done a cell, or one that it took was taken from it."""
        taken, at_ns = self._taken.get(node, (0, 0))
        if taken:
            self._taken[node] = taken - 1, at_ns

    def forget(self, node: NodeId) -> None:
        """An author was shut out."""
        self._taken.pop(node, None)
        self._ignored.pop(node, None)
