"""What members say to each other about pictures, and the strict codec for it.

    Ask   ───────▶  "give me the picture of this name"; answered once by Here or Lack, or not at all by who is busy
    Here  ◀───────  its bytes
    Lack  ◀───────  it is not here (any more)

    byte 0      1         17
    | kind u8 | name 16 | picture, of Here alone: 1 to 6,144 |

Kinds: 1 Ask, 2 Here, 3 Lack. All travel inside the sealed channel, Here as a reliable frame of the lowest priority.
"""

from typing import TypeAlias

import msgspec

from swarmd_protocols.errors import WireError
from swarmd_protocols.thumbs.form import NAME_BYTES, THUMB_MAX_BYTES, name_of, problem_of

_ASK, _HERE, _LACK = 1, 2, 3
_HEAD_BYTES = 1 + NAME_BYTES
"""Of the kind and the name."""


class Ask(msgspec.Struct, frozen=True, gc=False):
    """Who wants a picture, to a node that says to have it."""

    name: bytes


class Here(msgspec.Struct, frozen=True, gc=False):
    """The picture; that it has the name and the form, `decode` has checked."""

    name: bytes
    jpeg: bytes


class Lack(msgspec.Struct, frozen=True, gc=False):
    """There is no such picture here."""

    name: bytes


Message: TypeAlias = Ask | Here | Lack


def encode(message: Message) -> bytes:
    """A message as bytes."""
    match message:
        case Ask(name):
            return bytes((_ASK,)) + name
        case Here(name, jpeg):
            return bytes((_HERE,)) + name + jpeg
        case Lack(name):
            return bytes((_LACK,)) + name


def decode(payload: bytes) -> Message:
    """Read a message.

    Raises:
        WireError: The bytes are none, or the picture is not what its name says, or has another form.
    """
    kind, name, jpeg = payload[:1], payload[1:_HEAD_BYTES], payload[_HEAD_BYTES:]
    if len(payload) < _HEAD_BYTES or len(jpeg) > THUMB_MAX_BYTES:
        raise WireError(f"a message about a picture has {len(payload)} bytes")
    if kind == bytes((_HERE,)):
        if name_of(jpeg) != name:
            raise WireError(f"a picture that is not {name.hex()}")
        problem = problem_of(jpeg)
        if problem:
            raise WireError(problem)
        return Here(name, jpeg)
    if jpeg or kind not in (bytes((_ASK,)), bytes((_LACK,))):
        raise WireError(f"a message about a picture of kind {kind.hex()}, {len(payload)} bytes")
    return Ask(name) if kind == bytes((_ASK,)) else Lack(name)
