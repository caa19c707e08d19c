"""The records of the three register streams: leases, counters, status. Each batch says everything again.

LEASES     [[cell hash, epoch, renewal, working, bid, progress], …]   at most `LEASES_MAX`
COUNTERS   [[name, …], column]
STATUS     the payload as it is
"""

from typing import NamedTuple

import msgspec

from swarmd_protocols.errors import WireError
from swarmd_protocols.state.crdt.columns import pack, unpack
from swarmd_protocols.state.crdt.facts import CELL_HASH_BYTES

LEASES_MAX = 2
"""Live claims of one node: the cell in work and the next."""
COUNTERS_MAX = 64
COUNTER_NAME_MAX_BYTES = 48
COUNTERS_BODY_MAX_BYTES = 800
STATUS_MAX_BYTES = 1_024
COUNTER_MAX = (1 << 62) - 1


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


class _Leases(msgspec.Struct, array_like=True, frozen=True):
    rows: tuple[Lease, ...]


class _Counters(msgspec.Struct, array_like=True, frozen=True):
    names: tuple[str, ...]
    values: bytes


_ENCODE = msgspec.msgpack.Encoder().encode
_LEASES = msgspec.msgpack.Decoder(_Leases).decode
_COUNTERS = msgspec.msgpack.Decoder(_Counters).decode


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


def encode_counters(counters: dict[str, int]) -> bytes:
    """Pack all of a node's counters."""
    names = sorted(counters)
    return _ENCODE(_Counters(tuple(names), pack([counters[name] for name in names]) if names else b""))


def decode_counters(body: bytes) -> dict[str, int]:
    """Read all of a node's counters.

    Raises:
        WireError: The bytes are no such record, or a value is out of bounds.
    """
    try:
        record = _COUNTERS(body)
    except (msgspec.MsgspecError, ValueError) as error:
        raise WireError(f"a counter record cannot be read: {error}") from error
    if len(record.names) > COUNTERS_MAX:
        raise WireError(f"a node has at most {COUNTERS_MAX} counters, not {len(record.names)}")
    if not record.names:
        return {}
    values = unpack(record.values, len(record.names))
    if min(values) < 0 or max(values) > COUNTER_MAX:
        raise WireError("a counter's value is out of range")
    if any(len(name.encode()) > COUNTER_NAME_MAX_BYTES for name in record.names):
        raise WireError(f"a counter's name is longer than {COUNTER_NAME_MAX_BYTES} bytes")
    return dict(zip(record.names, values, strict=True))
