"""How long a claim takes to others and their answer to come back, measured by what is on the air anyway.

Rules this file keeps:

- Two measures of each member, and the longer one counts: how long it took to answer a question about the time, and
  twice the time by which its lease records are late by the swarm's clock. Who answers cannot answer before it was
  asked, and clocks that disagree do not matter to the first; the second comes by the way that claims take, however far.
- Of either the latest few are kept, and what three in four of them do not exceed counts: one that was lost on the way
  and found by repair is no measure.
- One member alone is not believed: what counts of all is the longest, and twice the second longest at most. By the way
  over any third member this is enough for one of two, and one of two that waits is enough (`claims.py`).
- Who can be reached counts. Who cannot be counts for nothing; who is not in the roster (it has left, or is beyond a
  partial view) for two leases after it was last measured.
- A member adds one number, and the table is bounded.
"""

from collections.abc import Container

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.claims.config import ClaimConfig

_KEPT = 8
"""Latest measures of each kind of a member: a worker says some four records a cell."""
_MEMBERS_MAX = 1_024
"""Members that are measured; who was measured longest ago goes first."""


def usual_ns(measured: list[int]) -> int:
    """What three in four of these do not exceed; 0 of none.

    >>> usual_ns([5]), usual_ns([1, 9, 2, 3]), usual_ns([4, 4, 4, 90, 4, 4, 4, 80])
    (5, 3, 4)
    """
    return sorted(measured)[(3 * len(measured) + 3) // 4 - 1] if measured else 0


class Delays:
    """What was measured of each member."""

    def __init__(self, config: ClaimConfig) -> None:
        """Nothing was."""
        self._config = config
        self._others = 0
        self._away: Container[NodeId] = ()
        self._here: Container[NodeId] = ()
        self._answered: dict[NodeId, list[int]] = {}
        self._late: dict[NodeId, list[int]] = {}
        self._both: dict[NodeId, int] = {}
        """There and back: the longer of the two."""
        self._at_ns: dict[NodeId, int] = {}
        """When each was last measured."""

    def __len__(self) -> int:
        return len(self._both)

    def answered(self, member: NodeId, round_trip_ns: int, now_ns: int) -> None:
        """A member has answered a question."""
        self._note(self._answered, member, round_trip_ns, now_ns)

    def heard(self, member: NodeId, late_ns: int, now_ns: int) -> None:
        """A record of a member that follows the last one came so long after its stamp.

        What is later than a claim ever waits for says that a clock is wrong, or that there was a cut.
        """
        if 2 * late_ns <= self._config.renew_ns:
            self._note(self._late, member, 2 * late_ns, now_ns)

    def _note(self, measured: dict[NodeId, list[int]], member: NodeId, there_and_back_ns: int, now_ns: int) -> None:
        kept = measured.setdefault(member, [])
        kept.append(max(0, there_and_back_ns))
        del kept[:-_KEPT]
        self._at_ns[member] = now_ns
        self._both.pop(member, None)
        self._both[member] = max(usual_ns(self._answered.get(member, [])), usual_ns(self._late.get(member, [])))
        if len(self._both) > _MEMBERS_MAX:
            self.forget(next(iter(self._both)))

    def forget(self, member: NodeId) -> None:
        """A member was shut out."""
        for table in (self._answered, self._late, self._both, self._at_ns):
            table.pop(member, None)

    def know(self, others: int, away: Container[NodeId], here: Container[NodeId] = ()) -> None:
        """Who belongs to the mission.

        Args:
            others: How many beside this node: where there is one, nobody else can speak for it.
            away: Who cannot be reached, and counts for nothing.
            here: Who can be, and counts however long ago it was measured: its turn to be asked comes every 10 s times
                the members.
        """
        self._others, self._away, self._here = others, away, here

    def settle_ns(self, now_ns: int) -> int:
        """How long a claim has to stand: there and back to whoever is farthest, for all that one member can say."""
        longest, second, since_ns = 0, 0, now_ns - 2 * self._config.lease_ns
        for member, both_ns in self._both.items():
            if both_ns <= second or member in self._away:
                continue
            if member in self._here or self._at_ns[member] >= since_ns:
                longest, second = (both_ns, longest) if both_ns > longest else (longest, both_ns)
        return self._bounded_ns(longest if self._others < 2 else min(longest, 2 * second))

    def settle_with_ns(self, member: NodeId) -> int:
        """How long one has to stand for this member alone, whose claim is known and alive."""
        return self._bounded_ns(self._both.get(member, 0))

    def _bounded_ns(self, there_and_back_ns: int) -> int:
        return max(self._config.settle_ns, min(self._config.renew_ns, there_and_back_ns))
