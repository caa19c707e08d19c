"""Golden bytes of membership's wire: every message, every signed body, frames with fixed keys."""

from pathlib import Path

import msgspec

from swarmd_protocols.channel.channel import BULK, DATAGRAM, STREAM, WIRE_VERSION, Channel
from swarmd_protocols.channel.codec import encode, join
from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.ids import node_id_of
from swarmd_protocols.swim import messages as wire
from swarmd_protocols.trust import identity as ids

PATH = Path(__file__).resolve().parents[2] / "protocols" / "vectors" / "swim.json"
ID_A, ID_B, SIGNATURE = b"A" * 16, b"B" * 16, b"s" * 64


def bodies() -> list[msgspec.Struct]:
    return [
        wire.AliveBody(ID_A, (3 << 20) + 1, 0, 0, "10.0.0.5:7946", b"x" * 32, "0.1.0", "eye"),
        wire.AliveBody(ID_A, (3 << 20) + 2, 2, 600, "10.0.0.5:7946", b"x" * 32, "0.1.0", "eye"),
        wire.AccusationBody(ID_B, ID_A, (3 << 20) + 1, wire.LEVEL_FAILED),
        wire.EventBody(ID_A, (3 << 20) + 1, "found", b"payload"),
        wire.LinksBody(ID_B, 3 << 20, ((ID_A, wire.LINK_ONE_WAY),)),
        wire.MetaBody(ID_A, 3 << 20, "key", b"value"),
        wire.NearBody(ID_B, 3 << 20, b"AAAA\x04CCCC\x0f", b"DDDD", False),
    ]


def messages() -> list[msgspec.Struct]:
    alive, _, accusation, happening, links, meta, near = map(encode, bodies())
    return [
        wire.Ping(300, b"12345678"),
        wire.Ack(300),
        wire.PingReq(301, ID_A),
        wire.Indirect(301, True),
        wire.Indirect(301, False),
        wire.Record(b"certificate", alive, SIGNATURE),
        wire.Alive(alive, SIGNATURE),
        wire.Accusation(accusation, SIGNATURE),
        wire.SignedEvent(happening, SIGNATURE),
        wire.Sections((1, 2**64 - 1, 0, 0, 5), (("state", b"0123456789abcdef"),)),
        wire.Fingerprints(0, -1, bytes(range(16))),
        wire.Want(3, bytes(8)),
        wire.Sub("state", b"payload"),
        wire.Links(links, SIGNATURE),
        wire.Statement("revoke", b"statement"),
        wire.MetaEntry(meta, SIGNATURE),
        wire.Hello(True),
        wire.EventVector(((ID_A, (3 << 20) + 1),), wire.VECTOR_REPAIR),
        wire.Buckets(0, bytes(2048)),
        wire.Neighbor(wire.NEIGHBOR_JOIN, 5_000),
        wire.ForwardJoin(5, wire.Record(b"certificate", alive, SIGNATURE)),
        wire.Shuffle(True, (wire.Record(b"certificate", alive, SIGNATURE),)),
        wire.SizeEstimate(7, bytes(range(32)), bytes(range(24))),
        wire.CertifiedEvent(b"certificate", happening, SIGNATURE),
        wire.NeighborAddresses(("10.0.0.5:7946", "10.0.0.6:7946")),
        wire.Beacon(ID_A, (3 << 20) + 1),
        wire.Near(near, SIGNATURE),
    ]


def build() -> list[dict[str, str]]:
    crypto = NaClCrypto()
    vectors = [{"name": type(item).__name__, "message": repr(item), "hex": encode(item).hex()} for item in messages()]
    vectors += [{"name": type(item).__name__, "message": repr(item), "hex": encode(item).hex()} for item in bodies()]
    seeds = bytes(range(32)), bytes(range(32, 64))
    a, b = (Channel(seed, b"boot 1 of the vectors", crypto) for seed in seeds)
    public = crypto.public_key(seeds[1])
    session = a.session(node_id_of(public), public, b.public)
    body = join([encode(wire.Ping(1, b"12345678"))])
    pinged = b""
    for name, kind in (("datagram", DATAGRAM), ("stream", STREAM), ("bulk", BULK)):
        frame = a.seal(session, kind, body)
        pinged = pinged or frame
        vectors.append({"name": f"frame/{name}", "message": "seed 00..1f to seed 20..3f, ping", "hex": frame.hex()})
    a.set_group_keys({1: b"g" * 32})
    vectors.append({"name": "frame/group", "message": "group key g*32", "hex": a.seal_group(body).hex()})
    hello, contact = a.seal_group(body), a.seal_cookie(a.seal_group(body), "10.0.0.6:7946", 7, 1)
    vectors += [
        {"name": "frame/notice", "message": "to the ping of frame/datagram", "hex": a.seal_notice(pinged).hex()},
        {"name": "frame/cookie", "message": "10.0.0.6:7946, epoch 7", "hex": contact.hex()},
        {"name": "frame/contact", "message": "cookie c*16", "hex": a.contact(b"c" * 16, hello).hex()},
    ]
    identity = ids.make_dev_identity(b"the secret of the vectors", "farm", "drone-1", crypto)
    for name, statement in (
        ("root", identity.roots[0]),
        ("certificate", identity.certificate),
        ("group", identity.group_keys[0]),
    ):
        vectors.append({"name": f"statement/{name}", "message": "development fleet", "hex": statement.hex()})
    return vectors


def document() -> dict[str, object]:
    """What the golden file holds."""
    return {"wire_version": WIRE_VERSION, "vectors": build()}
