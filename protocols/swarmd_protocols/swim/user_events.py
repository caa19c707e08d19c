"""User events: what members say to all, signed, delivered once each and in order per origin.

How far each origin was delivered is journalled, so that a peer which tells a node that starts of nothing, and then
brings what was said long ago, has none of it delivered a second time; so are the newest events themselves, for those
who hear their origins only through this node.
"""

from collections.abc import Mapping, Sequence

import msgspec

from swarmd_protocols.channel.codec import decode_body, encode
from swarmd_protocols.effects import MemberState, UserEventDelivered
from swarmd_protocols.errors import IdentityError, StateError, WireError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.swim.core import DETAIL, EVENT, Core
from swarmd_protocols.swim.event_alone import Alone
from swarmd_protocols.swim.event_baseline import Answers, Baseline, Denial
from swarmd_protocols.swim.event_claims import CUT_OFF_NS, MESH_PATIENCE_NS, PATIENCE_NS, Claims
from swarmd_protocols.swim.event_doubts import Doubts
from swarmd_protocols.swim.event_journal import EventJournal
from swarmd_protocols.swim.event_ledgers import EventLedger, MemberLedger, Origin, OriginLedger
from swarmd_protocols.swim.event_log import LARGE_REPAIR_BYTES, EventLog, LargeRepairs, is_text
from swarmd_protocols.swim.event_unheard import Unheard
from swarmd_protocols.swim.members import EVENTS, Member
from swarmd_protocols.swim.messages import (
    VECTOR_ANSWER,
    VECTOR_BASELINE,
    VECTOR_REPAIR,
    CertifiedEvent,
    EventBody,
    EventVector,
    SignedEvent,
)
from swarmd_protocols.swim.rules import BOOT_SHIFT

_EVENT_BODY = msgspec.msgpack.Decoder(EventBody)
_KEPT: msgspec.msgpack.Decoder[SignedEvent | CertifiedEvent] = msgspec.msgpack.Decoder(SignedEvent | CertifiedEvent)
_CORRECTED_AT = 8
"""Members that hear at once how far this node really is, after a first answer that did not hold: with the one that gave
it they would give up what nobody has said. Beyond, a comparison tells them."""
_PUSHED_MAX = 1_000
"""Bytes of an event that goes in datagrams with other news; a larger one takes the reliable path."""
_ASK_AGAIN_NS = (1_500_000_000, 3_000_000_000)
"""After so long, nanoseconds, missing events are asked for again: twice within the patience, each a lost datagram."""


def _read(encoded: bytes) -> tuple[str, bytes]:
    """Name and payload of an event that is kept."""
    body = decode_body(_EVENT_BODY, _KEPT.decode(encoded).body)
    return body.name, body.payload


def _is_cut_off(core: Core, origin: bytes) -> bool:
    """Whether an origin is gone without a word: those who hold what is missing may be gone with it, and return.

    Who has just come back has had no time yet to bring it.
    """
    member = core.table.by_node.get(origin)
    if member is None:
        return False
    is_gone = member.state in (MemberState.FAILED, MemberState.UNREACHABLE)
    return is_gone or core.now_ns - member.since_ns < PATIENCE_NS


class UserEvents:
    """User events of all members."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.logs: dict[bytes, EventLog] = {}
        self.own_event = 0
        """Sequence of the last one that this node said."""
        self._claims = Claims()
        self.answers = Answers()
        self._first = Baseline()
        self._doubts = Doubts(core, self.vector, self._lower)
        self.unheard = Unheard()
        self.by_member = MemberLedger(core, self.logs)
        self._by_origin = OriginLedger(core, self.logs)
        self._ledger: EventLedger = self.by_member
        self._sent = LargeRepairs()
        self._lacking: dict[tuple[bytes, int], dict[bytes, int]] = {}
        """By peer and wait: what it is asked for again, and up to where. One question for all of it: whoever claims
        much of many origins is not told this node's vector once for each."""
        self.journal = EventJournal(core)
        self._alone = Alone(core, self.journal.shelf)
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
        sequence = max(self.own_event + 1, first)
        if not self._baseline:
            self._take_back(first)  # It comes before what this life says.
        body = encode(EventBody(core.own.node, sequence, name, payload))
        encoded = self._ledger.encoded(core.own.certificate, SignedEvent(body, core.sign("event", body)))
        log = self._log(core.own.node, sequence - 1)
        log.offer(sequence, name, payload, encoded)
        self._alone.say(sequence)
        again = set(self.unheard.say(sequence, core.now_ns))
        for older, said in [one for one in log.kept if one[0] in again and len(one[1]) <= _PUSHED_MAX]:
            self._pass_on(core.own.node, older, said)
        self.own_event = sequence
        self.journal.shelf.put(core.own.node, sequence, encoded)
        self.journal.shelf.write()
        self._deliver(core.own.node, core.own.name, log)
        self._pass_on(core.own.node, sequence, encoded)

    def on_event(self, message: SignedEvent, via: Member) -> None:
        """An event of some member arrived, in whatever order."""
        try:
            body = decode_body(_EVENT_BODY, message.body)
        except WireError as error:
            self.core.reject(via, str(error))
            return
        self.core.echoes.heard(("event", body.origin, body.sequence), via.node)
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
            core.reject(via, str(error))
            return
        if self._ledger.admits(body.origin):
            self._hear(origin, body, SignedEvent(message.body, message.signature), via)

    def _origin(self, node: bytes) -> Origin | None:
        member = self.core.table.by_node.get(node)
        if member is not None:
            return Origin(member.node, member.name, member.public_key, member.certificate)
        return self._by_origin.origins.get(node)

    def _log(self, node: bytes, delivered: int = 0) -> EventLog:
        log = self.logs.get(node)
        if log is None:
            log = self.logs[node] = EventLog(self._by_origin.silent.pop(node, delivered))
        return log

    def _hear(self, origin: Origin, body: EventBody, message: SignedEvent, via: Member) -> None:
        core = self.core
        if body.origin == core.own.node:
            self.unheard.heard(body.sequence, body.sequence)
            return
        if body.sequence <= self._by_origin.silent.get(body.origin, 0):
            return
        if self._doubts.awaits(body.origin, body.sequence):
            if core.holds_word(origin, "event", message, via, "an event"):
                self._doubts.show(body.origin, body.sequence)
            return
        log = self._log(body.origin)
        if body.sequence <= log.delivered and self.answers.is_unsure(body.origin, body.sequence, core.now_ns):
            newest = log.kept[-1][0] if log.kept else 0
            if newest >= body.sequence or not core.holds_word(origin, "event", message, via, "an event"):
                return
            self.answers.came(body.origin, body.sequence, via.node)
            if self.answers.is_news(body.origin, body.sequence):
                log.delivered = body.sequence - 1  # It was said between two answers, and not before this node came.
        if body.sequence <= log.delivered or body.sequence in log.pending:
            is_first = self.answers.came_again(body.origin, body.sequence, via.node) and not self._baseline
            core.queue.overheard(("event", body.origin, body.sequence))
            if is_first and body.sequence in log.pending:
                self._pass_on(body.origin, body.sequence, log.pending[body.sequence].encoded)
            return
        if not core.holds_word(origin, "event", message, via, "an event"):
            return
        self._ledger.heard(origin)
        if core.view.weighs_links:
            core.echoes.begin(("event", body.origin, body.sequence), via.node)
        if not self._baseline:
            self.answers.came(body.origin, body.sequence, via.node)
        encoded = self._ledger.encoded(origin.certificate, message)
        in_turn = self._baseline and log.follows(body.sequence)
        until_ns = 0 if in_turn else self._patience_until_ns()
        begun = self._baseline
        log.offer(body.sequence, body.name, body.payload, encoded, until_ns, core.now_ns, newest=not begun)
        is_heard = core.heard(origin.node, origin.name, len(encoded), f"event {body.sequence} {body.name!r}")
        if is_heard and self.answers.may_pass_on(body.origin, body.sequence, has_begun=self._baseline):
            self._pass_on(body.origin, body.sequence, encoded)
        if self._baseline:
            self._deliver(origin.node, origin.name, log)
            self._await_gaps(origin, log)

    def _pass_on(self, origin: bytes, sequence: int, encoded: bytes) -> None:
        core = self.core
        if self._alone.waits(origin):
            return
        urgent = core.may_push(origin, len(encoded))
        if len(encoded) <= _PUSHED_MAX:
            core.spread(("event", origin, sequence), encoded, EVENT if urgent else DETAIL, urgent=urgent)
            return
        if not urgent:
            return  # Repair finds who lacks it.
        # Too large for a datagram: the reliable path, to as many as would have been told.
        for member in self.core.table.sample(self.core.rng, self.core.view.stream_fanout()):
            self.core.port.stream(member, [encoded])

    def _deliver(self, node: NodeId, name: str, log: EventLog, *, skip_gap: bool = False) -> None:
        core = self.core
        for event, payload in log.due(skip_gap=skip_gap):
            if log.delivered <= self.journal.told(node):
                core.counters["events_told_before"] += 1
                continue
            if node != core.own.node:
                self.journal.note(node, log.delivered)
                self.journal.shelf.put(node, *log.kept[-1])
            core.port.emit(UserEventDelivered(node, name, event, payload))
            core.counters["events_delivered"] += 1
        self._ledger.mark(node, log)

    def _patience_until_ns(self) -> int:
        """Until when events missing before one that came now are awaited; twice as long by whom nobody answers."""
        return self.core.now_ns + _patience_ns(self.core) * (1 if self._is_answered() else 2)

    def _await_gaps(self, origin: Origin, log: EventLog) -> None:
        if log.pending and not log.awaits:
            log.awaits = True
            self.core.scheduler.at(log.next_until_ns(), self._skip_gaps, (origin, log))

    def _is_answered(self) -> bool:
        """Whether anybody has answered lately: whom nobody hears, nobody can tell what it lacks."""
        now_ns = self.core.now_ns
        replies = (member.link.replied_ns for member in self.core.table.reachable)
        return any(replied_ns >= 0 and now_ns - replied_ns < PATIENCE_NS for replied_ns in replies)

    def _skip_gaps(self, awaited: tuple[Origin, EventLog]) -> None:
        """Give up on all that was awaited for long enough: gaps that were heard of together end together."""
        core, (origin, log) = self.core, awaited
        log.awaits = False
        if self.logs.get(origin.node) is not log:
            return
        if not self._is_answered():
            for early in log.pending.values():
                early.until_ns = self._patience_until_ns()
        elif _is_cut_off(core, origin.node):
            for early in log.pending.values():
                early.until_ns = max(early.until_ns, min(early.came_ns + CUT_OFF_NS, core.now_ns + PATIENCE_NS))
        over = log.next_until_ns() <= core.now_ns if log.pending else False
        # Of a flood much is missing, and nobody repairs it: one wait is enough for all of it.
        goes_on = over and core.relays.floods(origin.node)
        while log.pending and (goes_on or log.next_until_ns() <= core.now_ns):
            before = min(log.pending) - 1
            if not goes_on and log.spare(before, self._patience_until_ns()) < before:
                break
            core.counters["events_lost"] += 1
            self._deliver(origin.node, origin.name, log, skip_gap=True)
        self._await_gaps(origin, log)

    def vector(self) -> tuple[tuple[bytes, int], ...]:
        """How far each live origin was delivered; not this one while what it said is held back."""
        return tuple(told for told in self._ledger.vector() if not self._alone.holds(told[0]))

    def beyond(self, peer: bytes, vector: tuple[tuple[bytes, int], ...]) -> list[bytes]:
        """Kept events that a peer with this vector has not delivered, in order per origin; its own it has said."""
        core, told = self.core, dict(vector)
        found: list[bytes] = []
        for node, log in sorted(self.logs.items()):
            if node == peer or self._alone.holds(node):
                continue
            sent_bytes, last = 0, 0
            for sequence, encoded in log.after(max(told.get(node, 0), self._sent.reached(peer, node, core.now_ns))):
                if not core.may_repair(node, len(encoded), peer, at_once=True):
                    break
                found.append(encoded)
                last, sent_bytes = sequence, sent_bytes + len(encoded)
            if sent_bytes > LARGE_REPAIR_BYTES:
                self._sent.note(peer, node, last, core.now_ns)
        return found

    def adopt_baseline(self, _: object = None) -> None:
        """What was said before this node came is as it was answered, until others deny it."""
        if self._baseline:
            return
        self._baseline = True
        is_news = self.answers.is_news
        news = {node: [one for one in log.pending if is_news(node, one)] for node, log in self.logs.items()}
        begins, tellers = self.answers.close(self.core.now_ns)
        taken: dict[bytes, int] = {}
        for node, delivered in begins.items():
            log = self._log(node)
            if node != self.core.own.node and log.delivered < delivered:
                # What came by itself in the meantime was said after this node began: it is delivered.
                taken[node] = min([delivered, *(held - 1 for held in news.get(node, ()))])
                log.begin(taken[node])
                self._ledger.mark(node, log)
        for teller, told in tellers.items():
            said = {node: min(taken[node], delivered) for node, delivered in told.items() if node in taken}
            self._first.take(teller, said, self.core.now_ns)
        self._take_back()
        for node, log in self.logs.items():
            origin = self._origin(node)
            if origin is not None:
                self._deliver(origin.node, origin.name, log)
                self._await_gaps(origin, log)

    def note_vector(self, peer: Member, message: EventVector) -> None:
        """Keep track of what peers delivered and this node did not: it comes, or nobody keeps it any more."""
        core = self.core
        self._alone.heard(dict(message.vector).get(core.own.node, -1))
        if (self._baseline or self.answers.is_told) and not self._alone.is_over:
            own = self._log(core.own.node)
            for sequence, encoded in self._alone.met(own, self._ledger):
                self.own_event = sequence
                self.unheard.say(sequence, core.now_ns)
                if len(encoded) <= _PUSHED_MAX:
                    self._pass_on(core.own.node, sequence, encoded)
        if message.asks != VECTOR_BASELINE:
            told: dict[bytes, int] = dict(message.vector)
            self._claims.revise(peer.node, told)
            # In a mesh one may be all that this node hears of the other side: what it lacks has to cross here.
            is_mesh = core.view.weighs_links
            tellers = min(2, len(core.table.reachable)) if is_mesh else len(core.table.reachable)
            self._doubts.take(self._first.denied(peer.node, told, tellers, core.now_ns, is_mesh=is_mesh))
        for node, delivered in message.vector:
            if node == core.own.node:
                self.unheard.heard(0, delivered)
                # Said in an earlier life, which is over: it counts as delivered here too.
                own = self._log(node)
                if own.delivered < delivered < (core.own.boot << BOOT_SHIFT):
                    own.delivered = delivered
                    self._ledger.mark(node, own)
                continue
            log = self.logs.get(node)
            mine = log.delivered if log else self._by_origin.silent.get(node, 0)
            if self._baseline and self._origin(node) is not None and mine < delivered:
                if self._claims.note(node, peer.node, delivered, mine, core.now_ns, _patience_ns(self.core)):
                    for wait_ns in _ASK_AGAIN_NS:
                        if (peer.node, wait_ns) not in self._lacking:
                            core.scheduler.at(core.now_ns + wait_ns, self._ask_again, (peer, wait_ns))
                        self._lacking.setdefault((peer.node, wait_ns), {})[node] = delivered
                self._await_claims(node)

    def _lower(self, denied: Sequence[Denial], shown: Mapping[bytes, int]) -> None:
        """What the first answer said alone does not hold; those who may have heard it here hear what does.

        Up to what was `shown` it holds. That may yet have to cross here, in a mesh that this node does not know of yet:
        it is kept, and not delivered.
        """
        core = self.core
        lowered = False
        for node, taken, delivered, _ in denied:
            last = shown.get(node, 0)
            if last:
                self.journal.note(node, max(last, self.journal.told(node)))
            log, origin = self.logs.get(node), self._origin(node)
            held = max((kept for kept, _ in log.kept if kept <= taken), default=0) if log is not None else 0
            if log is None or log.delivered < taken or taken in (held, delivered):
                continue
            if log.delivered == taken:
                log.delivered = max(delivered, held)
            elif core.view.weighs_links and origin is not None:
                # What has come since was delivered, and is not again; it waits for what is still to be passed on.
                log.reopen(max(delivered, held), self._patience_until_ns(), core.now_ns, _read)
                self._await_gaps(origin, log)
            else:
                continue
            self._ledger.mark(node, log)
            lowered = True
        if lowered:
            core.counters["baselines_lowered"] += 1
            for member in core.table.sample(core.rng, _CORRECTED_AT):
                core.port.datagram_or_stream(member, [encode(EventVector(self.vector(), VECTOR_ANSWER))])

    def _await_claims(self, node: bytes) -> None:
        due_ns = self._claims.next_due_ns(node, self.core.now_ns)
        if due_ns is not None:
            self.core.scheduler.at(due_ns, self._give_up, node)

    def _ask_again(self, asked: tuple[Member, int]) -> None:
        """What a peer has shown that it holds did not come with its word: while somebody floods, probes ask seldom."""
        peer, wait_ns = asked
        for node, delivered in self._lacking.pop((peer.node, wait_ns)).items():
            log = self.logs.get(node)
            here = log.delivered if log else self._by_origin.silent.get(node, 0)
            if here < delivered and not self.core.relays.floods(node):
                break
        else:
            return
        if peer.where >= 0:
            self.core.port.datagram_or_stream(peer, [encode(EventVector(self.vector(), VECTOR_REPAIR))])

    def _give_up(self, node: bytes) -> None:
        """Nobody could send these events in all this time: go on without them."""
        core, origin = self.core, self._origin(node)
        self._claims.looked(node)
        if origin is None:
            return
        if not self._is_answered():
            self._claims.wait(node, core.now_ns, _patience_ns(core))
        log = self._log(node)
        heard = {member.node for member in core.table.reachable}
        needed = min(core.config.accusers_needed, len(heard))
        awaited = self._claims.given_up(node, log.delivered, needed, heard, core.now_ns)
        delivered = log.spare(awaited, self._patience_until_ns())
        if delivered < awaited:
            self._claims.wait(node, core.now_ns, _patience_ns(core))
        self._await_claims(node)
        while log.delivered < delivered:
            self.core.counters["events_lost"] += 1
            if log.pending and min(log.pending) <= delivered:
                self._deliver(origin.node, origin.name, log, skip_gap=True)
            else:
                log.delivered = delivered
                self._ledger.mark(node, log)
        self._deliver(origin.node, origin.name, log)
        self._await_gaps(origin, log)

    def begin(self) -> None:
        """This node is the first of its swarm: nothing was said before it came."""
        self._baseline = self._alone.is_founder = True
        self._take_back()

    def _take_back(self, before: int = 0) -> None:
        """What earlier lives delivered is kept for others again, where its origin is known; none comes twice.

        With `before`, what they said themselves with a lower number, and nothing else yet.
        """
        core, shelf = self.core, self.journal.shelf
        taken = {core.own.node: shelf.taken_back_of(core.own.node)} | ({} if before else shelf.taken_back())
        for node, events in taken.items():
            origin = self._origin(node)
            certificate = core.own.certificate if node == core.own.node else origin.certificate if origin else b""
            if not certificate or not events:
                continue
            log = self._log(node)
            for sequence, encoded in events:
                if before and sequence >= before:
                    break  # Written by a later life than the journal knows of.
                message = _KEPT.decode(encoded)
                log.take_back(sequence, self._ledger.encoded(certificate, SignedEvent(message.body, message.signature)))
                self._alone.keeps(node, sequence)
            self._ledger.mark(node, log)

    @property
    def has_baseline(self) -> bool:
        """Whether it is known since this boot what was said before."""
        return self._baseline

    def admitted(self, member: Member) -> None:
        """A member came (back) into the table: what is known of its events counts again."""
        log = self.logs.get(member.node)
        if log is not None:
            self._ledger.admitted(member.node, log)

    def forget_strangers(self) -> None:
        """Drop the logs of origins that are of no concern any more."""
        for node in self._ledger.forgotten():
            self._claims.forget(node)

    def on_trust(self) -> None:
        """Nothing counts any more of origins whose certificate no longer holds."""
        self._by_origin.on_trust()

    def narrowed(self) -> None:
        """The view has become partial: events count in the digest by origin."""
        self._begin_anew()
        self._ledger = self._by_origin
        known = ((node, self._origin(node)) for node in self.logs)
        self._by_origin.begin({node: origin for node, origin in known if origin is not None})

    def widened(self) -> None:
        """The view has become full: events count in the digest by member."""
        self._begin_anew()
        self._ledger = self.by_member
        self._by_origin.end()
        self.by_member.begin()

    def _begin_anew(self) -> None:
        table = self.core.table
        self.by_member.end()
        table.adjust(EVENTS, table.sections[EVENTS], 0)


def _patience_ns(core: Core) -> int:
    """How long what is missing is awaited."""
    return MESH_PATIENCE_NS if core.view.weighs_links else PATIENCE_NS
