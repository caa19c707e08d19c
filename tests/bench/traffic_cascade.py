"""The cascade on rendered traffic: what the cameras of `offload-traffic-200` ask better detectors, and what it gives.

    python -m tests.bench.traffic_cascade [--models DIR] [--first N] [--record FILE.json]        JSON; a CPU minute

Every camera of the scenario is one crossing that `swarmd_recipes.traffic_scenes` draws, in a light and with a noise of
its own; three detectors, made by `python -m swarmd_recipes traffic-192 traffic-384 traffic-288`, look at its frames.
The camera runs the small one. Where an object is in doubt the frame goes as a JPEG to the larger one and, where that
leaves it in doubt, to the largest: plans, walks and fusion are the daemon's (`swarmd.worker.cascade`,
`swarmd_protocols.offload.cascade`). Weights and bands are set on crossings that are neither taught nor tested. Beside:

- `small`, `larger`, `largest`: each alone; `largest` is what always asking gives, and costs all frames' bytes.
- `naive`: what a user would write, the largest's word where the own score is within 0.3 to 0.7.
- `direct`: the same cascade without the step between.
- `crops`: what leaves is cut around what the small detector has seen, all else is one grey (`lending.leave = "crops"`).
- `hindsight`: the bands with the fewest bytes (`work`: the least multiplications) that are as good on the very frames.
- `oracle`: knows every answer and which of them are wrong; takes a frame's best, and asks for nothing else.

`mean_ap` is at an overlap of a half; `accuracy` the share of the things, road users and clutter, that are taken for
what they are. `--record` writes what each detector says of each thing, for `offload.judges = "traffic"`.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from swarmd.worker.leaving import CROPS
from swarmd_models.errors import ArtefactError
from swarmd_protocols.offload.cascade import Plan
from swarmd_recipes.traffic_scenes import CALIBRATION
from swarmd_recipes.traffic_scores import Found, mean_ap
from tests.bench.traffic_frames import (
    LARGER,
    LARGEST,
    SIZES,
    SMALL,
    Judged,
    Outcome,
    Table,
    accuracy,
    banded,
    bundles,
    judged,
    learned,
    outcome,
    told_of,
    walked,
)
from tests.bench.traffic_record import recorded

MODELS = Path(__file__).resolve().parent / "traffic"
CAMERAS = tuple(range(10, 210))
"""Hosts of `offload-traffic-200` that have a camera; each is the crossing with its number."""
EACH = 8
"""Frames of each camera."""
LEARNT_ON = tuple((CALIBRATION + 100 + number, index) for number in range(100) for index in range(12))
"""Crossing and frame: on these a plan is fitted."""
GRID = tuple(round(0.5 * 0.8**step, 6) for step in range(13))
"""Doubts from which a step is asked: 0.5 to 0.034, so that nobody is asked about a frame in which nothing is seen."""
CROPS_GRID = tuple(round(0.5 * 0.8**step, 6) for step in range(26))
"""The same where crops leave, and of a frame in which nothing is seen nothing does."""
MARGIN = (0.985, 0.995)
"""Of the largest's mAP and accuracy, that bands must reach where they are set: the goals are 0.98 and 0.99."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What bands must reach."""

    mean_ap: float
    accuracy: float

    def is_met(self, found: Outcome) -> bool:
        """Whether they do."""
        return found.mean_ap >= self.mean_ap and found.accuracy >= self.accuracy


def cheapest(
    table: Table, wanted: Wanted, units: Sequence[float] = (), grid: Sequence[float] = ()
) -> tuple[tuple[float, ...], Outcome]:
    """The bands that reach what is wanted with the fewest bytes, or the least work; the widest where none does.

    Args:
        table: What is asked about.
        wanted: On it.
        units: Work of an inference at each step; none: bytes count.
        grid: Doubts tried, the widest band last; none: `GRID`.
    """

    def cost(found: Outcome) -> float:
        return sum(a * b for a, b in zip(found.asked, units, strict=True)) if units else float(found.bytes)

    steps, grid = table.bytes.shape[1], grid or GRID
    tried = [(a,) for a in grid] if steps == 1 else [(a, b) for a in grid for b in grid if a <= b]
    rows = [(doubts, outcome(table, doubts)) for doubts in tried]
    fit = [row for row in rows if wanted.is_met(row[1])]
    return min(fit, key=lambda row: (cost(row[1]), row[0])) if fit else rows[-1]


def figures(
    frames: Sequence[Judged], said: Sequence[Sequence[Found]], asked: Sequence[Sequence[int]], every: int = 0
) -> dict[str, Any]:
    """How good answers are, and what they cost; `every`: bytes of always asking, where these frames do not say."""
    whole, by_class = mean_ap([one.scene for one in frames], said)
    every = every or sum(one.bytes[LARGEST] for one in frames)
    sent = sum(frame.bytes[judge] for frame, judges in zip(frames, asked, strict=True) for judge in judges)
    return {
        "mean_ap": round(whole, 4),
        "accuracy": round(accuracy(frames, said), 4),
        "bytes_a_frame": round(sent / len(frames), 1),
        "bytes_of_always": round(sent / every, 4),
        "asked": [sum(judge in judges for judges in asked) for judge in (LARGER, LARGEST)],
        "ap": {label: round(value, 3) for label, value in by_class.items()},
    }


def naive(frame: Judged) -> tuple[list[Found], tuple[int, ...]]:
    """The largest's word where the own score is below 0.7 either way."""
    is_doubtful = any(max(one.score, 1.0 - one.score) < 0.7 for one in frame.said[SMALL])
    return (frame.said[LARGEST], (LARGEST,)) if is_doubtful else (frame.said[SMALL], ())


def oracle(frame: Judged, plan: Plan) -> tuple[list[Found], tuple[int, ...]]:
    """The answer that is right about most things of those that anybody could have, with the fewest bytes."""
    everything = banded(plan, [0.0] * len(plan.steps))
    ways = [(frame.said[SMALL], ()), (frame.said[LARGER], (LARGER,)), (frame.said[LARGEST], (LARGEST,))]
    ways += [walked(Plan(plan.own, ()), frame), walked(everything, frame)]

    def worth(way: tuple[list[Found], tuple[int, ...]]) -> tuple[int, int]:
        right = (told_of(frame, way[0]) >= 0.5) == (frame.scene.label_index >= 0)
        return -int(right.sum()), sum(frame.bytes[judge] for judge in way[1])

    return min(ways, key=worth)


def of_plan(plan: Plan, frames: Sequence[Judged], every: int = 0) -> dict[str, Any]:
    """What the daemon's own walk makes of all frames."""
    ways = [walked(plan, frame) for frame in frames]
    return figures(frames, [way[0] for way in ways], [way[1] for way in ways], every)


def goal(whole: Sequence[Judged], share: tuple[float, float] = MARGIN) -> Wanted:
    """Shares of what the largest reaches on whole frames."""
    largest = [one.said[LARGEST] for one in whole]
    return Wanted(share[0] * mean_ap([one.scene for one in whole], largest)[0], share[1] * accuracy(whole, largest))


def cascade(
    learnt: Sequence[Judged],
    tested: Sequence[Judged],
    judges: Sequence[int],
    macs: Sequence[float],
    wanted: Wanted | None = None,
    every: int = 0,
    grid: Sequence[float] = (),
) -> tuple[dict[str, Any], Plan]:
    """A plan that asks these, set on what is learnt, judged on what is tested, beside the best bands in hindsight.

    Args:
        learnt: Frames on which it is set.
        tested: Frames that judge it.
        judges: Whom it asks, in order.
        macs: Of each size.
        wanted: On what is learnt; None: a little more than the goals.
        every: Bytes of always asking, where these frames do not say.
        grid: Doubts tried; none: `GRID`.
    """
    plan = learned(learnt, judges)
    doubts, _ = cheapest(Table.of(learnt, plan, judges), wanted or goal(learnt), grid=grid)
    found = of_plan(banded(plan, doubts), tested, every)
    table, units = Table.of(tested, plan, judges), [macs[judge] for judge in judges]
    mine = outcome(table, doubts)
    equal = Wanted(mine.mean_ap, mine.accuracy)
    few, least = cheapest(table, equal, grid=grid), cheapest(table, equal, units, grid)
    work = sum(count * unit for count, unit in zip(mine.asked, units, strict=True))
    best = sum(count * unit for count, unit in zip(least[1].asked, units, strict=True))
    found |= {
        "doubts": doubts,
        "hindsight": {"doubts": few[0], "mean_ap": round(few[1].mean_ap, 4), "asked": few[1].asked},
        "bytes_of_hindsight": round(mine.bytes / max(1, few[1].bytes), 4),
        "work_of_hindsight": round(work / max(1e-9, best), 4),
    }
    return found, banded(plan, doubts)


def report(learnt: Sequence[Judged], tested: Sequence[Judged], macs: Sequence[float]) -> tuple[dict[str, Any], Plan]:
    """All figures, and the plan."""
    found: dict[str, Any] = {
        "frames": len(tested),
        "road_users": sum(int((one.scene.label_index >= 0).sum()) for one in tested),
        "clutter": sum(int((one.scene.label_index < 0).sum()) for one in tested),
    }
    for size, name in enumerate(("small", "larger", "largest")):
        asked = [(size,) if size else ()] * len(tested)
        found[name] = figures(tested, [one.said[size] for one in tested], asked)
    ours, plan = cascade(learnt, tested, (LARGER, LARGEST), macs)
    found["cascade"] = ours
    found["direct"], _ = cascade(learnt, tested, (LARGEST,), macs)
    for name, ways in (
        ("naive", [naive(one) for one in tested]), ("oracle", [oracle(one, plan) for one in tested]),
    ):  # fmt: skip
        found[name] = figures(tested, [way[0] for way in ways], [way[1] for way in ways])
    for row in ("cascade", "direct", "naive", "oracle", "small", "larger"):
        beside(found[row], found["largest"])
    ours["bytes_of_oracle"] = round(ours["bytes_a_frame"] / max(1e-9, found["oracle"]["bytes_a_frame"]), 4)
    work = {
        row: sum(count * unit for count, unit in zip(found[row]["asked"], macs[1:], strict=True))
        for row in ("cascade", "oracle")
    }
    ours["work_of_oracle"] = round(work["cascade"] / max(1e-9, work["oracle"]), 4)
    return found, plan


def beside(row: dict[str, Any], largest: dict[str, Any]) -> None:
    """Note what share of the largest's quality a row has."""
    row["mean_ap_of_largest"] = round(row["mean_ap"] / largest["mean_ap"], 4)
    row["accuracy_of_largest"] = round(row["accuracy"] / largest["accuracy"], 4)


def report_crops(
    whole: tuple[Sequence[Judged], Sequence[Judged]],
    crops: tuple[Sequence[Judged], Sequence[Judged]],
    macs: Sequence[float],
) -> dict[str, Any]:
    """The same cascades where crops leave, beside always sending whole frames; frames learnt on, and tested."""
    every = sum(one.bytes[LARGEST] for one in whole[1])
    largest = figures(whole[1], [one.said[LARGEST] for one in whole[1]], [(LARGEST,)] * len(whole[1]))
    found = {}
    for name, judges in (("crops", (LARGER, LARGEST)), ("crops direct", (LARGEST,))):
        found[name], _ = cascade(*crops, judges, macs, goal(whole[0]), every, CROPS_GRID)
        beside(found[name], largest)
        plan, row = learned(crops[0], judges), found[name]
        best = [oracle(one, plan) for one in crops[1]]
        sent = sum(frame.bytes[judge] for frame, way in zip(crops[1], best, strict=True) for judge in way[1])
        row["bytes_of_oracle"] = round(row["bytes_a_frame"] * len(crops[1]) / max(1, sent), 4)
    said = [one.said[LARGEST] for one in crops[1]]
    found["crops always"] = figures(crops[1], said, [(LARGEST,)] * len(said), every)
    beside(found["crops always"], largest)
    return found


def heard_low(whole: Judged, crops: Judged) -> Judged:
    """What all say of a whole frame, the small detector down to `CROPS_FLOOR`."""
    return replace(whole, said=(crops.said[SMALL], *whole.said[1:]))


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=MODELS, type=Path, metavar="DIR")
    parser.add_argument("--record", type=Path, metavar="FILE.json")
    parser.add_argument("--first", type=int, default=CAMERAS[0], metavar="N", help="of the crossings that judge")
    options = parser.parse_args()
    try:
        models = bundles(options.models)
    except ArtefactError as error:
        print(f"{error}: make them by `python -m swarmd_recipes {' '.join(SIZES)}`", file=sys.stderr)
        return 2
    macs = [float(one.provenance["million_macs"]) for one in models]
    learnt = judged(models, LEARNT_ON)
    cameras = [(options.first + at, frame) for at in range(len(CAMERAS)) for frame in range(EACH)]
    tested = judged(models, cameras)
    found, _ = report(learnt, tested, macs)
    in_crops = judged(models, LEARNT_ON, CROPS), judged(models, cameras, CROPS)
    found |= report_crops((learnt, tested), in_crops, macs)
    found["models"] = {
        one.name: {"digest": one.digest, "million_macs": macs[size], "bytes": one.model_path.stat().st_size}
        for size, one in enumerate(models)
    }
    if options.record:
        low = [
            [heard_low(*pair) for pair in zip(*pairs, strict=True)]
            for pairs in zip((learnt, tested), in_crops, strict=True)
        ]
        options.record.write_text(recorded(*low, [camera for camera, _ in cameras], models))
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
