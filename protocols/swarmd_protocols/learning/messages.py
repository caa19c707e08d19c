"""What members say to each other about learning, and the strict codec for it.

    Have  ───────▶  which rounds of which authors are here; answered by `Give` of what the other lacks, and, where
                    `answer` is set, by the other's own Have if that holds what is lacking here
    Give  ───────▶  deltas, as their authors signed them

    | 1 u8 | msgpack [session 16, answer, [[author 16, rounds u32, mark u32, lies], …]] |
    | 2 u8 | (length u16 ‖ delta) … |

Bit n of `rounds` is round n; `mark` is the sum (exclusive or) of the deltas' digests, cut: where the rounds are equal
and the marks are not, the author has said two things. Of an author that has said two things in one round (`lies`) both
are kept, as the proof, and nothing else counts.
"""

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from swarmd_protocols.errors import WireError
from swarmd_protocols.learning.form import DELTA_MAX_BYTES

HAVE_MAX = 1_024
"""Authors in a `Have`: the members of the largest full view, four times."""
GIVE_MAX = 64
"""Deltas in a `Give`: 5 ms of signatures."""
GIVE_MAX_BYTES = 32_768
"""Of a message: sixteen deltas of full length, or a `Have` of all authors."""
_HAVE, _GIVE = b"\x01", b"\x02"


class Row(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """What of one author is here."""

    author: Annotated[bytes, Meta(min_length=16, max_length=16)]
    rounds: Annotated[int, Meta(ge=0, lt=1 << 32)]
    mark: Annotated[int, Meta(ge=0, lt=1 << 32)]
    lies: bool


class Have(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What of a session is here."""

    session: Annotated[bytes, Meta(min_length=16, max_length=16)]
    answer: bool
    """Whether the other is to say its own."""
    rows: Annotated[tuple[Row, ...], Meta(max_length=HAVE_MAX)]


class Give(msgspec.Struct, frozen=True):
    """Deltas, each still to be read."""

    deltas: tuple[bytes, ...]


Message: TypeAlias = Have | Give
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Have)


def encode(message: Message) -> bytes:
    """A message as bytes."""
    if isinstance(message, Have):
        return _HAVE + _ENCODER.encode(message)
    return _GIVE + b"".join(len(one).to_bytes(2, "little") + one for one in message.deltas)


def decode(payload: bytes) -> Message:
    """Read a message.

    Raises:
        WireError: The bytes are none.
    """
    if len(payload) > GIVE_MAX_BYTES:
        raise WireError(f"{len(payload)} bytes about learning; at most {GIVE_MAX_BYTES} are taken")
    if payload[:1] == _HAVE:
        try:
            return _DECODER.decode(payload[1:])
        except msgspec.DecodeError as error:
            raise WireError(f"no list of deltas: {error}") from error
    if payload[:1] != _GIVE:
        raise WireError(f"a message about learning of kind {payload[:1].hex()}")
    found: list[bytes] = []
    at = 1
    while at < len(payload):
        size = int.from_bytes(payload[at : at + 2], "little")
        at += 2 + size
        if not 0 < size <= DELTA_MAX_BYTES or at > len(payload) or len(found) >= GIVE_MAX:
            raise WireError("deltas that do not fit their frame")
        found.append(payload[at - size : at])
    if not found:
        raise WireError("a frame of no deltas")
    return Give(tuple(found))
