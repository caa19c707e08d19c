"""What comes of messages that far members send in pieces: kept until it is whole, answered at a bounded rate.

- Of each origin one message is kept at a time, of `ORIGINS_MAX` origins, and of it no more than `AHEAD_MAX` units
  beyond the first that is missing. A newer one takes the older one's place: its sender has given that up.
- It is delivered once: what comes of it after that is answered, and nothing else.
- Origins take turns in the answers that there are: whoever had one longest ago is next, so that nobody who sends more
  segments than are answered keeps others' messages from going on.
"""

from collections.abc import Callable

import msgspec

from swarmd_protocols.channel.bucket import TokenBucket
from swarmd_protocols.channel.codec import encode
from swarmd_protocols.ids import NodeId
from swarmd_protocols.subprotocol import Priority, Send, SubEffect
from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.members import Member
from swarmd_protocols.swim.mesh.far_words import AHEAD_MAX, UNIT_BYTES, Got, Segment, pack_ahead, units_of

_S, _MS = 1_000_000_000, 1_000_000
IDLE_NS = 15 * _S
"""A message of which nothing more came for so long is given up, nanoseconds: five times as long as a hop waits."""
_KEPT_NS = 2 * IDLE_NS
"""What came of a message is kept for so long after the last of it, nanoseconds: until its sender has given it up."""
ORIGINS_MAX = 8
"""Members of whom a message is kept that has not come whole: 2.2 MB at most."""
_ACKS_PER_S, _ACKS_BURST = 8, 16
"""Answers to segments: of 1 kB/s at most, so that nobody who sends segments uses up what this node may send itself."""
_ACK_NS = 400 * _MS
"""A segment is answered after so long at the latest, nanoseconds, and at once where another waits."""


class _In(msgspec.Struct):
    """What has come of an origin's message."""

    number: int
    size: int
    seen_ns: int
    parts: dict[int, bytes] = msgspec.field(default_factory=dict)
    upto: int = 0
    is_done: bool = False
    owed: int = 0
    """Segments that were not answered."""
    due_ns: int | None = None
    turn: int = 0
    """When it had an answer last, or began: answers are numbered."""
    waits: bool = False
    """An answer is due, and no more of them were left."""


class FarIntake:
    """The target's side of `far_streams.py`."""

    def __init__(
        self, core: Core, deliver: Callable[[Member, bytes], None], direct: Callable[[Member, bytes], None]
    ) -> None:
        """Nothing has come; the arguments are those of `FarStreams`."""
        self._core = core
        self._deliver = deliver
        self._direct = direct
        self._in: dict[NodeId, _In] = {}
        self._acks = TokenBucket(_ACKS_PER_S, _ACKS_BURST)
        self._turns = 0

    def __len__(self) -> int:
        """Origins of whom something is kept."""
        return len(self._in)

    def forget_strangers(self) -> None:
        """Drop what came of who is no member any more."""
        known = self._core.table.by_node
        for node in [node for node in self._in if node not in known]:
            del self._in[node]

    def dues(self) -> list[int]:
        """When something is to be done."""
        dues = [held.due_ns for held in self._in.values() if held.due_ns is not None]
        return dues + [held.seen_ns + _KEPT_NS for held in self._in.values() if not held.is_done]

    def on_segment(self, member: Member, word: Segment, now_ns: int, *, is_direct: bool) -> None:
        """Units of a message came, by the member's own frame to this node or by others."""
        sender = member.node
        held = self._in.get(sender)
        if held is None or word.number > held.number:
            if held is None and not self._has_room(now_ns):
                self._core.counters["far_streams_no_room"] += 1
                return
            turn = self._turns if held is None else held.turn
            held = self._in[sender] = _In(word.number, word.size, now_ns, turn=turn)
        if word.number < held.number or word.size != held.size:
            return  # Of a message that its sender has given up.
        held.seen_ns = now_ns
        held.owed += 1
        is_next = word.index == held.upto
        if not held.is_done:
            self._take(held, word)
        if is_direct and self._is_first(held) and self._acks.take(now_ns):
            # By the same path, and by others only what that one does not bring.
            self._answered(held)
            self._direct(member, encode(_got(held)))
        elif not is_next or held.parts.keys() - range(held.upto):
            held.owed += 1  # Something is missing before it, or it came again: its sender wants to know.
        if not held.is_done and held.upto == units_of(held.size):
            held.is_done, held.owed = True, held.owed + 1
            data = b"".join(held.parts[unit] for unit in range(held.upto))
            held.parts.clear()
            self._core.counters["far_streams_arrived"] += 1
            self._deliver(member, data)

    def _take(self, held: _In, word: Segment) -> None:
        """Keep what is new of a segment, as far ahead as its sender can be told of."""
        for at in range(0, len(word.data), UNIT_BYTES):
            unit = word.index + at // UNIT_BYTES
            if held.upto <= unit <= held.upto + AHEAD_MAX:
                held.parts.setdefault(unit, word.data[at : at + UNIT_BYTES])
                while held.upto in held.parts:
                    held.upto += 1

    def _has_room(self, now_ns: int) -> bool:
        """Whether another origin's message may begin; the one that has been silent for longest goes for it."""
        if len(self._in) < ORIGINS_MAX:
            return True
        node = min(sorted(self._in), key=lambda node: (not self._in[node].is_done, self._in[node].seen_ns))
        if not self._in[node].is_done and now_ns - self._in[node].seen_ns < IDLE_NS:
            return False
        del self._in[node]
        return True

    def answer(self, now_ns: int) -> list[SubEffect]:
        """Say what has come, where two segments wait for it or one has waited long."""
        for node in [node for node, held in self._in.items() if now_ns >= held.seen_ns + _KEPT_NS and not held.is_done]:
            del self._in[node]  # Its sender has given it up.
        effects: list[SubEffect] = []
        for node, held in self._due(now_ns):
            if not self._acks.take(now_ns):
                held.due_ns, held.waits = now_ns + _ACK_NS, True
                continue
            self._answered(held)
            effects.append(Send(node, encode(_got(held)), True, Priority.SYNC))
        return effects

    def _due(self, now_ns: int) -> list[tuple[NodeId, _In]]:
        """Whom an answer is due to, those who had none for longest first."""
        due: list[tuple[NodeId, _In]] = []
        for node, held in self._in.items():
            if held.owed and held.due_ns is None:
                held.due_ns = now_ns + _ACK_NS
            if held.owed and (held.waits or held.owed >= 2 or (held.due_ns or 0) <= now_ns):
                due.append((node, held))
        return sorted(due, key=lambda one: one[1].turn)

    def _is_first(self, held: _In) -> bool:
        """Whether nobody waits for an answer who had none for longer."""
        return not any(one.waits and one.turn < held.turn for one in self._in.values())

    def _answered(self, held: _In) -> None:
        self._turns += 1
        held.owed, held.due_ns, held.turn, held.waits = 0, None, self._turns, False


def _got(held: _In) -> Got:
    return Got(held.number, held.upto, b"" if held.is_done else pack_ahead(held.upto, set(held.parts)))
