"""Who must be decided, in the order of rank, and whose change it is that makes for the work."""

from heapq import heappop, heappush
from typing import TypeAlias

from swarmd_protocols.ids import NODE_ID_BYTES, NodeId
from swarmd_protocols.state.dedup.entry import Entry, Rank

_Item: TypeAlias = tuple[Rank, int, Entry, NodeId]
"""An entry to be decided: rank, serial number, entry, the origin that caused it."""
_DECISION_UNITS = 8
"""Work of one decision or change beside looking at neighbours, each of which is one unit."""


class Undecided:
    """A queue of entries in two lanes, and the account of the work."""

    def __init__(self) -> None:
        """Empty."""
        self._dirty: list[_Item] = []
        self._slow: list[_Item] = []
        """Like `_dirty`, for work that origins in `slow` have caused: it comes last."""
        self._pushes = 0
        self.waiting = 0
        """Entries that wait, some of them more than once."""
        self.cause = NodeId(bytes(NODE_ID_BYTES))
        """The origin whose change is being worked on."""
        self.work = 0
        """Units done since the last `account`."""
        self.slow: set[NodeId] = set()
        """Origins that have used up what they may make others do."""
        self.spent: dict[NodeId, int] = {}
        """Units by the origin that caused them, since the caller last cleared this; about a microsecond each."""
        self.total = 0
        """Units ever."""

    def __len__(self) -> int:
        """`waiting`."""
        return self.waiting

    @property
    def is_settling(self) -> bool:
        """Whether something waits that nobody in `slow` has caused."""
        return bool(self._dirty)

    def push(self, entry: Entry) -> None:
        """Have an entry decided, at the cost of the present cause."""
        self._pushes += 1
        self.waiting += 1
        self.work += 1
        lane = self._slow if self.cause in self.slow else self._dirty
        heappush(lane, (entry.rank, self._pushes, entry, self.cause))

    def pop(self) -> tuple[Rank, Entry]:
        """The next one, with the rank that it had; whoever caused it is the cause from here on."""
        self.waiting -= 1
        rank, _, entry, self.cause = heappop(self._dirty or self._slow)
        return rank, entry

    def account(self) -> int:
        """Charge the work since the last call to the origin that caused it; returns the units."""
        work, self.work = self.work + _DECISION_UNITS, 0
        self.spent[self.cause] = self.spent.get(self.cause, 0) + work
        self.total += work
        return work
