"""A node's clocks: an integer map between virtual time and what the node's own oscillator says.

The monotonic clock starts anywhere at each boot, never goes back, and runs fast or slow by parts per billion. The
wall clock is the monotonic one plus an offset that people and GPS receivers step about; no protocol may trust it.
"""

from dataclasses import dataclass

BILLION = 1_000_000_000


class NodeClock:
    """One node's monotonic and wall clock, in integer nanoseconds.

    Args:
        boot_ns: Virtual time of the boot.
        base_ns: What the monotonic clock says at boot; >= 0.
        drift_ppb: Rate error, parts per billion; positive runs fast.
        wall_offset_ns: Wall clock minus virtual time at boot.
    """

    __slots__ = ("_base_ns", "_boot_ns", "drift_ppb", "wall_offset_ns")

    def __init__(self, boot_ns: int, base_ns: int, drift_ppb: int, wall_offset_ns: int) -> None:
        self._boot_ns = boot_ns
        self._base_ns = base_ns
        self.drift_ppb = drift_ppb
        self.wall_offset_ns = wall_offset_ns

    def local_ns(self, virtual_ns: int) -> int:
        """What the node's monotonic clock says at this virtual time."""
        elapsed = virtual_ns - self._boot_ns
        if self.drift_ppb:
            elapsed += elapsed * self.drift_ppb // BILLION
        return self._base_ns + elapsed

    def virtual_ns(self, local_ns: int) -> int:
        """The first virtual time at which the node's monotonic clock says at least this."""
        elapsed = local_ns - self._base_ns
        if self.drift_ppb:
            elapsed = -(-elapsed * BILLION // (BILLION + self.drift_ppb))
        return self._boot_ns + elapsed

    def wall_ns(self, virtual_ns: int) -> int:
        """What the node's wall clock says."""
        return virtual_ns + self.wall_offset_ns + (virtual_ns - self._boot_ns) * self.drift_ppb // BILLION

    def set_drift(self, virtual_ns: int, drift_ppb: int) -> None:
        """Change the rate from now on without a jump of the monotonic clock."""
        self._base_ns = self.local_ns(virtual_ns)
        self._boot_ns = virtual_ns
        self.drift_ppb = drift_ppb

    def step_wall(self, step_ns: int) -> None:
        """Step the wall clock, as a bad GPS fix or an operator does."""
        self.wall_offset_ns += step_ns


@dataclass(slots=True)
class Oscillator:
    """How wrong a device's clocks are, whatever process runs on it."""

    drift_ppb: int = 0
    """Rate error while no fault changes it, parts per billion; positive runs fast."""
    wall_step_ns: int = 0
    """Wall clock minus virtual time at a boot."""
