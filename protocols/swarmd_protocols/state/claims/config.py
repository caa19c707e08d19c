"""Settings of work claims; the same on every node."""

import msgspec


class ClaimConfig(msgspec.Struct, frozen=True):
    """Lease arithmetic. Safety needs `margin_ppm` >= the worst drift of a monotonic clock."""

    lease_ns: int = 30_000_000_000
    margin_ppm: int = 20_000
    """Holders stop this much earlier, observers free this much later."""
    settle_ns: int = 2_000_000_000
    """Time that a claim must stand unopposed before work begins, at least; longer where the way to others and back was
    measured to be, a renewal (`renew_ns`) at most."""
    squat_renewals: int = 30
    """Renewals at work without progress after which others ignore a holder; a renewal comes every third of a lease."""
    bundle: int = 2
    """The cell in work and those claimed ahead of it."""
    cells_max: int = 100_000
    battery_weight_cm: int = 5_000
    """How many centimetres of distance an empty battery costs in a bid."""

    def __post_init__(self) -> None:
        """Refuse settings that cannot be safe."""
        if not 0 < self.margin_ppm < 500_000 or self.lease_ns <= 0 or self.settle_ns < 0:
            raise ValueError(
                f"margin_ppm is {self.margin_ppm}, lease_ns {self.lease_ns}, settle_ns {self.settle_ns}: the margin "
                "must lie between 0 and 500,000 and the times must not be negative"
            )
        if not 1 <= self.bundle <= 2:
            raise ValueError(f"bundle is {self.bundle}; it must be 1 or 2")

    @property
    def holder_ns(self) -> int:
        """How long a holder may work after its own renewal."""
        return self.lease_ns - self.lease_ns * self.margin_ppm // 1_000_000

    @property
    def observer_ns(self) -> int:
        """How long an observer waits after it first learned of a renewal."""
        return self.lease_ns + self.lease_ns * self.margin_ppm // 1_000_000

    @property
    def renew_ns(self) -> int:
        """How often a holder renews."""
        return self.lease_ns // 3
