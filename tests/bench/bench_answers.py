"""How long an answer keeps the daemon's loop: 20,000 objects of 20 observers, 20,000 cells, 250 members, 64 counters of
each of 1,000.

CPU milliseconds of the longest turn of the loop while a verb is answered into a stream, and of all turns; `whole` is
the same answer made in one turn. Prints one JSON object.

    python -m tests.bench.bench_answers
"""

import asyncio
import gc
import json
import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from swarmd.api import geojson, views
from swarmd.api.control import ControlServer, encode
from swarmd.api.parts import Parts, whole
from swarmd.brain.in_parts import PartsOfViews
from swarmd.logs import Logger
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.records import COUNTERS_MAX
from swarmd_protocols.state.observations import DefineCells
from tests.bench.bench_state import NOW_NS, FastSigner, batches_of, deliver, replica_for, world
from tests.support.swim_net import Net

OBJECTS, CELLS, MEMBERS, COUNTING = 20_000, 20_000, 250, 1_000
ORIGIN: Any = SimpleNamespace(has_origin=True, origin_latitude_deg=-18.88, origin_longitude_deg=-70.11)


class Sink:
    """Where the answer goes."""

    def write(self, data: bytes) -> None:
        self.bytes = getattr(self, "bytes", 0) + len(data)

    async def drain(self) -> None:
        """Nobody has to be waited for."""


async def answer(make: Callable[[], Mapping[str, Any]]) -> dict[str, float]:
    """CPU milliseconds of the longest turn, and of all, while the control server writes an answer."""
    server = ControlServer(Path("unused"), lambda verb, arguments: {}, _nothing, Logger("bench"))
    turns: list[float] = []

    async def turn() -> None:
        while True:
            began = time.process_time()
            await asyncio.sleep(0)
            turns.append(time.process_time() - began)

    ticker = asyncio.ensure_future(turn())
    await asyncio.sleep(0)
    turns.clear()
    assert await server._tell("bench", {"ok": True, "result": make()}, Sink())
    await asyncio.sleep(0)
    ticker.cancel()
    return {"longest_turn_ms": round(max(turns) * 1e3, 2), "all_ms": round(sum(turns) * 1e3, 1), "turns": len(turns)}


async def _nothing() -> Any:
    yield {}


def in_one_turn(make: Callable[[], Mapping[str, Any]]) -> float:
    began = time.process_time()
    encode({"ok": True, "result": whole(make())})
    return round((time.process_time() - began) * 1e3, 1)


def main() -> None:
    seeds = [bytes([n]) * 32 for n in range(20)]
    replica = replica_for(seeds, FastSigner())
    deliver(replica, batches_of(world(random.Random(3), OBJECTS, OBJECTS, 15, 20), 25, seeds, lambda _: FastSigner()))
    cells = tuple((f"cell-{n}", 1_000 * (n % 200), 1_000 * (n // 200)) for n in range(CELLS))
    replica.on_command(DefineCells(cells), NOW_NS * 4)
    for n in range(COUNTING):
        counted = {f"counter-{i:02d}": n + i for i in range(COUNTERS_MAX)}
        replica._projection.vitals.take_counters(NodeId(n.to_bytes(16, "little")), 1, counted)
    net = Net(MEMBERS, seed=3)
    net.run(15)
    parts = PartsOfViews(net.hosts[0].node, replica.views)
    names = parts.names()
    verbs: dict[str, Callable[[], Mapping[str, Any]]] = {
        "objects": lambda: {"objects": Parts.of(parts.objects(), lambda view: views.object_row(view, names))},
        "objects as GeoJSON": lambda: {
            **geojson.collection(()),
            "features": Parts.of(parts.objects(), lambda view: geojson.object_feature(view, ORIGIN, names)),
        },
        "detections": lambda: {
            "detections": Parts.of(parts.detections(), lambda view: views.detection_row(view, names))
        },
        "cells": lambda: {"cells": Parts.of(parts.cells(), lambda view: views.cell_row(view, names))},
        "members": lambda: {"members": Parts.of(parts.members(), views.member_row)},
        "counters": lambda: views.counters_answer(parts),
    }
    gc.collect()
    gc.freeze()
    counts = replica.views.health()
    figures: dict[str, Any] = {
        "objects shown": replica.views.object_count(), "sightings": counts["sightings"], "cells": CELLS,
        "members": len(names),
    }  # fmt: skip
    for name, make in verbs.items():
        figures[name] = {**asyncio.run(answer(make)), "whole_ms": in_one_turn(make)}
    began = time.process_time()
    replica.views.object_count()
    figures["count of objects, ms"] = round((time.process_time() - began) * 1e3, 2)
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
