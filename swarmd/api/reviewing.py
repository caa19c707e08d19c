"""Reviews on an operator's machine: the statement is made and signed here, out of what a daemon says of an object.

The daemon says which register leads the object and what others have said of it; verdict, text, time and name come from
the operator, whose key signs the bytes that were made here. So a daemon that lies can spoil what a review is about,
never what it says.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from swarmd.errors import ControlError
from swarmd_protocols.state.crdt.reviews import Review, encode_review, join_review, message_of
from swarmd_protocols.state.observations import ReviewSubject
from swarmd_protocols.state.reviews import compose


def subject_row(subject: ReviewSubject) -> dict[str, Any]:
    """A subject as the control socket has it."""
    row: dict[str, Any] = msgspec.to_builtins(subject, builtin_types=(bytes,))
    return {**row, "origin": subject.origin.hex(), "basis": subject.basis.hex()}


def read_subject(row: Mapping[str, Any]) -> ReviewSubject:
    """The inverse of `subject_row`.

    Raises:
        ControlError: It is none.
    """
    try:
        plain = {**row, "origin": bytes.fromhex(row["origin"]), "basis": bytes.fromhex(row["basis"])}
        return msgspec.convert(plain, ReviewSubject, builtin_types=(bytes,))
    except (KeyError, TypeError, ValueError, msgspec.ValidationError) as error:
        raise ControlError(f"the daemon's answer is not what this version of swarmd reads: {error}") from error


class Draft(msgspec.Struct, frozen=True):
    """A review that is to be signed."""

    review: Review
    payload: bytes
    """As it travels: what `message_of` makes of it is signed."""

    def words(self) -> str:
        """What the signature will say."""
        review = self.review
        place = review.place if isinstance(review.place, str) else f"{review.place[0]}, {review.place[1]}"
        what = f"{review.seen!r} ({'asset ' if not review.origin else ''}{place})"
        return {
            "confirm": f"{what} is what it is shown as",
            "reject": f"{what} is none",
            "relabel": f"{what} is {review.text!r}",
            "withdraw": f"{what}: take back what this key has said of it",
            "note": f"{what}: {review.text!r}",
        }[review.verdict]

    def sign(self, public: bytes, sign: Callable[[bytes], bytes]) -> bytes:
        """The statement, with the signature of a key.

        Args:
            public: The Ed25519 public key, 32 bytes.
            sign: Signs a message with it.
        """
        return join_review(public, sign(message_of(self.payload)), self.payload)


def draft(subject: ReviewSubject, verdict: str, text: str, made_ms: int, by: str = "") -> Draft:
    """Make a review.

    Args:
        subject: What a daemon says of the object.
        verdict: `confirm`, `reject`, `relabel`, `withdraw` or `note`.
        text: The right label of a relabelling, the words of a note; else empty.
        made_ms: Milliseconds since 1970.
        by: The name that the operator goes by.

    Raises:
        StateError: Something in it is out of bounds; says what.
    """
    review = compose(subject, verdict, text, made_ms, by)
    return Draft(review, encode_review(review))
