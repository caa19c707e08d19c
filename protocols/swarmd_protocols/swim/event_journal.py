"""How far each origin's events were delivered, in this life and before: journalled, so that none comes twice."""

from collections.abc import Mapping

from swarmd_protocols.effects import Persist
from swarmd_protocols.ids import NODE_ID_BYTES
from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.event_shelf import EventShelf
from swarmd_protocols.swim.rules import fingerprint

_KEY = b"swim/told/"
"""Journal key of how far an origin was delivered: this and its id; its highest sequence and a check of both, 8 bytes
each: a flipped bit would silence the origin for ever."""
_DELAY_NS = 1_000_000_000
"""What was delivered is journalled so long after it, nanoseconds: whatever an author says costs one record a second."""
_ORIGINS_MAX = 4_096
"""Origins of which it is kept, as many as a full view has members; the one that came first goes first."""


def _value(origin: bytes, sequence: int) -> bytes:
    counted = sequence.to_bytes(8, "big")
    return counted + fingerprint(_KEY + origin + counted).to_bytes(8, "big")


class EventJournal:
    """The highest sequence delivered of each origin."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._told: dict[bytes, int] = {}
        self._behind: dict[bytes, None] = {}
        """Origins whose record in the journal is behind."""
        self.shelf = EventShelf(core)

    def restore(self, records: Mapping[bytes, bytes]) -> None:
        """Take back from the journal what was delivered in earlier lives; damaged records are dropped."""
        self.shelf.restore(records)
        for key, value in sorted(records.items()):
            if key.startswith(_KEY):
                origin, sequence = key[len(_KEY) :], int.from_bytes(value[:8], "big")
                if len(origin) != NODE_ID_BYTES or value != _value(origin, sequence):
                    self.core.counters["journal_damaged"] += 1
                    continue
                self._told[origin] = sequence

    def told(self, origin: bytes) -> int:
        """Up to which of an origin's events any was delivered, ever; 0 for none."""
        return self._told.get(origin, 0)

    def note(self, origin: bytes, sequence: int) -> None:
        """An event is being delivered."""
        core = self.core
        if origin not in self._told and len(self._told) >= _ORIGINS_MAX:
            oldest = next(iter(self._told))
            del self._told[oldest]
            self._behind.pop(oldest, None)
            core.port.emit(Persist(_KEY + oldest, None))
        self._told[origin] = sequence
        if not self._behind:
            core.scheduler.at(core.now_ns + _DELAY_NS, self._write)
        self._behind[origin] = None

    def _write(self, _: object) -> None:
        for origin in self._behind:
            self.core.port.emit(Persist(_KEY + origin, _value(origin, self._told[origin])))
        self._behind.clear()
        self.shelf.write()
