"""Golden bytes of what members hand on for others, checked both ways; what is out of bounds is refused."""

import json

import msgspec
import pytest

from swarmd_protocols.channel.channel import PAIR_OVERHEAD_BYTES
from swarmd_protocols.channel.codec import DATAGRAM_MAX_BYTES, encode, join
from swarmd_protocols.errors import WireError
from swarmd_protocols.swim.mesh.relay import NAME
from swarmd_protocols.swim.mesh.relay_words import PART_BYTES, PARTS_MAX, Onward, Taken, decode_message
from swarmd_protocols.swim.messages import Sub
from tests.support.relay_vectors import PATH, TARGET, document, vectors


def test_every_message_has_its_vector() -> None:
    assert json.loads(PATH.read_text()) == document()
    assert {type(message) for message in vectors().values()} == {Onward, Taken}


@pytest.mark.parametrize("vector", json.loads(PATH.read_text())["vectors"], ids=lambda one: one["name"])
def test_vectors_both_ways(vector: dict[str, str]) -> None:
    message = decode_message(bytes.fromhex(vector["hex"]))
    assert repr(message) == vector["message"]
    assert encode(message).hex() == vector["hex"]


@pytest.mark.parametrize("name", vectors())
def test_a_truncation_is_refused(name: str) -> None:
    data = encode(vectors()[name])
    for size in range(len(data)):
        with pytest.raises(WireError):
            decode_message(data[:size])


GOOD = Onward(TARGET, 3, 9, True, bytes(8), 1, 2, b"data")


@pytest.mark.parametrize(
    "change",
    [
        {"target": TARGET[1:]},
        {"hops": 0},
        {"hops": 13},
        {"cost": 0},
        {"cost": 65_536},
        {"whole": bytes(7)},
        {"part": -1},
        {"part": 2},
        {"parts": 0},
        {"parts": PARTS_MAX + 1},
        {"data": b""},
        {"data": bytes(PART_BYTES + 1)},
    ],
    ids=str,
)
def test_what_is_out_of_bounds_is_refused(change: dict[str, object]) -> None:
    assert decode_message(encode(GOOD)) == GOOD
    with pytest.raises(WireError):
        decode_message(encode(msgspec.structs.replace(GOOD, **change)))
    with pytest.raises(WireError):
        decode_message(encode(Taken(bytes(9))))


def test_the_largest_part_fits_a_datagram() -> None:
    body = join([encode(Sub(NAME, encode(vectors()["the largest"])))])
    assert len(body) + PAIR_OVERHEAD_BYTES <= DATAGRAM_MAX_BYTES
