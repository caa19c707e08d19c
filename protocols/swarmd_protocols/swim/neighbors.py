"""Who the neighbours of a node in a partial view are: asking, accepting, parting (HyParView's active view).

- Being neighbours is mutual: whoever is pinged by somebody who is no neighbour says so (`DISCONNECT`).
- Only who has answered in a sealed frame becomes a neighbour. One key is one neighbour at most.
- A full view makes room for strangers at a bounded rate.

Source:
    Leitao, Pereira, Rodrigues, "HyParView" (DSN 2007), sections 4.1 to 4.3.
"""

from swarmd_protocols.channel.codec import encode
from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.members import Member
from swarmd_protocols.swim.messages import (
    DISCONNECT,
    NEIGHBOR_ACCEPT,
    NEIGHBOR_ASK,
    NEIGHBOR_JOIN,
    NEIGHBOR_PLEASE,
    NEIGHBOR_REJECT,
    STATUS_ALIVE,
    ForwardJoin,
    Neighbor,
    Record,
)
from swarmd_protocols.swim.neighbor_news import NeighborNews
from swarmd_protocols.swim.passive import PassiveView
from swarmd_protocols.swim.prober import Prober
from swarmd_protocols.swim.seams import Judge, Roll

_S = 1_000_000_000
_ROOM = 2
"""Neighbours held beyond those sought, so that somebody who asks is seldom refused."""
_LOST_MAX = 32
"""Lost neighbours tried for ever: a partition heals when one of them answers."""
_TRANSIENTS_MAX, _TRANSIENT_NS = 64, 10 * _S
"""Transient peers held, and for how long, nanoseconds: longer than a question and its answer take."""
_ASK_NS = 1 * _S
"""An answer is awaited for so long, nanoseconds: some round trips over bad links."""
_ASKS_TRIES = 2
"""A question is put so many times: at 30 % loss one round trip in two fails."""
_ASKS_MAX = 8
"""Questions open at once: as many as neighbours are held."""
_ASK_AGAIN_NS = 5 * _S
"""Nobody is asked again sooner than this, nanoseconds: who had no room seldom has it at once."""
_HOPS, _HOPS_KEPT = 3, 1
"""Length of a newcomer's walks, and the hop that keeps its record (the paper's ARWL and PRWL, for six neighbours)."""
_WALKS = 2
"""Walks for a newcomer: with its first contact that makes three neighbours in a second."""
_RENEW_NS = 180 * _S
"""How often a neighbour is replaced although nothing is wrong, nanoseconds: overlays that grew apart mix again."""
_EVICTIONS_BURST = 4.0
"""Neighbours given up for strangers at once; one more a second. A mass start needs no more, and an attacker gets no
faster into the views of others."""
_BEHIND_NS = 10_000_000
"""A question follows this node's record after so long, nanoseconds: longer than datagrams overtake each other."""


class _Ask:
    """A question to somebody to be a neighbour."""

    __slots__ = ("due_ns", "kind", "tries")

    def __init__(self, due_ns: int, kind: int) -> None:
        self.due_ns = due_ns
        self.kind = kind
        self.tries = 1


class Neighbors:
    """Seeks, takes and gives up neighbours."""

    def __init__(
        self, core: Core, roll: Roll, judge: Judge, prober: Prober, shelf: PassiveView, news: NeighborNews
    ) -> None:
        self.core = core
        self._roll = roll
        self._judge = judge
        self._prober = prober
        self._shelf = shelf
        self._news = news
        self.asks: dict[bytes, _Ask] = {}
        """Whom this node asked to be a neighbour, by node."""
        self.evictions = _EVICTIONS_BURST
        self.evictions_ns = 0
        self.renewed_ns = 0

    @property
    def most(self) -> int:
        """Neighbours held at most."""
        return self.core.config.active_view + _ROOM

    def neighbor(self, kind: int) -> bytes:
        """The message, with the size of the swarm."""
        return encode(Neighbor(kind, min(2**32, self.core.view.size())))

    def say(self, member: Member, kind: int) -> None:
        """Tell one peer."""
        self.core.port.push(member, [self.neighbor(kind)])

    def on_neighbor(self, member: Member, message: Neighbor) -> None:
        """A question, an answer or a good-bye about being neighbours."""
        core = self.core
        if message.kind <= NEIGHBOR_JOIN:
            self._on_ask(member, message.kind)
        elif message.kind == NEIGHBOR_ACCEPT:
            self._on_yes(member)
        elif message.kind in (NEIGHBOR_REJECT, DISCONNECT):
            self.asks.pop(member.node, None)
            if member.where >= 0:
                self.demote(member)
                if member.node in self._shelf.passive:
                    self._shelf.passive[member.node].asked_ns = core.now_ns
            self.fill()

    def _on_ask(self, member: Member, kind: int) -> None:
        member.overlay.disconnected_ns = self.core.now_ns
        if member.where >= 0:
            self.say(member, NEIGHBOR_ACCEPT)
        elif member.overlay.active:
            self._judge.remind(member)  # Lost: it must refute first, and is a neighbour then.
        elif not self._takes(member, kind != NEIGHBOR_ASK):
            self.say(member, NEIGHBOR_REJECT)
        else:
            self.say(member, NEIGHBOR_ACCEPT)
        if kind == NEIGHBOR_JOIN:
            self._shelf.send_records(member, answer=False)
            self._send_walks(member)

    def _takes(self, member: Member, urgent: bool) -> bool:
        core = self.core
        if member.status != STATUS_ALIVE:
            return False
        full = len(core.table.reachable) >= self.most
        if full and not (urgent and self._may_evict()):
            return False
        self._promote(member)
        if full:
            self._part_with_one(member)
        return True

    def _may_evict(self) -> bool:
        core = self.core
        gained = (core.now_ns - self.evictions_ns) / _S
        self.evictions = min(_EVICTIONS_BURST, self.evictions + gained)
        self.evictions_ns = core.now_ns
        if self.evictions < 1:
            core.counters["ties_over_rate"] += 1
            return False
        self.evictions -= 1
        return True

    def part_with_surplus(self) -> None:
        """Several that were lost may come back at once."""
        while len(self.core.table.reachable) > self.most:
            self._part_with_one()

    def _part_with_one(self, without: Member | None = None) -> None:
        """Not with somebody in doubt, as long as there are others: that would leave its death unsaid."""
        table = self.core.table
        pool = [member for member in table.reachable if member is not without and member.link.probe is None]
        for member in self.core.rng.sample(pool, 1) if pool else table.sample(self.core.rng, 1, without):
            self.say(member, DISCONNECT)
            self.demote(member)

    def _on_yes(self, member: Member) -> None:
        asked = self.asks.pop(member.node, None)
        if member.where >= 0:
            return
        if member.overlay.active:
            self._judge.remind(member)
        elif asked is None or member.status != STATUS_ALIVE or len(self.core.table.reachable) >= self.most:
            self.say(member, DISCONNECT)
        else:
            self._promote(member)
            if self.healthy() > self.core.config.active_view:
                self._part_with_one(member)

    def _promote(self, member: Member) -> None:
        """Somebody who answered in a sealed frame becomes a neighbour."""
        core = self.core
        assert core.table.by_node[member.node] is member
        self._shelf.passive.pop(member.node, None)
        self.asks.pop(member.node, None)
        core.table.set_active(member, True)
        self._news.neighbors_changed_ns = core.now_ns
        member.overlay.addresses_told_ns = -(2**62)
        member.overlay.estimate_told_ns = -(2**62)
        self._prober.welcome(member)
        self._judge.evaluate(member, "a neighbour", joined=True, fresh=True)

    def demote(self, member: Member) -> None:
        """A neighbour no more; it goes on living in the passive view."""
        core = self.core
        if member.link.probe is not None:
            member.link.probe.over = True
            member.link.probe = None
        self._judge.clear_doubts(member)
        member.overlay.met_ns = core.now_ns
        core.table.set_active(member, False)
        self._news.neighbors_changed_ns = core.now_ns
        member.overlay.neighbor_addresses = ()
        self._shelf.shelve(member, member.node)
        core.port.peers_changed()
        self.trim_transients()

    def disconnect_rider(self, member: Member) -> list[bytes]:
        """What an ack says to somebody who is no neighbour: should it take itself for one, it shall know better."""
        if member.overlay.active or member.node in self.asks:
            return []
        return [self.neighbor(DISCONNECT)]

    def healthy(self) -> int:
        """Neighbours that are not suspected."""
        return sum(1 for member in self.core.table.reachable if not member.suspected)

    def fill(self) -> None:
        """Ask some of the passive view, as many as neighbours are missing; one now and then even if none is."""
        core = self.core
        healthy = self.healthy()
        cut_off = healthy == 0 or core.isolated()
        missing = (core.config.active_view if cut_off else core.config.active_view - healthy) - len(self.asks)
        kind = NEIGHBOR_JOIN if cut_off and not self.asks else NEIGHBOR_PLEASE
        if missing <= 0 and core.now_ns - self.renewed_ns >= _RENEW_NS and not self.asks:
            missing, kind = 1, NEIGHBOR_ASK
        if missing <= 0:
            return
        self.renewed_ns = core.now_ns
        ready = [node for node, known in self._shelf.passive.items() if core.now_ns - known.asked_ns >= _ASK_AGAIN_NS]
        if len(ready) > missing:
            ready = core.rng.sample(ready, missing)
        for node in ready:
            self.ask(node, kind)
            kind = min(kind, NEIGHBOR_PLEASE)  # One is enough to bring a newcomer in.

    def ask(self, node: bytes, kind: int) -> None:
        """Ask somebody of the passive view to be a neighbour."""
        core = self.core
        known = self._shelf.passive.get(node)
        if known is None or len(self.asks) >= _ASKS_MAX:
            return
        known.asked_ns = core.now_ns
        member = core.table.by_node.get(node) or self._roll.on_record(known.record, None)
        if member is None or member.overlay.active:
            self._shelf.passive.pop(node, None)
            return
        self.asks[node] = _Ask(core.now_ns + _ASK_NS, kind)
        self._put(member, kind)

    def _put(self, member: Member, kind: int) -> None:
        """Show who asks, and ask; somebody heard before most likely still knows this node."""
        if member.link.heard_ns < 0:
            self.core.port.hello(member.address, False)
            self.on_hello_from(member)
        else:
            self.say(member, kind)

    def on_hello_from(self, member: Member) -> None:
        """Somebody who is asked has been shown this node's record: the question goes right behind it."""
        ask = self.asks.get(member.node)
        if ask is not None:
            self.core.scheduler.at(self.core.now_ns + _BEHIND_NS, self._say_again, (member, ask))

    def _say_again(self, asked: tuple[Member, _Ask]) -> None:
        member, ask = asked
        if self.asks.get(member.node) is ask and self.core.table.by_node.get(member.node) is member:
            self.say(member, ask.kind)

    def ask_again(self) -> None:
        """Repeat questions that are not answered, and give up those that were repeated."""
        core = self.core
        for node, ask in list(self.asks.items()):
            if core.now_ns < ask.due_ns:
                continue
            member = core.table.by_node.get(node)
            if member is None or member.overlay.active:
                del self.asks[node]
            elif ask.tries < _ASKS_TRIES:
                ask.tries += 1
                ask.due_ns = core.now_ns + _ASK_NS
                self._put(member, ask.kind)
            else:
                self._give_up(member)

    def _give_up(self, member: Member) -> None:
        """No answer: forget it, unless nobody answers, for then the fault is more likely this node's own."""
        core = self.core
        self.asks.pop(member.node, None)
        if any(core.now_ns - other.link.heard_ns < 2 * _S for other in core.table.reachable):
            self._shelf.passive.pop(member.node, None)
            self._roll.forget(member)

    def refused(self, member: Member) -> None:
        """No process listens where somebody was asked."""
        if not member.overlay.active and member.node in self.asks:
            del self.asks[member.node]
            self._shelf.passive.pop(member.node, None)
            self._roll.forget(member)
            self.fill()

    def trim_transients(self, spare: Member | None = None) -> None:
        """Forget transient peers that are too many, or were met too long ago."""
        transients, long_ago_ns = self.core.table.transients, self.core.now_ns - _TRANSIENT_NS
        too_many = len(transients) - _TRANSIENTS_MAX
        for at, member in enumerate(list(transients.values())):
            if at >= too_many and member.overlay.met_ns > long_ago_ns:
                break
            if member is not spare and member.node not in self.asks:
                if member.link.heard_ns >= 0 and member.node not in self._shelf.passive:
                    self._shelf.shelve(member, member.node)
                self._roll.forget(member)

    def forget_lost(self) -> None:
        """Keep a few of those who are gone."""
        lost = self.core.table.lost
        if len(lost) > _LOST_MAX:
            for member in sorted(lost.values(), key=lambda gone: (gone.since_ns, gone.node))[: len(lost) - _LOST_MAX]:
                self._roll.forget(member)

    def _send_walks(self, member: Member) -> None:
        """A newcomer: let some others hear of it, each at the end of a random walk."""
        core = self.core
        if not self._shelf.credit(member.node, 4.0):
            return
        walk = encode(ForwardJoin(_HOPS, Record(member.certificate, *member.record)))
        for neighbour in core.table.sample(core.rng, _WALKS, member):
            core.port.push(neighbour, [walk])

    def on_forward_join(self, member: Member, message: ForwardJoin) -> None:
        """A newcomer's record on its way."""
        core = self.core
        if not self._shelf.credit(member.node, 1.0):
            return
        onward = [other for other in core.table.sample(core.rng, 2, member) if other.record[0] != message.record.body]
        if message.hops > 0 and onward:
            core.port.push(onward[0], [encode(ForwardJoin(message.hops - 1, message.record))])
            if message.hops == _HOPS_KEPT:
                self._shelf.learn(message.record, member.node)
            return
        node = self._shelf.learn(message.record, member.node)
        if node is not None and len(core.table.reachable) < self.most:
            self.ask(node, NEIGHBOR_ASK)
