"""What one member alone denies of how far an origin was delivered: who said so shows the event, or the denial holds.

Of two words, one must be wrong, and a number proves nothing. The event that bears it does: it is signed by its origin.
Whoever said of an origin that it was at an event can send that event; whoever invented the number cannot. So where one
member is enough to deny (`event_baseline.py`), those who said it are asked for the event first. It is no proof where
the origin says that very event within the second in which it is awaited.
"""

from collections.abc import Callable, Sequence

from swarmd_protocols.channel.codec import encode
from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.event_baseline import Denial
from swarmd_protocols.swim.messages import VECTOR_REPAIR, EventVector

_SHOWN_WITHIN_NS = 1_000_000_000
"""An event is awaited for so long, nanoseconds."""
_ASKED_AT_NS = (0, 300_000_000, 600_000_000)
"""When who said that it was there is asked for it, after the denial: a question or its answer may be lost."""

Vector = tuple[tuple[bytes, int], ...]


class Doubts:
    """Denials by one member, until the event is shown or the time is over; one for each origin at most.

    Args:
        core: What the node holds.
        vector: How far this node has delivered each origin.
        lower: Given denials, and whether the event that they deny was shown.
    """

    def __init__(
        self,
        core: Core,
        vector: Callable[[], Vector],
        lower: Callable[[Sequence[Denial], bool], None],
    ) -> None:
        self._core, self._vector, self._lower = core, vector, lower
        self._open: dict[bytes, Denial] = {}

    def __len__(self) -> int:
        return len(self._open)

    def take(self, denials: Sequence[Denial]) -> None:
        """Members have denied these; what more than one does holds at once."""
        core = self._core
        self._lower([denial for denial in denials if not denial.vouchers], False)
        doubted = {denial.origin: denial for denial in denials if denial.vouchers}
        if not doubted:
            return
        self._open |= doubted
        for wait_ns in _ASKED_AT_NS:
            core.scheduler.at(core.now_ns + wait_ns, self._ask, tuple(doubted))
        core.scheduler.at(core.now_ns + _SHOWN_WITHIN_NS, self._end, tuple(doubted))

    def awaits(self, origin: bytes, sequence: int) -> bool:
        """Whether this event would show that a denial is wrong."""
        denial = self._open.get(origin)
        return denial is not None and denial.taken == sequence

    def show(self, origin: bytes) -> None:
        """The event has come, signed by its origin."""
        self._lower([self._open.pop(origin)], True)

    def _ask(self, origins: tuple[bytes, ...]) -> None:
        """Ask each of those who said it for what comes after the event before it: the answer begins with that event."""
        core = self._core
        still = [self._open[origin] for origin in origins if origin in self._open]
        for peer in sorted({peer for denial in still for peer in denial.vouchers}):
            member = core.table.by_node.get(peer)
            if member is None or member.where < 0:
                continue
            before = {denial.origin: denial.taken - 1 for denial in still if peer in denial.vouchers}
            vector = tuple(sorted((dict(self._vector()) | before).items()))
            core.port.datagram_or_stream(member, [encode(EventVector(vector, VECTOR_REPAIR))])

    def _end(self, origins: tuple[bytes, ...]) -> None:
        self._lower([self._open.pop(origin) for origin in origins if origin in self._open], False)
