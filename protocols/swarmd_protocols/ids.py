"""Identifiers that every protocol uses.

A node is its key: `NodeId` is the BLAKE2b-128 hash of its Ed25519 public key, so an address or a name can change
hands without the identity changing, and nobody can claim another's identity without its key.
"""

from hashlib import blake2b
from typing import NewType, TypeAlias

NodeId = NewType("NodeId", bytes)
"""16 bytes: BLAKE2b-128 of the node's Ed25519 public key."""

Address: TypeAlias = str
"""Where a transport delivers, in the transport's own notation, such as "10.0.0.5:7946"; at most 64 characters."""

NODE_ID_BYTES = 16


def node_id_of(public_key: bytes) -> NodeId:
    """The identity that belongs to an Ed25519 public key.

    Args:
        public_key: 32 bytes.

    Returns:
        16 bytes.

    >>> node_id_of(bytes(32)).hex()[:8]
    'd4edb0c7'
    """
    return NodeId(blake2b(public_key, digest_size=NODE_ID_BYTES, person=b"swarmd-node-id").digest())


def short(node: NodeId) -> str:
    """The first eight hex digits, for logs and tables; never for decisions."""
    return node.hex()[:8]
