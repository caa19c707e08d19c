"""A stranger in range is greeted in a crowd too, and while somebody casts beacons under invented names."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmd_protocols.ids import Address
from swarmd_protocols.swim.mesh import near as module
from swarmd_protocols.swim.mesh.near import Near
from swarmd_protocols.swim.messages import Beacon
from tests.support.mutants import Mutant, assert_found, each_law, each_mutant

MS, S = 1_000_000, 1_000_000_000


class World:
    """A node that others are near to, and whom it greets."""

    def __init__(self) -> None:
        self.now_ns = 10 * S
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


def the_longest_known_goes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(module, "_STRANGER_KEPT_NS", 0)


PAIRS = [
    (law_of_a_crowd_that_shows_itself_now_and_then_some_are_greeted, the_longest_known_goes),
    (law_invented_names_hide_nobody, the_longest_known_goes),
]


@each_law(PAIRS)
def test_law(law: Any) -> None:
    law()


@each_mutant(PAIRS)
def test_law_finds(law: Any, mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
