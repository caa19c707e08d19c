"""What members of one swarm tell each other of its neighbours: which statements they have, and the statements.

    Have  ["h", [[kind, name 16, order], …]]        best effort; who has more gives it, who has less asks the same way
    Give  ["g", agreements, introductions, words]   each a statement as it was signed

Kinds are 0 an agreement (name: the neighbour's key; order: its revision and a hash), 1 an introduction (the gateway's
node id; its time), 2 a word (the neighbour's key; its time).
"""

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from swarmd_protocols.channel.codec import decode_body
from swarmd_protocols.neighbours.words import AGREEMENT_MAX_BYTES, INTRODUCTION_MAX_BYTES

NEIGHBOURS_MAX = 4
"""Neighbours of one swarm that count: fleets that share one place."""
ITEMS_MAX = 32
"""Of one `Have`: an agreement, a word and four gateways for each neighbour, with room; 900 bytes."""
GIVE_MAX_BYTES = 262_144
"""Of one `Give`: all that a node may have of four neighbours with roots of the usual size."""

_Order = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Item: TypeAlias = tuple[Annotated[int, Meta(ge=0, le=2)], Annotated[bytes, Meta(min_length=16, max_length=16)], _Order]
_Agreements = Annotated[
    tuple[Annotated[bytes, Meta(max_length=AGREEMENT_MAX_BYTES)], ...], Meta(max_length=NEIGHBOURS_MAX)
]
_Statements = Annotated[
    tuple[Annotated[bytes, Meta(max_length=INTRODUCTION_MAX_BYTES)], ...], Meta(max_length=4 * NEIGHBOURS_MAX)
]


class Have(msgspec.Struct, array_like=True, frozen=True, tag="h", forbid_unknown_fields=True):
    """What the sender has."""

    items: Annotated[tuple[Item, ...], Meta(max_length=ITEMS_MAX)]


class Give(msgspec.Struct, array_like=True, frozen=True, tag="g", forbid_unknown_fields=True):
    """What the receiver lacks."""

    agreements: _Agreements = ()
    introductions: _Statements = ()
    words: _Statements = ()


Message: TypeAlias = Have | Give
_MESSAGE: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)
encode = msgspec.msgpack.Encoder().encode


def decode(payload: bytes) -> Message:
    """Read one; raises `WireError`."""
    return decode_body(_MESSAGE, payload)
