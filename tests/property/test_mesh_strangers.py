"""A stranger in range is greeted in a crowd too, and while somebody casts beacons under invented names.

A member that is silent where it is known to be, and casts from elsewhere, is greeted there.
"""

import random
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmd_protocols.ids import Address
from swarmd_protocols.swim.config import SwimConfig
from swarmd_protocols.swim.core import Scheduler
from swarmd_protocols.swim.mesh import near as module
from swarmd_protocols.swim.mesh.near import Near
from swarmd_protocols.swim.messages import Beacon
from tests.support.mutants import Mutant, assert_found, each_law, each_mutant

MS, S = 1_000_000, 1_000_000_000


class Newcomer:
    """A member that a node's neighbours have told it of."""

    incarnation = 1 << 40
    where = 0
    status = 0


class Moved:
    """A member that has got another address, and has told nobody."""

    incarnation = 1 << 40
    where = 0
    status = 0
    address = "10.0.0.1:7946"

    def __init__(self, node: bytes, heard_ns: int) -> None:
        self.node, self.link = node, self
        self.heard_ns = heard_ns


class World:
    """A node that others are near to, and whom it greets."""

    def __init__(self, mesh: Literal["auto", "on"] = "on") -> None:
        self.now_ns = 10 * S
        self.config = SwimConfig(mesh=mesh)
        self.scheduler = Scheduler()
        self.rng = random.Random(1)
        self.greeted: list[Address] = []
        self.port = self
        self.own = self
        self.node = b"own id" + bytes(10)
        self.table = self
        self.by_node: dict[bytes, Any] = {}
        self.reachable = [self.node]
        core: Any = self
        self.near = Near(core)

    def hello(self, address: Address, _: bool) -> None:
        self.greeted.append(address)

    def hear(self, node: bytes) -> None:
        self.near.on_beacon(Beacon(node, 1 << 40), node.hex())

    def run(self, seconds: float) -> None:
        """Time passes."""
        self.now_ns += int(seconds * S)
        self.scheduler.run(self.now_ns)


@given(st.integers(2, 200))
def law_of_a_crowd_that_shows_itself_now_and_then_some_are_greeted(count: int) -> None:
    world = World()
    for _ in range(3):
        for number in range(count):
            world.now_ns += 10 * S // count
            world.hear(number.to_bytes(16))
    assert world.greeted


@given(st.integers(1, 40), st.integers(0, 99))
def law_invented_names_hide_nobody(per_s: int, seed: int) -> None:
    world, rng = World(), random.Random(seed)
    for _ in range(200):
        for _ in range(per_s):
            world.now_ns += S // per_s
            world.hear(rng.randbytes(16))
        world.hear(bytes(16))
    assert bytes(16).hex() in world.greeted
    assert len(world.greeted) <= 4 + 2 * 200
    assert len(world.near._strangers) <= module._STRANGERS_MAX


@given(st.integers(0, 30), st.integers(0, 99))
def law_of_whom_one_beacon_was_heard_is_greeted(per_s: int, seed: int) -> None:
    """With `auto` its next may be two minutes away: whoever is still a stranger 4 s later has been greeted, in a rain
    of invented names too as long as there is room, and nobody who has become a member by then."""
    world, rng = World("auto"), random.Random(seed)
    stranger, newcomer = b"s" * 16, b"n" * 16
    world.hear(stranger)
    world.hear(newcomer)
    world.by_node[newcomer] = Newcomer()
    for _ in range(10 * 4):
        if per_s and rng.random() < per_s / 10:
            world.hear(rng.randbytes(16))
        world.run(0.1)
    world.run(0.1)
    assert world.greeted.count(stranger.hex()) == 1 or per_s
    assert stranger.hex() in world.greeted or len(world.greeted) >= 4
    assert newcomer.hex() not in world.greeted
    assert len(world.greeted) <= 4 + 2 * 5


@given(st.integers(1, 20), st.integers(1, 60), st.integers(0, 99))
def law_who_is_silent_where_it_is_known_is_greeted_where_it_casts(members: int, seconds: int, seed: int) -> None:
    """At once after 3 s of silence; a few a second, however many cast, and each once in 3 s, then ever less often."""
    world, rng = World("auto"), random.Random(seed)
    nodes = [bytes([number]) * 16 for number in range(members)]
    begun_ns = world.now_ns
    world.by_node = {node: Moved(node, begun_ns) for node in nodes}
    silent, *_ = nodes
    greeted_s, times = dict.fromkeys(nodes, -3.0), dict.fromkeys(nodes, 0)
    for second in range(seconds):
        world.run(1)
        rng.shuffle(nodes)
        for node in nodes:
            count = len(world.greeted)
            world.near.on_beacon(Beacon(node, 1 << 40), "10.9.0.1:7946" if node == silent else node.hex())
            if len(world.greeted) > count:
                assert second - greeted_s[node] >= 3
                greeted_s[node], times[node] = second, times[node] + 1
        assert not world.greeted or world.now_ns - begun_ns >= 3 * S
    assert len(world.greeted) <= 4 + 2 * seconds
    assert max(times.values()) <= 5, "at 3, 6, 12, 24 and 48 s"
    assert "10.9.0.1:7946" in world.greeted or members > 4 or seconds < 3


@given(st.integers(12, 30), st.integers(0, 99))
def law_members_that_cast_from_elsewhere_hide_no_stranger(members: int, seed: int) -> None:
    """Recorded beacons, played again without a key."""
    world, rng = World("on"), random.Random(seed)
    nodes = [bytes([number]) * 16 for number in range(members)]
    world.by_node = {node: Moved(node, world.now_ns) for node in nodes}
    for step in range(20):
        world.run(0.5)
        for node in rng.sample(nodes, members):
            world.near.on_beacon(Beacon(node, 1 << 40), "10.9.0.1:7946")
        if step >= 10:
            world.near.on_beacon(Beacon(b"s" * 16, 1 << 40), "10.0.0.99:7946")
    assert "10.0.0.99:7946" in world.greeted


@given(st.integers(1, 60))
def law_who_is_heard_or_casts_from_its_own_address_is_not_greeted(seconds: int) -> None:
    world = World("auto")
    heard, at_home = Moved(b"h" * 16, 0), Moved(b"a" * 16, 0)
    world.by_node = {one.node: one for one in (heard, at_home)}
    for _ in range(seconds):
        world.run(1)
        heard.heard_ns = world.now_ns - S
        world.near.on_beacon(Beacon(heard.node, 1 << 40), "10.9.0.1:7946")
        world.near.on_beacon(Beacon(at_home.node, 1 << 40), at_home.address)
    assert not world.greeted


def nobody_is_sought_elsewhere(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Near, "_may_have_moved", lambda self, member, source: False)


def everybody_is_sought_elsewhere(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Near, "_may_have_moved", lambda self, member, source: True)


def it_is_greeted_with_each_beacon(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(module, "_MOVED_NS", 0)


def it_is_greeted_as_often_as_before(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(module, "_MOVED_MAX_NS", module._MOVED_NS)


def strangers_wait_for_movers(patch: pytest.MonkeyPatch) -> None:
    original = Near.on_beacon

    def on_beacon(self: Near, message: Beacon, source: Address) -> object:
        self._movers = self._greetings
        return original(self, message, source)

    patch.setattr(Near, "on_beacon", on_beacon)
    it_is_greeted_as_often_as_before(patch)


def one_beacon_is_not_enough(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Near, "_greet", lambda self, heard: None)


def who_is_known_by_then_is_greeted_too(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Near, "_greet", lambda self, heard: self.core.port.hello(heard[1], True))


def the_longest_known_goes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(module, "_STRANGER_KEPT_NS", 0)


PAIRS = [
    (law_of_a_crowd_that_shows_itself_now_and_then_some_are_greeted, the_longest_known_goes),
    (law_invented_names_hide_nobody, the_longest_known_goes),
    (law_of_whom_one_beacon_was_heard_is_greeted, one_beacon_is_not_enough),
    (law_who_is_silent_where_it_is_known_is_greeted_where_it_casts, nobody_is_sought_elsewhere),
    (law_who_is_silent_where_it_is_known_is_greeted_where_it_casts, it_is_greeted_with_each_beacon),
    (law_who_is_silent_where_it_is_known_is_greeted_where_it_casts, it_is_greeted_as_often_as_before),
    (law_members_that_cast_from_elsewhere_hide_no_stranger, strangers_wait_for_movers),
    (law_who_is_heard_or_casts_from_its_own_address_is_not_greeted, everybody_is_sought_elsewhere),
    (law_of_whom_one_beacon_was_heard_is_greeted, who_is_known_by_then_is_greeted_too),
]


@each_law(PAIRS)
def test_law(law: Any) -> None:
    law()


@each_mutant(PAIRS)
def test_law_finds(law: Any, mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
