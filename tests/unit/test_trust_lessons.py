"""A node that is alone because of keys learns why from whoever it greets, and comes back where that is right."""

from collections.abc import Iterator

import pytest

from swarmd.identity.fleet import Fleet
from swarmd.identity.renewal import due, renew
from swarmd_protocols.channel.codec import encode, join
from swarmd_protocols.effects import (
    Alarm,
    Command,
    DatagramReceived,
    MemberChanged,
    Rejected,
    SendDatagram,
    SendStream,
)
from swarmd_protocols.swim.lessons import GREETED_IN_VAIN
from swarmd_protocols.swim.messages import Statement
from swarmd_protocols.trust.envelopes import decode_envelope, sign_statement
from swarmd_protocols.trust.identity import enrol
from swarmd_protocols.trust.payloads import GroupKey, Revocation
from swarmd_protocols.trust.requests import AddStatement
from swarmd_protocols.trust.roots import mark
from tests.support.fleet_net import ALIVE, CRYPTO, FleetNet, fleet_folder


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    with fleet_folder() as made:
        yield made


def nodes(fleet: Fleet, count: int = 3) -> FleetNet:
    net = FleetNet(fleet, [fleet.enrol(f"n{index:03d}", "farm") for index in range(count)])
    net.run(5)
    assert net.formed()
    return net


def alarms(net: FleetNet, index: int) -> list[Alarm]:
    return [effect for _, host, effect in net.log if host == index and isinstance(effect, Alarm)]


def test_a_node_that_was_off_while_it_was_revoked_hears_why_when_it_greets(fleet: Fleet) -> None:
    net = nodes(fleet)
    net.kill(2)
    fleet.revoke("farm", [net.identities[2].node], "lost over\nthe sea")
    fleet.rotate("farm")
    net.push(0)
    net.run(2)
    gone = [e.reason for _, host, e in net.log if host == 0 and isinstance(e, MemberChanged) and e.name == "n002"]
    assert gone[-1] == "revoked: lost over?the sea", "peers say the reason, and nothing in it breaks a line"
    net.restart(2)
    net.run(5)
    assert [alarm.code for alarm in alarms(net, 2)] == ["revoked"]
    assert "revoked: lost over?the sea" in alarms(net, 2)[0].text
    assert net.hosts[2].node.trust().why_out == "revoked: lost over?the sea"
    assert net.hosts[2].node.trust().certificate == ""
    assert net.hosts[0].node.trust().revoked == {net.identities[2].node: "lost over?the sea"}
    assert max(net.trust(0).group_keys) not in net.trust(2).group_keys, "a lesson is no group key"
    net.restart(2)
    net.run(1)
    assert len(alarms(net, 2)) == 2, "it says so at every start"


def test_a_node_that_was_off_while_everybody_was_renewed_comes_back(fleet: Fleet) -> None:
    """Nobody whom it knows can be verified by the roots that it knows: it is shown the newer ones."""
    net = nodes(fleet)
    net.kill(2)
    for _ in range(3):
        fleet.change_role("enrol", 1, 1)
        list(renew(fleet, "farm", ["n000", "n001"]))
    fleet.rotate("farm")
    net.push(0)
    net.run(90)
    assert net.seen(0, "n001") is ALIVE, "roots came before the certificates that they need"
    net.restart(2)
    net.run(60)
    assert net.trust(2).root.version == 4
    assert [net.seen(index, f"n00{other}") for index in range(3) for other in range(3)] == [ALIVE] * 9


@pytest.mark.parametrize("off", [False, True])
def test_a_certificate_that_fell_is_renewed_in_the_swarm(fleet: Fleet, *, off: bool) -> None:
    """Its owner is alone, says why, and is a member again once an officer has signed; also one that was off."""
    identities = [fleet.enrol(f"n{index:03d}", "farm") for index in range(2)]
    old = identities[0]
    guest = enrol(b"on" * 16, "n002", "farm", old.roots, old.group_keys, fleet.seeds("enrol"), CRYPTO)
    net = FleetNet(fleet, [*identities, guest])
    net.run(5)
    assert net.formed()
    if off:
        net.kill(2)
    fleet.change_role("enrol", 1, 1)
    net.push(0)
    net.run(5)
    if off:
        net.restart(2)
    net.run(20)
    assert net.seen(0, "n002") is None
    assert net.seen(2, "n000") is not ALIVE
    assert [alarm.code for alarm in alarms(net, 2)] == ["not-certified"]
    assert f"root {fleet.root().version} stands behind none" in alarms(net, 2)[0].text

    fleet.record(guest)
    assert due(fleet, "farm")[-1] == "n002"
    signed = next(renew(fleet, "farm", ["n002"]))
    net.feed(1, Command("node", AddStatement("node", signed.data)))
    net.run(30)
    assert [net.seen(index, f"n00{other}") for index in range(3) for other in range(3)] == [ALIVE] * 9
    assert net.hosts[2].node.trust().why_out == ""
    net.restart(2)
    net.run(10)
    assert net.seen(0, "n002") is ALIVE, "it remembers its new certificate"


def test_where_nothing_was_missed_nothing_is_shown(fleet: Fleet) -> None:
    net = nodes(fleet)
    fleet.rotate("farm")
    net.push(0)
    for index in range(3):
        net.restart(index)
        net.run(5)
    assert net.formed()
    for host in net.hosts:
        assert "lessons" not in host.node.summary().counters


def test_who_greets_for_ever_is_shown_a_bounded_number(fleet: Fleet) -> None:
    """A revoked node that floods with greetings costs a few statements a second, and opens few connections."""
    net = nodes(fleet)
    thief = net.identities[2]
    fleet.revoke("farm", [thief.node], "stolen")
    for _ in range(2):
        fleet.change_role("heartbeat", 1, 8)
    net.push(0)
    net.run(5)
    node, before = net.hosts[0].node, net.hosts[0].node.summary().counters.get("lessons", 0)
    net.restart(2)
    own = net.hosts[2].node
    sent = 0
    for at in range(3_000):
        # The same node from ever new addresses, a hundred greetings a second.
        net.now += 10_000_000
        source = f"10.9.{at // 250 % 250}.{at % 250 + 1}:7946"
        own._wire.effects = []
        own._core.now_ns = net.now
        own._wire.first.contacts._hello_sent_ns.clear()
        own._wire.hello(net.address(0), True, None, b"")
        for effect in own._wire.effects:
            if isinstance(effect, SendDatagram):
                answers = node.handle(DatagramReceived(source, effect.data), net.now)
                sent += sum(isinstance(a, SendDatagram | SendStream) and a.destination == source for a in answers)
    shown = node.summary().counters["lessons"] - before
    assert GREETED_IN_VAIN < shown <= 16 + 4 * 30 + 1, "sixteen at once, four a second"
    assert sent == shown


def test_a_lesson_is_believed_for_its_signatures_alone(fleet: Fleet) -> None:
    """Whoever holds the group key can show statements: forged ones, and group keys, are refused and change nothing."""
    net = nodes(fleet)
    group = fleet.rotate("farm").data
    forged = sign_statement("revoke", Revocation("farm", 1, (net.identities[1].node,), "x"), [bytes(32)], CRYPTO)
    trust, channel = net.trust(0), net.hosts[1].node._wire.channel
    before = (trust.revision, trust.revoked, dict(trust.group_keys))
    for kind, statement in (("group", group), ("revoke", forged), ("root", forged), ("release", forged)):
        frame = channel.seal_group(join([encode(Statement(kind, statement))]))
        effects = net.hosts[0].node.handle(DatagramReceived("10.9.9.9:1", frame), net.now)
        assert any(isinstance(effect, Rejected) and effect.source == "10.9.9.9:1" for effect in effects)
    assert (trust.revision, trust.revoked, dict(trust.group_keys)) == before


def test_a_group_key_that_falls_seals_nothing_any_more(fleet: Fleet) -> None:
    """Who has restarted since, or came later, cannot open what it seals."""
    net = nodes(fleet)
    [first] = net.trust(0).group_keys
    false = sign_statement("revoke", Revocation("farm", 1, (b"x" * 16,), "stolen"), fleet.seeds("revoke"), CRYPTO)
    group = GroupKey("farm", first + 1, bytes(32), (mark(decode_envelope(false)),))
    for kind, statement in (
        ("revoke", false),
        ("group", sign_statement("group", group, fleet.seeds("enrol"), CRYPTO)),
        ("root", fleet.change_role("revoke", 1, 1, stolen=True).data),
    ):
        net.feed(0, Command("node", AddStatement(kind, statement)))
        net.run(2)
    net.restart(1)
    net.run(5)
    for host in net.hosts:
        assert sorted(host.node._core.trust.group_keys) == [first], "it has not fallen"
        frame = host.node._wire.channel.seal_group(b"hello")
        assert [one.node._wire.channel.open_group(frame) for one in net.hosts] == [(first, b"hello")] * 3
