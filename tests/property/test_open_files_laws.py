"""Law: of the files that a node holds open, what is still got of a desired release gives way to nothing.

Whatever is given, published, desired and got in whatever order: a node holds so many open and no more, no desired file
that is on its way is closed, and one that comes to be desired finds room where the desired ones have room together.
"""

import random
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from swarmd_protocols.effects import Order
from swarmd_protocols.releases import fetching, requests
from swarmd_protocols.releases.fetching import Fetcher
from swarmd_protocols.releases.messages import PREFIX_BYTES
from swarmd_protocols.releases.stores import MemoryStore, carry_out, describe
from swarmd_protocols.releases.swarming import SwarmingConfig
from swarmd_protocols.subprotocol import SubEffect
from tests.support.mutants import assert_found

MOST = 4
FILES = [describe(bytes([number]) * 5_000) for number in range(10)]

Step = tuple[str, int] | tuple[str, frozenset[int]]
STEPS = st.one_of(
    st.tuples(st.sampled_from(("get", "give", "publish")), st.integers(0, len(FILES) - 1)),
    st.tuples(st.just("desire"), st.frozensets(st.integers(0, len(FILES) - 1), max_size=MOST)),
)


class Node:
    """A fetcher beside a disk on which some files lie whole and of all others the lists of chunks."""

    def __init__(self) -> None:
        self.fetcher = Fetcher(random.Random(1), SwarmingConfig())
        self.desired: frozenset[int] = frozenset()

    def perform(self, effects: Iterable[SubEffect], *, is_here: bool) -> None:
        store = MemoryStore()
        for number, (blob, hashes) in enumerate(FILES):
            store.put_hashes(blob, hashes)
            if is_here:
                store.put_blob(bytes([number]) * 5_000)
        for order in effects:
            if isinstance(order, Order) and isinstance(order.request, requests.OpenBlob):
                for answer in carry_out(store, order.request):
                    if isinstance(answer, requests.BlobOpened):
                        self.perform(self.fetcher.on_opened(answer, 0), is_here=is_here)

    def open(self) -> dict[int, bool]:
        """By file that is open: whether it is whole."""
        tags = {blob.sha256[:PREFIX_BYTES]: number for number, (blob, _) in enumerate(FILES)}
        whole = {tags[tag]: swarm.complete for tag, swarm in self.fetcher._swarms.items()}
        return whole | {tags[tag]: False for tag in self.fetcher._waiting}


def law(steps: list[Any]) -> None:
    node = Node()
    for what, which in steps:
        before = node.open()
        if what == "desire":
            node.desired = which
            digests = frozenset(FILES[one][0].sha256 for one in which)
            node.perform(node.fetcher.only("m", digests, 0), is_here=False)
        elif what == "get":
            if which not in node.desired:
                continue
            node.perform(node.fetcher.want(FILES[which][0]), is_here=False)
            assert which in node.open(), f"{which} is desired and has no place beside {sorted(before)}"
        else:
            node.perform(node.fetcher.provide(FILES[which][0], what == "publish"), is_here=True)
            has_room = len(before) < MOST or any(whole or one not in node.desired for one, whole in before.items())
            assert what == "give" or not has_room or which in node.open(), "what only this node has is given"
        now = node.open()
        assert len(now) <= MOST, sorted(now)
        got = {one for one, whole in before.items() if not whole and one in node.desired}
        assert got <= set(now), f"{sorted(got - set(now))} were on their way"


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "MAX_BLOBS", MOST)


GIVEN_BESIDE_GOT: list[Step] = [
    ("desire", frozenset({0})),
    ("get", 0),
    *(("give", number) for number in range(1, 5)),
]
ALL_WHOLE: list[Step] = [
    ("desire", frozenset({0, 1, 2, 3})),
    *(("give", number) for number in range(4)),
    ("desire", frozenset({1, 2, 3, 4})),
    ("get", 4),
]


@settings(deadline=None)
@given(st.lists(STEPS, max_size=30))
@example(GIVEN_BESIDE_GOT)
@example(ALL_WHOLE)
def test_law(steps: list[Step]) -> None:
    law(steps)


def _the_longest_served_gives_way(patch: pytest.MonkeyPatch) -> None:
    def make_room(fetcher: Fetcher, *, is_wanted: bool) -> bool:
        while len(fetcher._swarms) + len(fetcher._waiting) >= fetching.MAX_BLOBS and fetcher._swarms:
            fetcher.drop(next(iter(fetcher._swarms.values())).blob.sha256)
        return True

    patch.setattr(fetching, "_make_room", make_room)


def _nothing_gives_way(patch: pytest.MonkeyPatch) -> None:
    def make_room(fetcher: Fetcher, *, is_wanted: bool) -> bool:
        return len(fetcher._swarms) + len(fetcher._waiting) < fetching.MAX_BLOBS

    patch.setattr(fetching, "_make_room", make_room)


@pytest.mark.parametrize(
    ("mutant", "steps"), [(_the_longest_served_gives_way, GIVEN_BESIDE_GOT), (_nothing_gives_way, ALL_WHOLE)]
)
def test_mutants_are_found(mutant: Any, steps: list[Step], monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, lambda: law(steps), monkeypatch)
