"""The record of one model's slots: which release runs, which was before it, which is tried. Pure; `agent.py` decides.

    trial installed {trial, tries 3} → a try is spent before each load → gates hold {active = trial, fallback = old}
                                                                       → gates fail {rejected}

Three tries, not two: two power cuts during one trial must not reject a good release. Tries that run out only back off
(soft), a failed gate rejects for good (hard). The floor is kept here as well: nothing below it starts on this device,
whatever its journal has lost.
"""

from zlib import crc32

import msgspec

TRIES = 3
"""Starts of a slot on trial before the way back: one bad start may be the battery's."""
_MAGIC = b"SWS1"
MAX_REJECTED = 64
"""Releases remembered as failed here: twice those that are kept of one model."""


class Slot(msgspec.Struct, frozen=True):
    """One release on disk: its digest and its files by name."""

    release: bytes
    files: tuple[tuple[str, bytes], ...]
    """(file name, SHA-256), sorted."""
    model_path: str
    """The file that is the model."""
    encrypt: bool = False
    order: tuple[int, int] = (0, 0)
    """(epoch, version) of the release; (0, 0) in a record of an older daemon."""


class Record(msgspec.Struct, frozen=True, array_like=True):
    """What survives a power cut, for one model."""

    sequence: int = 0
    active: Slot | None = None
    fallback: Slot | None = None
    trial: Slot | None = None
    tries: int = 0
    loaded: bool = False
    """A try of this trial was spent and it was loaded; it has not ended yet."""
    floor: tuple[int, int] = (0, 0)
    """(epoch, version): nothing below it starts here."""
    rejected: tuple[bytes, ...] = ()
    backed_off: tuple[bytes, ...] = ()
    root_epoch: int = 0
    """Of the root under which the floor counted."""


def encode_record(record: Record) -> bytes:
    """The form on disk: magic, CRC-32, msgpack."""
    body = msgspec.msgpack.encode(record)
    return _MAGIC + crc32(body).to_bytes(4, "big") + body


def decode_record(data: bytes) -> Record | None:
    """A record from disk, or None for anything that is not one."""
    if data[:4] != _MAGIC or crc32(data[8:]).to_bytes(4, "big") != data[4:8]:
        return None
    try:
        return msgspec.msgpack.decode(data[8:], type=Record)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _with(items: tuple[bytes, ...], item: bytes) -> tuple[bytes, ...]:
    return (*[one for one in items if one != item], item)[-MAX_REJECTED:]


def _untried(record: Record, **changes: object) -> Record:
    return msgspec.structs.replace(record, trial=None, tries=0, loaded=False, **changes)


def installed(record: Record, slot: Slot) -> Record:
    """A release becomes the next trial; one that is it already keeps its tries."""
    if record.trial == slot:
        return record
    return msgspec.structs.replace(record, trial=slot, tries=TRIES, loaded=False)


def try_spent(record: Record) -> Record:
    """A try less, **before** the trial is loaded; without one left the trial is given up."""
    assert record.trial is not None
    if record.tries <= 0:
        return _untried(record, backed_off=_with(record.backed_off, record.trial.release))
    return msgspec.structs.replace(record, tries=record.tries - 1, loaded=True)


def unspent(record: Record) -> Record:
    """The trial was not loaded after all, by no fault of its own: that try does not count."""
    return msgspec.structs.replace(record, tries=min(TRIES, record.tries + 1), loaded=False)


def promoted(record: Record) -> Record:
    """The gates held: the trial becomes active. Peers may be told only once this is durable."""
    return _untried(record, active=record.trial, fallback=record.active)


def rejected(record: Record) -> Record:
    """A gate failed: never this release again, here."""
    if record.trial is None:
        return record
    return _untried(record, rejected=_with(record.rejected, record.trial.release))


def gone_back(record: Record, release: bytes) -> Record:
    """Run another release that lies here instead of the active one; b"", or one that does not: the image's model."""
    if record.active is not None and record.active.release == release:
        return record if record.trial is None else _untried(record)
    fallback = record.fallback
    lies_here = fallback is not None and release != b"" and fallback.release == release
    slot = fallback if lies_here and fallback is not None and not is_below_floor(record, fallback.order) else None
    return _untried(record, active=slot, fallback=None)


def floored(record: Record, root_epoch: int, floor: tuple[int, int]) -> Record:
    """Remember the signed floor: it only rises under one root epoch, and a newer one's replaces it."""
    known = (record.root_epoch, record.floor)
    if (root_epoch, floor) <= known:
        return record
    return msgspec.structs.replace(record, root_epoch=root_epoch, floor=floor)


def is_below_floor(record: Record, order: tuple[int, int]) -> bool:
    """Whether a release may not start here any more."""
    return order != (0, 0) and order < record.floor


def to_start(record: Record, sound: frozenset[bytes]) -> Slot | None:
    """What to run at the start: the active release, else the fallback; None for the model in the image.

    A trial is not run here: the agent begins it, and spends a try, when it is its turn and safe.

    Args:
        record: From disk.
        sound: Digests of the files that are here and hash.
    """
    for slot in (record.active, record.fallback):
        if slot is None or is_below_floor(record, slot.order):
            continue
        if all(digest in sound for _, digest in slot.files):
            return slot
    return None


def numbered(record: Record, known: Record) -> Record:
    """The record with the number that follows the known one's: of two on a disk the higher counts."""
    return msgspec.structs.replace(record, sequence=known.sequence + 1)


def running_only(record: Record, slot: Slot | None) -> Record:
    """The record of a start at which only this slot could be used."""
    return record if slot is record.active else msgspec.structs.replace(record, active=slot, fallback=None)


def pinned(record: Record) -> frozenset[bytes]:
    """Digests of files that must never be removed."""
    slots = (record.active, record.fallback, record.trial)
    return frozenset(digest for slot in slots if slot is not None for _, digest in slot.files)


def fresh_slot(
    release: bytes, files: dict[str, bytes], model_path: str, encrypt: bool = False, order: tuple[int, int] = (0, 0)
) -> Slot:
    """A slot from file names and digests."""
    return Slot(release, tuple(sorted(files.items())), model_path, encrypt, order)
