"""The view of a node that knows everybody, until they are too many, or others say that nobody does."""

from collections.abc import Callable, Collection, Hashable, Sequence

from swarmd_protocols.channel.codec import encode
from swarmd_protocols.ids import Address
from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.members import MEMBERS, SECTIONS, SHARED_SECTIONS, Member
from swarmd_protocols.swim.mesh.near import Near as NearMembers
from swarmd_protocols.swim.mesh.onset import Onset
from swarmd_protocols.swim.mesh.reports import NearReports
from swarmd_protocols.swim.messages import (
    DISCONNECT,
    NEIGHBOR_ACCEPT,
    NEIGHBOR_JOIN,
    Beacon,
    ForwardJoin,
    Near,
    Neighbor,
    Record,
    Shuffle,
    SizeEstimate,
)
from swarmd_protocols.swim.neighbors import Neighbors
from swarmd_protocols.swim.no_mesh import NoMesh
from swarmd_protocols.swim.passive import PassiveView
from swarmd_protocols.swim.prober import Prober
from swarmd_protocols.swim.rules import eager_fanout
from swarmd_protocols.swim.seams import Roll
from swarmd_protocols.swim.sizing import estimated_size

_S = 1_000_000_000
TOLD_NS = 60 * _S
"""Who said so long ago, nanoseconds, that its view is partial, does not count any more."""
TELLERS_WANTED, _TELLERS_MAX = 6, 64
"""Members that make a full view partial by their word (fewer where fewer are heard), and those remembered."""
ASK_ROUND_NS = 2 * _S
"""Shortest time between two looks for others because of what one member said, nanoseconds."""
_ENDED_NS = 10 * _S
"""So long after a mesh has ended here, nanoseconds, the others end it too: what they say of it makes none."""
WIDEN_BELOW = 0.75
"""A view becomes full again below this share of `full_view_max`: far enough for estimates that are 10 % off."""


class FullView(NoMesh):
    """Knows everybody."""

    partial = False
    probes_ring = True
    all_verify = False
    forgets_lost = True
    digest_sections: Sequence[int] = range(SECTIONS)
    opening_sections: Sequence[int] = (MEMBERS,)
    own_sections: Sequence[int] = ()
    unasked_sections: Sequence[int] = ()

    def __init__(
        self,
        core: Core,
        roll: Roll,
        prober: Prober,
        shelf: PassiveView,
        neighbors: Neighbors,
        near: NearMembers,
        reports: NearReports,
        narrow: Callable[[int], None],
        enmesh: Callable[[], None],
    ) -> None:
        self.core = core
        self._roll = roll
        self._prober = prober
        self._shelf = shelf
        self._neighbors = neighbors
        self.near = near
        self.reports = reports
        self._narrow = narrow
        """Makes the view partial; takes the size of the swarm."""
        self.tellers: dict[bytes, int] = {}
        """Members that said that their view is partial, and when."""
        self.asked_round_ns = -(2**62)
        self._enmesh = enmesh
        """Makes the view a mesh."""
        self.ended_ns = -(2**62)
        """When this node's view was a mesh last."""
        self._onset = Onset(core, near, reports, prober)

    # --- size --------------------------------------------------------------------------------------------------------

    def size(self) -> int:
        """See `View.size`."""
        return len(self.core.table.reachable) + 1

    def swarm(self) -> int:
        """See `View.swarm`."""
        return 0

    def crowded(self) -> bool:
        """See `View.crowded`."""
        return len(self.core.table.reachable) >= self.core.config.full_view_max

    def relieve(self) -> None:
        """See `View.relieve`."""
        if self.crowded():
            self._narrow(self.size())

    def be_told(self, member: Member, size: int) -> None:
        """A member says that its view is partial: believed when most members that this node hears say so."""
        core = self.core
        if size < core.config.full_view_max * WIDEN_BELOW:
            return  # They will soon know everybody themselves.
        self.tellers[member.node] = core.now_ns
        if len(self.tellers) > _TELLERS_MAX:
            del self.tellers[next(iter(self.tellers))]
        since_ns = core.now_ns - TOLD_NS
        recent = sum(1 for told_ns in self.tellers.values() if told_ns > since_ns)
        recent += sum(
            1 for m in core.table.reachable if m.overlay.holds_me and self.tellers.get(m.node, since_ns) <= since_ns
        )
        # Whoever is known by hearsay alone says neither yes nor no.
        heard = sum(1 for other in core.table.reachable if other.link.heard_ns >= 0 and other.link.heard_ns > since_ns)
        if recent >= min(TELLERS_WANTED, heard // 2 + 1):
            self._narrow(size)
        elif core.now_ns - self.asked_round_ns >= ASK_ROUND_NS:
            # What one says is no proof, but a reason to look: whose view is partial says so when it is pinged.
            self.asked_round_ns = core.now_ns
            for other in core.table.sample(core.rng, 2 * TELLERS_WANTED, member):
                self._prober.ping_once(other)
            # And whom it knows itself, that may be a swarm of which nobody here has heard yet.
            core.port.push(member, [encode(Shuffle(True, ()))])

    # --- more hops than one ------------------------------------------------------------------------------------------

    def is_hidden(self, member: Member, *, helped: bool) -> None:
        """See `View.is_hidden`: of several, one radio reaches a part of the swarm only."""
        if self._onset.saw_hidden(member, helped=helped):
            self._enmesh()

    # --- who is kept, and who is told --------------------------------------------------------------------------------

    def takes(self, member: Member) -> bool:
        """See `View.takes`."""
        return True

    def shelved(self) -> list[Record]:
        """See `View.shelved`."""
        return []

    def on_trust(self) -> None:
        """See `View.on_trust`: every certificate is a member's."""

    def carries(self, about: Hashable) -> bool:
        """See `View.carries`."""
        return True

    def push_fanout(self) -> int:
        """See `View.push_fanout`."""
        return eager_fanout(len(self.core.table.reachable))

    def stream_fanout(self) -> int:
        """See `View.stream_fanout`."""
        return self.core.config.gossip_fanout

    def compared(self, member: Member) -> Collection[int]:
        """See `View.compared`; with a node in a partial view, what all nodes hold alike."""
        return SHARED_SECTIONS if member.overlay.holds_me else self.digest_sections

    # --- what rides --------------------------------------------------------------------------------------------------

    def riders(self, member: Member) -> list[bytes]:
        """See `View.riders`."""
        return []

    def ack_riders(self, member: Member) -> list[bytes]:
        """See `View.ack_riders`."""
        return []

    def answer_riders(self, member: Member) -> list[bytes]:
        """See `View.answer_riders`."""
        return []

    def introduction(self, member: Member) -> list[bytes]:
        """See `View.introduction`: everybody knows it."""
        return []

    def warn(self, member: Member, accusation: bytes) -> None:
        """See `View.warn`: the accusation is told to all."""

    # --- contacts ----------------------------------------------------------------------------------------------------

    def greeted(self, member: Member) -> None:
        """See `View.greeted`."""

    def on_hello_from(self, member: Member) -> None:
        """See `View.on_hello_from`."""

    def refused(self, member: Member) -> None:
        """See `View.refused`."""

    def choose_seed(self, strange: list[Address]) -> Address | None:
        """See `View.choose_seed`."""
        return strange[0]

    # --- messages of a mesh ------------------------------------------------------------------------------------------

    def on_near(self, message: Near, via: Member | None, nonce: bytes = b"") -> None:
        """See `View.on_near`: who signs that its view is a mesh is weighed (`mesh/onset.py`), and no beacon is."""
        core = self.core
        if core.config.mesh == "off" or core.now_ns < self.ended_ns + _ENDED_NS:
            core.counters["near_reports_ignored"] += 1
        elif self.reports.on_near(message, via, nonce) is not None and self._onset.was_told():
            self._enmesh()

    def forgotten(self, member: Member) -> None:
        """See `View.forgotten`."""
        self.near.forget(member.node)
        self.reports.forget(member.node)

    # --- strangers ---------------------------------------------------------------------------------------------------

    def on_beacon(self, message: Beacon, source: Address) -> None:
        """See `View.on_beacon`: a stranger is greeted, a member that this node hears no more is asked."""
        if self.core.config.mesh != "off":
            member = self.near.on_beacon(message, source)
            if member is not None and self.near.may_ask(member):
                self._prober.ping_once(member)

    # --- messages ----------------------------------------------------------------------------------------------------

    def on_neighbor(self, member: Member, message: Neighbor) -> None:
        """See `View.on_neighbor`: whoever asks has a partial view, and says so."""
        if message.kind <= NEIGHBOR_JOIN:
            member.overlay.holds_me = True
            self._neighbors.say(member, NEIGHBOR_ACCEPT)
        elif message.kind == DISCONNECT:
            member.overlay.holds_me = False
        self.be_told(member, message.size)

    def on_forward_join(self, member: Member, message: ForwardJoin) -> None:
        """See `View.on_forward_join`: repair brings the record."""

    def on_shuffle(self, member: Member, message: Shuffle) -> None:
        """See `View.on_shuffle`: only those who said that there is more were asked."""
        if self._shelf.credit(member.node, 1.0 + len(message.entries)) and member.node in self.tellers:
            for record in message.entries:
                self._roll.on_record(record, member)

    def on_size_estimate(self, member: Member, message: SizeEstimate) -> None:
        """See `View.on_size_estimate`: only who has a partial view sends a pulse."""
        member.overlay.holds_me = True
        self.be_told(member, estimated_size([message.minima]))
