"""Frames and texts that are mangled, misspelt or nonsense, sealed and unsealed: nothing raises and no view changes."""

from random import Random

import msgspec
import pytest

from swarmd_protocols.channel.codec import encode
from swarmd_protocols.effects import (
    Command,
    DatagramReceived,
    MemberState,
    Rejected,
    SetMeta,
    StreamReceived,
    UserEvent,
)
from swarmd_protocols.errors import StateError
from swarmd_protocols.swim.messages import (
    Ack,
    Alive,
    AliveBody,
    EventBody,
    EventVector,
    Fingerprints,
    Links,
    LinksBody,
    MetaBody,
    MetaEntry,
    Ping,
    Record,
    Sections,
    SignedEvent,
    Statement,
    Sub,
    Want,
)
from swarmd_protocols.trust.envelopes import sign_statement
from swarmd_protocols.trust.identity import dev_role_seeds
from swarmd_protocols.trust.payloads import Certificate, GroupKey, Revocation
from swarmd_protocols.trust.requests import AddStatement
from tests.support.swim_net import SECRET
from tests.support.swim_thief import Thief, formed, meet_all, signed

FAILED, ALIVE = MemberState.FAILED, MemberState.ALIVE


def test_mangled_frames_never_raise_and_never_change_the_view():
    net = formed(3)
    net.keep_frames = True
    net.run(1)
    net.keep_frames = False
    node, rng = net.hosts[0].node, Random(11)
    digest = node.view_digest()
    frames = [data for _, target, data in net.frames if target == 0]
    for step in range(3_000):
        data = bytearray(rng.choice(frames))
        for _ in range(rng.randrange(1, 4)):
            action = rng.randrange(4)
            if action == 0 and data:
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            elif action == 1:
                del data[rng.randrange(len(data) + 1) :]
            elif action == 2:
                data += rng.randbytes(rng.randrange(1500))
            else:
                data[:1] = rng.randbytes(1)
        event = DatagramReceived if step % 2 else StreamReceived
        node.handle(event(f"1.2.3.{step % 256}:9", bytes(data)), net.now + step)
    assert node.view_digest() == digest


def test_sealed_nonsense_never_raises():
    """A member's key, arbitrary bodies: random bytes, random messages of every kind with random fields."""
    net = formed(3)
    thief = Thief(SECRET, net.crypto)
    meet_all(net, thief)
    node, rng = net.hosts[0].node, Random(13)
    others = [host.node.node for host in net.hosts]

    def blob(limit=80):
        return rng.randbytes(rng.randrange(limit))

    def node_id():
        return rng.choice([*others, thief.node, rng.randbytes(16)])

    def number():
        return rng.choice((0, 1, 2, 2**20, 2**20 + 1, 2**40, 2**63 - 1))

    makers = [
        lambda: Ping(number(), rng.randbytes(8)),
        lambda: Ack(number()),
        lambda: msgspec.Raw(encode([3, number(), node_id()])),
        lambda: msgspec.Raw(encode([4, number(), rng.random() < 0.5])),
        lambda: Record(rng.choice((blob(), thief.identity.certificate)), blob(), rng.randbytes(64)),
        lambda: Alive(blob(), rng.randbytes(64)),
        lambda: Sections(tuple(rng.getrandbits(64) for _ in range(rng.randrange(8))), (("state", blob(16)),)),
        lambda: Fingerprints(rng.randrange(8), rng.randrange(-1, 256), blob(400)),
        lambda: Want(rng.randrange(8), blob(400)),
        lambda: EventVector(tuple((node_id(), number()) for _ in range(rng.randrange(5))), rng.randrange(3)),
        lambda: Sub(rng.choice(("state", "none", "")), blob()),
        lambda: msgspec.Raw(blob()),
        lambda: msgspec.Raw(encode([rng.randrange(20), blob(), blob(), number()])),
        lambda: thief.accusation(node_id(), number(), rng.randrange(3)),
        lambda: signed(thief, Links, "links", LinksBody(thief.node, number(), ((node_id(), rng.randrange(1, 4)),))),
        lambda: signed(thief, MetaEntry, "meta", MetaBody(thief.node, number(), "k", blob())),
        lambda: signed(thief, SignedEvent, "event", EventBody(thief.node, number(), "e", blob())),
        lambda: thief.record(incarnation=number(), status=rng.randrange(3), away_s=rng.randrange(99)),
    ]
    for step in range(4_000):
        messages = [rng.choice(makers)() for _ in range(rng.randrange(4))]
        thief.say(node, messages, net.now + step * 1000)
    net.run(5)
    healthy = [state for name, state in net.states(1).items() if name != "thief"]
    assert healthy == [ALIVE] * 3


BAD_TEXT = b"\xff\xfe\x80"


def _misspelt(value):
    """The encoding of a value whose text "???" is replaced by bytes that are no UTF-8."""
    encoded = encode(value)
    assert b"???" in encoded
    return encoded.replace(b"???", BAD_TEXT)


def test_text_that_is_no_utf8_never_raises():
    """In every field of text: of messages, of signed bodies, of certificates and statements."""
    net = formed(3)
    thief = Thief(SECRET, net.crypto)
    meet_all(net, thief)
    node = net.hosts[0].node
    session, seeds = thief.channel.public, dev_role_seeds(SECRET, "enrol")
    alive = _misspelt(AliveBody(thief.node, 9 << 20, 0, 0, "???", session, "", ""))
    meta = _misspelt(MetaBody(thief.node, 1, "???", b""))
    event = _misspelt(EventBody(thief.node, 1, "???", b""))
    statements = {
        "group": (GroupKey("???", 2, bytes(32)), seeds),
        "revoke": (Revocation("test", 1, (), "???"), dev_role_seeds(SECRET, "revoke")),
    }
    deep = b"\x93\xc4\x01x\x90" + b"\x91" * 900 + b"\x90"
    messages = [
        msgspec.Raw(_misspelt(Sub("???", b""))),
        msgspec.Raw(_misspelt(Statement("???", b""))),
        Alive(alive, thief.sign("alive", alive)),
        Record(thief.identity.certificate, alive, thief.sign("alive", alive)),
        MetaEntry(meta, thief.sign("meta", meta)),
        SignedEvent(event, thief.sign("event", event)),
        *[Statement(k, sign_statement(k, _misspelt(p), s, net.crypto)) for k, (p, s) in statements.items()],
        Statement("group", deep),
    ]
    good = Certificate(thief.node, net.crypto.public_key(thief.identity.seed), "???", (), "test", 1)
    stranger = AliveBody(bytes(16), 1 << 20, 0, 0, "a:1", session, "", "")
    misnamed = sign_statement("node", _misspelt(good), seeds, net.crypto)
    messages += [Record(certificate, encode(stranger), bytes(64)) for certificate in (misnamed, deep)]
    before = node.summary().counters
    for message in messages:
        effects = thief.say(node, [message], net.now)
        assert any(isinstance(effect, Rejected) for effect in effects), message
    after = node.summary().counters
    refused = sum(after.get(name, 0) - before.get(name, 0) for name in ("rejected", "malformed"))
    assert refused == len(messages)


@pytest.mark.parametrize("counter", [-1, 0, 2**32, 2**60])
def test_a_group_key_whose_counter_fits_no_frame_is_refused(counter):
    net = formed(2)
    group = GroupKey("test", counter, bytes(32))
    statement = sign_statement("group", group, dev_role_seeds(SECRET, "enrol"), net.crypto)
    with pytest.raises(StateError, match="malformed"):
        net.feed(0, Command("node", AddStatement("group", statement)))
    net.run(1)
    assert net.formed()


@pytest.mark.parametrize("request_", [SetMeta("\ud800", b""), UserEvent("\udfff", b"")])
def test_local_text_that_cannot_travel_is_refused(request_):
    net = formed(2)
    with pytest.raises(StateError, match="Unicode"):
        net.feed(0, request_)
