"""Which pictures the sightings held here name, and whose sightings they are."""

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.places import SightingKey


class Pictures:
    """An index over the rows of the views; it holds what they hold."""

    def __init__(self) -> None:
        """Of no rows."""
        self._of: dict[tuple[NodeId, SightingKey], bytes] = {}
        self._authors: dict[bytes, dict[NodeId, int]] = {}
        """Name to the authors of rows that bear it, and how many rows of theirs do."""

    def __bool__(self) -> bool:
        """Whether any row names a picture."""
        return bool(self._of)

    def put(self, origin: NodeId, key: SightingKey, thumb: bytes) -> None:
        """A row bears this name; b"": it bears none any more, or has gone."""
        old = self._of.pop((origin, key), b"")
        if old:
            authors = self._authors[old]
            authors[origin] -= 1
            if not authors[origin]:
                del authors[origin]
            if not authors:
                del self._authors[old]
        if thumb:
            self._of[origin, key] = thumb
            authors = self._authors.setdefault(thumb, {})
            authors[origin] = authors.get(origin, 0) + 1

    def authors_of(self, thumb: bytes) -> list[NodeId]:
        """Nodes a row of which bears this name, sorted."""
        return sorted(self._authors.get(thumb, ()))
