"""What detectors of three sizes said of rendered traffic, looked up instead of drawn (`offload.judges = "traffic"`).

`traffic_looks.json` beside this file is written by `python -m tests.bench.traffic_cascade --record FILE`: a row for
each road user and each piece of clutter in the frames of a crossing, with its class, whether it is a road user, and how
sure the small, the larger and the largest detector are of it, in ten thousandths. Each camera has the rows of its own
crossing; the plan is learnt on rows of crossings that no camera has.
"""

import json
import random
from functools import lru_cache
from pathlib import Path
from typing import Any

from swarmd_protocols.offload.cascade import Plan
from swarmd_sim.world.judges import Look, plan_of

_FILE = Path(__file__).with_name("traffic_looks.json")
_SCALE = 10_000
FIRST_CAMERA = 10
"""The scenario's gateways and clouds come before, and have none."""


@lru_cache(maxsize=1)
def _table() -> tuple[list[Look], list[list[Look]]]:
    """Rows to learn from, and those of each camera in order."""
    data: dict[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
    cameras = sorted(data["seen"], key=int)
    return _looks(data["learnt"]), [_looks(data["seen"][camera]) for camera in cameras]


def _looks(rows: list[list[int]]) -> list[Look]:
    return [Look(kind, bool(there), (a / _SCALE, b / _SCALE, c / _SCALE)) for kind, there, a, b, c in rows]


def recorded_look(host: int, seed: int) -> Look:
    """A look of a camera's crossing; fleets with fewer lenders have the crossings in another order.

    Args:
        host: Its index.
        seed: Which look.
    """
    _, cameras = _table()
    rows = cameras[(host - FIRST_CAMERA) % len(cameras)]
    return rows[int(random.Random(seed).random() * len(rows))]


@lru_cache(maxsize=32)
def recorded_plan(digests: tuple[bytes, ...], judges: tuple[int, ...], units: tuple[float, ...]) -> Plan:
    """The plan of a release, from rows that no run sees; arguments as those of `judges.learned_plan`."""
    looks, _ = _table()
    return plan_of(looks, sum(one.is_there for one in looks) / len(looks), digests, judges, units)
