"""Frames between a gateway and a region, whatever pipe carries them.

    byte 0       1       2            18              50          58           66       74
    | version u8 | way u8 | swarm 16 | public key 32 | life u64 | number u64 | salt 8 | sealed … |

Little endian. The public key is the sender's (Ed25519). The rest is sealed with the key that this pair of keys makes
(X25519, XSalsa20-Poly1305); the nonce is BLAKE2b-192 of the 74 bytes in front, so nothing in them can be changed, and
only the two read what is inside: a broker or a router cannot. `(life, number)` only rises for one sender, so what is
said twice is known before it is opened. Inside is one msgpack array: `Up`, `Down` or `Ask`.

A decoder here takes any bytes: what is no frame is a `WireError` and changes nothing.
"""

import struct
from collections.abc import Sequence
from enum import IntEnum
from hashlib import blake2b
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from swarmd_protocols.channel.codec import decode_body
from swarmd_protocols.crypto import NONCE_BYTES, PUBLIC_KEY_BYTES, SEAL_BYTES, Crypto
from swarmd_protocols.errors import IdentityError, WireError
from swarmd_protocols.ids import NODE_ID_BYTES, NodeId, node_id_of
from swarmd_protocols.state.crdt.batch import BATCH_MIN_BYTES, RECORD_MAX_BYTES
from swarmd_protocols.trust.envelopes import STATEMENT_MAX_BYTES

WIRE_VERSION = 1
"""First byte of a frame; others are refused. A changed golden vector (`protocols/vectors/federation.json`) is a new
one."""
FRAME_MAX_BYTES = 98_304
"""The largest row (a statement of `STATEMENT_MAX_BYTES`) with its frame; the pipes' own limits lie far above: 256 MB
for MQTT, and mosquitto takes all of it unless it is told otherwise."""
FRAME_FILL_BYTES = 32_768
"""A frame is closed from here on: 0.3 s of a line of 1 Mbit/s, so that what is urgent does not wait behind it."""
ROWS_MAX = 256
"""Rows of one frame: those of small objects that fit `FRAME_FILL_BYTES`, with room."""
PROOFS_MAX = 512
"""Signed batches of one frame; a row names at most `ROW_PROOFS_MAX`."""
ROW_PROOFS_MAX = 64
"""Batches behind one row: an object with that many sightings and joins is confirmed thirty times over."""
RANGES_MAX = 256
"""Runs of numbers that one frame acknowledges: a frame's rows with a gap after each."""
WANTED_MAX = 64
"""Nodes of whom a region asks for certificates at once."""
KNOWN_MAX = 512
"""Objects that a region says it has, in one frame: 18 kB."""
OBJECT_ID_BYTES, DIGEST_BYTES, EPOCH_BYTES, SWARM_KEY_BYTES = 8, 8, 8, 16
"""Of an object's id; of what an object says; of an outbox's or a log's name; of a swarm's."""
ASK_ROWS_MAX = 2_048
"""Objects of one answer to a question: 0.8 MB of small ones, seconds of a thin line; of others the region knows."""
ASK_MAX_BYTES = 512
"""A frame with a question; what is longer is none, and is not opened."""
LIFE_HEARD = b"\xff" * EPOCH_BYTES
"""In `Have.log`: no log. `Have.seq` is a life of the region's that the gateway has heard, and it hears a lower one."""
NUMBER_MAX = (1 << 62) - 1
"""Of sequence numbers: signed 64 bits hold it."""
_HEAD = struct.Struct("<BB16s32sQQ8s")
HEAD_BYTES = _HEAD.size
SALT_BYTES = 8
"""Random for each frame: a life that begins twice with one number still makes no nonce twice."""
_REASON_MAX = 96
"""Characters of why a row was refused."""


class Way(IntEnum):
    """Where a frame goes."""

    UP = 1
    """From a gateway to a region."""
    DOWN = 2
    """From a region to a gateway."""
    BESIDE = 3
    """From a gateway to one of a neighbouring swarm (`neighbours/border.py`)."""
    INTRODUCE = 4
    """The same between two that do not know each other's keys yet."""
    ASK = 5
    """From whoever holds a region's key to a gateway: `Ask`. Life and number are the question's own."""
    TELL = 6
    """The answer to it: `Up`s under the question's life and number, whose rows are numbered through from 0. The site's
    word is the last, where these are all that were asked for."""


class RowKind(IntEnum):
    """What a row of an `Up` is."""

    OBJECT = 1
    """An object as the swarm confirmed it; body: `objects.ObjectRow`; proofs: the batches that it names."""
    RECORD = 2
    """A status, counter or event record; no body; proofs: that one batch, as its node signed it."""
    TRUST = 3
    """A root, a certificate or a revocation; body: `TrustRow`."""
    REPORT = 4
    """A node's health report of a release; body: the envelope as the node signed it."""
    SITE = 5
    """The gateway's own word of its swarm; body: `SiteRow`. It replaces the one before."""


class FactKind(IntEnum):
    """What a row of a `Down` is."""

    STATEMENT = 1
    """A statement that officers of the swarm's own fleet signed; body: the envelope."""
    BUNDLE = 2
    """Where the bundle of a release can be fetched; body: `BundleRow`."""
    FACT = 3
    """A mission or a note that an operator of the swarm's own fleet signed; body: as `facts.py` has it."""
    MARK = 4
    """Nothing to do: its number says how far the region's log is (`swarmd/federation/marks.py`). No body."""


_Number = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
_Epoch = Annotated[bytes, Meta(min_length=EPOCH_BYTES, max_length=EPOCH_BYTES)]
_NodeId = Annotated[bytes, Meta(min_length=NODE_ID_BYTES, max_length=NODE_ID_BYTES)]
_Digest = Annotated[bytes, Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
_ObjectId = Annotated[bytes, Meta(min_length=OBJECT_ID_BYTES, max_length=OBJECT_ID_BYTES)]
_Batch = Annotated[bytes, Meta(min_length=BATCH_MIN_BYTES, max_length=RECORD_MAX_BYTES)]
_Body = Annotated[bytes, Meta(max_length=STATEMENT_MAX_BYTES)]
_Text = Annotated[str, Meta(max_length=64)]


class UpRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One row of a gateway's outbox."""

    seq: _Number
    """Its number there; the region acknowledges it."""
    kind: Annotated[int, Meta(ge=0, le=255)]
    """`RowKind`; one that a region does not know is refused with a reason, and so leaves the outbox."""
    body: _Body
    proofs: Annotated[tuple[Annotated[int, Meta(ge=0, lt=PROOFS_MAX)], ...], Meta(max_length=ROW_PROOFS_MAX)] = ()
    """Places in `Up.batches`."""


class Have(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Up to where a gateway has taken in what a region says."""

    log: _Epoch
    """Name of the region's log; zeros before the first; or `LIFE_HEARD`."""
    seq: _Number


class Up(msgspec.Struct, array_like=True, frozen=True):
    """What a gateway sends."""

    epoch: _Epoch
    """Name of its outbox: numbers of another one mean nothing to it."""
    at_ms: _Number
    """Milliseconds since 1970 by the gateway's clock."""
    oldest: _Number
    """The lowest number that still waits for an acknowledgement; what lies below is done or was dropped."""
    dropped: _Number
    """Rows that this outbox had to drop, ever: its bounds were too small for the time without a region."""
    have: Have
    rows: Annotated[tuple[UpRow, ...], Meta(max_length=ROWS_MAX)] = ()
    batches: Annotated[tuple[_Batch, ...], Meta(max_length=PROOFS_MAX)] = ()
    """What the rows name, each once."""


class Known(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An object as a region has it."""

    object_id: _ObjectId
    stamp: _Number
    """`objects.Derived.stamp`."""
    digest: _Digest
    """`objects.Derived.digest`."""


class DownRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One row of what a region has for a swarm."""

    seq: _Number
    kind: Annotated[int, Meta(ge=0, le=255)]
    """`FactKind`; a gateway passes over one that it does not know."""
    body: _Body


class Down(msgspec.Struct, array_like=True, frozen=True):
    """What a region answers, and what it has for the swarm."""

    epoch: _Epoch
    """The outbox that is acknowledged; zeros where nothing is."""
    acked: Annotated[tuple[tuple[_Number, _Number], ...], Meta(max_length=RANGES_MAX)] = ()
    """(first, last): rows that are on the region's disk, or that it refuses for good."""
    refused: Annotated[
        tuple[tuple[_Number, Annotated[str, Meta(max_length=_REASON_MAX)]], ...], Meta(max_length=ROWS_MAX)
    ] = ()
    """Of these, which were refused and why; a gateway that reads this is wrong, or lies."""
    wanted: Annotated[tuple[_NodeId, ...], Meta(max_length=WANTED_MAX)] = ()
    """Nodes whose certificates the region lacks; sixteen zeros: all, and the roots."""
    pause_ms: Annotated[int, Meta(ge=0, le=3_600_000)] = 0
    """The swarm's quota is used up: nothing for so long."""
    life: _Number = 0
    """Not zero: the sender's life is not above this one, so it has to take the next."""
    known: Annotated[tuple[Known, ...], Meta(max_length=KNOWN_MAX)] = ()
    """Objects that came from another gateway of the swarm."""
    log: _Epoch = bytes(EPOCH_BYTES)
    """Name of the log whose rows follow."""
    rows: Annotated[tuple[DownRow, ...], Meta(max_length=ROWS_MAX)] = ()
    """In order, from the one after `Up.have` on."""


class Ask(msgspec.Struct, array_like=True, frozen=True):
    """What a region asks a gateway of the swarm at this moment."""

    label: _Text = ""
    """"" for all."""
    since_ms: _Number = 0
    """Last seen at or after this, swarm time, milliseconds since 1970."""
    until_ms: _Number = 0
    """Last seen before this; 0 for no end."""
    limit: Annotated[int, Meta(ge=1, le=ASK_ROWS_MAX)] = ASK_ROWS_MAX


class TrustRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Body of a `RowKind.TRUST`."""

    kind: Annotated[str, Meta(pattern=r"\A(?:root|node|revoke)\Z")]
    statement: _Body


class SiteRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Body of a `RowKind.SITE`: what only the gateway says. It counts for display, never for verification."""

    as_of_ms: _Number
    """Swarm time, milliseconds since 1970: the region has everything of this gateway's shares up to then."""
    members: Annotated[int, Meta(ge=0, le=1 << 20)]
    alive: Annotated[int, Meta(ge=0, le=1 << 20)]
    gateways: Annotated[int, Meta(ge=0, le=1 << 10)]
    """That claim shares."""
    objects: Annotated[int, Meta(ge=0, le=1 << 32)]
    """Confirmed ones that the swarm shows."""
    waiting: Annotated[int, Meta(ge=0, le=1 << 32)]
    """Rows in the outbox."""
    waiting_bytes: _Number
    has_origin: bool
    latitude_e7: Annotated[int, Meta(ge=-900_000_000, le=900_000_000)]
    """Of the mission origin, 1e-7 degrees."""
    longitude_e7: Annotated[int, Meta(ge=-1_800_000_000, le=1_800_000_000)]
    version: _Text
    """Of the software."""
    shares: Annotated[int, Meta(ge=0, lt=1 << 16)] = 0
    """Bits: the shares (`shares.py`) that this gateway publishes."""


class BundleRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Body of a `FactKind.BUNDLE`."""

    release: Annotated[bytes, Meta(min_length=32, max_length=32)]
    """Digest of the release statement (`Envelope.digest`), which names each file and its SHA-256."""
    sources: Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=512)], ...], Meta(max_length=8)]
    """Addresses (`https://…`, `http://…`) or folders, the best first: each of the release's files lies there as
    `blobs/` and its SHA-256 in hexadecimal digits, as `swarmd model build` writes it."""


class Head(NamedTuple):
    """What stands in front of a frame, unproven until it opens."""

    way: Way
    swarm: bytes
    public_key: bytes
    life: int
    number: int

    @property
    def sender(self) -> NodeId:
        """The node whose key it is."""
        return node_id_of(self.public_key)


_UP = msgspec.msgpack.Decoder(Up)
_DOWN = msgspec.msgpack.Decoder(Down)
_ASK = msgspec.msgpack.Decoder(Ask)
_TRUST = msgspec.msgpack.Decoder(TrustRow)
_SITE = msgspec.msgpack.Decoder(SiteRow)
_BUNDLE = msgspec.msgpack.Decoder(BundleRow)
_ENCODE = msgspec.msgpack.Encoder().encode


def swarm_key(first_root: bytes, swarm: str) -> bytes:
    """What a swarm is called above: 16 bytes that nobody else's swarm bears.

    Args:
        first_root: Digest of the first root statement of its fleet (`Envelope.digest`).
        swarm: Its name there.
    """
    named = first_root + swarm.encode()
    return blake2b(named, digest_size=SWARM_KEY_BYTES, person=b"swarmd-fed-swarm").digest()


class Pair:
    """The seal between one own key and one other's.

    Args:
        crypto: The library.
        seed: Own Ed25519 seed.
        other: The other's Ed25519 public key.

    Raises:
        IdentityError: The other's key is none.
    """

    __slots__ = ("_crypto", "_key", "other", "own")

    def __init__(self, crypto: Crypto, seed: bytes, other: bytes) -> None:
        self._crypto = crypto
        self.own = crypto.public_key(seed)
        self.other = other
        self._key = crypto.shared_key(crypto.exchange_secret(seed), crypto.exchange_public(other))

    def seal(
        self, way: Way, swarm: bytes, life: int, number: int, salt: bytes, message: Up | Down | Ask | bytes
    ) -> bytes:
        """A frame from the own key to the other's; `salt` is `SALT_BYTES` of fresh randomness."""
        head = _HEAD.pack(WIRE_VERSION, way, swarm, self.own, life, number, salt)
        return head + self._crypto.seal(self._key, _nonce(head), _ENCODE(message))

    def open(self, frame: bytes) -> bytes:
        """What is inside a frame of the other's, sealed for the own key.

        Raises:
            IdentityError: It is of another key, for another, or changed.
        """
        head = frame[:HEAD_BYTES]
        if read_head(frame).public_key != self.other:
            raise IdentityError("the frame is of another key")
        inside = self._crypto.open(self._key, _nonce(head), frame[HEAD_BYTES:])
        if inside is None:
            raise IdentityError("the frame is not sealed for this key, or was changed")
        return inside


class Lock:
    """The seal that two swarms share before their gateways know each other: of what each has pinned of the other.

    Args:
        crypto: The library.
        key: 32 bytes that both sides come to.
    """

    __slots__ = ("_crypto", "_key")

    def __init__(self, crypto: Crypto, key: bytes) -> None:
        self._crypto, self._key = crypto, key

    def seal(self, own: bytes, swarm: bytes, life: int, number: int, salt: bytes, inside: bytes) -> bytes:
        """A frame of the way `INTRODUCE` from the public key `own` to whoever of a swarm holds the key."""
        head = _HEAD.pack(WIRE_VERSION, Way.INTRODUCE, swarm, own, life, number, salt)
        return head + self._crypto.seal(self._key, _nonce(head), inside)

    def open(self, frame: bytes) -> bytes | None:
        """What is inside; None where it is sealed with another key, or was changed."""
        return self._crypto.open(self._key, _nonce(frame[:HEAD_BYTES]), frame[HEAD_BYTES:])


def _nonce(head: bytes) -> bytes:
    return blake2b(head, digest_size=NONCE_BYTES, person=b"swarmd-fed-nonce").digest()


def read_head(frame: bytes) -> Head:
    """What stands in front; says nothing of who sent it.

    Raises:
        WireError: It is no frame.
    """
    if not HEAD_BYTES + SEAL_BYTES < len(frame) <= FRAME_MAX_BYTES:
        raise WireError(f"a frame has {HEAD_BYTES + SEAL_BYTES + 1} to {FRAME_MAX_BYTES} bytes, not {len(frame)}")
    version, way, swarm, public_key, life, number, _ = _HEAD.unpack_from(frame)
    if version != WIRE_VERSION:
        raise WireError(f"frame version {version} is not known; this is version {WIRE_VERSION}")
    if not Way.UP <= way <= Way.TELL or max(life, number) > NUMBER_MAX:
        raise WireError("a frame's way, life or number is out of range")
    return Head(Way(way), swarm, public_key, life, number)


def read_up(inside: bytes) -> Up:
    """Read what a gateway said.

    Raises:
        WireError: It is no `Up`, or a row names a batch that is not there.
    """
    up = decode_body(_UP, inside)
    if any(place >= len(up.batches) for row in up.rows for place in row.proofs):
        raise WireError("a row names a batch that the frame does not carry")
    return up


def read_ask(inside: bytes) -> Ask:
    """Read what a region asks.

    Raises:
        WireError: It is no `Ask`.
    """
    return decode_body(_ASK, inside)


def read_down(inside: bytes) -> Down:
    """Read what a region said.

    Raises:
        WireError: It is no `Down`.
    """
    down = decode_body(_DOWN, inside)
    if any(last < first for first, last in down.acked):
        raise WireError("a range of acknowledgements ends before it begins")
    return down


def read_trust(body: bytes) -> TrustRow:
    """Read the body of a `RowKind.TRUST`; raises `WireError`."""
    return decode_body(_TRUST, body)


def read_site(body: bytes) -> SiteRow:
    """Read the body of a `RowKind.SITE`; raises `WireError`."""
    return decode_body(_SITE, body)


def read_bundle(body: bytes) -> BundleRow:
    """Read the body of a `FactKind.BUNDLE`; raises `WireError`."""
    return decode_body(_BUNDLE, body)


def encode_row(body: TrustRow | SiteRow | BundleRow) -> bytes:
    """A body as it travels."""
    return _ENCODE(body)


def ranges(numbers: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Rising numbers as runs; of more than `RANGES_MAX` the lowest.

    >>> ranges([1, 2, 3, 7, 9, 10])
    ((1, 3), (7, 7), (9, 10))
    """
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        elif len(found) == RANGES_MAX:
            break
        else:
            found.append((number, number))
    return tuple(found)


assert HEAD_BYTES == 74
assert PUBLIC_KEY_BYTES == 32
