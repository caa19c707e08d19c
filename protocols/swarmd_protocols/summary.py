"""What a node says of itself and of the members: rows for people and for metrics."""

from collections.abc import Mapping

import msgspec

from swarmd_protocols.effects import MemberState
from swarmd_protocols.ids import Address, NodeId


class MemberView(msgspec.Struct, frozen=True, gc=False):
    """One row of `swarmd members`."""

    node: NodeId
    name: str
    address: Address
    state: MemberState
    incarnation: int
    rtt_ns: int | None
    """Smoothed round trip of direct probes; None where none was answered yet."""
    loss: float
    """Share of own pings to it that stayed unanswered, 0.0 to 1.0, smoothed."""
    quality: str
    """"good", "late", "lossy", "indirect" (only through others), "heard-only" (it does not hear us), "none" (never
    answered yet, or gone); "self" for this node."""
    links: tuple[str, ...]
    """Broken links that anybody reports, such as "a hears b, b does not hear a"."""
    version: str
    capability: str
    meta: Mapping[str, bytes]
    row: tuple[tuple[NodeId, str], ...] = ()
    """Its own signed word of those of its links that are not good, 32 at most: (the other, quality as above)."""
    heard_at: Address = ""
    """Where its newest sealed frame came from, as the transport says; "" for this node, and before the first."""
    unheard_since_ns: int | None = None
    """In a mesh, of whom no chain of reports leads to: since when this node has had no word of it, on its monotonic
    clock. None while a chain does, in any other view, and where nothing was heard in this life of the node."""


class TrustSummary(msgspec.Struct, frozen=True, gc=False):
    """What a node holds of the fleet's trust, without secrets."""

    root: int
    """Version of the newest root."""
    epoch: int
    group_key: int
    """Number of the newest group key."""
    certificate: str
    """The first 16 hex digits of the digest of this node's certificate; "" where none holds."""
    why_out: str
    """Why none holds, for people; "" while one does."""
    revoked: Mapping[NodeId, str]
    """Who is out, and the reason."""
    forked: bool
    """Whether the root role signed two different roots."""
    operators: tuple[bytes, ...] = ()
    """Public keys that the newest root names for the role operator, sorted."""


class NodeSummary(msgspec.Struct, frozen=True, gc=False):
    """The node at a glance."""

    node: NodeId
    name: str
    swarm: str
    digest: bytes
    """8 bytes over members, events, metadata and trust: equal on nodes that know the same."""
    members: Mapping[str, MemberState]
    """Name to state, this node included; sorted by name."""
    local_health: int
    """Lifeguard's score: 0 is healthy."""
    counters: Mapping[str, int]
    """Monotonic counts: datagrams and bytes out, refusals by reason, suspicions, repairs."""
    partial: bool = False
    """Whether the view is partial: then `members` are this node's neighbours, and those it lost lately."""
    estimated: int = 0
    """Members of the swarm, this node included: counted in a full view, estimated in a partial one."""
    mesh: bool = False
    """Whether the view is a mesh: some members are reached through others only."""
