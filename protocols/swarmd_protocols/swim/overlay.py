"""Partial views, for swarms too large for everybody to know everybody (HyParView).

Above `full_view_max` members a node keeps a few **neighbours** (they are the table's reachable members: probed, told
news, offered to the sub-protocols) and the signed records of some others, its **passive view**, to choose new
neighbours from. Nothing that a node keeps or says then grows with the swarm.

    neighbour wanted   neighbor(ask) to somebody of the passive view ─▶ neighbor(accept | reject)
    newcomer           neighbor(please) ─▶ neighbor(accept), another neighbour gets disconnect;
                       forward_join ─▶ ... ─▶ neighbor(ask) to it
    every 30 s         shuffle ◀─▶ shuffle with a neighbour: three records each way
    neighbour silent   found by its neighbours' own probes; another one is asked as soon as it is suspected

Rules that this file keeps:

- Being neighbours is mutual: whoever is pinged by somebody who is no neighbour says so (`DISCONNECT`).
- Only who has answered in a sealed frame becomes a neighbour; only records signed by their subject are kept.
- One key is one neighbour at most. One neighbour fills at most a third of the passive view. A full view makes room for
  strangers at a bounded rate.
- Former neighbours that were lost are tried for ever (a few of them): that heals partitions.

Source:
    Leitao, Pereira, Rodrigues, "HyParView" (DSN 2007).
"""

from typing import TYPE_CHECKING

from swarmd_protocols.channel.codec import encode
from swarmd_protocols.effects import Persist
from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.members import Member
from swarmd_protocols.swim.messages import (
    DISCONNECT,
    NEIGHBOR_ACCEPT,
    NEIGHBOR_ASK,
    NEIGHBOR_JOIN,
    PARTIAL_VIEW,
    Record,
    Shuffle,
)
from swarmd_protocols.swim.neighbor_news import NeighborNews
from swarmd_protocols.swim.neighbors import Neighbors
from swarmd_protocols.swim.passive import PassiveView

if TYPE_CHECKING:
    from swarmd_protocols.swim.membership import Membership

_S = 1_000_000_000
_JOURNAL = b"swim/partial"
"""Size of the swarm; there while the view is partial."""
_TICK_NS = 500_000_000
"""How often a partial view is looked after, nanoseconds; half as often while nothing is missing."""
_ROOM = 2
"""Neighbours held beyond those sought, so that somebody who asks is seldom refused."""
_TRANSIENTS_MAX, _TRANSIENT_NS = 64, 10 * _S
"""Transient peers held, and for how long, nanoseconds: longer than a question and its answer take."""
_LOST_MAX = 32
"""Lost neighbours tried for ever: a partition heals when one of them answers."""
_TOLD_NS = 60 * _S
"""Who said so long ago, nanoseconds, that its view is partial, does not count any more."""
_TELLERS_WANTED, _TELLERS_MAX = 6, 64
"""Members that make a full view partial by their word (fewer where fewer are heard), and those remembered."""
_TELL_GAP_NS, _TELL_LATER_NS = 200_000_000, 20_000_000
"""One peer is told at most so often that there is no full view here, and so long after this node's record."""
_ASK_ROUND_NS = 2 * _S
"""Shortest time between two looks for others because of what one member said, nanoseconds."""
_WIDEN_BELOW = 0.75
"""A view becomes full again below this share of `full_view_max`: far enough for estimates that are 10 % off."""


class Overlay:
    """Decides who this node's neighbours are, and whether it has any or knows everybody."""

    def __init__(self, core: Core, membership: "Membership") -> None:
        self.core = core
        self.membership = membership
        self.shelf = PassiveView(core, self)
        self.news = NeighborNews(core, self)
        self.neighbors = Neighbors(core, self)
        self.tellers: dict[bytes, int] = {}
        """Members that said that their view is partial, and when."""
        self._told = 0
        self._asked_round_ns = -(2**62)
        self._ticking = False
        self.narrowing = False

    # --- full or partial ---------------------------------------------------------------------------------------------

    @property
    def neighbours_max(self) -> int:
        """Neighbours held at most."""
        return self.core.config.active_view + _ROOM

    def size(self) -> int:
        """Members of the swarm, this node included: counted in a full view, estimated in a partial one."""
        known = len(self.core.table.reachable) + 1
        if not self.core.table.partial:
            return known
        return max(known, self.news.sketch.estimate() or max(self._told, self.news.sketch.running()))

    def grown(self) -> None:
        """One more member is reachable: are they too many for a full view?"""
        core, table = self.core, self.core.table
        most = self.neighbours_max + 1 if table.partial else core.config.full_view_max
        if len(table.reachable) >= most and not self.narrowing:
            # Not at once: whoever called is not done with the member.
            self.narrowing = True
            core.scheduler.at(core.now_ns, self.neighbors.part_with_surplus if table.partial else self._narrow_if_large)

    def _narrow_if_large(self, _: object) -> None:
        self.narrowing = False
        if not self.core.table.partial and len(self.core.table.reachable) >= self.core.config.full_view_max:
            self._narrow(len(self.core.table.reachable) + 1)

    def _narrow(self, size: int) -> None:
        """Turn the full view into a partial one."""
        core, table = self.core, self.core.table
        if table.partial:
            return
        table.partial = True
        core.counters["views_narrowed"] += 1
        core.port.emit(Persist(_JOURNAL, min(size, 2**32).to_bytes(5, "big")))
        self._told = size
        self.tellers.clear()
        self.news.sketch.clear()
        self.news.sketch.begin(0, core.now_ns)
        self.shelf.shuffled_ns = self.neighbors.renewed_ns = self.news.neighbors_changed_ns = core.now_ns
        self.membership.view_changed()
        others = [member for member in table.reachable if not member.overlay.holds_me]
        core.rng.shuffle(others)
        ordered = [member for member in table.reachable if member.overlay.holds_me] + others
        told = 0
        for member in ordered[core.config.active_view :]:
            self.shelf.shelve(member, core.own.node)
            if member.overlay.holds_me or told < _TELLERS_WANTED:
                told += 1
                self.neighbors.say(member, DISCONNECT)
            self.membership.forget(member)
        self._forget_lost()
        core.queue.keep(core.travels)
        if len(table.reachable) <= core.config.active_view // 2 and not any(
            m.overlay.holds_me for m in table.reachable
        ):
            # Who has met but a few has no view to begin with: it is to be helped in.
            for member in list(table.reachable):
                self.neighbors.demote(member)
            self.neighbors.fill()
        for member in list(table.reachable):
            self.neighbors.say(member, NEIGHBOR_ACCEPT if member.overlay.holds_me else NEIGHBOR_ASK)
        core.changed()
        core.port.peers_changed()
        if not self._ticking:
            self._ticking = True
            core.scheduler.at(core.now_ns + _TICK_NS, self._tick)

    def begin_partial(self, size: int, records: list[Record]) -> None:
        """The node's earlier life ended with a partial view: go on from its records."""
        self._narrow(min(2**32, max(size, self.core.config.full_view_max + 1)))
        for record in records[-self.core.config.passive_view :]:
            self.shelf.learn(record, self.core.own.node)
        self.neighbors.fill()

    def _widen(self) -> None:
        """The swarm has become small: know everybody again."""
        core, table = self.core, self.core.table
        table.partial = False
        core.counters["views_widened"] += 1
        core.port.emit(Persist(_JOURNAL, None))
        records = [known.record for known in self.shelf.passive.values()]
        records += [Record(member.certificate, *member.record) for member in table.transients.values()]
        for member in list(table.transients.values()):
            self.membership.forget(member)
        self.shelf.passive.clear()
        self.neighbors.asks.clear()
        self.shelf.credits.clear()
        self.tellers.clear()
        for member in table.reachable:
            member.overlay.holds_me = True
        self.membership.view_changed()
        for record in records:
            # Held for gone until heard: they are pinged, and the digests bring who is there.
            self.membership.restore(record)
        core.changed()
        core.port.peers_changed()

    def be_told(self, member: Member, size: int) -> None:
        """A member says that its view is partial: believed when most members that this node hears say so."""
        core = self.core
        if size < core.config.full_view_max * _WIDEN_BELOW:
            return  # They will soon know everybody themselves.
        self.tellers[member.node] = core.now_ns
        if len(self.tellers) > _TELLERS_MAX:
            del self.tellers[next(iter(self.tellers))]
        since_ns = core.now_ns - _TOLD_NS
        recent = sum(1 for told_ns in self.tellers.values() if told_ns > since_ns)
        recent += sum(
            1 for m in core.table.reachable if m.overlay.holds_me and self.tellers.get(m.node, since_ns) <= since_ns
        )
        # Whoever is known by hearsay alone says neither yes nor no.
        heard = sum(1 for other in core.table.reachable if other.link.heard_ns >= 0 and other.link.heard_ns > since_ns)
        if recent >= min(_TELLERS_WANTED, heard // 2 + 1):
            self._narrow(size)
        elif core.now_ns - self._asked_round_ns >= _ASK_ROUND_NS:
            # What one says is no proof, but a reason to look: whose view is partial says so when it is pinged.
            self._asked_round_ns = core.now_ns
            for other in core.table.sample(core.rng, 2 * _TELLERS_WANTED, member):
                self.membership.prober.ping_once(other)
            # And whom it knows itself, that may be a swarm of which nobody here has heard yet.
            core.port.push(member, [encode(Shuffle(True, ()))])

    # --- neighbours --------------------------------------------------------------------------------------------------

    def tell(self, member: Member) -> None:
        """Somebody greets: say that there is no full view to be had here.

        A little later, since it must have this node's record to read that; or with the answer to its first question.
        """
        core = self.core
        strange = core.table.partial and not member.overlay.active and member.node not in self.neighbors.asks
        if strange and core.now_ns - member.overlay.disconnected_ns >= _TELL_GAP_NS:
            member.overlay.disconnected_ns = core.now_ns
            core.scheduler.at(core.now_ns + _TELL_LATER_NS, self._tell_now, (member, core.now_ns))

    def _tell_now(self, told: tuple[Member, int]) -> None:
        member, since_ns = told
        if (
            member.overlay.disconnected_ns == since_ns
            and self._is_transient(member)
            and member.node not in self.neighbors.asks
        ):
            self.neighbors.say(member, PARTIAL_VIEW)

    def partial_view_rider(self, member: Member) -> list[bytes]:
        """The same, riding in an answer."""
        if not self.core.table.partial or member.overlay.active:
            return []
        member.overlay.disconnected_ns = self.core.now_ns
        return [self.neighbors.neighbor(PARTIAL_VIEW)]

    def _is_transient(self, member: Member) -> bool:
        return self.core.table.partial and self.core.table.transients.get(member.node) is member

    def on_tell(self, member: Member) -> None:
        """Somebody who was greeted has a partial view too: it may be what leads out of a lonely corner."""
        core = self.core
        if not self._is_transient(member):
            return
        self.shelf.shelve(member, member.node)
        if self.neighbors.healthy() < core.config.active_view:
            self.neighbors.fill()
        elif core.now_ns - self._asked_round_ns >= _ASK_ROUND_NS:
            # Its part of the overlay and this one may have grown apart, or never have met.
            self._asked_round_ns = core.now_ns
            self.neighbors.ask(member.node, NEIGHBOR_JOIN)

    # --- looking for neighbours --------------------------------------------------------------------------------------

    def _tick(self, _: object) -> None:
        core, table = self.core, self.core.table
        if not table.partial or core.own.left:
            self._ticking = False
            return
        quiet = not self.neighbors.asks and self.neighbors.healthy() >= core.config.active_view
        core.scheduler.at(core.now_ns + (2 * _TICK_NS if quiet else _TICK_NS), self._tick)
        self.news.sketch.tick(core.now_ns)
        size = self.news.sketch.estimate()
        if self.news.sketch.settled and size is not None and size < core.config.full_view_max * _WIDEN_BELOW:
            self._widen()
            return
        self.neighbors.ask_again()
        self.neighbors.fill()
        self.neighbors.part_with_surplus()
        self._forget_lost()
        self.trim_transients()
        self.shelf.shuffle()

    # --- the passive view --------------------------------------------------------------------------------------------

    # --- bounds ------------------------------------------------------------------------------------------------------

    def meet(self, member: Member) -> None:
        """Somebody new is met: a transient peer, until both want to be neighbours."""
        member.overlay.met_ns = self.core.now_ns
        self.core.table.set_active(member, False)
        self.trim_transients(member)

    def trim_transients(self, spare: Member | None = None) -> None:
        """Forget transient peers that are too many, or were met too long ago."""
        transients, long_ago_ns = self.core.table.transients, self.core.now_ns - _TRANSIENT_NS
        too_many = len(transients) - _TRANSIENTS_MAX
        for at, member in enumerate(list(transients.values())):
            if at >= too_many and member.overlay.met_ns > long_ago_ns:
                break
            if member is not spare and member.node not in self.neighbors.asks:
                if member.link.heard_ns >= 0 and member.node not in self.shelf.passive:
                    self.shelf.shelve(member, member.node)
                self.membership.forget(member)

    def _forget_lost(self) -> None:
        lost = self.core.table.lost
        if len(lost) > _LOST_MAX:
            for member in sorted(lost.values(), key=lambda gone: (gone.since_ns, gone.node))[: len(lost) - _LOST_MAX]:
                self.membership.forget(member)

    def on_trust(self) -> None:
        """Forget whose certificate no longer holds."""
        trust = self.core.trust
        for node in [node for node, known in self.shelf.passive.items() if not trust.holds(known.record.certificate)]:
            del self.shelf.passive[node]

    # --- between neighbours ------------------------------------------------------------------------------------------
