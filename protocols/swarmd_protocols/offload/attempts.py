"""What the dispatcher knows of one request that has no answer so far. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from swarmd_protocols.ids import NodeId
from swarmd_protocols.offload.messages import HELD_MAX_MS
from swarmd_protocols.offload.placement import Need, Offer, stated_ns

_MS = 1_000_000
_HELD_MARGIN = 1.5
"""Times what a lender is expected to take that it is given before the deadline, if another works on it first."""


@dataclass(slots=True)
class Attempts:
    """Whom a request was sent to, and when each of them begins."""

    need: Need
    tried: list[NodeId | None] = field(default_factory=list)
    """Whom each attempt asked, by its index; None: the own model."""
    begun_ns: list[int] = field(default_factory=list)
    """When each was asked, or is to begin."""
    late_ns: int = 0
    """When the one that began last is slower than it ever is."""
    streams_ns: list[int] = field(default_factory=list)
    live: set[int] = field(default_factory=set)
    was_held: set[int] = field(default_factory=set)
    """Attempts that were to begin later than they were asked."""
    waits_ns: int = 0
    """Until when each offer is looked at, since somebody should be asked, and just now nobody can be; 0: it is not."""

    def lenders_at_work(self, now_ns: int) -> list[int]:
        """Attempts of lenders that have begun."""
        return [one for one in sorted(self.live) if self.tried[one] is not None and self.begun_ns[one] <= now_ns]

    def begins_ns(self, takes_ns: float, now_ns: int) -> int:
        """When one more lender begins: once those at work are late, and while there is time for it; at once where
        nobody works.
        """
        until_ns = min(self.late_ns, self.need.deadline_ns - round(_HELD_MARGIN * takes_ns), now_ns + HELD_MAX_MS * _MS)
        return max(now_ns, until_ns) if self.lenders_at_work(now_ns) else now_ns

    def has_not_waited(self, attempt: int, stated_ns: int, now_ns: int) -> bool:
        """Whether a lender that was to hold a request answers sooner after that than it says it could: no measure."""
        return attempt in self.was_held and now_ns - self.begun_ns[attempt] < stated_ns

    def stated_ns(self, attempt: int, offers: Mapping[NodeId, Offer]) -> int | None:
        """What a lender says that the request takes; None where it offers it no more, or is none."""
        offer = offers.get(self.tried[attempt] or NodeId(b""))
        return None if offer is None or offer.of(self.need) is None else stated_ns(offer, self.need)

    def held(self, now_ns: int) -> list[int]:
        """Attempts of lenders that have not begun, the first one first."""
        return [one for one in sorted(self.live) if self.begun_ns[one] > now_ns]


@dataclass(frozen=True, slots=True)
class Shunned:
    """Who is not asked now."""

    bad: list[NodeId]
    """Whose answers were wrong too often."""
    doubted: list[NodeId]
    """Whose connection broke just now; they are asked where there is no other."""
