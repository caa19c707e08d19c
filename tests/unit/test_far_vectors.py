"""Golden bytes of streams to far members, checked both ways; what is out of bounds is refused."""

import json

import pytest

from swarmd_protocols.channel.codec import encode
from swarmd_protocols.errors import WireError
from swarmd_protocols.swim.mesh.far_words import (
    SIZE_MAX_BYTES,
    UNIT_BYTES,
    UNITS_NEAR_MAX,
    Got,
    Segment,
    Stuck,
    Word,
    decode_word,
)
from tests.support.far_vectors import PATH, document, vectors


def test_every_word_has_its_vector() -> None:
    assert json.loads(PATH.read_text()) == document()
    assert {type(word) for word in vectors().values()} == {Segment, Got, Stuck}


@pytest.mark.parametrize("vector", json.loads(PATH.read_text())["vectors"], ids=lambda one: one["name"])
def test_vectors_both_ways(vector: dict[str, str]) -> None:
    word = decode_word(bytes.fromhex(vector["hex"]))
    assert repr(word) == vector["message"]
    assert encode(word).hex() == vector["hex"]


@pytest.mark.parametrize("name", vectors())
def test_a_truncation_is_refused(name: str) -> None:
    data = encode(vectors()[name])
    for size in range(len(data)):
        with pytest.raises(WireError):
            decode_word(data[:size])


@pytest.mark.parametrize(
    "word",
    [
        Segment(0, 100, 0, bytes(100)),
        Segment(1, 0, 0, bytes(1)),
        Segment(1, SIZE_MAX_BYTES + 1, 0, bytes(UNIT_BYTES)),
        Segment(1, 100, 0, b""),
        Segment(1, 100, 0, bytes(99)),
        Segment(1, 100, 0, bytes(101)),
        Segment(1, 100, 1, bytes(1)),
        Segment(1, 5 * UNIT_BYTES, 1, bytes(UNIT_BYTES + 1)),
        Segment(1, SIZE_MAX_BYTES, 0, bytes(UNIT_BYTES * (UNITS_NEAR_MAX + 1))),
        Got(0, 1, b""),
        Got(1, -1, b""),
        Got(1, 1, bytes(9)),
        Stuck(bytes(7), bytes(16), bytes(64)),
        Stuck(bytes(8), bytes(15), bytes(64)),
        Stuck(bytes(8), bytes(16), bytes(63)),
    ],
    ids=lambda word: repr(word)[:60],
)
def test_what_is_out_of_bounds_is_refused(word: Word) -> None:
    with pytest.raises(WireError):
        decode_word(encode(word))
