"""A node on several networks: the way that answers is taken, another when it falls silent; and a node that moves."""

import pytest

from swarmd_protocols.effects import (
    REFUSED,
    DatagramReceived,
    Effect,
    Event,
    HostAnswer,
    HostProbed,
    MemberState,
    Moved,
    ProbeHost,
    SendDatagram,
    SendFailed,
    SendStream,
    Started,
)
from swarmd_protocols.ids import WAYS, Address
from swarmd_protocols.swim.members import MemberTable
from tests.support.swim_net import MS, Host, Net

NETWORKS = 2


class WaysNet(Net):
    """Every node on two networks; frames leave by the network of their destination and carry its source.

    A destination of several ways is tried on all of them, as the transport does.
    """

    def __init__(self, count: int, **options: object) -> None:
        self.dead: set[tuple[int, int, int]] = set()
        """From, to, network."""
        self.elsewhere: dict[Address, int] = {}
        """Where nodes moved to."""
        self.used: list[tuple[int, int, int]] = []
        self.sent = 0
        self.asked = 0
        """Frames handed to the transport, and hosts asked."""
        super().__init__(count, **options)  # type: ignore[arg-type]

    @staticmethod
    def way(index: int, network: int) -> Address:
        return f"10.{network}.0.{index + 1}:7946"

    @staticmethod
    def address(index: int) -> Address:
        return WAYS.join(WaysNet.way(index, network) for network in range(NETWORKS))

    def perform(self, host: Host, effects: list[Effect]) -> None:
        rest: list[Effect] = []
        for effect in effects:
            if isinstance(effect, SendDatagram | SendStream):
                self.sent += 1
                for way in effect.destination.split(WAYS):
                    self.go(host, way, effect.data)
            elif isinstance(effect, ProbeHost):
                self.asked += 1
                target, network = self.place(effect.destination.split(WAYS)[0])
                silent = target is None or (host.index, target, network) in self.dead
                answer = HostAnswer.SILENT if silent else HostAnswer.OPEN
                after = effect.timeout_ns if silent else MS
                self.later(after, host.index, HostProbed(effect.destination, answer))
            else:
                rest.append(effect)
        super().perform(host, rest)

    def later(self, after_ns: int, index: int, event: Event) -> None:
        self.at(self.now + after_ns, lambda: self.feed(index, event))

    def place(self, way: Address) -> tuple[int | None, int]:
        parts = way.split(":")[0].split(".")
        index = self.elsewhere.get(way, int(parts[3]) - 1)
        return (index if 0 <= index < len(self.hosts) else None), int(parts[1])

    def go(self, host: Host, way: Address, data: bytes) -> None:
        target, network = self.place(way)
        if target is None or (host.index, target, network) in self.dead:
            return
        self.used.append((host.index, target, network))
        source = next((old for old, index in self.elsewhere.items() if index == host.index), None)
        if source is None or self.place(source)[1] != network:
            source = self.way(host.index, network)
        self.later(MS + int(self.rng.random() * MS), target, DatagramReceived(source, data))

    def cut(self, network: int, *pairs: tuple[int, int]) -> None:
        self.dead.update((*pair, network) for pair in pairs)

    def states(self, index: int) -> set[MemberState]:
        return {member.state for member in self.hosts[index].node.members()}


def everybody(net: WaysNet, state: MemberState) -> bool:
    count = len(net.hosts)
    return all(len(host.node.members()) == count and net.states(host.index) == {state} for host in net.hosts)


def both(first: int, second: int) -> tuple[tuple[int, int], tuple[int, int]]:
    return (first, second), (second, first)


@pytest.mark.parametrize("seed", range(4))
def test_a_swarm_forms_over_whichever_network_joins_each_pair(seed: int) -> None:
    net = WaysNet(3, seed=seed, start=False)
    net.cut(0, *both(0, 1), *both(1, 2))
    net.cut(1, *both(0, 2))
    for index in range(3):
        net.feed(index, Started())
    assert net.run_until(lambda: everybody(net, MemberState.ALIVE), 6) is not None
    net.run(2)
    net.used.clear()
    net.run(5)
    assert {(a, b): network for a, b, network in net.used} == {
        (0, 1): 1, (1, 0): 1, (1, 2): 1, (2, 1): 1, (0, 2): 0, (2, 0): 0,
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_a_way_that_falls_silent_is_replaced_and_nobody_is_suspected(seed: int) -> None:
    net = WaysNet(4, seed=seed)
    assert net.run_until(lambda: everybody(net, MemberState.ALIVE), 5) is not None
    net.run(2)
    before = len(net.log)
    net.cut(0, *((a, b) for a in range(4) for b in range(4) if a != b))
    net.run(10)
    assert everybody(net, MemberState.ALIVE)
    suspected = [effect for _, _, effect in net.log[before:] if getattr(effect, "state", None) is MemberState.FAILED]
    assert not suspected
    net.used.clear()
    net.run(5)
    assert {network for _, _, network in net.used} == {1}


def test_one_direction_of_a_way_may_be_dead() -> None:
    net = WaysNet(2, seed=3)
    assert net.run_until(lambda: everybody(net, MemberState.ALIVE), 5) is not None
    net.cut(0, (0, 1))
    net.run(10)
    net.used.clear()
    net.run(10)
    assert everybody(net, MemberState.ALIVE)
    assert {network for sender, _, network in net.used if sender == 0} == {1}


def test_with_one_working_way_nothing_is_sent_twice() -> None:
    net = WaysNet(3, seed=5)
    assert net.run_until(lambda: everybody(net, MemberState.ALIVE), 5) is not None
    net.run(3)
    net.used.clear()
    net.sent = 0
    net.run(10)
    assert len(net.used) == net.sent > 50


def test_a_stranger_s_source_is_never_taken_for_a_way() -> None:
    net = WaysNet(2, seed=7)
    assert net.run_until(lambda: everybody(net, MemberState.ALIVE), 5) is not None
    net.run(2)
    kept: list[tuple[int, bytes]] = []
    real = net.go

    def relay(host: Host, way: Address, data: bytes) -> None:
        """Everything arrives from the relay's own address first."""
        target, _ = net.place(way)
        if target is not None:
            kept.append((target, data))
            net.later(1, target, DatagramReceived("192.0.2.66:7946", data))
        real(host, way, data)

    net.go = relay  # type: ignore[method-assign]
    net.run(5)
    assert kept
    for host in net.hosts:
        table: MemberTable = host.node._core.table
        assert all(member.link.way != "192.0.2.66:7946" for member in table.by_node.values())
        assert all("192.0.2.66" not in member.route for member in table.by_node.values())


def test_a_refusal_on_a_way_that_is_not_used_says_nothing_of_the_member() -> None:
    net = WaysNet(2, seed=9)
    net.cut(1, *both(0, 1))
    assert net.run_until(lambda: everybody(net, MemberState.ALIVE), 5) is not None
    net.run(2)
    net.asked = 0
    for _ in range(20):
        net.feed(0, SendFailed(net.way(1, 1), REFUSED))
        net.run(0.03)
        assert net.states(0) == {MemberState.ALIVE}
    assert net.asked == 0


def test_a_node_that_moves_is_found_where_it_went() -> None:
    net = WaysNet(3, seed=11)
    assert net.run_until(lambda: everybody(net, MemberState.ALIVE), 5) is not None
    net.run(2)
    before = len(net.log)
    for network in range(NETWORKS):
        net.elsewhere[f"10.{network}.0.90:7946"] = 0
    old = {net.way(0, network) for network in range(NETWORKS)}
    place = net.place
    net.place = lambda way: (None, 0) if way in old else place(way)  # type: ignore[method-assign]
    net.feed(0, Moved("10.0.0.90:7946+10.1.0.90:7946"))
    net.run(6)
    for host in net.hosts[1:]:
        (mine,) = (member for member in host.node.members() if member.name == "n000")
        assert mine.address == "10.0.0.90:7946+10.1.0.90:7946"
        assert mine.state is MemberState.ALIVE
    assert not [e for _, _, e in net.log[before:] if getattr(e, "state", None) is MemberState.FAILED]
