"""Questions about partial views on the small test network: who are whose neighbours, and do the laws hold."""

from typing import Any

from msgspec.structs import replace

from swarmd_protocols.effects import MemberState
from swarmd_protocols.swim.config import SwimConfig
from tests.support.swim_net import Net

SMALL = replace(SwimConfig(), full_view_max=12, active_view=4, passive_view=12)
NEIGHBOURS_MAX = SMALL.active_view + 2


def partial_net(count: int = 40, seed: int = 1, seconds: float = 30.0, **options: Any) -> Net:
    """A swarm too large for full views that has had time to settle."""
    options.setdefault("swim", SMALL)
    net = Net(count, seed, **options)
    net.run(seconds)
    assert all(host.node.summary().partial for host in net.hosts if host.up)
    return net


def neighbours(net: Net) -> dict[int, set[int]]:
    """Index to the indexes that it holds for neighbours, of all that are up."""
    return {
        host.index: {net.index(member.address) for member in host.node._core.table.reachable}
        for host in net.hosts
        if host.up
    }


def one_sided(net: Net) -> list[tuple[int, int]]:
    """Pairs of which only one holds the other for a neighbour."""
    links = neighbours(net)
    return [(a, b) for a, others in links.items() for b in others if b in links and a not in links[b]]


def components(net: Net) -> list[int]:
    """Sizes of the parts of the overlay among those that are up, largest first."""
    links = neighbours(net)
    beside: dict[int, set[int]] = {index: set() for index in links}
    for a, others in links.items():
        for b in others & links.keys():
            beside[a].add(b)
            beside[b].add(a)
    sizes: list[int] = []
    seen: set[int] = set()
    for index in links:
        part: set[int] = set()
        waiting = [index]
        while waiting:
            at = waiting.pop()
            if at not in seen:
                seen.add(at)
                part.add(at)
                waiting += beside[at]
        if part:
            sizes.append(len(part))
    return sorted(sizes, reverse=True)


def dead_neighbours(net: Net) -> list[tuple[int, int]]:
    """Pairs of a node and a dead one that it takes for a neighbour."""
    links = neighbours(net)
    return [(a, b) for a, others in links.items() for b in others if b not in links]


def overlay(net: Net, index: int) -> Any:
    return net.hosts[index].node._swim.membership.overlay


def bounded(net: Net) -> None:
    """Nothing that a node keeps exceeds its bound."""
    for host in net.hosts:
        if host.up and host.node.summary().partial:
            table, view = host.node._core.table, host.node._swim.membership.overlay
            config = host.node._core.config
            assert len(table.reachable) <= config.active_view + 2 + 1, host.index  # One more until the next tick.
            assert len(view.shelf.passive) <= config.passive_view, host.index
            assert len(table.lost) <= 33, host.index
            assert len(table.transients) <= 64 + 8, host.index
            assert len(view.neighbors.asks) <= 8, host.index
            assert len(view.shelf.credits) <= 64, host.index
            assert not view.shelf.passive.keys() & {member.node for member in table.reachable}, host.index
            held = {member.node for member in table.by_node.values() if member.overlay.active}
            assert held == {member.node for member in table.reachable} | set(table.lost), host.index
            assert set(table.transients) == set(table.by_node) - held, host.index


def settled(net: Net) -> bool:
    """Everybody has neighbours, they are mutual, alive, and the overlay is in one piece."""
    up = sum(host.up for host in net.hosts)
    links = neighbours(net)
    return (
        components(net) == [up]
        and not one_sided(net)
        and not dead_neighbours(net)
        and min(map(len, links.values())) >= min(SMALL.active_view, up - 1) - 1
    )


def failed_at(net: Net, subject: int, since_ns: int) -> dict[int, int]:
    """Who declared the subject failed since then, and when."""
    return {
        who: at for at, who, effect in net.changes(MemberState.FAILED, since_ns) if effect.name == f"n{subject:03d}"
    }
