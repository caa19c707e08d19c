"""Golden bytes of what gateways and regions say: frames, every body, an operator's facts, with fixed keys."""

from pathlib import Path

from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.federation import wire
from swarmd_protocols.federation.facts import Fact, encode_fact, message_of, seal_fact
from swarmd_protocols.federation.objects import Joined, Member, ObjectRow, encode_object
from swarmd_protocols.federation.shares import SHARES, share_of
from swarmd_protocols.federation.wire import (
    Ask,
    BundleRow,
    Down,
    DownRow,
    FactKind,
    Have,
    Known,
    Pair,
    RowKind,
    SiteRow,
    TrustRow,
    Up,
    UpRow,
    Way,
    encode_row,
)
from swarmd_protocols.ids import NodeId, node_id_of
from swarmd_protocols.state.crdt.batch import Batch, NodeSigner, Stream, seal_batch
from swarmd_protocols.state.crdt.facts import LATTICE, Facts, Join, Sighting, decode_facts, encode_facts
from swarmd_protocols.state.dedup.entry import entry_of

PATH = Path(__file__).resolve().parents[2] / "protocols" / "vectors" / "federation.json"
CRYPTO = NaClCrypto()
GATEWAY, REGION, OTHER, OPERATOR = (bytes([number]) * 32 for number in (1, 2, 3, 4))
SWARM = wire.swarm_key(bytes(32), "farm")
SALT = b"saltsalt"
MINUTE = 60_000 << 16
AT_MS = 1_790_000_000_000


def public(seed: bytes) -> bytes:
    return CRYPTO.public_key(seed)


def node(seed: bytes) -> NodeId:
    return node_id_of(public(seed))


def sighting(column: int = 4, score: int = 870) -> Sighting:
    return Sighting(
        "hot-spot", LATTICE, (column, -2), False, True, column * 50 + 3, -98, (400, 0, 400), score,
        MINUTE, 2 * MINUTE, 3, b"modelsha", (),
    )  # fmt: skip


def batch(seed: bytes, facts: Facts, n: int = 1) -> Batch:
    body = encode_facts(facts)
    return seal_batch(
        Stream.FACTS, node(seed), (1, n), (1, 1), bytes(16 * (n == 1)) or b"p" * 16, 3 * MINUTE, body,
        NodeSigner(CRYPTO, seed),
    )  # fmt: skip


def proofs() -> list[Batch]:
    """One node's sighting, and another's word that it saw the same."""
    seen = sighting()
    return [
        batch(GATEWAY, Facts([seen])),
        batch(OTHER, Facts(joins=[Join(node(GATEWAY), seen.key, MINUTE, 2 * MINUTE)])),
    ]


def row() -> ObjectRow:
    seen = sighting()
    leader = entry_of(node(GATEWAY), seen, (1, 1), "hot-spot")
    return ObjectRow(
        AT_MS, bytes.fromhex(leader.object_id), "hot-spot", (Member(0, *seen.key),), (Joined(1, 0),), ()
    )  # fmt: skip


def read(one: Batch) -> tuple[Batch, Facts]:
    return one, decode_facts(one.body)


def fact(kind: str = "mission", revision: int = 1, swarm: str = "farm") -> Fact:
    corners = ((473_000_000, 85_000_000), (473_000_000, 85_010_000), (473_010_000, 85_000_000))
    is_mission = kind == "mission"
    return Fact(
        swarm, kind, "north-field", revision, AT_MS, "ann", "" if is_mission else "mind the mast",
        corners if is_mission else (), 500 if is_mission else 0,
    )  # fmt: skip


def signed(one: Fact, seed: bytes = OPERATOR) -> bytes:
    payload = encode_fact(one)
    return seal_fact(payload, public(seed), CRYPTO.sign(seed, message_of(payload)))


def site() -> SiteRow:
    return SiteRow(AT_MS, 9, 8, 2, 41, 3, 2_048, True, 473_977_420, 85_455_940, "0.1.0", 0x00FF)


def up() -> Up:
    made = proofs()
    return Up(
        b"outbox-1", AT_MS, 7, 0, Have(b"the-log1", 3),
        (
            UpRow(7, RowKind.TRUST, encode_row(TrustRow("node", b"a certificate"))),
            UpRow(8, RowKind.OBJECT, encode_object(row()), (0, 1)),
            UpRow(9, RowKind.SITE, encode_row(site())),
        ),
        tuple(one.raw for one in made),
    )  # fmt: skip


def down() -> Down:
    bundle = BundleRow(b"r" * 32, ("https://bundles.example/person-2", "/srv/bundles/person-2"))
    return Down(
        b"outbox-1", ((7, 8),), ((8, "a reason"),), (node(OTHER),), 250, 0,
        (Known(row().object_id, AT_MS, b"digest-8"),), b"the-log1",
        (
            DownRow(4, FactKind.FACT, signed(fact())),
            DownRow(5, FactKind.FACT, signed(fact("note"))),
            DownRow(6, FactKind.BUNDLE, encode_row(bundle)),
        ),
    )  # fmt: skip


def frames() -> dict[str, bytes]:
    gateway, region = Pair(CRYPTO, GATEWAY, public(REGION)), Pair(CRYPTO, REGION, public(GATEWAY))
    return {
        "up": gateway.seal(Way.UP, SWARM, 5, 17, SALT, up()),
        "down": region.seal(Way.DOWN, SWARM, 6, 18, SALT, down()),
        "ask": region.seal(Way.ASK, SWARM, 7, 19, SALT, Ask("hot-spot", AT_MS)),
        "tell": gateway.seal(Way.TELL, SWARM, 7, 19, SALT, up()),
    }


def document() -> dict[str, object]:
    """What the golden file holds."""
    shares = [{"key": bytes([n] * 8).hex(), "share": share_of(bytes([n] * 8))} for n in range(4)]
    return {
        "wire_version": wire.WIRE_VERSION,
        "shares": {"count": SHARES, "vectors": shares},
        "swarm": SWARM.hex(),
        "vectors": [
            {"name": "object", "message": repr(row()), "hex": encode_object(row()).hex()},
            {"name": "site", "message": repr(site()), "hex": encode_row(site()).hex()},
            {"name": "mission", "message": repr(fact()), "hex": signed(fact()).hex()},
            {"name": "note", "message": repr(fact("note")), "hex": signed(fact("note")).hex()},
            *({"name": name, "message": "", "hex": frame.hex()} for name, frame in frames().items()),
        ],
    }
