"""What members say to each other to hand a frame on (`relay.py`)."""

from typing import Annotated

import msgspec
from msgspec import Meta

from swarmd_protocols.errors import WireError

HOPS_MAX = 12
"""Hops of a frame at most: twice the diameter of 50 nodes in a field where each hears six; longer chains lose more than
they carry."""
PART_BYTES = 1_056
"""Bytes of a frame in one part: with what wraps it once more, a datagram."""
PARTS_MAX = 16
"""Parts of a frame at most, 17 kB: at 99.8 % a part over four hops, 97 in 100 come whole."""

_Id = Annotated[bytes, Meta(min_length=16, max_length=16)]
_Name = Annotated[bytes, Meta(min_length=8, max_length=8)]


class Onward(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A part of a frame that is not for whom it is sent to, or is."""

    target: _Id
    hops: Annotated[int, Meta(ge=1, le=HOPS_MAX)]
    """Hops that this one is, or less, before it is given up."""
    cost: Annotated[int, Meta(ge=1, le=65_535)]
    """What the way from the sender to the target costs, by its reckoning, quarters of a transmission."""
    sure: bool
    """It is kept until the next hop has it; otherwise it goes once, and nobody answers."""
    whole: _Name
    """Names the frame that this is a part of: 64 bits of its BLAKE2b."""
    part: Annotated[int, Meta(ge=0, lt=PARTS_MAX)]
    parts: Annotated[int, Meta(ge=1, le=PARTS_MAX)]
    data: Annotated[bytes, Meta(min_length=1, max_length=PART_BYTES)]


class Taken(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The sender of this has the part, and sees to it."""

    name: _Name


_DECODER: msgspec.msgpack.Decoder[Onward | Taken] = msgspec.msgpack.Decoder(Onward | Taken)


def decode_message(payload: bytes) -> Onward | Taken:
    """One message of a near member.

    Raises:
        WireError: It is none, or out of its bounds.
    """
    try:
        message = _DECODER.decode(payload)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise WireError(f"not a relay's message: {error}") from error
    if isinstance(message, Onward) and message.part >= message.parts:
        raise WireError(f"part {message.part} of {message.parts}")
    return message
