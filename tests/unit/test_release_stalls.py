"""A delta that nobody can complete is given up for the whole file; one that may come is waited for."""

import random

import pytest

from swarmd_protocols.ids import NodeId
from swarmd_protocols.releases import stalls
from swarmd_protocols.releases.fetching import Fetcher
from swarmd_protocols.releases.messages import TellChunks
from swarmd_protocols.releases.requests import BlobOpened
from swarmd_protocols.releases.stalls import PATIENCE_NS, DeltaStalls
from swarmd_protocols.releases.stores import describe
from swarmd_protocols.releases.swarming import SwarmingConfig
from tests.support.mutants import assert_found

S = 1_000_000_000
PATIENCE_S = PATIENCE_NS // S
HERE = 0b1111
HOLDER, LACKING = NodeId(b"h" * 16), NodeId(b"l" * 16)


class Waits:
    """A node that wants a delta: with its list and four of its chunks, or with nothing of it yet."""

    def __init__(self, *, has_list: bool = True) -> None:
        self.delta, hashes = describe(b"delta" * 20_000)
        self.fetcher = Fetcher(random.Random(1), SwarmingConfig())
        self.fetcher.on_peers([HOLDER, LACKING], 0)
        self.fetcher.want(self.delta)
        self.fetcher.on_opened(BlobOpened(self.delta, *((hashes, HERE) if has_list else (None, 0)), False), 0)
        self.stalls = DeltaStalls(self.fetcher)

    def hear(self, node: NodeId, mask: int, at_s: int) -> None:
        told = mask.to_bytes(-(-mask.bit_length() // 8), "little")
        self.fetcher.on_message(node, TellChunks(self.delta.sha256[:8], told), at_s * S)

    def over_in(self, seconds: range) -> int | None:
        """The second in which it is given up; None: in none of these."""
        return next((at for at in seconds if self.stalls.is_over(self.delta.sha256, at * S)), None)


def what_nobody_shows_is_given_up() -> None:
    for has_list in (True, False):
        node = Waits(has_list=has_list)
        node.hear(LACKING, HERE if has_list else 0, 1)
        assert node.over_in(range(2, 100)) == 2 + PATIENCE_S


def what_somebody_shows_is_waited_for() -> None:
    for has_list in (True, False):
        node = Waits(has_list=has_list)
        node.hear(HOLDER, HERE << 2, 1)
        assert node.over_in(range(2, 100)) is None


def a_holder_that_comes_back_ends_the_wait() -> None:
    node = Waits()
    assert node.over_in(range(2, PATIENCE_S)) is None
    node.hear(HOLDER, HERE << 2, PATIENCE_S)
    assert node.over_in(range(PATIENCE_S, PATIENCE_S + 5)) is None
    node.fetcher.on_peers([LACKING], (PATIENCE_S + 5) * S)
    assert node.over_in(range(PATIENCE_S + 6, 200)) == 2 * PATIENCE_S + 6


def who_is_alone_gives_up_nothing() -> None:
    node = Waits()
    node.fetcher.on_peers([], 0)
    assert node.over_in(range(2, 600)) is None


LAWS = (
    what_nobody_shows_is_given_up,
    what_somebody_shows_is_waited_for,
    a_holder_that_comes_back_ends_the_wait,
    who_is_alone_gives_up_nothing,
)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_law(law) -> None:
    law()


@pytest.mark.parametrize("law", LAWS[1:], ids=lambda law: law.__name__)
def test_one_that_gives_up_whatever_is_shown_is_found(law, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(lambda patch: patch.setattr(stalls, "may_come", lambda fetcher, digest: False), law, monkeypatch)


def test_one_that_waits_for_ever_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = lambda patch: patch.setattr(stalls, "may_come", lambda fetcher, digest: True)  # noqa: E731
    assert_found(waits, what_nobody_shows_is_given_up, monkeypatch)
