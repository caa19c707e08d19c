"""The records of the register streams: leases, counters, status, events. Each batch says everything again.

LEASES     [[cell hash, epoch, renewal, working, bid, progress], …]   at most `LEASES_MAX`
COUNTERS   [[name, …], column, status]                                 the status is left out where it is empty
STATUS     the payload as it is, of who has no counters, or where both do not fit one record; a zero byte: none holds
EVENTS     [[life, number, at ms, kind, subject, reason, evidence], …]   at most `EVENTS_MAX`, the newest last
"""

from itertools import pairwise
from typing import Annotated, NamedTuple

import msgspec

from swarmd_protocols.errors import WireError
from swarmd_protocols.state.crdt.columns import pack, unpack
from swarmd_protocols.state.crdt.facts import CELL_HASH_BYTES

LEASES_MAX = 2
"""Live claims of one node: the cell in work and the next."""
COUNTERS_MAX = 64
"""Counters of one author."""
COUNTER_NAME_MAX_BYTES = 48
"""UTF-8 bytes."""
COUNTERS_BODY_MAX_BYTES = 800
"""All counters of an author fit one datagram."""
STATUS_MAX_BYTES = 1_024
"""One author's status: health of its eye, battery, versions."""
NO_STATUS = b"\0"
"""Body of a status record that takes back the one before: a batch has a body of a byte at least."""
COUNTER_MAX = (1 << 62) - 1
"""Two of them add up within signed 64 bits."""
EVENTS_MAX = 16
"""Events that one node keeps in front of everybody: a bad night's. What one author can put before others is this many
rows, whatever it signs; a node's whole history lies in its own file of events."""
EVENTS_BODY_MAX_BYTES = 2_900
"""Bytes of those rows: with head and signature the largest record (`batch.RECORD_MAX_BYTES`); 180 bytes a row."""


class Lease(NamedTuple):
    """One live claim as its holder says it."""

    cell: bytes
    epoch: int
    """Number of this claim at its holder, ever growing."""
    renewal: int
    """Renewals of this claim so far."""
    working: bool
    """Settled, and the work has begun."""
    bid: int
    """Lower wins."""
    progress: int
    """Beat of the holder's work on it; a holder whose beat stands still is a squatter."""


class EventRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One thing of importance that happened, in the words of the node that says it."""

    life: Annotated[int, msgspec.Meta(ge=0, lt=1 << 48)]
    """Which life of the author: the incarnation of its state when it began."""
    number: Annotated[int, msgspec.Meta(ge=1, lt=1 << 32)]
    """The author's own count within that life; gaps are events that it kept to itself."""
    at_ms: Annotated[int, msgspec.Meta(ge=0, lt=1 << 46)]
    """Swarm time, milliseconds since 2020-01-01 UTC; never shown as later than the stamp of its batch."""
    kind: Annotated[str, msgspec.Meta(min_length=1, max_length=32)]
    subject: Annotated[str, msgspec.Meta(max_length=64)]
    reason: Annotated[str, msgspec.Meta(max_length=240)]
    evidence: Annotated[str, msgspec.Meta(max_length=240)]

    @property
    def key(self) -> tuple[int, int]:
        """What it is found by at its author."""
        return (self.life, self.number)


class _Leases(msgspec.Struct, array_like=True, frozen=True):
    rows: tuple[Lease, ...]


class _Counters(msgspec.Struct, array_like=True, frozen=True):
    names: tuple[str, ...]
    values: bytes


class _Vitals(_Counters, array_like=True, frozen=True):
    status: bytes = b""


class VitalsRecord(msgspec.Struct, frozen=True):
    """What a node says of itself under one signature."""

    counters: dict[str, int]
    status: bytes
    """Empty where the record has none."""


_ENCODE = msgspec.msgpack.Encoder().encode
_LEASES = msgspec.msgpack.Decoder(_Leases).decode
_COUNTERS = msgspec.msgpack.Decoder(_Vitals).decode
_EVENTS = msgspec.msgpack.Decoder(tuple[EventRow, ...]).decode


def encode_leases(leases: tuple[Lease, ...]) -> bytes:
    """Pack a node's live claims."""
    return _ENCODE(_Leases(leases))


def decode_leases(body: bytes) -> tuple[Lease, ...]:
    """Read a node's live claims.

    Raises:
        WireError: The bytes are no such record, or claim more than `LEASES_MAX` cells.
    """
    try:
        rows = _LEASES(body).rows
    except (msgspec.MsgspecError, ValueError) as error:
        raise WireError(f"a lease record cannot be read: {error}") from error
    if len(rows) > LEASES_MAX:
        raise WireError(f"a node holds at most {LEASES_MAX} claims, not {len(rows)}")
    for cell, epoch, renewal, _, bid, progress in rows:
        if len(cell) != CELL_HASH_BYTES or min(epoch, renewal, bid, progress) < 0:
            raise WireError("a lease's value is out of range")
        if max(epoch, renewal, bid, progress) >= 1 << 62:
            raise WireError("a lease's value is out of range")
    return rows


def encode_counters(counters: dict[str, int], status: bytes = b"") -> bytes:
    """Pack all of a node's counters, and its status beside them."""
    names = sorted(counters)
    values = pack([counters[name] for name in names]) if names else b""
    return _ENCODE(_Vitals(tuple(names), values, status) if status else _Counters(tuple(names), values))


def decode_counters(body: bytes) -> dict[str, int]:
    """Read all of a node's counters; see `decode_vitals`."""
    return decode_vitals(body).counters


def decode_vitals(body: bytes) -> VitalsRecord:
    """Read all of a node's counters, and the status beside them.

    Raises:
        WireError: The bytes are no such record, or a value is out of bounds.
    """
    try:
        record = _COUNTERS(body)
    except (msgspec.MsgspecError, ValueError) as error:
        raise WireError(f"a counter record cannot be read: {error}") from error
    if len(record.names) > COUNTERS_MAX:
        raise WireError(f"a node has at most {COUNTERS_MAX} counters, not {len(record.names)}")
    if len(record.status) > STATUS_MAX_BYTES:
        raise WireError(f"a status has at most {STATUS_MAX_BYTES} bytes, not {len(record.status)}")
    if not record.names:
        return VitalsRecord({}, record.status)
    values = unpack(record.values, len(record.names))
    if min(values) < 0 or max(values) > COUNTER_MAX:
        raise WireError("a counter's value is out of range")
    if any(len(name.encode()) > COUNTER_NAME_MAX_BYTES for name in record.names):
        raise WireError(f"a counter's name is longer than {COUNTER_NAME_MAX_BYTES} bytes")
    return VitalsRecord(dict(zip(record.names, values, strict=True)), record.status)


def encode_status(status: bytes) -> bytes:
    """Pack a status that has a record of its own; b"" takes back what was said."""
    return status or NO_STATUS


def decode_status(body: bytes) -> bytes:
    """Read it; b"" where none holds."""
    return b"" if body == NO_STATUS else body


def encode_events(rows: tuple[EventRow, ...]) -> bytes:
    """Pack a node's latest events."""
    return _ENCODE(rows)


def decode_events(body: bytes) -> tuple[EventRow, ...]:
    """Read a node's latest events.

    Raises:
        WireError: The bytes are no such record, a value is out of bounds, or the rows are out of order.
    """
    if len(body) > EVENTS_BODY_MAX_BYTES:
        raise WireError(f"a record of events has at most {EVENTS_BODY_MAX_BYTES} bytes, not {len(body)}")
    try:
        rows = _EVENTS(body)
    except (msgspec.MsgspecError, ValueError) as error:
        raise WireError(f"a record of events cannot be read: {error}") from error
    if not 0 < len(rows) <= EVENTS_MAX:
        raise WireError(f"a record of events has 1 to {EVENTS_MAX} rows, not {len(rows)}")
    if any(later.key <= earlier.key for earlier, later in pairwise(rows)):
        raise WireError("the rows of a record of events are out of order")
    return rows


def add_event(held: tuple[EventRow, ...], row: EventRow) -> tuple[EventRow, ...]:
    """The rows with one more, which may be said late: as many of those with the highest numbers as fit.

    Raises:
        WireError: The row is out of bounds.
    """
    decode_events(encode_events((row,)))
    others = [one for one in held if one.key != row.key]
    rows = tuple(sorted([*others, row], key=lambda one: one.key)[-EVENTS_MAX:])
    while len(encode_events(rows)) > EVENTS_BODY_MAX_BYTES:
        rows = rows[1:]
    return rows
