"""What nodes say to each other about the past, inside the sealed channel, and the strict codec for it.

List ─────▶  asker to any member: whose pages do you keep, and of which times?
Listing ◀──  a row for each author
Ask ──────▶  asker to a keeper: pages of this author from one moment to another, the newest first
Answer ◀───  some of them, as their author signed them; the last one's place is the next Ask's cursor
Deny ◀─────  none: the asker may not have any, or not now

Every question carries the asker's number and its answer repeats it. A node that does not know this sub-protocol drops
the words unread.
"""

from typing import TypeAlias

import msgspec

from swarmd_protocols.errors import WireError
from swarmd_protocols.past.pages import NUMBER_MAX, PAGE_MAX_BYTES, TIME_MAX_MS

ANSWER_BYTES = 2 * PAGE_MAX_BYTES
"""Pages of one answer together, 64 KiB: four seconds of a giver's default rate, and the largest page fits twice."""
PAGES_MAX = 64
"""Pages of one answer: with 75 microseconds a signature, 5 ms of the asker."""
ROWS_MAX = 256
"""Authors of one listing, the keeper itself first, then the newest words: as many as a full view has members."""
CERTIFICATE_MAX_BYTES = 8_192
"""Of an author's certificate with its signatures."""
MESSAGE_MAX_BYTES = ANSWER_BYTES + PAGES_MAX * 5 + CERTIFICATE_MAX_BYTES + 128
"""An answer that is full."""
RETRY_MAX_MS = 600_000
"""The longest that a giver may put an asker off, milliseconds: ten minutes; who says more is asked after so long."""
REFUSED, BUSY, UNKNOWN = range(3)
"""Reasons of `Deny`: its certificate has none of the roles that the giver gives to; too much is asked of the giver; it
keeps no page of that author."""
_NUMBERS = 1 << 32
"""Numbers that a question may have: those of one life, at one a second, last for a century."""


class Row(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a keeper has of one author."""

    author: bytes
    floor_ms: int
    """What ended before it went for want of room or for its age; 0: nothing did."""
    from_ms: int
    """Beginning of the oldest page."""
    to_ms: int
    """End of the newest."""


class List(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=1):
    """Whose pages do you keep?"""

    number: int


class Listing(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=2):
    """Of these authors; no rows: of nobody."""

    number: int
    rows: tuple[Row, ...]


class Ask(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=3):
    """Pages that touch [from_ms, to_ms], the newest first."""

    number: int
    author: bytes
    from_ms: int
    to_ms: int
    below_ms: int
    """Cursor: pages that ended earlier, or"""
    below_number: int
    """then with a lower number."""


class Answer(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=4):
    """Pages, by (end, number) from the highest down."""

    number: int
    pages: tuple[bytes, ...]
    more: bool
    """There are more below the last of these."""
    floor_ms: int
    """As `Row` has it."""
    certificate: bytes = b""
    """The author's, where the giver is another: who came late may never have met the author."""


class Deny(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=5):
    """No pages."""

    number: int
    reason: int
    retry_ms: int
    """Ask again after so long."""


Message: TypeAlias = List | Listing | Ask | Answer | Deny

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: "msgspec.msgpack.Decoder[Message]" = msgspec.msgpack.Decoder(Message)


def encode_message(message: Message) -> bytes:
    """Bytes for `Send`."""
    return _ENCODER.encode(message)


def decode_message(data: bytes) -> Message:
    """Read a message from a peer; pages in it stay bytes.

    Raises:
        WireError: It is none, or it is out of bounds.
    """
    if len(data) > MESSAGE_MAX_BYTES:
        raise WireError(f"a message about the past has {len(data)} bytes; at most {MESSAGE_MAX_BYTES} are read")
    try:
        message = _DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"not a message about the past: {error}") from error
    _check(0 <= message.number < _NUMBERS, "a question's number")
    match message:
        case Listing(_, rows):
            _check(len(rows) <= ROWS_MAX, f"a listing has at most {ROWS_MAX} authors")
            _check(len({row.author for row in rows}) == len(rows), "an author is listed once")
            for row in rows:
                _check(len(row.author) == 16 and _are_times(row.floor_ms, row.from_ms, row.to_ms), "a listed author")
        case Ask():
            _check(len(message.author) == 16, "an author is named by 16 bytes")
            _check(_are_times(message.from_ms, message.to_ms, message.below_ms), "a time that is asked for")
            _check(0 <= message.below_number <= NUMBER_MAX, "a cursor")
        case Answer():
            _check(len(message.pages) <= PAGES_MAX, f"an answer has at most {PAGES_MAX} pages")
            _check(sum(map(len, message.pages)) <= ANSWER_BYTES, f"pages of at most {ANSWER_BYTES} bytes")
            _check(_are_times(message.floor_ms) and len(message.certificate) <= CERTIFICATE_MAX_BYTES, "an answer")
            _check(bool(message.pages) or not message.more, "an answer that has more and gives nothing")
        case Deny():
            _check(0 <= message.reason <= UNKNOWN and message.retry_ms >= 0, "no refusal that is known")
        case List():
            pass
    return message


def _are_times(*moments_ms: int) -> bool:
    return all(0 <= one < TIME_MAX_MS for one in moments_ms)


def _check(is_sound: bool, what: str) -> None:
    if not is_sound:
        raise WireError(f"out of bounds: {what}")
