"""What share of round trips is lost, as far as answers tell: members that are gone cannot spoil it."""

from swarmd_protocols.swim.core import Core

_LEARN, _LEARN_QUICK, _LEARN_QUICK_BELOW = 0.02, 0.05, 0.3
"""Weight of one answer or miss in the smoothed loss; the quicker one below this loss, so that new losses are known
before they look like deaths."""


def missed(core: Core, pings: int) -> float:
    """So many pings to who is there were not answered; what the next answer weighs."""
    rate = _LEARN_QUICK if core.round_trip_loss < _LEARN_QUICK_BELOW else _LEARN
    for _ in range(pings):
        core.round_trip_loss += (1 - core.round_trip_loss) * rate
    return rate
