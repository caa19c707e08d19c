"""The log of refusals: whoever sends what, it costs little, names the sender, and leaves room for what others did."""

import asyncio
import json
import random
from collections import Counter
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd.release.audit import verify_folder
from swarmd.release.refusals import (
    FILE_BYTES,
    FILE_NAME,
    LINES_BURST,
    LINES_PER_S,
    PENDING_MAX,
    SHARE_BYTES,
    SOURCES_MAX,
    RefusalLog,
)
from swarmd_protocols.effects import StateChanged
from swarmd_protocols.releases import requests
from swarmd_protocols.releases.messages import Push, encode_message
from tests.support.release_world import World


class Desk:
    """A log whose clock and alarms the test holds."""

    def __init__(self, folder: Path) -> None:
        self.now_ns = 0
        self.alarms: list[tuple[str, int]] = []
        self.log = RefusalLog(folder, lambda source, count: self.alarms.append((source, count)), lambda: self.now_ns)

    def note(self, source: str, reason: str = "too few signatures") -> None:
        self.log.note("release", "ab" * 32, source, reason)


def lines_of(folder: Path) -> list[dict[str, object]]:
    files = [folder / f"{FILE_NAME}.1", folder / FILE_NAME]
    return [json.loads(line) for path in files if path.exists() for line in path.read_text().splitlines()]


def test_one_message_of_512_junk_statements_is_eight_lines_and_an_alarm(tmp_path: Path) -> None:
    """The attack: 1.5 kB of push, one refusal for each statement in it."""
    world, desk = World(3), Desk(tmp_path)
    push = encode_message(Push((), tuple(b"\x00" for _ in range(512)), ()))
    effects = world.nodes[0].on_message(world.ids[2], push, world.now)
    refused = [e.detail for e in effects if isinstance(e, StateChanged) and isinstance(e.detail, requests.Heard)]
    for _ in range(100):
        for one in refused:
            desk.log.note(one.kind, one.digest.hex(), one.source, one.reason)
    assert desk.log.pending_count <= LINES_BURST
    desk.log.close()
    lines = lines_of(tmp_path)
    assert len(lines) <= LINES_BURST
    if refused:
        assert [source for source, _ in desk.alarms] == [refused[0].source]
        assert desk.log.counts["coalesced"] == 100 * len(refused) - len(lines)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32), flooders=st.integers(1, 40), hours=st.sampled_from((0.01, 1.0, 100.0)))
def test_history_keeps_a_share_for_everybody(seed: int, flooders: int, hours: float) -> None:
    """Whatever a few send, the first words of a quiet member stay, the queue is short and the disk's part bounded."""
    check_shares(seed, flooders, hours)


def check_shares(seed: int, flooders: int, hours: float) -> None:
    with TemporaryDirectory() as name:
        folder, rng = Path(name), random.Random(seed)
        desk = Desk(folder)
        desk.note("quiet", "the line worth keeping")
        desk.log.close()
        for _ in range(600):
            desk.now_ns += round(rng.expovariate(1.0) * hours * 3.6e12 / 600)
            for _ in range(rng.randrange(1, 8)):
                desk.note(f"loud-{rng.randrange(flooders)}", "x" * rng.randrange(400))
            assert desk.log.pending_count <= PENDING_MAX
            if rng.random() < 0.1 and desk.log._log.add_all(desk.log._take()):
                desk.log._begin_file()
        desk.log.close()
        lines = lines_of(folder)
        assert sum(path.stat().st_size for path in folder.iterdir()) <= 2 * FILE_BYTES
        by_source = Counter(str(line["source"]) for line in lines)
        assert by_source["quiet"] == 1
        seconds = desk.now_ns / 1e9
        for source, count in by_source.items():
            assert count <= LINES_BURST + seconds * LINES_PER_S + 1, source
        sizes: Counter[str] = Counter()
        for line in (folder / FILE_NAME).read_text().splitlines(keepends=True):
            sizes[str(json.loads(line)["source"])] += len(line)
        assert max(sizes.values()) <= SHARE_BYTES
        assert verify_folder(folder, FILE_NAME)[2] is None


def test_a_share_survives_a_restart(tmp_path: Path) -> None:
    for life in range(40):
        desk = Desk(tmp_path)
        for _ in range(LINES_BURST):
            desk.note("loud", "x" * 300)
        desk.log.close()
        assert desk.log._sources["loud"].file_bytes <= SHARE_BYTES, life
    sizes = sum(len(line) for line in (tmp_path / FILE_NAME).read_text().splitlines(keepends=True))
    assert SHARE_BYTES // 2 < sizes <= SHARE_BYTES


def test_what_was_left_out_is_counted_in_the_next_line(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    for _ in range(LINES_BURST + 5):
        desk.note("loud")
    desk.now_ns += 61_000_000_000
    desk.note("loud")
    desk.log.close()
    assert [line.get("more") for line in lines_of(tmp_path)] == [None] * LINES_BURST + [5]


def test_a_flooder_is_named_once_an_hour(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    for _ in range(1_000):
        desk.note("loud")
    desk.note("quiet")
    assert desk.alarms == [("loud", LINES_BURST + 1)]
    desk.now_ns += 3_600_000_000_000
    for _ in range(1_000):
        desk.note("loud")
    assert [source for source, _ in desk.alarms] == ["loud", "loud"]


def test_memory_of_sources_is_bounded(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    for number in range(3 * SOURCES_MAX):
        desk.note(f"s{number}")
    assert len(desk.log._sources) <= SOURCES_MAX
    assert desk.log.pending_count <= PENDING_MAX


async def test_lines_reach_the_disk_in_one_write(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    task = asyncio.create_task(desk.log.run())
    for number in range(20):
        desk.note(f"s{number}")
    async with asyncio.timeout(60):
        while desk.log.counts["lines"] < 20:
            await asyncio.sleep(0.01)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert len(lines_of(tmp_path)) == 20
    assert verify_folder(tmp_path, FILE_NAME)[2] is None
