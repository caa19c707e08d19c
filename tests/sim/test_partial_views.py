"""Partial views on a simulated network: formation, the laws of the overlay, detection, mass loss, healing, both ways.

Forty nodes and full views up to twelve: what holds for thousands is measured in docs/performance/swim.md.
"""

from random import Random

import pytest
from msgspec.structs import replace

from swarmd_protocols.effects import Command, Leave, MemberState, SetMeta, UserEvent
from swarmd_protocols.trust.envelopes import sign_statement
from swarmd_protocols.trust.identity import dev_role_seeds
from swarmd_protocols.trust.payloads import Revocation
from swarmd_protocols.trust.requests import AddStatement
from tests.support.partial_net import (
    SMALL,
    bounded,
    components,
    failed_at,
    neighbours,
    overlay,
    partial_net,
    settled,
)
from tests.support.swim_net import SECRET, Net

ALIVE, FAILED, LEFT = MemberState.ALIVE, MemberState.FAILED, MemberState.LEFT


@pytest.fixture(scope="module")
def formed():
    """One settled swarm for the tests that change nothing."""
    net = partial_net()
    assert net.run_until(lambda: settled(net), 60, 1.0) is not None
    return net


def test_the_overlay_is_mutual_bounded_and_in_one_piece(formed):
    assert settled(formed)
    bounded(formed)
    assert max(map(len, neighbours(formed).values())) <= SMALL.active_view + 2


def test_everybody_estimates_the_swarm(formed):
    assert (
        formed.run_until(lambda: all(20 <= host.node.summary().estimated <= 80 for host in formed.hosts), 60, 1.0)
        is not None
    )


def test_members_are_the_neighbours(formed):
    for index, others in neighbours(formed).items():
        summary = formed.hosts[index].node.summary()
        assert summary.partial
        shown = {name for name, state in summary.members.items() if state is ALIVE}
        assert shown == {f"n{index:03d}"} | {f"n{other:03d}" for other in others}


def test_an_event_reaches_everybody_once(formed):
    formed.feed(7, UserEvent("to all", b"x" * 40))
    formed.run(2)
    assert sorted(who for _, who, e in formed.delivered() if e.name == "to all") == list(range(40))


def test_a_large_event_reaches_everybody(formed):
    formed.feed(8, UserEvent("large", b"x" * 6_000))
    formed.run(2)
    assert sorted(who for _, who, e in formed.delivered() if e.name == "large") == list(range(40))


def test_metadata_reaches_the_neighbours(formed):
    formed.feed(5, SetMeta("job", b"scout"))
    formed.feed(5, SetMeta("notes", b"n" * 5_000))

    def known():
        return all(
            next(row.meta for row in formed.hosts[other].node.members() if row.name == "n005")
            == {"job": b"scout", "notes": b"n" * 5_000}
            for other in neighbours(formed)[5]
        )

    assert formed.run_until(known, 30, 0.5) is not None


def test_a_partial_view_costs_little_more_than_probing(formed):
    """Within the budget, and no greeting goes round and round: at most as many datagrams as a full view sends."""
    for host in formed.hosts:
        host.bytes_out = host.packets_out = 0
    formed.run(20)
    assert sum(host.bytes_out for host in formed.hosts) / 40 / 20 <= 1_000
    assert sum(host.packets_out for host in formed.hosts) / 40 / 20 <= 10


def test_below_the_limit_nothing_is_partial():
    net = Net(12, swim=SMALL)
    assert net.run_until(net.formed, 10) is not None
    net.run(5)
    assert not any(host.node.summary().partial for host in net.hosts)
    assert all(host.node.summary().estimated == 12 for host in net.hosts)
    assert net.agreed()


@pytest.mark.parametrize("how", ["kill", "dark"])
def test_a_death_is_known_to_all_neighbours(how):
    net = partial_net(count=30)
    assert net.run_until(lambda: settled(net), 60, 1.0) is not None
    begin, watchers = net.now, neighbours(net)[9]
    if how == "kill":
        net.kill(9)
    else:
        net.hosts[9].dark = True
    assert net.run_until(lambda: watchers <= set(failed_at(net, 9, begin)), 15, 0.1) is not None
    assert [e.name for _, who, e in net.changes(FAILED, begin) if e.name != "n009" and who != 9] == []
    others = [index for index in neighbours(net) if index != 9]
    assert net.run_until(lambda: not any(9 in neighbours(net)[index] for index in others), 5, 0.1) is not None


def test_who_leaves_is_replaced_and_never_failed():
    net = partial_net(count=30)
    begin = net.now
    net.feed(4, Leave())
    net.run(1)
    net.kill(4)
    assert net.run_until(lambda: settled(net), 60, 1.0) is not None
    assert failed_at(net, 4, begin) == {}


@pytest.mark.parametrize("dark", [False, True])
def test_half_of_all_lost_at_once_leaves_one_overlay(dark):
    net = partial_net()
    assert net.run_until(lambda: settled(net), 60, 1.0) is not None
    for index in Random(3).sample(range(1, 40), 20):
        if dark:
            net.icmp = False
        net.kill(index)
        net.hosts[index].dark = dark
    assert net.run_until(lambda: components(net) == [20], 15, 0.5) is not None
    assert net.run_until(lambda: settled(net), 90, 1.0) is not None
    bounded(net)
    net.feed(0, UserEvent("still here", b""))
    net.run(3)
    assert sum(e.name == "still here" for _, _, e in net.delivered()) == 20


def test_a_restarted_node_comes_back_with_or_without_its_journal():
    net = partial_net(count=30)
    assert net.run_until(lambda: settled(net), 60, 1.0) is not None
    net.kill(11)
    net.kill(12)
    net.run(3)
    net.restart(11)
    net.restart(12, keep_journal=False)
    assert net.run_until(lambda: settled(net), 60, 1.0) is not None
    assert net.hosts[11].node.summary().partial
    assert net.hosts[12].node.summary().partial


def test_halves_that_were_cut_grow_together_again():
    net = partial_net()
    assert net.run_until(lambda: settled(net), 60, 1.0) is not None
    left, right = list(range(20)), list(range(20, 40))
    net.cut(left, right)
    net.run(25)
    assert len(components(net)) == 2
    net.blocked.clear()
    assert net.run_until(lambda: components(net) == [40], 30, 0.5) is not None
    net.feed(3, UserEvent("over the cut", b""))
    net.run(3)
    assert sum(e.name == "over the cut" for _, _, e in net.delivered()) == 40
    assert net.run_until(lambda: settled(net), 60, 1.0) is not None
    bounded(net)


def test_an_event_of_the_time_of_the_cut_comes_after_it():
    net = partial_net(count=30)
    net.cut(list(range(15)), list(range(15, 30)))
    net.run(10)
    net.feed(2, UserEvent("meanwhile", b""))
    net.run(5)
    net.blocked.clear()
    assert net.run_until(lambda: sum(e.name == "meanwhile" for _, _, e in net.delivered()) == 30, 60, 0.5) is not None


def test_a_shrunken_swarm_returns_to_full_views():
    """Forty nodes, of whom six remain: three epochs of the estimate later everybody knows everybody."""
    net = partial_net(swim=replace(SMALL, protocol_period_ns=100_000_000))
    for index in range(6, 40):
        net.feed(index, Leave())
        net.run(0.05)
        net.kill(index)
    assert net.run_until(lambda: not any(h.node.summary().partial for h in net.hosts if h.up), 120, 1.0) is not None
    assert net.run_until(net.formed, 60, 0.5) is not None
    assert net.run_until(net.agreed, 60, 0.5) is not None
    net.feed(2, UserEvent("few", b""))
    net.run(2)
    assert sum(e.name == "few" for _, _, e in net.delivered()) == 6
    for index in range(6, 40):
        net.restart(index)
    assert net.run_until(lambda: all(h.node.summary().partial for h in net.hosts), 60, 1.0) is not None
    assert net.run_until(lambda: settled(net), 90, 1.0) is not None


def test_a_revoked_node_is_shut_out_of_every_view():
    net = partial_net(count=30)
    victim = net.hosts[6].node.node
    seeds = dev_role_seeds(SECRET, "revoke")[:1]
    statement = sign_statement("revoke", Revocation("test", 1, (victim,), "stolen"), seeds, net.crypto)
    net.feed(3, Command("node", AddStatement("revoke", statement)))
    others = [index for index in range(30) if index != 6]

    def gone():
        return all(
            victim not in overlay(net, index).shelf.passive and victim not in net.hosts[index].node._core.table.by_node
            for index in others
        )

    assert net.run_until(gone, 30, 0.5) is not None
    net.run(10)
    assert gone()
