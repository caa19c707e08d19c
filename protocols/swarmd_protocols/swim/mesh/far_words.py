"""What the two ends of a stream to a far member say to each other, and what hands it on says back; strict codec.

    segment   origin to target, sealed for it: units of a message, which one, and how long it is
    got       back, likewise: all units up to here, and which of the 64 that follow it
    stuck     hop to hop towards the origin: "this part ended with me", signed by who says so

They travel as words of a sub-protocol of their own: who does not know it leaves them unread.
"""

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from swarmd_protocols.errors import WireError

NAME = "far"
UNIT_BYTES = 984
"""Bytes of a message that one part carries: with its seal and heads it is one part of the relay's, never two."""
UNITS_NEAR_MAX = 32
"""Units in one segment to a member that is near: 30 kB, a tenth of what the reliable path takes in one frame."""
SIZE_MAX_BYTES = 264 << 10
"""Of one message: the largest input or answer of borrowed inference with its heads; at 3 kB/s it takes 90 s."""
UNITS_MAX = -(-SIZE_MAX_BYTES // UNIT_BYTES)
"""Units of one message at most."""
AHEAD_MAX = 64
"""Units beyond the first that is missing that are kept: as many as `Got` can name."""

_Number = Annotated[int, Meta(ge=1, le=(1 << 63) - 1)]
_Unit = Annotated[int, Meta(ge=0, le=UNITS_MAX)]


class Segment(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Units of a message, in order."""

    number: _Number
    """Of the message: grows with each one and with each life of its origin."""
    size: Annotated[int, Meta(ge=1, le=SIZE_MAX_BYTES)]
    """Bytes of all of it."""
    index: _Unit
    """The first unit here."""
    data: Annotated[bytes, Meta(min_length=1, max_length=UNIT_BYTES * UNITS_NEAR_MAX)]


class Got(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """What has come of a message."""

    number: _Number
    upto: _Unit
    """Units from the first that have all come."""
    ahead: Annotated[bytes, Meta(max_length=AHEAD_MAX // 8)]
    """A bit for each unit after the one that is missing, the first unit's lowest; what is left out has not come."""


class Stuck(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """A part that was taken ended here: nobody nearer to its target took it in time."""

    part: Annotated[bytes, Meta(min_length=8, max_length=8)]
    """Its name (`relay.py`)."""
    node: Annotated[bytes, Meta(min_length=16, max_length=16)]
    """Who says so, and signed."""
    signature: Annotated[bytes, Meta(min_length=64, max_length=64)]


Word: TypeAlias = Segment | Got | Stuck
_DECODER: msgspec.msgpack.Decoder[Word] = msgspec.msgpack.Decoder(Word)


def units_of(size_bytes: int) -> int:
    """Units of a message.

    >>> units_of(1), units_of(984), units_of(985)
    (1, 1, 2)
    """
    return -(-size_bytes // UNIT_BYTES)


def decode_word(payload: bytes) -> Word:
    """One word of a member.

    Raises:
        WireError: It is none, or what it says does not fit together.
    """
    try:
        word = _DECODER.decode(payload)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise WireError(f"not a word about a stream: {error}") from error
    if isinstance(word, Segment):
        begin = word.index * UNIT_BYTES
        end = begin + len(word.data)
        if end > word.size or (len(word.data) % UNIT_BYTES and end != word.size):
            raise WireError(f"bytes {begin} to {end} of {word.size} are no units of a message")
    return word


def stuck_body(part: bytes, node: bytes) -> bytes:
    """What `Stuck` signs."""
    return part + node


def pack_ahead(upto: int, got: set[int]) -> bytes:
    """The bits of `Got.ahead`.

    >>> pack_ahead(3, {4, 6, 12}).hex()
    '0501'
    """
    bits = sum(1 << (unit - upto - 1) for unit in got if upto < unit <= upto + AHEAD_MAX)
    return bits.to_bytes(-(-bits.bit_length() // 8), "little")


def read_ahead(upto: int, ahead: bytes) -> list[int]:
    """The units that `Got.ahead` names.

    >>> read_ahead(3, bytes.fromhex("0501"))
    [4, 6, 12]
    """
    bits = int.from_bytes(ahead, "little")
    return [upto + 1 + at for at in range(bits.bit_length()) if bits >> at & 1]
