"""How fast a blob spreads: the real chunk logic of every node on one virtual clock, against the broadcast floor.

The floor is (S/u)(1 + floor(log2 N)/K) for equal uplinks (Mundinger, Weber, Weiss 2008); uplinks here differ by 10 %.
"""

import os
import random
import statistics
from hashlib import sha256

import pytest

from swarmd_protocols.ids import NodeId
from swarmd_protocols.releases.statements import Blob
from swarmd_protocols.releases.swarming import Ask, BlobSwarm, SwarmingConfig, UploadWindow
from tests.support.release_swarm import SwarmWorld


@pytest.mark.parametrize(("nodes", "chunks", "degree", "seeds", "bar"), [(20, 64, 8, 5, 1.15), (20, 160, 8, 3, 1.10)])
def test_small_swarms_reach_the_bar(nodes: int, chunks: int, degree: int, seeds: int, bar: float) -> None:
    lasts = [SwarmWorld(nodes, chunks, degree, seed).run().last for seed in range(seeds)]
    assert statistics.median(lasts) <= bar, lasts


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif("RELEASE_SOAK" not in os.environ, reason="minutes of CPU; `make test-long` sets RELEASE_SOAK=1")
@pytest.mark.parametrize(("nodes", "degree", "seeds", "bar"), [(200, 16, 5, 1.20), (1_000, 16, 1, 1.30)])
def test_large_swarms_reach_the_bar(nodes: int, degree: int, seeds: int, bar: float) -> None:
    lasts = [SwarmWorld(nodes, 64, degree, seed).run().last for seed in range(1, 1 + seeds)]
    assert statistics.median(lasts) <= bar, lasts


def test_the_seeder_sends_little_more_than_the_file_and_nothing_comes_twice() -> None:
    outcome = SwarmWorld(8, 96, 8, 1).run()
    assert outcome.seeder <= 1.15
    assert outcome.duplicates <= 0.02


def test_a_liar_is_blamed_once_by_each_and_stops_nobody() -> None:
    outcome = SwarmWorld(8, 64, 8, 2, liars=1).run()
    assert outcome.last <= 1.5
    assert outcome.blamed <= 8


def test_the_same_seed_gives_the_same_run() -> None:
    assert SwarmWorld(12, 32, 6, 9).run() == SwarmWorld(12, 32, 6, 9).run()


def window_after(receipts: int, spacing_ns: dict[int, int], uneven: bool = True) -> list[int]:
    """The window's sizes over time, when a receipt comes every so often at each size."""
    window, now_ns, sizes = UploadWindow(3, 8, 3), 1, []
    for step in range(receipts):
        now_ns += spacing_ns.get(window.size, spacing_ns[3])
        took_ns = 40_000_000 if uneven and step % 3 else 240_000_000
        window.on_receipt(now_ns, took_ns, True)
        sizes.append(window.size)
    return sizes


def test_a_full_uplink_keeps_its_window_and_one_that_waits_for_lost_packets_gets_a_larger_one() -> None:
    full = window_after(2_000, {3: 32_000_000})
    assert sum(size > 3 for size in full) < 0.15 * len(full)
    assert set(window_after(400, {size: 240_000_000 // size for size in range(3, 9)}, uneven=False)) == {3}
    waiting = window_after(400, {size: 240_000_000 // size for size in range(3, 9)})
    assert waiting[-1] >= 6


def test_late_chunks_are_asked_once_more_at_the_end_and_never_many() -> None:
    chunks = [bytes([index]) * 8 for index in range(100)]
    blob = Blob(800, b"", 8, b"")
    swarm = BlobSwarm(blob, tuple(sha256(one).digest() for one in chunks), 0, random.Random(1), SwarmingConfig())
    peers = [NodeId(bytes([index]) * 16) for index in range(8)]
    now_ns, asked = 1, []
    for peer in peers:
        asked += swarm.on_tell(peer, (1 << 100) - 1, now_ns)
    for _ in range(3_000):
        now_ns += 10_000_000
        answered = [one for one in asked if isinstance(one, Ask) and one.to != peers[0]]
        asked = []
        for one in answered:
            asked += swarm.on_chunk(one.to, one.index, chunks[one.index], now_ns)[1]
        asked += swarm.on_tick(now_ns)
        if swarm.complete:
            break
    assert swarm.complete
    assert now_ns < SwarmingConfig().request_timeout_ns, "not only after the peer was given up"
    assert swarm._hedged == 1, "the silent peer's chunk, and no flood of others"
