"""How user events count in the digest, and whose are taken: by member in a full view, by origin in a partial one.

A full view knows everybody, so events come bare and count with their member. In a partial view most origins are
strangers: events come with their origin's certificate, and count for a while after the last one.
"""

from dataclasses import dataclass
from functools import partial
from typing import Protocol

import msgspec

from swarmd_protocols.channel.codec import encode
from swarmd_protocols.ids import NodeId
from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.event_log import EventLog
from swarmd_protocols.swim.members import EVENTS
from swarmd_protocols.swim.messages import CertifiedEvent, SignedEvent
from swarmd_protocols.swim.rules import fingerprint

_EVENT: msgspec.msgpack.Decoder[SignedEvent | CertifiedEvent] = msgspec.msgpack.Decoder(SignedEvent | CertifiedEvent)
_DIGEST_NS = 60_000_000_000
"""In a partial view, an origin counts towards the digest for so long after its last event."""
_KEPT_NS = 2 * _DIGEST_NS
"""Its events are kept for repair for so long: longer, since not everybody heard it at the same time."""
_STRANGER_NS = 30_000_000_000
"""In a full view it is kept for so long how far an origin was delivered that is no member: a node that starts is told
that before it has the records of all, and would take what was said before for news."""
_LOGS_MAX = 1_024
"""Origins whose events a partial view keeps."""
_ORIGINS_MAX = 4_096
"""Origins that a partial view remembers; the one that has been silent for longest goes first."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Who said something."""

    node: NodeId
    name: str
    public_key: bytes
    certificate: bytes


def _mark(node: bytes, log: EventLog) -> int:
    """What counts in the digest for how far an origin was delivered."""
    return fingerprint(node + log.delivered.to_bytes(8, "big")) if log.delivered else 0


def _certified(certificate: bytes, encoded: bytes) -> bytes:
    """A kept event with its origin's certificate."""
    message = _EVENT.decode(encoded)
    return encode(CertifiedEvent(certificate, message.body, message.signature))


def _bare(encoded: bytes) -> bytes:
    """A kept event without it."""
    message = _EVENT.decode(encoded)
    return encode(SignedEvent(message.body, message.signature))


class EventLedger(Protocol):
    """Keeps count of the origins."""

    def admits(self, node: bytes) -> bool:
        """Whether events of this origin are taken."""
        ...

    def encoded(self, certificate: bytes, message: SignedEvent) -> bytes:
        """An event, as it is passed on."""
        ...

    def heard(self, origin: Origin) -> None:
        """An origin said something that it signed."""
        ...

    def mark(self, node: bytes, log: EventLog) -> None:
        """Let how far an origin was delivered count in the digest."""
        ...

    def admitted(self, node: bytes, log: EventLog) -> None:
        """An origin came (back) into the table of members."""
        ...

    def vector(self) -> tuple[tuple[bytes, int], ...]:
        """How far each live origin was delivered."""
        ...

    def forgotten(self) -> list[bytes]:
        """Once a second: drop the logs of origins that are of no concern any more; returns whose."""
        ...


class MemberLedger:
    """Origins are members, and count with them."""

    def __init__(self, core: Core, logs: dict[bytes, EventLog]) -> None:
        self.core = core
        self._logs = logs
        self.own_fp = 0
        """What counts for this node's own events."""

    def admits(self, node: bytes) -> bool:
        """See `EventLedger.admits`."""
        return node in self.core.table.by_node

    def encoded(self, certificate: bytes, message: SignedEvent) -> bytes:
        """See `EventLedger.encoded`."""
        return encode(message)

    def heard(self, origin: Origin) -> None:
        """See `EventLedger.heard`: its member is known."""

    def mark(self, node: bytes, log: EventLog) -> None:
        """See `EventLedger.mark`."""
        core = self.core
        new = _mark(node, log)
        log.marked_ns = core.now_ns
        if node == core.own.node:
            core.table.adjust(EVENTS, self.own_fp, new)
            self.own_fp = new
        else:
            member = core.table.by_node.get(node)
            if member is None:
                return
            counted = member.repair.counted
            core.table.count(member, False)
            member.repair.fp_events = new
            core.table.count(member, counted)
        core.changed_by(node)

    def admitted(self, node: bytes, log: EventLog) -> None:
        """See `EventLedger.admitted`: what is known of its events counts again."""
        self.mark(node, log)

    def vector(self) -> tuple[tuple[bytes, int], ...]:
        """See `EventLedger.vector`."""
        own, held = self.core.own.node, self.core.table.by_node
        known = [
            (node, log.delivered)
            for node, log in self._logs.items()
            if log.delivered and (node == own or (node in held and held[node].repair.counted))
        ]
        return tuple(sorted(known))

    def forgotten(self) -> list[bytes]:
        """See `EventLedger.forgotten`: those that the table does not hold."""
        own, held, since_ns = self.core.own.node, self.core.table.by_node, self.core.now_ns - _STRANGER_NS
        strangers = [node for node in self._logs if node != own and node not in held]
        gone = [node for node in strangers if self._logs[node].marked_ns < since_ns]
        for node in gone:
            del self._logs[node]
        return gone

    def end(self) -> None:
        """Let nothing count any more."""
        table = self.core.table
        for member in table.by_node.values():
            counted = member.repair.counted
            table.count(member, False)
            member.repair.fp_events = 0
            table.count(member, counted)
        self.own_fp = 0

    def begin(self) -> None:
        """The view has become full: events go bare, and count with their members."""
        for node, log in self._logs.items():
            log.recode(_bare)
            self.mark(node, log)


class OriginLedger:
    """Origins are anybody, remembered and counted for a while."""

    def __init__(self, core: Core, logs: dict[bytes, EventLog]) -> None:
        self.core = core
        self._logs = logs
        self.origins: dict[bytes, Origin] = {}
        """Who has said something, as certified."""
        self.silent: dict[bytes, int] = {}
        """How far origins were delivered that have said nothing for a while."""

    def admits(self, node: bytes) -> bool:
        """See `EventLedger.admits`: whoever is certified."""
        return True

    def encoded(self, certificate: bytes, message: SignedEvent) -> bytes:
        """See `EventLedger.encoded`."""
        return encode(CertifiedEvent(certificate, message.body, message.signature))

    def heard(self, origin: Origin) -> None:
        """See `EventLedger.heard`."""
        self.origins[origin.node] = origin

    def mark(self, node: bytes, log: EventLog) -> None:
        """See `EventLedger.mark`."""
        core = self.core
        new = _mark(node, log)
        log.marked_ns = core.now_ns
        core.table.adjust(EVENTS, log.fp, new)
        log.fp = new
        core.changed_by(node)

    def admitted(self, node: bytes, log: EventLog) -> None:
        """See `EventLedger.admitted`: events count whoever is a neighbour."""

    def vector(self) -> tuple[tuple[bytes, int], ...]:
        """See `EventLedger.vector`."""
        since_ns = self.core.now_ns - _KEPT_NS
        return tuple(
            sorted((node, log.delivered) for node, log in self._logs.items() if log.marked_ns > since_ns and log.fp)
        )

    def forgotten(self) -> list[bytes]:
        """See `EventLedger.forgotten`.

        What was said long ago neither counts in the digest nor is kept, only how far it was heard.
        """
        core, gone = self.core, []
        for node, log in sorted(self._logs.items(), key=lambda entry: entry[1].marked_ns):
            age_ns = core.now_ns - log.marked_ns
            if log.fp and age_ns > _DIGEST_NS:
                core.table.adjust(EVENTS, log.fp, 0)
                log.fp = 0
            if (not log.pending and age_ns > _KEPT_NS) or len(self._logs) > _LOGS_MAX:
                core.table.adjust(EVENTS, log.fp, 0)
                del self._logs[node]
                gone.append(node)
                self.silent[node] = log.delivered
        while len(self.silent) > _ORIGINS_MAX:
            del self.silent[next(iter(self.silent))]
        while len(self.origins) > _ORIGINS_MAX:
            del self.origins[next(iter(self.origins))]
        return gone

    def on_trust(self) -> None:
        """Nothing counts any more of origins whose certificate no longer holds."""
        trust = self.core.trust
        for node in [node for node, origin in self.origins.items() if not trust.holds(origin.certificate)]:
            del self.origins[node]

    def begin(self, members: dict[bytes, Origin]) -> None:
        """The view has become partial: events go with a certificate, and the latest of them count by origin.

        Args:
            members: The origins of the logs that are known.
        """
        core = self.core
        since_ns = core.now_ns - _DIGEST_NS
        self.origins |= members
        for node, log in self._logs.items():
            origin = members.get(node)
            certificate = core.own.certificate if node == core.own.node else origin.certificate if origin else b""
            if certificate:
                log.recode(partial(_certified, certificate))
            log.fp = 0
            if log.delivered and log.marked_ns > since_ns:
                log.fp = _mark(node, log)
                core.table.adjust(EVENTS, 0, log.fp)

    def end(self) -> None:
        """The view has become full: how far the silent were heard is kept with the others."""
        for node, delivered in self.silent.items():
            self._logs.setdefault(node, EventLog(delivered))
        self.silent.clear()
        self.origins.clear()
