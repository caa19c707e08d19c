"""Partial views, for swarms too large for everybody to know everybody (HyParView): when a view is one.

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

from swarmd_protocols.effects import Persist
from swarmd_protocols.swim.accusations import Accusations
from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.full_view import TELLERS_WANTED, FullView
from swarmd_protocols.swim.links import LinkReports
from swarmd_protocols.swim.members import REACHABLE
from swarmd_protocols.swim.mesh.mesh_view import MeshView
from swarmd_protocols.swim.mesh.near import BEACON_NS, Near
from swarmd_protocols.swim.mesh.reports import NearReports
from swarmd_protocols.swim.messages import DISCONNECT, NEIGHBOR_ACCEPT, NEIGHBOR_ASK, Record
from swarmd_protocols.swim.metadata import Metadata
from swarmd_protocols.swim.neighbor_news import NeighborNews
from swarmd_protocols.swim.neighbors import Neighbors
from swarmd_protocols.swim.partial_view import PartialView
from swarmd_protocols.swim.passive import PassiveView
from swarmd_protocols.swim.prober import Prober
from swarmd_protocols.swim.seams import HearsView, Judge, Roll
from swarmd_protocols.swim.view import View

_JOURNAL = b"swim/partial"
"""Size of the swarm; there while the view is partial."""
_SHOWN_EVERY = 10
"""Of so many seconds a node casts a beacon in one where `mesh` is `on`, while its view is no mesh: 8 bytes a second.
Where it is `auto`, after so many without one of a member's, in one of so many, at random: one speaks for all around."""
_SHOWN_AGAIN_NS = 120_000_000_000
"""Whoever has cast none for so long, nanoseconds, does so whatever it hears: another may reach farther to that side,
and a beacon that was recorded and is played again silences nobody for good. A hundred in one hall: one a second."""
_FIRST_NS = 500_000_000
"""Who has met nobody so long after its start, nanoseconds, casts its first beacon: work begins after two seconds."""
_ALONE_NS = 3_000_000_000
"""Who has heard nobody for so long, nanoseconds, and for three of its probes, casts one a second: it may be flying
past somebody."""
_TICK_NS = 500_000_000
"""How often a partial view is looked after, nanoseconds; half as often while nothing is missing."""


class Overlay:
    """Decides whether this node has neighbours or knows everybody; sets `Core.view`."""

    def __init__(
        self,
        core: Core,
        roll: Roll,
        judge: Judge,
        accusations: Accusations,
        links: LinkReports,
        prober: Prober,
        metadata: Metadata,
        hears: HearsView,
    ) -> None:
        self.core = core
        self._roll = roll
        self._hears = hears
        self.shelf = PassiveView(core, roll)
        self.news = NeighborNews(core, accusations, links, lambda: metadata.own_meta_fp)
        self.neighbors = Neighbors(core, roll, judge, prober, self.shelf, self.news)
        self._links = links
        self.near = Near(core)
        known = core, roll, prober, self.shelf, self.neighbors, self.near, NearReports(core, links)
        self.full_view = FullView(*known, self._narrow, self._enmesh)
        self.mesh_view = MeshView(*known, judge, self._unmesh)
        self.partial_view = PartialView(core, self.shelf, self.news, self.neighbors)
        core.view = self.full_view
        self._ticking = False
        self._relieving = False
        self._seconds = 0
        """Since this node began."""
        self._shown_ns = 0
        """When it cast its last beacon as a full view; at first, when it began."""

    def start(self) -> None:
        """The node begins: where views may be a mesh, it shows itself to strangers in range."""
        core = self.core
        self._shown_ns = core.now_ns
        if core.config.casts and core.config.mesh == "on":
            self._show(None)
        elif core.config.casts and core.config.mesh == "auto":
            core.scheduler.at(core.now_ns + _FIRST_NS, self._show_first)

    def _show_first(self, _: object) -> None:
        """Nobody has answered by now: those that it was told of may be out of reach, and others in it."""
        core = self.core
        if not core.own.left and core.view is self.full_view and not core.table.reachable:
            self._shown_ns = core.now_ns
            self.near.say()
        core.scheduler.at(core.now_ns + _ALONE_NS - _FIRST_NS, self._show)

    def _show(self, _: object) -> None:
        """Cast a beacon now and then: two swarms in reach that have never met learn of each other by nothing else."""
        core = self.core
        if core.own.left:
            return
        if core.view is self.full_view and self._is_due():
            self._shown_ns = core.now_ns
            core.scheduler.at(self.near.say(), self._show)
        else:
            core.scheduler.at(core.now_ns + BEACON_NS, self._show)
        self._seconds += 1

    def _is_due(self) -> bool:
        """Whether a full view casts a beacon now: it hears nobody, or nobody else has shown the swarm for a while."""
        core = self.core
        if core.now_ns - core.heard_ns > max(_ALONE_NS, 3 * core.config.protocol_period_ns):
            return True
        if core.config.mesh == "on":
            return self._seconds % _SHOWN_EVERY == _SHOWN_EVERY - 1
        shown_ns = max(self._shown_ns, self.near.member_ns)
        is_quiet = core.now_ns - shown_ns >= _SHOWN_EVERY * BEACON_NS
        return (is_quiet or core.now_ns - self._shown_ns >= _SHOWN_AGAIN_NS) and core.rng.random() < 1 / _SHOWN_EVERY

    def grown(self) -> None:
        """One more member is reachable: are they too many for this view?"""
        core = self.core
        if core.view.crowded() and not self._relieving:
            # Not at once: whoever called is not done with the member.
            self._relieving = True
            core.scheduler.at(core.now_ns, self._relieve, core.view)

    def _relieve(self, view: View) -> None:
        self._relieving = False
        if view is self.core.view:
            view.relieve()

    def _enmesh(self) -> None:
        """Turn the full view into a mesh: of this swarm one radio reaches a part."""
        core = self.core
        if core.config.mesh != "off" and core.view is self.full_view:
            core.view = self.mesh_view
            core.counters["views_enmeshed"] += 1
            self.mesh_view.begin()
            core.changed()
            core.port.peers_changed()

    def _unmesh(self, has_gathered: bool) -> None:
        """A full view again: everybody hears everybody, or nobody else's view has become a mesh."""
        core = self.core
        if core.view is not self.mesh_view:
            return
        core.view = self.full_view
        core.counters["views_unmeshed"] += 1
        if has_gathered:
            self.full_view.ended_ns = core.now_ns
        for member in list(core.table.by_node.values()):
            if member.overlay.active and member.state in REACHABLE:
                core.table.set_reachable(member, True)
        self._links.changed()
        core.changed()
        core.port.peers_changed()

    def _narrow(self, size: int) -> None:
        """Turn the full view into a partial one."""
        core, table = self.core, self.core.table
        if core.view is self.partial_view:
            return
        core.view = self.partial_view
        core.counters["views_narrowed"] += 1
        core.port.emit(Persist(_JOURNAL, min(size, 2**32).to_bytes(5, "big")))
        self.partial_view.told = size
        self.partial_view.asked_round_ns = self.full_view.asked_round_ns
        self.full_view.tellers.clear()
        self.news.sketch.clear()
        self.news.sketch.begin(0, core.now_ns)
        self.shelf.shuffled_ns = self.neighbors.renewed_ns = self.news.neighbors_changed_ns = core.now_ns
        self._hears.narrowed()
        others = [member for member in table.reachable if not member.overlay.holds_me]
        core.rng.shuffle(others)
        ordered = [member for member in table.reachable if member.overlay.holds_me] + others
        told = 0
        for member in ordered[core.config.active_view :]:
            self.shelf.shelve(member, core.own.node)
            if member.overlay.holds_me or told < TELLERS_WANTED:
                told += 1
                self.neighbors.say(member, DISCONNECT)
            self._roll.forget(member)
        self.neighbors.forget_lost()
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
        core.view = self.full_view
        self.full_view.asked_round_ns = self.partial_view.asked_round_ns
        core.counters["views_widened"] += 1
        core.port.emit(Persist(_JOURNAL, None))
        records = self.partial_view.shelved()
        records += [Record(member.certificate, *member.record) for member in table.transients.values()]
        for member in list(table.transients.values()):
            self._roll.forget(member)
        self.shelf.passive.clear()
        self.neighbors.asks.clear()
        self.shelf.credits.clear()
        self.full_view.tellers.clear()
        for member in table.reachable:
            member.overlay.holds_me = True
        self._hears.widened()
        for record in records:
            # Held for gone until heard: they are pinged, and the digests bring who is there.
            self._roll.restore(record)
        core.changed()
        core.port.peers_changed()

    def _tick(self, _: object) -> None:
        core, view = self.core, self.partial_view
        if core.view is not view or core.own.left:
            self._ticking = False
            return
        core.scheduler.at(core.now_ns + (2 * _TICK_NS if view.is_quiet() else _TICK_NS), self._tick)
        self.news.sketch.tick(core.now_ns)
        if view.is_small():
            self._widen()
            return
        self._relieving = False
        view.look_after()
