"""What is wrong with the link to the autopilot, and what changed on it, in words; no I/O.

Of what is wrong a person is told after `PATIENCE_S`, not earlier; of changes at once, at a bounded rate.
"""

from collections.abc import Mapping

from swarmd.rates import TokenBuckets

PATIENCE_S = 5.0
"""Seconds that a condition lasts before it is an alert: five heartbeats, a receiver that loses one epoch."""

CHANGES_PER_S, CHANGES_BURST = 0.1, 5
"""How often one thing's changes are told: whoever is on the link can make an autopilot's mode change all the time."""


class Changes:
    """What is to be written down about one autopilot."""

    def __init__(self) -> None:
        """Nothing is known."""
        self._told: dict[str, str] = {}
        self._buckets = TokenBuckets(CHANGES_PER_S, CHANGES_BURST, 8)

    def seen(self, subject: str, value: str, now_ns: int) -> str:
        """What to say of a thing that has a value; "" where nothing is new, or where it was told too often.

        Args:
            subject: `link`, `mode`, `fix` or `arming`.
            value: In words; "" where it is not known.
            now_ns: Monotonic.
        """
        if not value or self._told.get(subject) == value or not self._buckets.take(subject, now_ns):
            return ""
        before = self._told.get(subject)
        self._told[subject] = value
        return value if before is None else f"{value}; it was {before}"


class LinkWatch:
    """Which alerts stand about one autopilot."""

    def __init__(self, connection: str, wanted: int) -> None:
        """Nothing has been heard.

        Args:
            connection: The link, for people.
            wanted: System id of the vehicle that is followed; 0: the first that speaks.
        """
        self._connection = connection
        self._wanted = wanted
        self._began_s: float | None = None
        self._heard_s: float | None = None
        self._others: dict[int, float] = {}
        self._fix_s: float | None = None
        self._posed_s: float | None = None

    def heartbeat(self, system: int, now_s: float) -> None:
        """An autopilot speaks."""
        if self._wanted in (0, system):
            self._heard_s = now_s
        else:
            self._others = {system: now_s}

    def pose(self, *, has_fix: bool, now_s: float) -> None:
        """It said where it is."""
        self._posed_s = now_s
        if has_fix:
            self._fix_s = now_s

    def alerts(self, now_s: float) -> Mapping[str, str]:
        """Code to what is wrong; "" where it is well."""
        if self._began_s is None:
            self._began_s = now_s
        silent_s = now_s - (self._began_s if self._heard_s is None else self._heard_s)
        is_silent = silent_s > PATIENCE_S
        others = [system for system, at_s in self._others.items() if now_s - at_s <= PATIENCE_S]
        is_other = is_silent and bool(others)
        without_s = now_s - (self._began_s if self._fix_s is None else self._fix_s)
        has_no_fix = not is_silent and without_s > PATIENCE_S
        what = "no position at all" if self._posed_s is None else "a position without a fix"
        return {
            "wrong-sysid": f"system {others[0]} speaks on {self._connection}, not {self._wanted}" if is_other else "",
            "autopilot-silent": f"no heartbeat on {self._connection}" if is_silent and not is_other else "",
            "no-fix": f"the autopilot gives {what}" if has_no_fix else "",
        }
