"""Bodies of frames: one msgpack array of tagged arrays. Limits are checked before anything is decoded.

The version of the wire format stands in the first byte of the frame (`channel.py`); a change of any golden vector in
`protocols/vectors/` is a new version.
"""

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from swarmd_protocols.errors import WireError

DATAGRAM_MAX_BYTES = 1_200
"""Fits unfragmented through the smallest common path (IPv6's 1,280 less headers)."""
STREAM_MAX_BYTES = 1_048_576 + 4_096
"""1 MiB of payload and what wraps it: opening and decoding it takes 4 ms, which is done at one go."""

_T = TypeVar("_T")
_ENCODER = msgspec.msgpack.Encoder()

encode = _ENCODER.encode
"""One message or body as bytes; whole-frame bodies are put together by `join`."""


def join(parts: Sequence[bytes]) -> bytes:
    """A frame body from messages that are already encoded.

    >>> join([b"\\x01", b"\\x02"]).hex()
    '920102'
    """
    count = len(parts)
    if count < 16:
        return bytes((0x90 | count,)) + b"".join(parts)
    return b"\xdc" + count.to_bytes(2, "big") + b"".join(parts)


def decode_body(decoder: msgspec.msgpack.Decoder[_T], body: bytes) -> _T:
    """A signed body as its struct; raises `WireError`."""
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise WireError(f"malformed body: {error}") from error
