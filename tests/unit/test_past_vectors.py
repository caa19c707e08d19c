"""Golden bytes of the past, checked both ways; truncations, flips and what is out of bounds are refused."""

import contextlib
import json
from typing import get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_protocols.errors import StateError, WireError
from swarmd_protocols.past import messages
from swarmd_protocols.past.messages import decode_message, encode_message
from swarmd_protocols.past.pages import (
    PAGE_MAX_BYTES,
    PAGE_MAX_MS,
    Page,
    PastEvent,
    PastPlace,
    holds,
    new_page,
    read_page,
    sign_page,
)
from tests.support import past_laws
from tests.support.past_vectors import AT_MS, CRYPTO, KEY, NODE, PAGES, PATH, SIGNER, document, signed, vectors

DOCUMENT = json.loads(PATH.read_text())
MESSAGES = [vector for vector in DOCUMENT["vectors"] if not vector["page"]]


def test_everything_has_its_vector() -> None:
    assert document() == DOCUMENT
    assert {type(message) for message in vectors().values()} == set(get_args(messages.Message))


@pytest.mark.parametrize("vector", MESSAGES, ids=lambda vector: vector["name"])
def test_messages_both_ways(vector: dict[str, str]) -> None:
    message = decode_message(bytes.fromhex(vector["hex"]))
    assert repr(message) == vector["message"]
    assert encode_message(message).hex() == vector["hex"]


@pytest.mark.parametrize("name", PAGES)
def test_pages_both_ways(name: str) -> None:
    data = signed()[name]
    assert read_page(data) == PAGES[name]
    assert holds(data, KEY, SIGNER)


@pytest.mark.parametrize("name", vectors())
def test_a_truncated_message_is_refused(name: str) -> None:
    data = encode_message(vectors()[name])
    for size in range(len(data)):
        with pytest.raises(WireError):
            decode_message(data[:size])


def test_no_flip_of_a_page_holds() -> None:
    data = signed()["a minute of a drone"]
    for at in range(0, len(data), 3):
        other = data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]
        with contextlib.suppress(WireError):
            read_page(other)
            assert not holds(other, KEY, SIGNER)


def test_another_key_signs_no_page_of_this_author() -> None:
    data = signed()["a moment"]
    assert not holds(data, CRYPTO.public_key(bytes(32)), SIGNER)


ASK = messages.Ask(1, NODE, AT_MS, AT_MS, AT_MS, 1)
OUT_OF_BOUNDS = [
    messages.List(-1),
    messages.List(1 << 32),
    messages.Listing(1, (messages.Row(NODE[:-1], 0, 0, 0),)),
    messages.Listing(1, (messages.Row(NODE, 0, 0, 1 << 46),)),
    messages.Listing(1, (messages.Row(NODE, 0, 0, 0),) * 2),
    messages.Listing(1, tuple(messages.Row(bytes([one >> 8, one & 255]) * 8, 0, 0, 0) for one in range(257))),
    *(
        msgspec.structs.replace(ASK, **change)
        for change in (
            {"author": b""},
            {"from_ms": -1},
            {"to_ms": 1 << 46},
            {"below_ms": -1},
            {"below_number": -1},
            {"below_number": 1 << 63},
        )
    ),
    messages.Answer(1, (b"",) * (messages.PAGES_MAX + 1), False, 0),
    messages.Answer(1, (bytes(messages.ANSWER_BYTES + 1),), False, 0),
    messages.Answer(1, (), True, 0),
    messages.Answer(1, (), False, -1),
    messages.Answer(1, (), False, 0, bytes(messages.CERTIFICATE_MAX_BYTES + 1)),
    messages.Deny(1, 3, 0),
    messages.Deny(1, -1, 0),
    messages.Deny(1, 0, -1),
]


@pytest.mark.parametrize("message", OUT_OF_BOUNDS, ids=lambda message: repr(message)[:60])
def test_what_is_out_of_bounds_is_refused(message: messages.Message) -> None:
    with pytest.raises(WireError):
        decode_message(encode_message(message))


def page(span_ms: tuple[int, int], *events: PastEvent, places: tuple[PastPlace, ...] = ()) -> Page:
    return new_page(NODE, 1, span_ms, events, places, ())


def test_a_page_that_is_none_is_not_signed() -> None:
    event = PastEvent(5, 1, 1, "started", "", "", "")
    wide = tuple(PastEvent(0, 1, number, "alarm", "§" * 64, "§" * 240, "§" * 240) for number in range(1, 40))
    for bad in (
        page((AT_MS, AT_MS - 1)),
        page((AT_MS, AT_MS + PAGE_MAX_MS + 1)),
        page((AT_MS, AT_MS + 4), event),
        page((AT_MS, AT_MS + 9), places=(PastPlace(1, 5),)),
        page((AT_MS, AT_MS + 9), PastEvent(5, 1, 1, "", "", "", "")),
        page((AT_MS, AT_MS + 9), *wide),
        new_page(NODE, 0, (AT_MS, AT_MS), (), (), ()),
    ):
        with pytest.raises(StateError):
            sign_page(bad, SIGNER)


def test_a_page_in_another_order_or_too_long_is_none() -> None:
    one, two = PastEvent(1, 1, 1, "started", "", "", ""), PastEvent(2, 1, 2, "stopped", "", "", "")
    body = msgspec.msgpack.encode(msgspec.structs.replace(page((AT_MS, AT_MS + 9)), events=(two, one)))
    with pytest.raises(WireError, match="not written as pages are"):
        read_page(body + bytes(64))
    with pytest.raises(WireError, match="bytes"):
        read_page(bytes(PAGE_MAX_BYTES + 1))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    with contextlib.suppress(WireError):
        decode_message(data)
    past_laws.no_bytes_are_a_page_but_a_page(data)
