"""What replicas say to each other. Every payload is one tagged msgpack array; the tag is its first element.

0 Batches   [raw, …]                                     facts and records, new or asked for
1 Have      [rows, scope, reply, buckets]                 "this is what I hold": rows are [origin, [[stream,
                                                          incarnation, n, head], …]]; `reply`: and you?
2 Buckets   [lasting, vitals]                             hashes of 32 groups of origins: where do we differ?
3 Proof     [raw, raw]                                    two batches under one dot: their author is quarantined
4 ClockAsk  [sent_ns]                                     answered at once by
5 ClockTell [sent_ns, physical_ns]
6 KeyAsk    [origins]                                     "whose keys are these?", answered by
7 KeyTell   [public keys]                                 a key proves itself: its hash is the node id
"""

from typing import TypeAlias

import msgspec

from swarmd_protocols.errors import WireError
from swarmd_protocols.ids import NODE_ID_BYTES
from swarmd_protocols.state.crdt.batch import INCARNATION_MAX, RECORD_MAX_BYTES, Stream

MESSAGE_MAX_BYTES = 1 << 20
BUCKETS = 32
BUCKET_HASH_BYTES = 4
HEAD_HASH_BYTES = 4
BATCHES_MAX = 4_096
HAVE_ROWS_MAX = 8_192
KEYS_MAX = 64

LASTING = 1
VITALS = 2


class Batches(msgspec.Struct, array_like=True, frozen=True, tag=0):
    """New facts and records, or those a peer lacked."""

    raws: tuple[bytes, ...]


class Have(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """What the sender holds; it is also the acknowledgement of everything up to there."""

    rows: tuple[tuple[bytes, tuple[tuple[int, int, int, bytes], ...]], ...]
    scope: int
    """LASTING, VITALS or both: the streams that rows speak of."""
    reply: bool
    buckets: int
    """Bit mask of the buckets that the rows cover completely: an origin of these that is not named is not held."""


class Buckets(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """Where two replicas differ."""

    lasting: bytes
    vitals: bytes


class Proof(msgspec.Struct, array_like=True, frozen=True, tag=3):
    """Two batches of one stream under one dot."""

    first: bytes
    second: bytes


class ClockAsk(msgspec.Struct, array_like=True, frozen=True, tag=4):
    """What time is it?"""

    sent_ns: int


class ClockTell(msgspec.Struct, array_like=True, frozen=True, tag=5):
    """The answer, with the question's time so that nothing need be remembered."""

    sent_ns: int
    physical_ns: int


class KeyAsk(msgspec.Struct, array_like=True, frozen=True, tag=6):
    """Whose keys are these?"""

    origins: tuple[bytes, ...]


class KeyTell(msgspec.Struct, array_like=True, frozen=True, tag=7):
    """Public keys."""

    keys: tuple[bytes, ...]


Message: TypeAlias = Batches | Have | Buckets | Proof | ClockAsk | ClockTell | KeyAsk | KeyTell

_ENCODE = msgspec.msgpack.Encoder().encode
_DECODER: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def encode(message: Message) -> bytes:
    """The bytes of a message."""
    return _ENCODE(message)


def decode(payload: bytes) -> Message:
    """Read a message.

    Raises:
        WireError: The bytes are no message, or a bound is broken.
    """
    if len(payload) > MESSAGE_MAX_BYTES:
        raise WireError(f"a message of {len(payload)} bytes is longer than {MESSAGE_MAX_BYTES}")
    try:
        message = _DECODER.decode(payload)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise WireError(f"a state message cannot be read: {error}") from error
    _check(message)
    return message


def _check(message: Message) -> None:
    match message:
        case Batches(raws):
            _require(len(raws) <= BATCHES_MAX, "too many batches")
        case Have(rows, scope, _, buckets):
            _require(len(rows) <= HAVE_ROWS_MAX and 0 < scope <= LASTING | VITALS, "a summary is out of range")
            _require(0 <= buckets < 1 << BUCKETS, "a summary's buckets are out of range")
            for origin, positions in rows:
                _require(len(origin) == NODE_ID_BYTES and len(positions) <= 64, "a summary's row is out of range")
                for stream, incarnation, n, head in positions:
                    _require(
                        0 <= stream <= Stream.STATUS
                        and 0 <= incarnation <= INCARNATION_MAX
                        and 0 <= n < 1 << 32
                        and len(head) <= HEAD_HASH_BYTES,
                        "a summary's position is out of range",
                    )
        case Buckets(lasting, vitals):
            size = BUCKETS * BUCKET_HASH_BYTES
            _require(len(lasting) == size and len(vitals) == size, "bucket hashes are cut short")
        case Proof(first, second):
            _require(len(first) <= RECORD_MAX_BYTES and len(second) <= RECORD_MAX_BYTES, "a proof is too long")
        case ClockAsk(sent_ns):
            _require(abs(sent_ns) < 1 << 62, "a clock is out of range")
        case ClockTell(sent_ns, physical_ns):
            _require(abs(sent_ns) < 1 << 62 and 0 <= physical_ns < 1 << 62, "a clock is out of range")
        case KeyAsk(origins):
            _require(len(origins) <= KEYS_MAX, "too many keys are asked for")
        case KeyTell(keys):
            _require(len(keys) <= KEYS_MAX and all(len(key) == 32 for key in keys), "a public key has 32 bytes")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise WireError(what)
