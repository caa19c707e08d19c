"""Events a node takes and effects it gives back: the whole surface between protocol logic and the world.

The daemon and the simulator both drive `Node.handle(event, now_ns) -> list[Effect]` and perform the effects **in
order**. Rules that the order carries:

- `Persist` is durable before any later effect of the same list is performed: an own fact is on disk before a peer
  can have seen it.
- A `SetTimer` with a key that is already set replaces it. The key names what is due, so a late firing is harmless.
- `now_ns` is a monotonic clock that starts anywhere; it never goes back within one life of the node.

Effects that end in "Changed" or "Delivered" are notifications: for people, metrics and bridges. Performing them
can never change what the protocols do.

They are structs, not dataclasses, and so are the requests and notifications of the sub-protocols: a node makes
thousands of them a second, and a frozen dataclass costs eight times as much to make and 10 kB to hold as a class.
`gc=False` where nothing inside can lead back to the struct.
"""

from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from swarmd_protocols.ids import Address, NodeId

TimerKey: TypeAlias = tuple[str | int | bytes, ...]
"""First element: the sub-protocol's name, such as "swim"; the rest is that sub-protocol's own."""


class MemberState(StrEnum):
    """What the swarm believes of a member."""

    ALIVE = "alive"
    SUSPECT = "suspect"
    DEGRADED = "degraded"
    FAILED = "failed"
    LEFT = "left"
    AWAY = "away"
    UNREACHABLE = "unreachable"
    """Its part of the swarm is cut off from this one: it may be well."""


REFUSED: Final = "refused"
"""The one `SendFailed.reason` that speaks about the peer: its host answered that no process listens there. Every other
reason speaks about this node's own network."""


class HostAnswer(StrEnum):
    """What the kernel at an address answered to `ProbeHost`: dead, unresponsive, or cut off?"""

    OPEN = "open"
    """The connection was accepted: the process exists, though it may be frozen."""
    REFUSED = "refused"
    """The host answers and no process listens: the process is gone."""
    SILENT = "silent"
    """Nothing came back before the timeout: the host or the path is gone."""


# --- Events -----------------------------------------------------------------------------------------------------


class Started(msgspec.Struct, frozen=True, gc=False):
    """The node's life begins; the first event of all, exactly once."""


class DatagramReceived(msgspec.Struct, frozen=True, gc=False):
    """A sealed frame arrived on the best-effort path."""

    source: Address
    data: bytes


class StreamReceived(msgspec.Struct, frozen=True, gc=False):
    """A sealed frame arrived on the reliable path."""

    source: Address
    data: bytes


class SendFailed(msgspec.Struct, frozen=True, gc=False):
    """The transport itself refused to send (EPERM, no route): evidence about one's own health."""

    destination: Address
    reason: str


class HostProbed(msgspec.Struct, frozen=True, gc=False):
    """The answer to `ProbeHost`; a transport that cannot ask never sends it, and the node then waits longer."""

    destination: Address
    answer: HostAnswer


class TimerFired(msgspec.Struct, frozen=True, gc=False):
    """A timer set by `SetTimer` is due."""

    key: TimerKey


class Join(msgspec.Struct, frozen=True, gc=False):
    """Look for a swarm at these addresses; may come again at any time (mDNS found one, the operator gave one)."""

    addresses: tuple[Address, ...]


class Moved(msgspec.Struct, frozen=True, gc=False):
    """The device's own addresses changed: peers are told this one instead."""

    address: Address


class Leave(msgspec.Struct, frozen=True, gc=False):
    """Say good-bye: peers see LEFT and raise no suspicion."""


class GoAway(msgspec.Struct, frozen=True, gc=False):
    """Announce an absence of this length: peers see AWAY until then and raise no suspicion."""

    duration_ns: int


class UserEvent(msgspec.Struct, frozen=True, gc=False):
    """Broadcast a named event to every member, once each, in order per origin."""

    name: str
    payload: bytes


class SetMeta(msgspec.Struct, frozen=True, gc=False):
    """Set one versioned key of this node's metadata (b"" deletes it)."""

    key: str
    value: bytes


class Command(msgspec.Struct, frozen=True):
    """A local request to one sub-protocol, in that sub-protocol's own vocabulary of frozen structs."""

    subprotocol: str
    request: object


Event: TypeAlias = (
    Started
    | DatagramReceived
    | StreamReceived
    | SendFailed
    | HostProbed
    | TimerFired
    | Join
    | Moved
    | Leave
    | GoAway
    | UserEvent
    | SetMeta
    | Command
)

# --- Effects the driver performs -----------------------------------------------------------------------------------


class SendDatagram(msgspec.Struct, frozen=True, gc=False):
    """Send a sealed frame on the best-effort path; at most 1,200 bytes."""

    destination: Address
    data: bytes


class SendStream(msgspec.Struct, frozen=True, gc=False):
    """Send a sealed frame on the reliable path; dropped by the transport once `deadline_ns` has passed.

    `bulk` frames travel on a connection of their own, so that they never stand in front of others.
    """

    destination: Address
    data: bytes
    deadline_ns: int
    bulk: bool = False


class SendCast(msgspec.Struct, frozen=True, gc=False):
    """Send a sealed frame, at most 1,200 bytes, to every node on the shared channel; dropped where there is none.

    It arrives as `DatagramReceived`.
    """

    data: bytes


class ProbeHost(msgspec.Struct, frozen=True, gc=False):
    """Ask the kernel at this address whether the node's reliable port is open (one TCP connect, closed at once).

    Sent only about a member whose probes fail. Answered by `HostProbed`, `SILENT` after `timeout_ns`.
    """

    destination: Address
    timeout_ns: int


class SetTimer(msgspec.Struct, frozen=True, gc=False):
    """Fire `TimerFired(key)` at `at_ns`; replaces a timer of the same key."""

    key: TimerKey
    at_ns: int


class CancelTimer(msgspec.Struct, frozen=True, gc=False):
    """Forget the timer; a firing that is already on its way is ignored by the receiver."""

    key: TimerKey


class Persist(msgspec.Struct, frozen=True, gc=False):
    """Write (or with `value=None` delete) one journal record, durable before the next effect is performed."""

    key: bytes
    value: bytes | None


class Order(msgspec.Struct, frozen=True):
    """What a sub-protocol asks of the driver: work on files, a model to run. Answered by a `Command`, or not at all.

    `request` is a dataclass of that sub-protocol's own vocabulary (its page says which, and what answers it). Orders of
    one sub-protocol are carried out in the order in which they were given.
    """

    subprotocol: str
    request: object


# --- Notifications -------------------------------------------------------------------------------------------------


class MemberChanged(msgspec.Struct, frozen=True, gc=False):
    """A member's state, address or record changed at this node; `old` is None when it was unknown."""

    node: NodeId
    name: str
    old: MemberState | None
    new: MemberState
    reason: str


class UserEventDelivered(msgspec.Struct, frozen=True, gc=False):
    """A user event reached this node for the first time."""

    origin: NodeId
    origin_name: str
    name: str
    payload: bytes


class Rejected(msgspec.Struct, frozen=True, gc=False):
    """A well-formed message was refused; counted, and logged at a bounded rate."""

    source: str
    reason: str


class Alarm(msgspec.Struct, frozen=True, gc=False):
    """Something a person should know; the node goes on."""

    code: str
    text: str


class StateChanged(msgspec.Struct, frozen=True):
    """A sub-protocol's converged state changed; `detail` is a value of that sub-protocol (see its page)."""

    subprotocol: str
    detail: object


Effect: TypeAlias = (
    SendDatagram
    | SendStream
    | SendCast
    | ProbeHost
    | SetTimer
    | CancelTimer
    | Persist
    | Order
    | MemberChanged
    | UserEventDelivered
    | Rejected
    | Alarm
    | StateChanged
)
