"""Identifiers that every protocol uses.

A node is its key: `NodeId` is the BLAKE2b-128 hash of its Ed25519 public key, so an address or a name can change
hands without the identity changing, and nobody can claim another's identity without its key.
"""

from hashlib import blake2b
from typing import NewType, TypeAlias

NodeId = NewType("NodeId", bytes)
"""16 bytes: BLAKE2b-128 of the node's Ed25519 public key."""

Address: TypeAlias = str
"""Where a transport delivers, in the transport's own notation, such as "10.0.0.5:7946"; at most 64 characters.

A node on several networks names a way for each, the best first, joined by `WAYS`: "10.0.0.5:7946+10.1.0.5:7946"."""

WAYS = "+"
"""Stands between the ways of one address."""

NODE_ID_BYTES = 16
"""BLAKE2b of the public key, cut: 64 bits of strength against collisions, and half the bytes of a key."""


def node_id_of(public_key: bytes) -> NodeId:
    """The identity that belongs to an Ed25519 public key.

    Args:
        public_key: 32 bytes.

    Returns:
        16 bytes.

    >>> node_id_of(bytes(32)).hex()[:8]
    '1426ac40'
    """
    return NodeId(blake2b(public_key, digest_size=NODE_ID_BYTES, person=b"swarmd-node-id").digest())


def is_way(source: Address, address: Address) -> bool:
    """Whether a frame's source is one of the ways that an address names.

    Args:
        source: What the transport says of a frame; an IPv6 link-local one ends in the zone of the receiver's interface.
        address: From a record; its ways carry no zone, which means nothing on another device.

    >>> is_way("[fe80::5%3]:7946", "10.0.0.5:7946+[fe80::5]:7946")
    True
    """
    return without_zone(source) in address.split(WAYS)


def copies(address: Address) -> int:
    """How many datagrams one frame to this address becomes: one for each way that it names.

    >>> copies("10.0.0.5:7946"), copies("10.0.0.5:7946+10.1.0.5:7946")
    (1, 2)
    """
    return address.count(WAYS) + 1


def without_zone(source: Address) -> Address:
    """The source without the receiver's interface.

    >>> without_zone("[fe80::5%wlan0]:7946")
    '[fe80::5]:7946'
    """
    head, zone, rest = source.partition("%")
    return head + rest[rest.find("]") :] if zone and "]" in rest else source


def short(node: NodeId) -> str:
    """The first eight hex digits, for logs and tables; never for decisions."""
    return node.hex()[:8]
