"""Who takes part in the models that run here, remembered over restarts.

A node's turn, and how many verdicts a stage needs, hang on who takes part. After a restart what peers say of themselves
is asked for again, and before it comes a node would be the first of one: it would try at once what is not its turn,
with everybody else whose power came back, and take its own PASS for that of the fleet. So the places are kept, without
any verdict. A place that nobody has spoken of for an hour of a node's life is given up.
"""

from collections.abc import Callable, Collection, Iterable

import msgspec

from swarmd_protocols.effects import Persist
from swarmd_protocols.ids import NODE_ID_BYTES, NodeId
from swarmd_protocols.releases.reports import MAX_STATUSES_PER_NODE, ReportBook
from swarmd_protocols.subprotocol import SubEffect
from swarmd_protocols.trust.envelopes import DAMAGE

PLACE = b"releases/w/"
"""Journal keys of those that take part, a node's id after it: in which models."""
FORGET_NS = 3_600_000_000_000
"""Monotonic nanoseconds of one life after which a place that nobody has spoken of is given up: peers that are in reach
hand over every status within seconds."""
_MODELS = msgspec.msgpack.Decoder(tuple[str, ...])


class Roster:
    """See the module.

    Args:
        book: What nodes say of themselves; keeps the places.
        models: Those that run here; the places of others matter to nobody here.
        met: Certified nodes that this one has met, in this life or before.
    """

    def __init__(self, book: ReportBook, models: Collection[str], met: set[NodeId]) -> None:
        self._book = book
        self._met = met
        self._models = sorted(models)
        self._kept: dict[bytes, tuple[str, ...]] = {}
        """What the journal says, by node."""
        self._void: list[bytes] = []
        self._begun_ns = 0

    def restore(self, key: bytes, record: bytes, certified: Callable[[NodeId], object | None]) -> None:
        """Take a record of the journal in: the node has its places again, if its certificate holds."""
        node = NodeId(key.removeprefix(PLACE))
        try:
            models = set(_MODELS.decode(record)).intersection(self._models)
        except DAMAGE:
            models = set()
        if not models or len(node) != NODE_ID_BYTES or certified(node) is None:
            self._void.append(key)
            return
        self._kept[node] = tuple(sorted(models)[:MAX_STATUSES_PER_NODE])
        self._book.expect(node, self._kept[node])
        self._met.add(node)

    def start(self, now_ns: int) -> list[SubEffect]:
        """A life begins: what the journal holds for nothing is deleted."""
        self._begun_ns = now_ns
        void, self._void = self._void, []
        return [Persist(key, None) for key in void]

    def heard(self, node: NodeId) -> list[SubEffect]:
        """A node has spoken of itself: its places are written down, where they are news."""
        models = tuple(model for model in self._models if self._book.takes_part(node, model))
        if models == self._kept.get(node, ()):
            return []
        if not models:
            return self.gone([node])
        self._kept[node] = models
        return [Persist(PLACE + node, msgspec.msgpack.encode(models))]

    def gone(self, nodes: Iterable[bytes]) -> list[SubEffect]:
        """These are not certified any longer."""
        return [Persist(PLACE + node, None) for node in sorted(nodes) if self._kept.pop(node, None) is not None]

    def on_slow(self, now_ns: int) -> list[SubEffect]:
        """Give up, once in a life, the places that nobody has spoken of."""
        if now_ns - self._begun_ns < FORGET_NS or not self._book.expected:
            return []
        nodes = dict.fromkeys(node for node, _ in self._book.expected)
        self._book.expect_no_more()
        return [effect for node in nodes for effect in self.heard(node)]
