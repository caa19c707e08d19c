"""Who is near: members that answer this node's own questions directly. A few of them, where many could.

beacon heard   of somebody who is wanted: it is asked, at a bounded rate; nothing else follows from a beacon
               from an address that its member is not known by, and silent at the known one: greeted there
it answers     near: probed in turn, told news, reported
it is silent   as long as losses do not explain, and its host is silent too: near no more; nobody is accused
host open      it is frozen, and stays near for 12 s
"""

from swarmd_protocols.channel.bucket import TokenBucket
from swarmd_protocols.channel.codec import encode
from swarmd_protocols.ids import Address, is_way
from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.members import Member
from swarmd_protocols.swim.mesh.graph import KEY_BYTES, Key, life_key, link_cost
from swarmd_protocols.swim.messages import STATUS_LEFT, Beacon
from swarmd_protocols.swim.rules import BOOT_SHIFT

_S = 1_000_000_000
BEACON_NS = 1 * _S
"""A node casts that it is here once so often, nanoseconds, a tenth sooner or later: who moves is met in a second."""
_CALM_NS, _CALM_BEACON_NS = 60 * _S, 3 * _S // 2
"""Where the same members have been near for so long and nobody else was heard, nanoseconds, a node casts it so often: a
beacon is an eighth of what a line sends that has nothing to say. Whoever moves past casts its own each second."""
NEAR_MAX = 8
"""Members that are near at most: more of them say no more about who lives, and where fifty share the air their probes
and reports fill it (28 kB/s a node without a bound, 9 with it)."""
NEAR_MOST = 24
"""Members that are near at most, with those that nobody else leads to: as many as a report names."""
_BEACONS_WORK_NS = 5 * _S
"""Whoever has heard a beacon so lately, nanoseconds, is on a transport that casts, and need ask far members rarely."""
ASKS_PER_S, GREETINGS_PER_S = 8, 2
"""Members asked and strangers greeted because of beacons, per second: whoever casts beacons in others' names makes a
node send no more than that; who moves at 15 m/s comes near one or two a second."""
_STRANGE_NS, _STRANGERS_MAX = 2 * _S, 64
"""Who is unknown so long after its first beacon, nanoseconds, is a stranger, and so many of them are remembered: a
newcomer that its seeds admit is no stranger by then, and thirty that hear it do not all greet it at once."""
_GREETED_WITHIN_NS = 2 * _S
"""With `auto` it is greeted without a second beacon, which may be two minutes away, within so long after that,
nanoseconds, at random: the first greeting makes it known to whoever else has heard it."""
_STRANGER_KEPT_NS = 15 * _S
"""A stranger keeps its place so long, nanoseconds, longer than the gap between two beacons of a full view (10 s): were
it the next one's at once, a crowd, or somebody who invents names, would keep everybody a newcomer for ever."""
_MOVED_NS, _MOVED_MAX_NS = 3 * _S, 60 * _S
"""A member that was not heard for so long, nanoseconds, and shows itself from an address that it has not told may have
got another one while it could tell nobody, as all do where a network is numbered anew; it is greeted there, and twice
as long later each time, as long as nothing comes of it: whoever plays far members' beacons again has greetings sent
wherever it likes, without a key."""
_ASK_AGAIN_NS, _ASK_AGAIN_MAX_NS = 300_000_000, 8 * _S
"""Whoever was asked because of a beacon and did not answer is asked again after so long, nanoseconds, twice as long
each time: beacons in its name are no reason to ask for ever, and a link at 30 % loss answers one question of two."""
IN_REACH_NS = 3 * _S
"""Whose beacon or frame came within so long is in reach, nanoseconds: of three beacons one comes through."""
_PROVEN_NS = 40 * _S
"""A sealed answer so lately, nanoseconds, and a beacon since: it is in reach. A beacon alone could be anybody's."""
_GONE_MOST = 24
"""Lives whose end was seen and that a report names, the newest: as many as it names neighbours."""
_THERE_AFTER_ALL_NS = 15 * _S
"""Who is still reached so long after its host refused, nanoseconds, is there: whoever else hears a dead one has found
out within 12 s, even if it seemed frozen there."""
_MISSED_NS = 2 * _S
"""Who answers so soon after its link was lost, nanoseconds, was there all the while: who moves out of reach stays there
longer."""
_FROZEN_NS = 3 * _S
"""Whoever was found frozen is held for that so long, nanoseconds: it is asked once a second, and when it runs again it
has heard within two more who has ended beside it, and looks for itself."""


class Near:
    """The table's reachable members, while the view is a mesh."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._beacons: dict[bytes, int] = {}
        """When a beacon of each member was heard last."""
        self._heard_ns = -(2**62)
        self.member_ns = -(2**62)
        """When a beacon of a member that is reachable was heard last."""
        self._asked: dict[bytes, tuple[int, int]] = {}
        """Who was asked because of a beacon and has not answered: when, and how long it is not asked again."""
        self._asks = TokenBucket(ASKS_PER_S, 2 * ASKS_PER_S)
        self._greetings = TokenBucket(GREETINGS_PER_S, 2 * GREETINGS_PER_S)
        self._movers = TokenBucket(GREETINGS_PER_S, 2 * GREETINGS_PER_S)
        """Apart from those of strangers, whom no beacons of members keep waiting."""
        self._moved: dict[bytes, tuple[int, int]] = {}
        """When members were greeted last at an address that they have not told, and for how long not again."""
        self._strangers: dict[bytes, int] = {}
        """Who casts beacons and is no member, and since when."""
        self._saw_gone: dict[bytes, tuple[int, int]] = {}
        """Of members whose host said that no process listens there, the boot that ended and when that was seen."""
        self._silent: dict[bytes, int] = {}
        """When members that were near fell silent."""
        self._frozen: dict[bytes, int] = {}
        """When members were found frozen last."""
        self._missed: dict[bytes, tuple[int, int, int]] = {}
        """Of members whose link was lost, how many pings they did not answer, when, and in which life of theirs."""
        self._stirred_ns = 0
        """When a member came near, was lost, or one that is not near was heard."""

    def begin(self) -> None:
        """The view has become a mesh: who was gone in an earlier one may have answered since."""
        self._saw_gone.clear()
        self._frozen.clear()
        self._stirred_ns = self.core.now_ns

    def say(self) -> int:
        """Cast that this node is here; gives when to do so again."""
        core = self.core
        core.port.cast(encode(Beacon(core.own.node, core.own.incarnation)))
        is_calm = core.view.weighs_links and core.now_ns - self._stirred_ns >= _CALM_NS
        return core.now_ns + int((_CALM_BEACON_NS if is_calm else BEACON_NS) * (0.9 + 0.2 * core.rng.random()))

    def hears_beacons(self) -> bool:
        """Whether this transport casts."""
        return self.core.now_ns - self._heard_ns < _BEACONS_WORK_NS

    def asks_all(self) -> bool:
        """Whether no beacons say who is in reach. With `on`, where one word makes a mesh, none of many ends so."""
        return self.core.config.mesh == "auto" and not self.hears_beacons()

    def on_beacon(self, message: Beacon, source: Address) -> Member | None:
        """Somebody is in reach: a stranger is greeted. The member, where it is known in this life and not near."""
        core = self.core
        self._heard_ns = core.now_ns
        member = self._member(message)
        if member is None:
            if message.node == core.own.node:
                return None
            self._stirred_ns = core.now_ns
            is_new = message.node not in self._strangers
            if self.may_greet(message.node):
                core.port.hello(source, True)
            elif is_new and message.node in self._strangers and core.config.mesh == "auto":
                after_ns = _STRANGE_NS + int(core.rng.random() * _GREETED_WITHIN_NS)
                core.scheduler.at(core.now_ns + after_ns, self._greet, (message, source))
            return None
        self._strangers.pop(message.node, None)
        self._beacons[message.node] = core.now_ns
        if self._may_have_moved(member, source):
            core.port.hello(source, True)
        if member.where >= 0:
            self.member_ns = core.now_ns
        else:
            self._stirred_ns = core.now_ns
        return member if member.where < 0 and member.status != STATUS_LEFT else None

    def _may_have_moved(self, member: Member, source: Address) -> bool:
        """Whether a member is greeted where a beacon in its name came from: it is silent where it is known to be."""
        now_ns, heard_ns = self.core.now_ns, member.link.heard_ns
        if member.status == STATUS_LEFT or is_way(source, member.address) or now_ns - heard_ns < _MOVED_NS:
            return False
        greeted_ns, gap_ns = self._moved.get(member.node, (heard_ns, 0))
        if greeted_ns <= heard_ns:
            gap_ns = 0  # Something came of it.
        if now_ns - greeted_ns < gap_ns or not self._movers.take(now_ns):
            return False
        self._moved[member.node] = now_ns, min(max(_MOVED_NS, 2 * gap_ns), _MOVED_MAX_NS)
        return True

    def _member(self, message: Beacon) -> Member | None:
        """Whose beacon it is, where it is known in this life."""
        member = self.core.table.by_node.get(message.node)
        is_known = member is not None and message.incarnation >> BOOT_SHIFT <= member.incarnation >> BOOT_SHIFT
        return member if is_known else None

    def _greet(self, heard: tuple[Beacon, Address]) -> None:
        """A stranger was heard a while ago: if it still is one, and others are few, it is greeted."""
        message, source = heard
        if self._member(message) is None and self._greetings.take(self.core.now_ns):
            self.core.port.hello(source, True)

    def may_greet(self, node: bytes) -> bool:
        """Whether a stranger is greeted because of a beacon: it stays one, or nobody is near, and others are few."""
        now_ns = self.core.now_ns
        since_ns = self._strangers.get(node, now_ns)
        oldest = next(iter(self._strangers), node)
        if len(self._strangers) >= _STRANGERS_MAX and now_ns - self._strangers[oldest] >= _STRANGER_KEPT_NS:
            del self._strangers[oldest]
        if len(self._strangers) < _STRANGERS_MAX:
            self._strangers.setdefault(node, now_ns)
        is_strange = now_ns - since_ns >= _STRANGE_NS or not self.core.table.reachable
        return is_strange and self._greetings.take(now_ns)

    def may_ask(self, member: Member) -> bool:
        """Whether a member is asked because of a beacon: it has not been in vain of late, and others are few."""
        now_ns = self.core.now_ns
        asked_ns, gap_ns = self._asked.get(member.node, (0, 0))
        if asked_ns <= member.link.replied_ns:
            gap_ns = 0  # It answered, whatever else asked it: a beacon is a reason to ask again.
        if now_ns - asked_ns < gap_ns or not self._asks.take(now_ns):
            return False
        self._asked[member.node] = now_ns, min(max(_ASK_AGAIN_NS, 2 * gap_ns), _ASK_AGAIN_MAX_NS)
        return True

    def answered(self, member: Member) -> int:
        """A member answered: its process has not ended. Pings that were lost, where its link was lost just before.

        Of a link that is lost nobody else counts them: where the air is full, and links come and go, those that answer
        at once would be all that is learnt of losses, and all others look like deaths.
        """
        self._saw_gone.pop(member.node, None)
        misses, lost_ns, boot = self._missed.pop(member.node, (0, 0, 0))
        is_there = self.core.now_ns - lost_ns <= _MISSED_NS and boot == member.incarnation >> BOOT_SHIFT
        return misses if is_there else 0

    def seems_in_reach(self, member: Member, within_ns: int) -> bool:
        """Whether a member was heard directly so lately, or a beacon in its name."""
        since_ns = self.core.now_ns - within_ns
        return max(member.link.heard_ns, self._beacons.get(member.node, -1)) >= since_ns

    def in_reach(self, member: Member, within_ns: int) -> bool:
        """Whether a member was heard directly so lately: a beacon counts of who has answered not long ago.

        Whoever has fallen silent is out of reach until it answers again: its last answer was by a link that is lost.
        """
        replied_ns = member.link.replied_ns
        is_proven = replied_ns > self._silent.get(member.node, -1) and self.core.now_ns - replied_ns < _PROVEN_NS
        return is_proven and self.seems_in_reach(member, within_ns)

    def has_spoken(self, member: Member, within_ns: int) -> bool:
        """Whether a frame that a member has sealed came from itself so lately, and it has not fallen silent before."""
        link = member.link
        is_silent = self._silent.get(member.node, -1) >= max(link.replied_ns, 0)
        return self.core.now_ns - link.heard_ns <= within_ns and not is_silent

    def keys(self) -> dict[Key, int]:
        """Whom this node hears, and what each link costs."""
        return {member.node[:KEY_BYTES]: link_cost(member.link.loss) for member in self.core.table.reachable}

    def gain(self, member: Member) -> bool:
        """A member answered directly; whether it is near from now on and was not."""
        if member.where >= 0:
            return False
        self.core.table.set_reachable(member, True)
        self._stirred_ns = self.core.now_ns
        self.core.counters["near_gained"] += 1
        return True

    def fell_silent(self, member: Member) -> None:
        """The link to a member that was near is lost."""
        self._silent[member.node] = self.core.now_ns

    def lose(self, member: Member, *, gone: bool) -> bool:
        """A member is silent, or its host refuses; whether it was near."""
        if gone:
            self._saw_gone.pop(member.node, None)
            self._saw_gone[member.node] = member.incarnation >> BOOT_SHIFT, self.core.now_ns
        if member.link.probe is not None:
            if not gone:
                self._missed[member.node] = (
                    member.link.probe.attempts,
                    self.core.now_ns,
                    member.incarnation >> BOOT_SHIFT,
                )
            member.link.probe.over = True
            member.link.probe = None
        if member.where < 0:
            return False
        self.core.table.set_reachable(member, False)
        self._stirred_ns = self.core.now_ns
        self.core.counters["near_lost"] += 1
        return True

    def forget(self, node: bytes) -> None:
        """Drop what is kept of a member."""
        self._beacons.pop(node, None)
        self._asked.pop(node, None)
        self._moved.pop(node, None)
        self._saw_gone.pop(node, None)
        self._silent.pop(node, None)
        self._frozen.pop(node, None)
        self._missed.pop(node, None)

    def freezes(self, member: Member) -> bool:
        """A member does not answer, and its host does; whether that is new."""
        is_new = not self.is_frozen(member)
        self._frozen[member.node] = self.core.now_ns
        return is_new

    def is_frozen(self, member: Member) -> bool:
        """Whether a member does not answer, and its host does."""
        return self.core.now_ns - self._frozen.get(member.node, -(2**62)) < _FROZEN_NS

    def frozen(self) -> list[Member]:
        """Those that are near and frozen."""
        return [member for member in self.core.table.reachable if self.is_frozen(member)]

    def saw_gone(self, member: Member) -> bool:
        """Whether this node has seen that no process of the member's present life listens."""
        return self._saw_gone.get(member.node, (-1, 0))[0] == member.incarnation >> BOOT_SHIFT

    def is_reached(self, member: Member) -> None:
        """A chain leads to a member: its host's refusal counts no more where others have heard it for so long since."""
        if self.core.now_ns - self._saw_gone.get(member.node, (0, self.core.now_ns))[1] > _THERE_AFTER_ALL_NS:
            del self._saw_gone[member.node]

    def gone(self) -> list[Key]:
        """The lives whose end this node has seen, and that nothing has followed."""
        held = self.core.table.by_node
        members = (held[node] for node in self._saw_gone if node in held)
        ended = [life_key(member.node, member.incarnation >> BOOT_SHIFT) for member in members if self.saw_gone(member)]
        return sorted(ended[-_GONE_MOST:])
