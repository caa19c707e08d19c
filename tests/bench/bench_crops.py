"""What more could be made of the zoo's nets on single crops: `python -m tests.bench.bench_crops --crops FILE.npz`.

Attempts at a higher AUROC (fault or not) and macro F1 (twelve classes) without a new net, each judged on the validation
split, with whatever it sets (thresholds, weights) set on the crops held back from the students. One JSON object:

- `small-320`, `tiny-224`, `medium-640`, `nano-160`: the bundles as they are.
- `one view`, `four views`: small-320 with another number of views of each cut; the frame's time changes with it.
- `float`: both stages before they were quantised.
- `second alone`: the second stage without the first one's word.
- `mean of three`: small-320, tiny-224 and medium-640, mean of logits: three times the time.
- `stacked`: a logistic regression of all their logits, by class.
- `offsets by class`: small-320 with an offset for each class, chosen for the macro F1 of the crops held back.
- `doubted labels right`: small-320 where the healthy crops that all three are surest of (`contact_sheet`) counted as
  faulty: what label noise takes at most.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from swarmd_models.bundle import Bundle, load_bundle
from swarmd_models.evaluate import float_twin, score_crops
from swarmd_models.metrics import auroc, macro_f1
from swarmd_models.synthetic.thermal import HELD_BACK, NORMAL_LABEL, Crops

Floats = npt.NDArray[np.float64]
VALIDATION = 1
AGREED_PER_1000 = 10.0
"""Of the healthy crops, the surest of each model: `swarmd_recipes.contact_sheet`."""
STEPS = 400
"""Of the regression's gradient descent."""


def logits(scores: npt.NDArray[np.floating]) -> Floats:
    """Log-odds of scores, kept finite."""
    kept = np.clip(scores.astype(np.float64), 1e-6, 1.0 - 1e-6)
    return np.asarray(np.log(kept / (1.0 - kept)), np.float64)


class Judged:
    """Crops of both splits with their truth."""

    def __init__(self, path: Path, labels: tuple[str, ...]) -> None:
        self.crops = Crops.load(path).with_part_held_back()
        self.names = [*labels, NORMAL_LABEL]
        self.rows = {part: np.flatnonzero(self.crops.split == part) for part in (HELD_BACK, VALIDATION)}
        self.truth = {
            part: np.array([self.names.index(self.crops.labels[i]) for i in self.crops.label_index[rows]])
            for part, rows in self.rows.items()
        }

    def scores(self, bundle: Bundle) -> dict[int, Floats]:
        """Logits (crops, labels) by split."""
        return {part: logits(score_crops(bundle, self.crops, rows)) for part, rows in self.rows.items()}

    def figures(self, said: dict[int, Floats], offsets: Floats | None = None) -> dict[str, float]:
        """AUROC and macro F1 on the validation split, the threshold set on the crops held back."""
        offsets = np.zeros(len(self.names) - 1) if offsets is None else offsets
        held, val = (said[part] + offsets for part in (HELD_BACK, VALIDATION))
        threshold = self.best_threshold(held)
        truth = self.truth[VALIDATION]
        faulty = np.not_equal(truth, len(self.names) - 1)
        return {
            "auroc": round(auroc(said[VALIDATION].max(axis=1), faulty), 4),
            "macro_f1": round(self.f1(val, threshold, VALIDATION), 4),
        }

    def f1(self, said: Floats, threshold: float, part: int) -> float:
        """Macro F1 of twelve classes."""
        normal = len(self.names) - 1
        named = np.where(said.max(axis=1) >= threshold, said.argmax(axis=1), normal)
        return macro_f1(self.truth[part], named, len(self.names))

    def best_threshold(self, held: Floats) -> float:
        """The one of the best macro F1 on the crops held back."""
        steps = np.quantile(held.max(axis=1), np.linspace(0.02, 0.98, 97))
        return float(max(steps, key=lambda at: self.f1(held, float(at), HELD_BACK)))

    def offsets(self, held: Floats) -> Floats:
        """An offset for each class, one after the other, twice, by macro F1 on the crops held back."""
        chosen = np.zeros(held.shape[1])
        threshold = self.best_threshold(held)
        for _ in range(2):
            for label in range(held.shape[1]):
                tried = []
                for step in np.linspace(-1.5, 1.5, 13):
                    now = chosen.copy()
                    now[label] = step
                    tried.append((self.f1(held + now, threshold, HELD_BACK), -abs(float(step)), float(step)))
                chosen[label] = max(tried)[2]
        return chosen

    def stacked(self, parts: list[dict[int, Floats]]) -> dict[int, Floats]:
        """Softmax regression of all logits, with a penalty, taught by the crops held back."""
        rows = {part: np.concatenate([one[part] for one in parts], axis=1) for part in self.rows}
        mean, std = rows[HELD_BACK].mean(axis=0), rows[HELD_BACK].std(axis=0)
        ready = {part: np.column_stack([(x - mean) / std, np.ones(len(x))]) for part, x in rows.items()}
        x, wanted = ready[HELD_BACK], np.eye(len(self.names))[self.truth[HELD_BACK]]
        weights = np.zeros((x.shape[1], len(self.names)))
        for _ in range(STEPS):
            weights -= 0.5 * (x.T @ (_softmax(x @ weights) - wanted) / len(x) + 1e-2 * weights)
        answer = {}
        for part, now in ready.items():
            share = _softmax(now @ weights)
            kinds = np.log(share[:, :-1] / share[:, :-1].max(axis=1, keepdims=True))
            answer[part] = logits(1.0 - share[:, -1])[:, None] + kinds
        return answer


def _softmax(x: Floats) -> Floats:
    shifted = np.exp(x - x.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))


def _second(bundle: Bundle, **changes: Any) -> Bundle:
    assert bundle.second is not None
    return replace(bundle, second=replace(bundle.second, **changes), golden=None)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--crops", required=True, type=Path, metavar="FILE.npz")
    options = parser.parse_args()
    zoo = {name: load_bundle(f"zoo:{name}") for name in ("small-320", "tiny-224", "medium-640", "nano-160")}
    small = zoo["small-320"]
    judged = Judged(options.crops, small.labels)
    said = {name: judged.scores(bundle) for name, bundle in zoo.items()}
    figures = {name: judged.figures(one) for name, one in said.items()}
    twin = float_twin(small)
    variants: dict[str, Callable[[], Bundle]] = {
        "one view": lambda: _second(small, flips=1),
        "four views": lambda: _second(small, flips=4),
        "second alone": lambda: _second(small, first_weight=0.0, kind_weight=0.0),
    }
    for name, make in variants.items():
        figures[name] = judged.figures(judged.scores(make()))
    if twin is not None:
        figures["float"] = judged.figures(judged.scores(twin))
    three = [said[name] for name in ("small-320", "tiny-224", "medium-640")]
    figures["mean of three"] = judged.figures(
        {part: np.mean([one[part] for one in three], axis=0) for part in said["small-320"]}
    )
    figures["stacked"] = judged.figures(judged.stacked(three))
    figures["offsets by class"] = judged.figures(said["small-320"], judged.offsets(said["small-320"][HELD_BACK]))
    truth, normal = judged.truth[VALIDATION], len(judged.names) - 1
    healthy = np.flatnonzero(truth == normal)
    count = int(len(healthy) * AGREED_PER_1000 / 1000.0) + 1
    surest = [set(healthy[np.argsort(-one[VALIDATION][healthy].max(axis=1))[:count]].tolist()) for one in three]
    doubted = sorted(set.intersection(*surest))
    best = said["small-320"][VALIDATION].max(axis=1)
    faulty = np.not_equal(truth, normal)
    faulty[doubted] = True
    figures["doubted labels right"] = {"doubted": len(doubted), "auroc": round(auroc(best, faulty), 4)}
    print(json.dumps(figures, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
