"""Reads members' frames: message by message, within what one member may ask, and a slice of a frame at a time.

A frame holds up to `STREAM_MAX_BYTES` and 4,096 messages, and some take a hundred times as long as others. So work is
counted while a frame is read. Where one slice is done, the loop turns before the next: other members' frames, probes
and timers come between. Each slice reads one message at least. Frames of the same member wait behind it in their order,
up to a bound; what is beyond is not read. Nothing is lost by that: comparisons find what is missing.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence

import msgspec

from swarmd_protocols.channel.codec import DATAGRAM_MAX_BYTES, STREAM_MAX_BYTES, join
from swarmd_protocols.effects import Rejected
from swarmd_protocols.errors import WireError
from swarmd_protocols.ids import Address, NodeId
from swarmd_protocols.subprotocol import SubEffect, SubProtocol
from swarmd_protocols.swim.allowance import QUESTIONS, Allowance
from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.members import Member
from swarmd_protocols.swim.mesh.far_words import NAME as FAR
from swarmd_protocols.swim.mesh.far_words import SIZE_MAX_BYTES as FAR_MAX_BYTES
from swarmd_protocols.swim.mesh.relay import NAME as RELAY
from swarmd_protocols.swim.mesh.relay_words import PART_BYTES, PARTS_MAX
from swarmd_protocols.swim.messages import Buckets, EventVector, Fingerprints, Message, Sections, Sub, Want
from swarmd_protocols.swim.messages import decode_messages as decode
from swarmd_protocols.swim.sender import FrameSender
from swarmd_protocols.swim.swim import Swim

SLICE_UNITS = 256
"""Work of one event. A unit is what the dearest small message takes, 40 microseconds; most take a tenth of it. So a
slice is 10 ms at the very most, and 5 ms where it is all signatures."""
CHECK_UNITS = 3
"""A checked signature, 75 microseconds with what leads to it."""
_OPENED_SHIFT, _PAYLOAD_SHIFT = 12, 9
"""One unit for so many bytes (a power of two) of a frame that is opened and decoded, and of a sub-protocol's words."""
_BUCKETS_UNITS = 12
"""256 sums are held against as many."""
_ITEMS_SHIFT = 8
"""One unit for 32 fingerprints of 8 bytes."""
_ORIGINS_SHIFT = 4
"""One unit for 16 origins of an event vector."""
WAITING_BYTES_MAX = 4 * STREAM_MAX_BYTES
"""Bytes of one member's frames that wait until an earlier one is read: four times what a comparison brings at once.
What is beyond is counted and left unread; nobody is named for it, since much may come at once of an honest member."""
_FRAME_BYTES = 1_024
"""What a frame that waits counts beside its bytes: so 4,096 of a member's wait at most, also of empty ones."""
WAITING_MEMBERS_MAX = 16
"""Members whose frames may wait at once; the most that waits is 64 MB, where 16 members conspire."""
RELAYED_MAX_BYTES = PART_BYTES * PARTS_MAX
"""Bytes of a frame that others handed on."""
_HEAD_BYTES = 8
"""What makes one message a body, at most."""
NEXT_NS = 1_000
"""The next slice is due so much later, nanoseconds: what came in the meantime is first."""


class _Frame(msgspec.Struct):
    """One that waits, or is being read."""

    member: Member
    source: Address
    body: bytes
    messages: Sequence[Message] = ()
    """Empty before its turn."""
    at: int = 0
    """How many of them were read."""

    @property
    def cost_bytes(self) -> int:
        """What it counts while it waits."""
        return len(self.body) + _FRAME_BYTES


class _Queue(msgspec.Struct):
    """Frames of one member that wait, in their order."""

    frames: deque[_Frame] = msgspec.field(default_factory=deque)
    cost_bytes: int = 0

    def append(self, frame: _Frame) -> None:
        self.frames.append(frame)
        self.cost_bytes += frame.cost_bytes

    def pop(self) -> None:
        self.cost_bytes -= self.frames.popleft().cost_bytes


class Reader:
    """What members say, read in order."""

    def __init__(
        self,
        core: Core,
        wire: FrameSender,
        swim: Swim,
        subs: Mapping[str, SubProtocol],
        perform: Callable[[SubProtocol, Sequence[SubEffect]], None],
        on_trust: Callable[[], None],
    ) -> None:
        """Nothing waits.

        Args:
            core: Of this node.
            wire: Takes the effects of what is read.
            swim: Membership.
            subs: Sub-protocols by name.
            perform: Carries out what a sub-protocol wants.
            on_trust: Something that officers signed was taken: what counts may have changed.
        """
        self._core = core
        self._wire = wire
        self._swim = swim
        self._subs = subs
        self._perform = perform
        self._on_trust = on_trust
        self._allowance = Allowance()
        self._waiting: dict[NodeId, _Queue] = {}
        self._is_due = False

    @property
    def waiting_bytes(self) -> int:
        """Bytes of frames that are not read to their end."""
        return sum(len(frame.body) for queue in self._waiting.values() for frame in queue.frames)

    def take(self, member: Member, source: Address, body: bytes, *, is_stream: bool) -> None:
        """Read what a member sealed: now, or after what it sent before on the reliable path.

        Args:
            member: Who sealed it.
            source: Where it came from.
            body: The frame's plaintext.
            is_stream: It came on the reliable path.

        Raises:
            WireError: The body is none; nothing of it was read.
        """
        if is_stream and member.node in self._waiting:
            self._wait(_Frame(member, source, body))
            return
        frame = _Frame(member, source, body, decode(body, STREAM_MAX_BYTES if is_stream else DATAGRAM_MAX_BYTES))
        self._swim.on_frame(member, source)
        if not self._read(frame):
            self._wait(frame)

    def take_relayed(self, member: Member, body: bytes) -> None:
        """Read what a member sealed and others handed on: words of sub-protocols, which says nothing of its link."""
        self._take_far(member, body, RELAYED_MAX_BYTES, (RELAY,))

    def take_streamed(self, member: Member, message: bytes) -> None:
        """Read one message that a far member sent in pieces: likewise."""
        self._take_far(member, join([message]), FAR_MAX_BYTES + _HEAD_BYTES, (RELAY, FAR))

    def _take_far(self, member: Member, body: bytes, limit_bytes: int, barred: tuple[str, ...]) -> None:
        try:
            messages = decode(body, limit_bytes)
        except WireError as error:
            self.refused(member.route, error)
            return
        for message in messages:
            if type(message) is not Sub or message.name in barred:
                self._core.reject(member, f"{type(message).__name__} is not handed on")
                return
        frame = _Frame(member, member.route, body, messages)
        if not self._read(frame):
            self._wait(frame)

    def refused(self, source: Address, error: WireError) -> None:
        """Bytes came that are no frame."""
        self._core.counters["malformed"] += 1
        if self._wire.first.contacts.reports(self._core.now_ns):
            self._wire.emit(Rejected(source, str(error)))

    def _wait(self, frame: _Frame) -> None:
        """To the end of what waits of its sender, as far as there is room."""
        node = frame.member.node
        waiting = self._waiting.get(node) or _Queue()
        if waiting.cost_bytes + frame.cost_bytes > WAITING_BYTES_MAX or (
            not waiting.frames and len(self._waiting) >= WAITING_MEMBERS_MAX
        ):
            self._core.counters["frames_not_read"] += 1
            return
        waiting.append(frame)
        self._waiting[node] = waiting
        self._come_back()

    def _come_back(self) -> None:
        if self._waiting and not self._is_due:
            self._is_due = True
            self._core.scheduler.at(self._core.now_ns + NEXT_NS, self._go_on)

    def _go_on(self, _: object) -> None:
        """Read one slice of the member whose turn it is."""
        self._is_due = False
        node = next(iter(self._waiting))
        queue = self._waiting.pop(node)
        frame = queue.frames[0]
        is_read = True
        try:
            if not frame.messages:
                frame.messages = decode(frame.body, STREAM_MAX_BYTES)
                self._swim.on_frame(frame.member, frame.source)
            is_read = self._read(frame)
        except WireError as error:
            self.refused(frame.source, error)
        if is_read:
            queue.pop()
        if queue.frames:
            self._waiting[node] = queue  # To the end: the next in turn goes first.
        self._come_back()

    def _read(self, frame: _Frame) -> bool:
        """Read a slice; whether the frame is over, because it is read or since its sender is not heard any more."""
        member, messages, core = frame.member, frame.messages, self._core
        held, crypto, wire = core.table.by_node, core.crypto, self._wire
        begun, units = frame.at, 0 if frame.at else len(frame.body) >> _OPENED_SHIFT
        while frame.at < len(messages):
            message = messages[frame.at]
            due = units_of(message)
            if frame.at > begun and units + due > SLICE_UNITS:
                return False
            if core.own.left or held.get(member.node) is not member:
                return True  # Forgotten for what it said before: its view became partial, or it is revoked.
            frame.at += 1
            effects, checks = len(wire.effects), crypto.checks
            if not self._dispatch(member, message, frame.source):
                return True
            if core.trust.news:
                self._on_trust()
            units += due + len(wire.effects) - effects + CHECK_UNITS * (crypto.checks - checks)
        return True

    def _dispatch(self, member: Member, message: Message, source: Address) -> bool:
        """Take one message; False where the rest of its frame is not read, since the sender floods."""
        core, effects, allowance = self._core, self._wire.effects, self._allowance
        if type(message) is Sub:
            if not allowance.hears_sub(member.node, core.now_ns):
                self._on_flood(member, message.name)
                return False
            sub = self._subs.get(message.name)
            if sub is not None:
                checks = core.crypto.checks
                found = sub.on_message(member.node, message.payload, core.now_ns)
                allowance.spend_sub(member.node, found, core.crypto.checks - checks, core.now_ns)
                self._perform(sub, found)
            return True
        if not allowance.hears(member.node, message, core.now_ns):
            self._on_flood(member, type(message).__name__)
            return isinstance(message, QUESTIONS)
        if not allowance.answers(member.node, message, core.now_ns):
            core.counters["questions_unanswered"] += 1
            allowance.spend(member.node, message, (), 0, core.now_ns, brought=False)
            return True
        begun, checks = len(effects), core.crypto.checks
        self._swim.on_message(member, message, source)
        news, checks = bool(core.trust.news), core.crypto.checks - checks
        allowance.spend(member.node, message, effects[begun:], checks, core.now_ns, brought=news)
        if core.deaf_to is not None:
            core.deaf_to = None
            self._on_flood(member, type(message).__name__)
            return False
        if type(message) is Sections:
            for name, summary in message.summaries:
                sub = self._subs.get(name)
                if sub is not None:
                    self._perform(sub, sub.on_summary(member.node, summary, core.now_ns))
        return True

    def _on_flood(self, member: Member, what: str) -> None:
        core = self._core
        core.counters["messages_over_rate"] += 1
        alarm = self._allowance.flooded(member.node, member.name, what, core.now_ns)
        if alarm is not None:
            self._wire.emit(alarm)


def units_of(message: Message) -> int:
    """Work of a message before it is looked at, for those whose size says it.

    >>> units_of(Want(0, bytes(8_192)))
    33
    """
    match message:
        case Sub():
            return 1 + (len(message.payload) >> _PAYLOAD_SHIFT)
        case Fingerprints() | Want():
            return 1 + (len(message.items) >> _ITEMS_SHIFT)
        case Buckets():
            return _BUCKETS_UNITS
        case EventVector():
            return 1 + (len(message.vector) >> _ORIGINS_SHIFT)
        case _:
            return 1
