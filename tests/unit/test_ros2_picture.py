"""A large picture on ROS 2 topics: made a part at a time, encoded and written aside; the loop turns meanwhile."""

import asyncio
import threading
from collections import defaultdict
from typing import Any

import pytest

pytest.importorskip("cyclonedds", reason="cyclonedds is not installed (extra dds)")

from swarmd.bridges.ros2 import bridge as bridges
from swarmd.bridges.ros2.bridge import Ros2Bridge
from swarmd.config.bridges import DdsConfig
from tests.support.bridge_world import World, object_view

OBJECTS = 300
LONG = ("Detection3DArray", "MarkerArray", "DiagnosticArray", "CellArray")


async def test_a_large_picture_leaves_the_loop_its_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a thousand objects one step took 17 ms, and the markers 31 to 78 ms of the loop that answers probes."""
    turns = 0
    made: defaultdict[int, int] = defaultdict(int)
    """Objects that were looked at, by the loop's turn."""
    written: list[tuple[str, int, bool]] = []
    """Message, its length, and whether the loop wrote it."""
    loops, real = threading.get_ident(), bridges.object_of

    async def beat() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def object_of(*given: Any) -> Any:
        made[turns] += 1
        return real(*given)

    def write(writer: Any, sample: Any) -> None:
        rows = next((getattr(sample, name) for name in ("detections", "markers") if hasattr(sample, name)), [])
        written.append((type(sample).__name__, len(rows), threading.get_ident() == loops))

    monkeypatch.setattr(bridges, "object_of", object_of)
    monkeypatch.setattr(bridges, "write", write)
    world = World("alice")
    world.views = [object_view(f"o{number}") for number in range(OBJECTS)]
    bridge = Ros2Bridge(DdsConfig(enabled=True))
    bridge._daemon, bridge._writers = world, defaultdict(object)
    heart = asyncio.create_task(beat())
    await bridge._publish_picture()
    heart.cancel()
    assert sum(made.values()) == OBJECTS
    assert max(made.values()) <= 2
    assert [name for name, _, by_loop in written if by_loop and name in LONG] == []
    assert {(name, rows) for name, rows, _ in written} >= {
        ("Detection3DArray", OBJECTS), ("MarkerArray", OBJECTS + 1),
    }  # fmt: skip


async def test_what_dds_refuses_of_a_picture_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(writer: Any, sample: Any) -> None:
        raise RuntimeError("a reader that has stopped")

    monkeypatch.setattr(bridges, "write", write)
    bridge = Ros2Bridge(DdsConfig(enabled=True))
    bridge._daemon, bridge._writers = World("alice"), defaultdict(object)
    await bridge._publish_picture()
    assert bridge.counters()["dropped_objects"] == bridge.counters()["dropped_peers"] == 1
