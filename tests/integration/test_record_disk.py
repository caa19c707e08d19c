"""A recording and its disk: what a power cut leaves, and that the loop waits for neither disk nor encoder."""

import asyncio
import errno
import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcap", reason="mcap is not installed (extra record)")

from swarmd.bridges.record import recorder as module
from swarmd.bridges.record.bridge import RecordBridge
from swarmd.bridges.record.reading import Recording
from swarmd.bridges.record.recorder import Recorder
from swarmd.config.bridges import RecordConfig
from tests.support.bridge_world import World, detection


async def test_what_a_power_cut_leaves_is_all_but_the_last_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in the kernel's memory alone is gone then, and a message after which nothing happens is not forgotten."""
    monkeypatch.setattr(module, "CHUNK_S", 0.0)
    path, left, synced = tmp_path / "run.mcap", tmp_path / "left.mcap", []

    def sync(descriptor: int) -> None:
        synced.append(descriptor)
        left.write_bytes(path.read_bytes())

    monkeypatch.setattr(os, "fdatasync", sync)
    one = Recorder(path, "ros2", {}, 1 << 30, 0)
    one._chunk_due_s = time.monotonic() + 3_600
    one.write("/log", "std_msgs/msg/String", {"data": "nothing follows"}, 1)
    one._chunk_due_s = 0.0
    await one.keep()
    assert [message.log_time for _, _, message in Recording(left).messages()] == [1]
    count = len(synced)
    one.write("/log", "std_msgs/msg/String", {"data": "more"}, 2)
    await one.keep()
    assert [message.log_time for _, _, message in Recording(left).messages()] == [1, 2]
    assert len(synced) > count
    one.close()


async def test_a_disk_that_is_full_ends_a_long_message_as_it_ends_a_short_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first message on a topic writes how it is read, which finishes a chunk that is nearly full."""
    one = Recorder(tmp_path / "run.mcap", "ros2", {}, 1 << 30, 0)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(one._writer, "register_schema", full)
    await one.write_long("/log", "std_msgs/msg/String", {"data": "it does not fit"}, 1)
    assert one.full
    assert one.problem == "No space left on device"
    assert one.counts["dropped_full"] == 0


@pytest.mark.parametrize("profile", ["ros2", "foxglove"])
async def test_the_loop_waits_neither_for_the_disk_nor_for_the_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profile: str
) -> None:
    """A slow card takes seconds for a sync, and a thousand objects take a tenth of a second to encode."""
    monkeypatch.setattr(module, "CHUNK_S", 0.0)
    monkeypatch.setattr("swarmd.bridges.record.bridge.PICTURE_S", 0.01)
    on_loop: list[str] = []
    aside: list[str] = []

    def note(what: str) -> None:
        (on_loop if threading.current_thread() is threading.main_thread() else aside).append(what)

    real = Recorder._channel

    def channel(self: Recorder, topic: str, type_name: str) -> tuple[int, Any]:
        number, encode = real(self, topic, type_name)

        def noted(message: Mapping[str, Any]) -> bytes:
            note(topic)
            return bytes(encode(message))

        return number, noted

    monkeypatch.setattr(Recorder, "_channel", channel)
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda _: note("sync"))
    world = World()
    task = asyncio.create_task(
        RecordBridge(RecordConfig(enabled=True, profile=profile, min_free_mib=1), tmp_path / "run.mcap").run(world)
    )
    async with asyncio.timeout(60):
        while not {"/swarm/objects", "sync"} <= {*on_loop, *aside}:
            await asyncio.sleep(0.01)
        world.say(detection(1))
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    for thread in threading.enumerate():
        if thread.name == "record":
            await asyncio.to_thread(thread.join)
    assert on_loop == ["/swarm/detections"], "one message is nothing to wait for"
    assert {"/swarm/objects", "sync"} <= set(aside)
