"""News that is pushed: to whom, when it shares datagrams, and what is said again because it was lost.

In a mesh who is pushed news says it to all that it hears, so to this node too: that is the only answer that a push has,
and it costs nothing. Who is silent is told once more. Without it a lost frame waits for a probe that carries the news,
or for a comparison: 2 % of all hops, 0.2 s each (Jubin and Tornow, "The DARPA packet radio network protocols", 1987:
passive acknowledgements).
"""

from collections.abc import Callable, Sequence

from swarmd_protocols.channel.bucket import TokenBucket
from swarmd_protocols.channel.budget import ByteBudget
from swarmd_protocols.channel.dissemination import Update
from swarmd_protocols.ids import copies
from swarmd_protocols.swim.core import DETAIL, EVENT, RECORD, Core
from swarmd_protocols.swim.losses import trip_ns
from swarmd_protocols.swim.members import Member

_S = 1_000_000_000
_MS = 1_000_000
_PUSH_ROOM = 1_150
"""Bytes of news in one pushed datagram, so that frame and overhead stay below 1,200."""
_FLUSH_GAP_NS = 20 * _MS
"""News that comes within this of the last push waits and shares datagrams, nanoseconds."""
_RECORDS_PUSHED = 4
"""So many new members at once are told to some; a crowd is not: comparisons bring it once, where pushes bring it six
times: where 100 start together each sends 73 KB of records, not 178. In a mesh each hop would wait for a comparison: a
line of 100 forms in 7.8 s without this rule there, in 9.5 s with it."""
_MANY = 32
"""In a swarm of so many at most `_RECORDS_PUSHED` are pushed in a second, however they come: where 100 start within two
seconds each sends six tenths of the records, and the last one is known everywhere up to a second later. In a mesh that
would be a second a hop: a grid of 100 forms in 6.9 s without it, in 9.9 s with it."""
_ECHO_NS, _ECHO_MAX_NS = 10 * _MS, _S
"""How long an echo takes at least and at most, nanoseconds; one and a half round trips between. A new member often
comes with others, so that its echo waits for the gap above too; an event seldom is, and 199 hops are long."""
_REPEATS_PER_S, _REPEATS_BURST, _REPEATED_MAX = 4, 16, 256
"""Pushes that are said again to one member, per second: while a swarm forms 2 % of 50 a second are lost and as many of
their echoes. Whoever never echoes takes no more than this, and nothing from others."""


def batched(parts: Sequence[bytes], room_bytes: int) -> list[list[bytes]]:
    """Messages in as few datagrams as their order allows."""
    batches: list[list[bytes]] = []
    room = 0
    for part in parts:
        if len(part) > room:
            batches.append([])
            room = room_bytes
        batches[-1].append(part)
        room -= len(part)
    return batches


class Pushes:
    """What the node that holds it pushes, within its budget.

    Args:
        core: Membership.
        budget: What news may spend.
        send: Sends messages to a member, in datagrams; returns their bytes.
    """

    def __init__(self, core: Core, budget: ByteBudget, send: Callable[[Member, list[bytes]], int]) -> None:
        self._core = core
        self._budget = budget
        self._send = send
        self._newcomers = TokenBucket(_RECORDS_PUSHED, _RECORDS_PUSHED)
        self._flushed_ns = -_S
        self._flush_due = False
        self._repeats: dict[bytes, TokenBucket] = {}

    def flush(self) -> None:
        """Push what is new to a few members; what comes within 20 ms of the last push waits and shares datagrams."""
        core = self._core
        if not core.queue.pressing or self._flush_due:
            return
        if core.now_ns - self._flushed_ns < _FLUSH_GAP_NS:
            self._flush_due = True
            core.scheduler.at(self._flushed_ns + _FLUSH_GAP_NS, self._flush_later)
            return
        self._flushed_ns = core.now_ns
        tokens = self._left()
        if tokens <= -self._budget.burst(len(core.table)):
            core.counters["pushes_over_budget"] += 1
            core.queue.take_urgent(-1)
            return  # It still rides in probes, and repair finds the rest.
        news = core.queue.take_urgent(DETAIL if tokens > 0 else EVENT)
        # New records are large and repair finds who missed one; everything else is small and cannot wait.
        records = [update for update in news if update.priority == RECORD]
        others = [update for update in news if update.priority != RECORD]
        if records and not core.view.weighs_links and self._is_crowd(len(records)):
            core.queue.settle(RECORD)
            records = []
        targets = self._targets()
        for member in targets:
            self._push(member, others)
        for member in targets[: core.config.record_fanout]:
            self._push(member, records)
        if core.view.weighs_links:
            self._await_echoes(targets, [update for update in others if update.priority == EVENT])
            few = core.config.record_fanout
            tellers = [member for member in targets if 0 < member.report.near <= few]
            self._await_echoes(tellers if len(targets) <= few else [], records)

    def _flush_later(self, _: object) -> None:
        self._flush_due = False
        self._flushed_ns = -_S
        self.flush()

    def _is_crowd(self, records: int) -> bool:
        """Whether so many new members come at once; in a large swarm also where they come one by one."""
        is_large = len(self._core.table) >= _MANY
        return records > _RECORDS_PUSHED or (is_large and not self._newcomers.take(self._core.now_ns, records))

    def _targets(self) -> list[Member]:
        """Whom news is pushed to. In a mesh whoever has just brought it is last: the others wait for it."""
        core = self._core
        targets = core.table.sample(core.rng, core.view.push_fanout())
        if core.view.weighs_links:
            targets.sort(key=lambda member: member.link.heard_ns == core.now_ns)
        return targets

    def _push(self, member: Member, news: list[Update]) -> None:
        for batch in batched([update.encoded for update in news], _PUSH_ROOM):
            self._budget.spend(self._send(member, batch) * copies(member.route), len(self._core.table))

    def _left(self) -> float:
        return self._budget.left(len(self._core.table), self._core.now_ns)

    # --- what nobody has said again ----------------------------------------------------------------------------------

    def _await_echoes(self, targets: list[Member], news: list[Update]) -> None:
        core = self._core
        for update in news if targets else ():
            core.echoes.begin(update.about)
        for member in targets if news else ():
            silent = [update for update in news if core.echoes.lacks(update.about, member.node)]
            if silent:
                echo_ns = min(max(_ECHO_NS, 3 * trip_ns(core, member) // 2), _ECHO_MAX_NS)
                gap_ns = _FLUSH_GAP_NS if news[0].priority == RECORD else 0
                core.scheduler.at(core.now_ns + gap_ns + echo_ns, self._push_again, (member, silent))

    def _push_again(self, awaited: tuple[Member, list[Update]]) -> None:
        """Once, within the budget and what is said again to one member."""
        core, (member, news) = self._core, awaited
        if member.where < 0 or core.own.left or self._left() <= 0 or not core.view.weighs_links:
            return
        silent = [update for update in news if core.echoes.lacks(update.about, member.node)]
        if silent and self._may_repeat(member):
            core.counters["pushes_again"] += 1
            self._push(member, silent)

    def _may_repeat(self, member: Member) -> bool:
        repeats = self._repeats.get(member.node)
        if repeats is None:
            if len(self._repeats) >= _REPEATED_MAX:
                del self._repeats[next(iter(self._repeats))]
            repeats = self._repeats[member.node] = TokenBucket(_REPEATS_PER_S, _REPEATS_BURST)
        return repeats.take(self._core.now_ns)
