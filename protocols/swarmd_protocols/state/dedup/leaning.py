"""Things as this node knows them, and which of them it says by leaning on what another node has said of them."""

from collections.abc import Callable
from dataclasses import dataclass, field

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.facts import Join, Sighting, SightingKey
from swarmd_protocols.state.dedup.view import DedupView


@dataclass(slots=True)
class Register:
    """One thing as this node knows it."""

    row: Sighting
    said: Sighting | None = None
    """The row as it was last published."""
    joined: Join | None = None
    """The reference that was published instead of the row."""
    track: int | None = None
    """The track that feeds it now."""
    frame_ns: int = 0
    """Capture time of the last frame of this life that showed it."""
    born_here: bool = True
    """First seen in this life."""
    beside: dict[tuple[int, int], None] = field(default_factory=dict)


class Leaning:
    """Registers that stand behind a `Join`, by the row of another node that they have joined."""

    def __init__(self, view: DedupView) -> None:
        """None yet."""
        self._view = view
        self._on: dict[tuple[NodeId, SightingKey], dict[SightingKey, None]] = {}
        self.unsettled: dict[SightingKey, None] = {}
        """Registers that leaned on a row that has gone or changed."""
        self.parted: dict[tuple[NodeId, SightingKey], bool] = {}
        """Others' rows that this node has joined and that are gone; True: of which it says no more that it has."""

    def on(self, origin: NodeId, key: SightingKey) -> list[SightingKey]:
        """Which registers lean on a row."""
        return list(self._on.get((origin, key), ()))

    def lean(self, register: Register, join: Join | None) -> None:
        """A register leans on a row from now on, or (None) on nothing."""
        old, key = register.joined, register.row.key
        if old is not None:
            if join is None or (old.origin, old.key) != (join.origin, join.key):
                self.parted[old.origin, old.key] = True
            leaning = self._on.get((old.origin, old.key), {})
            leaning.pop(key, None)
            if not leaning:
                self._on.pop((old.origin, old.key), None)
        register.joined = join
        if join is not None:
            self._on.setdefault((join.origin, join.key), {})[key] = None

    def row_changed(self, origin: NodeId, key: SightingKey) -> None:
        """Another node's row has gone, or its place has changed: whoever leans on it must be looked at."""
        leaning = self._on.get((origin, key)) if self._on else None
        if leaning:
            self.unsettled.update(leaning)

    def take_parted(self, is_over: Callable[[NodeId, SightingKey], bool]) -> list[tuple[NodeId, SightingKey]]:
        """Others' rows of which an own join means nothing any more, since the last call.

        Args:
            is_over: Whether an own join's time has passed. Until then a row that is gone may come back: its author is
                shut out for a while, or what says it again is on its way.
        """
        gone = [
            (at, is_let_go or is_over(*at))
            for at, is_let_go in self.parted.items()
            if at not in self._on and (is_let_go or not self._view.get(*at))
        ]
        self.parted = {at: False for at, is_meaningless in gone if not is_meaningless}
        return [at for at, is_meaningless in gone if is_meaningless]
