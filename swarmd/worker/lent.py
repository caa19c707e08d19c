"""How a request of the Open Inference Protocol travels to another device's worker, and its answer back.

```
 request  | what u8 | lane u8 | length of the JSON part u32 | [key 32] | the body as its sender sent it |
 answer   | length of the JSON part u32 | the body as it goes back |
```

With `KEEP` in `what` the lender may keep what comes out for the lender of the next part (`outbox.py`), whose token is
made with the key; it then answers with a place. A request with `HANDED` carries such a place instead of a body, and by
whom and for which request it was signed: the lender connects only where another lender has said that it listens.

Little endian; a length of 0xFFFFFFFF: the whole body is JSON. The bundle stands beside it, by its digest. The device
that answers reads the body with the same reader and bounds as one that came over its own loopback.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Annotated

import msgspec

from swarmd.worker.oip import OUTPUTS_MAX, OipError, few, some
from swarmd_models.service import DETECT, GRAPH, SERIES, TEXT

METADATA, INFER, FETCH, HANDED = 0, 1, 2, 3
"""What is asked; the last two are inferences whose input lies with the borrower, or with another lender."""
KEEP = 0x80
"""Added to it: what comes out may be kept for another lender."""
KEY_BYTES = 32
"""Of what tokens for it are made with."""
KEEP_LEAST_BYTES = 4 << 10
"""Of what is kept: below, a place, its proof and a connection cost what the tensor does."""
PAYLOAD_MAX_BYTES = 256 << 10
"""`swarmd_protocols.offload.messages.PAYLOAD_MAX_BYTES`: the worker does without the protocols."""
INLINE_MAX_BYTES = 16 << 10
"""Of what goes through the brains although there is a lane: below, a second connection costs more than it saves; above,
the brains would seal and open it for nothing (82 kB: 5.5 ms through them, 1.1 ms beside)."""
LANE_MAX_BYTES = 64 << 20
"""`swarmd_protocols.offload.messages.LANE_MAX_BYTES`."""
_ALL_JSON = 0xFFFFFFFF
_LEFT = 0xFFFFFFFE
"""In place of a length: the answer has been left with the borrower's worker."""
_LANES = (GRAPH, DETECT, TEXT, SERIES)
_REQUEST = struct.Struct("<BBI")
REQUEST_HEAD_BYTES = _REQUEST.size
_KEPT = 0xFFFFFFFD
"""In place of a length: the lender keeps it."""
_ANSWER = struct.Struct("<I")
_KEPT_ANSWER = struct.Struct("<IIIH32sQ32s")
_HANDED = struct.Struct("<16s16s32s104s")
_PLACE = struct.Struct("<H32s16sQ32s")
TOKEN_AT = _REQUEST.size + struct.calcsize("<H32s")
"""Where in a request whose body is to be fetched the token stands."""
WHO_BYTES = 8
"""Of a lender's token, the part that says whose it is: the first bytes of the lender's id."""
BORROWER = bytes(WHO_BYTES)
"""Whose token a borrower shows for what it had a lender keep: no lender's id begins so."""
_LEFT_ANSWER = struct.Struct("<IIQ32s")


@dataclass(frozen=True, slots=True)
class Place:
    """Where the body of a request lies for lenders to fetch (`lane.py`)."""

    port: int
    key: bytes
    """CURVE public key of the worker that listens, 32 bytes."""
    token: bytes
    size_bytes: int
    sha256: bytes
    lane_key: bytes = b""
    """What lenders' tokens are made with; it does not travel."""
    token_at: int = TOKEN_AT
    """Where in the request the token stands."""


@dataclass(frozen=True, slots=True)
class Left:
    """An answer that a lender has left with the borrower's worker."""

    json_bytes: int | None
    size_bytes: int
    sha256: bytes


@dataclass(frozen=True, slots=True)
class Kept:
    """An answer that its lender keeps: a question for the next part."""

    json_bytes: int | None
    took_us: int
    """By the lender's word."""
    port: int
    curve_key: bytes
    size_bytes: int
    sha256: bytes


@dataclass(frozen=True, slots=True)
class Source:
    """Where a handed input lies, and who says so."""

    node: bytes
    """The lender that keeps it."""
    digest: bytes
    """Of the bundle that it came of."""
    proof: bytes
    """`swarmd_protocols.offload.messages.proof_of` its answer."""
    answer: bytes
    """That answer, a `Kept`."""


@dataclass(frozen=True, slots=True)
class Lent:
    """A request of another device's program."""

    what: int
    lane: str
    json_bytes: int | None
    body: bytes
    place: Place | None = None
    """Where the body lies that is not here."""
    keep_key: bytes = b""
    """What comes out may be kept for who has a token made with it; empty: it goes back."""
    is_handed: bool = False
    """The body lies with another lender."""


def token_of(key: bytes, who: bytes) -> bytes:
    """A lender's token for one body; `swarmd_protocols.offload.messages.lane_token`, which the worker does without.

    Args:
        key: `Place.lane_key`.
        who: `WHO_BYTES` of the lender's id.
    """
    return who + blake2b(who, key=key, digest_size=8, person=b"swarmd-lane").digest()


def _head(what: int, lane: str, json_bytes: int | None, keep_key: bytes) -> bytes:
    kind = what | KEEP if keep_key else what
    return _REQUEST.pack(kind, _LANES.index(lane), _ALL_JSON if json_bytes is None else json_bytes) + keep_key


def pack_place(lane: str, json_bytes: int | None, place: Place, keep_key: bytes = b"") -> bytes:
    """An inference whose body is to be fetched, as it travels."""
    head = _head(FETCH, lane, json_bytes, keep_key)
    return head + _PLACE.pack(place.port, place.key, place.token, place.size_bytes, place.sha256)


def pack_handed(lane: str, kept: Kept, source: Source, keep_key: bytes = b"") -> bytes:
    """An inference whose body another lender keeps, as it travels; the token stands at `handed_token_at`."""
    head = _head(HANDED, lane, kept.json_bytes, keep_key)
    return head + _HANDED.pack(bytes(16), source.node, source.digest, source.proof) + source.answer


def handed_token_at(keep_key: bytes) -> int:
    """Where in what `pack_handed` gives the token stands."""
    return _REQUEST.size + len(keep_key)


def source_of(data: bytes) -> Source | None:
    """Where the input of a request lies, by its borrower's word; None: not with another lender. It never raises."""
    if len(data) < _REQUEST.size or data[0] & ~KEEP != HANDED:
        return None
    at = _REQUEST.size + (KEY_BYTES if data[0] & KEEP else 0)
    if len(data) != at + _HANDED.size + _KEPT_ANSWER.size:
        return None
    _, node, digest, proof = _HANDED.unpack_from(data, at)
    return Source(node, digest, proof, data[at + _HANDED.size :])


def pack_request(what: int, lane: str, json_bytes: int | None, body: bytes | bytearray, keep_key: bytes = b"") -> bytes:
    """As it travels; raises `OipError` (413) for one that is too large to travel."""
    head = _head(what, lane, json_bytes, keep_key)
    if len(head) + len(body) > PAYLOAD_MAX_BYTES:
        raise OipError(413, f"the request has {len(body)} bytes; at most {PAYLOAD_MAX_BYTES} go to another device")
    return head + bytes(body)


def open_request(data: bytes) -> Lent:
    """Read what a borrower sent; raises `OipError`."""
    if len(data) < _REQUEST.size:
        raise OipError(400, "a borrowed request without its head")
    kind, lane, length = _REQUEST.unpack_from(data)
    what, at = kind & ~KEEP, _REQUEST.size + (KEY_BYTES if kind & KEEP else 0)
    if what not in (METADATA, INFER, FETCH, HANDED) or kind == METADATA | KEEP or lane >= len(_LANES):
        raise OipError(400, "a borrowed request of no known kind")
    key, json_bytes, rest = data[_REQUEST.size : at], None if length == _ALL_JSON else length, data[at:]
    if len(data) < at:
        raise OipError(400, "a borrowed request without the key of what is to be kept")
    if what == HANDED:
        source = source_of(data)
        kept = None if source is None else kept_answer(source.answer)
        if kept is None or kept.json_bytes != json_bytes:
            raise OipError(400, "a borrowed request that does not say where its body lies")
        place = Place(kept.port, kept.curve_key, rest[:16], kept.size_bytes, kept.sha256)
        return Lent(INFER, _LANES[lane], json_bytes, b"", place, key, is_handed=True)
    if what != FETCH:
        return Lent(what, _LANES[lane], json_bytes, rest, keep_key=key)
    if len(rest) != _PLACE.size:
        raise OipError(400, "a borrowed request that does not say where its body lies")
    return Lent(INFER, _LANES[lane], json_bytes, b"", Place(*_PLACE.unpack(rest)), key)


def pack_answer(pieces: Sequence[bytes], json_bytes: int | None) -> bytes:
    """As it travels back; raises `OipError` (413) for one that is too large: a borrower chooses which outputs."""
    size_bytes = _ANSWER.size + sum(map(len, pieces))
    if size_bytes > PAYLOAD_MAX_BYTES:
        raise OipError(413, f"the answer has {size_bytes} bytes; at most {PAYLOAD_MAX_BYTES} go to another device")
    return _ANSWER.pack(_ALL_JSON if json_bytes is None else json_bytes) + b"".join(pieces)


def pack_left(left: Left) -> bytes:
    """What travels back of an answer that has been left."""
    length = _ALL_JSON if left.json_bytes is None else left.json_bytes
    return _LEFT_ANSWER.pack(_LEFT, length, left.size_bytes, left.sha256)


def left_answer(data: bytes) -> Left | None:
    """Where an answer lies that is not in what travelled back; None: it is there."""
    if len(data) != _LEFT_ANSWER.size or _ANSWER.unpack_from(data) != (_LEFT,):
        return None
    _, length, size_bytes, digest = _LEFT_ANSWER.unpack(data)
    return Left(None if length == _ALL_JSON else length, size_bytes, digest)


def pack_kept(kept: Kept) -> bytes:
    """What travels back of an answer that its lender keeps."""
    length = _ALL_JSON if kept.json_bytes is None else kept.json_bytes
    took_us = min(max(0, kept.took_us), 0xFFFFFFFF)
    return _KEPT_ANSWER.pack(_KEPT, length, took_us, kept.port, kept.curve_key, kept.size_bytes, kept.sha256)


def kept_answer(data: bytes) -> Kept | None:
    """Where an answer lies that its lender keeps; None: it is there, or was left here."""
    if len(data) != _KEPT_ANSWER.size or _ANSWER.unpack_from(data) != (_KEPT,):
        return None
    _, length, took_us, port, key, size_bytes, digest = _KEPT_ANSWER.unpack(data)
    return Kept(None if length == _ALL_JSON else length, took_us, port, key, size_bytes, digest)


def open_answer(data: bytes) -> tuple[bytes, int | None]:
    """The body, and the length of its JSON part where raw bytes follow; `is_answer` has judged it."""
    (length,) = _ANSWER.unpack_from(data)
    return data[_ANSWER.size :], None if length == _ALL_JSON else length


class _Complaint(msgspec.Struct):
    error: str = ""
    status: int = 0


_COMPLAINTS = msgspec.json.Decoder(_Complaint)
PASSED_ON = (400, 404, 413)
"""Complaints about the request itself: no other lender would answer it either."""
_AFTERWARDS = 413
"""Of these, what may be found out by running the model alone: a borrower chooses which outputs."""
_COMPLAINT_MAX_CHARS = 500


def pack_complaint(digest: str, error: OipError) -> bytes:
    """What is wrong with a request, as an answer of the bundle that it was for; `error.status` is in `PASSED_ON`."""
    row = {"model_version": digest, "error": str(error)[:_COMPLAINT_MAX_CHARS], "status": error.status}
    return pack_answer([msgspec.json.encode(row)], None)


def complaint_of(body: bytes, json_bytes: int | None) -> OipError | None:
    """What an answer that `is_answer` complains about; None: it is one with outputs, or metadata."""
    try:
        said = _COMPLAINTS.decode(body[:json_bytes])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    if not said.error or said.status not in PASSED_ON:
        return None
    return OipError(said.status, said.error[:_COMPLAINT_MAX_CHARS])


def is_worthless(data: bytes) -> bool:
    """Whether an answer that `is_answer` only says what is wrong with its request: nothing ran for it."""
    if left_answer(data) is not None or kept_answer(data) is not None:
        return False
    complaint = complaint_of(*open_answer(data))
    return complaint is not None and complaint.status != _AFTERWARDS


class _Said(msgspec.Struct, frozen=True):
    binary_data_size: Annotated[int, msgspec.Meta(ge=0)] = 0


class _Output(msgspec.Struct, frozen=True):
    parameters: _Said = _Said()


_Outputs = few(_Output, OUTPUTS_MAX)


class _Head(msgspec.Struct):
    """Of an answer what is judged; all else is skipped, and nothing is made of it."""

    model_version: str
    outputs: _Outputs = _Outputs()  # type: ignore[valid-type]


_HEADS = msgspec.json.Decoder(_Head)


def is_answer(digest: bytes, data: bytes) -> bool:
    """Whether bytes are an answer of this bundle by their form: JSON that names it, with all the raw bytes it says."""
    if len(data) < _ANSWER.size:
        return False
    if (left := left_answer(data)) is not None:
        return left.size_bytes <= LANE_MAX_BYTES  # The worker judges it.
    if (kept := kept_answer(data)) is not None:
        return kept.size_bytes <= LANE_MAX_BYTES
    return is_body(digest, *open_answer(data))


def is_body(digest: bytes, body: bytes, json_bytes: int | None) -> bool:
    """The same of a body, and the length of its JSON part where raw bytes follow."""
    if json_bytes is not None and json_bytes > len(body):
        return False
    try:
        head = _HEADS.decode(body[:json_bytes])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return False
    size_bytes: int = sum(output.parameters.binary_data_size for output in some(head.outputs))
    return head.model_version == digest.hex() and size_bytes == (0 if json_bytes is None else len(body) - json_bytes)
