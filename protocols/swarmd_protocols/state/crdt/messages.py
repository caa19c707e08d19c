"""What replicas say to each other. Every payload is one tagged msgpack array; the tag is its first element.

0 Batches   [raw, …]                                     facts and records, new or asked for; their heads travel
                                                          short (`short.py`)
1 Have      [rows, scope, reply, buckets]                 "this is what I hold": rows are [origin, [[stream,
                                                          incarnation, n, head], …]]; `reply`: and you?
                                                          stream 4: "I hold the proof against this origin"
                                                          stream 5: "and, above a gap, as many as `head` says from n"
                                                          stream 7: "of this origin at most n bytes for now"; where
                                                          n is 0 it stands alone: nothing, until I say otherwise;
                                                          without it: at most 64 KiB in one answer
2 Buckets   [lasting, vitals]                             hashes of 32 groups of origins: where do we differ?
3 Proof     [raw, raw]                                    two batches under one dot: their author is quarantined
4 ClockAsk  [sent_ns]                                     answered at once by
5 ClockTell [sent_ns, physical_ns]
6 CertificateAsk [origins]                                "I know no certificate of these", answered by
7 Certificates   [statements]                             each as the enrol role signed it
8 Recent    [ids]                                         first six bytes of the digests of batches that were news
9 Wanted    [ids]                                         "I lack these of them", answered by Batches
"""

from typing import TypeAlias

import msgspec

from swarmd_protocols.errors import WireError
from swarmd_protocols.ids import NODE_ID_BYTES
from swarmd_protocols.state.crdt.batch import BATCH_MIN_BYTES, INCARNATION_MAX, RECORD_MAX_BYTES
from swarmd_protocols.state.crdt.short import expand_all, shorten_all

MESSAGE_MAX_BYTES = 1 << 20
"""One message of the state: a quarter of a stream frame (`channel.codec.STREAM_MAX_BYTES`), so that none
holds the loop long."""
BUCKETS = 32
"""Groups of origins in a summary: a bit of a 32-bit mask each."""
BUCKET_HASH_BYTES = 4
"""Of a group's content, in a summary: an accidental match is found by the next summary, which is salted by news."""
HEAD_HASH_BYTES = 4
"""Of an origin's last batch, in a summary: shows two logs under one number."""
BATCHES_MAX = 4_096
"""Batches in one message: what fits its bytes where each is as small as can be."""
HAVE_ROWS_MAX = 2_048
"""Origins in one summary: comparing them takes about 10 ms; a larger swarm compares by groups of origins first."""
POSITIONS_MAX = 144
"""Positions of one origin: 17 lives of facts, 16 of each of four records, 48 runs above gaps, and a proof."""
HAVE_POSITIONS_MAX = 8_192
"""Positions in one summary, all origins together."""
CERTIFICATES_MAX = 16
"""Certificates in one message: checking one costs a signature, so 16 take about 3 ms."""
CERTIFICATE_MAX_BYTES = 2_048
"""A certificate has about 300 bytes; a longer name and more signatures still fit."""
ID_BYTES = 6
"""Of a batch's digest: a thousand batches of the last seconds share a name with a chance of one in 10^9."""
IDS_MAX = 128
"""Names in one message, which fits a datagram."""
HELD = 5
"""In a summary, instead of a stream: n batches of facts from this number on are held above a gap; n in 4 bytes."""
ROOM = 7
"""In a summary, instead of a stream: the sender takes at most n bytes of this origin for now, which wrote much of late;
where n is 0 it is in debt there: nothing of it is to be sent until a summary shows its positions again."""
ROOM_UNSAID_BYTES = 49_152
"""Of an origin for which a summary names no room so much is sent in one answer: half of what a node takes in of one
author at once (`quota.AUTHOR_BURST_BYTES`). So nobody is sent more of an author than it could take."""
PROVEN = 4
"""In a summary, instead of a stream: the sender holds the proof that this origin contradicts itself."""

LASTING = 1
"""Bit of a scope: logs of facts."""
VITALS = 2
"""Bit of a scope: records of which the newest counts."""


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


class CertificateAsk(msgspec.Struct, array_like=True, frozen=True, tag=6):
    """Batches of these origins came, and no certificate of them is known here."""

    origins: tuple[bytes, ...]


class Certificates(msgspec.Struct, array_like=True, frozen=True, tag=7):
    """Certificates, as bytes that the enrol role has signed."""

    statements: tuple[bytes, ...]


class Recent(msgspec.Struct, array_like=True, frozen=True, tag=8):
    """Names of batches that were news to the sender of late."""

    ids: bytes


class Wanted(msgspec.Struct, array_like=True, frozen=True, tag=9):
    """Names out of a `Recent` that the sender lacks."""

    ids: bytes


Message: TypeAlias = (
    Batches | Have | Buckets | Proof | ClockAsk | ClockTell | CertificateAsk | Certificates | Recent | Wanted
)

_ENCODE = msgspec.msgpack.Encoder().encode
_DECODER: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def encode(message: Message) -> bytes:
    """The bytes of a message."""
    if isinstance(message, Batches):
        return encode_short(shorten_all(message.raws))
    return _ENCODE(message)


def encode_short(shorts: tuple[bytes, ...]) -> bytes:
    """A `Batches` of what `short.shorten` has made of them, each after the one before it."""
    return _ENCODE(Batches(shorts))


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
    if isinstance(message, Batches):
        _require(len(message.raws) <= BATCHES_MAX, "too many batches")
        message = Batches(expand_all(message.raws))
    _check(message)
    return message


def _check(message: Message) -> None:
    match message:
        case Batches(raws):
            # Each costs work whatever it says, so what waits to be read is bounded in bytes only if none is tiny.
            _require(all(BATCH_MIN_BYTES <= len(raw) <= RECORD_MAX_BYTES for raw in raws), "a batch's size is off")
        case Have(rows, scope, _, buckets):
            _require(len(rows) <= HAVE_ROWS_MAX and 0 < scope <= LASTING | VITALS, "a summary is out of range")
            _require(0 <= buckets < 1 << BUCKETS, "a summary's buckets are out of range")
            _require(len({origin for origin, _ in rows}) == len(rows), "a summary names an origin twice")
            total = sum(len(positions) for _, positions in rows)
            _require(total <= HAVE_POSITIONS_MAX, "a summary has too many positions")
            for origin, positions in rows:
                _require(
                    len(origin) == NODE_ID_BYTES and len(positions) <= POSITIONS_MAX, "a summary's row is out of range"
                )
                for stream, incarnation, n, head in positions:
                    _require(
                        0 <= stream <= ROOM
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
        case CertificateAsk(origins):
            _require(len(origins) <= CERTIFICATES_MAX, "too many certificates are asked for")
        case Certificates(statements):
            _require(len(statements) <= CERTIFICATES_MAX, "too many certificates at once")
            _require(all(len(one) <= CERTIFICATE_MAX_BYTES for one in statements), "a certificate is too long")
        case Recent(ids) | Wanted(ids):
            _require(len(ids) % ID_BYTES == 0 and len(ids) <= IDS_MAX * ID_BYTES, "names of batches are out of range")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise WireError(what)
