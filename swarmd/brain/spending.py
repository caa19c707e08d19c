"""What borrowing may cost, from the owner's units to those of the protocol."""

from swarmd.config.lending import LendingSection
from swarmd_protocols.offload.purse import PRICE_MAX_MICRO_S, CostRule

_MICRO = 1_000_000
_HUNDREDTH_PPM = 10_000


def micro_s(price_hour: float) -> int:
    """A price of an hour as millionths a second, rounded up: what asks money is never free.

    >>> micro_s(0.0), micro_s(3.6), micro_s(1e-9)
    (0, 1000, 1)
    """
    return min(PRICE_MAX_MICRO_S, -(-round(price_hour * 1e9) * _MICRO // (3600 * 10**9)))


def cost_rule(settings: LendingSection) -> CostRule:
    """The keys of `[lending]` that say what may be spent."""
    return CostRule(
        round(settings.price_max * _MICRO),
        round(settings.price_hour_max * _MICRO),
        round(settings.mib_hour_max * (1 << 20)),
        round(settings.charge_max * _MICRO),
        round(settings.money_s * 1e9 / _MICRO),
        round(settings.charge_s * 1e9 / _HUNDREDTH_PPM),
    )
