"""Noise on what a member tells, where a fleet asks for it, and what that is worth as an ε. Pure.

Each round a member's change is clipped to a length and a Gaussian of `noise` times that length is added to every
weight; which entries are told is decided afterwards, from what is noisy already. So what a member says in all rounds
together tells apart a device with its labels from the same device without any by no more than (ε, δ). The ε is that of
the whole session, of one device, against everybody who reads what it says; a session on another model spends anew.

Source: Bun and Steinke, Concentrated Differential Privacy (2016): the Gaussian mechanism of sensitivity Δ and deviation
σ is Δ²/2σ²-zCDP (Prop. 1.6), these add up (Lemma 1.7), and ρ-zCDP is (ρ + 2·sqrt(ρ·ln(1/δ)), δ)-DP (Prop. 1.3).
"""

import math
from collections.abc import Sequence
from random import Random

import msgspec

from swarmd_protocols.errors import StateError

DELTA = 1e-5
"""The δ that an ε is said for."""


class Privacy(msgspec.Struct, frozen=True):
    """How a member's change is hidden."""

    length: float
    """Euclidean length that a change of weights is clipped to; above 0."""
    noise: float
    """Deviation of the noise on each weight, as a multiple of `length`; above 0."""

    def __post_init__(self) -> None:
        """Refuse what hides nothing."""
        if not (0 < self.length < math.inf and 0 < self.noise < math.inf):
            raise StateError(f"length {self.length} and noise {self.noise}: both must be above 0")


def epsilon(noise: float, rounds: int, delta: float = DELTA) -> float:
    """The ε of a whole session.

    Args:
        noise: `Privacy.noise`.
        rounds: Of the session.
        delta: The δ, 0 to 1.

    >>> round(epsilon(noise=1.0, rounds=1), 4)
    5.2985
    """
    rho = rounds / (2.0 * noise * noise)
    return rho + 2.0 * math.sqrt(rho * math.log(1.0 / delta))


def hidden(change: Sequence[float], privacy: Privacy, rng: Random) -> list[float]:
    """A change as it may be told.

    Args:
        change: Of every weight; numbers.
        privacy: How.
        rng: In a daemon that of the system: who can guess it takes the noise away again.
    """
    length = math.sqrt(math.fsum(one * one for one in change))
    share = min(1.0, privacy.length / length) if length > 0 else 1.0
    deviation = privacy.length * privacy.noise
    return [one * share + rng.gauss(0.0, deviation) for one in change]
