"""Nothing but the clocks of a mesh: who is where, who asks whom, how long it takes; a minute of fifty in half a second.

Nodes lie on a square and hear others within 200 m, or on a line, where each hears two; they know the ways to all others
some seconds after they begin. Of all that a swarm does they ask for the time only; each hop takes some milliseconds,
and few questions are lost.
"""

import heapq
import math
import random
from collections.abc import Callable

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.clock import EPOCH_2020_NS, Clock, ClockConfig
from swarmd_protocols.state.crdt import messages
from swarmd_protocols.state.crdt.messages import ClockAsk, ClockTell
from swarmd_protocols.state.sent import Sent
from swarmd_protocols.state.time_questions import TimeQuestions
from swarmd_protocols.subprotocol import Peer, Send
from swarmd_protocols.swim.mesh.graph import KEY_BYTES

S, MS = 1_000_000_000, 1_000_000
RANGE_M, DEGREE, LOSS = 200.0, 6.0, 0.02
WRONG_S, BEGIN_S = 2.0, 5.0
HOPS_A_SECOND, HOPS_A_SECOND_LINE = 3.4, 15.0
"""How fast the ways come to be known: where nodes move, and on a line, where two hundred have formed after 13 s."""
_UTC_NS = 1_700_000_000 * S


class Field:
    """Some clocks that begin within five seconds, up to two seconds wrong."""

    def __init__(self, count: int, seed: int, *, is_line: bool = False) -> None:
        self.rng = random.Random(seed)
        self.hops_a_second = HOPS_A_SECOND_LINE if is_line else HOPS_A_SECOND
        self.nodes = [NodeId(bytes((index + 1,)) * 16) for index in range(count)]
        self.index = {node: index for index, node in enumerate(self.nodes)}
        self.hops = self._in_a_row() if is_line else self._scattered()
        self.over = [self._begins(index) for index in range(count)]
        self.clocks: dict[int, Clock] = {}
        self.questions: dict[int, TimeQuestions] = {}
        self.begun_ns = [int(self.rng.uniform(0, BEGIN_S) * S) for _ in self.nodes]
        self.liars: dict[int, Callable[[int], int]] = {}
        """Those that say another time than that of the wall, and by how much when, nanoseconds."""
        self.asked_hops = 0
        """Hops of all questions so far."""
        self._due: list[tuple[int, int, str, tuple[int, ...]]] = []
        self._count = 0
        for index, at_ns in enumerate(self.begun_ns):
            self._at(at_ns, "begin", index)

    def _scattered(self) -> list[list[int]]:
        """How many hops lie between any two; drawn until a way leads from each to each."""
        count = len(self.nodes)
        side_m = math.sqrt(count * math.pi / DEGREE) * RANGE_M
        while True:
            places = [(self.rng.uniform(0, side_m), self.rng.uniform(0, side_m)) for _ in self.nodes]
            near = [[one for one in range(count) if 0 < math.dist(here, places[one]) <= RANGE_M] for here in places]
            hops = [self._hops_from(index, near) for index in range(count)]
            if min(hops[0]) >= 0:
                return hops

    def _in_a_row(self) -> list[list[int]]:
        """Each hears the one before and the one after."""
        return [[abs(here - other) for other in range(len(self.nodes))] for here in range(len(self.nodes))]

    def _begins(self, index: int) -> list[bytes]:
        """With whom the way from one to each other begins."""
        near = [one for one, hops in enumerate(self.hops[index]) if hops == 1]
        over = [
            next((one for one in near if self.hops[one][other] < hops), index)
            for other, hops in enumerate(self.hops[index])
        ]
        return [self.nodes[one][:KEY_BYTES] for one in over]

    @staticmethod
    def _hops_from(index: int, near: list[list[int]]) -> list[int]:
        hops = [-1] * len(near)
        hops[index], todo = 0, [index]
        for here in todo:
            for other in near[here]:
                if hops[other] < 0:
                    hops[other] = hops[here] + 1
                    todo.append(other)
        return hops

    def run(self, until_s: int) -> None:
        """Let time pass."""
        while self._due and self._due[0][0] <= until_s * S:
            at_ns, _, what, of_what = heapq.heappop(self._due)
            getattr(self, f"_on_{what}")(at_ns, *of_what)

    def spread_ms(self, at_s: int) -> float:
        """Between the first and the last clock of those that do not lie."""
        times = [clock.physical_ns(at_s * S) for index, clock in self.clocks.items() if index not in self.liars]
        return (max(times) - min(times)) / MS

    def _at(self, at_ns: int, what: str, *of_what: int) -> None:
        self._count += 1
        heapq.heappush(self._due, (at_ns, self._count, what, of_what))

    def _on_begin(self, now_ns: int, index: int) -> None:
        self.clocks[index] = Clock(ClockConfig(), _UTC_NS + int(self.rng.uniform(-WRONG_S, WRONG_S) * S))
        self.questions[index] = TimeQuestions(random.Random(self.rng.random()), Sent())
        self._at(now_ns + S, "ask", index)

    def _on_ask(self, now_ns: int, index: int) -> None:
        known = 1 + (now_ns - self.begun_ns[index]) / S * self.hops_a_second
        peers = [
            Peer(self.nodes[other], "", b"", True, len(self.nodes), hops > 1, 4 * hops, self.over[index][other])
            for other, hops in enumerate(self.hops[index])
            if 0 < hops <= known and other in self.clocks
        ]
        self.questions[index].know_peers(peers)
        clock = self.clocks[index]
        for send in self.questions[index].ask(now_ns, clock):
            assert isinstance(send, Send)
            asked = messages.decode(send.payload)
            assert isinstance(asked, ClockAsk)
            other = self.index[send.to]
            self.asked_hops += self.hops[index][other]
            if self.rng.random() >= 2 * LOSS:
                self._at(now_ns + self._way_ns(index, other), "asked", other, index, asked.sent_ns)
        clock.slew(now_ns)
        self._at(now_ns + (10 if clock.is_sure(now_ns) else 1) * S, "ask", index)

    def _on_asked(self, now_ns: int, index: int, asker: int, sent_ns: int) -> None:
        told_ns = self.clocks[index].physical_ns(now_ns)
        if index in self.liars:
            told_ns = _UTC_NS - EPOCH_2020_NS + now_ns + self.liars[index](now_ns)
        self._at(now_ns + self._way_ns(index, asker), "told", asker, index, sent_ns, told_ns)

    def _on_told(self, now_ns: int, index: int, by: int, sent_ns: int, told_ns: int) -> None:
        if self.questions[index].is_answer(self.nodes[by], ClockTell(sent_ns, told_ns)):
            self.clocks[index].vote(self.nodes[by], sent_ns, told_ns, now_ns)

    def _way_ns(self, index: int, other: int) -> int:
        return sum(int((1 + self.rng.expovariate(1 / 3)) * MS) for _ in range(self.hops[index][other]))
