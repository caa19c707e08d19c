"""What waits for the broker: in the order of publishing, within a bound, and a retained topic only once."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class Outgoing:
    """One message on its way to the broker."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    expiry_s: int | None
    traceparent: str
    deadline_s: float | None
    """On `time.monotonic`; None: never too late."""
    response_to: bytes | None = None


class Outbox:
    """Messages in order; of a retained topic only the last counts, so an older one that still waits goes."""

    def __init__(self) -> None:
        """Nothing waits."""
        self._waiting: OrderedDict[int, Outgoing] = OrderedDict()
        self._last_key = self._first_key = 0
        self._retained: dict[str, int] = {}
        """The waiting retained message of each topic, by its key in `_waiting`."""

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def put(self, item: Outgoing) -> bool:
        """Take a message, last in line; whether it replaced an older one of its topic."""
        replaced = False
        if item.retain:
            key = self._retained.pop(item.topic, None)
            if key is not None:
                del self._waiting[key]
                replaced = True
        self._last_key += 1
        self._keep(self._last_key, item)
        return replaced

    def take(self) -> Outgoing:
        """The next message; there must be one."""
        key, item = self._waiting.popitem(last=False)
        if item.retain and self._retained.get(item.topic) == key:
            del self._retained[item.topic]
        return item

    def put_back(self, items: Sequence[Outgoing]) -> int:
        """Put messages first in line again, in their order; returns how many a newer one of the topic has replaced."""
        replaced = 0
        for item in reversed(items):
            if item.retain and item.topic in self._retained:
                replaced += 1
                continue
            self._first_key -= 1
            self._keep(self._first_key, item)
            self._waiting.move_to_end(self._first_key, last=False)
        return replaced

    def _keep(self, key: int, item: Outgoing) -> None:
        self._waiting[key] = item
        if item.retain:
            self._retained[item.topic] = key
