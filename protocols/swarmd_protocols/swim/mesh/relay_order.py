"""Which part of one near member goes next: short ones before long ones, and a long one now and then all the same. Pure.

Commands, answers and the time are short, a stream's parts are not, and a third of one's bytes is no delay for it. But
whoever says short things without end, be it many hops away, would leave nothing for what others send the same way.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping

from swarmd_protocols.ids import NodeId

SHORT_BYTES = 320
"""Parts of so many bytes at most go before longer ones of the same near member."""
IN_A_ROW = 7
"""So many go while a long one waits, then that one: by bytes about as much of each."""


class ShortFirst:
    """How many short parts have gone of each near member while a long one waited."""

    def __init__(self) -> None:
        """None has."""
        self._in_a_row: dict[NodeId | None, int] = {}

    def __len__(self) -> int:
        return len(self._in_a_row)

    def ordered(
        self, queues: Mapping[NodeId | None, Collection[bytes]], size_bytes: Callable[[bytes], int]
    ) -> dict[NodeId | None, deque[bytes]]:
        """What is due, in its order.

        Args:
            queues: By near member, names of its parts, the oldest first.
            size_bytes: Bytes of one.
        """
        found = {}
        for via, names in queues.items():
            longs = deque(name for name in names if size_bytes(name) > SHORT_BYTES)
            shorts = deque(name for name in names if size_bytes(name) <= SHORT_BYTES)
            order = found[via] = deque[bytes]()
            gone = self._in_a_row.setdefault(via, 0) if longs else self._in_a_row.pop(via, 0)
            while longs and shorts:
                is_short = gone < IN_A_ROW
                order.append((shorts if is_short else longs).popleft())
                gone = gone + 1 if is_short else 0
            order += shorts + longs
        return found

    def went(self, via: NodeId | None, size_bytes: int) -> None:
        """A part of a near member was handed on."""
        if via in self._in_a_row:
            self._in_a_row[via] = self._in_a_row[via] + 1 if size_bytes <= SHORT_BYTES else 0

    def keep(self, here: Collection[NodeId]) -> None:
        """Who is gone brings nothing more."""
        for via in [via for via in self._in_a_row if via is not None and via not in here]:
            del self._in_a_row[via]
