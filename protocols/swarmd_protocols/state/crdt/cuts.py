"""What the bounds of the logs have cost: facts that mattered still to their authors, by author.

What an author has replaced itself is no loss, and is not counted. What lies below what was let go is refused when it
comes again, and counted once: when it was held.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.clock import EPOCH_2020_NS, stamp_ms
from swarmd_protocols.state.crdt.batch import Batch

ORIGINS_MAX = 1_024
"""Authors that are counted each by itself; of any further one only the sums are."""
NAMED_MAX = 8
"""Authors that one alarm names, those who lost most; the rest are counted."""
ALARM_NS = 60_000_000_000
"""Least time between two alarms: an alarm is for people."""


@dataclass(slots=True)
class Cut:
    """What was let go of one author."""

    batches: int = 0
    size_bytes: int = 0
    newest: int = 0
    """Stamp of the newest batch of it."""
    told: int = 0
    """Batches that an alarm has told of."""


class Cuts:
    """The losses of this life."""

    def __init__(self, origin_cost_max: int, origins_max: int) -> None:
        """None yet; the bounds are for the alarms to name."""
        self._origin_cost_max, self._origins_max = origin_cost_max, origins_max
        self.by_origin: dict[NodeId, Cut] = {}
        self.batches = 0
        self.size_bytes = 0
        self.refused = 0
        """Batches of members for whose logs there was no room, each time that they came."""
        self._told = self._told_refused = 0
        self._alarmed_ns = -ALARM_NS

    def note(self, origin: NodeId, batches: Sequence[Batch]) -> None:
        """These were let go because of the bounds of their author's log."""
        size_bytes = sum(len(batch.raw) for batch in batches)
        self.batches += len(batches)
        self.size_bytes += size_bytes
        cut = self.by_origin.get(origin)
        if cut is None:
            if len(self.by_origin) >= ORIGINS_MAX:
                return
            cut = self.by_origin[origin] = Cut()
        cut.batches += len(batches)
        cut.size_bytes += size_bytes
        cut.newest = max(cut.newest, *(batch.stamp for batch in batches))

    def news(self, now_ns: int) -> str:
        """What to tell of what was let go since the last time; "" where that is nothing, or too soon."""
        is_new = self.batches > self._told or self.refused > self._told_refused
        if not is_new or now_ns - self._alarmed_ns < ALARM_NS:
            return ""
        self._alarmed_ns = now_ns
        said = [self._of_origins()] if self.batches > self._told else []
        if self.refused > self._told_refused:
            count = self.refused - self._told_refused
            said.append(f"{count} batches were refused: {self._origins_max:,} members have logs here, as many as may")
        self._told, self._told_refused = self.batches, self.refused
        return "; ".join(said)

    def _of_origins(self) -> str:
        fresh = [(origin, cut) for origin, cut in self.by_origin.items() if cut.batches > cut.told]
        fresh.sort(key=lambda item: (item[1].told - item[1].batches, item[0]))
        named = ", ".join(
            f"{origin.hex()} {cut.batches - cut.told} batches, said until {_utc(cut.newest)}"
            for origin, cut in fresh[:NAMED_MAX]
        )
        more = f" and of {len(fresh) - NAMED_MAX} more members" if len(fresh) > NAMED_MAX else ""
        for _, cut in fresh:
            cut.told = cut.batches
        bound = f"one member's facts may take {self._origin_cost_max:,} B of memory"
        return f"{bound}; the oldest beyond it were let go: {named}{more}"


def _utc(stamp: int) -> str:
    at = datetime.fromtimestamp(EPOCH_2020_NS // 1_000_000_000 + stamp_ms(stamp) // 1000, UTC)
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
