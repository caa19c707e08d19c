"""Whom a node asks what time it is, and whose answer counts."""

import random
from collections import Counter
from collections.abc import Callable, Sequence

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.clock import Clock
from swarmd_protocols.state.crdt import messages
from swarmd_protocols.state.crdt.messages import ClockAsk, ClockTell
from swarmd_protocols.state.sent import Sent
from swarmd_protocols.subprotocol import Peer, Priority, Send, SubEffect

_COST_MOST = 12 * 4
"""Whom a question may go to over others, in quarters of a transmission: the relay carries nothing over more than 12
hops, and each costs 4 at least."""
_COST_LONG = 20 * 4
"""A line whose farthest member is beyond this is long. Up to some twenty hops so many members have most of the line in
reach that their medians are alike."""
_FAR_GAP_NEW_NS, _FAR_GAP_NS, _FAR_GAP_SURE_NS = 2_000_000, 4_000_000, 1_000_000_000
"""After a question that goes over others near ones alone are asked, so long for each quarter of a transmission that its
way costs, nanoseconds: while a clock is new the first, then the second, times the square of the near ones, since each
of them is a voter and each shares the air: on a line nearly each question may be one of these, and where eight are near
(fifty that move) one in two seconds is and then one in four; once it is sure the third, one transmission in two
seconds, 60 B/s. What is asked early is cheap: clocks that are set late say again all that they have stamped."""

_CROWD = 8
"""More near ones than this slow them down in proportion, no more by the square."""
_SETTLING = 4
"""So many times as long once a clock is no more new, where fewer than three are near: it asks far ones most of the time
as it is."""
_SETTLING_LONG = 2
"""The same on a long line: a time has to come from the middle to each end."""
_SIDES_LATEST = 12
"""So many of those last asked are shared among the sides of a long line: as many as count while clocks settle."""
_SIDES_POWER = 3
"""They are shared by this power of the members on each side. By the first an edge between two parts that agree stays
near the middle, where both sides are nearly alike; by the sixth nothing is gained."""
_SETTLES_NS = 200_000_000
"""On a long line a clock is not sure so long after it was set, for each quarter of a transmission to the farthest
member: a time goes from hop to hop as questions do, about a hop each second, and both ends come to the middle."""
_NEAR_AGAIN_NS = 20_000_000_000
"""A near one is not asked again so soon while others are what it takes to be sure: it says what it said before."""


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
        self._in_reach: frozenset[NodeId] = frozenset()
        """The same, to look one up."""
        self._far: dict[NodeId, int] = {}
        """Those out of reach whom a question comes to, and what the way to each costs, quarters of a transmission."""
        self._side: dict[NodeId, bytes] = {}
        """With which near one the way to each member begins, be it beyond the reach of questions. Those to whom no way
        is known yet are on no side: while a long line forms they are most, and answer nothing."""
        self._members: Counter[bytes] = Counter()
        """How many are on each side."""
        self._cost_most = 0
        """What the way to the farthest member costs."""
        self._far_ns = 0
        """When one of them was last asked."""
        self._far_cost = 0
        """What that cost."""
        self.asked: dict[NodeId, int] = {}
        """Peers that have not said yet what time it is, and when each was asked."""

    def know_peers(self, peers: Sequence[Peer]) -> None:
        """Who can be reached, over others too; who cannot be any more answers nothing."""
        self._near = [peer.node for peer in peers if peer.reachable and not peer.far]
        self._far = {peer.node: peer.cost for peer in peers if peer.reachable and peer.far and peer.cost <= _COST_MOST}
        self._in_reach = frozenset(self._near)
        self._side = {peer.node: peer.over for peer in peers if peer.reachable and (peer.cost or not peer.far)}
        self._members = Counter(self._side.values())
        self._cost_most = max((peer.cost for peer in peers if peer.reachable), default=0)
        here = {*self._near, *self._far}
        self.asked = {peer: sent_ns for peer, sent_ns in self.asked.items() if peer in here}

    def ask(self, now_ns: int, clock: Clock) -> list[SubEffect]:
        """Ask one peer: one that was not asked yet, else the one whose turn was longest ago.

        Whoever does not answer waits for its turn as the others do, or one that keeps silent would take every question.

        In a mesh that is anybody, near or not. Medians of neighbourhoods leave a slope and an edge between them as they
        are, so that two parts of a line would each keep a time of their own; those of voters from everywhere are alike.

        Source:
            Gallagher, Wise: A theoretical analysis of the properties of median filters, 1981 (root signals).
        """
        self._tell_voters(clock)
        is_sure = clock.is_sure(now_ns)
        gap_ns = _FAR_GAP_SURE_NS if is_sure else self._far_gap_ns(clock, now_ns)

        def turn_ns(peer: NodeId) -> int:
            return max(clock.heard_ns(peer), self.asked.get(peer, -1))

        peers = self._near
        if clock.asks_far and clock.synced and not (is_sure or clock.has_few_near):
            peers = [peer for peer in peers if turn_ns(peer) < 0 or now_ns - turn_ns(peer) >= _NEAR_AGAIN_NS]
        if now_ns - self._far_ns >= gap_ns * self._far_cost:
            peers = [*peers, *self._far]
            if self._is_long(clock):
                peers = self._of_one_side(peers, turn_ns)
        if not peers:
            return []
        first = self._rng.randrange(len(peers))
        peer = min((*peers[first:], *peers[:first]), key=turn_ns)
        if peer in self._far:
            self._far_ns, self._far_cost = now_ns, self._far[peer]
        self.asked[peer] = now_ns
        return self._sent.count("clock", [Send(peer, messages.encode(ClockAsk(now_ns)), False, Priority.SYNC)])

    def _of_one_side(self, peers: list[NodeId], turn_ns: Callable[[NodeId], int]) -> list[NodeId]:
        """Those on that side of a long line which was asked least for the members there.

        They stand for all that lie behind them, whom no question comes to. Where both sides are asked alike, parts that
        are longer than a question's reach keep times of their own for good; so the time of the middle goes to the ends.
        """
        asked = sorted((peer for peer in self._side if turn_ns(peer) >= 0), key=turn_ns)
        latest = Counter(self._side[peer] for peer in asked[-_SIDES_LATEST:])
        sides = sorted({self._side[peer] for peer in peers if peer in self._side})
        least = max(sides, key=lambda side: self._members[side] ** _SIDES_POWER / (1 + latest[side]), default=None)
        return [peer for peer in peers if peer in self._side and self._side[peer] == least]

    def _far_gap_ns(self, clock: Clock, now_ns: int) -> int:
        """How long a clock that is not sure asks near ones alone, for each quarter of a transmission to a far one."""
        if clock.is_new(now_ns):
            each_ns = _FAR_GAP_NEW_NS
        else:
            settling = _SETTLING_LONG if self._is_long(clock) else _SETTLING
            each_ns = _FAR_GAP_NS * (settling if clock.has_few_near else 1)
        return each_ns * len(self._near) * min(len(self._near), _CROWD)

    def _tell_voters(self, clock: Clock) -> None:
        """Whom this clock can have answers of."""
        clock.asks_far, clock.voters = bool(self._far), len(self._near) + len(self._far)
        clock.near = self._in_reach
        clock.has_few_near = clock.asks_far and len(self._near) < clock.voters_min
        clock.settles_ns = self._cost_most * _SETTLES_NS if self._is_long(clock) else 0

    def _is_long(self, clock: Clock) -> bool:
        """Whether this node is on a line that has members far beyond the reach of its questions."""
        return clock.has_few_near and self._cost_most > _COST_LONG

    def is_answer(self, sender: NodeId, told: ClockTell) -> bool:
        """Whether a peer was asked for this; what nobody asked for, or was answered already, is no vote."""
        if self.asked.get(sender) != told.sent_ns:
            return False
        del self.asked[sender]
        return True
