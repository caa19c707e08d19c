"""Members as givers of pages: what is known of each, whose answers are waited for, and whose turn it is. Pure.

Rules this file keeps:

- `WALKS_MAX` answers are waited for that are not overdue, one of each giver; after `SLOW_NS` an answer makes room for
  another one's, and is still waited for until it is given up. So whoever is slow holds up nobody for longer.
- Givers take turns by the time for which they were waited for: whoever has taken more of it than the others waits until
  they have had as much. So no givers, however they agree, take more than their share of the time.
- What a giver has taken, and how long it is left for a lie, outlives its link: going and coming back sheds neither.
"""

import msgspec

from swarmd_protocols.ids import NodeId
from swarmd_protocols.past.spans import Span

_S = 1_000_000_000
WALKS_MAX = 4
"""Answers that are waited for at once: at the default share of a giver 32 KiB/s come in."""
SLOW_NS = 15 * _S
"""An answer that takes longer, nanoseconds, makes room for the next: 64 KiB take eight seconds at the default rate. As
one is given up after four times as long, no more than four times `WALKS_MAX` are ever open. Also what counts as a
difference between what two givers have taken."""
AWAY_MAX = 1_024
"""Givers out of reach that are remembered, as many as authors are."""


class Walk(msgspec.Struct):
    """One question to one giver, and what follows it."""

    author: NodeId
    span: Span
    number: int
    below: tuple[int, int]
    begun_ns: int
    due_ns: int


class KnownGiver(msgspec.Struct):
    """What is known of one member as a giver."""

    list_ns: int
    """When it is to be asked what it keeps."""
    pause_ns: int
    listing: int = 0
    """Number of the question that is open; 0: none."""
    has_listed: bool = False
    has_helped: bool = False
    """Pages came of it since its last listing."""
    denied_ns: int = 0
    """It is asked nothing until then."""
    reason: str = ""
    """Why, in the words of `fetching.py`; "" while it may be asked."""
    is_left: bool = False
    """It has lied, and is asked nothing until `denied_ns` whatever it says meanwhile."""
    used_ns: int = 0
    """For how long it was waited for, nanoseconds, from where the others were when it was first."""
    rest: Walk | None = None
    """What it was telling of when others' turn came."""


class Givers:
    """See the module."""

    def __init__(self) -> None:
        self.near: dict[NodeId, KnownGiver] = {}
        """Members that can be reached."""
        self.walks: dict[NodeId, Walk] = {}
        """By giver."""
        self._away: dict[NodeId, KnownGiver] = {}
        self._used_ns = 0
        """What whoever was asked last had taken by then: who has taken less, or is new, counts as if it had as much."""

    def meet(self, near: set[NodeId], pause_ns: int, now_ns: int) -> list[NodeId]:
        """These can be reached now.

        Args:
            near: Them.
            pause_ns: How long a new one's first listing counts.
            now_ns: Own monotonic clock.

        Returns:
            Who was and is not any more.
        """
        gone = [node for node in self.near if node not in near]
        for node in gone:
            self.end(node, now_ns)
            self._away[node] = self.near.pop(node)
        self._tidy(now_ns)
        for node in sorted(near - self.near.keys()):
            known = self._away.pop(node, None)
            if known is None or not known.is_left or known.denied_ns <= now_ns:
                known = KnownGiver(now_ns, pause_ns, used_ns=known.used_ns if known else 0)
            known.rest, known.listing = None, 0
            self.near[node] = known
        return gone

    def _tidy(self, now_ns: int) -> None:
        """Forget whoever has nothing to shed; where that is not enough, those who would shed least."""
        self._away = {
            node: one
            for node, one in self._away.items()
            if (one.is_left and one.denied_ns > now_ns) or one.used_ns > self._used_ns
        }
        over = len(self._away) - AWAY_MAX
        if over > 0:
            least = sorted(self._away, key=lambda node: (self._away[node].is_left, self._away[node].denied_ns))
            for node in least[:over]:
                del self._away[node]

    def has_room(self, now_ns: int) -> bool:
        """Whether one more may be asked."""
        return sum(now_ns - walk.begun_ns < SLOW_NS for walk in self.walks.values()) < WALKS_MAX

    def turn_of(self, node: NodeId) -> int:
        """Whoever has a lower number is asked first."""
        return max(self.near[node].used_ns, self._used_ns) // SLOW_NS

    def begin(self, node: NodeId, walk: Walk) -> None:
        """It is asked."""
        giver = self.near[node]
        giver.used_ns = self._used_ns = max(giver.used_ns, self._used_ns)
        giver.rest = None
        self.walks[node] = walk

    def end(self, node: NodeId, now_ns: int) -> Walk | None:
        """It has answered, or is waited for no more; what it was asked, if anything."""
        walk = self.walks.pop(node, None)
        if walk is not None:
            self.near[node].used_ns += max(0, now_ns - walk.begun_ns)
        return walk
