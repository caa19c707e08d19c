"""What people above tell a swarm: missions and notes, each signed by an operator of the swarm's own fleet.

    | public key 32 | signature 64 | payload … |

The payload is the msgpack array of `Fact`; the signature covers what the signatures of all statements cover
(`envelopes.signed_bytes` of the kind "fact"). A gateway puts one into its swarm as the note `note_key(name)`, and every
node that reads the note judges it by its own root: it counts if its key is one that the newest root names for the role
operator, and if no other of its name has a greater order. So neither a region, nor a gateway, nor a member can make one
up, and none is a command: a mission says which cells people want surveyed, and the swarm's own claims decide who flies.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from swarmd_protocols.channel.codec import decode_body
from swarmd_protocols.errors import StateError, WireError
from swarmd_protocols.state.crdt.note_rows import NOTE_VALUE_MAX_BYTES
from swarmd_protocols.state.crdt.reviews import BY_MAX_CHARS, MADE_MAX_MS, REVISION_MAX, Verify
from swarmd_protocols.trust.envelopes import KEY_BYTES, SIGNATURE_BYTES, signed_bytes
from swarmd_protocols.trust.payloads import NAME_MAX_CHARS

KIND = "fact"
"""Of the statement: what its signature begins with."""
MISSION, NOTE = "mission", "note"
FACT_MAX_BYTES = NOTE_VALUE_MAX_BYTES
"""A fact is the value of a note."""
NAME_MAX = 40
"""Characters of a fact's name: with its prefix it is the key of a note."""
NAME_PATTERN = rf"\A[a-z0-9][a-z0-9._-]{{0,{NAME_MAX - 1}}}\Z"
"""Small letters, digits, dots, dashes and underlines; the first is a letter or a digit."""
TEXT_MAX_BYTES = 200
"""UTF-8 bytes of a note's words: with everything else at its largest it still is the value of a note."""
CORNERS_MAX = 16
"""Corners of a mission's area; ten bytes each."""
CELL_MIN_CM, CELL_MAX_CM = 100, 10_000_000
"""Side of a mission's cells: 1 m to 100 km."""
NOTE_PREFIX = "fact/"
_HEAD_BYTES = KEY_BYTES + SIGNATURE_BYTES

_E7 = Annotated[int, Meta(ge=-1_800_000_000, le=1_800_000_000)]
"""Latitude or longitude, 1e-7 degrees."""


class Fact(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """Payload "fact"."""

    swarm: Annotated[str, Meta(max_length=NAME_MAX_CHARS)]
    kind: Annotated[str, Meta(pattern=rf"\A(?:{MISSION}|{NOTE})\Z")]
    name: Annotated[str, Meta(pattern=NAME_PATTERN)]
    """Of two facts of one name the one with the greater order counts."""
    revision: Annotated[int, Meta(ge=1, le=REVISION_MAX)]
    """One more than that of the fact that it replaces."""
    made_ms: Annotated[int, Meta(ge=0, le=MADE_MAX_MS)]
    """Milliseconds since 1970, by the clock of the machine where it was made."""
    by: Annotated[str, Meta(max_length=BY_MAX_CHARS)]
    """The name that the operator goes by, "" for none."""
    text: Annotated[str, Meta(max_length=TEXT_MAX_BYTES)]
    """The words of a note; "" withdraws it."""
    corners: Annotated[tuple[tuple[_E7, _E7], ...], Meta(max_length=CORNERS_MAX)] = ()
    """Of a mission: (latitude, longitude), 1e-7 degrees; none withdraws it."""
    cell_cm: Annotated[int, Meta(ge=0, le=CELL_MAX_CM)] = 0
    """Side of the cells that the area is cut into."""


class SignedFact(NamedTuple):
    """A fact as it was read; that its signature holds is `holds`'s to say."""

    statement: bytes
    fact: Fact

    @property
    def public(self) -> bytes:
        """The operator's key."""
        return self.statement[:KEY_BYTES]

    @property
    def order(self) -> tuple[int, int, bytes]:
        """What decides between two of one name."""
        named = self.statement[:KEY_BYTES] + self.statement[_HEAD_BYTES:]
        digest = blake2b(named, digest_size=16, person=b"swarmd-fact").digest()
        return (self.fact.revision, self.fact.made_ms, digest)

    def holds(self, swarm: str, operators: frozenset[bytes], verify: Verify) -> bool:
        """Whether an operator of this swarm's fleet has signed it."""
        statement = self.statement
        return (
            self.fact.swarm == swarm
            and self.public in operators
            and verify(self.public, message_of(statement[_HEAD_BYTES:]), statement[KEY_BYTES:_HEAD_BYTES])
        )


_FACT = msgspec.msgpack.Decoder(Fact)
_ENCODE = msgspec.msgpack.Encoder().encode


def message_of(payload: bytes) -> bytes:
    """What an operator's key signs."""
    return signed_bytes(KIND, payload)


def encode_fact(fact: Fact) -> bytes:
    """The payload that is to be signed.

    Raises:
        StateError: Something in it is out of bounds; says what.
    """
    try:
        payload = _ENCODE(fact)
        read_fact(payload)
    except (WireError, OverflowError, UnicodeEncodeError) as error:
        raise StateError(f"no such fact can be signed: {error}") from error
    return payload


def read_fact(payload: bytes) -> Fact:
    """Read a payload, signed or not.

    Raises:
        WireError: It is none, or is not the one encoding of what it says.
    """
    if len(payload) + _HEAD_BYTES > FACT_MAX_BYTES:
        raise WireError(f"a fact has at most {FACT_MAX_BYTES - _HEAD_BYTES} bytes, not {len(payload)}")
    fact = decode_body(_FACT, payload)
    if _ENCODE(fact) != payload:
        raise WireError("a fact is not encoded as it must be")
    if len(fact.text.encode()) > TEXT_MAX_BYTES:
        raise WireError(f"the words of a fact have at most {TEXT_MAX_BYTES} bytes")
    if fact.kind == MISSION:
        if len(fact.corners) in (1, 2) or any(abs(latitude) > 900_000_000 for latitude, _ in fact.corners):
            raise WireError("a mission's area has three corners at least, on the Earth")
        if fact.corners and fact.cell_cm < CELL_MIN_CM:
            raise WireError(f"a mission's cells are {CELL_MIN_CM} cm wide at least")
    elif fact.corners or fact.cell_cm:
        raise WireError("a note has no area")
    return fact


def open_fact(statement: bytes) -> SignedFact:
    """Read a statement; whether it holds is `SignedFact.holds`'s to say.

    Raises:
        WireError: It is none.
    """
    if not _HEAD_BYTES < len(statement) <= FACT_MAX_BYTES:
        raise WireError(f"a signed fact has {_HEAD_BYTES + 1} to {FACT_MAX_BYTES} bytes, not {len(statement)}")
    return SignedFact(statement, read_fact(statement[_HEAD_BYTES:]))


def seal_fact(payload: bytes, public: bytes, signature: bytes) -> bytes:
    """The statement out of a payload and the operator's signature over `message_of` it."""
    return public + signature + payload


def note_key(name: str) -> str:
    """The key of the note that carries a fact.

    >>> note_key("north-field")
    'fact/north-field'
    """
    return NOTE_PREFIX + name


def in_force(
    statements: Iterable[bytes], swarm: str, operators: frozenset[bytes], verify: Verify
) -> dict[str, SignedFact]:
    """Of each name the fact that counts, out of anything that calls itself one."""
    best: dict[str, SignedFact] = {}
    for statement in statements:
        try:
            said = open_fact(statement)
        except WireError:
            continue
        held = best.get(said.fact.name)
        if (held is None or held.order < said.order) and said.holds(swarm, operators, verify):
            best[said.fact.name] = said
    return best
