"""Every message that a member may say, many times over: of membership and of each sub-protocol, well-formed or not."""

from collections.abc import Callable
from random import Random

from swarmd_protocols.channel.codec import encode
from swarmd_protocols.offload import messages as offload
from swarmd_protocols.offload.tickets import TICKET_BYTES
from swarmd_protocols.releases import messages as releases
from swarmd_protocols.state.crdt import messages as state
from swarmd_protocols.state.positions import Place, _packed
from swarmd_protocols.swim import messages as swim
from swarmd_protocols.swim.messages import Message, Record, Sub
from tests.support.whole_net import READER, WholeNet

SUBJECT = 3
"""A member who has done nothing: others' words are said in its name."""
AHEAD = 1 << 40
"""Numbers that look newer than whatever was said."""
Maker = Callable[[WholeNet, int], list[Message]]


def _many(make: Callable[[WholeNet, int], Message]) -> Maker:
    return lambda net, count: [make(net, number) for number in range(count)]


def _few(make: Callable[[WholeNet, int], Message]) -> Maker:
    return lambda net, count: [make(net, number) for number in range(min(count, 15))]


def _subject(net: WholeNet) -> bytes:
    return net.hosts[SUBJECT].node.node


def _record(net: WholeNet) -> Record:
    own = net.hosts[SUBJECT].node._core.own
    return Record(own.certificate, own.body, bytes(range(64)))


def _other_certificate(net: WholeNet, number: int) -> bytes:
    held = net.hosts[SUBJECT].node._core.own.certificate
    return held[:40] + number.to_bytes(4, "big") + held[44:]


def _event(net: WholeNet, number: int) -> bytes:
    return encode(swim.EventBody(_subject(net), AHEAD + number, "x", b""))


def _state(make: Callable[[WholeNet, int], state.Message]) -> Maker:
    return _many(lambda net, number: Sub("state", state.encode(make(net, number))))


def _releases(make: Callable[[WholeNet, int], releases.Message]) -> Maker:
    return _many(lambda net, number: Sub("releases", releases.encode_message(make(net, number))))


def _offload(make: Callable[[WholeNet, int], offload.Message]) -> Maker:
    return _many(lambda net, number: Sub("offload", offload.encode_message(make(net, number))))


def _noise(number: int, size: int) -> bytes:
    return Random(number).randbytes(size)


def _place(net: WholeNet, number: int) -> Message:
    body = _packed(net.hosts[SUBJECT].node.node, AHEAD + number, net.public_ms(), Place(1, 1, 1, 1, 1, 1))
    return Sub("where", body + _noise(number, 64))


def _accusation(net: WholeNet, number: int) -> Message:
    return swim.Accusation(encode(swim.AccusationBody(_subject(net), net.ids()[4], number, 0)), _noise(number, 64))


KINDS: dict[str, Maker] = {
    "ping": _many(lambda net, n: swim.Ping(n, bytes(8))),
    "ack": _many(lambda net, n: swim.Ack(n)),
    "ping request": _many(lambda net, n: swim.PingReq(n, net.ids()[1 + n % 6])),
    "indirect": _many(lambda net, n: swim.Indirect(n, True)),
    "record": _many(lambda net, n: _record(net)),
    "record of nobody": _many(lambda net, n: Record(_other_certificate(net, n), _record(net).body, bytes(64))),
    "alive forged": _many(lambda net, n: swim.Alive(_record(net).body, _noise(n, 64))),
    "accusation forged": _many(_accusation),
    "links forged": _many(lambda net, n: swim.Links(encode(swim.LinksBody(_subject(net), AHEAD + n, ())), bytes(64))),
    "metadata forged": _many(
        lambda net, n: swim.MetaEntry(encode(swim.MetaBody(_subject(net), AHEAD + n, "k", b"")), bytes(64))
    ),
    "event forged": _many(lambda net, n: swim.SignedEvent(_event(net, n), _noise(n, 64))),
    "certified event forged": _many(
        lambda net, n: swim.CertifiedEvent(_record(net).certificate, _event(net, n), _noise(n, 64))
    ),
    "event of nobody": _many(lambda net, n: swim.CertifiedEvent(_other_certificate(net, n), _event(net, n), bytes(64))),
    "sections": _many(lambda net, n: swim.Sections((n,) * 5, (("state", bytes(16)),))),
    "fingerprints": _many(lambda net, n: swim.Fingerprints(n % 5, -1, bytes(8))),
    "large fingerprints": _few(lambda net, n: swim.Fingerprints(n % 5, -1, _noise(n, 65_536))),
    "want": _many(lambda net, n: swim.Want(n % 5, bytes(8))),
    "large want": _few(lambda net, n: swim.Want(n % 5, _noise(n, 65_536))),
    "buckets": lambda net, count: [swim.Buckets(n % 5, _noise(n, 2_048)) for n in range(min(count, 500))],
    "event vector": _many(lambda net, n: swim.EventVector((), 1)),
    "large event vector": _few(
        lambda net, n: swim.EventVector(tuple((at.to_bytes(16, "big"), 5 + n) for at in range(8_192)), 1)
    ),
    "hello": _many(lambda net, n: swim.Hello(True)),
    "neighbor": _many(lambda net, n: swim.Neighbor(n % 7, 5)),
    "forward join": _many(lambda net, n: swim.ForwardJoin(n % 8, _record(net))),
    "shuffle": _many(lambda net, n: swim.Shuffle(True, (_record(net),) * 3)),
    "size": _many(lambda net, n: swim.SizeEstimate(n, bytes(32), bytes(24))),
    "addresses": _many(
        lambda net, n: swim.NeighborAddresses(tuple(f"10.1.0.{way}:{1 + n % 60_000}" for way in range(12)))
    ),
    "beacon": _many(lambda net, n: swim.Beacon(_subject(net), n)),
    "near forged": _many(
        lambda net, n: swim.Near(encode(swim.NearBody(_subject(net), AHEAD + n, b"", b"", True)), bytes(64))
    ),
    "statement": _many(lambda net, n: swim.Statement("revoke", _noise(n, 200))),
    "nobody's": _many(lambda net, n: Sub("nobody", b"x")),
    "place forged": _many(_place),
    "place garbage": _many(lambda net, n: Sub("where", b"x")),
    "state garbage": _many(lambda net, n: Sub("state", b"\xff")),
    "batches": _state(lambda net, n: state.Batches(tuple(_noise(n + at, 120) for at in range(5)))),
    "clock ask": _state(lambda net, n: state.ClockAsk(n)),
    "clock tell": _state(lambda net, n: state.ClockTell(n, n)),
    "have": _state(lambda net, n: state.Have((), state.LASTING | state.VITALS, True, (1 << state.BUCKETS) - 1)),
    "state buckets": _state(lambda net, n: state.Buckets(_noise(n, 128), _noise(n + 1, 128))),
    "certificate ask": _state(lambda net, n: state.CertificateAsk(tuple(net.ids()))),
    "certificates": _state(lambda net, n: state.Certificates((_noise(n, 300),) * 16)),
    "recent": _state(lambda net, n: state.Recent(_noise(n, 6 * 128))),
    "wanted": _state(lambda net, n: state.Wanted(_noise(n, 6 * 128))),
    "proof": _state(lambda net, n: state.Proof(_noise(n, 200), _noise(n + 1, 200))),
    "releases garbage": _many(lambda net, n: Sub("releases", b"\xff")),
    "releases have": _releases(lambda net, n: releases.Have(0, b"", b"", True)),
    "releases want": _releases(lambda net, n: releases.Want(0, bytes(16), bytes(16))),
    "push": _releases(lambda net, n: releases.Push((), (_noise(n, 300),) * 5, ())),
    "reports": _releases(lambda net, n: releases.Push((), (), (_noise(n, 300),) * 5)),
    "tell chunks": _releases(lambda net, n: releases.TellChunks(bytes(8), bytes([n % 255]))),
    "ask list": _releases(lambda net, n: releases.AskList(bytes(8))),
    "chunk list": _releases(lambda net, n: releases.ChunkList(bytes(8), bytes(32))),
    "ask chunk": _releases(lambda net, n: releases.AskChunk(bytes(8), n)),
    "chunk": _releases(lambda net, n: releases.Chunk(bytes(8), n, b"x")),
    "cast note": _releases(lambda net, n: releases.CastNote(bytes(8), n, 0)),
    "ask pieces": _releases(lambda net, n: releases.AskPieces(bytes(8), n, b"x")),
    "offload garbage": _many(lambda net, n: Sub("offload", b"\xff")),
    "offer": _offload(lambda net, n: offload.Offered(_noise(n, 60), _noise(n, 64))),
    "ask to borrow": _offload(lambda net, n: offload.Ask(bytes(32))),
    "grant": _offload(lambda net, n: offload.Grant(_noise(n, TICKET_BYTES))),
    "deny": _offload(lambda net, n: offload.Deny(bytes(32), 0)),
    "request": _offload(lambda net, n: offload.Request(n + 1, 5, bytes(32), 1, 1_000, b"x")),
    "cancel": _offload(lambda net, n: offload.Cancel(n)),
    "answer": _offload(lambda net, n: offload.Answer(n, b"x", _noise(n, 64))),
    "refusal": _offload(lambda net, n: offload.Refusal(n, 0)),
}
"""By name: so many of them as an attacker would say."""
OF_SUBPROTOCOLS = ("place forged", "place garbage", "state garbage", "releases garbage", "offload garbage")
FORGED = ("certified event forged", "event of nobody", *OF_SUBPROTOCOLS)
"""Kinds that are refused one by one, and those of them that a sub-protocol refuses."""


def frame_of(net: WholeNet, parts: list[tuple[str, int]]) -> list[Message]:
    """Parts of several kinds in one frame.

    Args:
        net: The network, formed.
        parts: Kinds, and how many of each.
    """
    assert READER != SUBJECT
    return [message for kind, count in parts for message in KINDS[kind](net, count)]
