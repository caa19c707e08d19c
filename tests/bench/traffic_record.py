"""What detectors say of things at crossings, as the table that `offload.judges = "traffic"` replays.

A row is one thing that a camera asks about: its class, whether it is there, and what the small, the larger and the
largest detector say of it in ten thousandths. Clutter has the class that it is taken for by whoever is surest.
"""

import json
from collections.abc import Sequence

from swarmd_models.bundle import Bundle
from swarmd_recipes.traffic_scenes import LABELS, PEDESTRIAN
from tests.bench.traffic_frames import MISSING, Judged, thing_of, told_of

SCALE = 10_000
Row = list[int]


def rows_of(frame: Judged) -> list[Row]:
    """One row a thing of the frame."""
    told = [told_of(frame, said) for said in frame.said]
    taken: dict[int, tuple[float, int]] = {}
    for said in frame.said:
        for one in said:
            at, _ = thing_of(frame.scene, one)
            taken[at] = max(taken.get(at, (0.0, PEDESTRIAN)), (one.score, one.kind))
    rows = []
    for at, label in enumerate(frame.scene.label_index.tolist()):
        kind = label if label >= 0 else taken.get(at, (0.0, PEDESTRIAN))[1]
        rows.append([kind, int(label >= 0), *(round(SCALE * max(MISSING, float(one[at]))) for one in told)])
    return rows


def recorded(
    learnt: Sequence[Judged], tested: Sequence[Judged], cameras: Sequence[int], models: Sequence[Bundle]
) -> str:
    """The table as JSON, one camera a line.

    Args:
        learnt: Frames that a plan is learnt on.
        tested: Frames of the cameras.
        cameras: Of which camera each of these is.
        models: The detectors, small to largest.
    """
    seen: dict[int, list[Row]] = {}
    for camera, frame in zip(cameras, tested, strict=True):
        seen.setdefault(camera, []).extend(rows_of(frame))
    head = {
        "format": 1,
        "made_by": "python -m tests.bench.traffic_cascade --record FILE",
        "labels": list(LABELS),
        "models": {one.name: one.digest for one in models},
    }
    lines = [f"{json.dumps(name)}: {json.dumps(value)}," for name, value in head.items()]
    lines.append(f'"learnt": {_dense([row for frame in learnt for row in rows_of(frame)])},')
    lines.append('"seen": {')
    lines.append(",\n".join(f'"{camera}": {_dense(rows)}' for camera, rows in sorted(seen.items())))
    return "{\n" + "\n".join(lines) + "\n}}\n"


def _dense(rows: Sequence[Row]) -> str:
    return json.dumps(rows, separators=(",", ":"))
