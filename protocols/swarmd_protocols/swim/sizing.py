"""How many members the swarm has, where nobody knows them all: minima of random draws, gossiped epoch by epoch.

Each node draws 32 numbers from the exponential distribution; the least of N such draws is 1/N on average, and the least
of all is found by passing minima on. An epoch later everybody draws anew, so that those who left no longer count.

Source:
    Mosk-Aoyama and Shah, "Computing separable functions via gossip" (PODC 2006).
"""

from collections import deque
from math import log2
from random import Random

SLOTS = 32
"""Draws a node makes: the estimate is off by 1/sqrt(32 * epochs kept), some 10 % over three."""
EPOCHS = 65_536
"""Epochs are counted modulo this: two bytes on the wire, 22 days."""
_STEPS = 8
"""Steps an octave of a quantized draw: 4 % each, small beside the estimate's own error."""
_OFFSET = 4
"""The largest draw told apart is 2**4; smaller ones, down to 2**-28, say how large a swarm is."""
_KEPT = 3
"""Epochs that the estimate is taken over."""


def quantize(draw: float) -> int:
    """A draw as one byte: eight steps an octave, the smaller the draw the larger the byte.

    >>> quantize(1.0), quantize(2.0**-10)
    (32, 112)
    """
    return max(0, min(255, round((_OFFSET - log2(max(draw, 1e-12))) * _STEPS)))


def value_of(step: int) -> float:
    """The draw that a byte stands for.

    >>> value_of(32)
    1.0
    """
    return float(2.0 ** (_OFFSET - step / _STEPS))


def estimated_size(minima: list[bytes]) -> int:
    """The number of nodes behind the minima of some epochs; at least 1.

    >>> estimated_size([bytes([32 + 80] * 32)])
    992
    """
    total = sum(value_of(step) for epoch in minima for step in epoch)
    return max(1, round((len(minima) * SLOTS - 1) / total))


class SizeSketch:
    """The minima of the present epoch and of the last few."""

    __slots__ = ("_begun_ns", "_estimate", "_length_ns", "_past", "_rng", "changed_ns", "epoch", "minima")

    def __init__(self, rng: Random, length_ns: int) -> None:
        """Nothing is known before `begin`.

        Args:
            rng: Source of the draws.
            length_ns: How long an epoch lasts.
        """
        self._rng = rng
        self._length_ns = length_ns
        self._past: deque[bytes] = deque(maxlen=_KEPT)
        self._estimate: int | None = None
        self._begun_ns = 0
        self.epoch = 0
        self.minima = bytes(SLOTS)
        self.changed_ns = 0
        """When the minima last changed: whoever was told before that is told again."""

    def begin(self, epoch: int, now_ns: int) -> None:
        """Draw for an epoch; the one before counts if it lasted long enough for its minima to get around."""
        if any(self.minima) and now_ns - self._begun_ns >= self._length_ns // 2:
            self._past.append(self.minima)
            self._estimate = estimated_size(list(self._past))
        self.epoch = epoch
        self._begun_ns = self.changed_ns = now_ns
        self.minima = bytes(quantize(self._rng.expovariate(1.0)) for _ in range(SLOTS))

    def clear(self) -> None:
        """Forget everything."""
        self._past.clear()
        self._estimate = None
        self.minima = bytes(SLOTS)

    def tick(self, now_ns: int) -> None:
        """Begin the next epoch when this one is over."""
        if now_ns - self._begun_ns >= self._length_ns:
            self.begin((self.epoch + 1) % EPOCHS, now_ns)

    def merge(self, epoch: int, minima: bytes, now_ns: int) -> bool:
        """Take a neighbour's minima; True when this node knows smaller ones, so that it should answer."""
        ahead = (epoch - self.epoch) % EPOCHS
        if ahead >= EPOCHS // 2:
            return True
        if ahead:
            if self._past and now_ns - self._begun_ns < self._length_ns // 2:
                return False  # Whoever runs ahead cannot keep everybody from finishing an epoch.
            self.begin(epoch, now_ns)
        merged = bytes(map(max, self.minima, minima))
        if merged != self.minima:
            self.minima = merged
            self.changed_ns = now_ns
        return merged != minima

    @property
    def settled(self) -> bool:
        """Whether enough epochs are over for the estimate to be worth a decision."""
        return len(self._past) == _KEPT

    def running(self) -> int:
        """What the present epoch says so far: too little rather than too much, since minima still arrive."""
        return estimated_size([self.minima]) if any(self.minima) else 1

    def estimate(self) -> int | None:
        """Members of the swarm, this node included; None before the first epoch is over."""
        return self._estimate
