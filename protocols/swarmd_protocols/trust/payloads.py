"""What the statements of trust say: certificates, group keys, revocations.

Who may sign which is for `roots.py`, what counts for `trust.py`; here they are only read.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from swarmd_protocols.crypto import SEED_BYTES
from swarmd_protocols.errors import WireError
from swarmd_protocols.trust.envelopes import DAMAGE
from swarmd_protocols.trust.roots import Mark

NAME_MAX_CHARS = 64
"""Of a node or a swarm."""
GROUP_KEY_BYTES, GROUP_COUNTER_MAX = 32, 2**32 - 1
"""A key of XSalsa20; a counter travels in 4 bytes of a frame."""
AFTER_MAX = 32
"""Revocations that a group key names, the newest: a statement of gossip fits a datagram of 1,000 bytes."""

NAME_PATTERN = r"\A[A-Za-z0-9][A-Za-z0-9_.-]*\Z"
"""Names of nodes and swarms become files, MQTT topics and DDS partitions: neither `..`, nor `a/b`, nor `a+b` is one."""
_Name = Annotated[str, Meta(min_length=1, max_length=NAME_MAX_CHARS, pattern=NAME_PATTERN)]
_Swarm = Annotated[str, Meta(min_length=1, max_length=NAME_MAX_CHARS, pattern=NAME_PATTERN)]
_Counter = Annotated[int, Meta(ge=1, le=(1 << 63) - 1)]
_NodeId = Annotated[bytes, Meta(min_length=16, max_length=16)]
_Seed = Annotated[bytes, Meta(min_length=SEED_BYTES, max_length=SEED_BYTES)]


class Certificate(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Payload "node": this key is this node of this swarm; a higher counter replaces a lower one."""

    node: _NodeId
    public_key: _Seed
    name: _Name
    roles: Annotated[tuple[Annotated[str, Meta(max_length=32)], ...], Meta(max_length=16)]
    swarm: _Swarm
    counter: _Counter


class GroupKey(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Payload "group": the symmetric key that seals first contact; highest counter seals, all known ones open."""

    swarm: _Swarm
    counter: Annotated[int, Meta(ge=1, le=GROUP_COUNTER_MAX)]
    key: Annotated[bytes, Meta(min_length=GROUP_KEY_BYTES, max_length=GROUP_KEY_BYTES)]
    after: Annotated[tuple[Mark, ...], Meta(max_length=AFTER_MAX)] = ()
    """`mark` of revocations: who has not heard them takes no such key, and so hands it to nobody whom they shut out."""


class Revocation(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Payload "revoke": these nodes are out for good, wherever this is heard."""

    swarm: _Swarm
    counter: _Counter
    nodes: Annotated[tuple[_NodeId, ...], Meta(max_length=1_024)]
    reason: Annotated[str, Meta(max_length=1_024)]


_PAYLOADS: dict[str, msgspec.msgpack.Decoder[Certificate | GroupKey | Revocation]] = {
    "node": msgspec.msgpack.Decoder(Certificate),
    "group": msgspec.msgpack.Decoder(GroupKey),
    "revoke": msgspec.msgpack.Decoder(Revocation),
}


def read_payload(kind: str, payload: bytes) -> Certificate | GroupKey | Revocation:
    """What a statement of trust says; its signatures were checked before.

    Raises:
        WireError: The payload is none of this kind.
    """
    try:
        return _PAYLOADS[kind].decode(payload)
    except DAMAGE as error:
        raise WireError(f"{kind}: {error}") from error


def plain(text: str, limit: int = 200) -> str:
    """Text of a statement with nothing in it that steers a terminal or looks like a line of ours."""
    return "".join(c if c.isprintable() else "?" for c in text[:limit])
