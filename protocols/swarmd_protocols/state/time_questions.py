"""Whom a node asks what time it is, and whose answer counts."""

import random
from collections.abc import Sequence

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.clock import Clock
from swarmd_protocols.state.crdt import messages
from swarmd_protocols.state.crdt.messages import ClockAsk, ClockTell
from swarmd_protocols.state.sent import Sent
from swarmd_protocols.subprotocol import Peer, Priority, Send, SubEffect


class TimeQuestions:
    """One question at a time to each peer."""

    def __init__(self, rng: random.Random, sent: Sent) -> None:
        """Nobody is known.

        Args:
            rng: Chooses among equals.
            sent: Counts what is sent.
        """
        self._rng = rng
        self._sent = sent
        self._near: list[NodeId] = []
        self._far: list[NodeId] = []
        """Those out of reach, the nearest first."""
        self.asked: dict[NodeId, int] = {}
        """Peers that have not said yet what time it is, and when each was asked."""

    def know_peers(self, peers: Sequence[Peer]) -> None:
        """Who can be reached, over others too; who cannot be any more answers nothing."""
        self._near = [peer.node for peer in peers if peer.reachable and not peer.far]
        self._far = [
            node for _, node in sorted((peer.cost, peer.node) for peer in peers if peer.reachable and peer.far)
        ]
        here = {*self._near, *self._far}
        self.asked = {peer: sent_ns for peer, sent_ns in self.asked.items() if peer in here}

    def ask(self, now_ns: int, clock: Clock) -> list[SubEffect]:
        """Ask one peer: one that has not answered yet, else the one that answered longest ago.

        Where those in reach are no more than it takes to confirm a clock, the nearest others are asked over them: of
        twice as many as it takes, most can say that a clock is wrong.
        """
        few = len(self._near) <= clock.voters_min
        peers = [*self._near, *self._far[: 2 * clock.voters_min - len(self._near) if few else 0]]
        if not peers:
            return []
        first = self._rng.randrange(len(peers))
        peer = min((*peers[first:], *peers[:first]), key=clock.heard_ns)
        self.asked[peer] = now_ns
        return self._sent.count("clock", [Send(peer, messages.encode(ClockAsk(now_ns)), False, Priority.SYNC)])

    def is_answer(self, sender: NodeId, told: ClockTell) -> bool:
        """Whether a peer was asked for this; what nobody asked for, or was answered already, is no vote."""
        if self.asked.get(sender) != told.sent_ns:
            return False
        del self.asked[sender]
        return True
