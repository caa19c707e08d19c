"""Whose borrowed work runs first: by priority, and nobody who calls everything urgent has others wait for ever.

Each request that a lender takes gets a *turn*, a moment of the lender's clock; of what waits, the earliest turn runs
next. A turn is the moment at which its borrower's share reaches it, and later the less urgent it is:

    turn = max(now, what its borrower has used of its share) + patience(priority)

- *Ageing*: no turn lies before the arrival, so what arrives after a request's turn never passes it. A normal request is
  passed for 200 ms at most, one of low priority for 800 ms, whatever is called urgent meanwhile.
- *Shares*: a borrower's work moves its own turns on by as much as it takes, times those who share the lender at that
  moment, 800 ms at most. Who asks for more than its share is thereby late by itself, passes nobody who keeps to
  theirs, and is not urgent beyond it.
- *Promises*: a request that would make one late that was taken before it passes nobody.

Source:
    Goyal, Vin, Cheng (1996), "Start-time fair queueing", for the start tags; ageing as in Silberschatz, "Operating
    System Concepts", section 5.3.
"""

from collections.abc import Sequence
from typing import NamedTuple

from swarmd_protocols.ids import NodeId

HIGH, NORMAL, LOW = 1, 2, 3
"""Priorities, Triton's numbers."""
PRIORITIES = {HIGH: "high", NORMAL: "normal", LOW: "low"}
PATIENCE_NS = {HIGH: 0, NORMAL: 200_000_000, LOW: 800_000_000}
"""How long others' more urgent work may pass a request: of a second, the deadline that programs have by default, a
fifth, and nearly all of it."""


AHEAD_MAX_NS = 800_000_000
"""How far ahead of the clock a borrower's share may be used up, as far as low priority goes: who used a device that
nobody else wanted, or shared it with jobs that only stood there, is not last for minutes when others come."""


class Waiting(NamedTuple):
    """A request that was taken, and not answered."""

    turn_ns: int
    time_ns: int
    until_ns: int
    """Its deadline."""


class Turn(NamedTuple):
    """When a request's turn is."""

    at_ns: int
    is_in_share: bool
    """Its borrower has used no more than its share before it."""


class Turns:
    """What each borrower has used of one lender."""

    def __init__(self) -> None:
        """Nobody has used anything."""
        self._used_ns: dict[NodeId, int] = {}
        """Until when each has used up its share; only of those who are ahead of the clock."""

    def take(
        self, borrower: NodeId, priority: int, time_ns: int, sharing: int, waiting: Sequence[Waiting], now_ns: int
    ) -> Turn:
        """The turn of a request that is taken now; it counts for its borrower.

        Args:
            borrower: Whose.
            priority: Of `PRIORITIES`.
            time_ns: What it takes.
            sharing: Borrowers that have work here now, this one among them; >= 1.
            waiting: What was taken before and has no answer, in the order of arrival.
            now_ns: The moment of its arrival.
        """
        self._used_ns = {node: used_ns for node, used_ns in self._used_ns.items() if used_ns > now_ns}
        start_ns = max(now_ns, self._used_ns.get(borrower, 0))
        self._used_ns[borrower] = min(start_ns + time_ns * sharing, now_ns + AHEAD_MAX_NS)
        # Beyond its share nobody is urgent: else who is, and as far ahead as can be, would pass who is not.
        at_ns = start_ns + PATIENCE_NS[priority if start_ns == now_ns else max(priority, NORMAL)]
        if breaks_promise(at_ns, time_ns, waiting, now_ns):
            at_ns = max(one.turn_ns for one in waiting) + 1
        return Turn(at_ns, start_ns == now_ns)


def breaks_promise(turn_ns: int, time_ns: int, waiting: Sequence[Waiting], now_ns: int) -> bool:
    """Whether a request with this turn would make one late that is in time without it.

    Args:
        turn_ns: Of the newcomer.
        time_ns: What it takes.
        waiting: What was taken before it, in the order of arrival.
        now_ns: The moment.

    >>> tight = Waiting(turn_ns=9, time_ns=50, until_ns=100)
    >>> breaks_promise(5, 60, [tight], 0), breaks_promise(9, 60, [tight], 0), breaks_promise(5, 40, [tight], 0)
    (True, False, False)
    """
    done_ns = now_ns
    for one in sorted(waiting, key=lambda one: one.turn_ns):  # Of one turn the first to come.
        done_ns += one.time_ns
        if turn_ns < one.turn_ns and done_ns <= one.until_ns < done_ns + time_ns:
            return True
    return False
