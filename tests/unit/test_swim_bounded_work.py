"""What one member can ask, claim and say costs each other member a bounded amount of work and memory."""

from random import Random

import pytest

from swarmd_protocols.channel.channel import STREAM
from swarmd_protocols.channel.codec import encode, join
from swarmd_protocols.effects import (
    Alarm,
    Command,
    DatagramReceived,
    MemberState,
    Rejected,
    SendDatagram,
    SendStream,
    SetMeta,
    StreamReceived,
    UserEvent,
)
from swarmd_protocols.errors import StateError
from swarmd_protocols.ids import WAYS, copies
from swarmd_protocols.swim.config import SwimConfig
from swarmd_protocols.swim.messages import (
    Accusation,
    AccusationBody,
    Alive,
    Buckets,
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
    Want,
)
from swarmd_protocols.trust.envelopes import Envelope, key_id, sign_statement, signed_bytes
from swarmd_protocols.trust.identity import dev_role_seeds
from swarmd_protocols.trust.payloads import Revocation
from swarmd_protocols.trust.requests import AddStatement
from tests.support.swim_net import SECRET, S, read_whole
from tests.support.swim_thief import ADDRESS, Thief, formed, meet_all, signed, victim_facts

FAILED, ALIVE = MemberState.FAILED, MemberState.ALIVE


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
            node, [signed(thief, MetaEntry, "meta", MetaBody(thief.node, index + 1, f"k{index}", b"v" * 90))], net.now
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
