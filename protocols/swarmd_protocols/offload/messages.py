"""What borrowers and lenders say to each other inside the sealed channel, and the strict codec for it.

Offered ───────▶  lender to every peer: a signed descriptor of what it would run for others; replaces the one before
Ask ───────────▶  borrower to lender: "may I use this bundle?"; answered by Grant or Deny
Grant ◀─────────  a signed ticket (`tickets.py`)
Deny ◀──────────  no ticket now, and why
Request ───────▶  one inference under a ticket; answered once, by Answer or Refusal, or not at all
Answer ◀────────  what came out, with the lender's signature over borrower, request, bundle, input and output
Refusal ◀───────  it will not be answered, and why
Cancel ────────▶  nobody waits for this request any more

Input and output are opaque here and travel as one reliable frame, so both are small (`PAYLOAD_MAX_BYTES`); what is
larger goes from worker to worker, and these say where it lies.
"""

import struct
from dataclasses import dataclass
from hashlib import blake2b, sha256
from typing import TypeAlias

import msgspec

from swarmd_protocols.errors import WireError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.offload.placement import OFFERED_MAX
from swarmd_protocols.offload.purse import CHARGE_MAX_PPB_S, PRICE_MAX_MICRO_S
from swarmd_protocols.offload.tickets import TICKET_BYTES
from swarmd_protocols.offload.turns import NORMAL, PRIORITIES

PAYLOAD_MAX_BYTES = 256 << 10
"""Of one input or output: an ROI crop or a 320 x 256 frame in three channels. At 1 Mbit/s it takes two seconds; larger
tensors go from worker to worker."""
LANE_MAX_BYTES = 64 << 20
"""Of an input that goes from worker to worker: what a worker takes of one request at most."""
MESSAGE_MAX_BYTES = PAYLOAD_MAX_BYTES + 1024
"""A payload and what stands beside it."""
DEADLINE_MAX_MS = 60_000
"""The latest deadline of a request: what waits longer is a batch job."""
HELD_MAX_MS = 10_000
"""For so long a lender holds a request that another works on: a place of its borrower's, and no work."""
UNITS_MAX = 64
"""Items in one request: what one batch of a worker may have."""
DIGEST_BYTES = 32
"""Of a bundle: SHA-256."""
UNKNOWN_BATTERY = 0xFFFF
"""Stands for a lender without a battery, or one that does not know it."""
OFFER_MAX_BYTES = 1_000
"""Of what a lender signs: it goes as a datagram, and is read before its signature is looked at."""
GOOD_MAX_MS = 30_000
"""An offer that says it is good for longer is no offer: the lender would have left the air long before."""
_TIME_MAX_US = 600_000_000
"""No inference and no queue of ten minutes is worth an offer."""
LANE_TOKEN_BYTES = 16
"""Of a token by which a lender fetches an input and leaves an answer: half says whose it is, half proves it. Who
guesses has 2^64 to try before a request ends, and no connection without the key of the worker that listens."""
_OFFER_TAG = b"swarmd/offer/v1\0"
_ANSWER_TAG = b"swarmd/answer/v1\0"
_ANSWER = struct.Struct("<16s16sQ32s32s32s")
_PROOF = struct.Struct("<Q32s64s")
REASONS = (
    "busy", "late", "unknown", "expired", "spent", "other-bundle", "too-large", "not-lending", "failed",
    "outside-name", "outside-role", "outside-attested", "outside-same-owner",
)  # fmt: skip
"""Why a ticket or an answer is refused. "unknown": the lender does not know the ticket, it may have restarted;
"outside-…": by which rule of its owner (`whom.py`) it lends nothing to who asks. An older node reads none of the last
four, and is as wise as if nothing had been said."""


class Row(msgspec.Struct, frozen=True, array_like=True):
    """One bundle of an offer."""

    digest: bytes
    unit_us: int
    """Measured time of one inference; a request of n items takes n of them, since a worker runs them in turn."""
    queue_us: int
    """Work of its own and of others before a new request."""
    ability: int = 0
    """`placement.ability_number` of what it is able to; 0: it does not say."""
    grade_milli: int = 0
    """How well, by its recipe's measure: the lender's word, as its times are."""


class _Free(msgspec.Struct, frozen=True, array_like=True):
    """An offer that costs nothing, in the bytes that it always had; an older node reads any offer so."""

    node: bytes
    number: int
    good_ms: int
    battery_milli: int
    input_bytes_max: int
    rows: tuple[Row, ...]


class Descriptor(msgspec.Struct, frozen=True, array_like=True):
    """What a lender would do for others; no rows: nothing any more."""

    node: bytes
    number: int
    """Grows with each offer, across restarts."""
    good_ms: int
    """It is to be believed for so long after it was heard."""
    battery_milli: int
    """Thousandths, or `UNKNOWN_BATTERY`."""
    input_bytes_max: int
    rows: tuple[Row, ...]
    price_micro_s: int = 0
    """Of a second of inference, millionths of a unit of the fleet's money."""
    charge_ppb_s: int = 0
    """Of a second of inference, billionths of the lender's charge."""


class Offered(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """An encoded `Descriptor` and its lender's signature over it."""

    body: bytes
    signature: bytes


class Ask(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """A ticket for this bundle, please."""

    digest: bytes


class Grant(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """A ticket, sealed."""

    ticket: bytes


class Deny(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """No ticket for this bundle; one of `REASONS`."""

    digest: bytes
    reason: int


class Request(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """One inference."""

    id: int
    """The borrower's own; unique among what it has open."""
    ticket: int
    """Its number."""
    digest: bytes
    """Of the bundle that is to answer: this one or none."""
    units: int
    """Inferences that it takes, by the borrower's word."""
    left_ms: int
    """Time until its deadline."""
    data: bytes
    lane_bytes: int = 0
    """Of its input that the lender's worker fetches from the borrower's, as `data` tells it."""
    priority: int = NORMAL
    """By the borrower's word (`turns.py`); an older lender does not read it."""
    held_ms: int = 0
    """Another lender works on it; this one begins after so long, unless it is cancelled. An older one does at once."""


class _Normal(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """A request of normal priority that is begun at once, in the bytes that it always had."""

    id: int
    ticket: int
    digest: bytes
    units: int
    left_ms: int
    data: bytes
    lane_bytes: int


class Answer(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """What came out."""

    id: int
    data: bytes
    signature: bytes
    """See `answer_bytes`."""


class Refusal(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """There will be no answer; one of `REASONS`."""

    id: int
    reason: int


class Cancel(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """Nobody waits for it."""

    id: int


Message: TypeAlias = Offered | Ask | Grant | Deny | Request | Answer | Refusal | Cancel

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: "msgspec.msgpack.Decoder[Message]" = msgspec.msgpack.Decoder(Message)
_DESCRIPTORS: "msgspec.msgpack.Decoder[Descriptor]" = msgspec.msgpack.Decoder(Descriptor)


def encode_message(message: Message) -> bytes:
    """Bytes for `Send`."""
    if isinstance(message, Request) and message.priority == NORMAL and not message.held_ms:
        return _ENCODER.encode(_Normal(*msgspec.structs.astuple(message)[:-2]))
    return _ENCODER.encode(message)


def decode_message(data: bytes) -> Message:
    """Read a message from a peer; signatures are for the caller to judge.

    Raises:
        WireError: It is none, or it is out of bounds.
    """
    if len(data) > MESSAGE_MAX_BYTES:
        raise WireError(f"a message about borrowing has {len(data)} bytes; at most {MESSAGE_MAX_BYTES} are read")
    try:
        message = _DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"not a message about borrowing: {error}") from error
    match message:
        case Offered(body, signature):
            _check(len(signature) == 64, "a signature has 64 bytes")
            _check(len(body) <= OFFER_MAX_BYTES, f"an offer has at most {OFFER_MAX_BYTES} bytes")
        case Ask(digest):
            _check(len(digest) == DIGEST_BYTES, "a bundle is named by 32 bytes")
        case Grant(ticket):
            _check(len(ticket) == TICKET_BYTES, f"a ticket has {TICKET_BYTES} bytes")
        case Deny(digest, reason):
            _check(len(digest) == DIGEST_BYTES and 0 <= reason < len(REASONS), "no refusal that is known")
        case Request():
            _check_request(message)
        case Answer(number, data, signature):
            _check(0 <= number < 1 << 63 and len(signature) == 64, "an answer's number or signature")
            _check(len(data) <= PAYLOAD_MAX_BYTES, f"an answer has at most {PAYLOAD_MAX_BYTES} bytes")
        case Refusal(number, reason):
            _check(0 <= number < 1 << 63 and 0 <= reason < len(REASONS), "no refusal that is known")
        case Cancel(number):
            _check(0 <= number < 1 << 63, "a request's number")
    return message


def _check_request(request: Request) -> None:
    _check(0 <= request.id < 1 << 63 and 0 <= request.ticket < 1 << 64, "a request's numbers")
    _check(len(request.digest) == DIGEST_BYTES, "a bundle is named by 32 bytes")
    _check(1 <= request.units <= UNITS_MAX, f"a request has 1 to {UNITS_MAX} items")
    _check(1 <= request.left_ms <= DEADLINE_MAX_MS, f"a request has 1 to {DEADLINE_MAX_MS} ms left")
    _check(len(request.data) <= PAYLOAD_MAX_BYTES, f"an input has at most {PAYLOAD_MAX_BYTES} bytes")
    _check(0 <= request.lane_bytes <= LANE_MAX_BYTES, f"at most {LANE_MAX_BYTES} bytes are fetched")
    _check(request.priority in PRIORITIES, "no priority")
    _check(0 <= request.held_ms <= min(HELD_MAX_MS, request.left_ms), f"a request is held for {HELD_MAX_MS} ms at most")


def _check(holds: bool, what: str) -> None:
    if not holds:
        raise WireError(f"out of bounds: {what}")


# --- Signed parts ---------------------------------------------------------------------------------------------------


def lane_token(key: bytes, lender: NodeId) -> bytes:
    """One lender's token for one request's input; nobody else's, so that what it leaves takes nobody else's room.

    Args:
        key: Of the request, which never leaves the borrower.
        lender: Whose it is.
    """
    who = lender[: LANE_TOKEN_BYTES // 2]
    return who + blake2b(who, key=key, digest_size=LANE_TOKEN_BYTES // 2, person=b"swarmd-lane").digest()


def offer_bytes(body: bytes) -> bytes:
    """What a lender signs of its offer."""
    return _OFFER_TAG + body


def encode_descriptor(descriptor: Descriptor) -> bytes:
    """The body of `Offered`."""
    if descriptor.price_micro_s or descriptor.charge_ppb_s:
        return _ENCODER.encode(descriptor)
    return _ENCODER.encode(_Free(*msgspec.structs.astuple(descriptor)[:6]))


def decode_descriptor(body: bytes) -> Descriptor:
    """Read what was signed; raises `WireError`."""
    try:
        found = _DESCRIPTORS.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"not an offer: {error}") from error
    _check(len(found.node) == 16 and 0 <= found.number < 1 << 64, "an offer's lender or number")
    _check(0 <= found.good_ms <= GOOD_MAX_MS, f"an offer is good for at most {GOOD_MAX_MS} ms")
    _check(0 <= found.battery_milli <= 1000 or found.battery_milli == UNKNOWN_BATTERY, "a battery")
    _check(0 <= found.input_bytes_max <= LANE_MAX_BYTES, "the size of an input")
    _check(0 <= found.price_micro_s <= PRICE_MAX_MICRO_S and 0 <= found.charge_ppb_s <= CHARGE_MAX_PPB_S, "a price")
    _check(len(found.rows) <= OFFERED_MAX, f"an offer has at most {OFFERED_MAX} bundles")
    _check(len({row.digest for row in found.rows}) == len(found.rows), "a bundle is offered once")
    for row in found.rows:
        _check(len(row.digest) == DIGEST_BYTES, "a bundle is named by 32 bytes")
        _check(0 <= row.unit_us <= _TIME_MAX_US and 0 <= row.queue_us <= _TIME_MAX_US, "a time of an offer")
        _check(0 <= row.ability < 1 << 32 and 0 <= row.grade_milli <= 1000, "an ability or its grade")
    return found


@dataclass(frozen=True, slots=True)
class Bound:
    """What an answer is bound to."""

    borrower: NodeId
    lender: NodeId
    id: int
    digest: bytes
    input_sha256: bytes


PROOF_BYTES = _PROOF.size
"""Of what `proof_of` gives."""


def proof_of(number: int, input_sha256: bytes, signature: bytes) -> bytes:
    """What somebody else needs, beside the answer's bytes and its bundle, to see that a lender has given it.

    Args:
        number: Of the request, as it was on the wire.
        input_sha256: Of what the lender was sent.
        signature: Of the answer.
    """
    return _PROOF.pack(number, input_sha256, signature)


def bound_by(proof: bytes, borrower: NodeId, lender: NodeId, digest: bytes) -> tuple[Bound, bytes]:
    """What an answer with this proof is bound to, and its signature; `proof` has `PROOF_BYTES`."""
    number, input_sha256, signature = _PROOF.unpack(proof)
    return Bound(borrower, lender, number, digest, input_sha256), signature


def answer_bytes(bound: Bound, data: bytes) -> bytes:
    """What a lender signs of an answer: for whom, by whom, to which request, by which bundle, to what, and what."""
    return _ANSWER_TAG + _ANSWER.pack(
        bound.borrower, bound.lender, bound.id, bound.digest, bound.input_sha256, sha256(data).digest()
    )
