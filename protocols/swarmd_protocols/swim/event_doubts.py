"""What one member alone denies of how far an origin was delivered: who said so shows the event, or the denial holds.

Of two words, one must be wrong, and a number proves nothing. The event that bears it does: it is signed by its origin.
Whoever said of an origin that it was at an event can send that event; whoever invented the number cannot. So where one
member is enough to deny (`event_baseline.py`), those who said more are asked for the event first. It is no proof where
the origin says that very event within the second in which it is awaited.
"""

from collections.abc import Callable, Mapping, Sequence

from swarmd_protocols.channel.codec import encode
from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.event_baseline import Denial
from swarmd_protocols.swim.messages import VECTOR_REPAIR, EventVector

_SHOWN_WITHIN_NS = 1_000_000_000
"""An event is awaited for so long, nanoseconds."""
_ASKED_EVERY_NS = 300_000_000
"""Who said that it was there is asked for it so often, nanoseconds, at once for all that is denied: a question or its
answer may be lost, and whoever denies one origin after the other makes no more questions of it."""
_OTHERS = 2
"""So many others are asked each time too: who said it may have begun lately itself, and hold nothing."""

Vector = tuple[tuple[bytes, int], ...]


class Doubts:
    """Denials by one member, until the event is shown or the time is over; one for each origin at most.

    Args:
        core: What the node holds.
        vector: How far this node has delivered each origin.
        lower: Given denials, and by origin the last event that was shown of those that they deny.
    """

    def __init__(
        self,
        core: Core,
        vector: Callable[[], Vector],
        lower: Callable[[Sequence[Denial], Mapping[bytes, int]], None],
    ) -> None:
        self._core, self._vector, self._lower = core, vector, lower
        self._open: dict[bytes, Denial] = {}
        self._shown: dict[bytes, int] = {}
        """By origin, the last event that has come of those that are awaited."""
        self._asks = False
        """Whether a timer runs for the next question."""

    def __len__(self) -> int:
        return len(self._open)

    def take(self, denials: Sequence[Denial]) -> None:
        """Members have denied these; what more than one does holds at once."""
        core = self._core
        self._lower([denial for denial in denials if not denial.vouchers], {})
        doubted = {denial.origin: denial for denial in denials if denial.vouchers}
        if not doubted:
            return
        self._open |= doubted
        if not self._asks:
            self._asks = True
            core.scheduler.at(core.now_ns, self._ask)
        core.scheduler.at(core.now_ns + _SHOWN_WITHIN_NS, self._end, tuple(doubted))

    def awaits(self, origin: bytes, sequence: int) -> bool:
        """Whether this event would show that a denial is wrong."""
        denial = self._open.get(origin)
        return denial is not None and any(number == sequence for _, number in denial.vouchers)

    def show(self, origin: bytes, sequence: int) -> None:
        """The event has come, signed by its origin: all is shown, or so much while the rest is awaited."""
        self._shown[origin] = max(sequence, self._shown.get(origin, 0))
        if self._shown[origin] >= max(number for _, number in self._open[origin].vouchers):
            self._end((origin,))

    def _ask(self, _: object) -> None:
        """Ask for what comes after the event before the one that is awaited: the answer begins with that event."""
        core = self._core
        self._asks = bool(self._open)
        if not self._asks:
            return
        core.scheduler.at(core.now_ns + _ASKED_EVERY_NS, self._ask)
        others = [member.node for member in core.table.sample(core.rng, _OTHERS)]
        before: dict[bytes, dict[bytes, int]] = {}
        for origin, denial in self._open.items():
            awaited = {peer: number for peer, number in denial.vouchers if number > self._shown.get(origin, 0)}
            # Who did not say less is asked for no less: what two bring unasked may be taken for news.
            for peer, number in (dict.fromkeys(others, max(awaited.values())) | awaited).items():
                before.setdefault(peer, {})[origin] = number - 1
        for peer, asked in sorted(before.items()):
            member = core.table.by_node.get(peer)
            if member is None or member.where < 0:
                continue
            vector = tuple(sorted((dict(self._vector()) | asked).items()))
            core.port.datagram_or_stream(member, [encode(EventVector(vector, VECTOR_REPAIR))])

    def _end(self, origins: tuple[bytes, ...]) -> None:
        over = [self._open.pop(origin) for origin in origins if origin in self._open]
        shown = {denial.origin: self._shown.pop(denial.origin, 0) for denial in over}
        self._lower(over, shown)
