"""A stolen key against partial views: it takes one place at most, fills no view, and speaks for nobody else."""

from random import Random

import pytest

from swarmd_protocols.channel.codec import encode, join
from swarmd_protocols.effects import DatagramReceived, MemberState, UserEvent
from swarmd_protocols.swim.messages import (
    DISCONNECT,
    NEIGHBOR_ACCEPT,
    NEIGHBOR_ASK,
    NEIGHBOR_JOIN,
    NEIGHBOR_PLEASE,
    NEIGHBOR_REJECT,
    PARTIAL_VIEW,
    CertifiedEvent,
    EventBody,
    ForwardJoin,
    Hello,
    Neighbor,
    NeighborAddresses,
    Record,
    Shuffle,
    SizeEstimate,
)
from tests.support.partial_net import SMALL, bounded, neighbours, overlay, partial_net, settled
from tests.support.swim_net import SECRET, Net, S
from tests.support.swim_thief import Thief

pytestmark = pytest.mark.slow


@pytest.fixture
def net():
    return partial_net(count=20, seconds=20.0)


def own_record(host):
    own = host.node._core.own
    import msgspec

    return msgspec.msgpack.decode(own.encoded_record, type=Record)


def attack(net, at, thief, messages):
    host = net.hosts[at]
    net.perform(host, thief.say(host.node, messages, net.now))


def meet(net, at, name="thief"):
    thief = Thief(SECRET, net.crypto, name=name)
    net.perform(net.hosts[at], thief.meet(net.hosts[at].node, net.now))
    return thief


def names(net, at):
    return {member.name for member in net.hosts[at].node._core.table.reachable}


def test_one_key_takes_one_place_however_often_it_asks(net):
    thief = meet(net, 3)
    for _ in range(200):
        attack(
            net,
            3,
            thief,
            [
                Neighbor(NEIGHBOR_JOIN, 40),
                Neighbor(NEIGHBOR_PLEASE, 40),
                Neighbor(NEIGHBOR_ASK, 40),
                Neighbor(NEIGHBOR_ACCEPT, 40),
            ],
        )
        net.run(0.02)
        assert sum(name == "thief" for name in names(net, 3)) <= 1
        assert len(names(net, 3)) >= SMALL.active_view - 1
    bounded(net)
    assert net.run_until(lambda: "thief" not in names(net, 3), 20, 0.5) is not None, "it answers no ping"


def test_nobody_becomes_a_neighbour_without_being_asked(net):
    thief = meet(net, 3)
    before = neighbours(net)[3]
    attack(net, 3, thief, [Neighbor(NEIGHBOR_ACCEPT, 40), Neighbor(NEIGHBOR_REJECT, 40), Neighbor(DISCONNECT, 40)])
    assert neighbours(net)[3] == before


def test_many_keys_that_push_in_do_so_at_a_bounded_rate(net):
    """Ten thieves at once: a view that is full makes room for four of them, then for one a second."""
    thieves = [meet(net, 3, f"t{index}") for index in range(10)]
    for thief in thieves:
        attack(net, 3, thief, [Neighbor(NEIGHBOR_PLEASE, 40)])
    assert sum(name.startswith("t") for name in names(net, 3)) <= 6
    assert sum(name.startswith("n") for name in names(net, 3)) >= 1
    assert net.run_until(lambda: settled_at(net, 3), 60, 1.0) is not None


def settled_at(net, at):
    return not any(name.startswith("t") for name in names(net, at)) and len(names(net, at)) >= SMALL.active_view - 1


def test_records_that_are_forged_or_of_strangers_are_not_kept(net):
    thief = meet(net, 3)
    attack(net, 3, thief, [Neighbor(NEIGHBOR_PLEASE, 40)])
    rng, view = Random(3), overlay(net, 3)
    known = own_record(net.hosts[11])
    strangers = Thief(b"some other fleet's secret", net.crypto, name="x").record()
    forged = [
        Record(known.certificate, known.body, rng.randbytes(64)),
        Record(rng.randbytes(150), known.body, known.signature),
        Record(known.certificate, rng.randbytes(80), known.signature),
        Record(known.certificate, thief.record().body, thief.record().signature),
        strangers,
    ]
    before = dict(view.shelf.passive)
    for record in forged:
        attack(net, 3, thief, [Shuffle(False, (record,)), ForwardJoin(0, record)])
        net.run(2)
    fresh = {node: entry for node, entry in view.shelf.passive.items() if node not in before}
    assert all(entry.record != record for entry in fresh.values() for record in forged)
    assert thief.node not in {
        member.node for member in net.hosts[3].node._core.table.by_node.values() if not member.name
    }


def test_one_neighbour_fills_a_third_of_the_passive_view_at_most(net):
    """A member-list attack: records of forty accomplices, all properly enrolled."""
    thief = meet(net, 3)
    accomplices = [Thief(SECRET, net.crypto, name=f"a{index}").record() for index in range(40)]
    for at in range(0, 40, 2):
        attack(net, 3, thief, [Shuffle(False, tuple(accomplices[at : at + 2]))])
        net.run(3)
    view = overlay(net, 3)
    assert sum(entry.via == thief.node for entry in view.shelf.passive.values()) <= SMALL.passive_view // 3
    bounded(net)


def test_records_cost_their_sender_credit(net):
    thief = meet(net, 3)
    node = net.hosts[3].node
    before = node.summary().counters.get("records_over_rate", 0)
    record = own_record(net.hosts[11])
    sent = net.hosts[3].packets_out
    for _ in range(100):
        attack(net, 3, thief, [ForwardJoin(8, record)])
    assert node.summary().counters["records_over_rate"] - before >= 80
    assert net.hosts[3].packets_out - sent <= 40


def test_the_view_of_a_small_swarm_is_not_narrowed_by_a_liar():
    net = Net(6)
    assert net.run_until(net.formed, 5) is not None
    net.run(2)
    thieves = [meet(net, 2, name) for name in ("thief", "t1")]
    for _ in range(20):
        for thief in thieves:
            attack(
                net,
                2,
                thief,
                [Neighbor(kind, 2**32) for kind in (NEIGHBOR_ASK, DISCONNECT, PARTIAL_VIEW, NEIGHBOR_REJECT)],
            )
        net.run(0.2)
    assert not net.hosts[2].node.summary().partial


def test_an_event_in_anothers_name_is_refused(net):
    thief = meet(net, 3)
    record = own_record(net.hosts[11])
    body = encode(EventBody(net.hosts[11].node.node, (9 << 20) + 1, "forged", b""))
    signed = thief.sign("event", body)
    attack(
        net,
        3,
        thief,
        [CertifiedEvent(record.certificate, body, signed), CertifiedEvent(thief.identity.certificate, body, signed)],
    )
    net.run(2)
    assert [e for _, _, e in net.delivered() if e.name == "forged"] == []


def test_what_a_neighbour_claims_costs_no_more_than_a_few_frames(net):
    """A circle of victims' addresses, minima of a huge swarm, fingerprints of nothing."""
    thief = meet(net, 3)
    attack(net, 3, thief, [Neighbor(NEIGHBOR_PLEASE, 40)])
    assert "thief" in names(net, 3)
    victims = NeighborAddresses(tuple(f"10.0.99.{index}:7946" for index in range(12)))
    sent = net.hosts[3].packets_out
    for step in range(50):
        attack(net, 3, thief, [victims, SizeEstimate(step * 1_000, b"\xff" * 32, bytes(range(24)))])
    net.run(8)
    assert net.hosts[3].packets_out - sent < 400
    assert net.hosts[3].node.summary().estimated < 2**40


def test_sealed_nonsense_never_raises_in_a_partial_view(net):
    thief = meet(net, 3)
    host, rng = net.hosts[3], Random(5)
    record = thief.record()
    good = [
        Neighbor(NEIGHBOR_PLEASE, 5), ForwardJoin(5, record), Shuffle(True, (record, record)),
        NeighborAddresses(("", "x" * 64)),
        SizeEstimate(3, bytes(32), bytes(24)), CertifiedEvent(b"", b"", bytes(64)),
    ]  # fmt: skip
    for _ in range(1_500):
        parts = bytearray(join([encode(rng.choice(good)) for _ in range(rng.randrange(1, 4))]))
        for _ in range(rng.randrange(4)):
            parts[rng.randrange(len(parts))] = rng.randrange(256)
        sealed = thief.channel.seal(thief.sessions[host.node.node], 1, bytes(parts))
        net.now += 10_000_000
        net.perform(host, host.node.handle(DatagramReceived(thief.address, sealed[:1200]), net.now))
    net.run(1)
    bounded(net)
    net.feed(3, UserEvent("well", b""))
    net.run(2)
    assert sum(e.name == "well" for _, _, e in net.delivered()) == 20


def test_a_liar_about_the_dead_brings_nobody_back(net):
    """A neighbour goes on handing out the record of a dead node: it is asked, does not answer, and is no neighbour."""
    thief = meet(net, 3)
    record = own_record(net.hosts[11])
    net.hosts[11].dark = True
    net.kill(11)
    net.run(6)
    begin = net.now
    for _ in range(20):
        attack(net, 3, thief, [Shuffle(False, (record,))])
        net.run(1)
    assert 11 not in neighbours(net)[3]
    assert [e for at, _, e in net.changes(MemberState.ALIVE, begin) if e.name == "n011"] == []
    net.hosts[11].dark = False
    net.restart(11)
    assert net.run_until(lambda: settled(net), 90, 1.0) is not None
    assert net.now - begin < 200 * S


def test_a_greeting_that_asks_for_nothing_is_not_answered(net):
    """Two nodes that have forgotten each other greeted each other for ever once; it doubled the traffic."""
    thief = meet(net, 3)
    net.run(2)
    host = net.hosts[3]
    greeting = thief.channel.seal_group(join([encode(thief.record()), encode(Hello(False))]))
    sent = host.packets_out
    net.perform(host, host.node.handle(DatagramReceived(thief.address, greeting), net.now))
    assert host.packets_out == sent
