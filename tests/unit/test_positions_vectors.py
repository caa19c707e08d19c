"""Golden bytes of a member's place, checked both ways; every truncation and bit flip is refused and never raises."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_protocols.effects import Rejected
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.positions import MESSAGE_BYTES
from tests.support.positions_vectors import AT_NS, CASES, NODE, OTHER, PATH, SEED, document, node, said


def test_every_case_has_its_vector() -> None:
    assert json.loads(PATH.read_text()) == document()


@pytest.mark.parametrize("vector", json.loads(PATH.read_text())["vectors"])
def test_vectors_both_ways(vector: dict[str, str]) -> None:
    place = CASES[vector["name"]]
    assert repr(place) == vector["message"]
    assert said(place).hex() == vector["hex"]
    reader = node(OTHER, SEED)
    reader.on_message(NODE, bytes.fromhex(vector["hex"]), AT_NS)
    held = reader.located().get(NODE)
    assert (None if held is None else held.place) == place


def test_every_truncation_and_flip_is_refused() -> None:
    message = said(CASES["a drone over a field"])
    reader = node(OTHER, SEED)
    bad = [message[:size] for size in range(MESSAGE_BYTES)] + [message + b"\0"]
    bad += [
        message[:at] + bytes([message[at] ^ 1 << bit]) + message[at + 1 :]
        for at in range(MESSAGE_BYTES)
        for bit in (0, 4, 7)
    ]
    for one in bad:
        effects = reader.on_message(NODE, one, AT_NS)
        assert all(isinstance(effect, Rejected) for effect in effects)
    assert reader.located() == {}


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=2 * MESSAGE_BYTES) | st.binary(min_size=MESSAGE_BYTES, max_size=MESSAGE_BYTES))
def test_no_bytes_raise(data: bytes) -> None:
    reader = node(OTHER, SEED)
    reader.on_message(NodeId(b"x" * 16), data, AT_NS)
    assert reader.located() == {}
