"""The unit of replication: a batch of facts that its origin signed once.

    byte 0        1       2        18       24    28        34      38        54      62       n-64
    | version u8 | stream u8 | origin 16 | incarnation u48 | n u32 | base incarnation u48 | base n u32 |
    | previous hash 16 | stamp u64 | body … | signature 64 |

Little endian. `(incarnation, n)` is the dot of the batch; `previous` is the hash of the batch (incarnation, n - 1) and
zeros where n is 1, so an origin cannot rewrite its past unseen. `base` says which of the origin's own earlier batches
still matter: whatever lies below it has been said again at or above it. Two batches of one stream with equal dots and
different bytes are a proof that the origin lies (`proofs.py`).
"""

import struct
from enum import IntEnum
from hashlib import blake2b
from typing import Protocol, TypeAlias

import msgspec

from swarmd_protocols.crypto import SIGNATURE_BYTES
from swarmd_protocols.errors import WireError
from swarmd_protocols.ids import NODE_ID_BYTES, NodeId
from swarmd_protocols.state.clock import STAMP_MAX

WIRE_VERSION = 1
"""First byte of a batch; others are refused."""
HASH_BYTES = 16
"""BLAKE2b of a batch, cut: names it in summaries and in the one after it."""
BATCH_MAX_BYTES = 960
"""A batch of facts fits one datagram with the envelope around it."""
RECORD_MAX_BYTES = 3_072
"""A status or event record may be larger; then it travels on the reliable path only."""
INCARNATION_MAX = (1 << 48) - 1
"""Six bytes on the wire; an author begins some hundred in its life."""

Dot: TypeAlias = tuple[int, int]
"""(incarnation, n), n counting from 1 in each incarnation."""

_HEAD = struct.Struct("<BB16s6sI6sI16sQ")
HEAD_BYTES = _HEAD.size
_PREVIOUS = slice(HEAD_BYTES - 8 - HASH_BYTES, HEAD_BYTES - 8)
"""Where a head says which batch was before: the last but its stamp."""
BATCH_MIN_BYTES = HEAD_BYTES + SIGNATURE_BYTES + 1
"""A head, a body of a byte and a signature."""
_TAG = b"swarmd/state-batch/v1\0"


class Stream(IntEnum):
    """What a batch belongs to. FACTS are a log; of the others only the latest batch of an incarnation counts."""

    FACTS = 0
    LEASES = 1
    COUNTERS = 2
    STATUS = 3
    EVENTS = 6
    """4, 5 and 7 are marks in summaries (`messages.PROVEN`, `messages.HELD`, `messages.ROOM`)."""


_STREAMS = {int(stream): stream for stream in Stream}
"""By number: a lookup costs a tenth of a call of the enum, and every batch that is heard needs it."""


class Signer(Protocol):
    """This node's key, and everybody's public half."""

    def sign(self, message: bytes) -> bytes:
        """A detached 64-byte signature by this node."""
        ...

    def verify(self, public_key: bytes, message: bytes, signature: bytes) -> bool:
        """Whether the signature holds; never raises."""
        ...


class SeedCrypto(Protocol):
    """The part of `crypto.Crypto` that signing needs."""

    def sign(self, seed: bytes, message: bytes) -> bytes:
        """A detached 64-byte signature."""
        ...

    def verify(self, public_key: bytes, message: bytes, signature: bytes) -> bool:
        """Whether the signature holds."""
        ...


class NodeSigner:
    """A `Signer` out of a cryptographic library and this node's seed."""

    __slots__ = ("_crypto", "_seed")

    def __init__(self, crypto: SeedCrypto, seed: bytes) -> None:
        """Keep both; the seed is the node's 32-byte Ed25519 seed."""
        self._crypto = crypto
        self._seed = seed

    def sign(self, message: bytes) -> bytes:
        """See `Signer.sign`."""
        return self._crypto.sign(self._seed, message)

    def verify(self, public_key: bytes, message: bytes, signature: bytes) -> bool:
        """See `Signer.verify`."""
        return self._crypto.verify(public_key, message, signature)


class Batch(msgspec.Struct, eq=False, gc=False):
    """A batch as read; `raw` is what was signed and what is passed on.

    A node holds a thousand of them and more: nothing in it is tracked by the collector, as nothing in it refers back.
    """

    raw: bytes
    stream: Stream
    origin: NodeId
    dot: Dot
    base: Dot
    stamp: int
    digest: bytes
    """BLAKE2b-128 of `raw`."""
    cost: int = 0
    """Bytes of memory that keeping it takes, by `log.cost_of`; set when its body has been read."""

    def __str__(self) -> str:
        """What names it to people."""
        return f"batch {self.dot[0]}/{self.dot[1]} of stream {self.stream}, digest {self.digest.hex()}"

    @property
    def previous(self) -> bytes:
        """Digest of the batch before in this incarnation, or zeros; seldom asked for."""
        return self.raw[_PREVIOUS]

    @property
    def body(self) -> bytes:
        """The packed facts."""
        return self.raw[HEAD_BYTES:-SIGNATURE_BYTES]


def seal_batch(
    stream: Stream, origin: NodeId, dot: Dot, base: Dot, previous: bytes, stamp: int, body: bytes, signer: Signer
) -> Batch:
    """Sign one batch.

    Args:
        stream: The log or register it belongs to.
        origin: This node.
        dot: Its own dot; never used before for other bytes.
        base: Lowest own dot that still matters; at most `dot`.
        previous: `digest` of the batch before in this incarnation, or 16 zero bytes.
        stamp: Hybrid logical time.
        body: Packed facts (`facts.py`, `records.py`).
        signer: The origin's key.
    """
    head = _HEAD.pack(
        WIRE_VERSION,
        stream,
        origin,
        dot[0].to_bytes(6, "little"),
        dot[1],
        base[0].to_bytes(6, "little"),
        base[1],
        previous,
        stamp,
    )
    unsigned = head + body
    raw = unsigned + signer.sign(_TAG + unsigned)
    return Batch(raw, stream, origin, dot, base, stamp, batch_digest(raw))


def open_batch(raw: bytes) -> Batch:
    """Read a batch's header; the signature is checked by `verify_batch`, the body by its reader.

    Raises:
        WireError: The bytes are no batch.
    """
    if not BATCH_MIN_BYTES <= len(raw) <= RECORD_MAX_BYTES:
        raise WireError(f"a batch has {BATCH_MIN_BYTES} to {RECORD_MAX_BYTES} bytes, not {len(raw)}")
    version, stream, origin, incarnation, n, base_incarnation, base_n, previous, stamp = _HEAD.unpack_from(raw)
    if version != WIRE_VERSION:
        raise WireError(f"batch version {version} is not known; this is version {WIRE_VERSION}")
    if stream not in _STREAMS:
        raise WireError(f"batch stream {stream} is not known")
    if stream < Stream.STATUS and len(raw) > BATCH_MAX_BYTES:
        raise WireError(f"a batch of {len(raw)} bytes does not fit a datagram")
    life = int.from_bytes(incarnation, "little")
    # One number for both where it is one: what is held for hours is held by the thousand.
    base_life = life if base_incarnation == incarnation else int.from_bytes(base_incarnation, "little")
    dot, base = (life, n), (base_life, base_n)
    if n == 0 or base > dot or stamp > STAMP_MAX:
        raise WireError("a batch's dot, base or stamp is out of range")
    if n == 1 and previous != bytes(HASH_BYTES):
        raise WireError("the first batch of an incarnation has no predecessor")
    return Batch(raw, _STREAMS[stream], NodeId(origin), dot, base, stamp, batch_digest(raw))


def batch_digest(raw: bytes) -> bytes:
    """BLAKE2b-128 over all bytes of a batch."""
    return blake2b(raw, digest_size=HASH_BYTES, person=b"swarmd-batch").digest()


def verify_batch(batch: Batch, public_key: bytes, signer: Signer) -> bool:
    """Whether the origin signed exactly these bytes."""
    raw = batch.raw
    return signer.verify(public_key, _TAG + raw[:-SIGNATURE_BYTES], raw[-SIGNATURE_BYTES:])


assert HEAD_BYTES == 62
assert NODE_ID_BYTES == 16
