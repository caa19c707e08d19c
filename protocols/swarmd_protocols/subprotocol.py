"""What a sub-protocol of the node is: membership carries it, and it never sees an address or a key.

`Node` composes the sealed channel, SWIM membership and any number of sub-protocols (the replicated state, the
releases). SWIM lends each of them two things for nothing: room in its datagrams for small urgent payloads
(`piggyback`) and a few bytes in every probe and ack for a digest of what the sub-protocol knows (`summary`), so that
a difference between two nodes is found within one probe period.

Priority is strict: probes, then leases, then detections, then sync, then bulk.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Protocol, TypeAlias, runtime_checkable

import msgspec

from swarmd_protocols.effects import Alarm, CancelTimer, Order, Persist, Rejected, SetTimer, StateChanged, TimerKey
from swarmd_protocols.ids import NodeId

FAR_BYTES_S, FAR_BURST_BYTES = 3_000, 12_000
"""Bytes a second, and at once, of all large messages that a node sends to members out of its radio's reach: three
quarters of what it may send them at all, since others' air carries it."""
FAR_LEAST_BYTES_S = 1_000
"""Slower than this, with `IDLE_NS` of `far_streams.py` more, one is given up: nobody is sent something for ever."""


class Priority(IntEnum):
    """Lower goes first."""

    PROBE = 0
    LEASE = 1
    DETECTION = 2
    SYNC = 3
    BULK = 4


class Send(msgspec.Struct, frozen=True, gc=False):
    """One payload to one member. Reliable ones may be large (4 MiB, and 264 KiB to one that is out of this radio's
    reach); best-effort ones must fit a datagram (1,000 B)."""

    to: NodeId
    payload: bytes
    reliable: bool
    priority: Priority


class Cast(msgspec.Struct, frozen=True, gc=False):
    """One payload (at most 1,050 B) to whoever listens on the channel that all share, best effort, once.

    Only where the transport has such a channel; elsewhere it is dropped. It is sealed with the group's key, so the
    receiver knows that a member sent it, not which one.
    """

    payload: bytes


SubEffect: TypeAlias = Send | Cast | SetTimer | CancelTimer | Persist | Order | Rejected | Alarm | StateChanged


class Peer(msgspec.Struct, frozen=True, gc=False):
    """What a sub-protocol may know of another member."""

    node: NodeId
    name: str
    public_key: bytes
    reachable: bool
    """True while ALIVE, SUSPECT or DEGRADED."""
    swarm: int = 0
    """In a partial view, how many members the swarm has by estimate: then the peers are neighbours, and news must be
    passed on; in a mesh, how many it has. 0: everybody is told at once."""
    far: bool = False
    """It is there, and out of this radio's reach: what is sent to it takes others' air too, who pass news on anyway."""
    cost: int = 0
    """In a mesh, what the way to it is expected to cost, quarters of a transmission; 0 where it is not known."""
    over: bytes = b""
    """With which near member that way begins, the first bytes of its id; empty where it is not known."""


class SubProtocol(Protocol):
    """One converging service on top of membership. All of it is deterministic and free of I/O."""

    @property
    def name(self) -> str:
        """Short, fixed: the first element of its timer keys and the prefix of its journal keys (b"name/")."""
        ...

    def start(self, now_ns: int) -> list[SubEffect]:
        """Begin; own journal records were given to the constructor."""
        ...

    def on_message(self, sender: NodeId, payload: bytes, now_ns: int) -> list[SubEffect]:
        """A payload of `Send` or of `piggyback` arrived; never raises, whatever the bytes are."""
        ...

    def on_timer(self, key: TimerKey, now_ns: int) -> list[SubEffect]:
        """One of its timers fired; late and stale firings are harmless."""
        ...

    def on_command(self, request: object, now_ns: int) -> list[SubEffect]:
        """A local request; raises `StateError` when it cannot be carried out."""
        ...

    def on_peers(self, peers: Sequence[Peer], now_ns: int) -> list[SubEffect]:
        """The members changed; `peers` is all of them but this node, sorted by node id."""
        ...

    def summary(self) -> bytes:
        """At most 16 bytes that are equal exactly when two nodes know the same (a hash of the converged state)."""
        ...

    def on_summary(self, sender: NodeId, summary: bytes, now_ns: int) -> list[SubEffect]:
        """A peer's summary came with a probe or ack; start a repair when it differs (at a bounded rate)."""
        ...

    def piggyback(self, budget_bytes: int, now_ns: int) -> list[bytes]:
        """Payloads that should ride in the datagram now being built, most urgent first, together at most the budget.

        Called once for each outgoing probe, ack or gossip datagram; the sub-protocol keeps count of how often it
        has offered a payload (lambda log n) and stops.
        """
        ...


@runtime_checkable
class HearsTrust(Protocol):
    """A sub-protocol that also wants to know when who counts has changed; without the method it hears nothing."""

    def on_trust(self, now_ns: int) -> list[SubEffect]:
        """`TrustView.revision` rose, or the node starts; called before a new group key is spread."""
        ...


@runtime_checkable
class ComparesInTurn(Protocol):
    """A sub-protocol parts of whose summary are compared now and then; without these, all of it is with every probe."""

    def due(self, now_ns: int) -> bytes:
        """What of the summary this node would compare now: one of `selections`."""
        ...

    def selections(self) -> Sequence[bytes]:
        """All that `due` may be while the summary is what it is: the few that a peer's answer is held against."""
        ...


class Watcher(Protocol):
    """Who gives way to what the rest of the node sends."""

    def watch(self, read_sent: Callable[[], int]) -> None:
        """Called once: what to ask for all bytes that the node has sent in this life."""
        ...


@runtime_checkable
class MindsTraffic(Protocol):
    """A sub-protocol a part of which gives way to what the rest of the node sends."""

    @property
    def traffic(self) -> Watcher:
        """That part."""
        ...


@runtime_checkable
class HearsUnsent(Protocol):
    """A sub-protocol that also wants to know what did not come through to a far member."""

    def on_unsent(self, to: NodeId, now_ns: int) -> list[SubEffect]:
        """A large message of its to this member has failed, or part of it came and no more will."""
        ...


@runtime_checkable
class HearsCasts(Protocol):
    """A sub-protocol that also takes what was cast to everybody."""

    def on_cast(self, payload: bytes, now_ns: int) -> list[SubEffect]:
        """A payload of somebody's `Cast` arrived; who sent it is not known. Never raises."""
        ...
