"""Golden bytes of a member's place: every kind of place, signed with fixed keys."""

from pathlib import Path

from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.ids import node_id_of
from swarmd_protocols.state.crdt.batch import NodeSigner
from swarmd_protocols.state.positions import Place, Positions, PositionsConfig, SayPlace
from swarmd_protocols.subprotocol import Peer, Send

PATH = Path(__file__).resolve().parents[2] / "protocols" / "vectors" / "where.json"
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


def document() -> dict[str, object]:
    """What the golden file holds."""
    vectors = [{"name": name, "message": repr(place), "hex": said(place).hex()} for name, place in CASES.items()]
    return {"wire_version": 1, "vectors": vectors}
