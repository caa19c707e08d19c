"""What a review may hold: it is said before it is signed, and the largest fits."""

import pytest

from swarmd_protocols.errors import StateError, WireError
from swarmd_protocols.state.crdt.places import LATTICE
from swarmd_protocols.state.crdt.reviews import (
    STATEMENT_MAX_BYTES,
    Review,
    encode_review,
    open_review,
)
from tests.support.reviewing import ALICE, review, signed


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"verdict": "approve"}, "no verdict"),
        ({"verdict": "relabel"}, "1 to 64"),
        ({"verdict": "confirm", "text": "x"}, "no text"),
        ({"verdict": "note", "text": "x" * 257}, "257"),
        ({"verdict": "note", "text": "a\u202eb"}, "cannot be shown"),
        ({"verdict": "note", "text": "two\nlines"}, "cannot be shown"),
    ],
)
def test_what_is_out_of_bounds_is_said_before_it_is_signed(fields, words):
    with pytest.raises(StateError, match=words):
        encode_review(review(**fields))


def test_the_largest_statement_fits_and_reads_back():
    most = Review("s" * 64, bytes(16), "l" * 64, LATTICE, (-(1 << 48), 1 << 48), "note", "n" * 256, "d" * 64, bytes(8),
                  1 << 32, (1 << 43) - 1, "o" * 32)  # fmt: skip
    statement = signed(most, ALICE)
    assert len(statement) <= STATEMENT_MAX_BYTES
    assert open_review(statement).review == most
    with pytest.raises(WireError):
        open_review(statement + bytes(STATEMENT_MAX_BYTES))
