"""What frozen members said last of one that has ended since is no link to it.

    somebody who heard it says that its life has ended    (`NearReports.gone`)
    another said last that it hears it                    `_ASKED_NS` later whoever hears that one asks it, once a life
    no answer, its host open                              marked as frozen in each report, while it is
    all that hear it and are awake mark it                what it said of that life leads to nobody

A frozen member says nothing new of anybody, so whom it alone still leads to may be as dead as others say. Nothing
hangs on how soon a word comes: whoever is heard by one that is awake is reached, whoever says that it has ended.
"""

from collections.abc import Mapping

from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.members import Member
from swarmd_protocols.swim.mesh.fates import Fates
from swarmd_protocols.swim.mesh.graph import KEY_BYTES, Heard, Key, awake, life_key, without
from swarmd_protocols.swim.mesh.near import Near
from swarmd_protocols.swim.mesh.reports import NearReports
from swarmd_protocols.swim.mesh.routes import Routes
from swarmd_protocols.swim.prober import Prober
from swarmd_protocols.swim.rules import BOOT_SHIFT

_ASKED_NS = 500_000_000
"""So long after somebody saw the end of a member those are asked that say that they hear it, nanoseconds: whoever is
awake looks for itself meanwhile, and says so, so that few deaths make anybody ask."""


class Frozen:
    """Beside `Near`, which knows who is."""

    def __init__(
        self, core: Core, prober: Prober, near: Near, reports: NearReports, fates: Fates, routes: Routes
    ) -> None:
        self._core = core
        self._prober = prober
        self._near = near
        self._reports = reports
        self._fates = fates
        self._routes = routes
        self._asked: dict[bytes, int] = {}
        """Of members that are said to have ended, the life for which those that say that they hear it are asked."""
        self._marked: set[bytes] = set()
        """Frozen members that are near, and on whose word hung whether one that is said to have ended is reached: who
        says that of another again and again makes this node report no more."""

    def marked(self) -> frozenset[Key]:
        """Whom this node's report marks as frozen."""
        marked = [member for member in self._near.frozen() if member.node in self._marked]
        self._marked = {member.node for member in marked}
        return frozenset(member.node[:KEY_BYTES] for member in marked)

    def forget(self, node: bytes) -> None:
        """Drop what is kept of a member."""
        self._asked.pop(node, None)

    def weigh(self, own: Key, links: dict[Key, Heard]) -> dict[Key, Heard]:
        """The links but those that only frozen members still tell of, to lives of which others saw the end.

        Args:
            own: This node.
            links: Those that both ends report; the routes know them.
        """
        ended = self._ended()
        for member in ended:
            self._mark_hearers(member)
            if self._asked.get(member.node) != member.incarnation >> BOOT_SHIFT:
                self._asked[member.node] = member.incarnation >> BOOT_SHIFT
                self._core.scheduler.at(self._core.now_ns + _ASKED_NS, self._ask_hearers, member)
        frozen = {node[:KEY_BYTES]: keys for node, keys in self._reports.frozen.items()}
        frozen[own] = frozenset(member.node[:KEY_BYTES] for member in self._near.frozen())
        if not ended or not any(frozen.values()):
            return links
        return without([member.node[:KEY_BYTES] for member in ended], links, self._awake(own, links, frozen))

    def _awake(self, own: Key, links: Mapping[Key, Heard], frozen: Mapping[Key, frozenset[Key]]) -> list[Key]:
        return [*awake(own, self._near.keys(), links, frozen)]

    def _ended(self) -> list[Member]:
        """Members that are reached, and of which somebody who heard them says that they have ended."""
        lives = {life for ended in self._reports.gone.values() for life in ended}
        return [member for member in self._core.table.by_node.values() if self._has_ended(member, lives)]

    def _has_ended(self, member: Member, lives: set[Key]) -> bool:
        if member.where >= 0 or member.node[:KEY_BYTES] not in self._routes.costs:
            return False
        life = life_key(member.node, member.incarnation >> BOOT_SHIFT)
        return (life in lives or self._near.saw_gone(member)) and self._fates.is_gone(member)

    def _hearers(self, member: Member) -> list[Member]:
        """Who is near, and by the last reports of both could hear a member."""
        keys = self._reports.hearers(member)
        return [hearer for hearer in self._core.table.reachable if hearer.node[:KEY_BYTES] in keys]

    def _mark_hearers(self, member: Member) -> None:
        for hearer in self._hearers(member):
            if self._near.is_frozen(hearer) and hearer.node not in self._marked:
                self._marked.add(hearer.node)
                self._reports.soon(lost=True)

    def _ask_hearers(self, member: Member) -> None:
        """It is reached still: are those awake that say that they hear it?"""
        if self._core.table.by_node.get(member.node) is member and member.node[:KEY_BYTES] in self._routes.costs:
            for hearer in self._hearers(member):
                self._prober.verify(hearer, hurried=True)
