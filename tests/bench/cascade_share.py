"""The cascade where it pays: how many modules a device has to ask a better judge about, and what that gives.

    python -m tests.bench.cascade_share [--crops FILE.npz]       JSON; without the crops it says so and ends

A device that runs the first stage alone (tiny-224, small-320) asks for a judge wherever its own score is not sure that
a module is healthy or faulty, as `swarmd_protocols.offload.cascade` does with a band [low, high]: below it a module
counts as healthy and above it as faulty, within it the judge's confidence counts, fused with the device's own by
weights. Band and weights are set on crops that no net was taught with (`Crops.with_part_held_back`), so that the device
asks about its budget of a plant's modules, 2 % of them faulty; all figures are of the validation split. Beside it:

- `alone` and `always`: never and always asking; `gain` and `of_always` are the cascade's recall beside theirs.
- `best_band`: the recall of the best of all bands that ask about no more modules, chosen on the very crops.
- `oracle`: asks only about the modules whose verdict asking changes for the better; as sure as `always` then, and its
  share is the least that anybody could ask.

Recall is that at 10 false alarms in 1,000 healthy modules, the threshold of each row set at that point; 95 % of 1,000
resamplings lie within the interval.
"""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from swarmd_models.bundle import load_bundle
from swarmd_models.evaluate import score_crops
from swarmd_models.synthetic.thermal import HELD_BACK, NORMAL_LABEL, Crops

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
CROPS = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "modules_ir" / "modules_ir_visible.npz"
VALIDATION = 1
FALSE_PER_1000 = 10.0
FAULTY = 0.02
"""Of a plant's modules, as in the frames that recipes compose."""
SURE_PER_1000 = 2.0
"""Of the healthy ones that may lie above the band: a fifth of the false alarms that are allowed."""
DRAWS = 1_000
GRID = 120
"""Ends tried of the best band, either."""
SURE = 1e6
"""Added to a score that needs no judge: above all that are fused."""
STEPS = 4_000
"""Of the regression's gradient descent."""


def logits(scores: npt.NDArray[np.floating]) -> Floats:
    """Log-odds, kept finite."""
    kept = np.clip(scores.astype(np.float64), 1e-6, 1.0 - 1e-6)
    return np.asarray(np.log(kept / (1.0 - kept)), np.float64)


def recall(score: Floats, faulty: Bools) -> float:
    """Of the faulty ones, at `FALSE_PER_1000` of the healthy ones."""
    healthy = np.sort(score[~faulty])[::-1]
    threshold = healthy[int(len(healthy) * FALSE_PER_1000 / 1000.0)]
    return float((score[faulty] > threshold).mean())


def share(asked: Bools, faulty: Bools) -> float:
    """Of a plant's modules."""
    return float(FAULTY * asked[faulty].mean() + (1.0 - FAULTY) * asked[~faulty].mean())


def cascade(own: Floats, fused: Floats, low: float, high: float) -> Floats:
    """The score of each module: the fused one where the own is doubtful, else healthy or faulty for sure."""
    return np.where(own < low, -np.inf, np.where(own > high, SURE + own, fused))


def band(own: Floats, faulty: Bools, budget: float) -> tuple[float, float]:
    """Own scores between which a device may ask and keep to its budget of modules."""
    high = float(np.sort(own[~faulty])[::-1][int((~faulty).sum() * SURE_PER_1000 / 1000.0)])
    steps = np.unique(own)
    shares = np.array([share((own >= low) & (own <= high), faulty) for low in steps])
    return float(steps[np.flatnonzero(shares <= budget)[0]]), high


def weights(own: Floats, judge: Floats, faulty: Bools) -> Floats:
    """Of own and judge's log-odds, and an offset, by logistic regression."""
    x = np.column_stack([own, judge, np.ones(len(own))])
    scale = np.array([own.std(), judge.std(), 1.0])
    ready, wanted, found = x / scale, faulty.astype(np.float64), np.zeros(3)
    for _ in range(STEPS):
        found -= 0.5 * ready.T @ (1.0 / (1.0 + np.exp(-ready @ found)) - wanted) / len(ready)
    return np.asarray(found / scale)


def interval(value: Callable[[npt.NDArray[np.int64]], float], faulty: Bools) -> list[float]:
    """95 % of resamplings, faulty and healthy ones each among themselves."""
    rng, parts = np.random.default_rng(1), (np.flatnonzero(faulty), np.flatnonzero(~faulty))
    drawn = [value(np.concatenate([rng.choice(part, len(part)) for part in parts])) for _ in range(DRAWS)]
    return [round(float(one), 3) for one in np.quantile(drawn, (0.025, 0.975))]


def figures(own: dict[int, Floats], judge: dict[int, Floats], truth: dict[int, Bools], budget: float) -> dict[str, Any]:
    """What one device gets of one judge."""
    rule = weights(own[HELD_BACK], judge[HELD_BACK], truth[HELD_BACK])
    fused = {part: rule[0] * own[part] + rule[1] * judge[part] + rule[2] for part in own}
    low, high = band(own[HELD_BACK], truth[HELD_BACK], budget)
    mine, theirs, faulty = own[VALIDATION], fused[VALIDATION], truth[VALIDATION]
    asked = (mine >= low) & (mine <= high)
    said = cascade(mine, theirs, low, high)
    alone, always, found = recall(mine, faulty), recall(theirs, faulty), recall(said, faulty)
    lows, highs = (np.quantile(mine, np.linspace(*ends, GRID)) for ends in ((0.3, 0.99), (0.5, 1.0)))
    best = max(
        found,
        *(
            recall(cascade(mine, theirs, low, high), faulty)
            for low in lows for high in highs[highs >= low]
            if share((mine >= low) & (mine <= high), faulty) <= share(asked, faulty)
        ),
    )  # fmt: skip

    def alarms(score: Floats) -> Bools:
        healthy = np.sort(score[~faulty])[::-1]
        return np.asarray(score > healthy[int(len(healthy) * FALSE_PER_1000 / 1000.0)])

    needed = (alarms(mine) != alarms(theirs)) & (alarms(theirs) == faulty)
    return {
        "alone": round(alone, 4), "always": round(always, 4), "cascade": round(found, 4),
        "gain": round(found - alone, 4),
        "gain_95": interval(lambda rows: recall(said[rows], faulty[rows]) - recall(mine[rows], faulty[rows]), faulty),
        "of_always": round(found / always, 4),
        "of_always_95": interval(
            lambda rows: recall(said[rows], faulty[rows]) / recall(theirs[rows], faulty[rows]), faulty
        ),
        "asked_of_a_plant": round(share(asked, faulty), 4), "asked_of_the_crops": round(float(asked.mean()), 4),
        "best_band": round(best, 4), "of_best_band": round(found / best, 4),
        "oracle_asked_of_a_plant": round(share(needed, faulty), 4),
    }  # fmt: skip


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--crops", default=CROPS, type=Path, metavar="FILE.npz")
    options = parser.parse_args()
    if not options.crops.is_file():
        print(f"{options.crops} is not there: crops of modules are wanted (--crops)", file=sys.stderr)
        return 2
    crops = Crops.load(options.crops).with_part_held_back()
    rows = {part: np.flatnonzero(crops.split == part) for part in (HELD_BACK, VALIDATION)}
    normal = list(crops.labels).index(NORMAL_LABEL)
    truth = {part: np.asarray(crops.label_index[which] != normal) for part, which in rows.items()}

    @cache
    def scores(name: str, stages: int) -> dict[int, Floats]:
        bundle = load_bundle(f"zoo:{name}")
        bundle = bundle if stages == 2 else replace(bundle, second=None, golden=None)
        return {part: logits(score_crops(bundle, crops, which)).max(axis=1) for part, which in rows.items()}

    found: dict[str, Any] = {
        "crops": {"faulty": int(truth[VALIDATION].sum()), "healthy": int((~truth[VALIDATION]).sum())}
    }
    for name, budget, judges in (
        ("tiny-224", 0.22, ("tiny-224", "small-320", "medium-640")), ("small-320", 0.09, ("small-320", "medium-640")),
    ):  # fmt: skip
        own = scores(name, 1)
        for judge in judges:
            found[f"{name}, first stage, asks {judge}"] = figures(own, scores(judge, 2), truth, budget)
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
