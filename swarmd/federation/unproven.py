"""Rows of nodes for whom nobody has a certificate any more: they leave the outbox.

A node that was enrolled anew under another key, or whose certificate a new root no longer stands behind, is set aside
in its swarm. What it said before waits in the outbox for a certificate that cannot come; a thousand such rows would
keep everything behind them from leaving. Where the swarm takes the node back, what it shows of it is said again.
"""

from collections.abc import Callable, Iterable

from swarmd.federation.outbox import Done, Outbox
from swarmd_protocols.federation.gate import EVERYBODY
from swarmd_protocols.ids import NodeId

WAIT_S = 60.0
"""Seconds for which a region asks for a certificate that is not here before rows leave: a swarm hears of one sooner."""
FORGET_S = 600.0
"""A node that was not asked for in this time is as if it never was."""
NODES_MAX = 256
"""That are asked for and not here, 40 kB; of more the one that was asked for longest ago is forgotten."""


class Unproven:
    """One gateway's.

    Args:
        outbox: What waits.
        is_here: Whether there is a certificate of a node, to be said.
    """

    def __init__(self, outbox: Outbox, is_here: Callable[[NodeId], bool]) -> None:
        self._outbox, self._is_here = outbox, is_here
        self._asked: dict[NodeId, tuple[float, float]] = {}
        """Node to when it was asked for first and last."""

    def asked(self, nodes: Iterable[NodeId], now_s: float) -> list[Done]:
        """The region lacks these nodes' certificates; returns the rows that left.

        Args:
            nodes: As the region names them.
            now_s: Monotonic clock.

        Raises:
            DaemonError: The outbox takes nothing.
        """
        gone: list[Done] = []
        for node in nodes:
            first_s, last_s = self._asked.pop(node, (now_s, now_s))
            if node == EVERYBODY or self._is_here(node):
                continue
            if now_s - last_s > FORGET_S:
                first_s = now_s
            if len(self._asked) >= NODES_MAX:
                del self._asked[next(iter(self._asked))]
            self._asked[node] = (first_s, now_s)
            if now_s - first_s >= WAIT_S:
                gone += self._outbox.take_back(node)
        return gone
