"""What stands until a person has solved it: one table, raised and cleared by code; each change is an event."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from swarmd.events.kinds import ALERTS, Level
from swarmd.events.record import TEXT_MAX_CHARS, clean, iso

STANDING_MAX = 64
"""Alerts that stand at once: each code once a subject; more of them nobody reads."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One standing alert."""

    code: str
    subject: str
    """What it is about where there may be several of a code (a model, a broker); else ""."""
    text: str
    since_ms: int
    """UTC, milliseconds since 1970, by this device's clock."""

    @property
    def level(self) -> Level:
        """How grave it is."""
        return ALERTS[self.code].level

    @property
    def remedy(self) -> str:
        """What a person does."""
        return ALERTS[self.code].remedy

    def row(self) -> dict[str, Any]:
        """As JSON shows it."""
        return {
            "code": self.code,
            "subject": self.subject,
            "level": self.level.value,
            "text": self.text,
            "means": ALERTS[self.code].means,
            "remedy": self.remedy,
            "since": iso(self.since_ms),
        }

    def sentence(self) -> str:
        """For people: what is wrong and what to do."""
        about = f" ({self.subject})" if self.subject else ""
        return f"{self.code}{about}: {self.text}. {self.remedy}"


OnChange = Callable[[Alert, bool], None]
"""Told of an alert that was raised (True) or cleared (False)."""


class Alerts:
    """The standing alerts of this node."""

    def __init__(self, on_change: OnChange) -> None:
        """None stand."""
        self._standing: dict[tuple[str, str], Alert] = {}
        self._on_change = on_change

    def set(self, code: str, text: str, subject: str = "") -> None:
        """Raise an alert, or with an empty text clear it; saying the same again changes nothing but the text.

        Args:
            code: One of `kinds.ALERTS`.
            text: What is wrong, in words of this case; "": it is solved.
            subject: What it is about, where there may be several of a code.
        """
        assert code in ALERTS, f"{code} is no standing alert"
        if not text and not self._standing:
            return
        key = (code, clean(subject, 64))
        held = self._standing.get(key)
        if not text:
            if held is not None:
                del self._standing[key]
                self._on_change(held, False)
            return
        text = clean(text, TEXT_MAX_CHARS).rstrip(".")
        if held is None and len(self._standing) >= STANDING_MAX:
            return
        since_ms = time.time_ns() // 1_000_000 if held is None else held.since_ms
        alert = self._standing[key] = Alert(*key, text, since_ms)
        if held is None:
            self._on_change(alert, True)

    def stands(self, code: str) -> bool:
        """Whether any alert of this code stands."""
        return any(held == code for held, _ in self._standing)

    def standing(self) -> list[Alert]:
        """All of them, the gravest and oldest first."""
        grave = {Level.ERROR: 0, Level.WARNING: 1, Level.INFO: 2}
        return sorted(self._standing.values(), key=lambda one: (grave[one.level], one.since_ms, one.code))
