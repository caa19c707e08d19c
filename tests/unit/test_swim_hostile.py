"""Hostile and broken input: forged, replayed, stolen keys, floods, unknown ids, clock jumps. Nothing grows."""

import os
from random import Random

import msgspec
import pytest

from swarmd_protocols.channel.channel import STREAM
from swarmd_protocols.channel.codec import encode, join
from swarmd_protocols.crypto import ModelCrypto, NaClCrypto
from swarmd_protocols.effects import (
    Alarm,
    Command,
    DatagramReceived,
    MemberState,
    Persist,
    Rejected,
    SendDatagram,
    SendFailed,
    SendStream,
    SetMeta,
    Started,
    StreamReceived,
    TimerFired,
    UserEvent,
)
from swarmd_protocols.errors import StateError
from swarmd_protocols.ids import WAYS, copies
from swarmd_protocols.node import Node, NodeConfig
from swarmd_protocols.swim.config import SwimConfig
from swarmd_protocols.swim.event_shelf import _KEY as EVENTS_IN_JOURNAL
from swarmd_protocols.swim.messages import (
    Accusation,
    AccusationBody,
    Ack,
    Alive,
    AliveBody,
    Buckets,
    EventBody,
    EventVector,
    Fingerprints,
    ForwardJoin,
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
from swarmd_protocols.trust.envelopes import Envelope, key_id, sign_statement, signed_bytes
from swarmd_protocols.trust.identity import dev_role_seeds, make_dev_identity
from swarmd_protocols.trust.trust import AddStatement, Certificate, GroupKey, Revocation
from tests.support.swim_net import SECRET, Net, S, read_whole
from tests.support.swim_thief import ADDRESS, Thief

FAILED, ALIVE = MemberState.FAILED, MemberState.ALIVE


def formed(count=5, **options):
    net = Net(count, **options)
    assert net.run_until(net.formed, 5) is not None
    net.run(2)
    return net


def meet_all(net, thief):
    for host in net.hosts:
        net.perform(host, thief.meet(host.node, net.now))


def victim_facts(net, index):
    core = net.hosts[index].node._core
    return core.own.node, core.own.incarnation


# --- a stolen key ----------------------------------------------------------------------------------------------------


def test_one_stolen_key_makes_no_healthy_member_failed():
    """Accusations of every level and incarnation, about everybody, to everybody: only refutations come of it.

    SWARMD_FUZZ_RUNS scales it (`make fuzz` runs 10**6).
    """
    runs = int(os.environ.get("SWARMD_FUZZ_RUNS", "3000"))
    net = formed()
    thief = Thief(SECRET, net.crypto)
    meet_all(net, thief)
    rng, begin = Random(7), net.now
    for step in range(runs):
        host = rng.choice(net.hosts)
        subject, incarnation = victim_facts(net, rng.randrange(len(net.hosts)))
        incarnation = max(0, incarnation + rng.choice((-1, 0, 0, 0, 1, 2**40)))
        effects = thief.say(host.node, [thief.accusation(subject, incarnation, rng.randrange(3))], net.now)
        net.perform(host, effects)
        if step % 10 == 0:
            net.run(0.02)
    net.run(3)
    healthy = {f"n{index:03d}" for index in range(5)}
    assert [e for _, _, e in net.changes(FAILED, begin) if e.name in healthy] == []
    assert all(state is ALIVE for name, state in net.states(0).items() if name in healthy)


def flood(net, thief, message, count=4_000):
    """Reliable frames that say the same thing so many times: effects, and bytes that were sent for it."""
    encoded, node = encode(message), net.hosts[0].node
    at_once, left, effects = 1_000_000 // len(encoded), min(count, 4_000_000 // len(encoded)), []
    while left > 0:
        body = join([encoded] * min(at_once, left))
        left -= at_once
        frame = thief.channel.seal(thief.sessions[node.node], STREAM, body)
        effects += read_whole(node, StreamReceived(ADDRESS, frame), net.now)
    return effects, sum(len(effect.data) for effect in effects if isinstance(effect, SendDatagram | SendStream))


@pytest.mark.parametrize(
    "question",
    [
        Fingerprints(0, -1, b""),
        Buckets(0, bytes(2048)),
        Sections((1, 2, 3, 4, 5), ()),
        EventVector((), 1),
        Want(0, bytes(8)),
        Ping(7, b"12345678"),
    ],
    ids=lambda question: type(question).__name__,
)
def test_what_one_member_asks_is_answered_up_to_a_bound(question):
    """A frame of 25 kB once earned an answer of 12 MB among eight, more in larger swarms."""
    net = formed(8)
    thief = Thief(SECRET, net.crypto)
    meet_all(net, thief)
    meet_all(net, thief)
    node = net.hosts[0].node
    effects, sent = flood(net, thief, question)
    assert sent < 1_200_000
    assert [effect.code for effect in effects if isinstance(effect, Alarm)] == ["member-flood"]
    if isinstance(question, Ping):
        assert node.summary().counters["messages_over_rate"] == 1, "the rest of the frame is not read"
    else:
        assert node.summary().counters["messages_over_rate"] > 1_000
        assert thief.say(node, [Ping(9, b"12345678")], net.now)  # A large repair makes nobody look dead.
    net.now += 20 * S
    assert flood(net, thief, Ping(10, b"12345678"), 1)[1] > 0
    assert flood(net, thief, Fingerprints(0, -1, b""), 1)[1] > 0


@pytest.mark.parametrize("ways", [1, 2, 5])
@pytest.mark.parametrize("question", [Fingerprints(0, -1, b""), EventVector((), 1), Sections((1, 2, 3, 4, 5), ())])
def test_law_who_names_many_ways_pays_for_all_of_them(question, ways):
    """A member names others' addresses as its ways, answers by none of them, and asks: what leaves is bounded."""
    net = formed(8)
    thief = Thief(SECRET, net.crypto)
    thief.address = WAYS.join(f"10.8.0.{way}:53" for way in range(ways))
    meet_all(net, thief)
    meet_all(net, thief)
    effects, _ = flood(net, thief, question)
    left = sum(len(one.data) * copies(one.destination) for one in effects if isinstance(one, SendDatagram))
    assert 0 < left < 1_200_000
    assert [effect.code for effect in effects if isinstance(effect, Alarm)] == ["member-flood"]


@pytest.mark.parametrize("question", [Fingerprints(0, -1, b""), EventVector((), 1), Sections((1, 2, 3, 4, 5), ())])
def test_who_asks_without_end_is_answered_at_a_bounded_rate(question):
    """What is asked once is answered whole; who goes on has 1 MiB of one member, and then twice a node's budget."""
    check_answers_have_a_rate(question)


def check_answers_have_a_rate(question):
    net = formed(8)
    thief = Thief(SECRET, net.crypto)
    meet_all(net, thief)
    meet_all(net, thief)
    flood(net, thief, question)
    seconds, sent = 300, []
    for _ in range(4 * seconds):
        net.now += S // 4
        sent.append(flood(net, thief, question, 20)[1])
    largest = 8 * 500  # An answer that was begun is finished.
    assert sum(sent) <= 1_048_576 + 2_000 * seconds + largest
    late = sum(sent[3 * seconds :])
    assert 0 < late <= 2_000 * seconds / 4 + largest, f"{late / seconds * 4:,.0f} B/s"


def test_whoever_claims_events_of_everybody_is_asked_for_them_once_and_not_for_each():
    """A claim costs its maker a few bytes for each origin; answered by a vector for each it would cost their square."""
    net = formed(20)
    for index in range(20):
        net.feed(index, UserEvent("hello", b""))
    net.run(2)
    victim, thief = net.hosts[0], Thief(SECRET, net.crypto)
    net.perform(victim, thief.meet(victim.node, net.now))
    perform, told = net.perform, []

    def count(host, effects):
        sends = [one for one in effects if isinstance(one, SendDatagram | SendStream)]
        told.extend(len(one.data) for one in sends if host is victim and one.destination == ADDRESS)
        perform(host, effects)

    net.perform = count
    claims = EventVector(tuple(sorted((host.node.node, 1 << 60) for host in net.hosts[1:])), 0)
    net.perform(victim, thief.say(victim.node, [claims], net.now))
    for _ in range(7):
        net.run(0.5)
        net.perform(victim, thief.say(victim.node, [thief.record()], net.now))
    vectors = [size for size in told if size > 20 * 20]
    assert 1 <= len(vectors) <= 4, f"{len(vectors)} answers of {sum(vectors)} bytes"


def test_whoever_asks_without_end_for_what_one_author_said_keeps_it_from_nobody():
    """The author is gone, one member asks all others for its events again and again: who lacks them still gets them."""
    net = formed(6)
    net.feed(5, UserEvent("first", b""))
    net.run(2)
    net.cut([3], [0, 1, 2, 4, 5])
    net.run(1)
    for number in range(20):
        net.feed(5, UserEvent(f"late-{number}", bytes(900)))
        net.run(1)
    net.kill(5)
    asker = net.hosts[4].node.node

    def ask_for_all():
        for host in net.hosts[:3]:
            core = host.node._core
            core.now_ns, before = net.now, len(core.port.effects)
            via = core.table.by_node[asker]
            host.node._swim.on_message(via, EventVector((), 1), via.address)
            del core.port.effects[before:]

    for _ in range(60):
        ask_for_all()
        net.run(0.25)
    net.blocked.clear()
    net.cut([3], [4])  # Nor does it tell.
    for _ in range(400):
        ask_for_all()
        net.run(0.1)
    assert len([one for _, who, one in net.delivered() if who == 3 and one.name.startswith("late-")]) == 20


def test_words_that_do_not_hold_are_checked_up_to_a_bound():
    """Records, events, metadata and link reports in others' names: each costs a signature check."""
    net = formed(3)
    thief = Thief(SECRET, net.crypto)
    meet_all(net, thief)
    meet_all(net, thief)
    node = net.hosts[0].node
    subject, incarnation = victim_facts(net, 1)
    words = [
        SignedEvent(encode(EventBody(subject, incarnation + 1, "x", b"")), bytes(64)),
        MetaEntry(encode(MetaBody(subject, incarnation + 1, "k", b"")), bytes(64)),
        Links(encode(LinksBody(subject, incarnation + 1, ())), bytes(64)),
        Alive(thief.record(node=subject, incarnation=incarnation + 1).body, bytes(64)),
        Record(sign_statement("node", b"x", [bytes(32)], net.crypto), thief.record(node=bytes(16)).body, bytes(64)),
    ]
    for word in words:
        checks = net.crypto.checks
        effects, _ = flood(net, thief, word)
        # A certificate by an unknown key is refused without a check, and costs a fifth of one.
        assert 80 < sum(isinstance(effect, Rejected) for effect in effects) <= 5 * 100 + 1
        assert net.crypto.checks - checks <= 101
        assert not thief.say(node, [Ping(1, b"12345678")], net.now)
        net.now += 20 * S
    assert thief.say(node, [Ping(2, b"12345678")], net.now)


def test_statements_that_bring_nothing_are_checked_up_to_a_bound():
    net = formed(3)
    thief = Thief(SECRET, net.crypto)
    meet_all(net, thief)
    meet_all(net, thief)
    forged = Envelope("node", b"x", ((key_id(net.crypto.public_key(dev_role_seeds(SECRET, "enrol")[0])), bytes(64)),))
    effects, _ = flood(net, thief, Statement("node", forged.encode()))
    assert sum(isinstance(effect, Rejected) for effect in effects) <= 251
    assert any(isinstance(effect, Alarm) and effect.code == "member-flood" for effect in effects)
    # What is true is still taken from the others.
    revocation = sign_statement(
        "revoke", Revocation("test", 1, (thief.node,), ""), dev_role_seeds(SECRET, "revoke")[:1], net.crypto
    )
    net.feed(1, Command("node", AddStatement("revoke", revocation)))
    net.run(2)
    assert all(host.node._core.trust.revoked == {thief.node} for host in net.hosts)


def test_accusations_over_the_rate_are_dropped_before_they_cost_a_signature_check():
    net = formed(3)
    thief = Thief(SECRET, net.crypto)
    meet_all(net, thief)
    node = net.hosts[0].node
    subject, incarnation = victim_facts(net, 1)
    for _ in range(200):
        body = encode(AccusationBody(thief.node, subject, incarnation, 0))
        thief.say(node, [Accusation(body, bytes(64))], net.now)
    counters = node.summary().counters
    assert counters["accusations_over_rate"] > 150
    assert counters["rejected"] < 50


def test_a_thief_speaks_for_nobody_else():
    """Forged alive, accusation, links, metadata, event in another's name: each is rejected and changes nothing."""
    net = formed(4)
    thief = Thief(SECRET, net.crypto)
    meet_all(net, thief)
    node = net.hosts[0].node
    other, incarnation = victim_facts(net, 1)
    third, third_incarnation = victim_facts(net, 2)
    digest = node.view_digest()
    rows = node.members()
    alive = encode(AliveBody(other, incarnation + 1, 1, 0, "6.6.6.6:6", bytes(32), "", ""))
    accuse = encode(AccusationBody(other, third, third_incarnation, 2))
    links = encode(LinksBody(other, 1 << 30, ((third, 1),)))
    meta = encode(MetaBody(other, 1 << 30, "k", b"v"))
    event = encode(EventBody(other, (1 << 20) + 1, "boo", b""))
    forged = [
        (Alive, "alive", alive),
        (Accusation, "accuse", accuse),
        (Links, "links", links),
        (MetaEntry, "meta", meta),
        (SignedEvent, "event", event),
    ]
    for message, kind, body in forged:
        for signature in (thief.sign(kind, body), bytes(64)):
            net.now += 2 * S  # After a forged accusation, a sender's next ones are not read for a second.
            effects = thief.say(node, [message(body, signature)], net.now)
            assert any(isinstance(effect, Rejected) for effect in effects), message
    stolen = Record(thief.identity.certificate, alive, thief.sign("alive", alive))
    thief.say(node, [stolen], net.now)
    assert node.view_digest() == digest
    assert [row for row in node.members() if row.name != "thief"] == [row for row in rows if row.name != "thief"]


def test_signatures_of_one_type_pass_for_no_other():
    net = formed(3)
    thief = Thief(SECRET, net.crypto)
    meet_all(net, thief)
    subject, incarnation = victim_facts(net, 1)
    body = encode(AccusationBody(thief.node, subject, incarnation, 2))
    effects = thief.say(net.hosts[0].node, [Accusation(body, thief.sign("alive", body))], net.now)
    assert any(isinstance(effect, Rejected) for effect in effects)


def test_two_sessions_for_one_boot_are_refused():
    net = formed(3)
    thief = Thief(SECRET, net.crypto)
    meet_all(net, thief)
    node = net.hosts[0].node
    twin = thief.record(incarnation=thief.incarnation + 1, session=b"t" * 32)
    effects = thief.say(node, [twin], net.now)
    assert any("two sessions" in effect.reason for effect in effects if isinstance(effect, Rejected))


def test_nobody_without_the_fleets_keys_gets_in():
    net = formed(3)
    stranger = Thief(b"some other fleet's secret", net.crypto)
    node = net.hosts[0].node
    before = len(node.members())
    for index in range(50):
        effects = stranger.meet(node, net.now + index)
        assert not any(isinstance(effect, SendDatagram) for effect in effects)
    assert len(node.members()) == before
    impostor = Thief(SECRET, net.crypto)
    impostor.identity = make_dev_identity(b"some other fleet's secret", "test", "impostor", net.crypto)
    effects = impostor.meet(node, net.now)
    assert any(isinstance(effect, Rejected) for effect in effects)
    assert len(node.members()) == before


# --- replay, reorder, truncate, oversize -----------------------------------------------------------------------------


@pytest.mark.parametrize("crypto", [NaClCrypto(), ModelCrypto()], ids=["nacl", "model"])
def test_replayed_frames_do_nothing(crypto):
    net = formed(3, crypto=crypto)
    net.keep_frames = True
    net.run(2)
    net.keep_frames = False
    frames = [(target, data) for _, target, data in net.frames if target == 0 and data[0] & 15 == 1]
    node = net.hosts[0].node
    digest = node.view_digest()
    opened = node.summary().counters.get("unopened", 0)
    for _, data in frames:
        node.handle(DatagramReceived(net.address(1), data), net.now)
    assert node.summary().counters["unopened"] == opened + len(frames)
    assert node.view_digest() == digest
    assert len(frames) > 10


def test_a_hello_from_an_earlier_life_brings_nobody_back():
    net = Net(3, start=False)
    net.keep_frames = True
    for index in range(3):
        net.feed(index, Started())
    net.run(3)
    hellos = [data for source, _, data in net.frames if source == 2 and data[0] & 15 == 4]
    net.kill(2)
    net.restart(2)
    net.run(2)
    incarnation = next(row for row in net.hosts[0].node.members() if row.name == "n002").incarnation
    for data in hellos:
        net.perform(net.hosts[0], net.hosts[0].node.handle(DatagramReceived(net.address(2), data), net.now))
    net.run(2)
    assert next(row for row in net.hosts[0].node.members() if row.name == "n002").incarnation >= incarnation
    assert net.formed()


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
        lambda: _signed(thief, Links, "links", LinksBody(thief.node, number(), ((node_id(), rng.randrange(1, 4)),))),
        lambda: _signed(thief, MetaEntry, "meta", MetaBody(thief.node, number(), "k", blob())),
        lambda: _signed(thief, SignedEvent, "event", EventBody(thief.node, number(), "e", blob())),
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


def _signed(thief, message, kind, body):
    raw = encode(body)
    return message(raw, thief.sign(kind, raw))


# --- floods: memory stays bounded ----------------------------------------------------------------------------------


def test_unknown_ids_and_names_do_not_grow_the_node():
    net = formed(3)
    thief = Thief(SECRET, net.crypto)
    meet_all(net, thief)
    node, rng = net.hosts[0].node, Random(3)
    members = len(node.members())
    for step in range(3_000):
        stranger = rng.randbytes(16)
        now = net.now + step * 10_000
        thief.say(node, [thief.accusation(stranger, 1 << 20), EventVector(((stranger, 5),), 1)], now)
        body = encode(EventBody(stranger, (1 << 20) + 1, "e", b""))
        thief.say(node, [SignedEvent(body, thief.sign("event", body))], now)
        node.handle(DatagramReceived(f"9.9.{step % 256}.{step // 256}:1", b"\x21" + rng.randbytes(60)), now)
    assert len(node.members()) == members
    assert len(node._swim.events.logs) <= members
    contacts = node._wire.first.contacts
    for held in (contacts._hello_sent_ns, contacts._noticed, contacts._groups, contacts._said, contacts._cookies):
        assert len(held) <= 1_024
    assert len(node._swim.membership.accusations.standing) <= members
    assert len(node._swim.membership.prober.open) <= 1_024


def test_the_member_table_is_bounded_and_makes_room_from_the_gone():
    config = SwimConfig(members_max=8)
    net = formed(3, swim=config)
    node = net.hosts[0].node
    for index in range(30):
        thief = Thief(SECRET, net.crypto, name=f"t{index}")
        thief.meet(node, net.now + index * S)
    assert len(node.members()) <= 9
    assert net.states(0)["n001"] is ALIVE


def test_whatever_metadata_one_member_says_to_whom_all_hold_the_same():
    """Other keys to each node, two values under one number: the views agree soon, and repair comes to an end."""
    net = formed(5)
    liar = net.hosts[4].node
    own = liar._core.own
    for index, host in enumerate(net.hosts[:4]):
        via = host.node._core.table.by_node[own.node]
        host.node._wire.effects = []
        host.node._core.now_ns = net.now
        for key in range(64):
            body = encode(MetaBody(own.node, own.incarnation + 1 + 64 * index + key, f"n{index}k{key}", b"x"))
            word = MetaEntry(body, net.crypto.sign(own.seed, signed_bytes("meta", body)))
            host.node._swim.metadata.on_meta(word, via)
        body = encode(MetaBody(own.node, own.incarnation + 1_000, "same", bytes([index])))
        word = MetaEntry(body, net.crypto.sign(own.seed, signed_bytes("meta", body)))
        host.node._swim.metadata.on_meta(word, via)
        net.perform(host, host.node._wire.effects)
    net.run(15)
    held = [host.node._core.table.by_node[own.node].repair.meta for host in net.hosts[:4]]
    assert all(one == held[0] for one in held)
    assert len(held[0]) == 64
    assert held[0]["same"][1] == bytes([3])
    assert len({host.node.view_digest() for host in net.hosts[:4]}) == 1


def test_of_two_link_reports_under_one_number_all_hold_the_same():
    net = formed(5)
    own = net.hosts[4].node._core.own
    for index, host in enumerate(net.hosts[:4]):
        other = net.hosts[(index + 1) % 4].node.node
        body = encode(LinksBody(own.node, own.incarnation + 1_000, ((other, 1),)))
        word = Links(body, net.crypto.sign(own.seed, signed_bytes("links", body)))
        host.node._wire.effects = []
        host.node._core.now_ns = net.now
        host.node._swim.membership.links.on_links(word, host.node._core.table.by_node[own.node])
        net.perform(host, host.node._wire.effects)
    net.run(15)
    assert len({host.node.view_digest() for host in net.hosts[:4]}) == 1


def test_metadata_of_a_member_is_bounded():
    net = formed(3, swim=SwimConfig(meta_bytes_max=1_000))
    thief = Thief(SECRET, net.crypto)
    meet_all(net, thief)
    node = net.hosts[0].node
    for index in range(100):
        thief.say(
            node, [_signed(thief, MetaEntry, "meta", MetaBody(thief.node, index + 1, f"k{index}", b"v" * 90))], net.now
        )
    row = next(row for row in node.members() if row.name == "thief")
    assert sum(map(len, row.meta.values())) <= 1_000


def test_local_requests_that_cannot_be_carried_out_change_nothing():
    net = formed(2)
    node = net.hosts[0].node
    digest = node.view_digest()
    for event in (
        UserEvent("", b""),
        UserEvent("x", bytes(100_000)),
        SetMeta("", b""),
        SetMeta("k", bytes(70_000)),
        Command("nowhere", None),
        Command("node", AddStatement("revoke", b"nonsense")),
    ):
        with pytest.raises(StateError):
            node.handle(event, net.now)
    assert node.view_digest() == digest


# --- clocks and timers ----------------------------------------------------------------------------------------------


def test_clock_jumps_accuse_nobody():
    """The monotonic clock leaps (suspend, a slow machine): the node blames itself."""
    net = formed(6)
    begin = net.now
    for _ in range(5):
        net.freeze(0)
        net.run(2.5)
        net.thaw(0)
        net.run(1)
    assert [e for _, who, e in net.changes(FAILED, begin) if who == 0 or e.name == "n000"] == []


def test_stale_and_foreign_timers_are_harmless():
    net = formed(3)
    node = net.hosts[0].node
    for key in (("swim", "tick"), ("swim", "old", 5), ("state", "x"), ("nothing",), ()):
        node.handle(TimerFired(key), net.now)
    assert net.formed()


def test_refusals_by_a_forger_do_not_kill_a_member_that_answers():
    """ICMP and RST can be forged on the path; the member's own answer cannot be prevented by that."""
    net = formed(5)
    begin = net.now
    for _ in range(200):
        for host in net.hosts:
            for other in range(5):
                if other != host.index:
                    net.feed(host.index, SendFailed(net.address(other), "refused"))
        net.run(0.05)
    net.run(2)
    assert net.changes(FAILED, begin) == []


# --- revocation, keys, journal --------------------------------------------------------------------------------------


def revocation(node):
    return sign_statement(
        "revoke", Revocation("test", 1, (node,), "stolen"), dev_role_seeds(SECRET, "revoke")[:1], ModelCrypto()
    )


def test_no_member_brings_a_revoked_node_back():
    """What the revoked one signed while it was a member, said again by one who still is; the revocation stands."""
    net = formed(4)
    thief, friend = Thief(SECRET, net.crypto), Thief(SECRET, net.crypto, "friend")
    for one in (thief, thief, friend, friend):
        meet_all(net, one)
    old = [thief.record(), thief.record(incarnation=(1 << 40) + 1, session=bytes(range(32)))]
    assert all("thief" in net.states(index) for index in range(4))
    net.feed(0, Command("node", AddStatement("revoke", revocation(thief.node))))
    net.run(2)
    certificate = Statement("node", thief.identity.certificate)
    for index, host in enumerate(net.hosts):
        for word in (*old, Alive(old[1].body, old[1].signature), certificate, ForwardJoin(0, old[1])):
            net.perform(host, friend.say(host.node, [word], net.now))
        assert "friend" in net.states(index), "it was heard"
    net.run(5)
    assert not any("thief" in net.states(index) for index in range(4))
    assert all(host.node._core.trust.certified(thief.node) is None for host in net.hosts)


def test_a_revoked_node_is_shut_out_wherever_it_is_heard_of():
    net = formed(5)
    thief = Thief(SECRET, net.crypto)
    meet_all(net, thief)
    statement = revocation(thief.node)
    net.feed(0, Command("node", AddStatement("revoke", statement)))
    assert net.run_until(lambda: all("thief" not in net.states(index) for index in range(5)), 2) is not None
    for host in net.hosts:
        thief.meet(host.node, net.now)
    assert all("thief" not in net.states(index) for index in range(5))
    net.kill(3)
    net.restart(3)
    net.run(2)
    thief.meet(net.hosts[3].node, net.now)
    assert "thief" not in net.states(3), "the journal remembers"
    net.kill(4)
    net.restart(4, keep_journal=False)
    assert net.run_until(net.agreed, 5) is not None
    thief.meet(net.hosts[4].node, net.now)
    assert "thief" not in net.states(4), "and who lost its journal hears it from the others"


def test_group_key_rotation_with_a_node_away_during_all_of_it():
    net = formed(5)
    net.kill(4)
    net.run(3)
    for counter in (2, 3):
        key = GroupKey("test", counter, bytes((counter,)) * 32)
        statement = sign_statement("group", key, dev_role_seeds(SECRET, "enrol"), net.crypto)
        net.feed(1, Command("node", AddStatement("group", statement)))
        net.run(2)
    assert all(host.node.group_keys()[0] == b"\3" * 32 for host in net.hosts[:4])
    net.restart(4)
    assert net.run_until(net.formed, 5) is not None
    assert net.run_until(lambda: net.hosts[4].node.group_keys()[0] == b"\3" * 32, 5) is not None


def test_a_damaged_journal_is_survived():
    net = formed(3)
    rng = Random(1)
    journal = dict(net.hosts[0].journal)
    for _ in range(100):
        damaged = {
            key: rng.randbytes(rng.randrange(60)) if rng.random() < 0.5 else value for key, value in journal.items()
        }
        damaged[b"swim/meta/k"] = rng.randbytes(20)
        damaged[b"node/trust/revoke/x"] = rng.randbytes(20)
        node = Node(
            make_dev_identity(SECRET, "test", "n000", net.crypto),
            NodeConfig(),
            net.crypto,
            Random(2),
            damaged,
            [],
            "a:1",
        )
        assert any(isinstance(effect, Persist) for effect in node.handle(Started(), 5))


def test_one_identity_in_two_processes_raises_an_alarm_and_no_storm():
    net = Net(4, start=False)
    twin = net.hosts[3]
    twin.node = net.make(2, {})
    for index in range(4):
        net.feed(index, Started())
    net.run(5)
    for host in net.hosts:
        host.packets_out = 0
    net.run(5)
    assert sum(host.packets_out for host in net.hosts) / 4 / 5 < 60


def test_a_source_that_is_not_the_advertised_address_is_answered_where_it_asked():
    net = formed(2)
    thief = Thief(SECRET, net.crypto)
    effects = thief.meet(net.hosts[0].node, net.now)
    assert {effect.destination for effect in effects if isinstance(effect, SendDatagram)} >= {ADDRESS}


@pytest.mark.parametrize("seed", range(6))
def test_law_what_was_delivered_is_not_delivered_again_after_a_restart(seed):
    """Who answers first tells a node that starts of no events at all; the others then repair what was said long ago."""
    net = Net(6, seed=seed)
    net.run(10)
    for number in range(5):
        net.hosts[2].node._swim.events.say(f"evacuate-{number}", b"")
        net.run(1)
    net.run(60)
    assert {e.name for _, index, e in net.delivered() if index == 1} == {f"evacuate-{number}" for number in range(5)}
    net.hosts[0].node._swim.events.vector = tuple
    real, delay_ns = net.carry, net.delay_ns

    def carry(host, destination, event, loss):
        net.delay_ns = delay_ns // 10 if 0 in (host.index, net.index(destination)) else 5 * delay_ns
        real(host, destination, event, loss)

    net.carry = carry
    before = len(net.delivered())
    # Of longer ago than the journal holds events: how far each origin was delivered it holds all the same.
    journal = net.hosts[1].journal
    for key in [key for key in journal if key.startswith(EVENTS_IN_JOURNAL)]:
        del journal[key]
    net.restart(1)
    net.run(20)
    assert [e.name for _, _, e in net.delivered()[before:]] == []
    assert net.hosts[1].node.summary().counters["events_told_before"] == 5, "the lie was believed, and harmed nobody"
    net.hosts[2].node._swim.events.say("new", b"")
    net.run(5)
    assert "new" in [e.name for _, index, e in net.delivered()[before:] if index == 1]
