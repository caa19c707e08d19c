"""What detectors say of things at crossings, as the table that `offload.judges = "traffic"` replays.

A row is one thing that a camera asks about, as a tracker has it: its class, whether it is a road user, and how sure the
small, the larger and the largest detector are that it is one, in ten thousandths. Whoever says so of a box whose middle
lies in the thing's counts: where it is, the tracker knows. How sure that makes, each detector's own calibration says,
fitted on the frames that a plan is learnt on. Clutter has the class that it is taken for by whoever is surest.
"""

import json
from collections.abc import Sequence
from math import exp, log

from swarmd_models.bundle import Bundle
from swarmd_recipes.traffic_scenes import LABELS, PEDESTRIAN
from swarmd_recipes.traffic_scores import calibration_of
from tests.bench.traffic_frames import CROPS_FLOOR, Judged, thing_of

SCALE = 10_000
Row = tuple[int, bool, list[float]]
"""Class, whether it is there, and what each detector says."""


def rows_of(frame: Judged) -> list[Row]:
    """One row a thing of the frame; scores as the detectors say them."""
    rows: list[Row] = []
    for at, (box, label) in enumerate(zip(frame.scene.boxes.tolist(), frame.scene.label_index.tolist(), strict=True)):
        scores, surest = [], (0.0, PEDESTRIAN)
        for said in frame.said:
            here = [
                (one.score, one.kind)
                for one in said
                if _is_in(box, one.box) and thing_of(frame.scene, one)[0] in (at, -1)
            ]
            surest = max([surest, *here])
            scores.append(max([CROPS_FLOOR, *(score for score, _ in here)]))
        rows.append((label if label >= 0 else surest[1], label >= 0, scores))
    return rows


def _is_in(box: Sequence[float], other: Sequence[float]) -> bool:
    x, y = (other[0] + other[2]) / 2, (other[1] + other[3]) / 2
    return box[0] <= x <= box[2] and box[1] <= y <= box[3]


def _calibrated(rows: Sequence[Row], rules: Sequence[tuple[float, float]]) -> list[list[int]]:
    found = []
    for kind, is_there, scores in rows:
        logits = [scale * log(one / (1.0 - one)) + bias for one, (scale, bias) in zip(scores, rules, strict=True)]
        found.append([kind, int(is_there), *(round(SCALE / (1.0 + exp(-one))) for one in logits)])
    return found


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
    learnt_rows = [row for frame in learnt for row in rows_of(frame)]
    sizes = range(len(learnt_rows[0][2]))
    rules = [calibration_of((scores[size], is_there) for _, is_there, scores in learnt_rows) for size in sizes]
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
    lines.append(f'"learnt": {_dense(_calibrated(learnt_rows, rules))},')
    lines.append('"seen": {')
    lines.append(",\n".join(f'"{camera}": {_dense(_calibrated(rows, rules))}' for camera, rows in sorted(seen.items())))
    return "{\n" + "\n".join(lines) + "\n}}\n"


def _dense(rows: Sequence[Sequence[int]]) -> str:
    return json.dumps(rows, separators=(",", ":"))
