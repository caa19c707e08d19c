"""Hostile and broken input: forged, replayed, stolen keys, floods, unknown ids, clock jumps. Nothing grows."""

import os
from random import Random

import pytest

from swarmd_protocols.channel.codec import encode
from swarmd_protocols.crypto import ModelCrypto, NaClCrypto
from swarmd_protocols.effects import (
    Command,
    DatagramReceived,
    MemberState,
    Persist,
    Rejected,
    SendDatagram,
    SendFailed,
    Started,
    TimerFired,
)
from swarmd_protocols.node import Node, NodeConfig
from swarmd_protocols.swim.event_shelf import _KEY as EVENTS_IN_JOURNAL
from swarmd_protocols.swim.messages import (
    Accusation,
    AccusationBody,
    Alive,
    AliveBody,
    EventBody,
    ForwardJoin,
    Links,
    LinksBody,
    MetaBody,
    MetaEntry,
    Record,
    SignedEvent,
    Statement,
)
from swarmd_protocols.trust.envelopes import sign_statement
from swarmd_protocols.trust.identity import dev_role_seeds, make_dev_identity
from swarmd_protocols.trust.payloads import GroupKey, Revocation
from swarmd_protocols.trust.requests import AddStatement
from tests.support.swim_net import SECRET, Net, S
from tests.support.swim_thief import ADDRESS, Thief, formed, meet_all, victim_facts

FAILED, ALIVE = MemberState.FAILED, MemberState.ALIVE


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


@pytest.mark.parametrize("is_known", [True, False])
def test_who_alone_was_told_the_newest_group_key_meets_the_others(is_known):
    """Officers hand a new key to a node that begins and has met nobody: it greets, and is asked, under a key that the
    others cannot open. They lack it until they meet.
    """
    net = Net(5, start=False)
    for index in range(5 if is_known else 4):
        net.feed(index, Started())
    net.run(5)
    net.cut([4], [0, 1, 2, 3])
    if is_known:
        net.kill(4)
        net.run(3)
        net.restart(4, keep_journal=False)
    else:
        net.feed(4, Started())
    for counter in (2, 3):
        key = GroupKey("test", counter, bytes((counter,)) * 32)
        statement = sign_statement("group", key, dev_role_seeds(SECRET, "enrol"), net.crypto)
        net.feed(4, Command("node", AddStatement("group", statement)))
    net.run(2)
    assert len(net.states(4)) == 1, "it has met nobody yet"
    net.blocked.clear()
    assert net.run_until(lambda: all(host.node.group_keys()[0] == b"\3" * 32 for host in net.hosts), 15) is not None
    assert net.run_until(net.formed, 5) is not None


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
    """The two who answer first tell a node that starts of no events; the others then repair what was said long ago."""
    net = Net(6, seed=seed)
    net.run(10)
    for number in range(5):
        net.hosts[2].node._swim.events.say(f"evacuate-{number}", b"")
        net.run(1)
    net.run(60)
    assert {e.name for _, index, e in net.delivered() if index == 1} == {f"evacuate-{number}" for number in range(5)}
    for liar in (0, 3):
        net.hosts[liar].node._swim.events.vector = tuple
    real, delay_ns = net.carry, net.delay_ns

    def carry(host, destination, event, loss):
        net.delay_ns = delay_ns // 10 if {0, 3} & {host.index, net.index(destination)} else 5 * delay_ns
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
