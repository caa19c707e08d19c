"""Which gateway publishes what: everybody computes it alone, from who claims.

What a swarm says is cut into `SHARES` shares by a hash of the object or of the node that it is about. A gateway claims
by word in its metadata (`CLAIM_KEY`) while one of its paths to the region works; a claim counts while its member lives
and its certificate names the role `ROLE`. Of those that claim, the highest draw of a share has it (rendezvous
hashing), so who comes or goes moves only its own shares. Where nobody claims, all living gateways count as if they did:
each keeps its shares in its outbox until a path works.

Two gateways that disagree for a moment both publish, which costs bytes and no truth: rows are upserts. A share that
nobody has for a moment is caught up by who takes it: it compares everything in it with what the region is known to
have.
"""

from collections.abc import Collection
from hashlib import blake2b

from swarmd_protocols.ids import NodeId

SHARES = 16
"""With two gateways each has 8 ± 2; with more than eight some would have none, and nobody needs eight."""
ROLE = "gateway"
"""In a node's certificate: may speak for its swarm above."""
CLAIM_KEY = "uplink"
"""Metadata key of a claim; the value is `CLAIMED`, or empty where no path works."""
CLAIMED = b"1"


def share_of(key: bytes) -> int:
    """The share of an object (its id) or of a node (its id).

    >>> share_of(bytes(8)), share_of(bytes(16))
    (13, 7)
    """
    return blake2b(key, digest_size=2, person=b"swarmd-fed-share").digest()[0] % SHARES


def owner(share: int, claimants: Collection[NodeId]) -> NodeId | None:
    """Who publishes a share; None where nobody claims."""
    return max(claimants, key=lambda node: (_draw(share, node), node), default=None)


def owned(node: NodeId, claimants: Collection[NodeId]) -> frozenset[int]:
    """The shares that a gateway publishes."""
    return frozenset(share for share in range(SHARES) if owner(share, claimants) == node)


def _draw(share: int, node: NodeId) -> bytes:
    return blake2b(bytes((share,)) + node, digest_size=8, person=b"swarmd-fed-claim").digest()
