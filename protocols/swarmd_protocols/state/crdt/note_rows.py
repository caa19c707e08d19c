"""Operator notes as they travel in a batch of facts; `notes.py` is the map that they make."""

from typing import NamedTuple, TypeAlias

import msgspec

from swarmd_protocols.errors import WireError
from swarmd_protocols.ids import NODE_ID_BYTES

NOTE_KEY_MAX_BYTES, NOTE_VALUE_MAX_BYTES = 64, 512
"""Of a note: its key in UTF-8, and its value."""
NOTE_DOTS_MAX = 16
"""Puts that one note replaces or removes: a key is written by few people at once."""

NoteDot: TypeAlias = tuple[bytes, int, int]
"""(origin, incarnation, serial) of a note put; it keeps its dot when it is said again in a later batch."""


class NotePut(NamedTuple):
    """An operator note; removes the puts it has seen under its key."""

    incarnation: int
    serial: int
    stamp: int
    key: str
    value: bytes
    removes: tuple[NoteDot, ...]


class NoteRemoval(NamedTuple):
    """Removes the puts it has seen under a key."""

    key: str
    removes: tuple[NoteDot, ...]


class Put(msgspec.Struct, array_like=True, frozen=True):
    """A `NotePut` as it travels."""

    incarnation: int
    serial: int
    stamp: int
    key: str
    value: bytes
    removes: tuple[NoteDot, ...]


class Removal(msgspec.Struct, array_like=True, frozen=True):
    """A `NoteRemoval` as it travels."""

    key: str
    removes: tuple[NoteDot, ...]


def _checked(key: str, value: bytes, removes: tuple[NoteDot, ...]) -> tuple[NoteDot, ...]:
    if not 0 < len(key.encode()) <= NOTE_KEY_MAX_BYTES or len(value) > NOTE_VALUE_MAX_BYTES:
        raise WireError("a note's key or value is out of range")
    if len(removes) > NOTE_DOTS_MAX:
        raise WireError(f"a note removes at most {NOTE_DOTS_MAX} others")
    for origin, incarnation, serial in removes:
        if len(origin) != NODE_ID_BYTES or min(incarnation, serial) < 0 or max(incarnation, serial) >= 1 << 48:
            raise WireError("a note's dot is out of range")
    return removes


def checked_put(put: Put) -> NotePut:
    """A put within its bounds; raises `WireError`."""
    if min(put.incarnation, put.serial, put.stamp) < 0 or max(put.incarnation, put.serial) >= 1 << 48:
        raise WireError("a note's dot is out of range")
    removes = _checked(put.key, put.value, put.removes)
    return NotePut(put.incarnation, put.serial, put.stamp, put.key, put.value, removes)


def checked_removal(removal: Removal) -> NoteRemoval:
    """A removal within its bounds; raises `WireError`."""
    return NoteRemoval(removal.key, _checked(removal.key, b"", removal.removes))
