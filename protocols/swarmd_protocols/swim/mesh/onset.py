"""When a full view becomes a mesh: by what this node has seen for itself, or by the word of two.

    three members live that it asked and has not heard    it has seen for itself
    two say that their view is a mesh                     one of them at least is honest, and has seen for itself
    one says so, and is not heard here                    it is asked at once; others hear it, this node does not
    one says so, and is heard here                        no mesh: it ends its own within seconds where nobody follows,
                                                          and a word that stays is named in an alarm

One member's word makes none: a stolen key could say it to everybody. Where `SwimConfig.mesh` is `on` it does, since
whoever set that says that the swarm is sparse.
"""

from swarmd_protocols.effects import Alarm
from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.members import Member
from swarmd_protocols.swim.mesh.near import Near
from swarmd_protocols.swim.mesh.reports import NearReports
from swarmd_protocols.swim.messages import LINK_INDIRECT
from swarmd_protocols.swim.prober import Prober

_S = 1_000_000_000
_HIDDEN_WANTED, _HIDDEN_NS = 3, 30 * _S
"""So many members that live and have not been heard here make the view a mesh, each for so long, nanoseconds, or
a third of all others: a pair or two that do not hear each other are reached through others where those are many."""
_HELPED, _FARTHER = 1, 2
"""What a member counts that a helper hears, and one that none hears: it is three hops away at least."""
_HEARD_NS = 2 * _S
"""Who was heard so lately, nanoseconds, need not be asked whether it is heard here."""
TELLERS_OF_A_MESH = 2
"""So many members make it one by their word."""
_CLAIM_NS = 30 * _S
"""Who alone has said for so long that its view is a mesh is named, nanoseconds: an honest one ends it after 4 s
(`mesh_view.py`), and a comparison tells everybody soon after."""
_NAMED_AGAIN_NS = 600 * _S
"""Shortest time between two such alarms, nanoseconds."""


def hidden_wanted(others: int) -> int:
    """Members hidden from a node that make its view a mesh.

    >>> [hidden_wanted(others) for others in (1, 2, 3, 4, 6, 7, 50)]
    [1, 1, 1, 2, 2, 3, 3]
    """
    return max(1, min(_HIDDEN_WANTED, (others + 2) // 3))


class Onset:
    """What a node with a full view has seen and been told of a swarm that is larger than its radio's reach."""

    def __init__(self, core: Core, near: Near, reports: NearReports, prober: Prober) -> None:
        self.core = core
        self._near = near
        self._reports = reports
        self._prober = prober
        self._hidden: dict[bytes, tuple[int, int]] = {}
        """Members that live and were not heard here: when that was noted, and what each counts."""
        self._claim: bytes | None = None
        """Who alone says so, since `_CLAIM_NS` before the timer that is set."""
        self._named_ns = -(2**62)

    def saw_hidden(self, member: Member, *, helped: bool) -> bool:
        """A member lives that was asked and is not heard here; whether the view is a mesh now."""
        now_ns, held = self.core.now_ns, self.core.table.by_node
        self._hidden[member.node] = now_ns, _HELPED if helped else _FARTHER
        for node, (noted_ns, _hops) in list(self._hidden.items()):
            other = held.get(node)
            if other is None or other.link.heard_ns >= noted_ns or now_ns - noted_ns > _HIDDEN_NS:
                del self._hidden[node]
        if sum(hops for _noted_ns, hops in self._hidden.values()) < hidden_wanted(len(held)):
            return self.core.config.mesh == "auto" and self.was_told()
        self._hidden.clear()
        return True

    def was_told(self) -> bool:
        """Whether the view is a mesh by what others say of theirs; a single one that may not be heard is asked.

        To be asked when one of them has just said so.
        """
        if self.core.config.mesh == "on":
            return True
        tellers = self._reports.tellers()
        # What those say that hear all is left of a mesh that has ended: none begins by it.
        claimants = [member for member in tellers if member.node not in self._reports.hears_all]
        if (claimants and len(tellers) >= TELLERS_OF_A_MESH) or any(map(self._is_hidden, claimants)):
            self._hidden.clear()
            return True
        for member in claimants:
            if self.core.now_ns - member.link.heard_ns > _HEARD_NS and self._near.may_ask(member):
                self._prober.verify(member)
            if self._claim is None:
                self.core.counters["mesh_claims_alone"] += 1
                self._claim = member.node
                self.core.scheduler.at(self.core.now_ns + _CLAIM_NS, self._name, None)
        return False

    def _is_hidden(self, member: Member) -> bool:
        noted_ns, _hops = self._hidden.get(member.node, (-1, 0))
        return noted_ns > member.link.heard_ns or member.link.quality == LINK_INDIRECT

    def _name(self, _: object) -> None:
        core, node = self.core, self._claim
        self._claim = None
        if core.view.weighs_links or core.now_ns - self._named_ns < _NAMED_AGAIN_NS:
            return
        for member in self._reports.tellers():
            if member.node == node:
                self._named_ns = core.now_ns
                text = f"member {member.name!r} ({node.hex()}) says that it does not hear the whole swarm: "
                core.port.emit(Alarm("mesh-claim", text + "it is heard here, nobody else says so; not believed"))
