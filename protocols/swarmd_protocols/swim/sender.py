"""The way out and in: sealing, addressing, riders, byte budget, first contacts. Between membership and the driver."""

from collections.abc import Mapping, Sequence

from swarmd_protocols.channel.budget import ByteBudget
from swarmd_protocols.channel.channel import BULK, DATAGRAM, PAIR_OVERHEAD_BYTES, STREAM, TAG_BYTES, Channel, Session
from swarmd_protocols.channel.codec import DATAGRAM_MAX_BYTES, STREAM_MAX_BYTES, encode, join
from swarmd_protocols.effects import Effect, Persist, SendCast, SendDatagram, SendStream, StateChanged
from swarmd_protocols.errors import IdentityError
from swarmd_protocols.ids import Address
from swarmd_protocols.subprotocol import Priority, SubProtocol
from swarmd_protocols.swim.core import DETAIL, EVENT, VERDICT, Core
from swarmd_protocols.swim.digests import Digests
from swarmd_protocols.swim.first_contact import FirstContact
from swarmd_protocols.swim.members import Member
from swarmd_protocols.swim.messages import Sections, Statement, Sub
from swarmd_protocols.swim.pushes import Pushes
from swarmd_protocols.swim.rules import fingerprint
from swarmd_protocols.trust.requests import TrustChanged
from swarmd_protocols.trust.trust import TRUST_JOURNAL

_S = 1_000_000_000
_MS = 1_000_000
_FRAME_ROOM = DATAGRAM_MAX_BYTES - PAIR_OVERHEAD_BYTES - 3
"""Bytes of messages in one datagram; 3 are the array's head."""
_SUMMARISED_MAX = 1_024
"""Peers whose last summary is remembered; the oldest is forgotten first."""
_SUMMARY_GAP_NS = 100 * _MS
"""Shortest time between two summaries of the sub-protocols to one peer, nanoseconds."""
_PEERS_GAP_NS = 100 * _MS
"""Sub-protocols are told of changed peers at most so often, nanoseconds: a swarm forms in bursts."""
_TRICKLE_BYTES = 320
"""Bytes of verdicts and events that ride in a datagram although the budget is spent: one or two."""
_SUB_HEAD_BYTES = 6
"""What wraps a sub-protocol's payload, besides its name."""
_DEADLINE_NS = {
    Priority.PROBE: _S,
    Priority.LEASE: _S,
    Priority.DETECTION: 2 * _S,
    Priority.SYNC: 10 * _S,
    Priority.BULK: 30 * _S,
}
"""How long a transport may try to deliver a stream frame, nanoseconds: after that its news is old."""


def trust_key(kind: str, statement: bytes) -> bytes:
    """The journal's key of a statement of trust."""
    return TRUST_JOURNAL + kind.encode() + b"/" + fingerprint(statement).to_bytes(8, "big")


def bytes_out(counters: Mapping[str, int]) -> int:
    """Bytes of all frames sent, of these counts."""
    return counters["datagram_bytes_out"] + counters["stream_bytes_out"] + counters["cast_bytes_out"]


class FrameSender:
    """Implements `swim.core.Port` over one boot's channel; collects the effects of one event."""

    def __init__(self, channel: Channel, subprotocols: Sequence[SubProtocol]) -> None:
        self.channel = channel
        self.subprotocols = tuple(subprotocols)
        self._heads = tuple((sub, _SUB_HEAD_BYTES + len(sub.name)) for sub in subprotocols)
        self.effects: list[Effect] = []
        self.peers_stale = False
        self._peers_due = False
        self._peers_ns = -_S
        self.core: Core
        self._digests: Digests
        self.first: FirstContact
        self._budget: ByteBudget
        self._pushes: Pushes
        self._summarised: dict[bytes, int] = {}
        self._by_tag: dict[bytes, Member | list[Member]] = {}
        """Nearly every tag is one member's own; a list only where four bytes happen to be equal."""

    def bind(self, core: Core) -> None:
        """Know the core; called once, before the first event."""
        self.core = core
        self.first = FirstContact(core, self, self.channel)
        self._digests = Digests(core, self.subprotocols)
        config = core.config
        self._budget = ByteBudget(config.budget_bytes_s, config.budget_burst_bytes, config.header_bytes)
        self._pushes = Pushes(core, self._budget, lambda member, parts: self._send(member, parts, None))

    # --- Port --------------------------------------------------------------------------------------------------------

    def emit(self, effect: Effect) -> None:
        """See `Port.emit`."""
        self.effects.append(effect)

    def peers_changed(self) -> None:
        """See `Port.peers_changed`; told at once when it is the first change in a while, otherwise gathered."""
        if self.peers_stale or self._peers_due:
            return
        if self.core.now_ns - self._peers_ns >= _PEERS_GAP_NS:
            self.peers_stale = True
        else:
            self._peers_due = True
            self.core.scheduler.at(self._peers_ns + _PEERS_GAP_NS, self._peers_later)
        self._peers_ns = self.core.now_ns

    def _peers_later(self, _: object) -> None:
        self._peers_due = False
        self.peers_stale = True
        self._peers_ns = self.core.now_ns

    def datagram(self, member: Member, parts: list[bytes], source: Address | None = None) -> None:
        """See `Port.datagram`."""
        core = self.core
        size = sum(map(len, parts))
        room = _FRAME_ROOM - size
        rich = self._left() > 0
        if len(core.queue):
            # Over budget, only verdicts and events still ride, one or two at a time.
            riders = core.queue.take(room if rich else min(room, _TRICKLE_BYTES), DETAIL if rich else EVENT)
            if riders:
                parts = parts + riders
                carried = sum(map(len, riders))
                room -= carried
                self._budget.ride(carried)
        if rich:
            parts = self._with_payloads(parts, room)
        self._budget.probe(size + PAIR_OVERHEAD_BYTES + 1, core.now_ns)
        self._send(member, parts, source)

    def _with_payloads(self, parts: list[bytes], room: int) -> list[bytes]:
        """The messages and what the sub-protocols have to say, as far as it fits."""
        for sub, head in self._heads:
            if room <= 2 * head:
                break
            for payload in sub.piggyback(room - 2 * head, self.core.now_ns):
                rider = encode(Sub(sub.name, payload))
                if len(rider) > room:
                    self.core.counters["riders_left_behind"] += 1
                    break
                parts = [*parts, rider]
                room -= len(rider)
                self._budget.ride(len(rider))
        return parts

    def push(self, member: Member, parts: list[bytes], source: Address | None = None) -> None:
        """See `Port.push`."""
        self._send(member, parts, source)

    def datagram_or_stream(self, member: Member, parts: list[bytes]) -> None:
        """See `Port.datagram_or_stream`."""
        if sum(map(len, parts)) <= _FRAME_ROOM:
            self._seal(member, parts, None)
        else:
            self.stream(member, parts)

    def stream(self, member: Member, parts: list[bytes], priority: Priority = Priority.SYNC) -> None:
        """See `Port.stream`."""
        self.stream_frame(member, parts, priority)

    def stream_frame(self, member: Member, parts: list[bytes], priority: Priority) -> bytes:
        """The same; gives the frame, empty where none was sent."""
        session = self.session(member)
        if session is None:
            return b""
        body = join(parts)
        if len(body) + PAIR_OVERHEAD_BYTES > STREAM_MAX_BYTES:
            self.core.counters["too_large"] += 1
            return b""
        bulk = priority is Priority.BULK
        frame = self.channel.seal(session, BULK if bulk else STREAM, body)
        self.core.counters["streams_out"] += 1
        self.core.counters["stream_bytes_out"] += len(frame)
        self.effects.append(SendStream(member.route, frame, self.core.now_ns + _DEADLINE_NS[priority], bulk))
        return frame

    def cast(self, message: bytes) -> None:
        """One encoded message to whoever listens on the shared channel."""
        frame = self.channel.seal_cast(join([message]))
        if len(frame) > DATAGRAM_MAX_BYTES:
            self.core.counters["too_large"] += 1
            return
        self.core.counters["casts_out"] += 1
        self.core.counters["cast_bytes_out"] += len(frame)
        self.effects.append(SendCast(frame))

    def hello(self, address: Address, answer: bool, group: int | None = None, extra: bytes = b"") -> None:
        """See `Port.hello`; at a bounded rate per address and in all."""
        self.first.hello(address, answer, group, extra, paid=False)

    def answer_hello(self, address: Address, group: int, extra: bytes) -> None:
        """See `Port.answer_hello`."""
        self.first.hello(address, False, group, extra, paid=True)

    def show(self, address: Address, group: int, statement: bytes) -> None:
        """See `Port.show`; what does not fit a datagram takes the reliable path."""
        frame = self.channel.seal_group(join([statement]), group)
        if len(frame) <= DATAGRAM_MAX_BYTES:
            self.contact(address, frame)
        else:
            deadline_ns = self.core.now_ns + _DEADLINE_NS[Priority.SYNC]
            self.effects.append(SendStream(address, frame, deadline_ns, False))

    def contact(self, address: Address, frame: bytes | None) -> None:
        """Send a frame of first contact, where there is one."""
        if frame is not None:
            self.core.counters["datagrams_out"] += 1
            self.core.counters["datagram_bytes_out"] += len(frame)
            self._budget.spend(len(frame), len(self.core.table))
            self.effects.append(SendDatagram(address, frame))

    def session_over(self, member: Member) -> None:
        """See `Port.session_over`."""
        if member.session is not None:
            self.channel.retire(member.session, member.session_public)
            member.session = None
        tag = member.session_public[:TAG_BYTES]
        found = self._by_tag.get(tag)
        if isinstance(found, list):
            rest = [other for other in found if other is not member]
            self._by_tag[tag] = rest if len(rest) > 1 else rest[0]
        elif found is member:
            del self._by_tag[tag]

    def session_begins(self, member: Member) -> None:
        """See `Port.session_begins`."""
        tag = self.core.crypto.share(member.session_public[:TAG_BYTES])
        found = self._by_tag.get(tag)
        if found is None:
            self._by_tag[tag] = member
        else:
            self._by_tag[tag] = [*(found if isinstance(found, list) else [found]), member]

    def pressure(self) -> float:
        """See `Port.pressure`."""
        return self._budget.pressure(self.core.now_ns)

    def digest(self) -> bytes:
        """See `Port.digest`."""
        return self._digests.said()

    def differ(self, digest: bytes) -> tuple[bool, bool]:
        """See `Port.differ`."""
        return self._digests.differ(digest)

    def sections(self, view: bool, summaries: bool, member: Member) -> Sections | None:
        """What an ack should carry beside its digest, at a bounded rate per peer; None for nothing."""
        now_ns = self.core.now_ns
        summaries = summaries and now_ns - self._summarised.get(member.node, -_S) >= _SUMMARY_GAP_NS
        if not view and not summaries:
            return None
        if summaries:
            if len(self._summarised) >= _SUMMARISED_MAX:
                del self._summarised[next(iter(self._summarised))]
            self._summarised[member.node] = now_ns
        subs = tuple((sub.name, sub.summary()) for sub in self.subprotocols) if summaries else ()
        return Sections(tuple(self.core.table.sections) if view else (), subs)

    def trust_changed(self, kind: str, statement: bytes) -> None:
        """A statement of trust was taken: journal it, spread it."""
        core = self.core
        mark = fingerprint(statement)
        self.effects.append(Persist(trust_key(kind, statement), statement))
        if kind == "seen":
            return
        core.changed()
        encoded = encode(Statement(kind, statement))
        if len(encoded) <= 1_000:
            core.spread(("trust", mark), encoded, VERDICT)
        self.effects.append(StateChanged("node", TrustChanged(kind)))
        if kind != "node":  # With a root or a revocation group keys fall.
            self.channel.set_group_keys({counter: group.key for counter, group in core.trust.group_keys.items()})

    def flush(self) -> None:
        """Push what is new; see `Pushes.flush`."""
        self._pushes.flush()

    # --- inside ------------------------------------------------------------------------------------------------------

    def session(self, member: Member) -> Session | None:
        """The session with a member, derived when it is first asked for; None where its certificate holds no more."""
        if member.session is not None:
            return member.session
        if member.where < 0 and self.core.trust.certified(member.node) is None:
            return None  # Shut out, and forgotten: an answer that falls due later would carry the new group key to it.
        try:
            session = self.channel.session(member.node, member.public_key, member.session_public)
        except IdentityError as error:
            self.core.reject(member, str(error))
            return None
        member.session = session
        return session

    def open(self, frame: bytes) -> tuple[Member, bytes] | None:
        """Sender and body of a pair frame; None where no known session sealed it, or it was seen before."""
        found = self._by_tag.get(frame[1:5])
        if found is None:
            return None
        for member in found if isinstance(found, list) else (found,):
            session = self.session(member)
            if session is not None:
                body = self.channel.open(session, frame)
                if body is not None:
                    return member, body
        return None

    def is_repeat(self, frame: bytes) -> bool:
        """Whether a pair frame that does not open came before, on another of this node's ways."""
        kind, counter = frame[0] & 15, int.from_bytes(frame[5:9], "big")
        found = self._by_tag.get(frame[1:5])
        members = found if isinstance(found, list) else () if found is None else (found,)
        return any(member.session is not None and not member.session.window(kind).fresh(counter) for member in members)

    def _send(self, member: Member, parts: list[bytes], source: Address | None) -> int:
        """Send messages as datagrams; returns the bytes of all frames."""
        if sum(map(len, parts)) <= _FRAME_ROOM:
            return self._seal(member, parts, source)
        # Too much for one datagram: in several; a single large message takes the reliable path.
        if len(parts) == 1:
            self.stream(member, parts)
            return 0
        half = len(parts) // 2
        return self._send(member, parts[:half], source) + self._send(member, parts[half:], source)

    def _seal(self, member: Member, parts: list[bytes], source: Address | None) -> int:
        """Send messages that one datagram holds; returns its bytes."""
        session = self.session(member)
        if session is None:
            return 0
        frame = self.channel.seal(session, DATAGRAM, join(parts))
        counters = self.core.counters
        counters["datagrams_out"] += 1
        counters["datagram_bytes_out"] += len(frame)
        self.effects.append(SendDatagram(source or member.route, frame))
        return len(frame)

    def _left(self) -> float:
        return self._budget.left(len(self.core.table), self.core.now_ns)
