"""Whether this node is heard: what tells a broken link from an own silence.

A node whose frames are lost on every path hears all and is answered by nobody; each of its links looks as if it led one
way. Said once it is heard again, that would put all others in doubt. So a link that is silent is broken only where it
stays so after somebody else has heard this node, and who is answered by nobody reports none.
"""

from swarmd_protocols.ids import NodeId
from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.members import Member, Probe
from swarmd_protocols.swim.messages import LINK_INDIRECT, LINK_ONE_WAY
from swarmd_protocols.swim.rules import attempts_needed

_UNHEARD = 3
"""Who has asked so many in vain, or all there are, and is answered by nobody, is not heard itself."""
_ERROR_STILL = 2e-2
"""Accepted probability that losses alone explain that a link is silent still."""


class Voice:
    """What others have answered since they were asked."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._heard_ns = 0
        """When the newest question was asked that somebody has answered: then this node was heard."""
        self._unanswered: set[NodeId] = set()
        """Whom it has asked since then: up to `_UNHEARD`."""

    def asked(self, member: Member) -> None:
        """A member that is in no doubt was asked."""
        if len(self._unanswered) < _UNHEARD:
            self._unanswered.add(member.node)

    def answered(self, sent_ns: int) -> None:
        """Somebody has answered what was asked then."""
        self._heard_ns = max(self._heard_ns, sent_ns)
        self._unanswered.clear()

    def weigh(self, probe: Probe) -> None:
        """From here on a probe's silence speaks of its link, should somebody have heard this node since it began."""
        if probe.unproven < 0 and self._heard_ns >= probe.started_ns:
            probe.unproven = probe.attempts

    def is_the_links(self, probe: Probe, loss: float) -> bool:
        """Whether a silent link is broken.

        One that was found broken while others answered stays so; where there is nobody else, nobody else can answer.

        Args:
            probe: That came to nothing so far.
            loss: Probability that a question or its answer gets lost.
        """
        if probe.indirect_heard or probe.member.link.quality in (LINK_ONE_WAY, LINK_INDIRECT):
            return True
        if len(self.core.table.reachable) < 2:
            return True
        return 0 <= probe.unproven <= probe.attempts - attempts_needed(loss, _ERROR_STILL)

    def is_unheard(self, probe: Probe) -> bool:
        """Whether so many were asked in vain since a probe began that it is this node that nobody hears."""
        return probe.unproven < 0 and len(self._unanswered) >= min(_UNHEARD, len(self.core.table.reachable))
