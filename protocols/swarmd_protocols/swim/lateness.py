"""Links whose answers come late: how one is found, how it is looked after, and when it is in time again.

    good ──smoothed round trip longer than the probe's window──▶ late ──shorter than half of it──▶ good

Of a good link one answer weighs an eighth, so that it takes several to find it late. A late one is asked directly with
every fourth probe, one ping and no helpers, whoever's turn it is: in a swarm its own turn may come every few seconds,
and it would be told late for half a minute after it has recovered. Its answers weigh half. So one lucky answer does
not clear it, nor every second one where the others are later than one and a half windows; three quick ones do.
"""

from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.members import Member
from swarmd_protocols.swim.messages import LINK_LATE

EVERY = 4
"""One probe in so many goes to a link that is late: the others still ask everybody in turn, at the same cost."""
_WEIGHT_GOOD, _WEIGHT_LATE = 8, 2
"""One part in so many is what the newest answer weighs in the smoothed round trip."""


def smoothed(rtt_ns: int, round_trip_ns: int, window_ns: int, *, late: bool) -> int:
    """The smoothed round trip of a link after one more answer.

    One that is very late weighs no more than a late one; the first one ever says little of the link.

    Args:
        rtt_ns: Smoothed so far, nanoseconds; 0 where there was no answer yet.
        round_trip_ns: Of the answer, nanoseconds; > 0.
        window_ns: How long a probe waits for its answer, nanoseconds.
        late: Whether the link is held for late.

    >>> smoothed(100, 900, 500, late=False), smoothed(600, 100, 500, late=True)
    (200, 350)
    """
    if rtt_ns == 0:
        return min(round_trip_ns, window_ns // 2)
    weight = _WEIGHT_LATE if late else _WEIGHT_GOOD
    return (rtt_ns * (weight - 1) + min(round_trip_ns, 2 * window_ns)) // weight


def is_late(rtt_ns: int, window_ns: int, *, late: bool) -> bool:
    """Whether a link is late, that was or was not so far.

    >>> is_late(300, 500, late=False), is_late(300, 500, late=True)
    (False, True)
    """
    return rtt_ns >= window_ns // 2 if late else rtt_ns > window_ns


class LateLinks:
    """Whose turn it is among the links that are late."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._round: list[Member] = []

    def whose(self, turn: int) -> Member | None:
        """Who is asked in this turn since its link is late; None where the turn is as any other.

        Args:
            turn: Of the prober; odd ones are the ring successor's, and stay so.
        """
        if turn % EVERY:
            return None
        member = self._next()
        if member is None:
            self._round = [member for member in self.core.table.reachable if member.link.quality == LINK_LATE]
            member = self._next()
        return member

    def _next(self) -> Member | None:
        while self._round:
            member = self._round.pop()
            if member.where >= 0 and member.link.quality == LINK_LATE and member.link.probe is None:
                return member
        return None
