"""How long a member whose part of the swarm is cut off is waited for. Nothing may come that says what became of it.

    it hears nobody, by its own last word   it has failed `LONE_NS` after it was told unreachable
    otherwise                               it has failed `forget_ns` after that, and is forgotten as any that has

Time counts while this node hears somebody: who is alone may be what is cut off.
"""

from collections.abc import Callable

from swarmd_protocols.effects import MemberState
from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.members import Member
from swarmd_protocols.swim.seams import Judge

_S = 1_000_000_000
LONE_NS = 600 * _S
"""Who said last that it hears nobody has failed after so long without another word, nanoseconds. Where nobody could
hear it no silence is evidence, so that it may be well; a landed drone would be looked for by then, and whoever comes
back is found within a second, whatever was told."""
_LOOK_NS = 10 * _S
"""Those that are waited for are looked at so often, nanoseconds."""


class Waits:
    """Members that are unreachable, and since when a word of them is waited for."""

    def __init__(self, core: Core, judge: Judge, is_lone: Callable[[Member], bool]) -> None:
        self.core = core
        self._judge = judge
        self._is_lone = is_lone
        self._since: dict[bytes, int] = {}

    def begin(self, member: Member) -> None:
        """It was told that the member's part is cut off."""
        if not self._since:
            self.core.scheduler.at(self.core.now_ns + _LOOK_NS, self._look)
        self._since[member.node] = self.core.now_ns

    def _look(self, _: object) -> None:
        core = self.core
        for node, since_ns in list(self._since.items()):
            member = core.table.by_node.get(node)
            if member is None or member.state is not MemberState.UNREACHABLE:
                del self._since[node]
            elif not core.table.reachable:
                self._since[node] = core.now_ns
            elif self._is_over(member, core.now_ns - since_ns):
                del self._since[node]
                member.failed = True
                core.counters["failures"] += 1
                self._judge.evaluate(member, "nothing was heard of it for long")
        if self._since:
            core.scheduler.at(core.now_ns + _LOOK_NS, self._look)

    def _is_over(self, member: Member, silent_ns: int) -> bool:
        return silent_ns >= self.core.config.forget_ns or (silent_ns >= LONE_NS and self._is_lone(member))
