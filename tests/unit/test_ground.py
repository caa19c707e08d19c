"""How high the ground lies under a member travels as metadata, rarely, and becomes the altitude of its places."""

import io
import math

import pytest

from swarmd.api.bus import Bus
from swarmd.api.daemon import PoseSeen
from swarmd.brain import ground as ground_module
from swarmd.brain.ground import Grounds, ground_of
from swarmd.brain.positions import place_of, position_of
from swarmd.logs import Logger
from swarmd_protocols.effects import SetMeta
from swarmd_protocols.state.positions import Located
from tests.support.swim_net import Net


class Node:
    """One host of a simulated swarm, with what the brain adds to it."""

    def __init__(self, net: Net, index: int) -> None:
        self.net, self.host = net, net.hosts[index]
        self.bus = Bus(Logger("n", stream=io.StringIO()))
        self.said: list[SetMeta] = []
        self.id = next(one.node for one in self.host.node.members() if one.name == f"n{index:03d}")
        self.grounds = Grounds(self.bus, self.id, self.host.node.members, self.say)

    def say(self, request: SetMeta) -> None:
        self.said.append(request)
        self.net.feed(self.host.index, request)

    def pose(self, altitude_m: float | None, height_m: float) -> PoseSeen:
        pose = PoseSeen(-18.88, -70.11, height_m, 0.0, 0.5, True, None, 1, altitude_m=altitude_m)
        self.bus.publish(pose)
        return pose


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    held = [1_000.0]
    monkeypatch.setattr(ground_module.time, "monotonic", lambda: held[0])
    return held


def swarm() -> tuple[Net, Node, Node]:
    net = Net(2)
    net.run_until(net.formed, 20)
    return net, Node(net, 0), Node(net, 1)


def test_a_peers_altitude_is_what_it_measured_itself(clock: list[float]) -> None:
    net, one, two = swarm()
    assert two.grounds.of(one.id) is None
    pose = one.pose(altitude_m=456.5, height_m=25.0)
    net.run(3)
    clock[0] += 2
    two.bus.publish(net_change(net, one))
    place = place_of(pose)
    assert place is not None
    seen = position_of(Located(one.id, place, 1), two.grounds.of(one.id))
    assert seen.altitude_m == pytest.approx(456.5)
    # It flies higher: its position says so, and of the ground there is no news.
    place = place_of(one.pose(altitude_m=496.5, height_m=65.0))
    assert place is not None
    assert position_of(Located(one.id, place, 1), two.grounds.of(one.id)).altitude_m == pytest.approx(496.5)
    assert len(one.said) == 1


def net_change(net: Net, about: Node) -> object:
    """What the swarm has told of a member's metadata at another."""
    return next(effect for _, _, effect in reversed(net.log) if getattr(effect, "node", None) == about.id)


def test_the_ground_is_told_rarely_and_only_where_it_can_be_ground(clock: list[float]) -> None:
    _, one, _ = swarm()
    for altitude_m in (None, math.nan, 1e9, -5_000.0, 455.0, 456.0, 490.0, 700.0):
        one.pose(altitude_m, 25.0)
    assert [request.value for request in one.said] == [b"430.0"]
    clock[0] += ground_module.TELL_S
    one.pose(457.9, 25.0)
    assert len(one.said) == 1, "receivers wander"
    one.pose(490.0, 25.0)
    assert [request.value for request in one.said] == [b"430.0", b"465.0"]


def test_a_ground_of_an_earlier_life_is_taken_back(clock: list[float]) -> None:
    net, one, two = swarm()
    one.pose(456.5, 25.0)
    net.run(3)
    again = Node(net, 0)
    again.grounds.begin()
    assert [request.value for request in again.said] == [b""]
    net.run(3)
    two.bus.publish(net_change(net, one))
    clock[0] += 2
    assert two.grounds.of(one.id) is None
    Node(net, 1).grounds.begin()
    assert two.said == []


@pytest.mark.parametrize("told", [b"", b"nan", b"inf", b"-1e5", b"99999", b"12 m", b"\xff\xfe", b"1" * 400])
def test_whatever_a_member_tells_is_ground_or_nothing(told: bytes) -> None:
    assert ground_of(told) is None
