"""What stands until a person has solved it: one table, raised and cleared by code; each change is an event.

An alert may be acknowledged: somebody has seen it. That hides nothing; it holds as long as the alert stands, the first
word counts, and an alert that comes back after it was solved is new. `Acknowledged` survives a restart by the file of
events: what was acknowledged and not solved is given back, and holds for an alert that stands again soon.
"""

import time
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

import msgspec

from swarmd.events.kinds import ALERTS, Level
from swarmd.events.record import TEXT_MAX_CHARS, clean, iso

RESTORED_S = 600.0
"""Seconds after the start in which an acknowledgement of an earlier life holds for an alert that stands again: the
slowest of them, a broker or a source that does not answer, are raised within a few minutes."""
NOTE_MAX_CHARS = 120
"""What fits a line beside who and when."""
STANDING_MAX = 64
"""Alerts that stand at once: each code once a subject; more of them nobody reads."""


class Acknowledged(msgspec.Struct, frozen=True):
    """Somebody has seen an alert."""

    by: str
    """Who, as the daemon knows it: an operator's name, or the user at the control socket."""
    at_ms: int
    """UTC, milliseconds since 1970, by this device's clock."""
    note: str = ""
    """What he does about it."""


class Alert(msgspec.Struct, frozen=True):
    """One standing alert."""

    code: str
    subject: str
    """What it is about where there may be several of a code (a model, a broker); else ""."""
    text: str
    since_ms: int
    """UTC, milliseconds since 1970, by this device's clock."""
    acknowledged: Acknowledged | None = None
    """None: nobody has seen it."""

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
            "acknowledged": None
            if self.acknowledged is None
            else {"by": self.acknowledged.by, "at": iso(self.acknowledged.at_ms), "note": self.acknowledged.note},
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
        self._restored: dict[tuple[str, str], Acknowledged] = {}
        """Of an earlier life, for alerts that do not stand so far."""
        self._restored_s = float("-inf")
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
            self._restored.pop(key, None)
            if held is not None:
                del self._standing[key]
                self._on_change(held, False)
            return
        text = clean(text, TEXT_MAX_CHARS).rstrip(".")
        if held is None and len(self._standing) >= STANDING_MAX:
            return
        since_ms = time.time_ns() // 1_000_000 if held is None else held.since_ms
        seen = held.acknowledged if held is not None else self._restored.pop(key, None)
        if held is None and time.monotonic() - self._restored_s > RESTORED_S:
            seen = None
        alert = self._standing[key] = Alert(*key, text, since_ms, seen)
        if held is None:
            self._on_change(alert, True)

    def find(self, code: str, subject: str = "") -> Alert | None:
        """The alert of a code and a subject; None where it does not stand."""
        return self._standing.get((code, clean(subject, 64)))

    def acknowledge(self, code: str, subject: str, by: str, note: str) -> Alert | None:
        """Somebody has seen an alert; the first word counts.

        Args:
            code: Of the alert.
            subject: Of the alert.
            by: Who.
            note: What he does about it.

        Returns:
            The alert, where this was the first word of anybody; None where it is not.
        """
        held = self.find(code, subject)
        if held is None or held.acknowledged is not None:
            return None
        seen = Acknowledged(clean(by, 64), time.time_ns() // 1_000_000, clean(note, NOTE_MAX_CHARS))
        alert = self._standing[held.code, held.subject] = msgspec.structs.replace(held, acknowledged=seen)
        return alert

    def restore(self, seen: Mapping[tuple[str, str], Acknowledged]) -> None:
        """What was acknowledged, and not solved, when the last life ended; at the start."""
        self._restored = dict(islice(seen.items(), STANDING_MAX))
        self._restored_s = time.monotonic()

    def stands(self, code: str) -> bool:
        """Whether any alert of this code stands."""
        return any(held == code for held, _ in self._standing)

    def standing(self) -> list[Alert]:
        """All of them, the gravest and oldest first."""
        grave = {Level.ERROR: 0, Level.WARNING: 1, Level.INFO: 2}
        return sorted(self._standing.values(), key=lambda one: (grave[one.level], one.since_ms, one.code))
