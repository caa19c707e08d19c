"""What all that is held says of a member that no chain of reports leads to.

    reported lately   by the last reports of both sides (`graph.fate`)
    silent for long   and somebody reached says that it hears it: one of both is wrong, so that it is unreachable

What is told of one that is cut off for long is in `swim/waits.py`.
"""

from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.members import Member
from swarmd_protocols.swim.mesh.graph import KEY_BYTES, Fate, fate, life_key
from swarmd_protocols.swim.mesh.near import Near
from swarmd_protocols.swim.mesh.reports import NearReports
from swarmd_protocols.swim.mesh.routes import Routes
from swarmd_protocols.swim.messages import STATUS_AWAY
from swarmd_protocols.swim.rules import BOOT_SHIFT


class Fates:
    """Weighs members that are not reached."""

    def __init__(self, core: Core, near: Near, reports: NearReports, routes: Routes) -> None:
        self.core = core
        self._near = near
        self._reports = reports
        self._routes = routes

    def of(self, member: Member) -> Fate:
        """What is believed of a member that is not reached."""
        is_gone = self.is_gone(member)
        if not is_gone and not (self.core.table.reachable and self._reports.is_of_this_life(member)):
            return Fate.UNREACHABLE  # This node is alone, or nobody knows who could hear the member.
        if not is_gone and not self._reports.is_fresh(member) and self._is_claimed(member):
            return Fate.UNREACHABLE
        return fate(member.node[:KEY_BYTES], self._routes.costs, self._reports.hearers(member), is_gone)

    def is_away(self, member: Member) -> bool:
        """Whether a member has announced that it is away now: that it is reached by nobody says nothing."""
        return member.status == STATUS_AWAY and self.core.now_ns < member.away_until_ns

    def is_gone(self, member: Member) -> bool:
        """Whether this node, or one that the member has reported itself and that is reached, saw this life's end.

        Who is reached takes back what a later life has overtaken; what others said last may be of any time.
        """
        if self._near.saw_gone(member):
            return True
        life = life_key(member.node, member.incarnation >> BOOT_SHIFT)
        named = self._reports.heard.get(member.node, {})
        return any(
            life in ended and node[:KEY_BYTES] in named and node[:KEY_BYTES] in self._routes.costs
            for node, ended in self._reports.gone.items()
        )

    def _is_claimed(self, member: Member) -> bool:
        """Whether somebody who is reached says that it hears a member.

        That one may lie, or hear a member whose words somebody between keeps back: neither is known to have failed.
        """
        key, costs = member.node[:KEY_BYTES], self._routes.costs
        return any(
            key in others and node != member.node and node[:KEY_BYTES] in costs
            for node, others in self._reports.heard.items()
        )
