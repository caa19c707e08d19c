"""What two neighbouring swarms sign for each other: an agreement, an introduction, a word.

    | public key 32 | signature 64 | payload … |

Each payload is one msgpack array, and its signature covers `envelopes.signed_bytes` of its kind.

| kind | signed by | says |
|---|---|---|
| agreement | an operator of one swarm's fleet | whom it takes for a neighbour, within which bounds, until when |
| introduction | a gateway of that swarm, to one neighbour | its roots and certificate, and the agreement: its yes |
| word | a gateway of that swarm, to one neighbour | where its members are and which space it claims, and nothing else |

A decoder here takes any bytes: what is none of these is a `WireError`. That a signature holds is `hearing.py`'s to say.
"""

from collections.abc import Callable
from hashlib import blake2b
from typing import Annotated, Final, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from swarmd_protocols.channel.codec import decode_body
from swarmd_protocols.errors import StateError, WireError
from swarmd_protocols.federation.wire import SWARM_KEY_BYTES, swarm_key
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.reviews import MADE_MAX_MS, REVISION_MAX
from swarmd_protocols.trust.envelopes import KEY_BYTES, SIGNATURE_BYTES, STATEMENT_MAX_BYTES, signed_bytes
from swarmd_protocols.trust.payloads import NAME_MAX_CHARS

AGREEMENT: Final = "neighbour"
INTRODUCTION: Final = "neighbour-intro"
WORD: Final = "neighbour-word"
"""Kinds: what a signature begins with."""
AGREEMENT_MAX_BYTES = 512
"""Of a signed one: two names of 64 characters, a root's digest and a few numbers, with room."""
INTRODUCTION_MAX_BYTES = 65_536
"""Of a signed one: as much as one statement of trust may be alone, and a chain of ten roots of small fleets."""
ROOTS_MAX, REVOCATIONS_MAX = 32, 16
"""Of one introduction: a fleet that changes its root four times a year is introduced for eight years; of revoked
gateways the newest."""
PLACES_MAX, CLAIMS_MAX = 64, 64
"""Rows of one word: with it the largest is 3.5 kB, so that a cheap radio carries one every few seconds."""
LEFT_MAX_MS = 60_000
"""How long a claim may stand that is not said again: twice a lease of cells (`ClaimConfig.lease_ns`)."""
RADIUS_MAX_CM = 10_000_00
"""Of one claim, centimetres: 10 km; what it may cover together is the agreement's to bound."""
AREA_MAX_M2 = 100_000_000
"""Largest space that an agreement may let a neighbour claim at once, square metres: 10 km by 10 km."""
HOLD_MIN_S, HOLD_MAX_S = 10, 86_400
"""Seconds for which a neighbour may keep one place: a flight over a cell at least, a day at most."""
ALIAS_BYTES = 4
"""Of what stands for a member or a claim: 64 of them meet once in two million words."""
_HEAD_BYTES = KEY_BYTES + SIGNATURE_BYTES
_T = TypeVar("_T", bound="Agreement | Introduction | Word")

_Key = Annotated[bytes, Meta(min_length=SWARM_KEY_BYTES, max_length=SWARM_KEY_BYTES)]
_Alias = Annotated[bytes, Meta(min_length=ALIAS_BYTES, max_length=ALIAS_BYTES)]
_Ms = Annotated[int, Meta(ge=0, le=MADE_MAX_MS)]
_Latitude = Annotated[int, Meta(ge=-900_000_000, le=900_000_000)]
_Longitude = Annotated[int, Meta(ge=-1_800_000_000, le=1_800_000_000)]
_HeightCm = Annotated[int, Meta(ge=-10_000_000, le=10_000_000)]
_Statement = Annotated[bytes, Meta(max_length=STATEMENT_MAX_BYTES)]


class Agreement(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """Our operators' yes to one neighbour; of two for one neighbour the greater order counts."""

    swarm: Annotated[str, Meta(max_length=NAME_MAX_CHARS)]
    """The own swarm."""
    name: Annotated[str, Meta(pattern=r"\A[a-z0-9][a-z0-9._-]{0,39}\Z")]
    """What the neighbour is called here."""
    root: Annotated[bytes, Meta(min_length=32, max_length=32)]
    """Digest of the first root statement of its fleet (`Envelope.digest`): the pin."""
    other: Annotated[str, Meta(max_length=NAME_MAX_CHARS)]
    """Its own name there."""
    revision: Annotated[int, Meta(ge=1, le=REVISION_MAX)]
    """One more than that of the agreement that it replaces."""
    made_ms: _Ms
    """Milliseconds since 1970, by the clock of the machine where it was made."""
    until_ms: _Ms
    """It ends then by itself; 0 ends it."""
    claims: Annotated[int, Meta(ge=0, le=CLAIMS_MAX)] = 32
    """Claims of space that count at once; 0: positions alone."""
    area_m2: Annotated[int, Meta(ge=0, le=AREA_MAX_M2)] = 100_000
    """What they may cover together, square metres."""
    hold_s: Annotated[int, Meta(ge=HOLD_MIN_S, le=HOLD_MAX_S)] = 900
    """How long it may keep one place before its claims there stop counting for a while, seconds."""

    @property
    def key(self) -> bytes:
        """The neighbour, as swarms are known between swarms."""
        return swarm_key(self.root, self.other)

    def is_in_force(self, now_ms: int) -> bool:
        """Whether it has neither ended nor been ended."""
        return now_ms < self.until_ms


class PlaceRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Where one member is."""

    alias: _Alias
    """Stands for it; the same for as long as the two swarms are neighbours, another to each neighbour."""
    latitude_e7: _Latitude
    longitude_e7: _Longitude
    height_agl_cm: _HeightCm
    sigma_cm: Annotated[int, Meta(ge=0, le=65_535)]
    """Standard deviation of the place, centimetres."""
    age_ms: Annotated[int, Meta(ge=0, le=600_000)]
    """Of the place when the word was made."""


class ClaimRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A piece of space that one swarm works in, or is about to: a round column between two heights."""

    alias: _Alias
    latitude_e7: _Latitude
    longitude_e7: _Longitude
    radius_cm: Annotated[int, Meta(ge=1, le=RADIUS_MAX_CM)]
    bottom_cm: _HeightCm
    top_cm: _HeightCm
    """Above ground; cells of a survey have no heights of their own, and any column covers them."""
    is_working: bool
    """Somebody is at it; else somebody is about to come."""
    left_ms: Annotated[int, Meta(ge=0, le=LEFT_MAX_MS)]
    """How long it stands after the word was made, unless it is said again."""

    @property
    def area_m2(self) -> int:
        """Square metres, by whole ones and never 0."""
        return 1 + 355 * self.radius_cm * self.radius_cm // (113 * 10_000)


class Word(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """All that one swarm shares with one neighbour at a moment."""

    sender: _Key
    to: _Key
    """The one swarm that it is for: shown to a third, it proves nothing."""
    at_ms: _Ms
    """When it was made, milliseconds since 1970; of two words the later counts."""
    places: Annotated[tuple[PlaceRow, ...], Meta(max_length=PLACES_MAX)] = ()
    claims: Annotated[tuple[ClaimRow, ...], Meta(max_length=CLAIMS_MAX)] = ()


class Introduction(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """What a neighbour needs to judge words, and that this swarm's operators have said yes to it."""

    sender: _Key
    to: _Key
    at_ms: _Ms
    roots: Annotated[tuple[_Statement, ...], Meta(min_length=1, max_length=ROOTS_MAX)]
    """The chain, from the pinned one on."""
    certificate: _Statement
    """Of the gateway that signs this."""
    revocations: Annotated[tuple[_Statement, ...], Meta(max_length=REVOCATIONS_MAX)]
    """Of former gateways."""
    consent: Annotated[bytes, Meta(max_length=AGREEMENT_MAX_BYTES)]
    """This swarm's own agreement about the swarm that it is for, signed by its operator; b"": none is shown."""


class Signed(NamedTuple):
    """Something of the above with its bytes."""

    statement: bytes
    payload: bytes

    @property
    def public(self) -> bytes:
        """Whose signature it bears, unproven."""
        return self.statement[:KEY_BYTES]

    @property
    def digest(self) -> bytes:
        """16 bytes that stand for it."""
        return blake2b(self.statement, digest_size=16, person=b"swarmd-neighbour").digest()

    def holds(self, kind: str, public: bytes, verify: Callable[[bytes, bytes, bytes], bool]) -> bool:
        """Whether this key has signed it as that kind."""
        signature = self.statement[KEY_BYTES:_HEAD_BYTES]
        return self.public == public and verify(public, signed_bytes(kind, self.payload), signature)


_ENCODE = msgspec.msgpack.Encoder().encode
_AGREEMENT = msgspec.msgpack.Decoder(Agreement)
_INTRODUCTION = msgspec.msgpack.Decoder(Introduction)
_WORD = msgspec.msgpack.Decoder(Word)


def _opened(statement: bytes, most: int) -> Signed:
    if not _HEAD_BYTES < len(statement) <= most:
        raise WireError(f"it has {_HEAD_BYTES + 1} to {most} bytes, not {len(statement)}")
    return Signed(statement, statement[_HEAD_BYTES:])


def _canonical(said: _T, payload: bytes) -> _T:
    if _ENCODE(said) != payload:
        raise WireError("it is not encoded as it must be")
    return said


def read_agreement(statement: bytes) -> tuple[Signed, Agreement]:
    """Read one; raises `WireError`."""
    signed = _opened(statement, AGREEMENT_MAX_BYTES)
    return signed, _canonical(decode_body(_AGREEMENT, signed.payload), signed.payload)


def read_introduction(statement: bytes) -> tuple[Signed, Introduction]:
    """Read one; raises `WireError`."""
    signed = _opened(statement, INTRODUCTION_MAX_BYTES)
    return signed, decode_body(_INTRODUCTION, signed.payload)


def read_word(statement: bytes) -> tuple[Signed, Word]:
    """Read one; raises `WireError`."""
    signed = _opened(statement, INTRODUCTION_MAX_BYTES)
    word = decode_body(_WORD, signed.payload)
    if any(claim.top_cm < claim.bottom_cm for claim in word.claims):
        raise WireError("a claim ends below where it begins")
    return signed, word


def agreement_order(signed: Signed, agreement: Agreement) -> tuple[int, bytes]:
    """What decides between two for one neighbour."""
    return (agreement.revision, signed.digest)


def encode_agreement(agreement: Agreement) -> bytes:
    """The payload that an operator is to sign (`signed_bytes(AGREEMENT, …)`).

    Raises:
        StateError: Something in it is out of bounds; says what.
    """
    try:
        payload = _ENCODE(agreement)
        read_agreement(bytes(_HEAD_BYTES) + payload)
    except (WireError, OverflowError, UnicodeEncodeError) as error:
        raise StateError(f"no such agreement can be signed: {error}") from error
    return payload


def seal_agreement(payload: bytes, public: bytes, signature: bytes) -> bytes:
    """The statement out of a payload and the operator's signature."""
    return public + signature + payload


def sign(kind: str, said: Introduction | Word, public: bytes, signer: Callable[[bytes], bytes]) -> bytes:
    """A statement of a gateway's.

    Args:
        kind: `INTRODUCTION` or `WORD`.
        said: What it says.
        public: The gateway's key.
        signer: Signs with it.
    """
    payload = _ENCODE(said)
    return public + signer(signed_bytes(kind, payload)) + payload


def alias_of(secret: bytes, to: bytes, named: bytes | NodeId) -> bytes:
    """What stands for a member or a cell towards one neighbour.

    Args:
        secret: 1 to 64 bytes that the gateways of a swarm know and no neighbour does: who knows a node's id, from a
            certificate or from the air, finds it by no trial.
        to: Key of the neighbour.
        named: The node, or whatever names the cell.
    """
    return blake2b(to + named, key=secret, digest_size=ALIAS_BYTES, person=b"swarmd-alias").digest()
