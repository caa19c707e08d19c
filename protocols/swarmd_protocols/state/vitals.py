"""Counters and status records: the latest of each life of each node."""

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.batch import Dot


class Vitals:
    """What nodes say of themselves."""

    def __init__(self) -> None:
        """Empty."""
        self._counters: dict[tuple[NodeId, int], dict[str, int]] = {}
        self._statuses: dict[NodeId, tuple[Dot, bytes]] = {}

    def take_counters(self, origin: NodeId, life: int, counters: dict[str, int]) -> None:
        """The counters of one life of a node."""
        self._counters[origin, life] = counters

    def drop_counters(self, origin: NodeId, life: int) -> None:
        """A newer record of the same life has replaced them; one of a later life has taken them over."""
        self._counters.pop((origin, life), None)

    def take_status(self, origin: NodeId, dot: Dot, status: bytes) -> None:
        """A status record; an older one than the one held is ignored."""
        held = self._statuses.get(origin)
        if held is None or held[0] < dot:
            self._statuses[origin] = (dot, status)

    def forget(self, origin: NodeId) -> None:
        """An origin was shut out."""
        self._statuses.pop(origin, None)
        for slot in [slot for slot in self._counters if slot[0] == origin]:
            del self._counters[slot]

    def counters(self) -> dict[str, dict[NodeId, int]]:
        """Counter to node to value, lives of one node added up."""
        out: dict[str, dict[NodeId, int]] = {}
        for origin, life in sorted(self._counters):
            for name, value in self._counters[origin, life].items():
                by = out.setdefault(name, {})
                by[origin] = by.get(origin, 0) + value
        return {name: out[name] for name in sorted(out)}

    def status(self, node: NodeId) -> bytes | None:
        """A node's latest status record."""
        held = self._statuses.get(node)
        return None if held is None else held[1]
