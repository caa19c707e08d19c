"""What an operator says of one thing, as it is signed, and as it travels in a batch of facts.

    | public key 32 | signature 64 | payload … |

The payload is the msgpack array of `Review`. The signature covers what the signatures of all statements cover
(`envelopes.signed_bytes` of the kind "review"), so an officer's file or agent signs it, and no signature of another
kind passes for it. The key stands in front of it: whether a statement was signed as it says is a function of its bytes
alone, and whether its key speaks for an operator is the newest root's to say, whenever that comes.

A statement names the register that led the object when the operator looked, not the object: the same register leads
to the object on every node, also where objects have merged since.
"""

from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Annotated, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from swarmd_protocols.errors import StateError, WireError
from swarmd_protocols.ids import NODE_ID_BYTES
from swarmd_protocols.state.crdt.places import ASSET, LABEL_MAX_BYTES, PLACE_MAX, TRACK, Place
from swarmd_protocols.trust.envelopes import KEY_BYTES, SIGNATURE_BYTES, signed_bytes

KIND = "review"
"""Of the statement: what its signature begins with."""
ROLE = "operator"
"""The role whose keys may review; each speaks for itself, whatever the role's threshold."""
CONFIRM, REJECT, RELABEL, WITHDRAW, NOTE = "confirm", "reject", "relabel", "withdraw", "note"
VERDICTS = (CONFIRM, REJECT, RELABEL, WITHDRAW)
"""What replaces an operator's earlier verdict on a thing; a note replaces the earlier note."""
TEXT_MAX_BYTES = 256
"""UTF-8 bytes of a note: with everything else at its largest a statement still fits a batch of one datagram."""
BY_MAX_CHARS = 32
"""Characters of the name that an operator goes by."""
REVISION_MAX = 1 << 32
"""Four billion changes of mind of all operators about one thing."""
BASIS_BYTES = 8
"""Of the digest of the statements that were seen."""
MADE_MAX_MS = 1 << 43
"""Milliseconds since 1970: the year 2248."""
STATEMENT_MAX_BYTES = 768
"""Beside the head and the signature of its batch (126 of 960 bytes) with room for the frame of the body."""
REVIEW_WEIGHT = 2
"""Rows (`log.ROW_COST_BYTES` each) that a statement of the largest size costs whoever keeps it."""
_HEAD_BYTES = KEY_BYTES + SIGNATURE_BYTES

Verify: TypeAlias = Callable[[bytes, bytes, bytes], bool]
"""(public key, message, signature) -> holds."""
Target: TypeAlias = tuple[bytes, str, int, Place]
"""(origin, label, kind of place, place): the register that a review names; the origin of an asset is b""."""
Order: TypeAlias = tuple[int, int, bytes]
"""Of one operator's statements about one thing the greatest counts: (revision, milliseconds, digest)."""


class Review(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Payload "review"."""

    swarm: Annotated[str, Meta(max_length=64)]
    """An asset of the same name in another swarm is another thing."""
    origin: Annotated[bytes, Meta(max_length=NODE_ID_BYTES)]
    """Whose register it is about; b"" where it is about an asset, whoever sees it."""
    label: Annotated[str, Meta(min_length=1, max_length=LABEL_MAX_BYTES)]
    kind: Annotated[int, Meta(ge=0, le=TRACK)]
    place: tuple[int, int] | str
    verdict: str
    """One of `VERDICTS`, or `NOTE`."""
    text: str
    """The right label of a `RELABEL`, the words of a `NOTE`, else ""."""
    seen: Annotated[str, Meta(max_length=LABEL_MAX_BYTES)]
    """The label that the object bore for the operator: what a `CONFIRM` confirms."""
    basis: Annotated[bytes, Meta(min_length=BASIS_BYTES, max_length=BASIS_BYTES)]
    """`basis_of` the statements about the object that the operator could see."""
    revision: Annotated[int, Meta(ge=1, le=REVISION_MAX)]
    """One more than the greatest of those: who has seen a statement can replace it, whatever the clocks say."""
    made_ms: Annotated[int, Meta(ge=0, le=MADE_MAX_MS)]
    """Milliseconds since 1970, by the clock of the machine where it was made."""
    by: Annotated[str, Meta(max_length=BY_MAX_CHARS)]
    """The name that the operator goes by, "" for none."""

    @property
    def target(self) -> Target:
        """The register that it names."""
        return (self.origin, self.label, self.kind, self.place)

    @property
    def is_note(self) -> bool:
        """Whether it is words beside the verdicts."""
        return self.verdict == NOTE


class SignedReview(NamedTuple):
    """A statement as it was read; that its signature holds is `holds`'s to say."""

    statement: bytes
    review: Review

    @property
    def public(self) -> bytes:
        """The operator's key."""
        return self.statement[:KEY_BYTES]

    @property
    def order(self) -> Order:
        """What decides between two of one operator about one thing."""
        return (self.review.revision, self.review.made_ms, self.digest)

    @property
    def digest(self) -> bytes:
        """16 bytes that name it: over what is signed and by whom, so that it has one name however it was signed."""
        named = self.statement[:KEY_BYTES] + self.statement[_HEAD_BYTES:]
        return blake2b(named, digest_size=16, person=b"swarmd-review").digest()

    def holds(self, verify: Verify) -> bool:
        """Whether the key in front has signed the payload."""
        statement = self.statement
        return verify(statement[:KEY_BYTES], message_of(statement[_HEAD_BYTES:]), statement[KEY_BYTES:_HEAD_BYTES])


_DECODE = msgspec.msgpack.Decoder(Review).decode
_ENCODE = msgspec.msgpack.Encoder().encode


def message_of(payload: bytes) -> bytes:
    """What an operator's key signs."""
    return signed_bytes(KIND, payload)


def encode_review(review: Review) -> bytes:
    """The payload that is to be signed.

    Raises:
        StateError: Something in it is out of bounds; says what and why.
    """
    problem = _problem(review)
    if problem:
        raise StateError(problem)
    payload = _ENCODE(review)
    if len(payload) + _HEAD_BYTES > STATEMENT_MAX_BYTES:
        raise StateError(f"a review has at most {STATEMENT_MAX_BYTES - _HEAD_BYTES} bytes, not {len(payload)}")
    return payload


def read_review(payload: bytes) -> Review:
    """Read a payload, signed or not.

    Raises:
        WireError: It is none, or is not the one encoding of what it says.
    """
    try:
        review = _DECODE(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"not a review: {error}") from error
    problem = _problem(review)
    if problem or _ENCODE(review) != payload:
        raise WireError(problem or "a review is not encoded as swarmd does")
    return review


def join_review(public: bytes, signature: bytes, payload: bytes) -> bytes:
    """The statement as it travels."""
    return public + signature + payload


def open_review(statement: bytes) -> SignedReview:
    """Read a statement; `SignedReview.holds` checks the signature.

    Raises:
        WireError: The bytes are none.
    """
    if not _HEAD_BYTES < len(statement) <= STATEMENT_MAX_BYTES:
        raise WireError(f"a review has {_HEAD_BYTES + 1} to {STATEMENT_MAX_BYTES} bytes, not {len(statement)}")
    return SignedReview(statement, read_review(statement[_HEAD_BYTES:]))


def basis_of(digests: Iterable[bytes]) -> bytes:
    """Names a set of statements: what an operator could see when a review was made."""
    return blake2b(b"".join(sorted(digests)), digest_size=BASIS_BYTES, person=b"swarmd-basis").digest()


def _problem(review: Review) -> str:
    """What is wrong with it, for people; "" for nothing."""
    place, text = review.place, review.text
    if not text.isprintable() or not review.by.isprintable():
        return "a review's text has a character that cannot be shown, such as a line break"
    if len(review.by.encode()) > BY_MAX_CHARS:
        return f"an operator's name has at most {BY_MAX_CHARS} bytes of UTF-8"
    if isinstance(place, str) != (review.kind == ASSET) or (review.origin == b"") != (review.kind == ASSET):
        return "a review names an asset, or a place in one member's register"
    if review.origin and len(review.origin) != NODE_ID_BYTES:
        return "a review's origin is no node id"
    if isinstance(place, str) and not 0 < len(place.encode()) <= LABEL_MAX_BYTES:
        return f"an asset's name has 1 to {LABEL_MAX_BYTES} bytes"
    if not isinstance(place, str) and max(abs(place[0]), abs(place[1])) > PLACE_MAX:
        return "a review's place is out of range"
    if max(len(review.swarm.encode()), len(review.label.encode()), len(review.seen.encode())) > LABEL_MAX_BYTES:
        return f"a label has at most {LABEL_MAX_BYTES} bytes"
    match review.verdict:
        case "relabel":
            if not 0 < len(text.encode()) <= LABEL_MAX_BYTES:
                return f"a label has 1 to {LABEL_MAX_BYTES} bytes"
        case "note":
            if len(text.encode()) > TEXT_MAX_BYTES:
                return f"a note has at most {TEXT_MAX_BYTES} bytes of UTF-8; this one has {len(text.encode())}"
        case "confirm" | "reject" | "withdraw":
            if text:
                return f"a {review.verdict} has no text; say it in a note"
        case _:
            return f"{review.verdict[:16]!r} is no verdict; there are {', '.join((*VERDICTS, NOTE))}"
    return ""
