"""How a request of the Open Inference Protocol travels to another device's worker, and its answer back.

```
 request  | what u8 | lane u8 | length of the JSON part u32 | the body as its sender sent it |
 answer   | length of the JSON part u32 | the body as it goes back |
```

Little endian; a length of 0xFFFFFFFF: the whole body is JSON. The bundle stands beside it, by its digest. The device
that answers reads the body with the same reader and bounds as one that came over its own loopback.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import msgspec

from swarmd.worker.oip import OipError
from swarmd_models.service import DETECT, GRAPH, TEXT

METADATA, INFER, FETCH = 0, 1, 2
"""What is asked."""
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
_LANES = (GRAPH, DETECT, TEXT)
_REQUEST = struct.Struct("<BBI")
REQUEST_HEAD_BYTES = _REQUEST.size
_ANSWER = struct.Struct("<I")
_PLACE = struct.Struct("<H32s16sQ32s")
TOKEN_AT = _REQUEST.size + struct.calcsize("<H32s")
"""Where in a request whose body is to be fetched the token stands."""
WHO_BYTES = 8
"""Of a lender's token, the part that says whose it is: the first bytes of the lender's id."""
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


@dataclass(frozen=True, slots=True)
class Left:
    """An answer that a lender has left with the borrower's worker."""

    json_bytes: int | None
    size_bytes: int
    sha256: bytes


@dataclass(frozen=True, slots=True)
class Lent:
    """A request of another device's program."""

    what: int
    lane: str
    json_bytes: int | None
    body: bytes
    place: Place | None = None
    """Where the body lies that is not here."""


def token_of(key: bytes, who: bytes) -> bytes:
    """A lender's token for one body; `swarmd_protocols.offload.messages.lane_token`, which the worker does without.

    Args:
        key: `Place.lane_key`.
        who: `WHO_BYTES` of the lender's id.
    """
    return who + blake2b(who, key=key, digest_size=8, person=b"swarmd-lane").digest()


def pack_place(lane: str, json_bytes: int | None, place: Place) -> bytes:
    """An inference whose body is to be fetched, as it travels."""
    head = _REQUEST.pack(FETCH, _LANES.index(lane), _ALL_JSON if json_bytes is None else json_bytes)
    return head + _PLACE.pack(place.port, place.key, place.token, place.size_bytes, place.sha256)


def pack_request(what: int, lane: str, json_bytes: int | None, body: bytes | bytearray) -> bytes:
    """As it travels; raises `OipError` (413) for one that is too large to travel."""
    head = _REQUEST.pack(what, _LANES.index(lane), _ALL_JSON if json_bytes is None else json_bytes)
    if len(head) + len(body) > PAYLOAD_MAX_BYTES:
        raise OipError(413, f"the request has {len(body)} bytes; at most {PAYLOAD_MAX_BYTES} go to another device")
    return head + bytes(body)


def open_request(data: bytes) -> Lent:
    """Read what a borrower sent; raises `OipError`."""
    if len(data) < _REQUEST.size:
        raise OipError(400, "a borrowed request without its head")
    what, lane, length = _REQUEST.unpack_from(data)
    if what not in (METADATA, INFER, FETCH) or lane >= len(_LANES):
        raise OipError(400, "a borrowed request of no known kind")
    json_bytes, rest = None if length == _ALL_JSON else length, data[_REQUEST.size :]
    if what != FETCH:
        return Lent(what, _LANES[lane], json_bytes, rest)
    if len(rest) != _PLACE.size:
        raise OipError(400, "a borrowed request that does not say where its body lies")
    return Lent(INFER, _LANES[lane], json_bytes, b"", Place(*_PLACE.unpack(rest)))


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


class _Output(msgspec.Struct):
    parameters: dict[str, Any] = {}


class _Head(msgspec.Struct):
    model_version: str
    outputs: list[_Output] = []


_HEADS = msgspec.json.Decoder(_Head)


def is_answer(digest: bytes, data: bytes) -> bool:
    """Whether bytes are an answer of this bundle by their form: JSON that names it, with all the raw bytes it says."""
    if len(data) < _ANSWER.size:
        return False
    if (left := left_answer(data)) is not None:
        return left.size_bytes <= LANE_MAX_BYTES  # The worker judges it.
    return is_body(digest, *open_answer(data))


def is_body(digest: bytes, body: bytes, json_bytes: int | None) -> bool:
    """The same of a body, and the length of its JSON part where raw bytes follow."""
    if json_bytes is not None and json_bytes > len(body):
        return False
    try:
        head = _HEADS.decode(body[:json_bytes])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return False
    sizes: list[Any] = [output.parameters.get("binary_data_size", 0) for output in head.outputs]
    if head.model_version != digest.hex() or not all(type(size) is int and size >= 0 for size in sizes):
        return False
    return int(sum(sizes)) == (0 if json_bytes is None else len(body) - json_bytes)
