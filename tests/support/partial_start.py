"""How swarms with partial views begin and grow: each function asserts one law, for tests and for mutants of it."""

from collections.abc import Iterable
from functools import partial

import msgspec
from msgspec.structs import replace

from swarmd_protocols.effects import Join, Leave, MemberState, SendDatagram, Started
from swarmd_protocols.swim.members import MEMBERS
from swarmd_protocols.swim.messages import Fingerprints, Record, SizeEstimate
from swarmd_protocols.swim.sizing import SLOTS, quantize
from swarmd_sim.run.scenario import scenario_from_table
from swarmd_sim.run.simulation import Options, Simulation
from tests.support.partial_net import SMALL, components, neighbours, one_sided, partial_net, settled
from tests.support.swim_net import MS, SECRET, Net
from tests.support.swim_thief import Thief

FAILED, SUSPECT, DEGRADED = MemberState.FAILED, MemberState.SUSPECT, MemberState.DEGRADED


def nobody_accused(net: Net, since_ns: int = 0) -> bool:
    """No verdict and no doubt about anybody."""
    return not any(net.changes(state, since_ns) for state in (FAILED, SUSPECT, DEGRADED))


def all_partial(net: Net) -> bool:
    return all(host.node.summary().partial for host in net.hosts if host.up)


def a_busy_member_is_not_called_dead() -> None:
    """Where thousands come, a seed forgets strangers in a moment: who still holds it gets its answer, and is told."""
    net = partial_net(count=16, seconds=15.0)
    busy = net.hosts[3].node._core
    held = []
    for host in net.hosts:
        if host.index != 3 and busy.own.node not in host.node._core.table.by_node:
            membership = host.node._swim.membership
            member = membership.on_record(msgspec.msgpack.decode(busy.own.encoded_record, type=Record), None)
            assert member is not None
            membership.overlay.neighbors._promote(member)
            held.append(member)
    assert len(held) >= 4

    def forget() -> None:
        for stranger in list(busy.table.transients.values()):
            net.hosts[3].node._swim.membership.forget(stranger)
        net.at(net.now + 70 * MS, forget)

    begin = net.now
    forget()
    assert net.run_until(lambda: len(busy.table.reachable) >= sum(member.where >= 0 for member in held), 10) is not None
    net.run(2)
    assert one_sided(net) == []
    assert nobody_accused(net, begin)


def everybody_narrows() -> None:
    """Nobody keeps a full view that is none, whatever got lost or came in another order."""
    for seed in range(1, 8):
        net = Net(24, seed, swim=SMALL)
        assert net.run_until(partial(all_partial, net), 4, 0.5) is not None, seed
        assert nobody_accused(net), seed


def a_pulse_says_that_a_view_is_partial() -> None:
    """Only who has a partial view sends one, so a full view hears of it even where every other word was lost."""
    net = Net(1, swim=SMALL)
    thief = Thief(SECRET, net.crypto)
    thief.meet(net.hosts[0].node, net.now)
    minima = bytes([quantize(1 / 40)]) * SLOTS
    thief.say(net.hosts[0].node, [SizeEstimate(0, minima, bytes(24))], net.now)
    assert net.hosts[0].node.summary().partial


def newcomers_are_not_shown_everybody() -> None:
    """Who lacks everything is sent this node's own record; a full view begins with others."""
    net = partial_net(count=16, seconds=15.0)
    thief = Thief(SECRET, net.crypto)
    thief.meet(net.hosts[3].node, net.now)
    effects = thief.say(net.hosts[3].node, [Fingerprints(MEMBERS, -1, b"")], net.now)
    assert 100 <= sum(len(effect.data) for effect in effects if isinstance(effect, SendDatagram)) <= 600


def newcomers_spare_the_seed() -> None:
    """Thirty newcomers, fifty a second: all are taken in at once, and the seed answers each with a few small frames."""
    net = Net(60, swim=SMALL, start=False)
    for index in range(30):
        net.feed(index, Started())
    net.run(15)
    assert all_partial_of(net, range(30))
    seed = net.hosts[0]
    before, packets = seed.bytes_out, seed.packets_out
    for index in range(30, 60):
        net.feed(index, Started())
        net.run(0.02)
    assert net.run_until(lambda: all_partial(net) and min(map(len, neighbours(net).values())) >= 1, 2.0) is not None
    assert seed.packets_out - packets <= 30 * 14
    assert seed.bytes_out - before <= 30 * 3_400
    assert net.run_until(lambda: settled(net), 60, 1.0) is not None
    assert nobody_accused(net)


def all_partial_of(net: Net, indexes: Iterable[int]) -> bool:
    return all(net.hosts[index].node.summary().partial for index in indexes)


def apart(left: int, right: int, seed: int = 1) -> Net:
    """Two swarms that never heard of each other, each with a first member of its own."""
    net = Net(left + right, seed, swim=SMALL, start=False)
    net.cut(list(range(left)), list(range(left, left + right)))
    for index in range(left + right):
        net.feed(index, Started())
    for index in range(left + 1, left + right):
        net.feed(index, Join((net.address(left),)))
    net.run(20)
    assert len(components(net)) == 2
    net.blocked.clear()
    return net


def an_island_of_full_views_is_taken_in() -> None:
    """Ten that know all of themselves, and one contact to a swarm that none of them has heard of."""
    net = apart(30, 10)
    assert not any(host.node.summary().partial for host in net.hosts[30:])
    begin = net.now
    assert net.run_until(lambda: all_partial(net) and components(net) == [40], 15, 0.5) is not None
    assert nobody_accused(net, begin)


def islands_of_partial_views_grow_together() -> None:
    """Two overlays that have one seed in common: a new contact now and then is what joins them."""
    net = apart(20, 16)
    assert all_partial(net)
    begin = net.now
    assert net.run_until(lambda: components(net) == [36], 150, 1.0) is not None
    assert nobody_accused(net, begin)


def a_newcomer_gets_into_a_shrunken_swarm() -> None:
    """Eleven of fourteen are left, fewer than the limit of twelve, too many to widen: no newcomer stays outside."""
    net = partial_net(count=14, swim=replace(SMALL, protocol_period_ns=100 * MS))
    for index in (11, 12, 13):
        net.feed(index, Leave())
        net.run(0.1)
        net.kill(index)
    net.run(40)
    assert all_partial(net), "the estimate is above three quarters of the limit, or there is nothing to show"
    net.restart(12, keep_journal=False)
    assert net.run_until(lambda: components(net) == [12] and all_partial(net), 20, 0.5) is not None


def a_mass_start_harms_nobody() -> None:
    """Two hundred a second on a shared radio, through two seeds, in the lean profile."""
    table = {
        "title": "Many at once",
        "swarm": {"nodes": 80, "seconds": 16, "seeds": 2, "formation": "staggered", "start_within_s": 0.4},
        "gossip": {"profile": "lean", "full_view_max": 16},
        "radio": {"loss": 0.02},
        "drones": {"work": "none"},
        "workload": {"user_events_per_min": 0, "detections_per_min": 0, "notes_per_min": 0, "status_s": 0},
        "checks": {"settle_s": 5.0},
    }
    run = Simulation(scenario_from_table(table, name="many"), 1, Options())
    changes = run.watch.transitions
    result = run.run()
    assert result.violations == []
    assert all(host.node.summary().partial for host in run.hosts)
    assert not any(key.endswith(("->failed", "->suspect", "->degraded")) for key in changes), changes
