"""Batches as they travel: the same bytes, with a shorter head.

A signed head has 62 bytes, which is a good part of a record of 140. Most of it follows from what is beside it, so a
batch in a message is either whole (its first byte is `batch.WIRE_VERSION`) or begins with a byte of marks:

    bit 7     1
    bits 6-4  stream
    bits 3-2  base: 0 (incarnation, u16)   1 (0, 0)   2 (incarnation, 0)   3 u48 and u32
    bit 1     the previous hash is zeros
    bit 0     of the same origin and incarnation as the batch before it in the message

    | marks | [origin 16 | incarnation u48] | n u16 | base | [previous hash 16] | stamp u64 | body … | signature 64 |

Little endian. What a reader makes of it is the signed batch, byte for byte, or no batch whose signature holds: digests,
journals and proofs know whole batches alone. Numbers above 65,535 travel whole.
"""

import struct
from collections.abc import Iterable

from swarmd_protocols.errors import WireError
from swarmd_protocols.state.crdt.batch import HASH_BYTES, HEAD_BYTES, WIRE_VERSION

MARK, AS_BEFORE, FIRST = 0x80, 0x01, 0x02
BASE_N, BASE_NONE, BASE_LIFE, BASE_WHOLE = 0, 1, 2, 3
SAVED_MAX = HEAD_BYTES - 11
"""Bytes that a short head may save: marks, number and stamp are left."""
_VERSION = bytes((WIRE_VERSION,))
_WHOLE = struct.Struct("<BB16s6sI6sI16sQ")
_NUMBER = struct.Struct("<H")
_BASE = struct.Struct("<6sI")
_ZEROS = bytes(HASH_BYTES)


def shorten(raw: bytes, before: bytes = b"") -> bytes:
    """A batch as it travels after another one; one that cannot be shortened, as it is.

    Args:
        raw: A whole batch, or any bytes.
        before: The first 24 bytes (or more) of the whole batch before it in the message, b"" for none.
    """
    if len(raw) < HEAD_BYTES or raw[:1] != _VERSION or raw[1] > 7:
        return raw
    _, stream, _, incarnation, n, base_life, base_n, previous, _ = _WHOLE.unpack_from(raw)
    if n > 0xFFFF:
        return raw
    marks = MARK | stream << 4
    if raw[2:24] == before[2:24]:
        marks |= AS_BEFORE
        head = _NUMBER.pack(n)
    else:
        head = raw[2:24] + _NUMBER.pack(n)
    if base_n == 0 and base_life == incarnation:
        marks |= BASE_LIFE << 2
    elif base_n == 0 and not any(base_life):
        marks |= BASE_NONE << 2
    elif base_n <= 0xFFFF and base_life == incarnation:
        head += _NUMBER.pack(base_n)
    else:
        marks |= BASE_WHOLE << 2
        head += raw[28:38]
    if previous == _ZEROS:
        return bytes((marks | FIRST,)) + head + raw[54:]
    return bytes((marks,)) + head + raw[38:]


def expand(short: bytes, before: bytes = b"") -> bytes:
    """The whole batch of one that travelled; whole ones as they are.

    Args:
        short: As it came.
        before: The whole batch before it in the message, b"" for none.

    Raises:
        WireError: It is cut short, or there is none before it.
    """
    if not short or not short[0] & MARK:
        return short
    marks, at = short[0], 1
    if marks & AS_BEFORE:
        life = before[2:24]
        if len(life) < 22:
            raise WireError("a batch of the same origin as the one before it has none before it")
    else:
        life, at = short[1:23], 23
    number = short[at : at + 2] + b"\0\0"
    at += 2
    said = marks >> 2 & 3
    if said == BASE_LIFE:
        base = life[16:] + b"\0\0\0\0"
    elif said == BASE_NONE:
        base = bytes(_BASE.size)
    elif said == BASE_N:
        base, at = life[16:] + short[at : at + 2] + b"\0\0", at + 2
    else:
        base, at = short[at : at + _BASE.size], at + _BASE.size
    if marks & FIRST:
        previous = _ZEROS
    else:
        previous, at = short[at : at + HASH_BYTES], at + HASH_BYTES
    head = bytes((WIRE_VERSION, marks >> 4 & 7)) + life + number + base + previous + short[at : at + 8]
    if len(head) != HEAD_BYTES:
        raise WireError("the head of a batch is cut short")
    return head + short[at + 8 :]


def shorten_all(raws: Iterable[bytes]) -> tuple[bytes, ...]:
    """Batches of one message, in their order, as they travel."""
    before, found = b"", []
    for raw in raws:
        found.append(shorten(raw, before))
        before = raw[:24]
    return tuple(found)


def expand_all(shorts: Iterable[bytes]) -> tuple[bytes, ...]:
    """Whole batches of one message.

    Raises:
        WireError: One is cut short.
    """
    before, found = b"", []
    for short in shorts:
        before = expand(short, before)
        found.append(before)
    return tuple(found)
