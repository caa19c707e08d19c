"""What sub-protocols send to one member: straight to it, or in a mesh handed on by others.

    near                       straight; it is probed, and lost as soon as it is silent
    in reach, and not near     straight; nobody probes it, so it is asked whether that comes, until it answers
      it answers               what was sent before that has come, or will: the way is there both ways
      silent                   it has fallen silent: what was sent reliably is handed on by others, and all that follows
    out of reach               handed on; where its beacons are heard, it is asked now and then whether it hears too

A radio may be heard and not hear: without the question whatever is for it would be lost for as long as its beacons
come. A frame that is handed on is the one that went straight, so what came both ways is taken once; a message that is
too large for one frame may come twice, where its target hears and is not heard.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from swarmd_protocols.ids import NodeId
from swarmd_protocols.subprotocol import Priority, Send, SubEffect, SubProtocol
from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.losses import trip_ns
from swarmd_protocols.swim.members import REACHABLE, Member
from swarmd_protocols.swim.membership import Membership
from swarmd_protocols.swim.mesh.far_streams import FarStreams
from swarmd_protocols.swim.mesh.far_words import NAME as FAR
from swarmd_protocols.swim.mesh.far_words import SIZE_MAX_BYTES
from swarmd_protocols.swim.mesh.near import IN_REACH_NS
from swarmd_protocols.swim.mesh.relay import HELD_SHARE, Relay
from swarmd_protocols.swim.mesh.relay import WHOLE_MAX_BYTES as RELAYED_MAX_BYTES
from swarmd_protocols.swim.mesh.relay_words import PART_BYTES
from swarmd_protocols.swim.rules import attempts_needed
from swarmd_protocols.swim.sender import FrameSender

_S, _MS = 1_000_000_000, 1_000_000
_ERROR = 0.001
"""Accepted probability that losses alone explain that nothing was answered: where the air is full most questions have
no answer, and what is handed on for that keeps it full."""
_GAP_NS, _GAP_MAX_NS = 400 * _MS, _S
"""Between two of them, nanoseconds: two round trips where those are longer, up to the second."""
_PROOF_NS = 20 * _S
"""Whoever answered so lately, nanoseconds, is not asked because of what is best effort: in a hall each says a little to
each all the time, and an answer brings as much news as fits."""
_ASKED_MAX = 64
"""Members that are asked at a time; what is for others goes straight all the same."""
_PARTS_MAX = HELD_SHARE * 3 // 8
"""Parts, as the relay hands them on, that are kept for one member: two of them leave it room for what is for others."""
_KEPT_BYTES, _SHARE_BYTES = 4 * SIZE_MAX_BYTES, SIZE_MAX_BYTES
"""Bytes of messages that are kept in all, and for one member: who asks for much, and never answers, has a quarter."""


class _Kept(NamedTuple):
    """What was sent reliably, until its way is known to be one."""

    at_ns: int
    name: str
    """Whose it is."""
    message: bytes
    frame: bytes
    """As it was sent."""
    parts: int
    """Into how many it is cut for the relay, which carries no large ones."""


class _Asked:
    """One member that is asked."""

    __slots__ = ("began_ns", "kept", "kept_bytes", "kept_parts", "member", "replied_ns", "times")

    def __init__(self, member: Member, began_ns: int) -> None:
        self.member = member
        self.began_ns = began_ns
        self.replied_ns = member.link.replied_ns
        self.times = 0
        """How often it was asked since it answered."""
        self.kept: deque[_Kept] = deque()
        self.kept_bytes = 0
        self.kept_parts = 0


class Sends:
    """The way that each takes.

    Args:
        core: Of this node.
        wire: Seals and sends.
        membership: Asks, and knows who is in reach.
        relay: Has others hand on a frame.
        far: The same, of messages too large for one.
        perform: Carries out what these two want done.
    """

    def __init__(
        self,
        core: Core,
        wire: FrameSender,
        membership: Membership,
        relay: Relay,
        far: FarStreams,
        perform: Callable[[SubProtocol, Sequence[SubEffect]], None],
    ) -> None:
        self._core = core
        self._wire = wire
        self._prober = membership.prober
        self._near = membership.overlay.near
        self._relay = relay
        self._far = far
        self._perform = perform
        self._asked: dict[NodeId, _Asked] = {}
        self._kept_bytes = 0

    def send(self, send: Send, message: bytes, name: str) -> None:
        """Send a sub-protocol's message.

        Args:
            send: What it wants.
            message: Its payload, encoded.
            name: Which sub-protocol.
        """
        core, wire = self._core, self._wire
        member = core.table.by_node.get(send.to)
        if member is None or core.own.left:
            core.counters["sends_to_nobody"] += 1
        elif member.where >= 0:
            if send.reliable:
                wire.stream(member, [message], send.priority)
            else:
                wire.datagram_or_stream(member, [message])
        elif not core.view.weighs_links:
            core.counters["sends_to_nobody"] += 1  # Nobody is out of reach and there.
        elif core.view.is_heard(member):
            self._straight(member, send, message, name)
        else:
            self._around(member, send, message, name)

    # --- handed on ---------------------------------------------------------------------------------------------------

    def _around(self, member: Member, send: Send, message: bytes, name: str) -> None:
        if member.state not in REACHABLE:
            self._core.counters["sends_to_nobody"] += 1
            return
        if self._near.seems_in_reach(member, IN_REACH_NS) and self._near.may_ask(member):
            self._prober.ping_once(member, bare=True)
        if send.reliable and len(message) > RELAYED_MAX_BYTES:
            self._perform(self._far, self._far.carry(member.node, name, message))
        else:
            self._perform(self._relay, self._relay.carry(member, message, sure=send.reliable))

    def _again(self, member: Member, kept: _Kept) -> None:
        """What went straight and seems not to have come."""
        self._core.counters["sends_around"] += 1
        if len(kept.message) > RELAYED_MAX_BYTES:
            self._perform(self._far, self._far.carry(member.node, kept.name, kept.message))
        else:
            self._perform(self._relay, self._relay.carry_frame(member, kept.frame, sure=True))

    # --- straight ----------------------------------------------------------------------------------------------------

    def _straight(self, member: Member, send: Send, message: bytes, name: str) -> None:
        if not send.reliable:
            self._wire.datagram_or_stream(member, [message])
            if self._core.now_ns - member.link.replied_ns >= _PROOF_NS:
                self._ask(member)
            return
        # The relay carries frames of streams, and none of bulk; one that it can carry is short.
        short = len(message) <= RELAYED_MAX_BYTES
        priority = min(send.priority, Priority.SYNC) if short else send.priority
        frame = self._wire.stream_frame(member, [message], priority)
        asked = self._ask(member)
        # What streams send again themselves is not kept.
        if frame and asked is not None and name != FAR:
            parts = -(-len(frame) // PART_BYTES) if short else 0
            self._keep(asked, _Kept(self._core.now_ns, name, message, frame if short else b"", parts))

    def _keep(self, asked: _Asked, kept: _Kept) -> None:
        """As far as there is room."""
        if self._has_room(asked, kept):
            asked.kept.append(kept)
            asked.kept_bytes += len(kept.message)
            asked.kept_parts += kept.parts
            self._kept_bytes += len(kept.message)

    def _has_room(self, asked: _Asked, kept: _Kept) -> bool:
        size_bytes = len(kept.message)
        is_little = asked.kept_bytes + size_bytes <= _SHARE_BYTES and asked.kept_parts + kept.parts <= _PARTS_MAX
        return is_little and self._kept_bytes + size_bytes <= _KEPT_BYTES

    def _ask(self, member: Member) -> _Asked | None:
        """Have it proven that what goes straight to a member comes."""
        asked = self._asked.get(member.node)
        if asked is None and len(self._asked) < _ASKED_MAX:
            asked = self._asked[member.node] = _Asked(member, self._core.now_ns)
            self._ask_once(asked)
        return asked

    def _ask_once(self, asked: _Asked) -> None:
        asked.times += 1
        self._prober.ping_once(asked.member, bare=True)
        gap_ns = min(max(_GAP_NS, 2 * trip_ns(self._core, asked.member)), _GAP_MAX_NS)
        self._core.scheduler.at(self._core.now_ns + gap_ns, self._look, asked)

    def _look(self, asked: _Asked) -> None:
        """Whether it has answered."""
        core, member = self._core, asked.member
        replied_ns = member.link.replied_ns
        if replied_ns > asked.replied_ns:
            asked.replied_ns, asked.times = replied_ns, 0
        while asked.kept and asked.kept[0].at_ns < replied_ns:
            self._let_go(asked, asked.kept.popleft())
        is_held = core.table.by_node.get(member.node) is member and not core.own.left
        is_proven = not asked.kept and replied_ns > asked.began_ns
        if is_proven or not is_held or member.where >= 0 or not core.view.weighs_links:
            self._over(asked)
        elif asked.times < attempts_needed(core.round_trip_loss, _ERROR):
            self._ask_once(asked)
        else:
            core.counters["sends_unanswered"] += 1
            self._near.fell_silent(member)
            kept = list(asked.kept) if member.state in REACHABLE else []
            self._over(asked)
            for one in kept:
                self._again(member, one)

    def _let_go(self, asked: _Asked, kept: _Kept) -> None:
        asked.kept_bytes -= len(kept.message)
        asked.kept_parts -= kept.parts
        self._kept_bytes -= len(kept.message)

    def _over(self, asked: _Asked) -> None:
        """Nothing is asked of it any more."""
        while asked.kept:
            self._let_go(asked, asked.kept.popleft())
        del self._asked[asked.member.node]
