"""How fast a blob spreads: the real chunk logic of every node on one virtual clock, against the broadcast floor.

The floor is (S/u)(1 + floor(log2 N)/K) for equal uplinks (Mundinger, Weber, Weiss 2008); uplinks here differ by 10 %.
"""

import random
import statistics
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_protocols.ids import NodeId
from swarmd_protocols.releases import swarming
from swarmd_protocols.releases.neighbour import Neighbour
from swarmd_protocols.releases.statements import Blob
from swarmd_protocols.releases.swarm_actions import Ask, Refuse, SwarmAction
from swarmd_protocols.releases.swarming import BlobSwarm, SwarmingConfig
from swarmd_protocols.releases.upload_budget import UploadBudget
from swarmd_protocols.releases.upload_window import UploadWindow
from tests.support.mutants import assert_found
from tests.support.release_swarm import SwarmWorld


@pytest.mark.parametrize(("nodes", "chunks", "degree", "seeds", "bar"), [(20, 64, 8, 5, 1.15), (20, 160, 8, 3, 1.10)])
def test_small_swarms_reach_the_bar(nodes: int, chunks: int, degree: int, seeds: int, bar: float) -> None:
    lasts = [SwarmWorld(nodes, chunks, degree, seed).run().last for seed in range(seeds)]
    assert statistics.median(lasts) <= bar, lasts


def test_the_seeder_sends_little_more_than_the_file_and_nothing_comes_twice() -> None:
    outcome = SwarmWorld(8, 96, 8, 1).run()
    assert outcome.seeder <= 1.15
    assert outcome.duplicates <= 0.02


def test_a_liar_is_blamed_once_by_each_and_stops_nobody() -> None:
    outcome = SwarmWorld(8, 64, 8, 2, liars=1).run()
    assert outcome.last <= 1.5
    assert outcome.blamed <= 8


def law_who_gave_bad_chunks_gets_the_file() -> None:
    """A device whose memory flipped bits is asked for nothing any more; it is not left with an old model."""
    for seed in (0, 1):
        outcome = SwarmWorld(8, 64, 8, seed, liars=2).run(with_liars=True)
        assert outcome.last <= 1.6, outcome
        assert outcome.blamed <= 2 * 8


def law_who_shows_all_and_gives_nothing_delays_little() -> None:
    """Five of eight neighbours let every request time out: who gives is asked first."""
    for seed in range(3):
        outcome = SwarmWorld(8, 64, 8, seed, mutes=5).run()
        assert outcome.last <= 2.2, outcome


def test_who_gave_bad_chunks_gets_the_file() -> None:
    law_who_gave_bad_chunks_gets_the_file()


def test_who_shows_all_and_gives_nothing_delays_little() -> None:
    law_who_shows_all_and_gives_nothing_delays_little()


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["tell", "chunk", "bad", "ask", "lost", "tick"]),
        st.integers(0, 3),
        st.integers(0, (1 << 12) - 1),
        st.sampled_from([1, 300_000_000, 11_000_000_000, 700_000_000_000]),
    ),
    max_size=40,
)
"""(what happens, with which peer, which chunks, nanoseconds since the last)."""


@settings(max_examples=200, deadline=None)
@given(STEPS, st.booleans())
def test_copies_are_those_of_the_neighbours_that_are_asked(
    steps: list[tuple[str, int, int, int]], super_seed: bool
) -> None:
    chunks = [bytes([index]) * 8 for index in range(12)]
    swarm = BlobSwarm(
        Blob(96, b"", 8, b""),
        tuple(sha256(one).digest() for one in chunks),
        0xFFF if super_seed else 0,
        random.Random(1),
        SwarmingConfig(),
        super_seed,
    )
    now_ns = 1
    for what, peer, mask, gap_ns in steps:
        node, now_ns = NodeId(bytes([peer]) * 16), now_ns + gap_ns
        asked = swarm._near[node].asked if node in swarm._near else None
        if what == "tell":
            swarm.on_tell(node, mask, now_ns)
        elif what == "ask":
            swarm.on_ask(node, mask % 12, now_ns)
        elif what == "lost":
            swarm.on_lost(node, now_ns)
        elif what == "tick":
            swarm.on_tick(now_ns)
        else:
            index = mask % 12 if asked is None else asked
            swarm.on_chunk(node, index, chunks[index] if what == "chunk" else b"evil", now_ns)
        shown = [one.has for peer_id, one in swarm._near.items() if peer_id not in swarm.banned]
        for index in range(12):
            assert swarm._copies.of(index) == sum(mask >> index & 1 for mask in shown)
        for peer_id, one in swarm._near.items():
            if peer_id in swarm.banned and one.asked is not None and one.asked_ns == now_ns:
                assert not swarm._copies.of(one.asked), "what others show is not asked of who gave bad chunks"


def test_a_ban_that_gives_nothing_either_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    ban, greet = BlobSwarm._ban, BlobSwarm.on_neighbour

    def shut_out(self: BlobSwarm, node: NodeId, now_ns: int) -> None:
        ban(self, node, now_ns)
        del self._near[node]

    def spurned(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(BlobSwarm, "_ban", shut_out)
        patch.setattr(
            BlobSwarm, "on_neighbour", lambda self, node, now: [] if node in self.banned else greet(self, node, now)
        )

    assert_found(spurned, law_who_gave_bad_chunks_gets_the_file, monkeypatch)


def test_an_asker_that_forgets_who_was_silent_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful(Neighbour):
        __slots__ = ()
        silences = property(lambda self: 0, lambda self, count: None)  # type: ignore[assignment]

    assert_found(
        lambda patch: patch.setattr(swarming, "Neighbour", Forgetful),
        law_who_shows_all_and_gives_nothing_delays_little,
        monkeypatch,
    )


def test_the_same_seed_gives_the_same_run() -> None:
    assert SwarmWorld(12, 32, 6, 9).run() == SwarmWorld(12, 32, 6, 9).run()


def test_lost_words_and_stalled_connections_cost_little() -> None:
    """At 10 % loss a chunk of 23 packets waits for one again and again; neither that nor a lost word idles uplinks."""
    outcomes = [SwarmWorld(8, 96, 8, seed, loss=0.1, stall=0.1).run() for seed in range(5)]
    assert statistics.median(one.last for one in outcomes) <= 1.5, outcomes
    assert all(one.duplicates <= 0.02 for one in outcomes), outcomes


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1 << 16), st.floats(0.0, 0.5), st.floats(0.0, 0.3))
def test_everybody_gets_everything_whatever_words_are_lost(seed: int, loss: float, stall: float) -> None:
    outcome = SwarmWorld(6, 24, 4, seed, loss=loss, stall=stall).run()
    assert outcome.blamed == 0


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 10**10), max_size=60), st.lists(st.integers(0, 10**11), max_size=12))
def test_the_window_never_takes_more_than_its_bounds(receipts: list[int], since_ns: list[int]) -> None:
    window, now_ns = UploadWindow(3, 8), 10**11
    for took_ns in receipts:
        window.on_receipt(took_ns)
    on_time = [one for one in since_ns if one > now_ns - window.late_ns]
    room = window.room(since_ns, now_ns)
    assert room + len(on_time) <= 3
    assert room + len(since_ns) <= 8
    assert room <= 3
    assert room == 3 - len(on_time) or room == 8 - len(since_ns)


def test_losses_do_not_become_usual_and_a_slower_link_does() -> None:
    window = UploadWindow(3, 8)
    for step in range(400):
        window.on_receipt(1_500_000_000 if step % 5 == 0 else 90_000_000)
    assert window.late_ns < 300_000_000
    for _ in range(60):
        window.on_receipt(1_500_000_000)
    assert window.late_ns > 1_500_000_000


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


def paced(bytes_s: int) -> SwarmWorld:
    """Nine nodes that may give so many bytes a second; a chunk of this world is 4 bytes and fills an uplink for 1 s."""
    world = SwarmWorld(8, 48, 8, 1)
    for node in world.nodes:
        node.budget = UploadBudget(bytes_s)
    return world


def law_chunks_that_wait_for_their_budget_come_once() -> None:
    """Half as fast as the uplinks are; a request that its asker has given up is not answered any more."""
    for bytes_s in (2, 1):
        outcome = paced(bytes_s).run()
        assert outcome.duplicates <= 0.02, outcome
        assert outcome.seeder <= 1.15, outcome
        assert outcome.last <= 8 / bytes_s, outcome


def law_who_waits_for_the_budget_is_not_refused() -> None:
    """A refused peer asks again after a moment: while nothing may be given, that is all talk."""
    world, refused = paced(1), [0]
    perform = world.perform

    def count(node: int, actions: list[SwarmAction], now: int) -> None:
        refused[0] += sum(isinstance(action, Refuse) for action in actions)
        perform(node, actions, now)

    world.perform = count  # type: ignore[method-assign]
    world.run()
    assert refused[0] <= 8 * 48, refused


def test_chunks_wait_for_their_budget_and_come_once() -> None:
    law_chunks_that_wait_for_their_budget_come_once()


def test_who_waits_for_the_budget_is_not_refused() -> None:
    law_who_waits_for_the_budget_is_not_refused()


def test_a_giver_that_answers_too_late_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(
        lambda patch: patch.setattr(BlobSwarm, "_waits", lambda self, one, now_ns: one.wants is not None),
        law_chunks_that_wait_for_their_budget_come_once,
        monkeypatch,
    )


def test_a_giver_that_refuses_while_it_must_wait_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = BlobSwarm.on_ask

    def refusing(self: BlobSwarm, node: NodeId, index: int, now_ns: int) -> list[SwarmAction]:
        if self.budget.is_spent(self.blob.chunk_size(index), now_ns):
            return [Refuse(node, index)]
        return real(self, node, index, now_ns)

    assert_found(
        lambda patch: patch.setattr(BlobSwarm, "on_ask", refusing),
        law_who_waits_for_the_budget_is_not_refused,
        monkeypatch,
    )
