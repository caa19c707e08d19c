"""The newest user events that this node has delivered, in the journal: what only it holds outlasts its restart.

Where two members hear each other only through this node, nobody but this node can bring one of them what the other has
said. Own events are written before they are sent; those of others with how far their origin was delivered, a second
later (`event_journal.py`).
"""

from collections import OrderedDict
from collections.abc import Mapping

from swarmd_protocols.effects import Persist
from swarmd_protocols.ids import NODE_ID_BYTES
from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.rules import BOOT_SHIFT, fingerprint

_KEY = b"swim/event/"
"""Journal key of an event: this, the id of its origin and its sequence, 8 bytes; the message as it was passed on, and a
check of both, 8 bytes."""
_KEPT_MAX, _KEPT_BYTES_MAX = 64, 64 * 1024
"""Events in the journal, and bytes of them, whoever said them: the newest. What a neighbour misses while this node
restarts is of the last minutes, and small devices write to flash. An event that is larger alone is not written."""
_WORN_BYTES_PER_S = 1_000
"""Bytes of others' events that are written at length, beside `_KEPT_BYTES_MAX` at once: five events of 200 bytes a
second, 86 MB of a flash a day. Where more is said the shelf would hold but the last seconds, and whoever says events
without end would wear the flash of every member."""


def _check(key: bytes, encoded: bytes) -> bytes:
    return fingerprint(key + encoded).to_bytes(8, "big")


def last_life(records: Mapping[bytes, bytes], node: bytes) -> int:
    """The latest life of a node of which a journal holds own events; 0 for none.

    What it says next must have a higher number, also where the record of its lives was damaged.

    Args:
        records: All journal records.
        node: Whose own events.
    """
    prefix = _KEY + node
    own = [key for key in records if key.startswith(prefix) and len(key) == len(prefix) + 8]
    whole = [key for key in own if records[key][-8:] == _check(key, records[key][:-8])]
    return max((int.from_bytes(key[-8:], "big") >> BOOT_SHIFT for key in whole), default=0)


class EventShelf:
    """Delivered events that are in the journal, oldest first."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._kept: OrderedDict[bytes, bytes] = OrderedDict()
        self._kept_bytes = 0
        self._unwritten: dict[bytes, None] = {}
        self._restored: dict[bytes, list[tuple[int, bytes]]] = {}
        self._wear_bytes = float(_KEPT_BYTES_MAX)
        """What may be written of others at once."""
        self._wear_ns = core.now_ns

    def __len__(self) -> int:
        return len(self._kept)

    def restore(self, records: Mapping[bytes, bytes]) -> None:
        """Take back what an earlier life wrote; damaged records, and those beyond the bounds, are removed."""
        for key, value in sorted(records.items()):
            if not key.startswith(_KEY):
                continue
            encoded, node = value[:-8], key[len(_KEY) : len(_KEY) + NODE_ID_BYTES]
            if len(key) != len(_KEY) + NODE_ID_BYTES + 8 or value[-8:] != _check(key, encoded):
                self.core.counters["journal_damaged"] += 1
                self.core.port.emit(Persist(key, None))
                continue
            self._put(key, encoded)
            self._restored.setdefault(node, []).append((int.from_bytes(key[-8:], "big"), encoded))
        self._trim()

    def taken_back(self) -> dict[bytes, list[tuple[int, bytes]]]:
        """By origin, what earlier lives delivered: (sequence, encoded message), in order; once."""
        restored, self._restored = self._restored, {}
        return restored

    def taken_back_of(self, origin: bytes) -> list[tuple[int, bytes]]:
        """Likewise, of one origin; once."""
        return self._restored.pop(origin, [])

    def put(self, origin: bytes, sequence: int, encoded: bytes) -> None:
        """An event was delivered; it is in the journal after the next `write`."""
        key = _KEY + origin + sequence.to_bytes(8, "big")
        if key in self._kept or len(encoded) > _KEPT_BYTES_MAX:
            return
        if origin != self.core.own.node and not self._may_wear(len(key) + len(encoded)):
            self.core.counters["events_not_kept"] += 1
            return
        self._put(key, encoded)
        self._unwritten[key] = None
        self._trim()

    def remove(self, origin: bytes, sequence: int) -> None:
        """An event has got another number."""
        key = _KEY + origin + sequence.to_bytes(8, "big")
        encoded = self._kept.pop(key, None)
        if encoded is None:
            return
        self._kept_bytes -= len(encoded)
        if key in self._unwritten:
            del self._unwritten[key]
        else:
            self.core.port.emit(Persist(key, None))

    def write(self) -> None:
        """Write what is not in the journal yet."""
        for key in self._unwritten:
            self.core.port.emit(Persist(key, self._kept[key] + _check(key, self._kept[key])))
        self._unwritten.clear()

    def _may_wear(self, size_bytes: int) -> bool:
        now_ns = self.core.now_ns
        gained_bytes = (now_ns - self._wear_ns) * _WORN_BYTES_PER_S / 1e9
        self._wear_bytes, self._wear_ns = min(_KEPT_BYTES_MAX, self._wear_bytes + gained_bytes), now_ns
        if self._wear_bytes < size_bytes:
            return False
        self._wear_bytes -= size_bytes
        return True

    def _put(self, key: bytes, encoded: bytes) -> None:
        self._kept[key] = encoded
        self._kept_bytes += len(encoded)

    def _trim(self) -> None:
        while len(self._kept) > _KEPT_MAX or self._kept_bytes > _KEPT_BYTES_MAX:
            key, encoded = self._kept.popitem(last=False)
            self._kept_bytes -= len(encoded)
            if key in self._unwritten:
                del self._unwritten[key]
            else:
                self.core.port.emit(Persist(key, None))
