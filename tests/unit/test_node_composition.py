"""The node carries sub-protocols: rides, summaries, sends, timers, commands, peers, journal, datagram bound."""

from random import Random

import pytest

from swarmd_protocols.channel.codec import encode, join
from swarmd_protocols.crypto import ModelCrypto
from swarmd_protocols.effects import (
    Command,
    DatagramReceived,
    MemberState,
    Persist,
    SendCast,
    SendDatagram,
    SendStream,
    SetTimer,
    Started,
    StateChanged,
    StreamReceived,
)
from swarmd_protocols.errors import IdentityError, StateError
from swarmd_protocols.node import Node, NodeConfig
from swarmd_protocols.subprotocol import Cast, Priority, Send
from swarmd_protocols.swim.messages import Sub
from swarmd_protocols.trust.envelopes import sign_statement
from swarmd_protocols.trust.identity import Identity, dev_role_seeds, make_dev_identity
from swarmd_protocols.trust.payloads import GroupKey, Revocation
from swarmd_protocols.trust.requests import AddStatement
from tests.support.swim_net import MS, SECRET, Net


class Gossip:
    """A greedy little sub-protocol: a set of words, offered in every datagram until it was offered thrice."""

    name = "words"

    def __init__(self, size=20):
        self.size = size
        self.words = set()
        self.offers = {}
        self.peers = ()
        self.got = []
        self.summaries = []
        self.ticks = 0

    def start(self, now_ns):
        return [SetTimer(("words", "tick"), now_ns + 100 * MS)]

    def on_message(self, sender, payload, now_ns):
        self.got.append((sender, payload))
        if len(payload) <= self.size and payload not in self.words:
            self.words.add(payload)
            self.offers[payload] = 3
            return [StateChanged("words", payload)]
        return []

    def on_timer(self, key, now_ns):
        self.ticks += 1
        return [SetTimer(key, now_ns + 100 * MS)]

    def on_command(self, request, now_ns):
        if request == "refuse":
            raise StateError("refused")
        if isinstance(request, Send):
            return [request]
        self.words.add(request)
        self.offers[request] = 3
        return [Persist(b"words/" + request, request)]

    def on_peers(self, peers, now_ns):
        self.peers = peers
        return []

    def summary(self):
        return sum(hash(int.from_bytes(word, "big")) for word in self.words).to_bytes(16, "big", signed=False)

    def on_summary(self, sender, summary, now_ns):
        self.summaries.append(summary)
        if summary == self.summary():
            return []
        return [Send(sender, word, True, Priority.SYNC) for word in sorted(self.words)]

    def piggyback(self, budget_bytes, now_ns):
        taken = []
        for word in sorted(self.offers):
            if len(word) <= budget_bytes and self.offers[word] > 0:
                self.offers[word] -= 1
                budget_bytes -= len(word)
                taken.append(word)
        return taken


def swarm(count=4, size=20, **options):
    subs = {}

    def make(index):
        subs[index] = Gossip(size)
        return [subs[index]]

    net = Net(count, subs=make, **options)
    assert net.run_until(net.formed, 5) is not None
    net.run(0.5)
    return net, subs


def test_payloads_ride_and_differences_are_found_by_summary():
    net, subs = swarm(8)
    net.feed(2, Command("words", b"hello"))
    assert net.run_until(lambda: all(b"hello" in sub.words for sub in subs.values()), 5) is not None
    net.run(1)
    assert any(sub.summaries for sub in subs.values())
    told = sum(len(sub.summaries) for sub in subs.values())
    net.run(2)
    assert sum(len(sub.summaries) for sub in subs.values()) == told, "equal summaries are not sent"


@pytest.mark.slow
def test_a_greedy_rider_never_bursts_the_datagram():
    """Every size around the room that is left; `Net` asserts the 1,200 bytes."""
    net, subs = swarm(3, size=1_200)
    rng = Random(4)
    for _ in range(60):
        for _ in range(rng.randrange(1, 30)):
            net.feed(0, Command("words", rng.randbytes(rng.choice((1, 20, 31, 32, 100, 255, 256, 900, 1_000, 1_100)))))
        net.run(0.3)
    net.run(4)
    assert net.formed()
    assert subs[1].words == subs[0].words


@pytest.mark.parametrize(("size", "reliable"), [(10, False), (1_000, False), (10, True), (300_000, True)])
def test_sends_arrive_at_their_addressee_only(size, reliable):
    net, subs = swarm(3, size=5)
    to = net.hosts[2].node.node
    net.feed(0, Command("words", Send(to, b"z" * size, reliable, Priority.BULK)))
    net.run(0.2)
    assert subs[2].got == [(net.hosts[0].node.node, b"z" * size)]
    assert subs[1].got == []


def test_sends_to_nobody_are_counted_and_dropped():
    net, _ = swarm(2)
    net.feed(0, Command("words", Send(b"?" * 16, b"z", True, Priority.SYNC)))
    assert net.hosts[0].node.summary().counters["sends_to_nobody"] == 1


def test_timers_commands_and_peers_are_routed():
    net, subs = swarm(4)
    ticks = subs[0].ticks
    net.run(1)
    assert subs[0].ticks >= ticks + 9
    nodes = [peer.node for peer in subs[0].peers]
    assert nodes == sorted(host.node.node for host in net.hosts[1:])
    assert all(peer.reachable for peer in subs[0].peers)
    net.kill(3)
    assert net.run_until(lambda: net.all_see(MemberState.FAILED, 3), 5) is not None
    net.run(0.5)
    assert [peer.name for peer in subs[0].peers if not peer.reachable] == ["n003"]
    with pytest.raises(StateError, match="refused"):
        net.feed(0, Command("words", "refuse"))
    with pytest.raises(StateError, match="no sub-protocol 'verbs'"):
        net.feed(0, Command("verbs", "x"))


def test_the_first_effect_of_a_life_is_its_durable_boot_number():
    net = Net(1, start=False)
    effects = net.hosts[0].node.handle(Started(), net.now)
    assert effects[0] == Persist(b"node/boot", (1).to_bytes(8, "big"))
    again = net.make(0, {b"node/boot": (41).to_bytes(8, "big")})
    assert again.handle(Started(), net.now)[0] == Persist(b"node/boot", (42).to_bytes(8, "big"))


def test_members_lists_what_the_command_line_shows():
    net, _ = swarm(3)
    net.run(3)
    rows = net.hosts[0].node.members()
    assert [row.name for row in rows] == ["n000", "n001", "n002"]
    assert [row.quality for row in rows] == ["self", "good", "good"]
    assert all(row.version == "1" and row.capability == "eye" for row in rows)
    assert rows[1].rtt_ns is not None
    assert 2 * MS <= rows[1].rtt_ns <= 4 * MS
    summary = net.hosts[0].node.summary()
    assert list(summary.members) == ["n000", "n001", "n002"]
    assert summary.digest == net.hosts[1].node.summary().digest
    assert (summary.name, summary.swarm, summary.local_health) == ("n000", "test", 0)


def test_an_identity_that_does_not_hold_is_refused():
    crypto = ModelCrypto()
    good = make_dev_identity(SECRET, "test", "a", crypto)
    for bad in (
        Identity(bytes(32), good.certificate, good.roots, good.group_keys),
        Identity(good.seed, good.certificate, good.roots, ()),
        Identity(good.seed, b"", good.roots, good.group_keys),
    ):
        with pytest.raises(IdentityError):
            Node(bad, NodeConfig(), crypto, Random(1), {}, [], "a:1")


def test_a_cast_reaches_the_sub_protocols_that_hear_casts_and_nothing_else():
    heard = []

    class Hearing(Gossip):
        def on_command(self, request, now_ns):
            return [request]

        def on_cast(self, payload, now_ns):
            heard.append(payload)
            return []

    class Deaf(Gossip):
        name = "deaf"

    identities = [make_dev_identity(SECRET, "test", f"n{index}", ModelCrypto()) for index in range(2)]
    nodes = [
        Node(one, NodeConfig(), ModelCrypto(), Random(index), {}, [Hearing(), Deaf()], f"10.0.0.{index}:1")
        for index, one in enumerate(identities)
    ]
    for node in nodes:
        node.handle(Started(), 0)
    (sent,) = [e for e in nodes[0].handle(Command("words", Cast(b"piece")), 1) if isinstance(e, SendCast)]
    opened = []
    nodes[1].on_cast_opened = lambda source, nonce: opened.append((source, nonce))
    nodes[1].handle(DatagramReceived("10.0.0.9:1", sent.data[:-1] + bytes([sent.data[-1] ^ 1])), 2)
    assert not opened, "somebody without the key"
    nodes[1].handle(DatagramReceived("10.0.0.0:1", sent.data), 2)
    assert heard == [b"piece"]
    assert opened == [("10.0.0.0:1", sent.data[5:29])]
    nodes[1].handle(StreamReceived("10.0.0.0:1", sent.data), 3)
    assert heard == [b"piece"], "a cast is a datagram"
    large = nodes[0].handle(Command("words", Cast(bytes(1_200))), 4)
    assert not [e for e in large if isinstance(e, SendCast)], "it must fit one"
    deaf = nodes[0]._wire.channel.seal_cast(join([encode(Sub("deaf", b"x"))]))
    assert nodes[1].handle(DatagramReceived("10.0.0.0:1", deaf), 5) is not None
    assert not nodes[1]._subs["deaf"].got, "what others may forge never comes as a message"


@pytest.mark.parametrize("kind", ["revoke", "group"])
def test_sub_protocols_hear_of_new_trust_before_it_is_journalled_or_spread(kind):
    """Nothing new goes out before every room has judged anew who may have it."""
    mark = Persist(b"words/judged", b"")

    class Judge(Gossip):
        def on_trust(self, now_ns):
            return [mark]

    net = Net(3, subs=lambda index: [Judge()])
    net.run(5)
    enrol, revoke = (dev_role_seeds(SECRET, role)[:1] for role in ("enrol", "revoke"))
    signed = {
        "revoke": sign_statement("revoke", Revocation("test", 2, (b"x" * 16,), ""), revoke, net.crypto),
        "group": sign_statement("group", GroupKey("test", 2, bytes(32)), enrol, net.crypto),
    }
    effects = net.hosts[0].node.handle(Command("node", AddStatement(kind, signed[kind])), net.now)
    kept = next(at for at, one in enumerate(effects) if isinstance(one, Persist) and signed[kind] == one.value)
    sent = [at for at, one in enumerate(effects) if isinstance(one, SendDatagram | SendStream)]
    assert effects.index(mark) < min([kept, *sent])
