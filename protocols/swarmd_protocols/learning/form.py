"""A delta: by how much one member's labels would move the head, in one round, of one model; signed by its author.

    byte 0        1         17         33          34        36           37
    | version u8 | author 16 | session 16 | round u8 | rows u16 | exponent u8 | count u16 | entries … | signature 64 |
    entry: gap varint (index less the one before, less 1; the first: index) ‖ value i8, never 0

Little endian. A value stands for value · 2^(exponent - 24). All are whole numbers within bounds: there is no way to
write what is no number, or an infinite one. The bytes are canonical: entries rise, varints are shortest, so one delta
has one digest. A session is one base model, one shape of head and one rule of merging; whoever has another of these is
in another session, and its deltas count for nothing here.
"""

import struct
from collections.abc import Sequence
from hashlib import blake2b

import msgspec

from swarmd_protocols.crypto import SIGNATURE_BYTES
from swarmd_protocols.errors import StateError, WireError
from swarmd_protocols.ids import NODE_ID_BYTES, NodeId
from swarmd_protocols.state.crdt.batch import Signer

DIM_MAX = 4_096
"""Weights of a head: four times what the zoo's detectors have; a merge costs as many multiplications a pair."""
ROUNDS_MAX = 32
"""Of a session, so that a member costs the others `ROUNDS_MAX` deltas for each model and no more."""
ENTRIES_MAX = 512
"""Of a delta."""
DELTA_MAX_BYTES = 2_048
"""With its signature: `ENTRIES_MAX` entries of three bytes and the rest fit."""
ROWS_MAX = 65_535
"""Labelled rows that a delta can say: 16 bits."""
UNIT_BITS = 24
"""Weights are counted in 2^-24."""
EXPONENT_MAX = 24
"""So that no value is beyond 127: heads' weights are below 10."""
SESSION_BYTES = 16
"""Of a session's name: two of them are never alike by chance."""
_VERSION = 1
"""First byte of a delta; others are refused."""
_TAG = b"swarmd/learning/v1\0"
_HEAD = struct.Struct("<B16s16sBHBH")
_STEPS = 127
"""Of a value, either way."""


class Session(msgspec.Struct, frozen=True):
    """What deltas must agree in to be added up.

    >>> Session(b"d" * 32, 715, 36, 15).id == Session(b"d" * 32, 715, 36, 16).id
    False
    """

    model: bytes
    """Digest of the bundle that runs, 32 bytes."""
    dim: int
    """Weights of its head, 1 to `DIM_MAX`."""
    entries: int
    """Of one delta at most."""
    rounds: int
    """1 to `ROUNDS_MAX`."""

    def __post_init__(self) -> None:
        """Refuse what cannot be a session."""
        if len(self.model) != 32 or not 1 <= self.dim <= DIM_MAX:
            raise StateError(f"a head of {self.dim} weights; 1 to {DIM_MAX} can be learned in a swarm")
        if not (1 <= self.entries <= min(self.dim, ENTRIES_MAX) and 1 <= self.rounds <= ROUNDS_MAX):
            raise StateError(f"{self.entries} entries in {self.rounds} rounds: beyond what a session may have")

    @property
    def id(self) -> bytes:
        """16 bytes."""
        rule = struct.pack("<BHHB", _VERSION, self.dim, self.entries, self.rounds)
        return blake2b(rule + self.model, digest_size=SESSION_BYTES, person=b"swarmd-learn").digest()


class Delta(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One as read; that the signature holds, `verify_delta` has to say."""

    author: NodeId
    session: bytes
    round: int
    rows: int
    """Labelled rows that it comes of, as its author says: for people, no weight."""
    exponent: int
    indices: tuple[int, ...]
    values: tuple[int, ...]
    raw: bytes

    @property
    def digest(self) -> bytes:
        """16 bytes that name it."""
        return blake2b(self.raw, digest_size=16, person=b"swarmd-delta").digest()

    def units(self) -> list[tuple[int, int]]:
        """(index, change in 2^-24) of each entry."""
        return [(index, value << self.exponent) for index, value in zip(self.indices, self.values, strict=True)]


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def sign_delta(
    author: NodeId,
    session: bytes,
    number: int,
    rows: int,
    exponent: int,
    entries: Sequence[tuple[int, int]],
    signer: Signer,
) -> Delta:
    """Make one of this node.

    Args:
        author: This node.
        session: `Session.id`.
        number: The round.
        rows: It comes of so many.
        exponent: Of all values.
        entries: (index, value), indices rising, values -127 to 127 without 0.
        signer: This node's key.
    """
    head = _HEAD.pack(_VERSION, author, session, number, min(rows, ROWS_MAX), exponent, len(entries))
    body, last = bytearray(head), -1
    for index, value in entries:
        body += _varint(index - last - 1) + value.to_bytes(1, "little", signed=True)
        last = index
    raw = bytes(body) + signer.sign(_TAG + bytes(body))
    return open_delta(raw)


def open_delta(raw: bytes) -> Delta:
    """Read one.

    Raises:
        WireError: The bytes are none.
    """
    if not _HEAD.size + SIGNATURE_BYTES <= len(raw) <= DELTA_MAX_BYTES:
        raise WireError(f"a delta has at most {DELTA_MAX_BYTES} bytes, not {len(raw)}")
    version, author, session, number, rows, exponent, count = _HEAD.unpack_from(raw)
    if version != _VERSION or number >= ROUNDS_MAX or exponent > EXPONENT_MAX or count > ENTRIES_MAX:
        raise WireError(f"a delta of version {version}, round {number}, exponent {exponent}, {count} entries")
    at, end, last = _HEAD.size, len(raw) - SIGNATURE_BYTES, -1
    indices, values = [], []
    for _ in range(count):
        gap = shift = 0
        while True:
            if at >= end or shift > 14:
                raise WireError("a delta's entries do not fit it")
            byte = raw[at]
            at += 1
            gap |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        if at >= end or (byte == 0 and shift > 7):
            raise WireError("a delta's entries do not fit it")
        last += gap + 1
        value = raw[at] - 256 if raw[at] > _STEPS else raw[at]
        at += 1
        if last >= DIM_MAX or value in (0, -_STEPS - 1):
            raise WireError(f"a delta's entry {last} is {value}")
        indices.append(last)
        values.append(value)
    if at != end:
        raise WireError(f"{end - at} bytes follow a delta's entries")
    return Delta(NodeId(author), session, number, rows, exponent, tuple(indices), tuple(values), raw)


def verify_delta(delta: Delta, public_key: bytes, signer: Signer) -> bool:
    """Whether its author signed exactly these bytes."""
    raw = delta.raw
    return signer.verify(public_key, _TAG + raw[:-SIGNATURE_BYTES], raw[-SIGNATURE_BYTES:])


def fits(delta: Delta, session: Session) -> str:
    """What is wrong with a delta of this session; "" where nothing is."""
    if delta.round >= session.rounds:
        return f"round {delta.round} of {session.rounds}"
    if len(delta.indices) > session.entries:
        return f"{len(delta.indices)} entries; at most {session.entries} may be told in a round"
    if delta.indices and delta.indices[-1] >= session.dim:
        return f"weight {delta.indices[-1]} of {session.dim}"
    return ""


assert NODE_ID_BYTES == 16
