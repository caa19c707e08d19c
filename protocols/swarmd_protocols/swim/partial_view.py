"""The view of a node that knows a few neighbours, and records of some others to choose new ones from."""

from collections.abc import Collection, Hashable, Sequence

from swarmd_protocols.channel.codec import encode
from swarmd_protocols.ids import Address
from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.full_view import ASK_ROUND_NS, WIDEN_BELOW
from swarmd_protocols.swim.members import LINKS, MEMBERS, META, SHARED_SECTIONS, Member
from swarmd_protocols.swim.messages import (
    NEIGHBOR_JOIN,
    PARTIAL_VIEW,
    ForwardJoin,
    Neighbor,
    Record,
    Shuffle,
    SizeEstimate,
)
from swarmd_protocols.swim.neighbor_news import NeighborNews
from swarmd_protocols.swim.neighbors import Neighbors
from swarmd_protocols.swim.no_mesh import NoMesh
from swarmd_protocols.swim.passive import PassiveView

_S = 1_000_000_000
_TELL_GAP_NS, _TELL_LATER_NS = 200_000_000, 20_000_000
"""One peer is told at most so often that there is no full view here, and so long after this node's record."""
_SEED_GAP_NS = 10 * _S
"""Each seed is tried about once in this time by all nodes of a partial view together, nanoseconds."""


class PartialView(NoMesh):
    """Knows its neighbours."""

    partial = True
    probes_ring = False
    all_verify = True
    forgets_lost = False
    digest_sections: Sequence[int] = SHARED_SECTIONS
    opening_sections: Sequence[int] = ()
    own_sections: Sequence[int] = (MEMBERS, META)
    unasked_sections: Sequence[int] = (MEMBERS, LINKS)

    def __init__(self, core: Core, shelf: PassiveView, news: NeighborNews, neighbors: Neighbors) -> None:
        self.core = core
        self._shelf = shelf
        self._news = news
        self._neighbors = neighbors
        self.told = 0
        """The size of the swarm when the view became partial."""
        self.asked_round_ns = -(2**62)

    # --- size --------------------------------------------------------------------------------------------------------

    def size(self) -> int:
        """See `View.size`."""
        sketch = self._news.sketch
        known = len(self.core.table.reachable) + 1
        return max(known, sketch.estimate() or max(self.told, sketch.running()))

    def swarm(self) -> int:
        """See `View.swarm`."""
        return self.size()

    def is_small(self) -> bool:
        """Whether the swarm has become so small that this node may know everybody."""
        sketch = self._news.sketch
        size = sketch.estimate()
        return sketch.settled and size is not None and size < self.core.config.full_view_max * WIDEN_BELOW

    def crowded(self) -> bool:
        """See `View.crowded`."""
        return len(self.core.table.reachable) > self._neighbors.most

    def relieve(self) -> None:
        """See `View.relieve`."""
        self._neighbors.part_with_surplus()

    def is_quiet(self) -> bool:
        """Whether nothing is missing."""
        return not self._neighbors.asks and self._neighbors.healthy() >= self.core.config.active_view

    def look_after(self) -> None:
        """Bring neighbours, bounds and passive view in order; called twice a second."""
        self._neighbors.ask_again()
        self._neighbors.fill()
        self._neighbors.part_with_surplus()
        self._neighbors.forget_lost()
        self._neighbors.trim_transients()
        self._shelf.shuffle()

    # --- who is kept, and who is told --------------------------------------------------------------------------------

    def takes(self, member: Member) -> bool:
        """See `View.takes`: a transient peer, until both want to be neighbours."""
        member.overlay.met_ns = self.core.now_ns
        self.core.table.set_active(member, False)
        self._neighbors.trim_transients(member)
        return False

    def shelved(self) -> list[Record]:
        """See `View.shelved`."""
        return [known.record for known in self._shelf.passive.values()]

    def on_trust(self) -> None:
        """See `View.on_trust`."""
        self._shelf.on_trust()

    def carries(self, about: Hashable) -> bool:
        """See `View.carries`: what a node says of itself is for its neighbours alone."""
        return self.core.travels(about)

    def push_fanout(self) -> int:
        """See `View.push_fanout`: neighbours are few, and nobody else can tell them."""
        return len(self.core.table.reachable)

    def stream_fanout(self) -> int:
        """See `View.stream_fanout`."""
        return len(self.core.table.reachable)

    def compared(self, member: Member) -> Collection[int]:
        """See `View.compared`."""
        return SHARED_SECTIONS

    # --- what rides --------------------------------------------------------------------------------------------------

    def riders(self, member: Member) -> list[bytes]:
        """See `View.riders`."""
        return self._news.riders(member)

    def ack_riders(self, member: Member) -> list[bytes]:
        """See `View.ack_riders`."""
        return self._news.riders(member) + self._neighbors.disconnect_rider(member)

    def answer_riders(self, member: Member) -> list[bytes]:
        """See `View.answer_riders`: there is no full view to be had here."""
        if member.overlay.active:
            return []
        member.overlay.disconnected_ns = self.core.now_ns
        return [self._neighbors.neighbor(PARTIAL_VIEW)]

    def introduction(self, member: Member) -> list[bytes]:
        """See `View.introduction`: its record."""
        return [encode(Record(member.certificate, *member.record))]

    def warn(self, member: Member, accusation: bytes) -> None:
        """See `View.warn`: its other neighbours."""
        self._news.warn(member, accusation)

    # --- contacts ----------------------------------------------------------------------------------------------------

    def greeted(self, member: Member) -> None:
        """See `View.greeted`: say that there is no full view to be had here.

        A little later, since it must have this node's record to read that; or with the answer to its first question.
        """
        core = self.core
        strange = not member.overlay.active and member.node not in self._neighbors.asks
        if strange and core.now_ns - member.overlay.disconnected_ns >= _TELL_GAP_NS:
            member.overlay.disconnected_ns = core.now_ns
            core.scheduler.at(core.now_ns + _TELL_LATER_NS, self._tell_now, (member, core.now_ns))

    def _tell_now(self, told: tuple[Member, int]) -> None:
        member, since_ns = told
        if (
            member.overlay.disconnected_ns == since_ns
            and self.core.table.is_transient(member)
            and member.node not in self._neighbors.asks
        ):
            self._neighbors.say(member, PARTIAL_VIEW)

    def _on_told(self, member: Member) -> None:
        """Somebody who was greeted has a partial view too: it may be what leads out of a lonely corner."""
        core = self.core
        if not self.core.table.is_transient(member):
            return
        self._shelf.shelve(member, member.node)
        if self._neighbors.healthy() < core.config.active_view:
            self._neighbors.fill()
        elif core.now_ns - self.asked_round_ns >= ASK_ROUND_NS:
            # Its part of the overlay and this one may have grown apart, or never have met.
            self.asked_round_ns = core.now_ns
            self._neighbors.ask(member.node, NEIGHBOR_JOIN)

    def on_hello_from(self, member: Member) -> None:
        """See `View.on_hello_from`."""
        self._neighbors.on_hello_from(member)

    def refused(self, member: Member) -> None:
        """See `View.refused`."""
        self._neighbors.refused(member)

    def choose_seed(self, strange: list[Address]) -> Address | None:
        """See `View.choose_seed`: each seed about once in ten seconds by all nodes of the swarm together."""
        core = self.core
        if not core.table.reachable:
            return strange[0]
        if core.rng.random() * (_SEED_GAP_NS * self.size()) >= len(strange) * core.config.rejoin_ns:
            return None
        return strange[int(core.rng.random() * len(strange))]

    # --- messages ----------------------------------------------------------------------------------------------------

    def on_neighbor(self, member: Member, message: Neighbor) -> None:
        """See `View.on_neighbor`."""
        if message.kind == PARTIAL_VIEW:
            self._on_told(member)
        else:
            self._neighbors.on_neighbor(member, message)

    def on_forward_join(self, member: Member, message: ForwardJoin) -> None:
        """See `View.on_forward_join`."""
        self._neighbors.on_forward_join(member, message)

    def on_shuffle(self, member: Member, message: Shuffle) -> None:
        """See `View.on_shuffle`."""
        if self._shelf.on_shuffle(member, message):
            self._neighbors.fill()

    def on_size_estimate(self, member: Member, message: SizeEstimate) -> None:
        """See `View.on_size_estimate`."""
        self._news.on_size_estimate(member, message)
