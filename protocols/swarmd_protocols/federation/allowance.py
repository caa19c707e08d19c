"""What a sender may say: each frame once, and so many bytes a second."""

from collections.abc import Callable
from dataclasses import dataclass

from swarmd_protocols.ids import NodeId

WINDOW = 1_024
"""Numbers below a gateway's highest that may still come: frames of two paths overtake each other."""
TELL_NS = 1_000_000_000
"""Between two looks at one gateway's frames of a life that is over: old ones that are played back cost no more."""
RESERVES = 16
"""Gateways of a swarm that have a part of their own beyond its quota, the first that were heard beyond it and are
gateways still: a sixteenth of the quota's rate each, so all together have as much again; as many as `shares.SHARES` has
work for."""
RESERVE_BURST_BYTES = 65_536
"""At once, or a sixteenth of the swarm's: two full frames, of which the first is what a gateway says of trust."""


@dataclass(slots=True)
class Numbers:
    """The frames of one sender that were there."""

    life: int = 0
    highest: int = -1
    seen: int = 0
    """Bit k: `highest - k` was there."""
    told_ns: int = -TELL_NS
    """When a frame of a life that was over was answered last."""

    def is_copy(self, life: int, number: int) -> bool:
        """Whether it was there, or is too old to tell."""
        if life != self.life:
            return life < self.life
        back = self.highest - number
        return back >= 0 and (back >= WINDOW or bool(self.seen >> back & 1))

    def add(self, life: int, number: int) -> None:
        """It is there."""
        if life > self.life:
            self.life, self.highest, self.seen = life, number, 1
        elif number > self.highest:
            self.seen = ((self.seen << min(number - self.highest, WINDOW)) | 1) & ((1 << WINDOW) - 1)
            self.highest = number
        else:
            self.seen |= 1 << (self.highest - number)

    @classmethod
    def restored(cls, life: int, highest: int) -> "Numbers":
        """As an earlier run kept it: what was below counts as seen. What was lost of it comes under other numbers."""
        return cls(life, highest, (1 << WINDOW) - 1)


class Allowance:
    """Bytes a second with a reserve; it may go into debt by one frame."""

    __slots__ = ("_at_ns", "_burst", "_bytes_s", "_left")

    def __init__(self, bytes_s: int, burst: int) -> None:
        self._bytes_s, self._burst = bytes_s, burst
        self._left = float(burst)
        self._at_ns = 0

    def pause_ms(self, now_ns: int) -> int:
        """Milliseconds until there is something left; 0 where there is.

        >>> one = Allowance(1_000, 500)
        >>> one.spend(1_500); one.pause_ms(0), one.pause_ms(2_000_000_000)
        (1001, 0)
        """
        self._left = min(self._burst, self._left + (now_ns - self._at_ns) * self._bytes_s / 1e9)
        self._at_ns = max(self._at_ns, now_ns)
        return 0 if self._left > 0 else min(3_600_000, 1 + round(-self._left * 1_000 / self._bytes_s))

    @property
    def left_bytes(self) -> float:
        """What there was at the last look, less what was taken since; below zero where it is owed."""
        return self._left

    def spend(self, count: int) -> None:
        """So many bytes were taken."""
        self._left -= count


class Reserves:
    """What each of a swarm's first gateways may say beyond its quota; never made anew, so that nobody begins again.

    Args:
        quota_bytes_s, burst_bytes: The swarm's quota.
    """

    __slots__ = ("_burst_bytes", "_bytes_s", "_held")

    def __init__(self, quota_bytes_s: int, burst_bytes: int) -> None:
        self._bytes_s = max(1, quota_bytes_s // RESERVES)
        self._burst_bytes = min(RESERVE_BURST_BYTES, burst_bytes // RESERVES)
        self._held: dict[NodeId, Allowance] = {}

    def of(self, gateway: NodeId, counts: Callable[[NodeId], bool] = lambda node: True) -> Allowance | None:
        """One gateway's; None: others were first.

        Args:
            gateway: Whose.
            counts: Whether one is a gateway still; who is none any more gives its part up where another needs it.
        """
        if gateway not in self._held:
            if len(self._held) >= RESERVES:
                self._held = {node: held for node, held in self._held.items() if counts(node)}
            if len(self._held) >= RESERVES:
                return None
            self._held[gateway] = Allowance(self._bytes_s, self._burst_bytes)
        return self._held[gateway]
