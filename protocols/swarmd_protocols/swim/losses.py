"""What answers tell of round trips: what share of them is lost, and how long they take."""

from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.members import Member

_LEARN, _LEARN_QUICK, _LEARN_QUICK_BELOW = 0.02, 0.05, 0.3
"""Weight of one answer or miss in the smoothed loss; the quicker one below this loss, so that new losses are known
before they look like deaths."""


def missed(core: Core, pings: int) -> float:
    """So many pings to who is there were not answered; what the next answer weighs."""
    rate = _LEARN_QUICK if core.round_trip_loss < _LEARN_QUICK_BELOW else _LEARN
    for _ in range(pings):
        core.round_trip_loss += (1 - core.round_trip_loss) * rate
    return rate


def trip_ns(core: Core, member: Member) -> int:
    """What a member takes to answer; as long as all do, where it has not been probed yet. 0 where nobody has."""
    return member.link.rtt_ns or core.rtt_ns
