"""Who is asked to be near, and when: at once while few are near; in turn where enough are, and nobody leads to it.

in reach, few near                       asked at once
in reach, enough near, nobody leads      asked at once by whom it names in its report, by others within `_TURN_NS`
in reach, enough near, it names this     asked at once, where few of those that are near do
it answers                               near, where it is still wanted, and it was its turn
"""

from swarmd_protocols.channel.bucket import TokenBucket
from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.members import Member
from swarmd_protocols.swim.mesh.graph import KEY_BYTES
from swarmd_protocols.swim.mesh.near import NEAR_MAX, NEAR_MOST, Near
from swarmd_protocols.swim.mesh.reports import NearReports
from swarmd_protocols.swim.mesh.routes import Routes
from swarmd_protocols.swim.prober import Prober

_TURN_NS = 1_000_000_000
"""Whoever has enough near and hears one that nobody leads to asks it within so long, nanoseconds, at random, if still
nobody does by then: of forty that hear it a few take it, and its link is told by few. A link that both ends know is
told at once, so these wait only where it has reported none."""
_LOOKS_PER_S, _LOOKS_BURST = 2, 32
"""Near ones that are asked because one author hears them no more, per second, and at once: who moves at 15 m/s loses
one or two a second. Whoever says all the time that it hears others, or not, makes nobody busy."""
BOTH_WANTED = 3
"""A node wants so many near that say that they hear it: in a hall all choose eight of thirty, not each other, and a
chain leads over links alone that both ends report. With one of these a node was failed when that one fell silent."""


class Turns:
    """Beside `Near`, which keeps who is."""

    def __init__(self, core: Core, prober: Prober, near: Near, reports: NearReports, routes: Routes) -> None:
        self._core = core
        self._prober = prober
        self._near = near
        self._reports = reports
        self._routes = routes
        self._waiting: set[bytes] = set()
        """Members that this node asks in its turn, unless somebody leads to them by then."""
        self._asked: set[bytes] = set()
        """Members that it has asked so: they are near as soon as they answer."""
        self._looks: dict[bytes, TokenBucket] = {}
        """By author of reports, what is asked because of it."""

    def is_wanted(self, member: Member) -> bool:
        """Of many that are heard, a few are near; but who is not reached otherwise always may be.

        And who names this node, where few of those do that are near.
        """
        near = len(self._core.table.reachable)
        if near < NEAR_MAX or near >= NEAR_MOST:
            return near < NEAR_MAX
        return member.node[:KEY_BYTES] not in self._routes.costs or (self._names(member) and self._few_name())

    def consider(self, member: Member) -> None:
        """A member is in reach."""
        if not self.is_wanted(member):
            return
        if self._is_at_once(member):
            self._ask(member)
        elif member.node not in self._waiting:
            self._waiting.add(member.node)
            core = self._core
            core.scheduler.at(core.now_ns + int(_TURN_NS * core.rng.random()), self._is_due, member)

    def takes(self, member: Member) -> bool:
        """It has answered: whether it is near from now on. Where it is only wanted, it waits for its turn."""
        if not self.is_wanted(member):
            return False
        if self._is_at_once(member) or member.node in self._asked:
            return True
        self.consider(member)
        return False

    def over(self, member: Member) -> None:
        """Somebody leads to it, it is near, or it is forgotten: another time it waits again."""
        self._asked.discard(member.node)

    def may_look(self, author: bytes) -> bool:
        """Whether one more near member is asked at once because an author of reports hears it no more."""
        looks = self._looks.setdefault(author, TokenBucket(_LOOKS_PER_S, _LOOKS_BURST))
        return looks.take(self._core.now_ns)

    def forget(self, member: Member) -> None:
        """Drop what is kept of a member."""
        self.over(member)
        self._looks.pop(member.node, None)

    def _is_at_once(self, member: Member) -> bool:
        return len(self._core.table.reachable) < NEAR_MAX or self._names(member)

    def _names(self, member: Member) -> bool:
        """Whether a member says that it hears this node."""
        return self._core.own.node[:KEY_BYTES] in self._reports.heard.get(member.node, {})

    def _few_name(self) -> bool:
        return sum(map(self._names, self._core.table.reachable)) < BOTH_WANTED

    def _is_due(self, member: Member) -> None:
        self._waiting.discard(member.node)
        if self._core.table.by_node.get(member.node) is member and self._ask(member):
            self._asked.add(member.node)

    def _ask(self, member: Member) -> bool:
        if member.where >= 0 or not self.is_wanted(member) or not self._near.may_ask(member):
            return False
        self._prober.ping_once(member)
        return True
