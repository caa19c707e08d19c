"""Counters, status records and events: the latest of each life of each node."""

from collections.abc import Collection, Iterator

import msgspec

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.batch import Dot, Stream
from swarmd_protocols.state.crdt.records import EventRow
from swarmd_protocols.state.observations import EventsLearned

COUNTS_A_PART = 512
"""Counts of one part of a long answer: told, they take about a millisecond."""
LOOKS_A_PART = 8_192
"""Looks for a counter in a life, of one part: half a millisecond."""
_LIVES_AT_ONCE = 64
"""Lives whose names of counters are gathered in one go: half a millisecond with as many counters as there may be."""
_NONE: dict[str, int] = {}
"""The counters of a life that has gone between two parts."""


class Vitals:
    """What nodes say of themselves."""

    def __init__(self) -> None:
        """Empty."""
        self._counters: dict[tuple[NodeId, int], dict[str, int]] = {}
        self._statuses: dict[NodeId, dict[tuple[Stream, int], tuple[int, int, bytes]]] = {}
        """Of each record held that says one, by stream and life: stamp, number and the status."""
        self._events: dict[NodeId, tuple[Dot, tuple[EventRow, ...]]] = {}
        self._learned: list[EventsLearned] = []

    def take_counters(self, origin: NodeId, life: int, counters: dict[str, int]) -> None:
        """The counters of one life of a node."""
        self._counters[origin, life] = counters

    def drop_counters(self, origin: NodeId, life: int) -> None:
        """A newer record of the same life has replaced them; one of a later life has taken them over."""
        self._counters.pop((origin, life), None)

    def take_status(self, origin: NodeId, stream: Stream, dot: Dot, stamp: int, status: bytes) -> None:
        """The status that a record says, alone (b"": none) or beside counters, in place of that life's before it."""
        self._statuses.setdefault(origin, {})[stream, dot[0]] = stamp, dot[1], status

    def drop_status(self, origin: NodeId, stream: Stream, life: int) -> None:
        """A newer record of that stream has replaced one."""
        said = self._statuses.get(origin)
        if said is not None and said.pop((stream, life), None) is not None and not said:
            del self._statuses[origin]

    def take_events(self, origin: NodeId, dot: Dot, rows: list[EventRow], stamp_ms: int, *, is_own: bool) -> None:
        """The latest events of a node; those that were not known are news, unless the node is this one.

        Args:
            origin: Whose.
            dot: Of the batch; an older one than the one held is ignored.
            rows: As read, in order.
            stamp_ms: Of the batch: nothing happened later than it was said.
            is_own: This node said them.
        """
        held = self._events.get(origin)
        if held is not None and held[0] >= dot:
            return
        shown = tuple(msgspec.structs.replace(row, at_ms=min(row.at_ms, stamp_ms)) for row in rows)
        known = set() if held is None else {row.key for row in held[1]}
        self._events[origin] = (dot, shown)
        news = tuple(row for row in shown if row.key not in known)
        if news and not is_own:
            self._learned.append(EventsLearned(origin, news))

    @property
    def has_learned(self) -> bool:
        """Whether `take_learned` has something."""
        return bool(self._learned)

    def take_learned(self) -> list[EventsLearned]:
        """Others' events that have become known since the last call."""
        learned, self._learned = self._learned, []
        return learned

    def events(self) -> dict[NodeId, tuple[EventRow, ...]]:
        """The latest events of each node that has said any, by node."""
        return {origin: self._events[origin][1] for origin in sorted(self._events)}

    def forget(self, origin: NodeId) -> None:
        """An origin was shut out."""
        self._statuses.pop(origin, None)
        self._events.pop(origin, None)
        for slot in [slot for slot in self._counters if slot[0] == origin]:
            del self._counters[slot]

    def counter_parts(self, names: Collection[str] = ()) -> Iterator[dict[str, dict[NodeId, int]]]:
        """Counter to node to value, lives of one node added up, a few at a time; these names are told in any case.

        A part is longer than `COUNTS_A_PART` where one counter of all nodes is; empty ones are work that made none.
        """
        wanted = dict.fromkeys(names)
        slots = sorted(self._counters)
        for at in range(0, len(slots), _LIVES_AT_ONCE):
            for slot in slots[at : at + _LIVES_AT_ONCE]:
                wanted.update(dict.fromkeys(self._counters.get(slot, ())))
            yield {}
        part: dict[str, dict[NodeId, int]] = {}
        counts = looks = 0
        for name in sorted(wanted):
            by = part[name] = {}
            for slot in slots:
                value = self._counters.get(slot, _NONE).get(name)
                if value is not None:
                    by[slot[0]] = by.get(slot[0], 0) + value
            counts, looks = counts + 1 + len(by), looks + len(slots)
            if counts >= COUNTS_A_PART or looks >= LOOKS_A_PART:
                yield part
                part, counts, looks = {}, 0, 0
        yield part

    def status(self, node: NodeId) -> bytes | None:
        """What a node said last of itself: in its latest life, by the record's stamp; None where it took that back."""
        said = self._statuses.get(node)
        if not said:
            return None
        latest = max(said, key=lambda slot: (slot[1], said[slot][:2], slot[0]))
        return said[latest][2] or None
