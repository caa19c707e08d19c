"""What releases say to each other inside the sealed channel, and the strict codec for it.

Have ───────────▶  "this is what I know" (prefixes of digests); answered by Push and, where we lack something, Want
Want ───────────▶  "send me these"; answered by Push
Push ───────────▶  roots, statements, health reports; each verified before it is stored or passed on
Tell ───────────▶  "of this blob I show you these chunks"; also the hello of an exchange and the receipt of a chunk
AskList ────────▶  answered by ChunkList: the hashes of all chunks, checked against the signed digest
Ask ────────────▶  answered by Chunk, or by Refuse when too many wait
CastNote ───────▶  "I begin, have ended a round of, or am done with casting this blob" (casting.py)
AskPieces ──────▶  after a round: "these pieces I lack"; answered by the next round of the cast
Piece ══════════▶  cast to everybody at once, best effort
"""

from typing import TypeAlias

import msgspec

from swarmd_protocols.errors import WireError

PREFIX_BYTES = 8
"""Of a digest, to name a file among the few that are on their way between two peers."""
MAX_MESSAGE_BYTES = 1 << 20
"""One message of this sub-protocol: a quarter of a stream frame."""
MAX_PUSH_BYTES = 512 << 10
"""Statements handed over in one message: half a message, so that the answer fits beside it."""


class Have(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """The sender's view, as sorted 8-byte prefixes, joined."""

    roots: int
    statements: bytes
    reports: bytes
    reply: bool
    """Answer with a `Have` of your own when something differs."""


class Want(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Prefixes of what the sender lacks, and the number of roots it has."""

    roots: int
    statements: bytes
    reports: bytes


class Push(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Encoded roots (oldest first), statement envelopes and report envelopes."""

    roots: tuple[bytes, ...]
    statements: tuple[bytes, ...]
    reports: tuple[bytes, ...]


class TellChunks(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """`blob`: first 8 bytes of its SHA-256. `mask`: little-endian bit mask of the chunks shown."""

    blob: bytes
    mask: bytes


class AskList(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Send me the hashes of all chunks of the blob."""

    blob: bytes


class ChunkList(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """32 bytes for each chunk."""

    blob: bytes
    hashes: bytes


class AskChunk(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Send me this chunk."""

    blob: bytes
    index: int


class Chunk(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """The bytes of a chunk."""

    blob: bytes
    index: int
    data: bytes


class RefuseChunk(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """Ask another; too many wait here."""

    blob: bytes
    index: int


class CastNote(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """Where the sender's cast of the blob stands; `state` is one of `casting.BEGINS`, `OVER`, `ENDS`."""

    blob: bytes
    round: int
    state: int


class AskPieces(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """`mask`: little-endian bit mask of the pieces that would do after a round, with what is here; empty for none."""

    blob: bytes
    round: int
    mask: bytes


class Piece(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """One piece of a chunk or parity of its pieces, numbered through the blob (`casting.py`); only ever cast."""

    blob: bytes
    number: int
    data: bytes


BlobMessage: TypeAlias = (
    TellChunks | AskList | ChunkList | AskChunk | Chunk | RefuseChunk | CastNote | AskPieces | Piece
)
Message: TypeAlias = Have | Want | Push | BlobMessage

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: "msgspec.msgpack.Decoder[Message]" = msgspec.msgpack.Decoder(Message)


def encode_message(message: Message) -> bytes:
    """Bytes for `Send` or `piggyback`."""
    return _ENCODER.encode(message)


def decode_message(data: bytes) -> Message:
    """Read a message from a peer.

    Raises:
        WireError: It is none, or it is out of bounds.
    """
    if len(data) > MAX_MESSAGE_BYTES:
        raise WireError(f"release message of {len(data)} bytes; at most {MAX_MESSAGE_BYTES} are read")
    try:
        message = _DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise WireError(f"not a release message: {error}") from error
    except RecursionError:
        raise WireError("not a release message: nested too deeply") from None
    if isinstance(message, BlobMessage) and len(message.blob) != PREFIX_BYTES:
        raise WireError("a blob is named by 8 bytes")
    if isinstance(message, Have | Want) and (len(message.statements) | len(message.reports)) % PREFIX_BYTES:
        raise WireError("prefixes are 8 bytes each")
    return message


def split_prefixes(joined: bytes) -> set[bytes]:
    """The prefixes of a `Have` or `Want`."""
    return {joined[at : at + PREFIX_BYTES] for at in range(0, len(joined), PREFIX_BYTES)}


def join_prefixes(digests: "list[bytes]") -> bytes:
    """Digests as a `Have` or `Want` carries them."""
    return b"".join(sorted(digest[:PREFIX_BYTES] for digest in digests))
