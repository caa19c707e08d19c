"""User events: what members say to all, signed, delivered once each and in order per origin."""

from dataclasses import dataclass
from functools import partial

import msgspec

from swarmd_protocols.channel.codec import decode_body, encode
from swarmd_protocols.effects import Rejected, UserEventDelivered
from swarmd_protocols.errors import IdentityError, StateError, WireError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.swim.core import EVENT, Core
from swarmd_protocols.swim.event_log import EventLog, is_text
from swarmd_protocols.swim.members import EVENTS, Member
from swarmd_protocols.swim.messages import (
    VECTOR_ANSWER,
    CertifiedEvent,
    EventBody,
    EventVector,
    SignedEvent,
)
from swarmd_protocols.swim.rules import BOOT_SHIFT, fingerprint

_EVENT_BODY = msgspec.msgpack.Decoder(EventBody)
_EVENT: msgspec.msgpack.Decoder[SignedEvent | CertifiedEvent] = msgspec.msgpack.Decoder(SignedEvent | CertifiedEvent)
_GAP_PATIENCE_NS = 5_000_000_000
"""Missing events are awaited for so long, nanoseconds, before those behind them are delivered: several repairs."""
_CLAIMS_KEPT = 8
"""Peers whose word about an origin's events is remembered; two are enough."""
_DIGEST_NS = 60_000_000_000
"""In a partial view, an origin counts towards the digest for so long after its last event."""
_KEPT_NS = 2 * _DIGEST_NS
"""Its events are kept for repair for so long: longer, since not everybody heard it at the same time."""
_LOGS_MAX = 1_024
"""Origins whose events a partial view keeps."""
_ORIGINS_MAX = 4_096
"""Origins that a partial view remembers; the one that has been silent for longest goes first."""
_MASK = 2**64 - 1


def _certified(certificate: bytes, encoded: bytes) -> bytes:
    """A kept event with its origin's certificate."""
    message = _EVENT.decode(encoded)
    return encode(CertifiedEvent(certificate, message.body, message.signature))


def _bare(encoded: bytes) -> bytes:
    """A kept event without it."""
    message = _EVENT.decode(encoded)
    return encode(SignedEvent(message.body, message.signature))


@dataclass(frozen=True, slots=True)
class Origin:
    """Who said something."""

    node: NodeId
    name: str
    public_key: bytes
    certificate: bytes


class UserEvents:
    """User events of all members."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.logs: dict[bytes, EventLog] = {}
        self._own_event = 0
        self._own_event_fp = 0
        self._claims: dict[bytes, dict[bytes, int]] = {}
        """Origin to what peers say they have delivered of it, where that is more than here."""
        self._origins: dict[bytes, Origin] = {}
        """In a partial view: who has said something, as certified."""
        self._silent: dict[bytes, int] = {}
        """In a partial view: how far origins were delivered that have said nothing for a while."""
        self._baseline = False
        """Whether it is known what was said before this node came; events before that are not delivered."""

    # --- user events -------------------------------------------------------------------------------------------------

    def say(self, name: str, payload: bytes) -> None:
        """Broadcast an event of this node; raises `StateError`."""
        core = self.core
        if len(payload) > core.config.event_bytes_max:
            raise StateError(f"event payload of {len(payload)} bytes; at most {core.config.event_bytes_max} are sent")
        if not 0 < len(name) <= 128 or not is_text(name):
            raise StateError(f"an event's name has 1 to 128 characters of Unicode text; {name[:140]!r} has {len(name)}")
        first = (core.own.boot << BOOT_SHIFT) + 1
        sequence = max(self._own_event + 1, first)
        body = encode(EventBody(core.own.node, sequence, name, payload))
        encoded = self._encoded(core.own.certificate, SignedEvent(body, core.sign("event", body)))
        log = self._log(core.own.node, sequence - 1)
        log.offer(sequence, name, payload, encoded)
        self._own_event = sequence
        self._deliver(core.own.node, core.own.name, log)
        self._pass_on(core.own.node, sequence, encoded)

    def on_event(self, message: SignedEvent, via: Member) -> None:
        """An event of some member arrived, in whatever order."""
        try:
            body = decode_body(_EVENT_BODY, message.body)
        except WireError as error:
            self._reject(via, str(error))
            return
        origin = self._origin(body.origin)
        if origin is None:
            return  # Repair brings its record, and then the event.
        self._hear(origin, body, message, via)

    def on_certified_event(self, message: CertifiedEvent, via: Member) -> None:
        """An event with the certificate of its origin."""
        core = self.core
        try:
            body = decode_body(_EVENT_BODY, message.body)
            origin = self._origin(body.origin)
            if origin is None:
                certificate = core.trust.admit_certificate(message.certificate)
                if certificate.node != body.origin:
                    raise IdentityError("an event's certificate is another node's")
                origin = Origin(NodeId(body.origin), certificate.name, certificate.public_key, message.certificate)
        except (WireError, IdentityError) as error:
            self._reject(via, str(error))
            return
        if core.table.partial:
            self._hear(origin, body, SignedEvent(message.body, message.signature), via)
        elif body.origin in core.table.by_node:
            self.on_event(SignedEvent(message.body, message.signature), via)

    def _origin(self, node: bytes) -> Origin | None:
        member = self.core.table.by_node.get(node)
        if member is not None:
            return Origin(member.node, member.name, member.public_key, member.certificate)
        return self._origins.get(node)

    def _log(self, node: bytes, delivered: int = 0) -> EventLog:
        log = self.logs.get(node)
        if log is None:
            log = self.logs[node] = EventLog(self._silent.pop(node, delivered))
        return log

    def _encoded(self, certificate: bytes, message: SignedEvent) -> bytes:
        if self.core.table.partial:
            return encode(CertifiedEvent(certificate, message.body, message.signature))
        return encode(message)

    def _hear(self, origin: Origin, body: EventBody, message: SignedEvent, via: Member) -> None:
        core = self.core
        if body.origin == core.own.node or body.sequence <= self._silent.get(body.origin, 0):
            return
        log = self._log(body.origin)
        if body.sequence <= log.delivered or body.sequence in log.pending:
            return
        if not core.signed_by(origin.public_key, "event", message.body, message.signature):
            self._reject(via, f"an event is not signed by {origin.name!r}")
            return
        if core.table.partial:
            self._origins[body.origin] = origin
        encoded = self._encoded(origin.certificate, message)
        log.offer(body.sequence, body.name, body.payload, encoded)
        self._pass_on(body.origin, body.sequence, encoded)
        if self._baseline:
            self._deliver(origin.node, origin.name, log)
            if log.pending:
                self._await_gap(origin, min(log.pending))

    def _pass_on(self, origin: bytes, sequence: int, encoded: bytes) -> None:
        if len(encoded) <= 1_000:
            self.core.spread(("event", origin, sequence), encoded, EVENT)
            return
        # Too large for a datagram: the reliable path, to as many as would have been told.
        table = self.core.table
        fanout = len(table.reachable) if table.partial else self.core.config.gossip_fanout
        for member in table.sample(self.core.rng, fanout):
            self.core.port.stream(member, [encoded])

    def _deliver(self, node: NodeId, name: str, log: EventLog, *, skip_gap: bool = False) -> None:
        core = self.core
        for event, payload in log.due(skip_gap=skip_gap):
            core.port.emit(UserEventDelivered(node, name, event, payload))
            core.counters["events_delivered"] += 1
        self._mark(node, log)

    def _mark(self, node: bytes, log: EventLog) -> None:
        """Let how far an origin was delivered count in the digest."""
        core = self.core
        new = fingerprint(node + log.delivered.to_bytes(8, "big")) if log.delivered else 0
        log.marked_ns = core.now_ns
        if core.table.partial:
            core.table.adjust(EVENTS, log.fp, new)
            log.fp = new
            core.changed()
            return
        if node == core.own.node:
            core.table.adjust(EVENTS, self._own_event_fp, new)
            self._own_event_fp = new
        else:
            member = core.table.by_node.get(node)
            if member is None:
                return
            counted = member.repair.counted
            core.table.count(member, False)
            member.repair.fp_events = new
            core.table.count(member, counted)
        core.changed()

    def _await_gap(self, origin: Origin, sequence: int) -> None:
        waits = (origin, sequence, self._is_answered())
        self.core.scheduler.at(self.core.now_ns + _GAP_PATIENCE_NS, self._skip_gap, waits)

    def _is_answered(self) -> bool:
        """Whether anybody has answered lately: whom nobody hears, nobody can tell what it lacks."""
        now_ns = self.core.now_ns
        replies = (member.link.replied_ns for member in self.core.table.reachable)
        return any(replied_ns >= 0 and now_ns - replied_ns < _GAP_PATIENCE_NS for replied_ns in replies)

    def _skip_gap(self, waited: tuple[Origin, int, bool]) -> None:
        origin, sequence, was_answered = waited
        log = self.logs.get(origin.node)
        if log is not None and log.pending and min(log.pending) == sequence:
            if not (was_answered and self._is_answered()):
                self._await_gap(origin, sequence)
                return
            self.core.counters["events_lost"] += 1
            self._deliver(origin.node, origin.name, log, skip_gap=True)

    def vector(self) -> tuple[tuple[bytes, int], ...]:
        """How far each live origin was delivered."""
        table = self.core.table
        own = self.core.own.node
        if table.partial:
            since_ns = self.core.now_ns - _KEPT_NS
            return tuple(
                sorted((node, log.delivered) for node, log in self.logs.items() if log.marked_ns > since_ns and log.fp)
            )
        known = [
            (node, log.delivered)
            for node, log in self.logs.items()
            if log.delivered and (node == own or (node in table.by_node and table.by_node[node].repair.counted))
        ]
        return tuple(sorted(known))

    def beyond(self, vector: tuple[tuple[bytes, int], ...]) -> list[bytes]:
        """Kept events that a peer with this vector has not delivered, in order per origin."""
        told = dict(vector)
        return [encoded for node, log in sorted(self.logs.items()) for encoded in log.after(told.get(node, 0))]

    def adopt_baseline(self, message: EventVector) -> None:
        """The first peer's answer says what was said before this node came."""
        if self._baseline or message.asks != VECTOR_ANSWER:
            return
        self._baseline = True
        for node, delivered in message.vector:
            log = self._log(node)
            if node != self.core.own.node and log.delivered < delivered:
                # What came by itself in the meantime was said after this node began: it is delivered.
                log.delivered = min([delivered, *(held - 1 for held in log.pending)])
                self._mark(node, log)
        for node, log in self.logs.items():
            origin = self._origin(node)
            if origin is not None:
                self._deliver(origin.node, origin.name, log)

    def note_vector(self, peer: Member, message: EventVector) -> None:
        """Keep track of what peers delivered and this node did not: it comes, or nobody keeps it any more."""
        core = self.core
        for node, delivered in message.vector:
            if node == core.own.node:
                # Said in an earlier life, which is over: it counts as delivered here too.
                own = self._log(node)
                if own.delivered < delivered < (core.own.boot << BOOT_SHIFT):
                    own.delivered = delivered
                    self._mark(node, own)
                continue
            log = self.logs.get(node)
            mine = log.delivered if log else self._silent.get(node, 0)
            if self._baseline and self._origin(node) is not None and mine < delivered:
                claims = self._claims.setdefault(node, {})
                if len(claims) < _CLAIMS_KEPT or peer.node in claims:
                    claims[peer.node] = delivered
                core.scheduler.at(core.now_ns + _GAP_PATIENCE_NS, self._give_up, node)

    def _give_up(self, node: bytes) -> None:
        """Nobody could send these events in all this time: go on without them.

        It takes the word of two peers (of the only one where there is one), so that one stolen key silences nobody.
        """
        origin = self._origin(node)
        claims = sorted(self._claims.pop(node, {}).values(), reverse=True)
        if origin is None or len(claims) < min(2, len(self.core.table.reachable)):
            return
        delivered = claims[min(1, len(claims) - 1)] if claims else 0
        log = self._log(node)
        while log.delivered < delivered:
            self.core.counters["events_lost"] += 1
            if log.pending and min(log.pending) <= delivered:
                self._deliver(origin.node, origin.name, log, skip_gap=True)
            else:
                log.delivered = delivered
                self._mark(node, log)

    def begin(self) -> None:
        """This node is the first of its swarm: nothing was said before it came."""
        self._baseline = True

    @property
    def has_baseline(self) -> bool:
        """Whether a peer has answered since this boot."""
        return self._baseline

    def admitted(self, member: Member) -> None:
        """A member came (back) into the table: what is known of its events counts again."""
        log = self.logs.get(member.node)
        if log is not None and not self.core.table.partial:
            self._mark(member.node, log)

    def forget_strangers(self) -> None:
        """Drop the logs of origins that the table no longer holds; in a partial view, of those long silent."""
        if self.core.table.partial:
            self._forget_silent()
            return
        for node in [node for node in self.logs if node != self.core.own.node and node not in self.core.table.by_node]:
            del self.logs[node]
            self._claims.pop(node, None)

    def _forget_silent(self) -> None:
        """Once a second: what was said long ago neither counts in the digest nor is kept, only how far it was heard."""
        core = self.core
        for node, log in sorted(self.logs.items(), key=lambda entry: entry[1].marked_ns):
            age_ns = core.now_ns - log.marked_ns
            if log.fp and age_ns > _DIGEST_NS:
                core.table.adjust(EVENTS, log.fp, 0)
                log.fp = 0
            if (not log.pending and age_ns > _KEPT_NS) or len(self.logs) > _LOGS_MAX:
                core.table.adjust(EVENTS, log.fp, 0)
                del self.logs[node]
                self._claims.pop(node, None)
                self._silent[node] = log.delivered
        while len(self._silent) > _ORIGINS_MAX:
            del self._silent[next(iter(self._silent))]
        while len(self._origins) > _ORIGINS_MAX:
            del self._origins[next(iter(self._origins))]

    def on_trust(self) -> None:
        """Nothing counts any more of origins whose certificate no longer holds."""
        trust = self.core.trust
        for node in [node for node, origin in self._origins.items() if not trust.holds(origin.certificate)]:
            del self._origins[node]

    def view_changed(self) -> None:
        """The view has become partial or full: events count in the digest by origin, or by member."""
        core = self.core
        table = core.table
        for member in table.by_node.values():
            counted = member.repair.counted
            table.count(member, False)
            member.repair.fp_events = 0
            table.count(member, counted)
        table.adjust(EVENTS, table.sections[EVENTS], 0)
        self._own_event_fp = 0
        if table.partial:
            since_ns = core.now_ns - _DIGEST_NS
            for node, log in self.logs.items():
                origin = self._origin(node)
                if origin is not None:
                    self._origins[node] = origin
                certificate = core.own.certificate if node == core.own.node else origin.certificate if origin else b""
                if certificate:
                    log.recode(partial(_certified, certificate))
                log.fp = 0
                if log.delivered and log.marked_ns > since_ns:
                    log.fp = fingerprint(node + log.delivered.to_bytes(8, "big"))
                    table.adjust(EVENTS, 0, log.fp)
            return
        for node, delivered in self._silent.items():
            self.logs.setdefault(node, EventLog(delivered))
        self._silent.clear()
        self._origins.clear()
        for node, log in self.logs.items():
            log.recode(_bare)
            self._mark(node, log)

    def _reject(self, via: Member, reason: str) -> None:
        self.core.counters["rejected"] += 1
        self.core.port.emit(Rejected(via.name, reason))
