"""Laws: whatever pipes, gateways and the region suffer, nothing that was said is lost, and nothing is shown twice."""

import random
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd.federation.outbox import FILE_NAME, Outbox, Waiting
from swarmd_protocols.federation.wire import RowKind
from tests.support.federation_siege import besiege
from tests.support.federation_world import make_world


@settings(max_examples=12, deadline=None)
@given(st.randoms(use_true_random=False))
def test_nothing_is_lost_and_nothing_is_shown_twice(rng: random.Random) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = make_world(Path(folder), rng)
        world.misbehave(120)
        world.settle()
        world.check()
        world.close()


@settings(max_examples=12, deadline=None)
@given(st.randoms(use_true_random=False))
def test_in_the_end_the_region_shows_what_the_swarm_shows(rng: random.Random) -> None:
    with tempfile.TemporaryDirectory() as folder:
        besiege(Path(folder), rng)


ROWS = st.lists(
    st.tuples(st.sampled_from([RowKind.OBJECT, RowKind.RECORD, RowKind.SITE]), st.integers(0, 5), st.integers(0, 200)),
    max_size=30,
)


@settings(max_examples=25, deadline=None)
@given(ROWS, st.sets(st.integers(1, 40)), st.integers(0, 29))
def test_an_outbox_keeps_the_last_word_of_each_key_in_order_over_restarts(
    rows: list[tuple[RowKind, int, int]], acked: set[int], restart: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / FILE_NAME
        outbox = Outbox(path, 1 << 20, 1e9)
        held: dict[tuple[int, bytes], tuple[int, bytes]] = {}
        seq = 0
        for number, (kind, key, size) in enumerate(rows):
            if number == restart:
                epoch, life = outbox.epoch, outbox.life
                outbox.close()
                outbox = Outbox(path, 1 << 20, 1e9)
                assert outbox.epoch != epoch
                assert outbox.life > life
            slot, body = (int(kind), bytes([key])), bytes(size)
            seq += held.get(slot, (0, None))[1] != body
            if held.get(slot, (0, None))[1] != body:
                held[slot] = (seq, body)
            outbox.put([Waiting(kind, bytes([key]), body)], 1)
        waiting = [one for one, _ in outbox.waiting(1_000)]
        assert waiting == sorted(one for one, _ in held.values())
        done = outbox.acknowledge([(one, one) for one in acked])
        assert {one.seq for one in done} == acked & set(waiting)
        assert [one for one, _ in outbox.waiting(1_000)] == sorted(set(waiting) - acked)
        assert len(outbox) == len(set(waiting) - acked)
        outbox.close()


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 400)), max_size=60), st.integers(500, 4_000))
def test_an_outbox_stays_within_its_bytes_and_says_what_it_dropped(rows: list[tuple[int, int]], most: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        outbox = Outbox(Path(folder) / FILE_NAME, most, 1e9)
        said = 0
        for key, size in rows:
            said += outbox.put([Waiting(RowKind.OBJECT, bytes([key]), bytes(size))], 1)
            assert outbox.size_bytes <= most
        replaced = said - len(outbox) - outbox.dropped_rows
        assert replaced >= 0
        assert (outbox.dropped_rows > 0) or len(outbox) == len({key for key, _ in rows})
        outbox.close()
