"""Each rule about lost words and stalled connections taken away, and the law that notices (`test_release_swarm.py`)."""

import statistics
from collections.abc import Callable, Iterable

import pytest

from swarmd_protocols.ids import NodeId
from swarmd_protocols.releases import swarming, upload_window
from swarmd_protocols.releases.swarm_actions import SwarmAction
from tests.support.release_swarm import SwarmWorld

Patch = Callable[[pytest.MonkeyPatch], None]


def _late_ones_count(patch: pytest.MonkeyPatch) -> None:
    def room(self: upload_window.UploadWindow, since_ns: Iterable[int], now_ns: int) -> int:
        return self.least - len(list(since_ns))

    patch.setattr(upload_window.UploadWindow, "room", room)


def _said_once(patch: pytest.MonkeyPatch) -> None:
    whole = swarming.BlobSwarm.on_tick

    def on_tick(self: swarming.BlobSwarm, now_ns: int) -> list[SwarmAction]:
        for neighbour in self._near.values():
            neighbour.ask_again_ns = 1 << 62
        return whole(self, now_ns)

    patch.setattr(swarming.BlobSwarm, "on_tick", on_tick)


def _every_word_is_new(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(swarming.BlobSwarm, "_may_reset", lambda self, node, neighbour, now_ns: True)


def _what_was_given_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    whole = swarming.BlobSwarm.on_ask

    def on_ask(self: swarming.BlobSwarm, node: NodeId, index: int, now_ns: int) -> list[SwarmAction]:
        if node in self._near:
            self._near[node].gave = None
            for key in [key for key in self._sending if key[0] == node]:
                del self._sending[key]
        return whole(self, node, index, now_ns)

    patch.setattr(swarming.BlobSwarm, "on_ask", on_ask)


MUTANTS: dict[str, Patch] = {
    "late chunks fill the window": _late_ones_count,
    "a request is said once": _said_once,
    "an overtaken word is a loss": _every_word_is_new,
    "what is on its way is given again": _what_was_given_is_forgotten,
}


def holds() -> bool:
    """The law of `test_lost_words_and_stalled_connections_cost_little`."""
    try:
        outcomes = [SwarmWorld(8, 96, 8, seed, loss=0.1, stall=0.1).run() for seed in range(5)]
    except AssertionError:
        return False
    return statistics.median(one.last for one in outcomes) <= 1.5 and all(one.duplicates <= 0.02 for one in outcomes)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutant_is_caught(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[mutant](monkeypatch)
    assert not holds(), f"the law holds although {mutant}"


def test_the_law_holds() -> None:
    assert holds()
