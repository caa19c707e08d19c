"""Frames to members out of this radio's reach: sealed from end to end, handed on hop by hop. Without I/O.

    onward   to a near member: this part of a frame is for that member; what is left of its way costs less than mine
    taken    back, for what was sent reliably: I have it and see to it; whoever does not hear that within 0.1 s tries
             again, then somebody else

The node carries it as it carries a sub-protocol, so that members that know nothing of it leave it unread. Rules that
this file keeps:

- Nobody on the way can read or change a frame: the pair at its ends has sealed it, and its ends alone act on it.
- A hop stamps what the rest of the way costs by its own reckoning; who takes it must reckon less. A part that was taken
  is not taken again. So nothing goes in a circle, whatever anybody reports, and nothing goes farther than `HOPS_MAX`.
- Where nobody near costs less any more than what a part was taken for, as where its way breaks while nodes move, it is
  stamped anew, once a round and for `_ANEW_HOPS`; who has handed it on before says nothing, and another is asked.
- Only near members hand anything on, and only to members: who is revoked has no session that could.
- What is handed on for others has a budget of bytes; near members who bring something take turns in it, so that none
  can use what another needs.
- What waits for others has a bound, and a share of it is each near member's: where there is no room, whoever has most
  there makes some for who has less.
- What cannot go on now waits a little; it is not news any more after `_PARKED_NS`.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from swarmd_protocols.channel.bucket import TokenBucket
from swarmd_protocols.channel.channel import STREAM, Channel, Session
from swarmd_protocols.channel.codec import encode, join
from swarmd_protocols.effects import Rejected, SetTimer, TimerKey
from swarmd_protocols.errors import StateError, WireError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.subprotocol import Peer, Priority, Send, SubEffect
from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.losses import trip_ns
from swarmd_protocols.swim.members import REACHABLE, Member
from swarmd_protocols.swim.mesh.graph import KEY_BYTES
from swarmd_protocols.swim.mesh.relay_order import ShortFirst
from swarmd_protocols.swim.mesh.relay_words import (
    HOPS_MAX,
    PART_BYTES,
    PARTS_MAX,
    Onward,
    Taken,
    decode_message,
)
from swarmd_protocols.swim.rules import fingerprint

_S, _MS = 1_000_000_000, 1_000_000
NAME = "relay"
PART_LEAST_BYTES = 128
"""What a part costs a budget at least, bytes: what wraps it once more takes so much, however little there is in it."""
WHOLE_MAX_BYTES = PART_BYTES * PARTS_MAX - 64
"""Bytes of one encoded message that goes in a frame of parts, without its seal and heads; larger ones are streams."""
ACK_NS, ACK_MAX_NS = 100 * _MS, 1 * _S
"""Who has not said within so long that it took a part is asked again, nanoseconds: a hop takes 5 ms, 20 under load.
Whose probes take longer has twice as long as those, up to the second: where the air is full, whoever asks again for
answers that wait in queues fills it for good."""
TRIES = 2
"""Times that one near member is asked in turn, before another is."""
AGAIN_NS = 300 * _MS
"""What nobody takes waits so long before all are tried anew, nanoseconds: a report of a lost link takes as long."""
_ANEW_HOPS = 1
"""Hops that a part has left less where it is stamped anew: so that ends, also where it stays at one hop."""
_PARKED_NS = 3 * _S
"""Whatever has not gone on for so long is dropped, nanoseconds: whoever wanted it has asked again."""
RELAY_BYTES_S, _RELAY_BURST_BYTES = 4_000, 24_000
"""Bytes a second that are sent for others, and at once: what one frame of `PARTS_MAX` takes. A link of 20 kB/s has
five."""
OWN_BYTES_S, _OWN_BURST_BYTES = 4_000, 24_000
"""Bytes a second that this node sends to far members, and at once; the same."""
HELD_MAX, HELD_SHARE = 256, 64
"""Parts of others that wait here in all, 270 kB, and of one near member, or this node's own."""
_RECKONED_PER_S, _RECKONED_BURST = 64, 512
"""Targets to which ways are reckoned because of one near member's parts, per second, and at once: as many parts as it
may send, of its own and of others. It takes 1 ms among 200 members, and parts that lead nowhere cost it no budget."""
_SEEN_MAX = 4_096
"""Parts that were taken and are remembered: those of `_PARKED_NS` and more, with four parts from each of 256."""
_WHOLES_MAX, _WHOLES_SHARE = 32, 8
"""Frames for this node of which parts are missing, in all and by the near member that brought the first: 540 kB."""
_WHOLE_NS = 10 * _S
"""A frame whose parts have not all come so long after the first is let go, nanoseconds."""
_TICK: TimerKey = (NAME,)


class Seals(Protocol):
    """What seals and opens for pairs (`sender.py`)."""

    channel: Channel

    def session(self, member: Member) -> Session | None:
        """The session with a member; None where its certificate holds no more."""
        ...

    def open(self, frame: bytes) -> tuple[Member, bytes] | None:
        """Sender and body of a pair frame; None where no known session sealed it, or it was seen before."""
        ...


class _Held(msgspec.Struct):
    """A part on its way, until the next hop has said that it took it."""

    onward: Onward
    via: NodeId | None
    """Who brought it; None: it is this node's own."""
    until_ns: int
    due_ns: int
    tried: dict[NodeId, int] = msgspec.field(default_factory=dict)
    """Who was asked, and how often since all were asked anew."""
    asked: set[NodeId] = msgspec.field(default_factory=set)
    """Everybody who was ever asked: whose word that it was taken counts."""
    is_anew: bool = False
    """It was stamped anew in this round."""
    rounds: int = 0
    """How often all were asked in vain."""


class _Whole(msgspec.Struct):
    """A frame for this node of which parts are missing."""

    via: NodeId
    until_ns: int
    parts: int
    held: dict[int, bytes] = msgspec.field(default_factory=dict)


class Relay:
    """Implements `SubProtocol` for `Node`, which hands it what is for far members."""

    def __init__(self, core: Core, seals: Seals, deliver: Callable[[Member, bytes], None]) -> None:
        """Nothing waits.

        Args:
            core: Of this node.
            seals: Seals and opens.
            deliver: Takes the body of a frame for this node, and who sealed it.
        """
        self._core = core
        self._seals = seals
        self._deliver = deliver
        self._held: dict[bytes, _Held] = {}
        self._seen: dict[bytes, NodeId] = {}
        """Parts that were taken, and who brought them."""
        self._said: dict[bytes, NodeId] = {}
        """Parts of this node's own that are kept until they are taken, the newest, and for whom."""
        self._hops: dict[bytes, NodeId] = {}
        """By far member, whom a part for it was handed to last."""
        self.gave_up: Callable[[bytes, NodeId], None] = lambda name, via: None
        """Is told of a part that ends here, and who brought it."""
        self._wholes: dict[bytes, _Whole] = {}
        self._others = TokenBucket(RELAY_BYTES_S, _RELAY_BURST_BYTES)
        self._own = TokenBucket(OWN_BYTES_S, _OWN_BURST_BYTES)
        self._served: dict[NodeId | None, int] = {}
        """By near member that brought something, when it had its last turn: what is handed on is numbered."""
        self._reckons: dict[NodeId, TokenBucket] = {}
        """By near member, what ways are reckoned because of its parts."""
        self._turns = 0
        self._order = ShortFirst()
        self._spent_ns: dict[bool, int] = {True: 0, False: 0}
        """Until when the budget of what is this node's own (`True`), and of others', is left to fill."""
        self._armed_ns: int | None = None

    @property
    def name(self) -> str:
        """See `SubProtocol.name`."""
        return NAME

    # --- this node's own ---------------------------------------------------------------------------------------------

    def carry(self, member: Member, message: bytes, *, sure: bool) -> list[SubEffect]:
        """Send one encoded message to a member that is reached and not near; what cannot go is counted and dropped.

        Args:
            member: To whom.
            message: What.
            sure: Each hop keeps it until the next one has it; otherwise it is sent once a hop.

        Returns:
            What is to be done.
        """
        session = self._seals.session(member)
        if session is None:
            return []
        return self.carry_frame(member, self._seals.channel.seal(session, STREAM, join([message])), sure=sure)

    def carry_frame(self, member: Member, frame: bytes, *, sure: bool) -> list[SubEffect]:
        """The same of a frame for it, sealed for streams."""
        counters = self._core.counters
        count = -(-len(frame) // PART_BYTES)
        if count > PARTS_MAX:
            counters["relay_too_large"] += 1
            return []
        if self._waiting_of(None) + count > HELD_SHARE:
            counters["relay_over_rate"] += 1
            return []
        counters["relay_sent"] += 1
        whole = fingerprint(frame).to_bytes(8, "big")
        for part in range(count):
            data = frame[part * PART_BYTES : (part + 1) * PART_BYTES]
            onward = Onward(member.node, HOPS_MAX, 65_535, sure, whole, part, count, data)
            name = _name(onward)
            if sure:
                _note(self._said, name, member.node, HELD_MAX)
            self._hold(name, onward, None)
        return self._turn(self._core.now_ns)

    def target_of(self, part: bytes) -> NodeId | None:
        """For whom a part of this node's own is; None where it has said none of that name."""
        return self._said.get(part)

    def via_of(self, part: bytes) -> NodeId | None:
        """Who brought a part that was taken here."""
        return self._seen.get(part)

    def first_hop(self, target: NodeId) -> NodeId | None:
        """Whom a part of this node's own for a far member was handed to last."""
        return self._hops.get(target)

    # --- SubProtocol -------------------------------------------------------------------------------------------------

    def start(self, now_ns: int) -> list[SubEffect]:
        """See `SubProtocol.start`."""
        return []

    def on_command(self, request: object, now_ns: int) -> list[SubEffect]:
        """See `SubProtocol.on_command`; there is nothing to ask of it."""
        raise StateError("the relay takes no requests")

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
        """See `SubProtocol.on_peers`: what waits may have a way; who is gone has no turn."""
        here = {peer.node for peer in peers}
        for node in [node for node in self._served if node is not None and node not in here]:
            del self._served[node]
        for node in [node for node in self._reckons if node not in here]:
            del self._reckons[node]
        self._order.keep(here)
        for held in self._held.values():
            if not held.tried:
                held.due_ns = now_ns
        return self._turn(now_ns)

    def on_timer(self, key: TimerKey, now_ns: int) -> list[SubEffect]:
        """See `SubProtocol.on_timer`."""
        self._armed_ns = None
        return self._turn(now_ns)

    def on_message(self, sender: NodeId, payload: bytes, now_ns: int) -> list[SubEffect]:
        """See `SubProtocol.on_message`."""
        member = self._core.table.by_node.get(sender)
        if member is None or member.where < 0 or not self._core.view.weighs_links:
            return []  # Not near: nobody else hands anything on.
        try:
            message = decode_message(payload)
        except WireError as error:
            return [Rejected(member.route, str(error))]
        if isinstance(message, Taken):
            held = self._held.get(message.name)
            if held is not None and sender in held.asked:
                del self._held[message.name]
            return []
        taken = self._take(sender, message, now_ns)
        return [*taken, *self._turn(now_ns)] if taken or not message.sure else []

    # --- inside ------------------------------------------------------------------------------------------------------

    def _take(self, sender: NodeId, onward: Onward, now_ns: int) -> list[SubEffect]:
        """A part came: it is for this node, goes on from here, or is left to its sender."""
        counters = self._core.counters
        name = _name(onward)
        word = Send(sender, encode(Taken(name)), False, Priority.PROBE)
        taken: list[SubEffect] = [word] if onward.sure else []
        if name in self._seen or name in self._said:
            # It did not hear that; or the part was stamped anew and came back to where it has been, or began. Who was
            # asked may have it, and be its sender by way of others: it would say so, and both would let go of it.
            held = self._held.get(name)
            is_kept = held is not None and not held.asked
            is_seen_to = self._seen.get(name) == sender or is_kept or onward.target == self._core.own.node
            return taken if is_seen_to else []
        if onward.target == self._core.own.node:
            self._remember(name, sender)
            self._arrive(sender, onward, now_ns)
            return taken
        if onward.hops <= 1 or not self._leads_on(sender, onward):
            counters["relay_no_way"] += 1
            return []
        if not self._has_room_of(sender):
            counters["relay_over_rate"] += 1
            return []
        counters["relay_taken"] += 1
        self._remember(name, sender)
        self._hold(name, msgspec.structs.replace(onward, hops=onward.hops - 1), sender)
        return taken

    def _has_room_of(self, sender: NodeId) -> bool:
        """Whether one more part of a near member may wait; where all is full, the newest of who has most goes for it.

        So no few near members, however they agree, leave no room for another one's.
        """
        counts = Counter(held.via for held in self._held.values() if held.via is not None)
        if counts[sender] >= HELD_SHARE:
            return False
        if counts.total() < HELD_MAX:
            return True
        most = max(sorted(counts), key=counts.__getitem__)
        if counts[most] <= counts[sender] + 1:
            return False
        self._drop(next(name for name in reversed(self._held) if self._held[name].via == most))
        return True

    def _leads_on(self, sender: NodeId, onward: Onward) -> bool:
        """Whether this node is nearer to the target than whoever handed the part on."""
        target = self._core.table.by_node.get(NodeId(onward.target))
        if target is None or target.state not in REACHABLE:
            return False
        routes, key = self._core.view.routes, target.node[:KEY_BYTES]
        if not routes.are_reckoned(key):
            reckons = self._reckons.setdefault(sender, TokenBucket(_RECKONED_PER_S, _RECKONED_BURST))
            if not reckons.take(self._core.now_ns):
                self._core.counters["relay_over_rate"] += 1
                return False
        ways = routes.ways(key)
        return bool(ways) and ways[0].cost < onward.cost

    def _arrive(self, sender: NodeId, onward: Onward, now_ns: int) -> None:
        """A part of a frame for this node: with the last of them it is opened."""
        if onward.parts == 1:
            self._open(onward.data)
            return
        wholes = self._wholes
        for name in [name for name, one in wholes.items() if one.until_ns <= now_ns]:
            del wholes[name]
        whole = wholes.get(onward.whole)
        if whole is None:
            self._room_for_whole(sender)
            whole = wholes[onward.whole] = _Whole(sender, now_ns + _WHOLE_NS, onward.parts)
        if onward.part < whole.parts:
            whole.held.setdefault(onward.part, onward.data)
        if len(whole.held) == whole.parts:
            del wholes[onward.whole]
            self._open(b"".join(whole.held[part] for part in range(whole.parts)))

    def _room_for_whole(self, sender: NodeId) -> None:
        """Let go of one of the sender's, or where all are too many of whose are most: of which least has come.

        So frames that somebody far begins and never ends do not shut out what comes the same way.
        """
        wholes = self._wholes
        counts = Counter(one.via for one in wholes.values())
        if counts[sender] >= _WHOLES_SHARE:
            via = sender
        elif len(wholes) >= _WHOLES_MAX:
            via = max(sorted(counts), key=counts.__getitem__)
        else:
            return
        self._core.counters["relay_over_rate"] += 1
        del wholes[min((name for name in wholes if wholes[name].via == via), key=lambda name: len(wholes[name].held))]

    def _open(self, frame: bytes) -> None:
        opened = self._seals.open(frame) if frame[0] & 15 == STREAM and len(frame) > KEY_BYTES else None
        if opened is None:
            self._core.counters["relay_unopened"] += 1
            return
        self._core.counters["relay_arrived"] += 1
        self._deliver(*opened)

    def _remember(self, name: bytes, via: NodeId) -> None:
        _note(self._seen, name, via, _SEEN_MAX)

    def _waiting_of(self, via: NodeId | None) -> int:
        return sum(held.via == via for held in self._held.values())

    def _hold(self, name: bytes, onward: Onward, via: NodeId | None) -> None:
        now_ns = self._core.now_ns
        self._held[name] = _Held(onward, via, now_ns + _PARKED_NS, now_ns)

    def _turn(self, now_ns: int) -> list[SubEffect]:
        """Whatever is due goes on, near members in turn, as far as there is budget; what is too old is given up."""
        due: dict[NodeId | None, list[bytes]] = {}
        ended: list[tuple[bytes, NodeId]] = []
        for name, held in list(self._held.items()):
            if held.until_ns <= now_ns:
                self._drop(name)
                if held.via is not None and held.onward.sure:
                    ended.append((name, held.via))
            elif held.due_ns <= now_ns and self._spent_ns[held.via is None] <= now_ns:
                due.setdefault(held.via, []).append(name)
        queues = self._order.ordered(due, lambda name: len(self._held[name].onward.data))
        effects: list[SubEffect] = []
        order = deque(sorted(queues, key=lambda via: self._served.get(via, 0)))
        while order:
            via = order.popleft()
            if self._spent_ns[via is None] > now_ns:
                continue  # What waits is due in the next turn, in the order of who had one least lately.
            name = queues[via].popleft()
            sent = self._go(name, self._held[name], now_ns)
            if sent is None:
                self._spent_ns[via is None] = now_ns + ACK_NS
                queues[via].appendleft(name)
                continue
            effects += sent
            if queues[via]:
                order.append(via)
        for name in (name for queue in queues.values() for name in queue):
            self._core.counters["relay_waits"] += 1
            if not self._held[name].onward.sure:
                self._drop(name)
        for name, brought_by in ended:
            self.gave_up(name, brought_by)  # Last: who brought it may be far by now, and a word to it is a turn.
        return self._arm(effects)

    def _drop(self, name: bytes) -> None:
        del self._held[name]
        self._core.counters["relay_given_up"] += 1

    def _go(self, name: bytes, held: _Held, now_ns: int) -> list[SubEffect] | None:
        """Hand a part to the best near member that has not left it `TRIES` times; without one it waits.

        Returns:
            What is to be done; None where there is no budget for it.
        """
        core, onward = self._core, held.onward
        ways = core.view.routes.ways(onward.target[:KEY_BYTES]) if core.view.weighs_links else []
        near = {member.node[:KEY_BYTES]: member for member in core.table.reachable}
        # What it was taken for need not hold any more: while nodes move a way becomes dearer by the second. What is
        # stamped falls all the same, so that the part goes on and in no circle.
        cost = min(ways[0].cost, onward.cost - 1) if ways else 0
        others = [(way, near[way.near]) for way in ways if way.near in near and near[way.near].node != held.via]
        left = [way for way, member in others if not held.rounds or held.tried.get(member.node, 0) < TRIES]
        if left and not held.is_anew and onward.hops > _ANEW_HOPS + 1 and all(way.rest >= cost for way in left):
            held.is_anew, cost = True, left[0].cost
            onward = held.onward = msgspec.structs.replace(onward, cost=cost + 1, hops=onward.hops - _ANEW_HOPS)
        for way, member in others:
            if way.rest >= cost or held.tried.get(member.node, 0) >= TRIES:
                continue
            budget = self._own if held.via is None else self._others
            if not budget.take(now_ns, max(len(onward.data), PART_LEAST_BYTES)):
                return None
            self._turns += 1
            self._served[held.via] = self._turns
            self._order.went(held.via, len(onward.data))
            held.tried[member.node] = held.tried.get(member.node, 0) + 1
            held.asked.add(member.node)
            if held.via is None:
                _note(self._hops, onward.target, member.node, HELD_SHARE)
            held.due_ns = now_ns + min(max(ACK_NS, 2 * trip_ns(core, member)), ACK_MAX_NS)
            core.counters["relay_bytes" if held.via else "relay_own_bytes"] += len(onward.data)
            stamped = msgspec.structs.replace(onward, cost=cost)
            if not onward.sure:
                del self._held[name]
            return [Send(member.node, encode(stamped), False, Priority.PROBE)]
        if onward.sure:
            held.tried.clear()
            held.is_anew = False
            held.rounds += 1
            held.due_ns = now_ns + AGAIN_NS
        else:
            self._drop(name)
        return []

    def _arm(self, effects: list[SubEffect]) -> list[SubEffect]:
        spent_ns = self._spent_ns
        dues = (min(max(one.due_ns, spent_ns[one.via is None]), one.until_ns) for one in self._held.values())
        due_ns = min(dues, default=None)
        if due_ns is not None and (self._armed_ns is None or due_ns < self._armed_ns):
            self._armed_ns = due_ns
            effects.append(SetTimer(_TICK, due_ns))
        return effects


def _note(held: dict[bytes, NodeId], key: bytes, node: NodeId, most: int) -> None:
    """Keep what is newest, of so many at most."""
    if key not in held and len(held) >= most:
        del held[next(iter(held))]
    held[key] = node


def _name(onward: Onward) -> bytes:
    """What tells a part from all others, whoever handed it on: 8 bytes."""
    head = b"%b%b%d/%d/" % (onward.target, onward.whole, onward.part, onward.parts)
    return fingerprint(head + onward.data).to_bytes(8, "big")
