"""Golden bytes of a member's place, checked both ways; every truncation and bit flip is refused and never raises.

`SWARMD_WRITE_VECTORS=1 pytest tests/unit/test_positions_vectors.py` writes them anew.
"""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.effects import Rejected
from swarmd_protocols.ids import NodeId, node_id_of
from swarmd_protocols.state.crdt.batch import NodeSigner
from swarmd_protocols.state.positions import MESSAGE_BYTES, Place, Positions, PositionsConfig, SayPlace
from swarmd_protocols.subprotocol import Peer, Send

FILE = Path(__file__).resolve().parents[2] / "protocols" / "vectors" / "where.json"
WRITE = "SWARMD_WRITE_VECTORS" in os.environ
CRYPTO = NaClCrypto()
SEED, OTHER = bytes(range(32)), bytes(range(1, 33))
NODE, READER = (node_id_of(CRYPTO.public_key(seed)) for seed in (SEED, OTHER))
AT_NS = 1_700_000_000_000_000
CASES: dict[str, Place | None] = {
    "a drone over a field": Place(-188_856_864, -701_124_341, 3_200, 9_000, 120, 710),
    "without heading and battery": Place(473_977_420, 85_455_940, -50, None, 65_535, None),
    "the corners": Place(900_000_000, -1_800_000_000, 10_000_000, 35_999, 0, 1_000),
    "no fix": None,
}


def node(seed: bytes, peer: bytes) -> Positions:
    signer = NodeSigner(CRYPTO, seed)
    one = Positions(
        node_id_of(CRYPTO.public_key(seed)), signer, PositionsConfig(gap_ns=0), 5, lambda now_ns: now_ns // 1_000_000
    )
    key = CRYPTO.public_key(peer)
    one.on_peers([Peer(node_id_of(key), "peer", key, True)], 0)
    return one


def said(place: Place | None) -> bytes:
    one = node(SEED, OTHER)
    if place is None:
        one.on_command(SayPlace(next(iter(CASES.values())), 0), 0)
    (effect,) = one.on_command(SayPlace(place, AT_NS), AT_NS)
    assert isinstance(effect, Send)
    return effect.payload


def test_write() -> None:
    if WRITE:
        vectors = [{"name": name, "message": repr(place), "hex": said(place).hex()} for name, place in CASES.items()]
        FILE.write_text(json.dumps({"wire_version": 1, "vectors": vectors}, indent=1) + "\n")


@pytest.mark.parametrize("vector", json.loads(FILE.read_text())["vectors"] if FILE.exists() else [])
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
