"""One thing that happened, as every outlet shows it; bounded, and made of text that cannot steer a terminal."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from swarmd.events.kinds import level_of

SUBJECT_MAX_CHARS = 64
TEXT_MAX_CHARS = 240
"""Characters of reason and of evidence: the swarm's record of events takes no more (`crdt.records.EventRow`)."""


class EventRecord(msgspec.Struct, frozen=True, gc=False):
    """One event."""

    at_ms: int
    """When it happened, by the origin's word: UTC by swarm time, milliseconds since 1970."""
    origin: str
    """Name of the node that says it."""
    origin_id: str
    """That node's id, hexadecimal digits."""
    life: int
    """Which life of the origin."""
    number: int
    """The origin's count within that life."""
    kind: str
    subject: str
    """What or whom it is about: a member, a verb, an alert's code, a release."""
    reason: str
    evidence: str

    @property
    def event_id(self) -> str:
        """The same on every node and in every outlet."""
        return f"{self.origin_id[:16]}-{self.life}-{self.number}"

    @property
    def level(self) -> str:
        """`info`, `warning` or `error`."""
        return level_of(self.kind).value

    def row(self) -> dict[str, Any]:
        """As JSON shows it."""
        return {
            "id": self.event_id,
            "time": iso(self.at_ms),
            "at_ms": self.at_ms,
            "origin": self.origin,
            "origin_id": self.origin_id,
            "kind": self.kind,
            "level": self.level,
            "subject": self.subject,
            "reason": self.reason,
            "evidence": self.evidence,
        }


class Happened(msgspec.Struct, frozen=True, gc=False):
    """Notification on the bus: an event of this node, or one of another node that has become known."""

    record: EventRecord


def iso(at_ms: int) -> str:
    """UTC in ISO 8601, to the millisecond; the end of what a calendar holds where a liar says more."""
    seconds = min(max(0, at_ms), 253_402_300_799_000) / 1000
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def clean(text: str, most: int) -> str:
    """Text of at most so many characters, each of them printable."""
    if len(text) > most:
        text = text[: most - 1] + "…"
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)
