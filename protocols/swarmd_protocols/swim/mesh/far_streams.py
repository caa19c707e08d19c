"""Messages too large for one relayed frame, to members out of this radio's reach: whole, in order, or an error.

The two ends cut and join; whoever is between hands on parts (`relay.py`) as it hands on any, and need not know of this.
Each part is sealed for the target. Rules that this file keeps:

- To one member one message after the other; it is delivered once, whole, or its sender is told how far it came and
  which hop ended it: by that hop's own signed word, or else behind whom nothing was heard.
- What waits has a bound; where there is no room, what is for whom most is for gives way to what is for others.
- What is under way is bounded, by what the target has said that it got (additive increase, multiplicative decrease), so
  no hop's queue holds more than `WINDOW_MAX` parts of a stream. All streams of a node together leave a quarter of what
  it may send to far members to everything else.
- The direct path is tried first, and again every `_TRIED_NS`: a segment also goes straight to the target's address, and
  where it answers the same way, all do, until it stops. Who has come near is sent the rest directly, in larger pieces.
  The units are the same on each path, so nothing is delivered twice.
"""

from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from swarmd_protocols.channel.bucket import TokenBucket
from swarmd_protocols.channel.codec import encode
from swarmd_protocols.effects import Alarm, Rejected, SetTimer, StateChanged, TimerKey
from swarmd_protocols.errors import StateError, WireError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.subprotocol import (
    FAR_BURST_BYTES,
    FAR_BYTES_S,
    FAR_LEAST_BYTES_S,
    Peer,
    Priority,
    Send,
    SubEffect,
)
from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.members import REACHABLE, Member
from swarmd_protocols.swim.mesh.far_intake import IDLE_NS, FarIntake
from swarmd_protocols.swim.mesh.far_words import (
    AHEAD_MAX,
    NAME,
    SIZE_MAX_BYTES,
    UNIT_BYTES,
    UNITS_NEAR_MAX,
    Got,
    Segment,
    Stuck,
    decode_word,
    read_ahead,
    stuck_body,
    units_of,
)
from swarmd_protocols.swim.mesh.relay import Relay
from swarmd_protocols.swim.mesh.relay_words import PART_BYTES

_S, _MS = 1_000_000_000, 1_000_000
WINDOW_MAX, _WINDOW_BEGIN = 16, 4.0
"""Units under way to a far member at most, and at first: 16 kB, a quarter of what a hop keeps of one near member."""
WINDOW_NEAR = AHEAD_MAX
"""The same to a member that is near: what `Got` can name."""
_RTO_LEAST_NS, _RTO_MOST_NS = 1 * _S, 8 * _S
"""Whatever the target has not named so long after it was sent is sent again, nanoseconds: a hop tries for 3 s."""
_TRIED_NS = 5 * _S
"""A direct path is tried again after so long, nanoseconds: one datagram of a hundred."""
_DIRECT_NS = 3 * _S
"""It is believed for so long after an answer came by it, nanoseconds: as long as a hop of the other one tries."""
_BEHIND = 3
"""Units that were sent later and came, after which one that did not is sent again at once (RFC 5681, section 3.2)."""
_AGAIN_NS = 100 * _MS
"""Where there is no budget for a unit it is asked again so long after, nanoseconds: one fills in three of these."""
QUEUED_MAX_BYTES, TARGETS_MAX = 1 << 20, 8
"""Bytes of messages that wait or are under way in all, and members that they are for."""
_STUCK_PER_S, _STUCK_BURST = 1, 4
"""Words about parts that ended here that are signed, passed on and checked, each."""
_STUCK_KEPT_NS = 30 * _S
"""So long the last hop's word stands, nanoseconds: twice as long as a message without progress."""
_ALARM_GAP_NS = 60 * _S
"""A member that nothing comes through to is named at most so often, nanoseconds."""
_TICK: TimerKey = (NAME,)


class Unsent(msgspec.Struct, frozen=True):
    """A message did not come through (`StateChanged.detail`)."""

    to: NodeId
    subprotocol: str
    """Whose it was."""
    size_bytes: int
    came_bytes: int
    """What of it the target has said that it got."""
    hop: NodeId | None
    """Who handed it on last: it has said that it could not, and signed that; or it was the first one, and nothing was
    heard from behind it. None: this node had no way to it."""
    is_hops_word: bool
    """The former."""
    why: str


class _Sent(msgspec.Struct):
    at_ns: int
    serial: int
    again: bool


class _Message(msgspec.Struct):
    """One on its way, or waiting for the one before."""

    subprotocol: str
    data: bytes
    number: int = 0
    until_ns: int = 0
    progress_ns: int = 0
    upto: int = 0
    got: set[int] = msgspec.field(default_factory=set)
    flight: dict[int, _Sent] = msgspec.field(default_factory=dict)
    lost: set[int] = msgspec.field(default_factory=set)
    """To be sent again."""
    next: int = 0


class _Out:
    """What is for one member, and how its way behaves."""

    __slots__ = (
        "deviation_ns",
        "direct_ns",
        "messages",
        "recover",
        "rto_ns",
        "serial",
        "threshold",
        "tried_ns",
        "trip_ns",
        "window",
    )

    def __init__(self) -> None:
        self.direct_ns = self.tried_ns = -(2**62)
        """When an answer last came by the direct path, and when that was last tried."""
        self.messages: deque[_Message] = deque()
        self.window = _WINDOW_BEGIN
        self.threshold = float(WINDOW_MAX)
        self.serial = 0
        self.recover = 0
        """A loss of what was sent before this one has been paid for."""
        self.trip_ns = 0
        self.deviation_ns = 0
        self.rto_ns = 2 * _S

    def measured(self, took_ns: int) -> None:
        """A unit came that was sent once (RFC 6298)."""
        if not self.trip_ns:
            self.trip_ns, self.deviation_ns = took_ns, took_ns // 2
        else:
            self.deviation_ns += (abs(self.trip_ns - took_ns) - self.deviation_ns) // 4
            self.trip_ns += (took_ns - self.trip_ns) // 8
        self.rto_ns = min(_RTO_MOST_NS, max(_RTO_LEAST_NS, self.trip_ns + 4 * self.deviation_ns))

    def lose(self, serial: int) -> None:
        """What was sent with this serial is lost: half is under way from here on, once for each window."""
        if serial >= self.recover:
            self.recover = self.serial
            self.threshold = max(2.0, self.window / 2)
            self.window = max(1.0, self.window / 2)


class FarStreams:
    """Implements `SubProtocol` for `Node`, which hands it what is too large for a frame of the relay's."""

    def __init__(
        self,
        core: Core,
        relay: Relay,
        deliver: Callable[[Member, bytes], None],
        direct: Callable[[Member, bytes], None],
        unsent: Callable[[str, NodeId], None],
    ) -> None:
        """Nothing is under way.

        Args:
            core: Of this node.
            relay: Knows parts by their names.
            deliver: Takes an encoded message that has come whole, and who sent it.
            direct: Sends a member a word in a datagram to its own address, whether or not it hears that.
            unsent: Is told whose message to whom did not come through.
        """
        self._core = core
        self._relay = relay
        self._direct = direct
        self._unsent = unsent
        self._out: dict[NodeId, _Out] = {}
        """In the order of who had a turn longest ago."""
        self._intake = FarIntake(core, deliver, direct)
        self._count = 0
        self._bytes = TokenBucket(FAR_BYTES_S, FAR_BURST_BYTES)
        self._spent_ns = 0
        self._signed = TokenBucket(_STUCK_PER_S, _STUCK_BURST)
        self._checked = TokenBucket(_STUCK_PER_S, _STUCK_BURST)
        self._passed = TokenBucket(_STUCK_PER_S, _STUCK_BURST)
        self._stuck: dict[NodeId, tuple[int, NodeId]] = {}
        """By target, when a hop last said that a part for it ended there, and which."""
        self._alarmed: dict[NodeId, int] = {}
        self._armed_ns: int | None = None

    @property
    def name(self) -> str:
        """See `SubProtocol.name`."""
        return NAME

    # --- this node's own ---------------------------------------------------------------------------------------------

    def carry(self, to: NodeId, subprotocol: str, message: bytes) -> list[SubEffect]:
        """Send one encoded message to a far member, after those that wait for it.

        Args:
            to: To whom.
            subprotocol: Whose it is; it is told if it does not come through.
            message: What.

        Returns:
            What is to be done.
        """
        one = _Message(subprotocol, message)
        if len(message) > SIZE_MAX_BYTES:
            return self._ends(to, one, f"a message has {SIZE_MAX_BYTES} bytes at most")
        gone = self._make_room(to, len(message))
        if gone is None or (to not in self._out and len(self._out) >= TARGETS_MAX):
            return self._ends(to, one, "too much waits already")
        out = self._out.setdefault(to, _Out())
        out.messages.append(one)
        self._core.counters["far_streams_sent"] += 1
        ended = [effect for node, other in gone for effect in self._ends(node, other, "what is for others had no room")]
        return ended + self._turn(self._core.now_ns)

    def _make_room(self, to: NodeId, size_bytes: int) -> list[tuple[NodeId, _Message]] | None:
        """What gives way to one more message, taken out, and whom it was for; None: there is no room.

        The newest goes that has not begun, of whom most is for: who has much sent to itself, as a borrower can, keeps
        nothing from others.
        """
        held = {node: sum(len(one.data) for one in out.messages) for node, out in self._out.items()}
        excess, own = sum(held.values()) + size_bytes - QUEUED_MAX_BYTES, held.get(to, 0) + size_bytes
        gone: list[tuple[NodeId, _Message]] = []
        while excess > 0:
            most = max(sorted(held), key=held.__getitem__)
            waiting = self._out[most].messages
            if held[most] <= own or len(waiting) < 2:
                for node, one in reversed(gone):
                    self._out[node].messages.append(one)
                return None
            gone.append((most, waiting.pop()))
            held[most] -= len(gone[-1][1].data)
            excess -= len(gone[-1][1].data)
        return gone

    def on_given_up(self, part: bytes, via: NodeId) -> list[SubEffect]:
        """A part that a near member brought ends here: it is told so, and it tells whoever brought it there."""
        core = self._core
        if not self._signed.take(core.now_ns):
            return []
        node = core.own.node
        word = Stuck(part, node, core.sign("stuck", stuck_body(part, node)))
        return [Send(via, encode(word), False, Priority.SYNC)]

    # --- SubProtocol -------------------------------------------------------------------------------------------------

    def start(self, now_ns: int) -> list[SubEffect]:
        """See `SubProtocol.start`."""
        return []

    def on_command(self, request: object, now_ns: int) -> list[SubEffect]:
        """See `SubProtocol.on_command`; there is nothing to ask of it."""
        raise StateError("streams to far members take no requests")

    def summary(self) -> bytes:
        """See `SubProtocol.summary`: it holds nothing that others should."""
        return b""

    def on_summary(self, sender: NodeId, summary: bytes, now_ns: int) -> list[SubEffect]:
        """See `SubProtocol.on_summary`."""
        return []

    def piggyback(self, budget_bytes: int, now_ns: int) -> list[bytes]:
        """See `SubProtocol.piggyback`."""
        return []

    def on_peers(self, peers: Sequence[Peer], now_ns: int) -> list[SubEffect]:
        """See `SubProtocol.on_peers`: who has come near is sent the rest directly; who is no member, nothing."""
        effects: list[SubEffect] = []
        known = self._core.table.by_node
        self._intake.forget_strangers()
        for node in [node for node in self._out if node not in known]:
            while node in self._out:
                effects += self._give_up(node, "it is no member any more")
        return effects + self._turn(now_ns) if self._out else effects

    def on_timer(self, key: TimerKey, now_ns: int) -> list[SubEffect]:
        """See `SubProtocol.on_timer`."""
        self._armed_ns = None
        return self._turn(now_ns)

    def on_message(self, sender: NodeId, payload: bytes, now_ns: int) -> list[SubEffect]:
        """See `SubProtocol.on_message`."""
        try:
            word = decode_word(payload)
        except WireError as error:
            return [Rejected(sender.hex(), str(error))]
        if isinstance(word, Stuck):
            return self._on_stuck(sender, word, now_ns)
        member = self._core.table.by_node.get(sender)
        if member is None:
            return []
        # A frame of its own says that now; one that others handed on says nothing of its link.
        is_direct = member.where < 0 and member.link.heard_ns == now_ns
        if isinstance(word, Got):
            self._on_got(sender, word, now_ns, is_direct=is_direct)
        else:
            self._intake.on_segment(member, word, now_ns, is_direct=is_direct)
        return self._turn(now_ns)

    # --- what comes --------------------------------------------------------------------------------------------------

    def _on_got(self, sender: NodeId, word: Got, now_ns: int, *, is_direct: bool) -> None:
        out = self._out.get(sender)
        one = out.messages[0] if out is not None else None
        if out is None or one is None or word.number != one.number:
            return
        if is_direct:
            out.direct_ns = now_ns
        named = [*range(one.upto, min(word.upto, one.next)), *read_ahead(word.upto, word.ahead)]
        fresh = [unit for unit in named if unit < one.next and unit >= one.upto and unit not in one.got]
        newest = max((one.flight[unit].serial for unit in fresh if unit in one.flight), default=0)
        for unit in fresh:
            sent = one.flight.pop(unit, None)
            one.lost.discard(unit)
            one.got.add(unit)
            if sent is not None and sent.serial == newest and not sent.again:
                out.measured(now_ns - sent.at_ns)
        while one.upto in one.got:
            one.got.discard(one.upto)
            one.upto += 1
        if not fresh:
            return
        one.progress_ns = now_ns
        step = len(fresh) if out.window < out.threshold else len(fresh) / out.window
        out.window = min(float(WINDOW_MAX), out.window + step)
        for unit in [unit for unit, sent in one.flight.items() if sent.serial + _BEHIND <= newest]:
            self._lose(out, one, unit)
        if one.upto == units_of(len(one.data)):
            out.messages.popleft()
            if not out.messages:
                del self._out[sender]

    def _on_stuck(self, sender: NodeId, word: Stuck, now_ns: int) -> list[SubEffect]:
        member = self._core.table.by_node.get(sender)
        if member is None or member.where < 0:
            return []
        target = self._relay.target_of(word.part)
        if target is None:
            via = self._relay.via_of(word.part)
            is_passed = via is not None and via != sender and self._passed.take(now_ns)
            return [Send(via, encode(word), False, Priority.SYNC)] if via is not None and is_passed else []
        author = self._core.table.by_node.get(NodeId(word.node))
        if target in self._out and author is not None and self._checked.take(now_ns):
            body = stuck_body(word.part, word.node)
            if self._core.signed_by(author.public_key, "stuck", body, word.signature):
                self._stuck[target] = now_ns, author.node
        return []

    # --- what goes ---------------------------------------------------------------------------------------------------

    def _turn(self, now_ns: int) -> list[SubEffect]:
        """Answer, give up what is over, and send what may go: one unit of each member's in turn."""
        effects = self._intake.answer(now_ns)
        for node, out in list(self._out.items()):
            if self._out.get(node) is not out:
                continue  # Whoever was told of one that ended has sent another, and that turn has ended this.
            one = out.messages[0]
            if not one.number:
                self._begin(one, now_ns)
            if now_ns >= min(one.until_ns, one.progress_ns + IDLE_NS):
                effects += self._give_up(node, "nothing more came through" if now_ns < one.until_ns else "too slow")
                continue
            late = [unit for unit, sent in one.flight.items() if now_ns >= sent.at_ns + out.rto_ns]
            for unit in late:
                self._lose(out, one, unit)
            if late:
                out.window, out.rto_ns = 1.0, min(_RTO_MOST_NS, 2 * out.rto_ns)
        waiting = deque(self._out)
        while waiting:
            node = waiting.popleft()
            sent = self._send(node, self._out[node], now_ns)
            if sent is not None:
                effects += sent
                self._out[node] = self._out.pop(node)
                waiting.append(node)
        return self._arm(effects)

    def _begin(self, one: _Message, now_ns: int) -> None:
        self._count += 1
        one.number = self._core.own.boot << 22 | self._count % (1 << 22)
        one.progress_ns = now_ns
        one.until_ns = now_ns + IDLE_NS + len(one.data) * _S // FAR_LEAST_BYTES_S

    def _lose(self, out: _Out, one: _Message, unit: int) -> None:
        out.lose(one.flight.pop(unit).serial)
        one.lost.add(unit)
        self._core.counters["far_units_again"] += 1

    def _send(self, node: NodeId, out: _Out, now_ns: int) -> list[SubEffect] | None:
        """One segment for a member; None where there is nothing to send, or no room for it."""
        one, member = out.messages[0], self._core.table.by_node.get(node)
        if member is None or member.state not in REACHABLE or not one.number:
            return None
        is_near, is_direct = member.where >= 0, now_ns - out.direct_ns < _DIRECT_NS
        is_far = not is_near and not is_direct
        last = units_of(len(one.data))
        begin = min(one.lost, default=one.next)
        if begin >= last or begin > one.upto + AHEAD_MAX:
            return None
        room = (WINDOW_NEAR if is_near else int(out.window)) - len(one.flight)
        if is_far:
            # The members that streams are for share what a hop keeps of this node.
            room = min(room, WINDOW_MAX - self._far_flight())
        if room < 1:
            return None
        if is_far and (self._spent_ns > now_ns or not self._bytes.take(now_ns, PART_BYTES)):
            self._spent_ns = now_ns + _AGAIN_NS
            return None
        end = begin + 1
        most = min(last, begin + (min(room, UNITS_NEAR_MAX) if is_near else 1), one.upto + AHEAD_MAX + 1)
        while end < most and (end in one.lost or end == one.next or (begin == one.next and end > one.next)):
            end += 1
        out.serial += 1
        for unit in range(begin, end):
            one.flight[unit] = _Sent(now_ns, out.serial, unit in one.lost)
            one.lost.discard(unit)
        one.next = max(one.next, end)
        data = one.data[begin * UNIT_BYTES : end * UNIT_BYTES]
        word = encode(Segment(one.number, len(one.data), begin, data))
        self._core.counters["far_segments"] += 1
        if is_direct or (is_far and now_ns - out.tried_ns >= _TRIED_NS):
            out.tried_ns = now_ns
            self._direct(member, word)
        return [] if is_direct and not is_near else [Send(node, word, True, Priority.BULK)]

    def _far_flight(self) -> int:
        """Units under way to members that are not near."""
        near = {member.node for member in self._core.table.reachable}
        return sum(len(out.messages[0].flight) for node, out in self._out.items() if node not in near)

    def _give_up(self, node: NodeId, why: str) -> list[SubEffect]:
        """The message under way to a member has failed; the next one's turn comes."""
        out = self._out[node]
        one = out.messages.popleft()
        if not out.messages:
            del self._out[node]
        out.window, out.threshold, out.rto_ns, out.trip_ns = _WINDOW_BEGIN, float(WINDOW_MAX), 2 * _S, 0
        return self._ends(node, one, why)

    def _ends(self, node: NodeId, one: _Message, why: str) -> list[SubEffect]:
        core = self._core
        core.counters["far_streams_failed"] += 1
        at_ns, hop = self._stuck.pop(node, (-_STUCK_KEPT_NS, None))
        is_hops_word = hop is not None and core.now_ns - at_ns < _STUCK_KEPT_NS
        if not is_hops_word:
            hop = self._relay.first_hop(node) if one.next else None
        came = min(len(one.data), (one.upto + len(one.got)) * UNIT_BYTES)
        self._unsent(one.subprotocol, node)
        unsent = Unsent(node, one.subprotocol, len(one.data), came, hop, is_hops_word, why)
        effects: list[SubEffect] = [StateChanged(NAME, unsent)]
        if core.now_ns - self._alarmed.get(node, -_ALARM_GAP_NS) >= _ALARM_GAP_NS:
            while len(self._alarmed) >= TARGETS_MAX:
                del self._alarmed[next(iter(self._alarmed))]
            self._alarmed[node] = core.now_ns
            where = "this node had no way to it" if hop is None else f"nothing was heard from behind {self._named(hop)}"
            if is_hops_word and hop is not None:
                where = f"it ended at {self._named(hop)}, by its own word"
            text = f"{came} of {len(one.data)} bytes ({one.subprotocol}) came to {self._named(node)}: {why}; {where}"
            effects.append(Alarm("far-stream", text))
        return effects

    def _named(self, node: NodeId) -> str:
        member = self._core.table.by_node.get(node)
        return node.hex()[:8] if member is None else member.name

    def _arm(self, effects: list[SubEffect]) -> list[SubEffect]:
        dues = self._intake.dues()
        for out in self._out.values():
            one = out.messages[0]
            dues.append(min(one.until_ns, one.progress_ns + IDLE_NS))
            dues += [sent.at_ns + out.rto_ns for sent in one.flight.values()]
        now_ns = self._core.now_ns
        if self._spent_ns > now_ns and self._out:
            dues.append(self._spent_ns)
        due_ns = max(min(dues), now_ns + _MS) if dues else None
        if due_ns is not None and (self._armed_ns is None or due_ns < self._armed_ns or self._armed_ns <= now_ns):
            self._armed_ns = due_ns
            effects.append(SetTimer(_TICK, due_ns))
        return effects
