"""The view of a node whose swarm is larger than its radio's reach: everybody is known, a few are near.

    near       members that answer this node's own questions directly; the table's reachable members
    reached    a chain of reports leads to it: near ─▶ whom they report ─▶ whom those report; it lives
    suspect    no chain leads to it; `UNREACHED_NS` later one of
    failed       everybody who could hear it is reached and hears it no more, or saw that its process is gone
    unreachable  somebody who could hear it is out of reach too: that part of the swarm is cut off

It is a pure view of the reports: whoever is reached again is what it was, without a refutation. Nobody accuses
anybody; one stolen key can hide a member only where it is that member's sole neighbour.
"""

from collections.abc import Callable, Iterable, Mapping

from swarmd_protocols.effects import MemberState
from swarmd_protocols.ids import Address
from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.full_view import FullView
from swarmd_protocols.swim.losses import missed
from swarmd_protocols.swim.members import GONE, REACHABLE, Member
from swarmd_protocols.swim.mesh.fates import Fates
from swarmd_protocols.swim.mesh.frozen import Frozen
from swarmd_protocols.swim.mesh.graph import KEY_BYTES, Fate, Heard, Key, agreed, outsiders, reached
from swarmd_protocols.swim.mesh.near import IN_REACH_NS, NEAR_MAX, Near
from swarmd_protocols.swim.mesh.onset import hidden_wanted
from swarmd_protocols.swim.mesh.reports import NearReports, Own
from swarmd_protocols.swim.mesh.routes import Routes
from swarmd_protocols.swim.mesh.turns import Turns
from swarmd_protocols.swim.messages import STATUS_LEFT, Beacon
from swarmd_protocols.swim.messages import Near as NearMessage
from swarmd_protocols.swim.neighbors import Neighbors
from swarmd_protocols.swim.passive import PassiveView
from swarmd_protocols.swim.prober import Prober
from swarmd_protocols.swim.seams import Judge, Roll

_S, _MS = 1_000_000_000, 1_000_000
UNREACHED_NS = 800 * _MS
"""So long after the last chain to a member broke, nanoseconds, its fate is told: a link that another takes over for is
reported within 0.5 s (`reports.py`), and passes ten hops in 0.2 s."""
_GONE_NS = 100 * _MS
"""The same where somebody saw that no process listens there: only its own restart could change that."""
_WEIGHED_AGAIN_NS = 3 * _S
"""Who was told cut off is told failed where the reports have said so for so long, nanoseconds: of a part that has come
back the reports of many hops come by repair, a round trip each, the newest not first."""
_NOTHING_DUE = -1
"""In place of a time: the fate of a member was told, and nothing that has come since says otherwise."""
_BEGIN_NS = 5 * _S
"""Nobody's fate is told so long after the view has become a mesh, nanoseconds: the reports are on their way."""
_GROWS_NS, _GROWS_MAX_NS = 3 * _S, 60 * _S
"""Nor that of a member to which no chain ever led, so long after one led to another for the first time, nanoseconds, a
minute at most: in a line of 200 the last reports are on their way for 15 s."""
_ALONE_NS = 4 * _S
"""Who is alone in this so long after it has begun, nanoseconds, has a full view again, before it tells anybody's fate:
whoever else hears a part only has said so by then, or is asked by those that it does not hear (`onset.py`)."""
_REACH_NS, _REACH_EACH_NS = 10 * _MS, 50_000
"""Reports that come within this of each other are weighed once, nanoseconds; in a swarm of more than 200 within so long
for each member, since it takes a few microseconds for each: of a thousand one that reports without end would take most
of a core."""
_COSTS_NS = 5 * _S
"""Sub-protocols are told of changed ways at most so often, nanoseconds: while all move they change each second."""
_SILENT_NS = 150 * _MS
"""Whom somebody hears no more, and this node has not heard for so long, it asks at once, nanoseconds."""
_RARELY = 5
"""Of so many seconds, far members are asked in one where beacons are heard."""
_HEARD_NS = 1_500_000_000
"""Who was heard so lately, nanoseconds, when the last chain to it breaks is asked, and not at its next beacon."""
_OUT_OF_REACH_FEW = 1
"""So many members out of reach are too few for a mesh: a full view asks others about them. Where one is enough to make
a mesh, it is too many."""
_ASKED_SHARE = 20
"""Of the members of whom a beacon is heard, one in so many is asked a second to prove it, where the mesh may end."""
_ANSWERED_NS = 40 * _S
"""Where nothing is cast, who answered so lately is in reach, nanoseconds: a round of all others takes half of it."""
_LOST_SHARE = 8
"""Likewise one answer in so many may be missing: more is no loss, they are out of reach."""
_PROOF_NS = 20 * _S
"""Whoever answered so lately, nanoseconds, need not prove again that it is in reach."""
_ALL_HEARD_NS = 30 * _S
"""Everybody has to hear everybody for so long before the view becomes full again, nanoseconds."""


def all_say_so(core: Core, reports: NearReports) -> bool:
    """Whether no member that lives says of its mesh that it does not hear all: of a full view none need say it.

    Who is alone hears nobody: it may be between two parts.
    """
    alone = not any(member.state in REACHABLE for member in core.table.by_node.values())
    return not alone and all(member.node in reports.hears_all for member in reports.tellers())


def waits_for(core: Core, cut_off: Iterable[bytes]) -> bool:
    """Whether one of those that were cut off may live: who has left since, has failed or is away is not waited for."""
    held = core.table.by_node
    return any(held[node].state is MemberState.UNREACHABLE for node in cut_off if node in held)


def hears_all(core: Core, near: Near, cut_off: Iterable[bytes]) -> bool:
    """Whether so few members that live are not heard directly that a full view needs no mesh for them.

    A pair that hears each other fully is no swarm of one hop while it waits for the rest.
    """
    if waits_for(core, cut_off):
        return False
    others = [member for member in core.table.by_node.values() if member.state in REACHABLE]
    within_ns = _ANSWERED_NS if near.asks_all() else IN_REACH_NS
    out = sum(1 for member in others if not near.in_reach(member, within_ns))
    return out <= min(_OUT_OF_REACH_FEW, hidden_wanted(len(others)) - 1)


class MeshView(FullView):
    """See the module. What a full view answers holds here where nothing else is said."""

    probes_ring = False
    weighs_links = True

    def __init__(
        self,
        core: Core,
        roll: Roll,
        prober: Prober,
        shelf: PassiveView,
        neighbors: Neighbors,
        near: Near,
        reports: NearReports,
        judge: Judge,
        end: Callable[[bool], None],
    ) -> None:
        super().__init__(core, roll, prober, shelf, neighbors, near, reports, lambda size: None, lambda: None)
        self._judge = judge
        self._end = end
        """Makes the view full; takes whether all hear all."""
        reports.casts = lambda: core.config.casts and core.view is self and self.near.hears_beacons()
        self._reach_due = self._tell_due = False
        self._told: Mapping[Key, int] = {}
        """What sub-protocols were told that the ways to all others cost."""
        self._told_ns = -(2**62)
        self._begun_ns = 0
        self._all_heard_ns = 0
        self._life = 0
        """Counts the times that the view became a mesh, so that timers of earlier ones do nothing."""
        self._links: dict[Key, Heard] = {}
        """Who hears whom, as both ends say."""
        self.routes = Routes()
        """Who is reached, and by whom."""
        self.turns = Turns(core, prober, near, reports, self.routes)
        self._fates = Fates(core, near, reports, self.routes)
        self._frozen = Frozen(core, prober, near, reports, self._fates, self.routes)
        reports.own = lambda: Own(
            near.keys(), near.gone(), hears_all(core, self.near, self._cut_off), self._frozen.marked()
        )
        self._unreached: dict[bytes, int] = {}
        """Members that are not and have not failed, and since when their fate is weighed, or `_NOTHING_DUE`."""
        self._unchained: dict[bytes, int] = {}
        """When the last chain to each member that is not reached broke."""
        self._chained: set[bytes] = set()
        """Members to which a chain has led in this mesh."""
        self._grew_ns = 0
        """When one did for the first time."""
        self._cut_off: set[bytes] = set()
        """Those of them of whom it was told that their part of the swarm is."""

    # --- beginning and ending ----------------------------------------------------------------------------------------

    def begin(self) -> None:
        """The view becomes a mesh: near is who has answered lately."""
        core = self.core
        self._begun_ns = self._all_heard_ns = core.now_ns
        self._life += 1
        self._unreached.clear()
        self._cut_off.clear()
        self._unchained.clear()
        self._chained.clear()
        self.near.begin()
        self.reports.begin()
        answered = sorted(core.table.reachable, key=lambda member: (-member.link.replied_ns, member.node))
        for at, member in enumerate(answered):
            self._judge.clear_doubts(member)
            if at >= NEAR_MAX or core.now_ns - member.link.replied_ns > IN_REACH_NS:
                self.near.lose(member, gone=False)
            self._judge.evaluate(member, "the swarm is larger than a radio's reach")
        core.scheduler.at(self.near.say(), self._beacon, self._life)
        if core.config.mesh == "auto":
            core.scheduler.at(core.now_ns + _ALONE_NS, self._is_alone, self._life)
        self.reports.soon(lost=True)
        self._reach_soon()

    def _beacon(self, life: int) -> None:
        core = self.core
        if life != self._life or core.view is not self or core.own.left:
            return
        core.scheduler.at(self.near.say(), self._beacon, life)
        self._ask_for_proof()
        if not hears_all(core, self.near, self._cut_off) or not all_say_so(core, self.reports):
            self._all_heard_ns = core.now_ns
        self.reports.soon(lost=False)
        for member in core.table.by_node.values():
            if member.node[:KEY_BYTES] in self.routes.costs:
                self.near.is_reached(member)
                if not self.reports.is_fresh(member):
                    self._reach_soon()
            elif member.state in REACHABLE:
                self._reach_soon()  # Its record says that it lives, and no report has followed.
        if core.now_ns - self._all_heard_ns >= _ALL_HEARD_NS:
            self._end(True)

    def _is_alone(self, life: int) -> None:
        """If nobody else's view is a mesh, nobody reports whom it hears, and no chain leads anywhere."""
        if life == self._life and self.core.view is self and not self.reports.tellers():
            self.core.counters["meshes_alone"] += 1
            self._end(False)

    def _ask_for_proof(self) -> None:
        """Where everybody may be in reach, who has not answered lately is asked, a few a second.

        They are by their beacons; where nothing is cast, as long as those that were asked answer.
        """
        core, near = self.core, self.near
        seen = others = [member for member in core.table.by_node.values() if member.state in REACHABLE]
        few = _OUT_OF_REACH_FEW
        if not near.asks_all():
            seen = [member for member in others if near.seems_in_reach(member, IN_REACH_NS)]
            out = len(others) - len(seen)
        else:
            asked = [member for member in others if core.now_ns - member.link.blocked_ns < _ANSWERED_NS]
            out = sum(1 for member in asked if member.link.replied_ns < member.link.blocked_ns)
            few += len(asked) // _LOST_SHARE
        if out > few:
            return
        seen.sort(key=lambda member: (member.link.replied_ns, member.node))
        for member in seen[: 1 + len(seen) // _ASKED_SHARE]:
            if core.now_ns - member.link.replied_ns >= _PROOF_NS:
                self._prober.ping_once(member)

    # --- what a full view answers otherwise --------------------------------------------------------------------------

    def size(self) -> int:
        """See `View.size`."""
        return 1 + sum(1 for member in self.core.table.by_node.values() if member.state in REACHABLE)

    def swarm(self) -> int:
        """See `View.swarm`: those that are near are not all."""
        return self.size()

    def crowded(self) -> bool:
        """See `View.crowded`."""
        return False

    def push_fanout(self) -> int:
        """See `View.push_fanout`: the near ones are few, and nobody else can tell what is behind them."""
        return len(self.core.table.reachable)

    def stream_fanout(self) -> int:
        """See `View.stream_fanout`."""
        return len(self.core.table.reachable)

    def probes(self, member: Member, state: MemberState) -> bool:
        """See `View.probes`: who is near."""
        return member.where >= 0 and state in REACHABLE

    def hangs_on(self, member: Member) -> bool:
        """See `View.hangs_on`: a lost link cuts off a part of the swarm then, which is worth a second."""
        key, near = member.node[:KEY_BYTES], self.near.keys()
        near.pop(key, None)
        return key not in reached(self.core.own.node[:KEY_BYTES], near, self._links)

    def is_cut_off(self, member: Member) -> bool:
        """See `View.is_cut_off`."""
        return member.node in self._cut_off

    def is_heard(self, member: Member) -> bool:
        """See `View.is_heard`: in a hall thirty are, of whom eight are near."""
        return self.near.in_reach(member, IN_REACH_NS) or self.near.has_spoken(member, _HEARD_NS)

    def unheard_since_ns(self, member: Member) -> int | None:
        """See `View.unheard_since_ns`: since the last chain broke, or a frame that it sealed came after that."""
        broke_ns = self._unchained.get(member.node)
        return None if broke_ns is None else max(broke_ns, member.link.heard_ns)

    def asks_lost(self) -> bool:
        """See `View.asks_lost`: where nothing is cast, near ones are found by asking.

        Where beacons are heard it is a fifth as often, and not never: they could be all of one that lies.
        """
        return not self.near.hears_beacons() or self.core.now_ns // _S % _RARELY == 0

    def forgotten(self, member: Member) -> None:
        """See `View.forgotten`."""
        super().forgotten(member)
        self.turns.forget(member)
        self._frozen.forget(member.node)
        self._unreached.pop(member.node, None)
        self._unchained.pop(member.node, None)
        self._chained.discard(member.node)
        self._cut_off.discard(member.node)
        self.reports.soon(lost=True)  # It may have been near: others count on it until they are told.
        self._reach_soon()

    # --- who is near -------------------------------------------------------------------------------------------------

    def on_beacon(self, message: Beacon, source: Address) -> None:
        """See `View.on_beacon`."""
        member = self.near.on_beacon(message, source)
        if member is not None:
            self.turns.consider(member)

    def hears_far(self, member: Member) -> None:
        """See `View.hears_far`: it may be near."""
        if member.status == STATUS_LEFT:
            return
        if len(self.core.table.reachable) < NEAR_MAX:
            self._prober.ping_once(member)
        else:
            self.turns.consider(member)

    def answered(self, member: Member) -> None:
        """See `View.answered`."""
        missed(self.core, self.near.answered(member))
        if member.where < 0 and self.turns.takes(member) and self.near.gain(member):
            self.turns.over(member)
            self._prober.welcome(member)
            self.reports.soon(lost=member.node[:KEY_BYTES] not in self.routes.costs)
            self._reach_soon()
            self.core.port.peers_changed()

    def loses_link(self, member: Member, *, gone: bool) -> bool:
        """See `View.loses_link`: silence is a lost link, and what that means follows from all reports."""
        was_near = self.near.lose(member, gone=gone)
        if was_near:
            self.near.fell_silent(member)
            self.core.port.peers_changed()
        if was_near or gone:
            self.reports.soon(lost=True)
            self._reach_soon()
        return True

    def freezes(self, member: Member) -> None:
        """See `View.freezes`: somebody's life may hang on what it said last."""
        if self.near.freezes(member):
            self._reach_soon()

    # --- who hears whom ----------------------------------------------------------------------------------------------

    def on_near(self, message: NearMessage, via: Member | None, nonce: bytes = b"") -> None:
        """See `View.on_near`."""
        dropped = self.reports.on_near(message, via, nonce)
        if dropped is None:
            return
        core = self.core
        for member in list(core.table.reachable):
            is_silent = core.now_ns - member.link.heard_ns > _SILENT_NS
            if member.node[:KEY_BYTES] in dropped.keys and is_silent and self.turns.may_look(dropped.author):
                self._prober.verify(member)
        self._reach_soon()

    # --- who is reached ----------------------------------------------------------------------------------------------

    def _reach_soon(self) -> None:
        if not self._reach_due:
            self._reach_due = True
            wait_ns = max(_REACH_NS, _REACH_EACH_NS * len(self.core.table.by_node))
            self.core.scheduler.at(self.core.now_ns + wait_ns, self._reach)

    def _tell_costs(self, _: object) -> None:
        """Sub-protocols learn who is reached and at what cost, also where neither members nor near ones changed."""
        self._tell_due = False
        if self.core.view is self:
            self._told, self._told_ns = self.routes.costs, self.core.now_ns
            self.core.port.peers_changed()

    def _reach(self, _: object) -> None:
        self._reach_due = False
        core = self.core
        if core.view is not self:
            return
        held = core.table.by_node
        own = core.own.node[:KEY_BYTES]
        said = self.reports
        stale = {node for node, member in held.items() if not said.is_fresh(member)}
        reports = {
            node[:KEY_BYTES]: said.heard[node]
            for node, member in held.items()
            if node not in stale and said.is_of_this_life(member)
        }
        # Who has said nothing for long is a ghost, or may as well be: whoever claims to hear it leads to nobody.
        lost = {node[:KEY_BYTES] for node, member in held.items() if member.unheard or member.failed or node in stale}
        # Whoever is shut out is reached by nobody: that it is silent about a member is no word that the member ended.
        lost |= outsiders(reports, {own, *(node[:KEY_BYTES] for node in held)})
        self._links = agreed(own, reports, lost)
        self.routes.know(own, self.near.keys(), self._links)
        links = self._frozen.weigh(own, self._links)
        if links is not self._links:
            self._links = links
            self.routes.know(own, self.near.keys(), links)
        if self.routes.costs != self._told and not self._tell_due:
            self._tell_due = True
            core.scheduler.at(max(core.now_ns, self._told_ns + _COSTS_NS), self._tell_costs)
        for member in list(held.values()):
            if not member.overlay.active or member.status == STATUS_LEFT:
                continue
            if member.node[:KEY_BYTES] in self.routes.costs:
                self._is_reached(member)
                continue
            since_ns = self._unchained.setdefault(member.node, core.now_ns)
            if member.unheard or member.failed or self._fates.is_away(member):
                continue
            is_new = member.node not in self._chained and core.now_ns - since_ns < _GROWS_MAX_NS
            if is_new and core.now_ns - self._grew_ns < _GROWS_NS:
                continue  # Looked at again with the next beacon.
            if member.node not in self._unreached:
                if self.near.seems_in_reach(member, _HEARD_NS):
                    self.turns.consider(member)
                if core.now_ns - self._begun_ns >= _BEGIN_NS:
                    member.suspected = True
                    self._judge.evaluate(member, "no chain of reports leads to it")
                self._weigh(member, UNREACHED_NS, self._begun_ns + _BEGIN_NS)
            elif member.node in self._cut_off:
                self._weigh_again(member)

    def _is_reached(self, member: Member) -> None:
        if member.node not in self._chained:
            self._chained.add(member.node)
            self._grew_ns = self.core.now_ns
        self.turns.over(member)
        self._unreached.pop(member.node, None)
        self._unchained.pop(member.node, None)
        self._cut_off.discard(member.node)
        if member.unheard:
            self._roll.found(member)
        elif member.suspected or member.failed or member.state not in REACHABLE:
            was_gone = member.state in GONE
            member.suspected = member.failed = False
            self._judge.evaluate(member, "a chain of reports leads to it again", joined=was_gone)

    def _weigh_again(self, member: Member) -> None:
        """It was told cut off: what is held by now may say that it has failed."""
        if self._fates.of(member) is Fate.UNREACHABLE:
            self._unreached[member.node] = _NOTHING_DUE
        elif self._unreached[member.node] == _NOTHING_DUE:
            self._weigh(member, _WEIGHED_AGAIN_NS, 0)

    def _weigh(self, member: Member, wait_ns: int, begun_ns: int) -> None:
        now_ns = self._unreached[member.node] = self.core.now_ns
        wait_ns = _GONE_NS if self._fates.is_gone(member) else wait_ns
        self.core.scheduler.at(max(now_ns + wait_ns, begun_ns), self._tell_fate, (member, now_ns))

    def _tell_fate(self, unreached: tuple[Member, int]) -> None:
        member, since_ns = unreached
        core = self.core
        if core.view is not self or self._unreached.get(member.node) != since_ns or member.failed:
            return
        member.suspected = False
        if self._fates.is_away(member):
            del self._unreached[member.node]  # Weighed anew when that is over (`_beacon`).
            return
        if self._fates.of(member) is Fate.UNREACHABLE:
            self._unreached[member.node] = _NOTHING_DUE
            self._cut_off.add(member.node)
            self._judge.evaluate(member, "its part of the swarm is cut off")
            return
        del self._unreached[member.node]
        self._cut_off.discard(member.node)
        member.failed = True
        core.counters["failures"] += 1
        self._judge.evaluate(member, "nobody who could hear it hears it")
