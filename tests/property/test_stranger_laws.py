"""Law: outsiders cost nothing. No bytes of a stranger earn more bytes, and none keeps a newcomer out.

A stranger holds no key of the fleet. It may send any bytes from any address, as often as it likes, and play again what
it has recorded of others.
"""

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from swarmd_protocols.channel.bucket import TokenBucket
from swarmd_protocols.channel.channel import CONTACT, COOKIE, DATAGRAM, GROUP, NOTICE, WIRE_VERSION, Channel
from swarmd_protocols.channel.codec import encode, join
from swarmd_protocols.channel.contact import Contacts
from swarmd_protocols.crypto import ModelCrypto
from swarmd_protocols.effects import DatagramReceived, Effect, SendDatagram, SendStream, Started
from swarmd_protocols.swim.messages import Hello
from tests.support.swim_net import MS, SECRET, Net, S
from tests.support.swim_thief import Thief

MEMBERS = 6
RATE_PER_S = 10_000


class CountingCrypto(ModelCrypto):
    """Counts what a frame makes a node compute."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def open(self, key: bytes, nonce: bytes, sealed: bytes) -> bytes | None:
        self.calls["open"] += 1
        return super().open(key, nonce, sealed)

    def verify(self, public_key: bytes, message: bytes, signature: bytes) -> bool:
        self.calls["verify"] += 1
        return super().verify(public_key, message, signature)

    def shared_key(self, secret: bytes, public: bytes) -> bytes:
        self.calls["shared_key"] += 1
        return super().shared_key(secret, public)


def swarm(count: int = MEMBERS, seed: int = 5, crypto: ModelCrypto | None = None) -> Net:
    """`count` members that know each other, and one more that has not started."""
    net = Net(count + 1, seed, start=False, crypto=crypto)
    net.hosts[count].up = False
    net.keep_frames = True
    for index in range(count):
        net.feed(index, Started())
    assert net.run_until(net.formed, 5) is not None
    net.run(1)
    net.keep_frames = False
    return net


def sent_bytes(effects: list[Effect]) -> int:
    return sum(len(effect.data) for effect in effects if isinstance(effect, SendDatagram | SendStream))


def source(number: int) -> str:
    return f"192.0.2.{number % 250 + 1}:{1_000 + number // 250 % 60_000}"


def head(kind: int) -> bytes:
    """The first byte of a frame: strangers speak the present version."""
    return bytes((WIRE_VERSION << 4 | kind,))


# --- what a stranger can send --------------------------------------------------------------------------------------


def unknown_tag(rng: Random, net: Net) -> bytes:
    return head(DATAGRAM) + rng.randbytes(24 + rng.randrange(40))


def known_tag(rng: Random, net: Net) -> bytes:
    tag = net.hosts[rng.randrange(len(net.hosts) - 1)].node._wire.channel.tag
    return head(DATAGRAM) + tag + rng.randbytes(20 + rng.randrange(60))


def forged_hello(rng: Random, net: Net) -> bytes:
    return head(GROUP) + (1).to_bytes(4, "big") + rng.randbytes(40 + rng.randrange(400))


def forged_contact(rng: Random, net: Net) -> bytes:
    return head(CONTACT) + rng.randbytes(16) + forged_hello(rng, net)


def forged_notice(rng: Random, net: Net) -> bytes:
    tag = net.hosts[rng.randrange(len(net.hosts) - 1)].node._wire.channel.tag
    return head(NOTICE) + tag + rng.randbytes(20)


def forged_cookie(rng: Random, net: Net) -> bytes:
    return head(COOKIE) + rng.randbytes(40)


def replayed(rng: Random, net: Net) -> bytes:
    return net.frames[rng.randrange(len(net.frames))][2]


def garbage(rng: Random, net: Net) -> bytes:
    return rng.randbytes(rng.randrange(1, 1_300))


KINDS: list[Callable[[Random, Net], bytes]] = [
    unknown_tag, known_tag, forged_hello, forged_contact, forged_notice, forged_cookie, replayed, garbage,
]  # fmt: skip


def from_a_member(rng: Random, net: Net) -> str:
    return net.address(rng.randrange(MEMBERS))


# --- laws ----------------------------------------------------------------------------------------------------------


def test_answers_to_strangers_are_no_longer_than_what_they_sent():
    net, rng = swarm(), Random(11)
    for _ in range(4_000):
        kind = rng.choice(KINDS)
        frame = kind(rng, net)
        net.now += MS
        host = net.hosts[rng.randrange(MEMBERS)]
        origin = from_a_member(rng, net) if rng.random() < 0.3 else source(rng.getrandbits(24))
        # A recorded hello that never came here is a first contact of a member, for one answer.
        allowed = 1_200 if frame[0] & 15 == GROUP and kind is replayed else len(frame)
        assert sent_bytes(host.node.handle(DatagramReceived(origin, frame), net.now)) <= allowed


def test_a_frame_that_is_played_again_earns_nothing():
    net = swarm()
    host = net.hosts[0]
    hellos = {frame for _, to, frame in net.frames if to == 0 and frame[0] & 15 == GROUP}
    assert hellos
    for number in range(2_000):
        net.now += MS
        frame = sorted(hellos)[number % len(hellos)]
        assert not sent_bytes(host.node.handle(DatagramReceived(source(number), frame), net.now))


def test_a_stranger_makes_nobody_verify_or_agree_on_keys():
    crypto = CountingCrypto()
    net = swarm(crypto=crypto)
    node, rng = net.hosts[0].node, Random(8)
    for kind in KINDS:
        node.handle(DatagramReceived(source(1), kind(rng, net)), net.now)
        crypto.calls.clear()
        for number in range(500):
            net.now += MS // 10
            node.handle(DatagramReceived(source(number), kind(rng, net)), net.now)
        assert crypto.calls["open"] <= 500, kind.__name__
        assert crypto.calls["verify"] + crypto.calls["shared_key"] == 0, kind.__name__


def joins_under(flood: Callable[[Random, Net], bytes], before: Callable[[Net], None] = lambda net: None) -> Net:
    """A newcomer is known by all in time while every member gets the flood."""
    net = swarm()
    rng, number = Random(9), 0
    step_ns = MS

    def send() -> None:
        nonlocal number
        for index in range(MEMBERS + 1):
            if net.hosts[index].up:
                for _ in range(RATE_PER_S * step_ns // S):
                    number += 1
                    net.feed(index, DatagramReceived(source(number), flood(rng, net)))
        net.at(net.now + step_ns, send)

    send()
    net.run(1)
    before(net)
    net.hosts[MEMBERS].up = True
    net.feed(MEMBERS, Started())
    assert net.run_until(net.formed, 5.0, 0.05) is not None
    assert all(host.node._core.counters["failures"] == 0 for host in net.hosts)
    return net


@pytest.mark.parametrize("kind", [unknown_tag, known_tag, forged_hello, replayed], ids=lambda kind: kind.__name__)
def test_a_newcomer_joins_under_a_flood(kind):
    joins_under(kind)


def test_junk_spends_nothing_of_what_newcomers_need():
    net, rng = swarm(2), Random(12)
    node = net.hosts[0].node
    for kind in (unknown_tag, known_tag, forged_hello, forged_contact, forged_notice, forged_cookie):
        for number in range(1_000):
            node.handle(DatagramReceived(source(number), kind(rng, net)), net.now)
    for number in range(50):
        newcomer = Thief(SECRET, net.crypto, name=f"newcomer-{number}")
        newcomer.address = f"10.8.0.{number + 1}:7946"
        assert sent_bytes(newcomer.meet(node, net.now))
        assert node.node in newcomer.sessions, "the answer is the member's record"


def test_a_newcomer_returns_its_cookie_when_nothing_is_left_without():
    """Whoever has recorded thousands of hellos can use up what is taken without a cookie."""

    def drained(net: Net) -> None:
        for host in net.hosts[:MEMBERS]:
            host.node._wire.first.contacts._unproven = TokenBucket(1e-6, 1)
            host.node._wire.first.contacts._unproven.take(net.now)

    newcomer = joins_under(unknown_tag, before=drained).hosts[MEMBERS].node
    assert newcomer.summary().counters.get("cookies_returned", 0)


def test_under_load_only_a_returned_cookie_is_answered_in_full():
    net = swarm(2)
    node, newcomer = net.hosts[0].node, Thief(SECRET, net.crypto, name="newcomer")
    contacts: Contacts = node._wire.first.contacts
    hello = join([encode(newcomer.record()), encode(Hello(True))])
    while contacts._unproven.take(net.now):
        pass
    first = newcomer.channel.seal_group(hello)
    (answer,) = node.handle(DatagramReceived(newcomer.address, first), net.now)
    assert isinstance(answer, SendDatagram)
    assert answer.data[0] & 15 == COOKIE
    assert len(answer.data) < len(first)
    cookie = newcomer.channel.open_cookie(answer.data, newcomer.channel.nonce_start(first))
    assert cookie is not None
    assert newcomer.channel.open_cookie(answer.data, bytes(8)) is None, "it answers one hello, and no other"
    elsewhere = newcomer.channel.contact(cookie, newcomer.channel.seal_group(hello))
    for effect in node.handle(DatagramReceived("192.0.2.1:9", elsewhere), net.now):
        assert not isinstance(effect, SendDatagram) or effect.data[0] & 15 == COOKIE, "a cookie is its address's own"
    returned = newcomer.channel.contact(cookie, newcomer.channel.seal_group(hello))
    answers = [
        e for e in node.handle(DatagramReceived(newcomer.address, returned), net.now) if isinstance(e, SendDatagram)
    ]
    assert answers[0].data[0] & 15 == GROUP
    assert newcomer.node in {member.node for member in node.members()}


def test_a_notice_is_believed_once_it_names_a_frame_of_this_boot():
    net = swarm(3)
    node, other = net.hosts[0].node, net.hosts[1].node
    session = node._core.table.by_node[other.node].session
    assert session is not None
    for counter in (0, session.past()[DATAGRAM] + 1, max(0, session.past()[DATAGRAM] - 64)):
        frame = head(DATAGRAM) + node._wire.channel.tag + counter.to_bytes(4, "big") + bytes(16)
        notice = other._wire.channel.seal_notice(frame)
        assert not sent_bytes(node.handle(DatagramReceived(net.address(1), notice), net.now))
    frame = head(DATAGRAM) + node._wire.channel.tag + session.past()[DATAGRAM].to_bytes(4, "big") + bytes(16)
    notice = other._wire.channel.seal_notice(frame)
    assert not sent_bytes(node.handle(DatagramReceived("192.0.2.1:9", notice), net.now)), "from nobody's address"
    net.run(1)
    counter = session.past()[DATAGRAM]
    frame = head(DATAGRAM) + node._wire.channel.tag + counter.to_bytes(4, "big") + bytes(16)
    notice = other._wire.channel.seal_notice(frame)
    assert sent_bytes(node.handle(DatagramReceived(net.address(1), notice), net.now))


@pytest.mark.parametrize("held", [1, 2], ids=["who was off while keys changed", "who holds the newest alone"])
def test_two_notices_reach_whoever_holds_either_group_key(held: int) -> None:
    """A hello under the old key came from its address; it may have been a thief's, who holds that key as well."""
    crypto, keys = ModelCrypto(), {1: b"a" * 32, 2: b"b" * 32}
    member, other, asker = (Channel(bytes([seed]) * 32, b"boot", crypto) for seed in range(3))
    member.set_group_keys(keys)
    other.set_group_keys(keys)
    asker.set_group_keys({held: keys[held]})
    contacts = Contacts(member, Counter())
    assert contacts.take("10.0.0.9:1", GROUP, other.seal_group(b"hello", 1), S) is not None
    pinged = head(DATAGRAM) + asker.tag + (5).to_bytes(4, "big") + bytes(16)
    notices = [contacts.notice("10.0.0.9:1", pinged, at * S, member=True) for at in (2, 3, 4)]
    believed = [Contacts(asker, Counter()).on_notice(notice or b"", 5) for notice in notices]
    assert believed.count(held) >= 1
