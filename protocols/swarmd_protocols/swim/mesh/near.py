"""Who is near: members that answer this node's own questions directly. A few of them, where many could.

beacon heard   of somebody who is wanted: it is asked
it answers     near: probed in turn, told news, reported
it is silent   as long as losses do not explain, and its host is silent too: near no more; nobody is accused
"""

from swarmd_protocols.channel.codec import encode
from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.members import Member
from swarmd_protocols.swim.mesh.graph import KEY_BYTES, Key, link_cost
from swarmd_protocols.swim.messages import Beacon
from swarmd_protocols.swim.rules import BOOT_SHIFT

_S = 1_000_000_000
BEACON_NS = 1 * _S
"""A node casts that it is here once so often, nanoseconds, a tenth sooner or later: who moves is met in a second."""
NEAR_MAX = 8
"""Members that are near at most: more of them say no more about who lives, and where fifty share the air their probes
and reports fill it (28 kB/s a node without a bound, 9 with it)."""
NEAR_MOST = 24
"""Members that are near at most, with those that nobody else leads to: as many as a report names."""
_BEACONS_WORK_NS = 5 * _S
"""Whoever has heard a beacon so lately, nanoseconds, is on a transport that casts, and need not ask far members."""


class Near:
    """The table's reachable members, while the view is a mesh."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._beacons: dict[bytes, int] = {}
        """When a beacon of each member was heard last."""
        self._heard_ns = -(2**62)
        self.gone: dict[Key, int] = {}
        """Whose host said that no process listens there, and when: what this node saw, and what others report."""
        self.saw_gone: set[Key] = set()
        """Those that this node saw and has not reported yet."""

    def say(self) -> int:
        """Cast that this node is here; gives when to do so again."""
        core = self.core
        core.port.cast(encode(Beacon(core.own.node, core.own.incarnation)))
        return core.now_ns + int(BEACON_NS * (0.9 + 0.2 * core.rng.random()))

    def hears_beacons(self) -> bool:
        """Whether this transport casts."""
        return self.core.now_ns - self._heard_ns < _BEACONS_WORK_NS

    def on_beacon(self, message: Beacon) -> Member | None:
        """Somebody is in reach; the member, where it is known in this life."""
        core = self.core
        self._heard_ns = core.now_ns
        member = core.table.by_node.get(message.node)
        if member is None or message.incarnation >> BOOT_SHIFT > member.incarnation >> BOOT_SHIFT:
            return None
        self._beacons[message.node] = core.now_ns
        return member

    def in_reach(self, member: Member, within_ns: int) -> bool:
        """Whether a member was heard directly so lately."""
        since_ns = self.core.now_ns - within_ns
        return max(member.link.heard_ns, self._beacons.get(member.node, -1)) >= since_ns

    def keys(self) -> dict[Key, int]:
        """Whom this node hears, and what each link costs."""
        return {member.node[:KEY_BYTES]: link_cost(member.link.loss) for member in self.core.table.reachable}

    def gain(self, member: Member) -> bool:
        """A member answered directly; whether it is near from now on and was not."""
        if member.where >= 0:
            return False
        self.core.table.set_reachable(member, True)
        self.core.counters["near_gained"] += 1
        return True

    def lose(self, member: Member, *, gone: bool) -> bool:
        """A member is silent, or its host refuses; whether it was near."""
        if gone:
            key = member.node[:KEY_BYTES]
            self.gone[key] = self.core.now_ns
            self.saw_gone.add(key)
        if member.link.probe is not None:
            member.link.probe.over = True
            member.link.probe = None
        if member.where < 0:
            return False
        self.core.table.set_reachable(member, False)
        self.core.counters["near_lost"] += 1
        return True

    def forget(self, node: bytes) -> None:
        """Drop what is kept of a member."""
        self._beacons.pop(node, None)
        self.gone.pop(node[:KEY_BYTES], None)
        self.saw_gone.discard(node[:KEY_BYTES])
