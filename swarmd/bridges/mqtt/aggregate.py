"""Hourly counts for a cloud that must not learn about single things: differential privacy with an accounted budget.

What is protected is the presence of one object of the picture. It has one label, one owner (the lowest node id among
its observers) and one hour (that of its first sight, in swarm time), so it changes one count of one device in one hour
by 1: all devices and all hours together spend epsilon on it once, by parallel composition. Who is seen as several
objects is protected by several times epsilon; a budget for the day bounds how many hours are told. Every known label is
told, seen or not. The noise is drawn exactly, with integers only, because floating-point noise gives away its input
(Mironov 2012).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.clock import EPOCH_2020_NS, stamp_ms
from swarmd_protocols.state.observations import ObjectView

WINDOW_S = 3600
"""Seconds of one count: an hour, as utilities and dashboards bill and draw."""
GRACE_S = 60
"""An hour is told this long after its end: what peers saw in it has arrived."""
WINDOWS_A_DAY = 24
"""Windows over which the day's epsilon is spent."""
EXPIRED_MAX = 10_000
"""Objects of the hour that expired before its end; more are not counted."""

RandBelow = Callable[[int], int]


def _is_rarer(gamma: Fraction, below: RandBelow) -> bool:
    """True with probability exp(-gamma), for gamma in [0, 1]."""
    count = 1
    while below(gamma.denominator * count) < gamma.numerator:
        count += 1
    return count % 2 == 1


def discrete_laplace(epsilon: Fraction, below: RandBelow) -> int:
    """One draw with P(x) proportional to exp(-epsilon * |x|): noise for a count of sensitivity 1.

    Args:
        epsilon: > 0.
        below: Gives uniform integers in [0, n); a cryptographic source in production.

    Returns:
        The noise.

    Source:
        Canonne, Kamath, Steinke, The Discrete Gaussian for Differential Privacy (2020), algorithms 1 and 2.
    """
    scale = epsilon.denominator
    while True:
        part = below(scale)
        if not _is_rarer(Fraction(part, scale), below):
            continue
        whole = 0
        while _is_rarer(Fraction(1), below):
            whole += 1
        size = (part + scale * whole) // epsilon.numerator
        is_negative = below(2) == 1
        if not (is_negative and size == 0):
            return -size if is_negative else size


def windows_told(epsilon: Fraction, day_epsilon: Fraction) -> int:
    """How many hours of a day the budget pays for; 0 as budget means no bound.

    >>> windows_told(Fraction(1, 10), Fraction(1)), windows_told(Fraction(1), Fraction(0))
    (10, 24)
    """
    return WINDOWS_A_DAY if not day_epsilon else min(WINDOWS_A_DAY, int(day_epsilon / epsilon))


def is_told(window: int, told: int) -> bool:
    """Whether this hour (since 1970) is one of the `told` of its day: spread evenly, the same after every restart.

    >>> sum(is_told(hour, 5) for hour in range(24))
    5
    """
    hour = window % WINDOWS_A_DAY
    return hour * told // WINDOWS_A_DAY != (hour + 1) * told // WINDOWS_A_DAY


def window_of(stamp: int) -> int:
    """The hour since 1970 of a swarm-time stamp."""
    return (stamp_ms(stamp) // 1000 + EPOCH_2020_NS // 1_000_000_000) // WINDOW_S


@dataclass(frozen=True, slots=True)
class Privacy:
    """What the configuration asks for."""

    epsilon: Fraction
    """For each object, > 0."""
    day_epsilon: Fraction
    """Sum over the hours of a day; 0: no bound."""
    scope: str
    """"own": objects that this node owns; "swarm": all, for the one node that speaks for its swarm."""


class HourlyCounts:
    """Counts objects by the hour of their first sight and tells each hour at most once."""

    def __init__(self, node: NodeId, privacy: Privacy, below: RandBelow, now_s: float) -> None:
        """Start in the hour of `now_s`, seconds since 1970; earlier ones are never told."""
        self._node = node
        self._privacy = privacy
        self._below = below
        self._window = int(now_s) // WINDOW_S
        self._expired: dict[str, ObjectView] = {}

    def expired(self, view: ObjectView) -> None:
        """Remember an object that left the picture: it was there in its hour."""
        if window_of(view.first_hlc) >= self._window and len(self._expired) < EXPIRED_MAX:
            self._expired[view.object_id] = view

    def wait_s(self, now_s: float) -> float:
        """Seconds until the present hour may be told."""
        return max(0.0, (self._window + 1) * WINDOW_S + GRACE_S - now_s)

    def close(self, objects: Sequence[ObjectView], labels: Sequence[str], now_s: float) -> Mapping[str, object] | None:
        """End the hour that is due.

        Args:
            objects: The picture.
            labels: Every label that is told, whatever was seen.
            now_s: Seconds since 1970.

        Returns:
            The message; None when nothing is due or the day's budget does not pay for this hour.
        """
        if self.wait_s(now_s) > 0:
            return None
        window, self._window = self._window, max(self._window + 1, (int(now_s) - GRACE_S) // WINDOW_S)
        views = self._expired | {view.object_id: view for view in objects}
        self._expired = {key: one for key, one in self._expired.items() if window_of(one.first_hlc) >= self._window}
        privacy = self._privacy
        told = windows_told(privacy.epsilon, privacy.day_epsilon)
        if not is_told(window, told):
            return None
        counts = dict.fromkeys(sorted(labels), 0)
        for view in views.values():
            is_ours = privacy.scope == "swarm" or min(view.observers, default=None) == self._node
            if is_ours and view.label in counts and window_of(view.first_hlc) == window:
                counts[view.label] += 1
        # Rounding up to 0 is done on what is private already, and costs nothing.
        noisy = {key: max(0, count + discrete_laplace(privacy.epsilon, self._below)) for key, count in counts.items()}
        return {
            "epsilon": float(privacy.epsilon),
            "epsilon_day": float(privacy.epsilon * told),
            "scope": privacy.scope,
            "window_start_s": window * WINDOW_S,
            "window_s": WINDOW_S,
            "counts": noisy,
        }
